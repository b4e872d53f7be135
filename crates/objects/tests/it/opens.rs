//! Dispositions, options, rights, share modes, deletion, locks, attributes, streams.

use crate::bed::{ALL, Bed, DELETE, READ, WRITE, content, leased, open_if, pause, request};
use lease::caching::{AccessMask, CachingState, Sharing};
use namespace::{Cred, Timestamp};
use objects::{
    BasicChange, ByteRange, CreateAction, CreateDisposition, CreateOptions, Deletion, DosAttributes,
    OpenRequest, Root, StoreError, TimeChange,
};

fn with(disposition: CreateDisposition, options: u32) -> OpenRequest {
    OpenRequest { disposition, options: CreateOptions(options), ..open_if() }
}

#[tokio::test]
async fn dispositions() {
    use CreateDisposition::*;
    let bed = Bed::new().await;
    let action = async |disposition| bed.open("f", with(disposition, 0)).await.map(|opened| opened.action);
    assert_eq!(action(Open).await, Err(StoreError::NotFound));
    assert_eq!(action(Overwrite).await, Err(StoreError::NotFound));
    assert_eq!(action(Create).await, Ok(CreateAction::Created));
    assert_eq!(action(Create).await, Err(StoreError::NameCollision));
    assert_eq!(action(Open).await, Ok(CreateAction::Opened));
    bed.file("f", b"content").await.close(false).await.unwrap();
    let open = bed.open("F", with(OpenIf, 0)).await.unwrap();
    assert_eq!((open.action, open.info.size, open.open.path().as_str()), (CreateAction::Opened, 7, "f"));
    drop(open);
    let open = bed.open("f", with(OverwriteIf, 0)).await.unwrap();
    assert_eq!((open.action, open.info.size), (CreateAction::Overwritten, 0));
    drop(open);
    assert_eq!(action(Supersede).await, Ok(CreateAction::Superseded));
    assert_eq!(bed.open("no\\f", with(OpenIf, 0)).await.err(), Some(StoreError::PathNotFound));
    assert_eq!(bed.open("f\\f", with(OpenIf, 0)).await.err(), Some(StoreError::PathNotFound));
}

#[tokio::test]
async fn files_and_directories() {
    let bed = Bed::new().await;
    drop(bed.directory("d").await);
    drop(bed.file("f", b"").await);
    let open = async |path: &str, options| {
        bed.open(path, with(CreateDisposition::Open, options)).await.map(|opened| opened.info.is_directory)
    };
    assert_eq!(open("d", CreateOptions::NON_DIRECTORY).await, Err(StoreError::IsDirectory));
    assert_eq!(open("f", CreateOptions::DIRECTORY).await, Err(StoreError::NotDirectory));
    assert_eq!(open("d", 0).await, Ok(true));
    assert_eq!(open("", CreateOptions::DIRECTORY).await, Ok(true));
    let both = CreateOptions::DIRECTORY | CreateOptions::NON_DIRECTORY;
    assert_eq!(open("d", both).await, Err(StoreError::Invalid));
    // A create finds the name taken, whatever has it.
    for (path, option) in [("d", CreateOptions::NON_DIRECTORY), ("f", CreateOptions::DIRECTORY)] {
        let made = bed.open(path, with(CreateDisposition::Create, option)).await;
        assert_eq!(made.err(), Some(StoreError::NameCollision));
    }
}

#[tokio::test]
async fn a_file_is_marked_as_sparse_until_it_is_no_more() {
    let bed = Bed::new().await;
    let file = bed.file("f", b"content").await;
    let is_sparse = async || file.info().await.unwrap().attributes.has(DosAttributes::SPARSE);
    assert!(!is_sparse().await);
    file.set_sparse(true).await.unwrap();
    assert!(is_sparse().await);
    // Other attributes leave the mark alone, and do not make it.
    let hidden = Some(DosAttributes(DosAttributes::HIDDEN));
    file.set_basic(BasicChange { attributes: hidden, ..BasicChange::default() }).await.unwrap();
    assert!(is_sparse().await);
    file.set_sparse(false).await.unwrap();
    let marked = Some(DosAttributes(DosAttributes::HIDDEN | DosAttributes::SPARSE));
    file.set_basic(BasicChange { attributes: marked, ..BasicChange::default() }).await.unwrap();
    assert!(!is_sparse().await && file.info().await.unwrap().attributes.has(DosAttributes::HIDDEN));
    let directory = bed.directory("d").await;
    assert_eq!(directory.set_sparse(true).await, Err(StoreError::Invalid));
}

