//! What is left of sessions that are over: the end of a session is a self-write to the identity (BlackBox §4.7).
//!
//! A session that returned `SelfWrite` with TRUE is a shield: others may have been told that the file is open elsewhere because of it alone. So it stays until whoever
//! sees that has let go of it. Sessions of which something may be left so are *fading*; the rest of what they held counts for nothing
//! at once.

use crate::ask::to_let_go;
use crate::turn::Turn;
use ident::FileId;
use lease::{InTheWay, Lease, Released, SessionId};

/// Files that are looked at in one tick.
const SHIELDS_PER_STEP: usize = 256;

impl Turn<'_> {
    /// What fading sessions are stuck at on `file` goes, or whoever sees it is asked to let go. To be tried whenever somebody has let go. Whether anything went.
    pub fn fade(&mut self, file: &FileId) -> bool {
        let mut gone = false;
        for session in self.departed(file) {
            let mut left = Ok(());
            self.files.change_holdings(file, |holdings| left = holdings.leave(session));
            match left {
                Ok(()) => {
                    gone = true;
                    self.forget_if_faded(session);
                }
                Err(in_the_way) => self.recall(to_let_go(file, in_the_way).collect()),
            }
        }
        if gone {
            self.state.desk.wake(file);
        }
        gone
    }

    /// The same on all files whose handles are needed: it goes before all requests, or what they are told would rest on it again. Whether anything went.
    pub fn fade_first(&mut self, needs: &[Lease]) -> bool {
        files_with_black_boxes(needs).into_iter().fold(false, |gone, file| self.fade(file) | gone)
    }

    /// Who sees on `file` what a fading session is stuck at, and has to let go of that.
    pub fn resting_on_the_departed(&self, file: &FileId) -> Vec<(SessionId, Released)> {
        let holdings = self.files.holdings(file);
        let resting = |session| (*holdings).clone().leave(session).err().unwrap_or_default();
        let in_the_way: Vec<InTheWay> = self.departed(file).into_iter().flat_map(resting).collect();
        to_let_go(file, in_the_way).collect()
    }

    /// Looks through all that fading sessions are stuck at, from the beginning.
    pub fn look_for_the_departed(&mut self) {
        if let Some(first) = self.state.fading.first() {
            self.state.fade_from = Some((*first, None));
            self.again = true;
        }
    }

    /// One step of looking.
    pub fn sweep_shields(&mut self) {
        let Some((session, from)) = self.state.fade_from.take() else { return };
        let shields = self.files.shields(session, from.as_deref(), SHIELDS_PER_STEP);
        self.state.fade_from = if shields.len() == SHIELDS_PER_STEP {
            shields.last().map(|(key, _)| (session, Some([key, [0].as_slice()].concat())))
        } else {
            let after = SessionId(session.0.saturating_add(1));
            self.state.fading.range(after..).next().map(|next| (*next, None))
        };
        self.again |= self.state.fade_from.is_some();
        for (_, file) in &shields {
            if self.fade(file) {
                self.dispose_unless_open(file);
            }
        }
        self.forget_if_faded(session);
    }

    fn departed(&self, file: &FileId) -> Vec<SessionId> {
        if self.state.fading.is_empty() {
            return Vec::new();
        }
        let holdings = self.files.holdings(file);
        let stuck = holdings.stuck().iter().map(|(session, _)| *session);
        stuck.filter(|session| self.state.fading.contains(session)).collect()
    }

    fn forget_if_faded(&mut self, session: SessionId) {
        if self.files.shields(session, None, 1).is_empty() {
            self.state.fading.remove(&session);
        }
    }
}

/// The files of which a black box is needed, each once: needs stand in the order of files.
pub(crate) fn files_with_black_boxes(needs: &[Lease]) -> Vec<&FileId> {
    let black_boxes = needs.iter().filter(|need| need.field.is_black_box());
    let mut files: Vec<&FileId> = black_boxes.map(|need| &need.file).collect();
    files.dedup();
    files
}
