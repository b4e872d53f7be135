//! Acts of an open on its own file, whatever has its name by then.

use crate::bed::{ALL, READ};
use crate::bed::{Bed, content, open_if, request};
use client::call;
use file_service::FileCall;
use lease::Label;
use lease::caching::Sharing;
use namespace::{Cred, Error, RenameMode};
use objects::{CreateOptions, Deletion, ObjectPath, OpenRequest, StoreError, Target};
use tokio::sync::oneshot;

const POSIX: Deletion = Deletion { delete: true, posix: true, ignore_read_only: false };
const WITHDRAWN: Deletion = Deletion { delete: false, posix: false, ignore_read_only: false };

/// A call of FUSE.
pub async fn fuse<C: FileCall>(bed: &Bed, call: C) -> Result<C::Reply, Error> {
    let (tell, told) = oneshot::channel();
    bed.store.file_service().ask(&Cred::default(), call, move |reply| _ = tell.send(reply));
    told.await.unwrap()
}

pub fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

/// Renames in the root, by FUSE.
async fn moves(bed: &Bed, from: &str, to: &str) {
    let (from_dir, to_dir) = (bed.root.dir.clone(), bed.root.dir.clone());
    let call = call::Rename {
        from_dir,
        from: label(from),
        source: None,
        to_dir,
        to: label(to),
        mode: RenameMode::Replace,
        replaced: None,
        whiteout: false,
    };
    fuse(bed, call).await.unwrap();
}

pub fn to(path: &str, replace: bool) -> Target {
    let path = ObjectPath::parse(path, false).unwrap();
    Target { path, replace, posix: false, ignore_read_only: false }
}

/// The content of the file that has the name.
async fn of(bed: &Bed, name: &str) -> Result<Vec<u8>, StoreError> {
    let open = bed.open(name, request(READ, Sharing::ALL)).await?.open;
    let content = content(&open).await;
    open.close(false).await?;
    Ok(content)
}

async fn made(bed: &Bed, name: &str, content: &[u8]) {
    bed.file(name, content).await.close(false).await.unwrap();
}

#[tokio::test]
async fn a_deletion_that_was_refused_or_withdrawn_leaves_nothing_behind() {
    let bed = Bed::new().await;
    // Refused: the directory has a child.
    let options = CreateOptions(CreateOptions::DIRECTORY);
    let dir = bed.open("d", OpenRequest { options, ..open_if() }).await.unwrap().open;
    let child = bed.file("d\\child", b"").await;
    assert_eq!(dir.set_deletion(POSIX).await, Err(StoreError::NotEmpty));
    child.set_deletion(POSIX).await.unwrap();
    child.close(false).await.unwrap();
    dir.close(false).await.unwrap();
    assert!(bed.open("d", OpenRequest { options, ..request(READ, Sharing::ALL) }).await.is_ok());
    // Withdrawn, by the same open in either way or by another one.
    let also = Deletion { posix: true, ..WITHDRAWN };
    for (by_another, withdrawn) in [(false, WITHDRAWN), (false, also), (true, WITHDRAWN), (true, also)] {
        let (one, two) = (bed.file("f", b"f").await, bed.file("f", b"f").await);
        one.set_deletion(POSIX).await.unwrap();
        let by = if by_another { &two } else { &one };
        by.set_deletion(withdrawn).await.unwrap();
        one.close(false).await.unwrap();
        two.close(false).await.unwrap();
        assert_eq!(of(&bed, "f").await.unwrap(), b"f", "{by_another} {withdrawn:?}");
    }
}

#[tokio::test]
async fn a_deletion_that_is_withdrawn_elsewhere_is_not_carried_out() {
    let here = Bed::new().await;
    let there = here.another().await;
    let (one, two) = (here.file("f", b"f").await, there.file("f", b"f").await);
    one.set_deletion(POSIX).await.unwrap();
    two.set_deletion(WITHDRAWN).await.unwrap();
    one.close(false).await.unwrap();
    assert_eq!(of(&there, "f").await.unwrap(), b"f");
    two.close(false).await.unwrap();
    assert_eq!(of(&here, "f").await.unwrap(), b"f");
}

