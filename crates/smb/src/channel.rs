//! A session on one of its connections (Channel, MS-SMB2 §3.3.1.14).

use crate::keys::ChannelKey;
use crate::session::Session;
use std::sync::Arc;

/// A session on a connection, with the key that signs there.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) session: Arc<Session>,
    pub(crate) key: Arc<ChannelKey>,
}
