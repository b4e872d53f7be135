//! Reconnects that are interrupted, above a real machine.

use super::block_on;
use super::late::Session;
use super::samples::create;
use crate::connection::binding::tests::Bed;
use crate::wire::bodies::{CreateResponse, FileId};
use crate::wire::contexts::{LeaseContext, LeaseV2};
use crate::wire::{Command, NtStatus, Writer};
use client::{Call, Ticket};
use file_service::{CacheHolder, FileService, Responder};
use namespace::Cred;
use node::{Machine, MachineSettings};
use objects::Store;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A machine's files. It tells nothing of their attributes while it is held.
struct Held {
    below: Arc<dyn FileService>,
    is_held: AtomicBool,
    waiting: Mutex<Vec<Responder>>,
}

impl FileService for Held {
    fn call(&self, cred: &Cred, call: Call, respond: Responder) -> Option<Ticket> {
        if self.is_held.load(Relaxed) && matches!(call, Call::Stat { .. }) {
            self.waiting.lock().push(respond);
            return None;
        }
        self.below.call(cred, call, respond)
    }

    fn cancel(&self, ticket: Ticket) {
        self.below.cancel(ticket);
    }

    fn give_way(&self, ticket: Ticket) {
        self.below.give_way(ticket);
    }

    fn root(&self) -> ident::FileId {
        self.below.root()
    }

    fn valid_for(&self) -> Duration {
        self.below.valid_for()
    }

    fn forgotten(&self, files: Vec<ident::FileId>) {
        self.below.forgotten(files);
    }

    fn register_cache(&self, holder: Arc<dyn CacheHolder>) {
        self.below.register_cache(holder);
    }
}

fn lease() -> Vec<u8> {
    LeaseContext { key: [9; 16], state: 7, flags: 0, v2: Some(LeaseV2 { parent: None, epoch: 0 }) }.to_bytes()
}

/// A create that is durable, or one that comes back for `file`.
fn durable(file: Option<FileId>) -> Vec<u8> {
    let mut data = Vec::new();
    let name: &[u8] = if file.is_some() { b"DHnC" } else { b"DHnQ" };
    let file = file.unwrap_or_default();
    data.u64(file.persistent);
    data.u64(file.volatile);
    create("durable", 3, 0x40, &[(b"RqLs", lease()), (name, data)])
}

#[test]
fn an_open_whose_reconnect_is_interrupted_waits_for_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    let held = Arc::new(Held {
        below: machine.file_service(),
        is_held: AtomicBool::new(false),
        waiting: Mutex::default(),
    });
    block_on(async {
        let bed = Bed::sharing(Store::new(held.clone()), false);
        let (mut session, _) = Session::begin(&bed, "one").await;
        let tree = session.tree;
        let (_, answer) = session.does(Command::Create, tree, &durable(None)).await;
        let file = CreateResponse::parse(&answer).unwrap().file;
        session.peer.connection.close().await;
        assert!(bed.server.durables.lock().contains_key(&file.persistent));
        // The connection is lost again while the open comes back, twice.
        for name in ["two", "three"] {
            let (mut session, _) = Session::begin(&bed, name).await;
            held.is_held.store(true, Relaxed);
            let tree = session.tree;
            session.sends(Command::Create, tree, &durable(Some(file)));
            assert!(!bed.server.durables.lock().contains_key(&file.persistent), "it is under way");
            session.peer.connection.close().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            held.is_held.store(false, Relaxed);
            held.waiting.lock().clear();
            assert!(bed.server.durables.lock().contains_key(&file.persistent), "{name}");
        }
        let (mut session, _) = Session::begin(&bed, "four").await;
        let tree = session.tree;
        let (header, answer) = session.asks(Command::Create, tree, &durable(Some(file))).await;
        assert_eq!(header.status, NtStatus::SUCCESS);
        assert_eq!(CreateResponse::parse(&answer).unwrap().file, file);
        session.peer.connection.close().await;
    });
    machine.stop().unwrap();
}
