//! Write-through content. A small ping-pong file may change and be read so steadily that each
//! change is read before the next. Then its holder sends each change at once and waits until the
//! server has it, so a report asks no holder. A change and a read of it are four messages either
//! way. But with write-through the change becomes durable while the reader's request is still on
//! its way.
//!
//! At any moment one place knows whether a change counts: the server as long as the file has a
//! [`Looked::holder`], the holder otherwise. The server gives this up first, by its message or by
//! ending the connection, and then asks the holder again. The holder goes on waiting until it hears
//! of that. So a lost message costs a message, and never correctness.

use ident::FileId;
use lease::{SessionId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reports in a row with a new value before the holder is asked to write through.
const STEADY: u8 = 3;
/// Reports further apart are not in a row, ms.
const APART_MS: u64 = 10_000;
/// Files whose reports are remembered.
const LOOKED_MAX: usize = 1024;

/// The recent reports of a small file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Looked {
    /// When the file was last reported, and which version of its content.
    at: Time,
    version: u64,
    /// The reports in a row that had another version than before.
    changes: u8,
    /// The session that writes it through.
    holder: Option<SessionId>,
    /// Whether it was reported since the last change.
    since_change: bool,
}

/// The files whose content is reported. Part of the replicated state, since it decides which
/// sessions are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteThrough(BTreeMap<FileId, Looked>);

impl WriteThrough {
    /// Notes a report of this version of the content.
    pub fn told(&mut self, now: Time, file: &FileId, version: u64) {
        if self.0.len() >= LOOKED_MAX && !self.0.contains_key(file) {
            self.0.retain(|_, it| it.holder.is_some() || now.ms_since(it.at) < APART_MS);
            if self.0.len() >= LOOKED_MAX {
                return;
            }
        }
        let new = Looked { at: now, version, changes: 0, holder: None, since_change: true };
        let it = self.0.entry(file.clone()).or_insert(new);
        if now.ms_since(it.at) >= APART_MS {
            it.changes = 0;
        } else if it.version != version {
            it.changes = it.changes.saturating_add(1);
        }
        (it.at, it.version, it.since_change) = (now, version, true);
    }

    /// Whether each change of the file is read.
    pub fn is_steady(&self, now: Time, file: &FileId) -> bool {
        self.0.get(file).is_some_and(|it| it.changes >= STEADY && now.ms_since(it.at) < APART_MS)
    }

    /// Whether `session` writes the file through.
    pub fn is_by(&self, file: &FileId, session: SessionId) -> bool {
        self.0.get(file).is_some_and(|it| it.holder == Some(session))
    }

    /// Starts write-through by `session` of the content that it holds.
    pub fn begin(&mut self, file: &FileId, session: SessionId) {
        if let Some(it) = self.0.get_mut(file) {
            it.holder = Some(session);
        }
    }

    /// Notes a change by `session`. Returns whether write-through goes on: it ends if the file was
    /// not read since the session's last change.
    pub fn changed(&mut self, file: &FileId, session: SessionId) -> bool {
        let Some(it) = self.0.get_mut(file).filter(|it| it.holder == Some(session)) else { return false };
        let goes_on = std::mem::take(&mut it.since_change);
        if !goes_on {
            self.0.remove(file);
        }
        goes_on
    }

    /// Ends write-through of this file by `session`; whether there was any.
    pub fn end(&mut self, file: &FileId, session: SessionId) -> bool {
        let ends = self.is_by(file, session);
        if ends {
            self.0.remove(file);
        }
        ends
    }

    /// Forgets a file that no longer exists.
    pub fn died(&mut self, file: &FileId) {
        self.0.remove(file);
    }

    /// Ends all write-through by `session`: it is over, or goes on over a new connection.
    pub fn end_session(&mut self, session: SessionId) {
        self.0.retain(|_, it| it.holder != Some(session));
    }

    /// Ends all write-through: a new leader asks the holders.
    pub fn end_all(&mut self) {
        self.0.retain(|_, it| it.holder.is_none());
    }

    /// The write-through files and their sessions.
    pub fn holders(&self) -> impl Iterator<Item = (&FileId, SessionId)> {
        self.0.iter().filter_map(|(file, it)| Some((file, it.holder?)))
    }
}
