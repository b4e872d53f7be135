//! Caching leases and oplocks, and the store as a cache below the client.

use crate::bed::{ALL, Bed, DELETE, READ, WRITE, content, key, leased, open_if, pause, request, state};
use lease::caching::{AcknowledgeError, CachingState, ClientGuid, Sharing};
use objects::{Caching, CreateDisposition, OpenRequest, StoreError, Target};
use std::sync::Arc;

const NONE: CachingState = CachingState::NONE;
const R: CachingState = CachingState::READ;
const RH: CachingState = CachingState::RH;
const RW: CachingState = CachingState::RW;
const RWH: CachingState = CachingState::RWH;

#[tokio::test]
async fn another_open_takes_write_caching() {
    let bed = Bed::new().await;
    let (one, two) = (bed.client(1), bed.client(2));
    for (asks, gets) in [(RWH, RWH), (RH, RH), (R, R), (RW, RW), (CachingState::HANDLE, NONE)] {
        let opened = bed.open("f", leased(1, asks, open_if())).await.unwrap();
        assert_eq!(state(opened.granted), gets);
        opened.open.close(false).await.unwrap();
    }
    let first = bed.open("f", leased(1, RWH, open_if())).await.unwrap().open;
    let second = bed.opens("f", leased(2, RWH, open_if()));
    pause().await;
    assert_eq!(one.take(), [(RWH, RH, true)]);
    assert!(!second.is_finished());
    first.write(0, b"what was cached".as_slice().into(), false).await.unwrap();
    let acknowledged = bed.store.acknowledge(ClientGuid([1; 16]), key(1), RH).unwrap();
    assert_eq!(acknowledged.state, RH);
    drop(acknowledged);
    let second = second.await.unwrap().unwrap();
    assert_eq!(state(second.granted), RH);
    assert_eq!(content(&second.open).await, b"what was cached");
    // A write takes all from the other, and nobody waits for that.
    second.open.write(0, b"W".as_slice().into(), false).await.unwrap();
    assert_eq!(one.take(), [(RH, NONE, true)]);
    assert_eq!(two.take(), []);
    let late = bed.store.acknowledge(ClientGuid([9; 16]), key(9), NONE).err();
    assert_eq!(late, Some(AcknowledgeError::Unknown));
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), NONE).unwrap());
    first.close(false).await.unwrap();
    second.open.close(false).await.unwrap();
    assert_eq!(bed.store.counts(), (0, 0, 0));
}

#[tokio::test]
async fn a_handle_that_is_only_cached_makes_way() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    let deny = OpenRequest { sharing: Sharing(0), ..open_if() };
    let first = bed.open("f", leased(1, RWH, deny)).await.unwrap().open;
    let second = bed.opens("f", request(READ, Sharing::ALL));
    pause().await;
    assert_eq!(one.take(), [(RWH, RW, true)]);
    first.close(false).await.unwrap();
    assert!(second.await.unwrap().is_ok());

    let deny = OpenRequest { sharing: Sharing(0), ..open_if() };
    let first = bed.open("f", leased(1, RWH, deny)).await.unwrap().open;
    let second = bed.opens("f", request(READ, Sharing::ALL));
    pause().await;
    assert_eq!(one.take(), [(RWH, RW, true)]);
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), RW).unwrap());
    assert_eq!(second.await.unwrap().err(), Some(StoreError::SharingViolation));
    assert_eq!(state(first.granted()), RW);
}

#[tokio::test]
async fn a_client_without_a_connection_is_not_waited_for() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    let first = bed.open("f", leased(1, RWH, open_if())).await.unwrap().open;
    let second = bed.opens("f", request(WRITE, Sharing::ALL));
    pause().await;
    assert_eq!(one.take().len(), 1);
    bed.store.disconnect(ClientGuid([1; 16]));
    assert!(second.await.unwrap().is_ok());
    assert_eq!(state(first.granted()), NONE);
}

#[tokio::test]
async fn an_open_that_is_given_up_leaves_nothing() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    let first = bed.open("f", leased(1, RWH, open_if())).await.unwrap().open;
    let second = bed.opens("f", leased(2, RWH, open_if()));
    pause().await;
    second.abort();
    pause().await;
    assert_eq!(bed.store.counts(), (1, 1, 1));
    assert_eq!(one.take().len(), 1);
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), RH).unwrap());
    first.close(false).await.unwrap();
    assert_eq!(bed.store.counts(), (0, 0, 0));
    assert!(bed.open("g", leased(2, RWH, open_if())).await.is_ok(), "the key is free");
}

#[tokio::test]
async fn a_key_is_one_files_and_oplocks_are_lesser_leases() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    let first = bed.open("f", leased(1, RWH, open_if())).await.unwrap().open;
    assert_eq!(bed.open("g", leased(1, RWH, open_if())).await.err(), Some(StoreError::Invalid));
    let again = bed.open("f", leased(1, RH, open_if())).await.unwrap();
    assert_eq!(state(again.granted), RWH);
    drop((first, again));
    assert_eq!(one.take(), []);
    let batch = OpenRequest { client: ClientGuid([1; 16]), caching: Caching::Oplock(RWH), ..open_if() };
    let first = bed.open("o", batch).await.unwrap();
    assert_eq!(state(first.granted), RWH);
    let second = bed.opens("o", request(READ, Sharing::ALL));
    pause().await;
    assert_eq!(one.take(), [(RWH, R, true)]);
    drop(bed.store.acknowledge_oplock(first.open.id(), R).unwrap());
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn renaming_takes_handle_caching_and_needs_what_is_below_closed() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    let dir = bed.directory("d").await;
    let below = bed.open("d\\f", leased(1, RWH, open_if())).await.unwrap().open;
    let rename = |path: &str| Target {
        path: objects::ObjectPath::parse(path, false).unwrap(),
        replace: false,
        posix: false,
        ignore_read_only: false,
    };
    let renames = {
        let dir = Arc::clone(&dir);
        let to = rename("e");
        tokio::spawn(async move { dir.rename(to).await })
    };
    pause().await;
    assert_eq!(one.take(), [(RWH, RW, true)]);
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), RW).unwrap());
    assert_eq!(renames.await.unwrap(), Err(StoreError::AccessDenied));
    below.close(false).await.unwrap();
    assert_eq!(dir.rename(rename("e")).await, Ok(()));
    assert_eq!(dir.path(), "e");
    // Nothing is renamed in a directory that an open may delete.
    dir.close(false).await.unwrap();
    let file = bed.file("e\\f", b"").await;
    let held = bed.open("e\\F", leased(1, RH, request(READ, Sharing::ALL))).await.unwrap().open;
    let renames = {
        let file = file.clone();
        let to = rename("e\\g");
        tokio::spawn(async move { file.rename(to).await })
    };
    pause().await;
    assert_eq!(one.take(), [(RH, R, true)]);
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), R).unwrap());
    assert_eq!(renames.await.unwrap(), Ok(()));
    assert_eq!((held.path().as_str(), file.path().as_str()), ("e\\g", "e\\g"));
    assert_eq!(bed.open("e\\f", request(DELETE, Sharing::ALL)).await.err(), Some(StoreError::NotFound));
    let overwrites = OpenRequest { disposition: CreateDisposition::Overwrite, ..request(ALL, Sharing::ALL) };
    assert!(bed.open("e\\g", overwrites).await.is_ok());
    assert_eq!(one.take(), [(R, NONE, false)]);
}
