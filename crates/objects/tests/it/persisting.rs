//! Opens that come back after the process has ended.

use crate::bed::{Bed, DELETE, READ, content, key, leased, open_if, pause, request, state};
use lease::caching::{AccessMask, CachingState, ClientGuid, LeaseVersion, Sharing};
use objects::{ByteRange, CreateOptions, Granted, KeptOpen, Open, OpenRequest, StoreError};
use std::sync::Arc;

const NONE: CachingState = CachingState::NONE;
const RH: CachingState = CachingState::RH;
const RWH: CachingState = CachingState::RWH;
const RANGE: ByteRange = ByteRange { offset: 0, length: 4 };

/// Opens `f` with a lease and a lock, and ends as a process does that is killed.
async fn killed(bed: &Bed) -> (KeptOpen, Option<u64>) {
    bed.client(1);
    let sharing = Sharing::READ;
    let opened = bed.open("f", leased(1, RWH, OpenRequest { sharing, ..open_if() })).await.unwrap();
    assert_eq!(state(opened.granted), RWH);
    let open = opened.open;
    open.write(0, b"kept".as_slice().into(), false).await.unwrap();
    open.lock(RANGE, true, false).await.unwrap();
    let version = open.persist().await.unwrap();
    assert!(version.is_some());
    open.outlives_process();
    (open.kept(), version)
}

async fn restored(bed: &Bed, kept: &KeptOpen, version: Option<u64>) -> Result<Arc<Open>, StoreError> {
    bed.store.restore(ClientGuid([1; 16]), &bed.who, &bed.root, (kept, version)).await
}

fn epoch(granted: Granted) -> u16 {
    match granted {
        Granted::Lease { version, .. } => version.epoch(),
        other => panic!("no lease: {other:?}"),
    }
}

#[tokio::test]
async fn an_open_comes_back_as_it_was() {
    let bed = Bed::new().await;
    let (kept, version) = killed(&bed).await;
    pause().await;
    let open = restored(&bed, &kept, version).await.unwrap();
    assert_eq!(open.kept(), kept, "lease, epoch, lock, rights, number");
    // Nobody else opens the file while its client is away, whatever the sharing says.
    let reads = request(READ, Sharing::ALL);
    assert_eq!(bed.open("F", reads.clone()).await.err(), Some(StoreError::NotAvailable));
    open.set_away(false);
    assert_eq!(content(&open).await, b"kept");
    let writes = request(0x2, Sharing::ALL);
    let refused = bed.opens("f", writes);
    pause().await;
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), CachingState::RW).unwrap());
    assert_eq!(refused.await.unwrap().err(), Some(StoreError::SharingViolation));
    let reader = bed.opens("f", reads);
    pause().await;
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), NONE).unwrap());
    let reader = reader.await.unwrap().unwrap().open;
    assert_eq!(reader.read(0, 4).await, Err(StoreError::FileLockConflict));
    open.close(false).await.unwrap();
    assert_eq!(content(&reader).await, b"kept");
}

#[tokio::test]
async fn a_lease_is_lost_with_the_content_that_it_was_about() {
    let bed = Bed::new().await;
    let (kept, version) = killed(&bed).await;
    pause().await;
    let other = bed.open("f", open_if()).await.unwrap().open;
    other.write(0, b"else".as_slice().into(), true).await.unwrap();
    other.close(false).await.unwrap();
    let before = match kept.caching {
        objects::Caching::Lease { version: LeaseVersion::V2 { epoch, .. }, .. } => epoch,
        other => panic!("{other:?}"),
    };
    for version in [version, None] {
        let open = restored(&bed, &kept, version).await.unwrap();
        assert_eq!(state(open.granted()), NONE);
        assert_eq!(epoch(open.granted()), before + 2, "the client forgets what it has cached");
        assert_eq!(open.kept().locks, kept.locks);
        open.set_away(false);
        open.close(false).await.unwrap();
    }
}

#[tokio::test]
async fn an_open_does_not_come_back_beside_what_it_excludes() {
    let bed = Bed::new().await;
    let (kept, version) = killed(&bed).await;
    pause().await;
    let writes = bed.open("f", request(0x2, Sharing::ALL)).await.unwrap().open;
    assert_eq!(restored(&bed, &kept, version).await.err(), Some(StoreError::SharingViolation));
    writes.close(false).await.unwrap();
    // Another file has the name.
    bed.open("f", request(DELETE, Sharing::ALL)).await.unwrap().open.set_deletion(deletion()).await.unwrap();
    pause().await;
    bed.file("f", b"another").await.close(false).await.unwrap();
    assert_eq!(restored(&bed, &kept, version).await.err(), Some(StoreError::NotFound));
}

fn deletion() -> objects::Deletion {
    objects::Deletion { delete: true, ..Default::default() }
}

#[tokio::test]
async fn the_end_of_the_process_deletes_nothing_and_the_close_does() {
    let bed = Bed::new().await;
    let options = CreateOptions(CreateOptions::DELETE_ON_CLOSE);
    let open = bed.open("f", OpenRequest { options, ..open_if() }).await.unwrap().open;
    let version = open.persist().await.unwrap();
    open.outlives_process();
    let kept = open.kept();
    drop(open);
    pause().await;
    let open = restored(&bed, &kept, version).await.unwrap();
    open.set_away(false);
    open.close(false).await.unwrap();
    let gone = bed.open("f", request(READ, Sharing::ALL)).await.err();
    assert_eq!(gone, Some(StoreError::NotFound));
}

#[tokio::test]
async fn another_machine_waits_for_a_client_that_is_away() {
    let here = Bed::new().await;
    let there = here.another().await;
    let (kept, version) = killed(&here).await;
    pause().await;
    let open = restored(&here, &kept, version).await.unwrap();
    let one = here.client(1);
    let second = there.opens("f", request(READ, Sharing::ALL));
    while one.take().is_empty() {
        pause().await;
    }
    // Nobody has heard the break. The client is back, and hears it again.
    assert!(!second.is_finished());
    open.set_away(false);
    drop(open.breaks_again().unwrap());
    assert_eq!(one.take(), [(RWH, RH, true)]);
    drop(here.store.acknowledge(ClientGuid([1; 16]), key(1), RH).unwrap());
    assert!(second.await.unwrap().is_ok());
    assert!(open.breaks_again().is_none());
}

#[tokio::test]
async fn rights_come_back_as_they_were_granted() {
    let bed = Bed::new().await;
    let access = AccessMask(READ);
    let open = bed.open("f", OpenRequest { access, ..open_if() }).await.unwrap().open;
    open.outlives_process();
    let kept = open.kept();
    drop(open);
    pause().await;
    let open = restored(&bed, &kept, None).await.unwrap();
    assert_eq!(open.write(0, b"x".as_slice().into(), false).await, Err(StoreError::AccessDenied));
}
