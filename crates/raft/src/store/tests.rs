mod flips;
mod full;
mod groups;
mod power;

use super::*;
use directory::Store;
use proptest::prelude::*;
use redb::backends::FileBackend;
use redb::{Database, TableDefinition};
use std::collections::BTreeMap;
use std::fs::File;

const SMALL: StoreSettings = StoreSettings { cache_bytes: 1 << 20, overlay_bytes: 1 << 20 };

type RowModel = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>, usize),
    Begin,
    Finish,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..4, 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (key(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(k, v)| Step::Put(k, v)),
        3 => key().prop_map(Step::Delete),
        3 => key().prop_map(Step::Get),
        3 => (key(), key(), 0usize..20).prop_map(|(a, b, n)| Step::Scan(a, b, n)),
        1 => Just(Step::Begin),
        1 => Just(Step::Finish),
        1 => Just(Step::Reopen),
    ]
}

fn all(store: &RowStore) -> RowModel {
    store.scan(&[], &[0xff], usize::MAX).into_iter().collect()
}

/// Runs `steps` on a store and on maps: `now`, and the state that a crash would leave.
fn run(steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows");
    let mut store = RowStore::open(&path, SMALL).unwrap();
    let (mut now, mut saved) = (RowModel::new(), RowModel::new());
    let mut pending: Option<(Checkpoint, RowModel)> = None;
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Put(k, v) => {
                now.insert(k.clone(), v.clone());
                store.put(&k, v);
            }
            Step::Delete(k) => {
                now.remove(&k);
                store.delete(&k);
            }
            Step::Get(k) => assert_eq!(store.get(&k), now.get(&k).cloned()),
            Step::Scan(a, b, limit) => {
                let want: Vec<_> = now
                    .iter()
                    .filter(|(k, _)| **k >= a && **k < b)
                    .take(limit)
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                assert_eq!(store.scan(&a, &b, limit), want);
            }
            Step::Begin => match store.checkpoint(number.to_le_bytes().to_vec()) {
                Some(checkpoint) => {
                    assert!(pending.is_none());
                    pending = Some((checkpoint, now.clone()));
                }
                None => assert!(pending.is_some()),
            },
            Step::Finish => {
                if let Some((checkpoint, state)) = pending.take() {
                    let position = checkpoint.position.clone();
                    checkpoint.write().unwrap();
                    assert_eq!(store.position(), Some(position));
                    saved = state;
                }
            }
            Step::Reopen => {
                pending = None;
                drop(store);
                store = RowStore::open(&path, SMALL).unwrap();
                now = saved.clone();
            }
        }
    }
    assert_eq!(all(&store), now);
    let view = store.view();
    let (mut seen, mut after) = (RowModel::new(), None);
    loop {
        let page = view.page(after.as_deref(), 3).unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        seen.extend(page);
    }
    assert_eq!(seen, saved);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn behaves_as_a_map_and_reopens_at_the_last_checkpoint(steps in prop::collection::vec(step(), 1..120)) {
        run(steps);
    }
}

#[test]
fn a_damaged_or_foreign_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows");
    std::fs::write(&path, vec![7; 10_000]).unwrap();
    let Err(error) = RowStore::open(&path, SMALL) else { panic!("opened") };
    assert!(matches!(error, RowStoreError::File { .. }));
    assert!(error.to_string().contains("rows"), "{error}");

    // A later version wrote this content of redb.
    let path = dir.path().join("later");
    drop(RowStore::open(&path, SMALL).unwrap());
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let blocks = Blocks::open(FileBackend::new(file).unwrap(), None).unwrap();
    let database = Database::builder().create_with_backend(blocks).unwrap();
    let transaction = database.begin_write().unwrap();
    let later = 9u32.to_le_bytes();
    let meta = TableDefinition::<&str, &[u8]>::new("meta");
    transaction.open_table(meta).unwrap().insert("format", later.as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert!(matches!(RowStore::open(&path, SMALL), Err(RowStoreError::Format { found: 9, .. })));
}

