//! The part that a state restored from a backup has to forget: everything that rests on events
//! after the backup.
//!
//! Surviving clients know of states that the backup does not hold. Their sessions are over, so that
//! they forget those states, keep their own work, and begin anew. No number is given that may have
//! been given after the backup, or by a state restored from it before. To this end numbers begin
//! beyond any that could have been reached in the seconds since.

use crate::sessions::session::Sessions;
use crate::transaction::Transaction;
use ident::ServerId;
use lease::SessionId;
use wire::{FOUNDER_MEMBER, MachineId};

/// The binary digits of the sessions that begin within a second, and of the inode numbers used
/// within a second, on average and at most.
const SESSIONS_IN_A_SECOND: u32 = 4;
const INODES_IN_A_SECOND: u32 = 15;
/// The same of changes of the registry: some for each session that begins.
const CHANGES_IN_A_SECOND: u32 = 6;

impl Transaction<'_> {
    /// Takes in that the state was restored at `at`, UTC seconds.
    pub fn restored(&mut self, at: u64) {
        let sessions: Vec<SessionId> = self.state.server.sessions.all.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.fence(session, None));
        self.state.server.sessions.pass_over(at);
        if !self.is_root() {
            return;
        }
        // The backup has the root server alone, and the founder makes the others anew.
        for (server, _) in self.files.servers() {
            self.files.set_server(server, FOUNDER_MEMBER);
        }
        // A token that was used since the backup would be valid again.
        self.forget_all_invitations();
        self.reserve_machines(MachineId(at));
        self.state.cluster.changes.skip_to(at << CHANGES_IN_A_SECOND);
    }
}

impl Sessions {
    /// Makes the numbers of sessions and of inodes that are given from now on greater than any that
    /// could have been given `at` that time, UTC seconds.
    pub fn pass_over(&mut self, at: u64) {
        self.skip_to(at << SESSIONS_IN_A_SECOND, at << INODES_IN_A_SECOND);
    }

    /// Makes the numbers of sessions and of inodes that are given from now on at least these.
    fn skip_to(&mut self, session: u64, inode: u64) {
        let (server, _) = ServerId::of(self.next);
        self.next = self.next.max(server.number(session));
        self.next_inode = self.next_inode.max(server.number(inode));
    }
}
