//! The questions of share hosts to the directory's state.

use lease::SessionId;
use namespace::ShareId;
use wire::{MachineId, ShareWork};

/// The reference index, in this machine's replica of the state. The machine's server is the one: it
/// is above this crate, and a share host calls back into it.
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

    /// Whether the state is at least as new as any that this machine acted on, also before a
    /// restart. A replica that has just started may have applied less of its log than before, until
    /// it learns what is committed. By such a state no share may be released.
    fn is_current(&self) -> bool;

    /// Reports work that this machine's share server has durably done.
    fn settled(&self, work: Vec<ShareWork>);
}
