//! Machines and two files: the world of the lock tests and of the ping-pong tests.

use crate::host::Host;
use client::Call;
use ident::FileId;
use namespace::FileKind;

/// Number of files.
pub(super) const FILES: usize = 2;

/// The machines, of which the first holds every lease of the files.
pub(crate) struct Machines {
    pub host: Host,
    files: Vec<FileId>,
}

impl Machines {
    pub fn new(seed: u64, count: u64) -> Machines {
        let mut host = Host::of(seed, count);
        let root = FileId::root();
        let files = ["a", "b"].map(|name| host.make(0, &root, name, FileKind::Regular).unwrap()).into();
        host.does(0, Call::SyncAll);
        Machines { host, files }
    }

    pub fn file(&self, file: usize) -> FileId {
        self.files[file].clone()
    }

    /// The cost of `does`: messages in both directions, and flushes of the log.
    pub fn cost(&mut self, does: impl FnOnce(&mut Machines)) -> (u64, u64) {
        let before = (self.host.messages, self.host.server.flushes);
        does(self);
        self.host.deliver().unwrap();
        (self.host.messages - before.0, self.host.server.flushes - before.1)
    }
}
