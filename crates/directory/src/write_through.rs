//! Content that is written through. Of a small file that passes to and fro so steadily that each
//! change is looked at before the next, the holder says each at once and waits until the server has
//! it; so a report asks nobody. A change and a look at it are four messages either way, but now
//! what was written is being made durable while whoever looks is still on the way here.
//!
//! Whether a change counts is known at one place at any moment: here as long as the file has a
//! [`Looked::holder`], and at the holder otherwise. The server gives it up first, by its word or by
//! ending the connection, and then asks the holder again; who holds goes on waiting until it hears
//! of that. So what is lost on the way costs a message, and no truth.

use crate::Output;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Kind, SessionId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::ToClient;

/// So often in a row a report found another value before the holder is asked to write through.
const STEADY: u8 = 3;
/// Reports further apart are not in a row, ms.
const APART_MS: u64 = 10_000;
/// Files of which that is remembered.
const LOOKED_MAX: usize = 1024;

/// How a small file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Looked {
    /// When it was last told, and which version of its content.
    at: Time,
    version: u64,
    /// How often in a row that was another one than before.
    changes: u8,
    /// Who writes it through.
    holder: Option<SessionId>,
    /// Whether it was told since the last change.
    since_change: bool,
}

/// The files whose content is reported. Part of the replicated state, since it decides who is
/// asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteThrough(BTreeMap<FileId, Looked>);

impl WriteThrough {
    /// This version of its content was told.
    fn told(&mut self, now: Time, file: &FileId, version: u64) {
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

    /// Whether each change of it is looked at.
    fn is_steady(&self, now: Time, file: &FileId) -> bool {
        self.0.get(file).is_some_and(|it| it.changes >= STEADY && now.ms_since(it.at) < APART_MS)
    }

    fn is_by(&self, file: &FileId, session: SessionId) -> bool {
        self.0.get(file).is_some_and(|it| it.holder == Some(session))
    }

    /// `session` writes through from now on, of what it holds.
    fn begin(&mut self, file: &FileId, session: SessionId) {
        if let Some(it) = self.0.get_mut(file) {
            it.holder = Some(session);
        }
    }

    /// `session` has changed it. Whether it goes on writing through: not if nobody has looked since
    /// it did so last.
    fn changed(&mut self, file: &FileId, session: SessionId) -> bool {
        let Some(it) = self.0.get_mut(file).filter(|it| it.holder == Some(session)) else { return false };
        let goes_on = std::mem::take(&mut it.since_change);
        if !goes_on {
            self.0.remove(file);
        }
        goes_on
    }

    /// `session` writes this file through no more, if it did.
    pub fn end(&mut self, file: &FileId, session: SessionId) -> bool {
        let ends = self.is_by(file, session);
        if ends {
            self.0.remove(file);
        }
        ends
    }

    /// The file is no more.
    pub fn died(&mut self, file: &FileId) {
        self.0.remove(file);
    }

    /// `session` writes nothing through any more: it is over, or goes on over a new connection.
    pub fn end_session(&mut self, session: SessionId) {
        self.0.retain(|_, it| it.holder != Some(session));
    }

    /// A leader that is new asks whoever holds.
    pub fn end_all(&mut self) {
        self.0.retain(|_, it| it.holder.is_none());
    }

    /// Who writes which files through.
    pub fn holders(&self) -> impl Iterator<Item = (&FileId, SessionId)> {
        self.0.iter().filter_map(|(file, it)| Some((file, it.holder?)))
    }
}

impl Transaction<'_> {
    /// The content of `file` was reported: this version.
    pub fn looked_at(&mut self, file: &FileId, version: u64) {
        self.state.through.told(self.now, file, version);
    }

    /// Whether what the server has of this field is what `holder` has of it, so that nobody need
    /// ask.
    pub fn is_written_through(&self, file: &FileId, field: &Field, holder: SessionId) -> bool {
        *field == Field::Content && self.state.through.is_by(file, holder)
    }

    /// What asks a holder to flush: and to write through, where that is worth it.
    pub fn flush(&self, number: u64, file: FileId, field: Field) -> ToClient {
        let steady = field == Field::Content && self.state.through.is_steady(self.now, &file);
        if steady { ToClient::FlushThrough { number, file } } else { ToClient::Flush { number, file, field } }
    }

    /// A client writes through from here on.
    pub fn on_flushed_through(&mut self, session: SessionId, number: u64, file: &FileId) {
        if self.files.holdings(file).covers(session, &Field::Content, Kind::Write) {
            self.state.through.begin(file, session);
        }
        self.state.pending.flushed(session, number);
    }

    /// What a client wrote through is here. It is asked for next, so it is made durable before
    /// anybody is told of it.
    pub fn on_wrote(&mut self, session: SessionId, file: FileId) {
        let goes_on = self.state.through.changed(&file, session);
        self.heard(session, file, goes_on);
        self.out.push(Output::Sync);
    }

    /// `session` wants to write this file as it likes.
    pub fn end_through(&mut self, session: SessionId, file: &FileId) {
        if self.state.through.end(file, session) {
            self.heard(session, file.clone(), false);
        }
    }

    fn heard(&mut self, session: SessionId, file: FileId, goes_on: bool) {
        if let Some(known) = self.state.sessions.all.get(&session) {
            let through = known.next_entry - 1;
            self.send(session, ToClient::Heard { file, through, goes_on });
        }
    }
}
