//! A full disk: a checkpoint waits for room, and no reader waits with it.

use super::power::Recorder;
use super::*;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A file that takes no writes while there is no room.
#[derive(Clone, Debug, Default)]
struct Full {
    file: Recorder,
    full: Arc<AtomicBool>,
}

impl StorageBackend for Full {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.full.load(SeqCst) {
            return self.file.write(offset, data);
        }
        // A part is written, as on a real disk.
        self.file.write(offset, &data[..data.len() / 2])?;
        Err(io::ErrorKind::StorageFull.into())
    }
}

/// Makes a store with 2,000 rows on disk, of which 1,000 are in no cache. A checkpoint with 1,000
/// others finds no room.
fn waiting() -> (Full, RowStore, std::thread::JoinHandle<Result<(), RowStoreError>>) {
    let file = Full::default();
    let blocks = Blocks::open(file.clone(), None).unwrap();
    let settings = StoreSettings { cache_bytes: 16 << 10, overlay_bytes: 1 << 20 };
    let mut store =
        RowFile::over(blocks, Path::new("memory"), settings).unwrap().group(GroupId::FIRST).unwrap();
    for row in 0..2000u64 {
        store.put(&row.to_be_bytes(), vec![1; 100]);
    }
    store.checkpoint(b"first".to_vec()).unwrap().write().unwrap();
    file.full.store(true, SeqCst);
    for row in 0..1000u64 {
        store.put(&row.to_be_bytes(), vec![2; 100]);
    }
    let checkpoint = store.checkpoint(b"second".to_vec()).unwrap();
    let writing = std::thread::spawn(|| checkpoint.write_when_there_is_room());
    let begun = Instant::now();
    while !store.lacks_room() {
        assert!(!writing.is_finished());
        assert!(begun.elapsed() < Duration::from_secs(300), "hangs: the store never says that it lacks room");
        std::thread::sleep(Duration::from_millis(1));
    }
    (file, store, writing)
}

fn check(store: &RowStore, third: u8) {
    for row in 0..2000u64 {
        let value = if row < 500 { third } else { 1 + u8::from(row < 1000) };
        assert_eq!(store.get(&row.to_be_bytes()), Some(vec![value; 100]), "{row}");
    }
    assert_eq!(all(store).len(), 2000);
}

#[test]
fn a_checkpoint_waits_for_room_while_the_store_goes_on() {
    let (file, mut store, writing) = waiting();
    check(&store, 2);
    for row in 0..500u64 {
        store.put(&row.to_be_bytes(), vec![3; 100]);
    }
    check(&store, 3);
    assert!(store.checkpoint(b"too soon".to_vec()).is_none());
    assert_eq!(store.view().position(), Some(&b"first"[..]));
    file.full.store(false, SeqCst);
    writing.join().unwrap().unwrap();
    assert!(!store.lacks_room());
    check(&store, 3);
    store.checkpoint(b"third".to_vec()).unwrap().write_when_there_is_room().unwrap();
    drop(store);
    let blocks = Blocks::open(file, None).unwrap();
    let store = RowFile::over(blocks, Path::new("memory"), SMALL).unwrap().group(GroupId::FIRST).unwrap();
    assert_eq!(store.position(), Some(b"third".to_vec()));
    check(&store, 3);
}

/// The rows that it would have written are in the log.
#[test]
fn a_server_that_ends_meanwhile_leaves_the_last_checkpoint() {
    let (file, store, writing) = waiting();
    store.give_up_waiting();
    writing.join().unwrap().unwrap_err();
    drop(store);
    file.full.store(false, SeqCst);
    let blocks = Blocks::open(file, None).unwrap();
    let store = RowFile::over(blocks, Path::new("memory"), SMALL).unwrap().group(GroupId::FIRST).unwrap();
    assert_eq!(store.position(), Some(b"first".to_vec()));
    assert_eq!(all(&store), (0..2000u64).map(|row| (row.to_be_bytes().to_vec(), vec![1; 100])).collect());
}
