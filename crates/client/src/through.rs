//! Content that is written through (`wire::LogEntry::FlushedThrough`): of a small file each change of which another machine looks at, so that who looks waits for the server alone.
//!
//! As long as a file is written through, what the server has heard of its content is what there is. So a change is sent at once, its caller is answered when the server has heard of it, and nobody here sees it before: who looks
//! elsewhere may still be told what was before. All other changes take the lease as it is otherwise, which ends it; so does a handle that reads, since what the kernel has in its pages it shows to whoever reads them, also while
//! a write is under way, and a program changes what it has mapped without a word.

use crate::client::Client;
use crate::file_io::Write;
use crate::known::KnownContent;
use crate::waiting::{Need, Stop, Waiting};
use crate::{Now, Output, Reply};
use content::LAZY_BYTES_MAX;
use ident::FileId;
use lease::{Field, Kind, Lease, Mode};
use namespace::INLINE_BYTES_MAX;
use wire::LogEntry;

/// When a change of a file's content counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writes {
    /// When it is made: the server asks for it.
    #[default]
    Back,
    /// When the server has heard of it: it asks nobody.
    Through,
    /// One is on its way there.
    Unheard,
}

impl Writes {
    /// Whether a lease on the content is good for `kind` in the usual way.
    pub fn leave(self, kind: Kind) -> bool {
        match self {
            Writes::Back => true,
            Writes::Through => kind == Kind::Read,
            Writes::Unheard => false,
        }
    }
}

impl Client {
    /// Whether all of `file` that counts is at the server, and no program here can change it, or see it change, but by calls.
    pub(crate) fn may_write_through(&self, file: &FileId) -> bool {
        let Some(known) = self.files.get(file) else { return false };
        let is_at_rest = match &known.content {
            KnownContent::Open(content) => content.is_settled() && !content.is_dirty(),
            KnownContent::Head(..) => true,
            KnownContent::Unknown => false,
        };
        let is_small = known.content.head().is_some_and(|head| head.size <= INLINE_BYTES_MAX as u64);
        let is_held = known.held.covers(&Field::Content, Kind::Write);
        is_at_rest && is_small && is_held && !known.own().has_mode(Mode::AccessRead)
    }

    /// Whether this is to be written through.
    pub(crate) fn goes_through(&self, file: &FileId, write: &Write) -> bool {
        let Some(known) = self.files.get(file).filter(|known| known.writes == Writes::Through) else {
            return false;
        };
        let end = |size: u64| write.end(size).map(|end| end.max(size));
        let end = known.content.head().and_then(|head| end(head.size));
        end.is_some_and(|end| end <= INLINE_BYTES_MAX as u64) && self.may_write_through(file)
    }

    /// Writes, and waits until the server has heard of it.
    pub(crate) fn write_through(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        file: &FileId,
        write: Write,
        out: &mut Vec<Output>,
    ) -> Result<Reply, Stop> {
        self.set_writes(file, Writes::Back);
        let written = self.write_back(now, waiting, file, write, out);
        let Ok(Reply::Written(bytes)) = written else {
            self.set_writes(file, Writes::Through);
            return written;
        };
        self.publish(now, file, LAZY_BYTES_MAX, out);
        let sequence = self.log.push(LogEntry::Wrote { file: file.clone() }, 16);
        self.set_writes(file, Writes::Unheard);
        self.unheard.push_back((sequence, file.clone()));
        waiting.written = Some(bytes);
        self.send_log_first(out);
        Err(Stop::Need(Need::Heard(sequence)))
    }

    /// The server has heard of what was written through up to this entry.
    pub(crate) fn on_heard(&mut self, file: &FileId, through: u64, goes_on: bool) {
        while self.unheard.front().is_some_and(|(sequence, _)| *sequence <= through) {
            let Some((_, heard)) = self.unheard.pop_front() else { break };
            if let Some(known) = self.files.get_mut(&heard).filter(|known| known.writes == Writes::Unheard) {
                known.writes = Writes::Through;
            }
        }
        if !goes_on {
            self.set_writes(file, Writes::Back);
        }
    }

    /// Over a new connection the server asks again, for whatever is written.
    pub(crate) fn write_all_back(&mut self) {
        self.unheard.clear();
        self.files.0.values_mut().for_each(|known| known.writes = Writes::Back);
    }

    /// Whether the server has heard of this entry, of what was written through.
    pub(crate) fn is_heard(&self, sequence: u64) -> bool {
        self.unheard.front().is_none_or(|(first, _)| *first > sequence)
    }

    /// The entry that has to be heard of before there is an answer about what these leases are on.
    pub(crate) fn unheard_of(&self, wants: &[Lease]) -> Option<u64> {
        let of = |file: &FileId| {
            wants.iter().any(|want| want.field == Field::Content && want.file == *file)
                && self.files.get(file).is_some_and(|known| known.writes == Writes::Unheard)
        };
        self.unheard.iter().find(|(_, file)| of(file)).map(|(sequence, _)| *sequence)
    }

    pub(crate) fn set_writes(&mut self, file: &FileId, writes: Writes) {
        if let Some(known) = self.files.get_mut(file) {
            known.writes = writes;
        }
    }
}
