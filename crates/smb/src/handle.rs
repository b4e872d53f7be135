//! An open of a session.

use crate::durable::Durable;
use crate::records::KeptRecord;
use crate::replay::KnownCreate;
use crate::rpc::Pipe;
use crate::sequence::ChannelSequence;
use crate::tree::Tree;
use crate::wire::NtStatus;
use crate::wire::bodies::FileId;
use objects::{CreateAction, ObjectPath, Open, Watch};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::Notify;

/// An open of a session: a file or a pipe.
pub(crate) struct Handle {
    pub(crate) file: FileId,
    pub(crate) tree: Arc<Tree>,
    pub(crate) kind: HandleKind,
    /// The path by which it was opened; that of a pipe is empty.
    pub(crate) path: ObjectPath,
    /// The open outlives its connection.
    pub(crate) durable: Mutex<Option<Durable>>,
    /// Its record in the data directory, if it is persistent.
    pub(crate) record: tokio::sync::Mutex<KeptRecord>,
    /// The create that made it, if that may be sent again, and what it did.
    pub(crate) create: Mutex<Option<KnownCreate>>,
    pub(crate) action: CreateAction,
    /// Its client has used it, and so has seen the answer to the create (Open.IsReplayEligible).
    pub(crate) is_used: AtomicBool,
    /// The instance of a program whose open it is (AppInstanceId).
    pub(crate) app_instance: Option<[u8; 16]>,
    /// Wakes locks that wait, when it is closed.
    pub(crate) closing: Notify,
    pub(crate) sequence: Arc<Mutex<ChannelSequence>>,
    /// Where the listing of a directory goes on.
    pub(crate) listing: tokio::sync::Mutex<Cursor>,
    /// The changes of a directory, from the first CHANGE_NOTIFY on.
    pub(crate) watch: Mutex<Option<Arc<Watch>>>,
    /// CurrentByteOffset and the mode, which count for nothing and are kept for those who ask.
    pub(crate) position: Mutex<u64>,
    pub(crate) mode: Mutex<u32>,
    /// The numbers of lock requests that were answered (LockSequenceArray, §3.3.1.10).
    pub(crate) lock_sequences: Mutex<[Option<u8>; 64]>,
}

/// The place in a listing.
#[derive(Default)]
pub(crate) struct Cursor {
    /// The pattern, if there was a query.
    pub(crate) pattern: Option<String>,
    /// The entry behind which the next query goes on, if that is not where the store stands: the
    /// buffer could not take all that was listed.
    pub(crate) behind: Option<u64>,
    /// The next query begins at the first entry, since the buffer could not take even that.
    pub(crate) restarts: bool,
}

/// The thing that is open.
pub(crate) enum HandleKind {
    /// A file, directory or stream.
    Object(Arc<Open>),
    /// A named pipe.
    Pipe(Mutex<Pipe>),
}

impl Handle {
    pub(crate) fn new(file: FileId, tree: Arc<Tree>, kind: HandleKind) -> Handle {
        Handle {
            file,
            tree,
            kind,
            path: ObjectPath::default(),
            durable: Mutex::new(None),
            record: tokio::sync::Mutex::default(),
            create: Mutex::new(None),
            action: CreateAction::Opened,
            is_used: AtomicBool::new(false),
            app_instance: None,
            closing: Notify::new(),
            sequence: Arc::default(),
            listing: tokio::sync::Mutex::default(),
            watch: Mutex::new(None),
            position: Mutex::new(0),
            mode: Mutex::new(0),
            lock_sequences: Mutex::new([None; 64]),
        }
    }

    /// Returns the file, or the refusal of what a pipe cannot do.
    pub(crate) fn object(&self) -> Result<&Arc<Open>, NtStatus> {
        match &self.kind {
            HandleKind::Object(open) => Ok(open),
            HandleKind::Pipe(_) => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }
}

/// Closes opens whose session, tree connect or connection is gone.
pub(crate) async fn close_all(handles: Vec<Arc<Handle>>) {
    for handle in handles {
        handle.closing.notify_waiters();
        if let Ok(open) = handle.object()
            && let Err(error) = open.close(false).await
        {
            tracing::debug!(%error, "an open could not be closed in order");
        }
        handle.forget().await;
    }
}
