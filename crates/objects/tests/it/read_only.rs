//! A share that may only be read: no act through it changes anything.

use crate::bed::{Bed, READ, content, open_if, request};
use lease::caching::{AccessMask, Sharing};
use namespace::Timestamp;
use objects::{
    BasicChange, CreateDisposition, CreateOptions, Deletion, DosAttributes, Info, ObjectPath, Open,
    OpenRequest, Opened, Root, SecurityDescriptor, StoreError, Target, TimeChange,
};
use std::sync::Arc;

const MAXIMUM: u32 = 0x200_0000;
const PARTS: u32 = SecurityDescriptor::OWNER | SecurityDescriptor::GROUP | SecurityDescriptor::DACL;

async fn open(bed: &Bed, path: &str, request: OpenRequest) -> Result<Opened, StoreError> {
    let root = Root { read_only: true, ..bed.root.clone() };
    let path = ObjectPath::parse(path, false).unwrap();
    bed.store.open(&bed.who, &root, &path, request).await
}

fn to(path: &str, replace: bool) -> Target {
    let path = ObjectPath::parse(path, false).unwrap();
    Target { path, replace, posix: false, ignore_read_only: false }
}

/// Everything that an act might change.
#[derive(Debug, PartialEq)]
struct Seen {
    names: Vec<(String, Info)>,
    of_file: Vec<(String, Vec<u8>)>,
    security: Vec<u8>,
}

async fn seen(bed: &Bed) -> Seen {
    let root = bed.open("", request(READ, Sharing::ALL)).await.unwrap().open;
    let listing = objects::Listing { limit: 1000, ..Default::default() };
    let entries = root.list(listing).await.unwrap();
    // Reading moves the access time.
    let still = |info: Info| Info { accessed: Timestamp { secs: 0, nanos: 0 }, ..info };
    let names = entries.into_iter().map(|entry| (entry.name, still(entry.info))).collect();
    let file = bed.open("f", request(READ, Sharing::ALL)).await.unwrap().open;
    let mut of_file = file.eas().await.unwrap();
    for stream in file.streams().await.unwrap() {
        let name = format!("f:{}:$DATA", stream.name);
        let open = bed.open(&name, request(READ, Sharing::ALL)).await.unwrap().open;
        of_file.push((stream.name, content(&open).await));
    }
    let security = file.security(PARTS).await.unwrap().to_bytes(PARTS);
    Seen { names, of_file, security }
}

/// Tries everything that changes something. Returns what was not refused.
async fn tries(open: &Arc<Open>) -> Vec<String> {
    let mut done = Vec::new();
    let mut note = |act: &str, result: Result<(), StoreError>| {
        if result.is_ok() {
            done.push(act.to_owned());
        }
    };
    note("write", open.write(0, b"changed".as_slice().into(), false).await.map(|_| ()));
    note("append", open.write(u64::MAX, b"changed".as_slice().into(), false).await.map(|_| ()));
    note("end", open.set_end(1).await);
    note("allocation", open.set_allocation(1).await);
    note("zero", open.zero(0, 2).await);
    note("sparse", open.set_sparse(true).await);
    let at = Some(TimeChange::At(Timestamp { secs: 5, nanos: 0 }));
    for change in [
        BasicChange { written: at, ..BasicChange::default() },
        BasicChange { created: at, ..BasicChange::default() },
        BasicChange { changed: at, ..BasicChange::default() },
        BasicChange { attributes: Some(DosAttributes(DosAttributes::HIDDEN)), ..BasicChange::default() },
        BasicChange { mode: Some(0o777), ..BasicChange::default() },
        BasicChange { uid: Some(9), ..BasicChange::default() },
    ] {
        note("basic", open.set_basic(change).await);
    }
    note("ea", open.set_ea("new", b"x").await);
    for parts in (0..5).map(|bit| 1 << bit).chain([0x1_0000]) {
        let whole = SecurityDescriptor::parse(&[[1u8, 0, 4, 0x80].as_slice(), &[0; 16]].concat()).unwrap();
        let set = open.set_security(parts, whole).await;
        note("security", set.and(if parts >= 0x10 { Err(StoreError::NotSupported) } else { Ok(()) }));
    }
    for (name, replace) in [("new", false), ("other", true), (":new", false), ("f", true), ("F", true)] {
        note("rename", open.rename(to(name, replace)).await);
        note("link", open.link(to(name, replace)).await);
    }
    for posix in [false, true] {
        note("deletion", open.set_deletion(Deletion { delete: true, posix, ignore_read_only: true }).await);
    }
    done
}

#[tokio::test]
async fn nothing_changes_through_a_share_that_may_only_be_read() {
    use CreateDisposition::{Create, Open, OpenIf, Overwrite, OverwriteIf, Supersede};
    let bed = Bed::new().await;
    for (path, content) in [("f", b"file".as_slice()), ("f:s", b"stream"), ("other", b"other")] {
        bed.file(path, content).await.close(false).await.unwrap();
    }
    bed.directory("d").await.close(false).await.unwrap();
    let file = bed.file("f", b"").await;
    file.set_ea("known", b"value").await.unwrap();
    file.close(false).await.unwrap();
    let before = seen(&bed).await;
    let rights = (0..21).map(|bit| 1 << bit).chain([MAXIMUM, READ, 0x1000_0000, 0x8000_0000]);
    let mut opened = 0;
    for access in rights {
        for path in ["", "f", "f:s", "f:new", "d", "d:new", "new", "new:s"] {
            for disposition in [Open, OpenIf, Create, Overwrite, OverwriteIf, Supersede] {
                for options in [0, CreateOptions::DIRECTORY, CreateOptions::DELETE_ON_CLOSE] {
                    let (access, options) = (AccessMask(access), CreateOptions(options));
                    let request = OpenRequest { access, disposition, options, ..open_if() };
                    let Ok(open) = open(&bed, path, request).await else { continue };
                    opened += 1;
                    let done = tries(&open.open).await;
                    let what = format!("{path:?} {access:?} {disposition:?} {options:?}");
                    assert_eq!(done, Vec::<String>::new(), "{what}");
                    open.open.close(false).await.unwrap();
                    assert_eq!(seen(&bed).await, before, "{what}");
                }
            }
        }
    }
    assert!(opened > 50, "{opened} opens");
}

#[tokio::test]
async fn a_stream_is_made_by_who_may_write_its_file() {
    let mut bed = Bed::new().await;
    bed.file("f", b"").await.close(false).await.unwrap();
    bed.file("f:s", b"stream").await.close(false).await.unwrap();
    bed.who = namespace::Cred { uid: 7, gid: 7, ..Default::default() };
    for (path, disposition) in [
        ("f:new", CreateDisposition::OpenIf),
        ("f:new", CreateDisposition::Create),
        ("f:s", CreateDisposition::Supersede),
        ("f:s", CreateDisposition::OverwriteIf),
    ] {
        let request = OpenRequest { disposition, ..request(READ, Sharing::ALL) };
        assert_eq!(bed.open(path, request).await.err(), Some(StoreError::AccessDenied), "{path}");
    }
    let stream = bed.open("f:s", request(READ, Sharing::ALL)).await.unwrap().open;
    assert_eq!(content(&stream).await, b"stream");
}
