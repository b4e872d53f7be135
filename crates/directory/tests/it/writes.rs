//! The rows that an input or a checkpoint writes or removes.

use crate::support::*;
use directory::{Input, MemoryStore, ShareWork, Store};
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::FileKind;
use wire::{AskMode, LogEntry, ToServer};

const ROOT: FileId = FileId::root();

/// A store that counts.
struct Counted<'a> {
    store: &'a mut MemoryStore,
    written: usize,
}

impl Store for Counted<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.store.get(key)
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.written += 1;
        self.store.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.written += 1;
        self.store.delete(key);
    }

    fn walk(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        self.store.walk(start, end, visit);
    }
}

/// The rows that this input writes.
fn written(world: &mut World, input: Input) -> usize {
    let mut store = Counted { store: &mut world.store, written: 0 };
    world.server.handle(world.now, input, &mut store, &mut Vec::new()).unwrap();
    store.written
}

/// The rows that a checkpoint writes.
fn checkpointed(world: &mut World) -> usize {
    let mut store = Counted { store: &mut world.store, written: 0 };
    world.server.checkpoint(&mut store);
    store.written
}

/// The rows that these log entries write, from the session's entry `first` on.
fn logged(world: &mut World, session: SessionId, first: u64, entries: Vec<LogEntry>) -> usize {
    let message = ToServer::Log { answer: true, first, entries };
    written(world, Input::Message { session, message })
}

#[test]
fn a_create_a_recall_and_a_release_write_few_rows() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    let n = world.take_root(a);
    let [op, other] =
        [(n, "file"), (n + 1, "other")].map(|(n, name)| world.create(a, &ROOT, name, FileKind::Regular, n));
    let (file, other_file) = (made(&op), made(&other));
    let create = logged(&mut world, a, 1, vec![update(op)]);
    logged(&mut world, a, 2, vec![update(other)]);
    let content = extents(vec![extent(0, 100, share(1))], true);
    let publication = logged(&mut world, a, 3, vec![update(publish(&other_file, 1, 100, content))]);
    let settled = written(&mut world, Input::SharesSettled(vec![ShareWork::Adopt(share(1))]));
    let message =
        ToServer::Ask { number: 1, operation: stat(&file), wants: Vec::new(), mode: AskMode::Lease };
    let recall = written(&mut world, Input::Message { session: b, message });
    let fields = [Field::Attributes, Field::Content];
    let fields = fields.map(|field| released(&file, field, Some(Kind::Read)));
    let release = logged(&mut world, a, 4, vec![LogEntry::Release(fields.into())]);
    let death = logged(&mut world, a, 5, vec![update(unlink(&ROOT, "other", false))]);
    let dropped = written(&mut world, Input::SharesSettled(vec![ShareWork::Drop(share(1))]));
    let counts = [create, publication, settled, recall, release, death, dropped];
    assert_eq!(counts, [4, 4, 1, 0, 1, 7, 1]);
    world.check();
}

#[test]
fn a_checkpoint_writes_what_has_changed_since_the_last() {
    let mut world = World::new();
    let (a, b) = (world.open(1, 1), world.open(2, 1));
    checkpointed(&mut world);
    assert_eq!(checkpointed(&mut world), 0);
    world.now = world.now.after_ms(1000);
    world.send(a, ToServer::Renew);
    assert_eq!(checkpointed(&mut world), 1, "the session");
    world.send(b, ToServer::Goodbye);
    assert_eq!(checkpointed(&mut world), 3, "the session, those that departed, the searches");
    world.restart();
    assert_eq!(world.server.status(world.now).sessions, 1);
}
