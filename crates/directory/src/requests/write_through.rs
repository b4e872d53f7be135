//! Write-through content. A small ping-pong file may change and be read so steadily that each
//! change is read before the next. Then its holder sends each change at once and waits until the
//! server has it, so a report asks no holder. A change and a read of it are four messages either
//! way. But with write-through the change becomes durable while the reader's request is still on
//! its way.
//!
//! At any moment one place knows whether a change counts: the server as long as the file has a
//! [holder](WriteThrough::holders), the holder otherwise. The server gives this up first, by its
//! message or by ending the connection, and then asks the holder again. The holder goes on waiting
//! until it hears of that. So a lost message costs a message, and never correctness.

use ident::FileId;
use lease::{Recent, SessionId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reports in a row with a new value before the holder is asked to write through.
const STEADY: u8 = 3;
/// Files that are written through at a time.
const HOLDERS_MAX: usize = 1024;

/// The files whose content is reported. Part of the replicated state, since it decides which
/// sessions are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteThrough {
    /// The version of the content that was reported last. The events that count are the reports of
    /// another version than before.
    reports: Recent<FileId, u64>,
    holders: BTreeMap<FileId, WriteThroughHolder>,
}

/// A session that writes a file through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WriteThroughHolder {
    session: SessionId,
    /// Whether the file was reported since the session's last change.
    is_read: bool,
}

impl WriteThrough {
    /// Notes a report of this version of the content.
    pub fn told(&mut self, now: Time, file: &FileId, version: u64) {
        let before = self.reports.get(file).filter(|_| self.reports.is_recent(now, file));
        let is_new = before.is_some_and(|before| *before != version);
        if let Some(reported) = self.reports.note(now, file, u8::from(is_new)) {
            *reported = version;
        }
        if let Some(holder) = self.holders.get_mut(file) {
            holder.is_read = true;
        }
    }

    /// Whether each change of the file is read.
    pub fn is_steady(&self, now: Time, file: &FileId) -> bool {
        self.reports.count(now, file) >= STEADY
    }

    /// Whether `session` writes the file through.
    pub fn is_by(&self, file: &FileId, session: SessionId) -> bool {
        self.holders.get(file).is_some_and(|holder| holder.session == session)
    }

    /// Starts write-through by `session` of the content that it holds. If too many files are
    /// written through already, the session's next change ends it.
    ///
    /// Trap: an end forgets the reports that made the server ask, and an answer from before it
    /// begins nothing. By then the session may write back again.
    pub fn begin(&mut self, file: &FileId, session: SessionId) {
        let has_room = self.holders.len() < HOLDERS_MAX || self.holders.contains_key(file);
        if has_room && self.reports.get(file).is_some() {
            self.holders.insert(file.clone(), WriteThroughHolder { session, is_read: true });
        }
    }

    /// Notes a change by `session`. Returns whether write-through goes on: it ends if the file was
    /// not read since the session's last change.
    pub fn changed(&mut self, file: &FileId, session: SessionId) -> bool {
        let Some(holder) = self.holders.get_mut(file).filter(|holder| holder.session == session) else {
            return false;
        };
        let goes_on = std::mem::take(&mut holder.is_read);
        if !goes_on {
            self.died(file);
        }
        goes_on
    }

    /// Ends write-through of this file by `session`; whether there was any.
    pub fn end(&mut self, file: &FileId, session: SessionId) -> bool {
        let ends = self.is_by(file, session);
        if ends {
            self.died(file);
        }
        ends
    }

    /// Forgets a file: it no longer exists, or is not written through any more.
    pub fn died(&mut self, file: &FileId) {
        self.reports.forget(file);
        self.holders.remove(file);
    }

    /// Ends all write-through by `session`: it is over, or goes on over a new connection.
    pub fn end_session(&mut self, session: SessionId) {
        self.end_where(|holder| holder.session == session);
    }

    /// Ends all write-through: a new leader asks the holders.
    pub fn end_all(&mut self) {
        self.end_where(|_| true);
    }

    /// Such a file has to be read steadily again before it is written through.
    ///
    /// Trap: the session's changes from before are still to be replayed, and their answers end the
    /// mode at the client. Steady reads come after these answers, and a session that is asked at
    /// once would write back while the server believes that its own value counts.
    fn end_where(&mut self, ends: impl Fn(&WriteThroughHolder) -> bool) {
        let ended: Vec<FileId> =
            self.holders.extract_if(.., |_, holder| ends(holder)).map(|(file, _)| file).collect();
        ended.iter().for_each(|file| self.reports.forget(file));
    }

    /// The write-through files and their sessions.
    pub fn holders(&self) -> impl Iterator<Item = (&FileId, SessionId)> {
        self.holders.iter().map(|(file, holder)| (file, holder.session))
    }
}