#[tokio::test]
async fn zeros_are_a_hole_in_a_sparse_file_alone() {
    let bed = Bed::new().await;
    let (hole, size) = (8192, 65536);
    let file = bed.file("f", &vec![1; size as usize]).await;
    let whole = ByteRange { offset: 0, length: size };
    let shown = async || file.allocated(whole, 10).await.unwrap();
    file.zero(0, hole).await.unwrap();
    assert_eq!(shown().await, [whole]);
    file.set_sparse(true).await.unwrap();
    file.zero(0, hole).await.unwrap();
    assert_eq!(shown().await, [ByteRange { offset: hole, length: size - hole }]);
    file.set_sparse(false).await.unwrap();
    assert_eq!(shown().await, [whole], "a file without the mark shows no holes");
    assert!(content(&file).await[..hole as usize].iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn a_write_of_nothing_breaks_nothing() {
    let bed = Bed::new().await;
    let sink = bed.client(1);
    let reads = leased(1, CachingState::READ, open_if());
    let _reader = bed.open("f", reads).await.unwrap();
    let writer = bed.open("f", request(WRITE, Sharing::ALL)).await.unwrap().open;
    assert_eq!(writer.write(64, Vec::new().into(), false).await, Ok(0));
    assert!(sink.take().is_empty());
    writer.write(64, b"x".as_slice().into(), false).await.unwrap();
    assert_eq!(sink.take().len(), 1);
}

#[tokio::test]
async fn a_lock_that_is_shared_and_exclusive_goes_piece_by_piece() {
    let bed = Bed::new().await;
    let file = bed.file("f", &[1; 20]).await;
    let other = bed.open("f", with(CreateDisposition::Open, 0)).await.unwrap().open;
    let range = |offset, length| ByteRange { offset, length };
    file.lock(range(0, 10), true, false).await.unwrap();
    file.lock(range(5, 10), false, false).await.unwrap();
    assert_eq!(other.lock(range(5, 1), false, false).await, Err(StoreError::LockNotGranted));
    file.unlock(range(0, 10)).await.unwrap();
    other.lock(range(0, 15), false, false).await.unwrap();
    other.unlock(range(0, 15)).await.unwrap();
    assert_eq!(other.lock(range(14, 1), true, false).await, Err(StoreError::LockNotGranted));
    file.unlock(range(5, 10)).await.unwrap();
    other.lock(range(0, 20), true, false).await.unwrap();
}

#[tokio::test]
async fn rights_are_those_of_posix() {
    let mut bed = Bed::new().await;
    let file = bed.file("f", b"").await;
    file.set_basic(BasicChange { mode: Some(0o644), ..BasicChange::default() }).await.unwrap();
    file.close(false).await.unwrap();
    bed.who = Cred { uid: 1000, gid: 1000, ..Cred::default() };
    let open = async |bed: &Bed, access| {
        bed.open("f", request(access, Sharing::ALL)).await.map(|opened| opened.maximal.0)
    };
    assert!(open(&bed, READ).await.is_ok());
    assert_eq!(open(&bed, WRITE).await, Err(StoreError::AccessDenied));
    assert_eq!(open(&bed, DELETE).await, Err(StoreError::AccessDenied));
    assert_eq!(open(&bed, 0).await, Err(StoreError::AccessDenied));
    let most = open(&bed, 0x0200_0000).await.unwrap();
    assert_eq!(most & (READ | WRITE | DELETE), READ);
    let root = Root { read_only: true, ..bed.store.root(b"/").await.unwrap() };
    bed.who = Cred::default();
    bed.root = root;
    assert_eq!(open(&bed, WRITE).await, Err(StoreError::AccessDenied));
    assert_eq!(open(&bed, READ).await.map(|most| most & WRITE & !READ), Ok(0));
    assert_eq!(bed.open("g", open_if()).await.err(), Some(StoreError::AccessDenied));
}

#[tokio::test]
async fn handles_exclude_each_other() {
    let bed = Bed::new().await;
    drop(bed.file("f", b"x").await);
    let open =
        async |access, sharing| bed.open("f", request(access, sharing)).await.map(|opened| opened.open);
    let first = open(READ, Sharing::READ).await.unwrap();
    assert_eq!(open(WRITE, Sharing::ALL).await.err(), Some(StoreError::SharingViolation));
    assert_eq!(open(READ, Sharing::WRITE).await.err(), Some(StoreError::SharingViolation));
    assert!(open(0x80, Sharing(0)).await.is_ok(), "attributes exclude nobody");
    assert!(open(READ, Sharing::READ).await.is_ok());
    first.close(false).await.unwrap();
    assert_eq!(first.close(false).await.err(), Some(StoreError::Closed));
    assert!(open(WRITE, Sharing::ALL).await.is_ok());
}

#[tokio::test]
async fn a_file_goes_with_its_last_open() {
    let bed = Bed::new().await;
    let first = bed.file("f", b"x").await;
    let second = bed.file("f", b"").await;
    first.set_deletion(Deletion { delete: true, ..Deletion::default() }).await.unwrap();
    assert!(second.info().await.unwrap().delete_pending);
    assert_eq!(bed.open("f", open_if()).await.err(), Some(StoreError::DeletePending));
    first.close(false).await.unwrap();
    assert_eq!(content(&second).await, b"x");
    second.close(false).await.unwrap();
    assert_eq!(bed.open("f", request(READ, Sharing::ALL)).await.err(), Some(StoreError::NotFound));

    let gone = OpenRequest { options: CreateOptions(CreateOptions::DELETE_ON_CLOSE), ..open_if() };
    let first = bed.open("g", gone.clone()).await.unwrap().open;
    let second = bed.file("g", b"").await;
    first.close(false).await.unwrap();
    assert_eq!(bed.open("g", open_if()).await.err(), Some(StoreError::DeletePending));
    second.set_deletion(Deletion::default()).await.unwrap();
    second.close(false).await.unwrap();
    drop(bed.open("g", gone).await.unwrap());
    pause().await;
    assert_eq!(bed.open("g", request(READ, Sharing::ALL)).await.err(), Some(StoreError::NotFound));
    assert_eq!(bed.store.counts(), (0, 0, 0));

    let first = bed.file("h", b"x").await;
    let second = bed.file("h", b"").await;
    let posix = Deletion { delete: true, posix: true, ..Deletion::default() };
    first.set_deletion(posix).await.unwrap();
    first.close(false).await.unwrap();
    drop(bed.file("h", b"").await);
    second.close(false).await.unwrap();
    assert!(bed.open("h", request(READ, Sharing::ALL)).await.is_ok(), "another file of that name");
    let dir = bed.directory("d").await;
    drop(bed.file("d\\f", b"").await);
    let delete = Deletion { delete: true, ..Deletion::default() };
    assert_eq!(dir.set_deletion(delete).await, Err(StoreError::NotEmpty));
}

#[tokio::test]
async fn locks_keep_others_from_reading_and_writing() {
    let bed = Bed::new().await;
    let one = bed.file("f", b"0123456789").await;
    let two = bed.file("f", b"").await;
    let range = ByteRange { offset: 2, length: 3 };
    one.lock(range, true, false).await.unwrap();
    assert_eq!(two.lock(range, false, false).await, Err(StoreError::LockNotGranted));
    assert_eq!(two.read(0, 10).await, Err(StoreError::FileLockConflict));
    assert_eq!(two.write(4, b"x".as_slice().into(), false).await, Err(StoreError::FileLockConflict));
    assert_eq!(two.read(5, 5).await.unwrap().concat(), b"56789");
    assert_eq!(content(&one).await, b"0123456789");
    let waits = {
        let two = two.clone();
        tokio::spawn(async move { two.lock(range, true, true).await })
    };
    pause().await;
    assert!(!waits.is_finished());
    assert_eq!(one.unlock(ByteRange { offset: 2, length: 2 }).await, Err(StoreError::RangeNotLocked));
    one.unlock(range).await.unwrap();
    assert_eq!(waits.await.unwrap(), Ok(()));
    assert_eq!(one.lock(range, true, false).await, Err(StoreError::LockNotGranted));
    let given_up = {
        let one = one.clone();
        tokio::spawn(async move { one.lock(range, true, true).await })
    };
    pause().await;
    given_up.abort();
    pause().await;
    two.close(false).await.unwrap();
    assert_eq!(one.lock(range, true, false).await, Ok(()), "locks go with the open");
    assert_eq!(one.lock(range, true, false).await, Err(StoreError::LockNotGranted), "not even one's own");
}

#[tokio::test]
async fn attributes_and_times() {
    let bed = Bed::new().await;
    let file = bed.file("f", b"x").await;
    let time = |secs| Timestamp { secs, nanos: 100 };
    let change = BasicChange {
        created: Some(TimeChange::At(time(1_000_000_000))),
        written: Some(TimeChange::At(time(1_100_000_000))),
        accessed: Some(TimeChange::At(time(1_200_000_000))),
        attributes: Some(DosAttributes(DosAttributes::HIDDEN | DosAttributes::READ_ONLY)),
        ..BasicChange::default()
    };
    file.set_basic(change).await.unwrap();
    file.write(0, b"y".as_slice().into(), false).await.unwrap();
    let info = file.info().await.unwrap();
    assert_eq!(info.created, time(1_000_000_000));
    assert_eq!(info.written, time(1_100_000_000), "the open's own writes do not move it");
    assert_eq!(info.accessed, time(1_200_000_000));
    assert_eq!(info.attributes.0, DosAttributes::HIDDEN | DosAttributes::READ_ONLY);
    file.close(false).await.unwrap();
    assert_eq!(bed.open("f", request(WRITE, Sharing::ALL)).await.err(), Some(StoreError::AccessDenied));
    let gone = OpenRequest {
        options: CreateOptions(CreateOptions::DELETE_ON_CLOSE),
        ..request(DELETE, Sharing::ALL)
    };
    assert_eq!(bed.open("f", gone).await.err(), Some(StoreError::CannotDelete));
    let file = bed.open("f", request(0x180, Sharing::ALL)).await.unwrap().open;
    let normal =
        BasicChange { attributes: Some(DosAttributes(DosAttributes::NORMAL)), ..BasicChange::default() };
    file.set_basic(normal).await.unwrap();
    assert_eq!(file.info().await.unwrap().attributes.0, DosAttributes::NORMAL);
    let hidden = OpenRequest { disposition: CreateDisposition::OverwriteIf, ..open_if() };
    assert!(bed.open("f", hidden).await.is_ok());
}

#[tokio::test]
async fn content_has_a_size_and_an_end() {
    let bed = Bed::new().await;
    let file = bed.file("f", b"0123456789").await;
    assert_eq!(file.read(10, 1).await, Err(StoreError::EndOfFile));
    assert_eq!(file.read(8, 10).await.unwrap().concat(), b"89");
    file.write(u64::MAX, b"ab".as_slice().into(), true).await.unwrap();
    file.set_end(11).await.unwrap();
    assert_eq!(content(&file).await, b"0123456789a");
    file.zero(1, 3).await.unwrap();
    assert_eq!(content(&file).await, b"0\0\x003456789a");
    file.set_allocation(4).await.unwrap();
    assert_eq!(content(&file).await, b"0\0\x003");
    file.set_allocation(100_000).await.unwrap();
    let info = file.info().await.unwrap();
    assert!(info.size == 4 && info.allocation >= 100_000, "{info:?}");
    let appends = bed.open("f", request(0x4 | 0x80, Sharing::ALL)).await.unwrap().open;
    assert_eq!(appends.access(), AccessMask(0x84));
    assert_eq!(appends.write(2, b"x".as_slice().into(), false).await, Err(StoreError::AccessDenied));
    appends.write(4, b"x".as_slice().into(), false).await.unwrap();
    assert_eq!(content(&file).await, b"0\0\x003x");
    let reads = bed.open("f", request(READ, Sharing::ALL)).await.unwrap().open;
    assert_eq!(reads.write(0, b"x".as_slice().into(), false).await, Err(StoreError::AccessDenied));
}

#[tokio::test]
async fn streams_and_extended_attributes() {
    let bed = Bed::new().await;
    let file = bed.file("f", b"content").await;
    assert_eq!(bed.open("f:s", request(ALL & !DELETE, Sharing::ALL)).await.err(), Some(StoreError::NotFound));
    let stream = bed.file("f:Stream", b"in a stream").await;
    assert_eq!(content(&stream).await, b"in a stream");
    assert_eq!(content(&file).await, b"content");
    assert_eq!(stream.info().await.unwrap().number, file.info().await.unwrap().number);
    let again = bed.open("F:sTREAM:$DATA", request(READ, Sharing::ALL)).await.unwrap();
    assert_eq!((again.info.size, again.open.is_stream()), (11, true));
    stream.set_end(2).await.unwrap();
    assert_eq!(content(&stream).await, b"in");
    let names: Vec<_> = file.streams().await.unwrap().into_iter().map(|it| (it.name, it.size)).collect();
    assert_eq!(names, [(String::new(), 7), ("Stream".to_owned(), 2)]);
    assert_eq!(stream.write(70_000, b"x".as_slice().into(), false).await, Err(StoreError::TooBig));
    file.set_ea("Author", b"me").await.unwrap();
    file.set_ea("AUTHOR", b"you").await.unwrap();
    assert_eq!(file.eas().await.unwrap(), [("Author".to_owned(), b"you".to_vec())]);
    file.set_ea("author", b"").await.unwrap();
    assert_eq!(file.eas().await.unwrap(), []);
    drop(again);
    stream.set_deletion(Deletion { delete: true, ..Deletion::default() }).await.unwrap();
    stream.close(false).await.unwrap();
    assert_eq!(file.streams().await.unwrap().len(), 1);
    assert_eq!(content(&file).await, b"content");
}
