//! Rows of several groups in one file.

use super::power::Recorder;
use super::*;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

const GROUPS: u64 = 9;

fn groups(file: &Arc<RowFile>) -> Vec<RowStore> {
    (0..GROUPS).map(|group| file.group(GroupId(group)).unwrap()).collect()
}

fn row(key: u64, value: u64) -> Row {
    (key.to_be_bytes().to_vec(), value.to_le_bytes().to_vec())
}

/// Puts rows under the same keys, with a value of the group's own.
fn put(store: &mut RowStore, keys: std::ops::Range<u64>, value: u64) {
    for (key, value) in keys.map(|key| row(key, value)) {
        store.put(&key, value);
    }
}

fn rows(keys: std::ops::Range<u64>, value: u64) -> RowModel {
    keys.map(|key| row(key, value)).collect()
}

fn checkpoint(store: &mut RowStore, position: u64) {
    store.checkpoint(position.to_le_bytes().to_vec()).unwrap().write().unwrap();
}

/// Every layer, the view, and what a later process reads.
#[test]
fn each_group_has_rows_and_a_position_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows");
    let mut stores = groups(&RowFile::open(&path, SMALL).unwrap());
    let mut expected = Vec::new();
    for (group, store) in (0..).zip(&mut stores) {
        assert!(store.position().is_none() && all(store).is_empty(), "{group}");
        put(store, 0..10 + group, group);
        expected.push(rows(0..10 + group, group));
        // The last has none.
        if group + 1 < GROUPS {
            checkpoint(store, 100 + group);
        }
    }
    let position = |group: u64| (group + 1 < GROUPS).then(|| (100 + group).to_le_bytes().to_vec());
    for (group, store) in (0..).zip(&stores) {
        assert_eq!(all(store), expected[group as usize], "{group}");
        assert_eq!(store.position(), position(group), "{group}");
        let saved =
            if position(group).is_some() { expected[group as usize].clone() } else { RowModel::new() };
        let view = store.view();
        assert_eq!(view.page(None, usize::MAX).unwrap().into_iter().collect::<RowModel>(), saved, "{group}");
        let anew = view.reread().unwrap().page(None, usize::MAX).unwrap();
        assert_eq!(anew.into_iter().collect::<RowModel>(), saved, "{group}");
    }
    // One of them takes over the rows of another.
    let replaced = stores[2].replacement(stores[5].view()).write().unwrap();
    put(&mut stores[3], 0..1, 33);
    checkpoint(&mut stores[3], 133);
    assert_eq!(all(&stores[2]), expected[2], "the old ones, until it takes over");
    stores[2].take_over(replaced);
    expected[2] = expected[5].clone();
    expected[3].extend(rows(0..1, 33));
    assert_eq!((all(&stores[2]), stores[2].position()), (expected[2].clone(), position(5)));
    drop(stores);
    expected[8].clear();
    for (group, store) in (0..).zip(groups(&RowFile::open(&path, SMALL).unwrap())) {
        assert_eq!(all(&store), expected[group], "{group}");
    }
}

/// A file whose syncs wait while it is held.
#[derive(Clone, Debug, Default)]
struct Held {
    file: Recorder,
    /// Whether it is held, and the number of syncs.
    state: Arc<(Mutex<(bool, u64)>, Condvar)>,
}

impl Held {
    fn hold(&self, held: bool) {
        self.state.0.lock().0 = held;
        self.state.1.notify_all();
    }

    fn syncs(&self) -> u64 {
        self.state.0.lock().1
    }
}

