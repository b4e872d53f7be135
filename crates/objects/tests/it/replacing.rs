//! Renames and links that take a name from another file.

use crate::bed::{ALL, Bed, READ, content, open_if, request};
use crate::meant::{fuse, label, to};
use client::call;
use lease::caching::Sharing;
use namespace::Cred;
use objects::{BasicChange, DosAttributes, Open, OpenRequest, SecurityDescriptor, StoreError, Target};

/// The act that is to take a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    Rename,
    Link,
}

const TAKERS: [Taker; 2] = [Taker::Rename, Taker::Link];

async fn takes(taker: Taker, open: &Open, target: Target) -> Result<(), StoreError> {
    match taker {
        Taker::Rename => open.rename(target).await,
        Taker::Link => open.link(target).await,
    }
}

async fn of(bed: &Bed, name: &str) -> Result<Vec<u8>, StoreError> {
    let open = bed.open(name, request(READ, Sharing::ALL)).await?.open;
    let content = content(&open).await;
    open.close(false).await?;
    Ok(content)
}

async fn names(bed: &Bed) -> Vec<String> {
    let dir = bed.open("", request(READ, Sharing::ALL)).await.unwrap().open;
    let listing = objects::Listing { limit: 1000, ..Default::default() };
    let mut names: Vec<String> = dir.list(listing).await.unwrap().into_iter().map(|it| it.name).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

async fn made(bed: &Bed, name: &str, content: &[u8]) {
    bed.file(name, content).await.close(false).await.unwrap();
}

#[tokio::test]
async fn a_refusal_leaves_the_file_that_would_be_replaced() {
    for (taker, name) in TAKERS.into_iter().flat_map(|taker| [(taker, "Target"), (taker, "TARGET")]) {
        let bed = Bed::new().await;
        made(&bed, "Target", b"target").await;
        // The file has lost its name, so it can get no other.
        let nameless = bed.file("f", b"f").await;
        let (dir, label) = (bed.root.dir.clone(), label("f"));
        fuse(&bed, call::Unlink { dir, label, pending: None, directory: false }).await.unwrap();
        assert_eq!(takes(taker, &nameless, to(name, true)).await, Err(StoreError::NotFound), "{taker:?}");
        assert_eq!(of(&bed, "Target").await.unwrap(), b"target", "{taker:?} {name}");
        assert_eq!(names(&bed).await, ["Target"]);
    }
}

#[tokio::test]
async fn a_name_is_taken_in_one_step() {
    for (taker, name) in TAKERS.into_iter().flat_map(|taker| [(taker, "Target"), (taker, "TARGET")]) {
        let bed = Bed::new().await;
        made(&bed, "Target", b"target").await;
        let file = bed.file("f", b"f").await;
        assert_eq!(takes(taker, &file, to(name, false)).await, Err(StoreError::NameCollision));
        takes(taker, &file, to(name, true)).await.unwrap();
        let left: &[&str] = if taker == Taker::Link { &[name, "f"] } else { &[name] };
        assert_eq!(names(&bed).await, left, "nothing else is left: {taker:?}");
        assert_eq!(of(&bed, "target").await.unwrap(), b"f");
        // Once more: the file has the name already.
        takes(taker, &file, to(name, true)).await.unwrap();
        assert_eq!(names(&bed).await, left);
    }
}

/// A descriptor whose list grants these rights to everyone.
fn grants(mask: u32) -> SecurityDescriptor {
    const EVERYONE: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let mut bytes = vec![1, 0, 4, 0x80];
    [0u32, 0, 0, 20].iter().for_each(|offset| bytes.extend(offset.to_le_bytes()));
    bytes.extend([2, 0, 28, 0, 1, 0, 0, 0, 0, 0, 20, 0]);
    bytes.extend(mask.to_le_bytes());
    bytes.extend(EVERYONE);
    SecurityDescriptor::parse(&bytes).unwrap()
}

#[tokio::test]
async fn what_is_replaced_may_be_deleted() {
    const DELETE_CHILD: u32 = 0x40;
    const DELETE: u32 = 0x1_0000;
    for taker in TAKERS {
        // The right is to the directory's children, or to the file.
        for (of_dir, of_file, expected) in [
            (ALL & !DELETE_CHILD & !DELETE, ALL & !DELETE, Err(StoreError::AccessDenied)),
            (ALL & !DELETE_CHILD & !DELETE, ALL, Ok(())),
            (ALL, ALL & !DELETE, Ok(())),
        ] {
            let mut bed = Bed::new().await;
            let dir = bed.open("d", OpenRequest { options: objects::CreateOptions(1), ..open_if() });
            let dir = dir.await.unwrap().open;
            dir.set_security(SecurityDescriptor::DACL, grants(of_dir)).await.unwrap();
            dir.close(false).await.unwrap();
            for (name, mask) in [("d\\target", of_file), ("d\\f", ALL)] {
                let file = bed.file(name, name.as_bytes()).await;
                file.set_security(SecurityDescriptor::DACL, grants(mask)).await.unwrap();
                file.close(false).await.unwrap();
            }
            bed.who = Cred { uid: 7, gid: 7, ..Cred::default() };
            let file = bed.open("d\\f", request(ALL, Sharing::ALL)).await.unwrap().open;
            let taken = takes(taker, &file, to("d\\target", true)).await;
            assert_eq!(taken, expected, "{taker:?} {of_dir:x} {of_file:x}");
            let left: &[u8] = if expected.is_ok() { b"d\\f" } else { b"d\\target" };
            assert_eq!(of(&bed, "d\\target").await.unwrap(), left);
        }
    }
}

#[tokio::test]
async fn a_read_only_file_is_replaced_by_who_says_so() {
    let bed = Bed::new().await;
    let target = bed.file("target", b"").await;
    let attributes = Some(DosAttributes(DosAttributes::READ_ONLY));
    target.set_basic(BasicChange { attributes, ..BasicChange::default() }).await.unwrap();
    target.close(false).await.unwrap();
    let file = bed.file("f", b"f").await;
    for taker in TAKERS {
        assert_eq!(takes(taker, &file, to("target", true)).await, Err(StoreError::AccessDenied), "{taker:?}");
    }
    file.rename(Target { ignore_read_only: true, ..to("target", true) }).await.unwrap();
}

#[tokio::test]
async fn an_open_that_does_not_share_deletion_keeps_its_name() {
    let here = Bed::new().await;
    let there = here.another().await;
    let unshared = Sharing(Sharing::READ.0 | Sharing::WRITE.0);
    for taker in TAKERS {
        for (at, posix, sharing, expected) in [
            (&here, false, unshared, Err(StoreError::AccessDenied)),
            (&here, false, Sharing::ALL, Err(StoreError::AccessDenied)),
            (&here, true, unshared, Err(StoreError::SharingViolation)),
            (&here, true, Sharing::ALL, Ok(())),
            (&there, false, unshared, Err(StoreError::AccessDenied)),
            (&there, true, unshared, Err(StoreError::SharingViolation)),
            (&there, true, Sharing::ALL, Ok(())),
        ] {
            made(&here, "target", b"target").await;
            let file = here.file("f", b"f").await;
            let open = at.open("target", request(READ, sharing)).await.unwrap().open;
            let taken = takes(taker, &file, Target { posix, ..to("target", true) }).await;
            assert_eq!(taken, expected, "{taker:?} {posix} {sharing:?}");
            assert_eq!(content(&open).await, b"target", "an open stays good");
            let left: &[u8] = if expected.is_ok() { b"f" } else { b"target" };
            open.close(false).await.unwrap();
            assert_eq!(of(&here, "target").await.unwrap(), left);
            file.close(false).await.unwrap();
            for name in ["f", "target"] {
                let (dir, label) = (here.root.dir.clone(), label(name));
                let _ = fuse(&here, call::Unlink { dir, label, pending: None, directory: false }).await;
            }
        }
    }
}

#[tokio::test]
async fn a_file_about_to_be_deleted_is_not_replaced() {
    for taker in TAKERS {
        let bed = Bed::new().await;
        let (file, target) = (bed.file("f", b"f").await, bed.file("target", b"").await);
        target.set_deletion(objects::Deletion { delete: true, ..Default::default() }).await.unwrap();
        let taken = takes(taker, &file, Target { posix: true, ..to("target", true) }).await;
        assert_eq!(taken, Err(StoreError::DeletePending), "{taker:?}");
        target.close(false).await.unwrap();
        takes(taker, &file, to("target", true)).await.unwrap();
        assert_eq!(of(&bed, "target").await.unwrap(), b"f");
    }
}
