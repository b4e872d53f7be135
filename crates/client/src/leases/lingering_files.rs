//! The files that linger.

use crate::server::ServerId;
use ident::FileId;
use lease::Time;
use rustc_hash::FxHashMap;

/// The files that linger, and until when.
#[derive(Debug, Default)]
pub(crate) struct Lingering(pub FxHashMap<FileId, Until>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Until the front door forgets the file. The entry `removed` of this server's log took its
    /// last name.
    Forgotten { server: ServerId, removed: u64 },
    /// Until this time.
    Time(Time),
}
