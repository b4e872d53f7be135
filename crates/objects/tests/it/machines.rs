//! SMB clients of two machines.

use crate::bed::{Bed, READ, Sink, WRITE, content, key, leased, open_if, pause, request, state};
use lease::caching::{AccessMask, CachingState, ClientGuid, Sharing};
use objects::{ByteRange, CreateDisposition, OpenRequest, StoreError};
use std::time::{Duration, Instant};

const NONE: CachingState = CachingState::NONE;
const RH: CachingState = CachingState::RH;
const RW: CachingState = CachingState::RW;
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
        let second = there.opens(name, leased(2, RWH, request(READ, Sharing(0))));
        assert_eq!(broken(&one).await, (RWH, RW, true));
        if closes {
            first.open.close(false).await.unwrap();
            let second = second.await.unwrap().unwrap();
            assert_eq!(state(second.granted), RWH, "it has kept all others out");
        } else {
            acknowledge(&here, RW);
            assert_eq!(second.await.unwrap().err(), Some(StoreError::SharingViolation));
            assert_eq!(state(first.open.granted()), RW, "an open that is refused takes no data");
        }
        assert_eq!(one.take(), []);
    }
}

#[tokio::test]
async fn an_open_that_overwrites_takes_all_in_one_break() {
    let here = Bed::new().await;
    let there = here.another().await;
    let one = here.client(1);
    let overwrite = OpenRequest { disposition: CreateDisposition::OverwriteIf, ..open_if() };
    for (number, caches) in [(2, true), (3, false)] {
        let first = here.open("f", leased(1, RWH, open_if())).await.unwrap();
        first.open.write(0, b"old".as_slice().into(), false).await.unwrap();
        assert_eq!(state(first.granted), RWH);
        let request = if caches { leased(number, RWH, overwrite.clone()) } else { overwrite.clone() };
        let second = there.opens("f", request);
        assert_eq!(broken(&one).await, (RWH, NONE, true));
        acknowledge(&here, NONE);
        let second = second.await.unwrap().unwrap();
        assert_eq!(second.info.size, 0);
        assert_eq!(state(second.granted), if caches { RH } else { NONE }, "the first is open still");
        assert_eq!(one.take(), []);
        second.open.close(false).await.unwrap();
        first.open.close(false).await.unwrap();
        // A client that has closed it is in nobody's way.
        let alone = there.open("f", leased(number, RWH, overwrite.clone())).await.unwrap();
        assert_eq!(state(alone.granted), RWH);
        alone.open.close(false).await.unwrap();
    }
}

#[tokio::test]
async fn an_open_for_attributes_alone_takes_nothing_and_tells_the_length() {
    let here = Bed::new().await;
    let there = here.another().await;
    let one = here.client(1);
    let first = here.open("f", leased(1, RWH, open_if())).await.unwrap();
    first.open.write(0, b"12345".as_slice().into(), false).await.unwrap();
    let attributes = || request(AccessMask::READ_ATTRIBUTES.0, Sharing::ALL);
    let second = there.open("f", leased(2, RWH, attributes())).await.unwrap();
    assert_eq!((second.info.size, state(second.granted)), (5, NONE));
    first.open.write(5, b"6789".as_slice().into(), false).await.unwrap();
    assert_eq!(second.open.info().await.unwrap().size, 9);
    assert_eq!(one.take(), []);
    assert_eq!(state(first.open.granted()), RWH);
    let only =
        there.open("g", leased(3, RWH, OpenRequest { access: AccessMask::READ_ATTRIBUTES, ..open_if() }));
    assert_eq!(state(only.await.unwrap().granted), RWH, "nobody else has it");
}

#[tokio::test]
async fn nothing_is_moved_into_a_directory_that_another_machine_may_delete() {
    let here = Bed::new().await;
    let there = here.another().await;
    let dir = here.directory("d").await;
    let file = there.file("f", b"").await;
    let path = objects::ObjectPath::parse("d\\f", false).unwrap();
    let target = objects::Target { path, replace: false, posix: false, ignore_read_only: false };
    assert_eq!(file.rename(target.clone()).await, Err(StoreError::SharingViolation));
    dir.close(false).await.unwrap();
    assert_eq!(file.rename(target).await, Ok(()));
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

#[tokio::test]
async fn a_handle_that_caches_keeps_other_machines_from_writing_behind_a_cache() {
    let here = Bed::new().await;
    let there = here.another().await;
    let one = here.client(1);
    // It may read no data, and its client caches under the lease all the same.
    let attributes = OpenRequest { access: AccessMask::READ_ATTRIBUTES, ..open_if() };
    let first = here.open("f", leased(1, RWH, attributes)).await.unwrap();
    assert_eq!(state(first.granted), RWH);
    let second = there.opens("f", leased(2, RWH, request(READ | WRITE, Sharing::ALL)));
    assert_eq!(broken(&one).await, (RWH, RH, true));
    acknowledge(&here, RH);
    let second = second.await.unwrap().unwrap();
    assert_eq!(state(second.granted), RH);
    second.open.close(false).await.unwrap();
    let third = there.open("f", leased(3, RWH, request(READ | WRITE, Sharing::ALL))).await.unwrap();
    assert_eq!(state(third.granted), RH, "the first caches still");
    let writes = tokio::spawn(async move { third.open.write(0, b"new".as_slice().into(), false).await });
    assert_eq!(broken(&one).await, (RH, NONE, true));
    acknowledge(&here, NONE);
    assert_eq!(writes.await.unwrap(), Ok(3));
}
