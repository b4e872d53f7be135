//! The questions of share hosts to the directory's state.

use ident::ServerId;
use lease::SessionId;
use namespace::ShareId;
use wire::{MachineId, ShareWork};

/// The reference index, in this machine's replicas of the states of all servers of the directory.
/// The machine's server is the index: it is above this crate, and a share host calls back into it.
pub trait ReferenceIndex: Send + Sync {
    /// Of the first `limit` shares after `after`, returns those that are referenced, by the names
    /// under which hosts keep them. Also returns the last share looked at, unless that was the end.
    fn shares_after(&self, after: Option<&ShareId>, limit: usize) -> (Vec<ShareId>, Option<ShareId>);

    /// Whether each of these shares is referenced, or the share that it is a fragment of.
    fn refers_to(&self, shares: &[ShareId]) -> Vec<bool>;

    /// Returns the machine that first referred to each of these shares, or to the whole of such a
    /// fragment, if known. Only that machine has uploaded it.
    fn publishers(&self, shares: &[ShareId]) -> Vec<Option<MachineId>>;

    /// Whether each of these sessions, which should be of that machine, is over. Such a session
    /// publishes nothing more, and its publications are in the state.
    fn are_over(&self, sessions: &[(MachineId, SessionId)]) -> Vec<bool>;

    /// Whether that session has begun, as far as this replica knows: it may be behind.
    fn has_begun(&self, session: SessionId) -> bool;

    /// Whether that machine may store shares: it belongs to the cluster, and has more than the
    /// right to read.
    fn may_upload(&self, machine: MachineId) -> bool;

    /// Returns the arrangement of regions over servers, if no reference can be missing in the
    /// replicas here. Otherwise no share may be released by them.
    ///
    /// A replica is at least as new then as any that this machine acted on, also before a restart:
    /// one that has just started may have applied less of its log than before, until it learns what
    /// is committed. No region is on its way between two servers. If the arrangement is the same
    /// after a look through references as before, then no reference has moved past that look.
    fn arrangement(&self) -> Option<Arrangement>;

    /// Reports work for a server of the directory that this machine's share server has durably
    /// done.
    fn settled(&self, server: ServerId, work: Vec<ShareWork>);
}

/// Which server has which regions: an arrangement that comes after a region has moved differs from
/// all before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrangement(pub Vec<(ServerId, u64)>);
