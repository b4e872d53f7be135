//! Symbolic links that clients make.

use crate::bed::{Bed, DELETE, READ, content, open_if, request};
use lease::caching::{AccessMask, Sharing};
use objects::{CreateOptions, DosAttributes, LinkOnPath, ObjectPath, Open, OpenRequest, StoreError};
use std::sync::Arc;

/// The link itself is meant, and not what it leads to.
fn itself() -> OpenRequest {
    OpenRequest { options: CreateOptions(CreateOptions::REPARSE_POINT), ..open_if() }
}

async fn link(bed: &Bed, path: &str, target: &str) -> Arc<Open> {
    let open = bed.open(path, itself()).await.unwrap().open;
    open.become_link(target.as_bytes()).await.unwrap()
}

async fn stops(bed: &Bed, path: &str) -> Option<LinkOnPath> {
    let path = ObjectPath::parse(path, false).unwrap();
    let refused = bed.store.open(&bed.who, &bed.root, &path, open_if()).await.err();
    assert_eq!(refused, Some(StoreError::StoppedOnLink));
    bed.store.link_on_path(&bed.who, &bed.root, &path, false).await.ok()
}

#[tokio::test]
async fn a_file_becomes_a_link_that_is_followed_within_the_share() {
    let bed = Bed::new().await;
    bed.directory("d").await.close(false).await.unwrap();
    bed.file(r"d\f", b"found").await.close(false).await.unwrap();
    let open = link(&bed, "link", "d/f").await;
    assert_eq!(open.link_target().await.unwrap(), b"d/f");
    assert!(open.info().await.unwrap().attributes.has(DosAttributes::REPARSE_POINT));
    let found = bed.open("LINK", request(READ, Sharing::ALL)).await.unwrap().open;
    assert_eq!(content(&found).await, b"found");
    assert_eq!(found.link_target().await, Err(StoreError::NotLink));
    // A link may get another target, and a directory become one.
    let open = open.become_link(b"d").await.unwrap();
    assert_eq!(open.link_target().await.unwrap(), b"d");
    open.close(false).await.unwrap();
    assert!(bed.open(r"link\f", request(READ, Sharing::ALL)).await.is_ok());
    let dir = bed.directory("e").await;
    assert_eq!(dir.become_link(b"d").await.err(), Some(StoreError::AccessDenied), "it may only read");
}

#[tokio::test]
async fn nothing_is_followed_out_of_the_share() {
    let bed = Bed::new().await;
    for target in ["/etc/passwd", "../up", "d/../../up", "nowhere", "no/where", "/??/C:/x"] {
        link(&bed, "link", target).await.close(false).await.unwrap();
        let found = stops(&bed, "link").await.unwrap();
        assert_eq!(found, LinkOnPath { target: target.into(), left: 0 });
    }
    link(&bed, "out", "..").await.close(false).await.unwrap();
    let found = stops(&bed, r"out\a\b").await.unwrap();
    assert_eq!(found, LinkOnPath { target: b"..".to_vec(), left: 2 });
}

#[tokio::test]
async fn a_link_goes_with_its_own_close() {
    let bed = Bed::new().await;
    let options = CreateOptions(CreateOptions::REPARSE_POINT | CreateOptions::DELETE_ON_CLOSE);
    let open = bed.open("link", OpenRequest { options, ..open_if() }).await.unwrap().open;
    let open = open.become_link(b"target").await.unwrap();
    assert!(bed.open("link", OpenRequest { access: AccessMask(0x80), ..itself() }).await.is_ok());
    open.close(false).await.unwrap();
    let gone = bed.open("link", OpenRequest { options, ..request(DELETE, Sharing::ALL) }).await.err();
    assert_eq!(gone, Some(StoreError::NotFound));
}

#[tokio::test]
async fn no_file_with_content_or_another_open_becomes_a_link() {
    let bed = Bed::new().await;
    let full = bed.file("full", b"content").await;
    assert_eq!(full.become_link(b"x").await.err(), Some(StoreError::NotEmpty));
    assert_eq!(content(&full).await, b"content");
    let (one, _two) = (bed.file("f", b"").await, bed.file("f", b"").await);
    assert_eq!(one.become_link(b"x").await.err(), Some(StoreError::SharingViolation));
    let reads = bed.open("f", request(READ, Sharing::ALL)).await.unwrap().open;
    assert_eq!(reads.become_link(b"x").await.err(), Some(StoreError::AccessDenied));
}
