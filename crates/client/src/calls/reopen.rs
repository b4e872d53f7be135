//! Handles that outlive a session.
//!
//! Programs do not know of sessions. So the client opens their files again in the next session, in
//! the background. A file that is gone stays gone. A file that other clients have open with
//! conflicting modes stays without a handle that others see.

use super::{Caller, Stop, Waiting};
use crate::client::Client;
use crate::knowledge::{Handles, ReopenState, Reopening};
use crate::server::ServerId;
use crate::{Call, Now, Output, Reply, call};
use ident::FileId;
use lease::OpenModes;
use namespace::{Cred, Error, operation};

/// The number of files that are opened again at a time.
const AT_A_TIME: usize = 64;

impl Client {
    /// Keeps the open handles of a session that is over, to open them again unless they are closed
    /// before.
    pub(crate) fn keep_handles(&mut self, server: ServerId) {
        for (file, reopening) in &mut self.reopening {
            if self.servers.id_of(file) == server {
                reopening.state = ReopenState::Later;
            }
        }
        for (file, known) in self.files.all.iter_mut().filter(|(_, known)| known.server == server) {
            if let Some(handles) = known.handles.take().filter(|_| !known.gone) {
                let reopening = self.reopening.entry(file.clone());
                let reopening = reopening
                    .or_insert_with(|| Reopening { handles: Handles::default(), state: ReopenState::Later });
                reopening.handles.add_all(&handles);
            }
        }
    }

    /// Begins to open files that were not tried, up to a limit at a time.
    pub(crate) fn reopen_some(&mut self, now: Now, out: &mut Vec<Output>) {
        let asked = self.reopening.values().filter(|reopening| reopening.state == ReopenState::Asked).count();
        let later = self.reopening.iter().filter(|(_, reopening)| reopening.state == ReopenState::Later);
        let files: Vec<FileId> =
            later.map(|(file, _)| file.clone()).take(AT_A_TIME.saturating_sub(asked)).collect();
        for file in files {
            if let Some(reopening) = self.reopening.get_mut(&file) {
                reopening.state = ReopenState::Asked;
            }
            let call =
                Call::OpenFile(call::OpenFile { file: file.clone(), open: OpenModes::CLOSED, mask: 0 });
            let waiting = Waiting::own(now, Caller::Reopening(file), call);
            let ticket = self.calls.ticket();
            self.go_on(now, ticket, waiting, out);
        }
    }

    /// One try at opening a file again, with all its handles at once. No user is named, since the
    /// openers had the permission.
    pub(crate) fn reopen(&mut self, now: Now, file: &FileId) -> Result<Reply, Stop> {
        let Some(reopening) = self.reopening.get(file) else { return Ok(Reply::Nothing) };
        let (open, own) = (reopening.handles.own(), self.own(file));
        self.decide(
            now,
            operation::Open { file: file.clone(), mask: 0, open, own, cred: Cred::default() }.into(),
        )?;
        if let Some((known, reopening)) = self.files.get_mut(file).zip(self.reopening.remove(file)) {
            known.handles.get_or_insert_default().add_all(&reopening.handles);
        }
        Ok(Reply::Nothing)
    }

    /// Takes the result of opening a file again.
    pub(crate) fn reopened(
        &mut self,
        now: Now,
        file: &FileId,
        result: &Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        match result {
            Ok(_) => {}
            // These handles are closed like any others, and count for nothing until then.
            Err(Error::SharingViolation | Error::DeletePending) => {
                if let Some(reopening) = self.reopening.get_mut(file) {
                    reopening.state = ReopenState::Refused;
                }
            }
            Err(_) => _ = self.reopening.remove(file),
        }
        self.reopen_some(now, out);
    }

    /// Closes a handle from an earlier session, if there is one with these modes. Which of several
    /// equal handles the program means is unknown and does not matter.
    pub(crate) fn close_lost(&mut self, file: &FileId, open: OpenModes) -> bool {
        let Some(reopening) = self.reopening.get_mut(file).filter(|lost| lost.handles.has(open)) else {
            return false;
        };
        reopening.handles.remove(open);
        if reopening.handles.own().is_closed() {
            self.reopening.remove(file);
        }
        true
    }
}