#[test]
fn replacing_takes_over_another_stores_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut from = RowStore::open(&dir.path().join("from"), SMALL).unwrap();
    from.put(b"a", b"1".to_vec());
    from.put(b"b", b"2".to_vec());
    from.checkpoint(b"7".to_vec()).unwrap().write().unwrap();
    from.put(b"c", b"later".to_vec());
    let mut to = RowStore::open(&dir.path().join("to"), SMALL).unwrap();
    to.put(b"b", b"old".to_vec());
    to.put(b"z", b"old".to_vec());
    to.checkpoint(b"1".to_vec()).unwrap().write().unwrap();
    to.put(b"y", b"old".to_vec());
    let replaced = to.replacement(from.view()).write().unwrap();
    to.take_over(replaced);
    assert_eq!(all(&to), RowModel::from([(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]));
    assert_eq!(to.position(), Some(b"7".to_vec()));
}

/// Figures: `cargo test --release -p raft store_figures -- --ignored --nocapture`.
#[test]
#[ignore = "measures, takes a minute"]
fn store_figures() {
    use std::time::Instant;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows");
    let settings = StoreSettings { cache_bytes: 128 << 20, overlay_bytes: 32 << 20 };
    let mut store = RowStore::open(&path, settings).unwrap();
    let rows = 1_000_000u64;
    let key = |row: u64| {
        let mut key = row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
        key.resize(24, 0);
        key
    };
    let in_order = |row: u64| [&row.to_be_bytes()[..], &[0; 16]].concat();
    let load = |store: &mut RowStore, key: &dyn Fn(u64) -> Vec<u8>| {
        let (start, mut writing) = (Instant::now(), std::time::Duration::ZERO);
        for row in 0..rows {
            store.put(&key(row), vec![1; 100]);
            if store.is_full() || row + 1 == rows {
                let at = Instant::now();
                store.checkpoint(row.to_le_bytes().to_vec()).unwrap().write().unwrap();
                writing += at.elapsed();
            }
        }
        println!(
            "load {rows} rows: {:?}, of which checkpoints {writing:?}; {:?}",
            start.elapsed(),
            store.stats()
        );
    };
    let mut other = RowStore::open(&dir.path().join("in order"), settings).unwrap();
    load(&mut other, &in_order);
    drop(other);
    load(&mut store, &key);
    let at = Instant::now();
    for row in (0..rows).step_by(10) {
        assert!(store.get(&key(row)).is_some());
    }
    println!("get from disk layer: {:?} each", at.elapsed() / (rows / 10) as u32);
    let at = Instant::now();
    for row in (0..rows).step_by(10) {
        assert!(store.get(&key(rows + row)).is_none());
    }
    println!("get of a missing row: {:?} each", at.elapsed() / (rows / 10) as u32);
    let at = Instant::now();
    let count = store.scan(&[], &[0xff; 25], usize::MAX).len();
    println!("scan: {:?} a row", at.elapsed() / count as u32);
    let (reread, mut after, at) = (store.view().reread().unwrap(), None, Instant::now());
    while let Some((last, _)) = reread.page(after.as_deref(), 256).unwrap().pop() {
        after = Some(last);
    }
    println!("all rows from the disk: {:?}", at.elapsed());
    drop(reread);
    std::fs::copy(&path, dir.path().join("killed")).unwrap();
    File::open(dir.path().join("killed")).unwrap().sync_all().unwrap();
    drop(store);
    let at = Instant::now();
    let store = RowStore::open(&dir.path().join("killed"), settings).unwrap();
    println!("open after a kill: {:?}, {} rows", at.elapsed(), store.scan(&[], &[0xff; 25], 1).len());
    drop(store);
    for name in ["in order", "killed"] {
        let path = dir.path().join(name);
        let size = || std::fs::metadata(&path).unwrap().len();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let blocks = Blocks::open(FileBackend::new(file).unwrap(), None).unwrap();
        let mut database = Database::builder().create_with_backend(blocks).unwrap();
        let (before, at) = (size(), Instant::now());
        database.compact().unwrap();
        println!("compacted {name} from {before} to {} bytes in {:?}", size(), at.elapsed());
    }
}