impl StorageBackend for Held {
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
        let mut state = self.state.0.lock();
        state.1 += 1;
        while state.0 {
            self.state.1.wait(&mut state);
        }
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(300), "hangs: waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn checkpoints_that_wait_are_one_commit() {
    let backend = Held::default();
    let file = RowFile::over(Blocks::open(backend.clone(), None).unwrap(), Path::new("memory"), SMALL);
    let file = file.unwrap();
    let mut stores = groups(&file);
    put(&mut stores[0], 0..10, 1);
    let before = backend.syncs();
    checkpoint(&mut stores[0], 1);
    let one = backend.syncs() - before;
    backend.hold(true);
    let before = backend.syncs();
    std::thread::scope(|scope| {
        let waits = |store: &mut RowStore, group: u64| {
            put(store, 0..10, 70 + group);
            let begun = store.checkpoint((70 + group).to_le_bytes().to_vec()).unwrap();
            scope.spawn(|| begun.write().unwrap());
        };
        let [first, others @ ..] = &mut stores[..] else { unreachable!() };
        waits(first, 0);
        wait_until("the first commit", || backend.syncs() > before);
        for (group, store) in (1..).zip(others) {
            waits(store, group);
        }
        wait_until("the others", || file.waits() == GROUPS as usize - 1);
        backend.hold(false);
    });
    assert_eq!(backend.syncs() - before, 2 * one);
    for (group, store) in (0..).zip(&stores) {
        assert!(!store.is_checkpointing());
        assert_eq!(store.view().page(None, 20).unwrap(), Vec::from_iter(rows(0..10, 70 + group)), "{group}");
    }
}

/// A member that gave up a full disk leaves a checkpoint that no one waits for. The next member of
/// the group must not find its rows changed by that.
#[test]
fn what_a_former_member_has_begun_to_write_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = RowFile::open(&dir.path().join("rows"), SMALL).unwrap();
    let open = || file.group(GroupId(1)).unwrap();
    let mut former = open();
    put(&mut former, 0..10, 1);
    checkpoint(&mut former, 1);
    put(&mut former, 0..10, 2);
    let late = former.checkpoint(2u64.to_le_bytes().to_vec()).unwrap();
    drop(former);
    let mut store = open();
    assert!(late.write().is_err());
    assert_eq!((all(&store), store.position()), (rows(0..10, 1), Some(1u64.to_le_bytes().to_vec())));
    put(&mut store, 0..5, 3);
    checkpoint(&mut store, 3);
    drop(store);
    assert_eq!(all(&open()), rows(0..5, 3).into_iter().chain(rows(5..10, 1)).collect());
}

/// Otherwise its reader would keep all pages that others have replaced.
#[test]
fn a_group_that_sleeps_does_not_make_the_file_grow() {
    let dir = tempfile::tempdir().unwrap();
    let file = RowFile::open(&dir.path().join("rows"), SMALL).unwrap();
    let mut stores = groups(&file);
    let (sleeps, works) = stores.split_at_mut(1);
    put(&mut sleeps[0], 0..1000, 1);
    checkpoint(&mut sleeps[0], 1);
    let mut sizes = Vec::new();
    for round in 0..60 {
        put(&mut works[0], 0..2000, round);
        checkpoint(&mut works[0], round);
        sizes.push(works[0].stats().file_bytes);
    }
    assert!(sizes[59] <= 2 * sizes[9], "{sizes:?}");
    assert_eq!(all(&sleeps[0]), rows(0..1000, 1));
}

#[test]
fn groups_share_the_memory_for_changed_rows() {
    let dir = tempfile::tempdir().unwrap();
    let file = RowFile::open(&dir.path().join("rows"), SMALL).unwrap();
    let mut stores = groups(&file);
    let fill = |store: &mut RowStore, bytes: usize| store.put(b"one row", vec![0; bytes]);
    fill(&mut stores[0], 900 << 10);
    fill(&mut stores[1], 20 << 10);
    let full = |stores: &[RowStore]| -> Vec<usize> {
        // Each has to say first what it has.
        let _ = stores.iter().filter(|store| store.is_full()).count();
        stores.iter().enumerate().filter(|(_, store)| store.is_full()).map(|(group, _)| group).collect()
    };
    assert!(full(&stores).is_empty());
    fill(&mut stores[2], 200 << 10);
    assert_eq!(full(&stores), [0, 2], "the second has less than its share");
    checkpoint(&mut stores[0], 1);
    assert!(full(&stores).is_empty());
    // The frozen layer of a group that has much is not kept.
    assert_eq!(stores[0].stats().overlay_bytes, 0);
    checkpoint(&mut stores[1], 1);
    assert!(stores[1].stats().overlay_bytes > 20 << 10);
}
