//! The remains of departed sessions, which are over: the end of a session is a self-write to the
//! identity (BlackBox §4.7).
//!
//! A session that returned `SelfWrite` with TRUE is a shield: others may know that the file is open
//! elsewhere because of it alone. So the shield stays until every session that sees it has released
//! that knowledge. The same holds of its locks. Others may wait for them, and learn that they are
//! gone by a recall of what they know. A session with such remains is a *departed* session; its
//! other leases count for nothing at once.

use crate::requests::pending::to_recall;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, InTheWay, Lease, Released, SessionId};

/// Files that are examined in one tick.
const SHIELDS_PER_STEP: usize = 256;

impl Transaction<'_> {
    /// Clears the remains of departed sessions on `file` (what they are stuck at, and their locks),
    /// or recalls from the sessions that see them. To be tried after every release. Returns whether
    /// anything was cleared.
    pub fn clear_departed(&mut self, file: &FileId) -> bool {
        let mut gone = false;
        for session in self.departed(file) {
            let mut sees = Vec::new();
            if self.files.holdings(file).is_stuck(session) {
                let mut left = Ok(());
                self.files.change_holdings(file, |holdings| left = holdings.leave(session));
                gone |= left.is_ok();
                sees.extend(left.err().into_iter().flatten());
            }
            if self.has_locks(file, session) {
                let seers = self.seers_of_locks(file, session);
                if seers.is_empty() {
                    self.files.change_locks(file, |locks| locks.retain(|(whose, _)| *whose != session));
                    gone = true;
                }
                sees.extend(seers);
            }
            if sees.is_empty() {
                self.forget_if_cleared(session);
            }
            self.recall(to_recall(file, sees).collect());
        }
        if gone {
            self.state.region.pending.wake(file);
        }
        gone
    }

    /// The same on all files whose handles or locks are needed. It goes before all requests, or
    /// their answers would rest on the remains again. Returns whether anything was cleared.
    pub fn clear_first(&mut self, needs: &[Lease]) -> bool {
        files_of_the_departed(needs).into_iter().fold(false, |gone, file| self.clear_departed(file) | gone)
    }

    /// The sessions that see the shield of a departed session on `file`, with the leases that they
    /// have to release.
    pub fn resting_on_the_departed(&self, file: &FileId) -> Vec<(SessionId, Released)> {
        let holdings = self.files.holdings(file);
        let resting = |session| {
            let mut resting = (*holdings).clone().leave(session).err().unwrap_or_default();
            if self.has_locks(file, session) {
                resting.extend(self.seers_of_locks(file, session));
            }
            resting
        };
        let in_the_way: Vec<InTheWay> = self.departed(file).into_iter().flat_map(resting).collect();
        to_recall(file, in_the_way).collect()
    }

    /// Examines all files on which departed sessions are stuck, from the beginning.
    pub fn look_for_the_departed(&mut self) {
        if let Some(first) = self.state.server.departed.first() {
            self.state.region.departed_next = Some((*first, None));
            self.again = true;
        }
    }

    /// One step of that examination.
    pub fn sweep_shields(&mut self) {
        let Some((session, from)) = self.state.region.departed_next.take() else { return };
        let shields = self.files.shields(session, from.as_deref(), SHIELDS_PER_STEP);
        self.state.region.departed_next = if shields.len() == SHIELDS_PER_STEP {
            shields.last().map(|(key, _)| (session, Some([key, [0].as_slice()].concat())))
        } else {
            let after = SessionId(session.0.saturating_add(1));
            self.state.server.departed.range(after..).next().map(|next| (*next, None))
        };
        self.again |= self.state.region.departed_next.is_some();
        for (_, file) in &shields {
            if self.clear_departed(file) {
                self.dispose_unless_open(file);
            }
        }
        self.forget_if_cleared(session);
    }

    fn departed(&self, file: &FileId) -> Vec<SessionId> {
        if self.state.server.departed.is_empty() {
            return Vec::new();
        }
        let shields = self.files.record(file).map(|record| record.shields()).unwrap_or_default();
        shields.into_iter().filter(|session| self.state.server.departed.contains(session)).collect()
    }

    fn forget_if_cleared(&mut self, session: SessionId) {
        if self.files.shields(session, None, 1).is_empty() {
            self.state.server.departed.remove(&session);
        }
    }
}

/// The files of which departed sessions may have left something that is needed, each once: needs
/// stand in the order of files.
pub(crate) fn files_of_the_departed(needs: &[Lease]) -> Vec<&FileId> {
    let concerned = needs.iter().filter(|need| need.field.is_black_box() || need.field == Field::Locks);
    let mut files: Vec<&FileId> = concerned.map(|need| &need.file).collect();
    files.dedup();
    files
}
