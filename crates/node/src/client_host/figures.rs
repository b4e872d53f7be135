//! The client's work at present, in figures.

use super::ClientHost;
use crate::clock;
use ident::FileId;
use std::sync::atomic::Ordering;

/// Figures of a client's state.
pub(crate) struct ClientFigures {
    pub files_known: usize,
    pub dirty_bytes: usize,
    pub operations_unsent: usize,
    pub waits: Vec<client::WaitReport>,
}

impl ClientHost {
    /// Counts the client's files, dirty bytes, unsent operations and waiting calls.
    pub(crate) fn client_figures(&self) -> ClientFigures {
        let hosted = self.hosted.lock();
        ClientFigures {
            files_known: hosted.client.files_known(),
            dirty_bytes: hosted.client.dirty_bytes(),
            operations_unsent: hosted.client.operations_unsent(),
            waits: hosted.client.waits(clock::time(), 0),
        }
    }

    /// Counts the client's leases and the recalls it has received.
    pub(crate) fn leases_and_recalls(&self) -> (usize, u64) {
        let leases = self.hosted.lock().client.held(clock::time()).map(|(_, held)| held.iter().count()).sum();
        (leases, self.recalls.load(Ordering::Relaxed))
    }

    /// The path of `file`, as far as this machine's client knows.
    pub(crate) fn path(&self, file: &FileId) -> Option<String> {
        self.hosted.lock().client.path(file)
    }

    /// Begins to count the directories in use, or continues to.
    pub(crate) fn watch(&self) {
        self.activity.watch();
    }
}
