//! Security descriptors: who may do what, over SMB and as POSIX sees it.

use crate::bed::{ALL, Bed, DELETE, READ, WRITE, open_if, request};
use lease::caching::{AccessMask, Sharing};
use namespace::Cred;
use objects::{BasicChange, CreateOptions, Info, Listing, Open, OpenRequest, SecurityDescriptor, StoreError};

const OWNER: [u8; 16] = [1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0, 0, 0, 0];
const EVERYONE: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
const USER_7: [u8; 16] = [1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 7, 0, 0, 0];
const WRITE_DAC: u32 = 0x4_0000;
const READ_CONTROL: u32 = 0x2_0000;
const ALL_PARTS: u32 = SecurityDescriptor::OWNER | SecurityDescriptor::GROUP | SecurityDescriptor::DACL;
const MAXIMUM: u32 = 0x200_0000;

/// A descriptor with a list: kind, flags, mask, identifier.
fn list(entries: &[(u8, u8, u32, &[u8])]) -> SecurityDescriptor {
    let mut body = Vec::new();
    for (kind, flags, mask, sid) in entries {
        body.extend([*kind, *flags]);
        body.extend((8 + sid.len() as u16).to_le_bytes());
        body.extend(mask.to_le_bytes());
        body.extend(*sid);
    }
    let mut bytes = vec![1, 0, 4, 0x80];
    for offset in [0u32, 0, 0, 20] {
        bytes.extend(offset.to_le_bytes());
    }
    bytes.extend([2, 0]);
    bytes.extend((8 + body.len() as u16).to_le_bytes());
    bytes.extend((entries.len() as u16).to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(body);
    SecurityDescriptor::parse(&bytes).unwrap()
}

async fn mode(open: &Open) -> u32 {
    let Info { posix, .. } = open.info().await.unwrap();
    posix.mode & 0o7777
}

async fn opens(bed: &Bed, path: &str, access: u32) -> Result<u32, StoreError> {
    let opened = bed.open(path, request(access, Sharing::ALL)).await?;
    Ok(opened.open.access().0)
}

#[tokio::test]
async fn a_list_says_who_may_do_what() {
    let mut bed = Bed::new().await;
    let file = bed.file("f", b"text").await;
    file.set_security(SecurityDescriptor::DACL, list(&[(0, 0, READ, &OWNER)])).await.unwrap();
    assert_eq!(opens(&bed, "f", READ).await, Ok(READ));
    assert_eq!(opens(&bed, "f", 2).await, Err(StoreError::AccessDenied));
    // An owner may always read the list and set it, and whoever removes names here the name.
    assert_eq!(opens(&bed, "f", MAXIMUM).await, Ok(READ | WRITE_DAC | DELETE));
    assert_eq!(mode(&file).await, 0o400, "what POSIX sees");
    let shown = file.info().await.unwrap().attributes;
    assert!(!shown.has(objects::DosAttributes::READ_ONLY), "no mode says that");
    bed.who = Cred { uid: 7, gid: 7, ..Cred::default() };
    assert_eq!(opens(&bed, "f", READ).await, Err(StoreError::AccessDenied));
    let both = list(&[(1, 0, 2, &USER_7), (0, 0, READ | WRITE, &EVERYONE)]);
    file.set_security(SecurityDescriptor::DACL, both).await.unwrap();
    assert_eq!(opens(&bed, "f", READ).await, Ok(READ));
    assert_eq!(opens(&bed, "f", 2).await, Err(StoreError::AccessDenied));
    bed.who = Cred { uid: 8, gid: 8, ..Cred::default() };
    assert_eq!(opens(&bed, "f", WRITE).await, Ok(WRITE));
}

#[tokio::test]
async fn a_list_that_a_mode_can_say_is_the_mode() {
    let bed = Bed::new().await;
    let file = bed.file("f", b"").await;
    let was = file.security(ALL_PARTS).await.unwrap();
    file.set_security(SecurityDescriptor::DACL, list(&[])).await.unwrap();
    assert_eq!(mode(&file).await, 0);
    file.set_security(SecurityDescriptor::DACL, was.clone()).await.unwrap();
    assert_eq!((mode(&file).await, file.security(ALL_PARTS).await.unwrap()), (0o644, was));
    assert_eq!(opens(&bed, "f", ALL).await, Ok(ALL), "root has all rights by POSIX");
}

#[tokio::test]
async fn a_descriptor_without_parts_needs_no_right() {
    let bed = Bed::new().await;
    drop(bed.file("f", b"").await);
    let access = AccessMask::READ_ATTRIBUTES;
    let open = bed.open("f", OpenRequest { access, ..open_if() }).await.unwrap().open;
    for part in [SecurityDescriptor::OWNER, SecurityDescriptor::GROUP, SecurityDescriptor::DACL] {
        assert_eq!(open.security(part).await, Err(StoreError::AccessDenied));
    }
    assert_eq!(open.security(0).await.unwrap().to_bytes(0).len(), 20, "a header alone");
}

#[tokio::test]
async fn chmod_ends_a_list() {
    let bed = Bed::new().await;
    let file = bed.file("f", b"").await;
    file.set_security(SecurityDescriptor::DACL, list(&[(0, 0, READ, &USER_7)])).await.unwrap();
    assert_eq!(opens(&bed, "f", READ).await, Err(StoreError::AccessDenied));
    let change = BasicChange { mode: Some(0o640), ..Default::default() };
    file.set_basic(change).await.unwrap();
    assert_eq!(opens(&bed, "f", READ).await, Ok(READ));
}

#[tokio::test]
async fn what_is_made_inherits() {
    let mut bed = Bed::new().await;
    let dir = bed.open("d", OpenRequest { options: CreateOptions(CreateOptions::DIRECTORY), ..open_if() });
    let dir = dir.await.unwrap().open;
    let passes_on = list(&[(0, 3, READ, &EVERYONE), (0, 0, ALL, &USER_7)]);
    dir.set_security(SecurityDescriptor::DACL, passes_on).await.unwrap();
    bed.who = Cred { uid: 7, gid: 7, ..Cred::default() };
    let file = bed.open("d\\f", open_if()).await.unwrap();
    assert_eq!(file.open.access().0, ALL, "whoever makes a file has all rights to it");
    assert_eq!(file.info.posix.uid, 7);
    assert_eq!(opens(&bed, "d\\f", READ).await, Ok(READ));
    assert_eq!(opens(&bed, "d\\f", WRITE).await, Err(StoreError::AccessDenied));
    let shown =
        file.open.security(SecurityDescriptor::DACL).await.unwrap().to_bytes(SecurityDescriptor::DACL);
    assert_eq!(shown, list(&[(0, 0, READ, &EVERYONE)]).to_bytes(SecurityDescriptor::DACL));
    bed.who = Cred { uid: 8, gid: 8, ..Cred::default() };
    assert_eq!(bed.open("d\\g", open_if()).await.err(), Some(StoreError::AccessDenied));
    assert_eq!(opens(&bed, "d\\f", READ_CONTROL).await, Ok(READ_CONTROL));
}

#[tokio::test]
async fn a_file_may_be_made_with_a_descriptor() {
    let bed = Bed::new().await;
    let security = Some(list(&[(0, 0, READ, &OWNER)]));
    let opened = bed.open("f", OpenRequest { security, ..open_if() }).await.unwrap();
    assert_eq!(opened.open.access(), AccessMask(ALL));
    assert_eq!(opens(&bed, "f", 2).await, Err(StoreError::AccessDenied));
}

/// The names that a listing of the share has, but for its dots.
async fn listed(bed: &Bed, pattern: &str) -> Result<Vec<String>, StoreError> {
    let root = bed.open("", request(READ, Sharing::ALL)).await.unwrap().open;
    let pattern = Some(pattern.to_owned());
    let entries = root.list(Listing { pattern, limit: 100, ..Listing::default() }).await?;
    let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name != "." && name != "..");
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn a_share_that_hides_lists_only_what_its_user_may_read() {
    let mut bed = Bed::new().await;
    let dacl = SecurityDescriptor::DACL;
    let (ea, attributes) = (0x8, AccessMask::READ_ATTRIBUTES.0);
    for name in ["Open", "closed", "for 7", "without eas", "without attributes"] {
        drop(bed.file(name, b"").await);
    }
    for name in ["dir", "private"] {
        drop(bed.directory(name).await);
    }
    for name in ["closed", "private"] {
        let open = bed.open(name, request(ALL, Sharing::ALL)).await.unwrap().open;
        open.set_basic(BasicChange { mode: Some(0o700), ..BasicChange::default() }).await.unwrap();
    }
    for (name, rights) in
        [("for 7", READ), ("without eas", READ & !ea), ("without attributes", READ & !attributes)]
    {
        let open = bed.open(name, request(ALL, Sharing::ALL)).await.unwrap().open;
        open.set_security(dacl, list(&[(0, 0, rights, &USER_7)])).await.unwrap();
    }
    let all = ["Open", "closed", "dir", "for 7", "private", "without attributes", "without eas"];
    bed.who = Cred { uid: 7, gid: 7, ..Cred::default() };
    assert_eq!(listed(&bed, "*").await.unwrap(), all, "nothing is hidden unless the share says so");
    bed.root.hides_unreadable = true;
    assert_eq!(listed(&bed, "*").await.unwrap(), ["Open", "dir", "for 7"]);
    assert_eq!(listed(&bed, "open").await.unwrap(), ["Open"]);
    assert_eq!(listed(&bed, "CLOSED").await, Err(StoreError::NoSuchFile));
    assert_eq!(listed(&bed, "c*").await, Err(StoreError::NoSuchFile));
    assert_eq!(opens(&bed, "closed", attributes).await, Ok(attributes), "who knows a name opens it");
    bed.who = Cred { uid: 8, gid: 8, ..Cred::default() };
    assert_eq!(listed(&bed, "*").await.unwrap(), ["Open", "dir"]);
    bed.who = Cred::default();
    assert_eq!(listed(&bed, "*").await.unwrap(), ["Open", "closed", "dir", "private"]);
}