#[tokio::test]
async fn a_name_that_is_another_files_is_not_deleted() {
    let bed = Bed::new().await;
    for posix in [true, false] {
        let one = bed.file("f", b"old").await;
        one.set_deletion(Deletion { posix, ..POSIX }).await.unwrap();
        moves(&bed, "f", "g").await;
        made(&bed, "f", b"new").await;
        one.close(false).await.unwrap();
        assert_eq!(of(&bed, "f").await.unwrap(), b"new", "it has the name by now");
        assert_eq!(of(&bed, "g").await, Err(StoreError::NotFound), "the file went that was meant");
        // The same for an open that deletes with its close.
        let options = CreateOptions(CreateOptions::DELETE_ON_CLOSE);
        let one = bed.open("f", OpenRequest { options, ..open_if() }).await.unwrap().open;
        moves(&bed, "f", "g").await;
        made(&bed, "f", b"newer").await;
        one.close(false).await.unwrap();
        assert_eq!(of(&bed, "f").await.unwrap(), b"newer");
        assert_eq!(of(&bed, "g").await, Err(StoreError::NotFound));
    }
}

#[tokio::test]
async fn a_deletion_by_posix_rules_takes_its_name_alone() {
    let bed = Bed::new().await;
    let (one, two) = (bed.file("f", b"x").await, bed.file("f", b"x").await);
    one.link(to("other", false)).await.unwrap();
    one.set_deletion(POSIX).await.unwrap();
    one.close(false).await.unwrap();
    assert_eq!(of(&bed, "f").await, Err(StoreError::NotFound), "though it is open still");
    assert_eq!(of(&bed, "other").await.unwrap(), b"x", "nothing is pending for this name");
    two.close(false).await.unwrap();
    assert_eq!(of(&bed, "other").await.unwrap(), b"x");
}

#[tokio::test]
async fn a_rename_is_of_the_file_that_is_open() {
    let bed = Bed::new().await;
    let one = bed.file("f", b"old").await;
    moves(&bed, "f", "g").await;
    made(&bed, "f", b"new").await;
    one.rename(to("h", false)).await.unwrap();
    assert_eq!(of(&bed, "f").await.unwrap(), b"new");
    assert_eq!(
        (of(&bed, "h").await.unwrap(), of(&bed, "g").await),
        (b"old".to_vec(), Err(StoreError::NotFound))
    );
    assert_eq!(one.path(), "h");
    // To a name that it had, and that is another's by now.
    moves(&bed, "h", "g").await;
    made(&bed, "h", b"other").await;
    assert_eq!(one.rename(to("h", false)).await, Err(StoreError::NameCollision));
    one.rename(to("h", true)).await.unwrap();
    assert_eq!(of(&bed, "h").await.unwrap(), b"old");
    // A deletion finds the new name, too.
    moves(&bed, "h", "g").await;
    made(&bed, "h", b"other").await;
    one.set_deletion(Deletion { posix: false, ..POSIX }).await.unwrap();
    one.close(false).await.unwrap();
    assert_eq!(
        (of(&bed, "h").await.unwrap(), of(&bed, "g").await),
        (b"other".to_vec(), Err(StoreError::NotFound))
    );
    // Of several names none is the one that the open had.
    let one = bed.file("a", b"a").await;
    one.link(to("b", false)).await.unwrap();
    moves(&bed, "f", "a").await;
    one.link(to("c", false)).await.unwrap();
    assert_eq!(one.rename(to("d", false)).await, Err(StoreError::NotFound));
    assert_eq!(of(&bed, "a").await.unwrap(), b"new");
    // A file without any name has none to change.
    let gone = bed.file("gone", b"").await;
    moves(&bed, "a", "gone").await;
    assert_eq!(gone.rename(to("back", false)).await, Err(StoreError::NotFound));
    assert_eq!(of(&bed, "gone").await.unwrap(), b"new");
}

#[tokio::test]
async fn a_rename_on_another_machine_is_followed() {
    let here = Bed::new().await;
    let there = here.another().await;
    let one = here.file("f", b"old").await;
    let two = there.open("f", request(ALL, Sharing::ALL)).await.unwrap().open;
    two.rename(to("g", false)).await.unwrap();
    made(&there, "f", b"new").await;
    one.rename(to("h", false)).await.unwrap();
    for bed in [&here, &there] {
        assert_eq!(
            (of(bed, "f").await.unwrap(), of(bed, "h").await.unwrap()),
            (b"new".to_vec(), b"old".to_vec())
        );
    }
}
