//! How the server asks the holder of a value for it: by a flush, or by write-through where that is
//! worth it.

use crate::io::Output;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Kind, SessionId};
use wire::ToClient;

impl Transaction<'_> {
    /// Notes that this version of the content of `file` was reported.
    pub fn looked_at(&mut self, file: &FileId, version: u64) {
        self.state.region.write_through.told(self.now, file, version);
    }

    /// Whether the server's value of this field is the same as the value of `holder`, so that no
    /// flush is needed.
    pub fn is_written_through(&self, file: &FileId, field: &Field, holder: SessionId) -> bool {
        *field == Field::Content && self.state.region.write_through.is_by(file, holder)
    }

    /// The message that asks a holder to flush, and to write through where that is worth it.
    pub fn flush(&self, number: u64, file: FileId, field: Field) -> ToClient {
        let steady = field == Field::Content && self.state.region.write_through.is_steady(self.now, &file);
        if steady { ToClient::WriteThrough { number, file } } else { ToClient::Flush { number, file, field } }
    }

    /// Takes in that a client writes through from here on.
    pub fn on_flushed_through(&mut self, session: SessionId, number: u64, file: &FileId) {
        if self.files.holdings(file).covers(session, &Field::Content, Kind::Write) {
            self.state.region.write_through.begin(file, session);
        }
        self.state.region.pending.flushed(session, number);
    }

    /// Takes in a client's write-through change. The next report asks for it, so it is made durable
    /// before any client learns of it.
    pub fn on_wrote(&mut self, session: SessionId, file: FileId) {
        let goes_on = self.state.region.write_through.changed(&file, session);
        self.heard(session, file, goes_on);
        self.out.push(Output::Sync);
    }

    /// Ends write-through of this file by `session`, which wants to write it as it likes.
    pub fn end_write_through(&mut self, session: SessionId, file: &FileId) {
        if self.state.region.write_through.end(file, session) {
            self.heard(session, file.clone(), false);
        }
    }

    fn heard(&mut self, session: SessionId, file: FileId, goes_on: bool) {
        if let Some(known) = self.state.server.sessions.all.get(&session) {
            let up_to = known.next_entry - 1;
            self.send(session, ToClient::Heard { file, up_to, goes_on });
        }
    }
}
