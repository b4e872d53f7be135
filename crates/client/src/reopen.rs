//! Handles that outlive a session: programs do not know of sessions, so what they have open is
//! opened anew in the next one, in the background. What is gone is gone; what others have opened so
//! that it does not go together stays without a handle that anybody sees.

use crate::client::Client;
use crate::handles::Handles;
use crate::waiting::{Stop, Waiting};
use crate::{Call, Now, Output, Reply, Ticket};
use ident::FileId;
use lease::Open;
use namespace::{Cred, Error, Operation};

/// Files that are opened anew at a time.
const AT_A_TIME: usize = 64;

/// Handles of a file that are from a session that is over.
#[derive(Debug)]
pub(crate) struct Reopening {
    handles: Handles,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its turn has not come.
    Later,
    /// Under way.
    Asked,
    /// Others have it open so that these cannot be.
    Refused,
}

impl Client {
    /// What is open now is to be opened anew, if it is not closed before.
    pub(crate) fn keep_handles(&mut self) {
        for reopening in self.reopening.values_mut() {
            reopening.state = State::Later;
        }
        for (file, known) in &mut self.files.0 {
            if let Some(handles) = known.handles.take().filter(|_| !known.gone) {
                let reopening = self.reopening.entry(file.clone());
                let reopening = reopening
                    .or_insert_with(|| Reopening { handles: Handles::default(), state: State::Later });
                reopening.handles.add_all(&handles);
            }
        }
    }

    /// Begins to open what has not been tried, as far as that is not too much at a time.
    pub(crate) fn reopen_some(&mut self, now: Now, out: &mut Vec<Output>) {
        let asked = self.reopening.values().filter(|reopening| reopening.state == State::Asked).count();
        let later = self.reopening.iter().filter(|(_, reopening)| reopening.state == State::Later);
        let files: Vec<FileId> =
            later.map(|(file, _)| file.clone()).take(AT_A_TIME.saturating_sub(asked)).collect();
        for file in files {
            if let Some(reopening) = self.reopening.get_mut(&file) {
                reopening.state = State::Asked;
            }
            let call = Call::Open { file: file.clone(), open: Open::CLOSED, mask: 0 };
            let mut waiting = Waiting::new(now, Cred::default(), call);
            waiting.reopens = Some(file);
            let ticket = self.ticket();
            self.go_on(now, ticket, waiting, out);
        }
    }

    /// One try at opening a file anew: all its handles at once, in the name of nobody, since who
    /// opened them had the permission.
    pub(crate) fn reopen(&mut self, now: Now, file: &FileId) -> Result<Reply, Stop> {
        let Some(reopening) = self.reopening.get(file) else { return Ok(Reply::Nothing) };
        let (open, own) = (reopening.handles.own(), self.own(file));
        self.decide(now, Operation::Open { file: file.clone(), mask: 0, open, own, cred: Cred::default() })?;
        if let Some((known, reopening)) = self.files.get_mut(file).zip(self.reopening.remove(file)) {
            known.handles.get_or_insert_default().add_all(&reopening.handles);
        }
        Ok(Reply::Nothing)
    }

    /// A file was opened anew, or will not be.
    pub(crate) fn reopened(
        &mut self,
        now: Now,
        file: &FileId,
        result: &Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        match result {
            Ok(_) => {}
            // Its handles are to be closed like any others, and count for nothing until then.
            Err(Error::SharingViolation | Error::DeletePending) => {
                if let Some(reopening) = self.reopening.get_mut(file) {
                    reopening.state = State::Refused;
                }
            }
            Err(_) => _ = self.reopening.remove(file),
        }
        self.reopen_some(now, out);
    }

    /// Closes a handle that is from a session that is over, if there is such a one. Which of
    /// several like it is meant nobody can say, nor does it matter.
    pub(crate) fn close_lost(&mut self, file: &FileId, open: Open) -> bool {
        let Some(reopening) = self.reopening.get_mut(file).filter(|lost| lost.handles.has(open)) else {
            return false;
        };
        reopening.handles.remove(open);
        if reopening.handles.own().is_closed() {
            self.reopening.remove(file);
        }
        true
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }
}
