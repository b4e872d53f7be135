//! What a state has to forget that comes back from a backup: whatever rests on what was so after
//! it.
//!
//! Clients that live on know what the backup does not. Their sessions are over, so that they forget
//! it, keep what is theirs, and begin anew. And no number is given that may have been given after
//! the backup, or by a state that was restored from it before: numbers begin where so many seconds
//! cannot have brought them.

use crate::session::Sessions;
use crate::transaction::Transaction;
use lease::SessionId;
use wire::MachineId;

/// Binary digits of the sessions that begin, and of the inode numbers that are used, within a
/// second on the average, at most.
const SESSIONS_IN_A_SECOND: u32 = 4;
const INODES_IN_A_SECOND: u32 = 15;

impl Transaction<'_> {
    /// The state was restored at `at`, UTC seconds.
    pub fn restored(&mut self, at: u64) {
        let sessions: Vec<SessionId> = self.state.sessions.all.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.fence(session, None));
        self.state.sessions.skip_to(at << SESSIONS_IN_A_SECOND, at << INODES_IN_A_SECOND);
        // A token that was used since the backup would be good again.
        self.forget_all_invitations();
        self.reserve_machines(MachineId(at));
    }
}

impl Sessions {
    /// Numbers of sessions and of inodes that are given from now on are at least these.
    fn skip_to(&mut self, session: u64, inode: u64) {
        self.next = self.next.max(session);
        self.next_inode = self.next_inode.max(inode);
    }
}
