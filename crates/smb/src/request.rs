//! A request, and the answer to it.

use crate::keys::ChannelKey;
use crate::wire::bodies::{Empty, error_body};
use crate::wire::{Header, NtStatus};
use bytes::Bytes;
use objects::Acknowledged;
use std::sync::Arc;

/// A request.
pub(crate) struct Request {
    pub(crate) header: Header,
    /// The message, from its header on.
    pub(crate) message: Bytes,
    /// It came encrypted.
    pub(crate) is_encrypted: bool,
    /// The check of its signature has refused it.
    pub(crate) refused: Option<NtStatus>,
    /// The key that signed it.
    pub(crate) signed_by: Option<Arc<ChannelKey>>,
}

/// The answer to a request, without its header.
pub(crate) struct Reply {
    pub(crate) status: NtStatus,
    pub(crate) body: Vec<u8>,
    /// Bytes that follow the body: content that was read.
    pub(crate) content: Vec<Bytes>,
    /// The session that the request has made.
    pub(crate) session: Option<u64>,
    /// The tree connect that the request has made.
    pub(crate) tree: Option<u32>,
    /// The key that signs, if it is not the request's.
    pub(crate) signed_by: Option<Arc<ChannelKey>>,
    /// Dropped when the answer is on its way: see [`Acknowledged`].
    pub(crate) after: Option<Acknowledged>,
}

impl Reply {
    pub(crate) fn done(body: Vec<u8>) -> Reply {
        Reply {
            status: NtStatus::SUCCESS,
            body,
            content: Vec::new(),
            session: None,
            tree: None,
            signed_by: None,
            after: None,
        }
    }

    pub(crate) fn error(status: NtStatus) -> Reply {
        Reply { status, ..Reply::done(error_body()) }
    }

    pub(crate) fn empty() -> Reply {
        Reply::done(Empty::default().to_bytes())
    }
}
