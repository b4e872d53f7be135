//! A request of a session, with what it names.

use crate::connection::Connection;
use crate::handle::Handle;
use crate::limits::charge_of;
use crate::request::{Reply, Request};
use crate::session::Session;
use crate::tree::Tree;
use crate::wire::NtStatus;
use crate::wire::bodies::FileId;
use crate::wire::negotiate::Dialect;
use std::sync::Arc;

/// The surroundings of a request.
pub(crate) struct Context {
    pub(crate) connection: Arc<Connection>,
    /// The file of the request before, in a compound of related ones.
    pub(crate) related: Option<FileId>,
}

/// A request with what it names.
pub(crate) struct BoundRequest<'a> {
    pub(crate) context: &'a Context,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) tree: &'a Arc<Tree>,
    pub(crate) request: &'a Request,
}

/// The result of a command: a reply, or the status of an error.
pub(crate) type Served = Result<Reply, NtStatus>;

impl BoundRequest<'_> {
    pub(crate) fn message(&self) -> &[u8] {
        &self.request.message
    }

    /// Finds the open that a request names.
    pub(crate) fn handle(&self, file: FileId) -> Result<Arc<Handle>, NtStatus> {
        self.session.handle(self.file(file), self.tree)
    }

    /// Resolves the FileId that stands for the file of the request before.
    pub(super) fn file(&self, file: FileId) -> FileId {
        match self.context.related {
            Some(related) if file == FileId::RELATED => related,
            _ => file,
        }
    }

    /// Checks that the request has paid for its payload and for its answer's (§3.3.5.2.5).
    pub(crate) fn has_paid(&self, bytes: u32) -> Result<(), NtStatus> {
        let pays = self.context.connection.dialect() >= Dialect::V2_1;
        if pays && self.request.header.charge.max(1) < charge_of(bytes) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(())
    }
}
