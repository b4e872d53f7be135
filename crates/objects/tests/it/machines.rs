//! SMB clients of two machines.

use crate::bed::{Bed, READ, Sink, WRITE, content, key, leased, open_if, pause, request, state};
use lease::caching::{CachingState, ClientGuid, Sharing};
use objects::{ByteRange, OpenRequest, StoreError};
use std::time::{Duration, Instant};

const NONE: CachingState = CachingState::NONE;
const RH: CachingState = CachingState::RH;
const RWH: CachingState = CachingState::RWH;

/// Waits for one break.
async fn broken(sink: &Sink) -> (CachingState, CachingState, bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let [one] = sink.take()[..] {
            return one;
        }
        assert!(Instant::now() < end, "no break");
        pause().await;
    }
}

fn acknowledge(bed: &Bed, keeps: CachingState) {
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), keeps).unwrap());
}

#[tokio::test]
async fn what_a_client_of_one_machine_caches_is_seen_on_the_other() {
    let here = Bed::new().await;
    let there = here.another().await;
    let one = here.client(1);
    let first = here.open("f", leased(1, RWH, open_if())).await.unwrap();
    assert_eq!(state(first.granted), RWH);
    let second = there.opens("f", leased(2, RWH, request(READ, Sharing::ALL)));
    assert_eq!(broken(&one).await, (RWH, RH, true));
    first.open.write(0, b"what was cached".as_slice().into(), false).await.unwrap();
    assert!(!second.is_finished());
    acknowledge(&here, RH);
    let second = second.await.unwrap().unwrap();
    assert_eq!(state(second.granted), RH);
    assert_eq!(content(&second.open).await, b"what was cached");
    second.open.close(false).await.unwrap();
    let writes = there.open("f", request(WRITE, Sharing::ALL)).await.unwrap().open;
    let writes = tokio::spawn(async move { writes.write(0, b"W".as_slice().into(), false).await });
    assert_eq!(broken(&one).await, (RH, NONE, true));
    acknowledge(&here, NONE);
    assert_eq!(writes.await.unwrap(), Ok(1));
    assert_eq!(content(&first.open).await, b"What was cached");
}

#[tokio::test]
async fn a_handle_that_is_only_cached_makes_way_for_another_machine() {
    let here = Bed::new().await;
    let there = here.another().await;
    let one = here.client(1);
    let deny = OpenRequest { sharing: Sharing(0), ..open_if() };
    for (name, closes) in [("f", true), ("g", false)] {
        let first = here.open(name, leased(1, RWH, deny.clone())).await.unwrap();
        assert_eq!(state(first.granted), RWH);
        let second = there.opens(name, request(READ, Sharing::ALL));
        // The other machine looks at the size first.
        assert_eq!(broken(&one).await, (RWH, RH, true));
        acknowledge(&here, RH);
        assert_eq!(broken(&one).await, (RH, CachingState::READ, true));
        if closes {
            first.open.close(false).await.unwrap();
            assert!(second.await.unwrap().is_ok());
        } else {
            acknowledge(&here, CachingState::READ);
            assert_eq!(second.await.unwrap().err(), Some(StoreError::SharingViolation));
        }
    }
}

#[tokio::test]
async fn locks_are_known_on_both_machines() {
    let here = Bed::new().await;
    let there = here.another().await;
    let first = here.file("f", b"0123456789").await;
    let second = there.open("F", open_if()).await.unwrap().open;
    let range = ByteRange { offset: 2, length: 3 };
    first.lock(range, true, false).await.unwrap();
    assert_eq!(second.lock(range, true, false).await, Err(StoreError::LockNotGranted));
    assert_eq!(second.read(0, 10).await, Err(StoreError::FileLockConflict));
    let waits = second.clone();
    let waits = tokio::spawn(async move { waits.lock(range, true, true).await });
    pause().await;
    assert!(!waits.is_finished());
    first.unlock(range).await.unwrap();
    assert_eq!(waits.await.unwrap(), Ok(()));
    assert_eq!(first.write(2, b"x".as_slice().into(), false).await, Err(StoreError::FileLockConflict));
}

#[tokio::test]
async fn a_rename_on_another_machine_closes_what_is_only_cached_below() {
    let here = Bed::new().await;
    let there = here.another().await;
    let (one, two) = (here.client(1), here.client(2));
    for dir in ["d", "other"] {
        here.directory(dir).await.close(false).await.unwrap();
    }
    let below = here.open("d\\f", leased(1, RWH, open_if())).await.unwrap();
    let beside = here.open("other\\f", leased(2, RWH, open_if())).await.unwrap();
    let dir = there.directory("d").await;
    let path = objects::ObjectPath::parse("e", false).unwrap();
    let target = objects::Target { path, replace: false, posix: false, ignore_read_only: false };
    let renames = tokio::spawn(async move { dir.rename(target).await });
    assert_eq!(broken(&one).await, (RWH, CachingState::RW, true));
    pause().await;
    assert!(!renames.is_finished());
    below.open.close(false).await.unwrap();
    assert_eq!(renames.await.unwrap(), Ok(()));
    assert_eq!(two.take(), [], "it has nothing there");
    drop(beside);
}
