//! Handles: opening, the deletion disposition and closing. With them go this client's own values of
//! a file's black boxes (BlackBox §4.3, §4.4).

use super::file_io::want_content;
use super::{Caller, Need, Stop, Waiting};
use crate::client::Client;
use crate::knowledge::{KnownFile, Writes};
use crate::{Now, Output, Reply, call};
use ident::FileId;
use lease::{Field, Kind, Lease, Mode, OpenModes, Released, Time};
use namespace::{Cred, Entry, Error, Knowledge, Known, Link, Operation, operation};

impl Client {
    /// This client's own values of the black boxes of `file`.
    pub fn own(&self, file: &FileId) -> OpenModes {
        self.files.get(file).map_or(OpenModes::CLOSED, KnownFile::own)
    }

    /// Whether a program here may have the file mapped to write to. Such a mapping needs a handle
    /// that reads, too.
    pub(crate) fn may_be_mapped(&self, file: &FileId) -> bool {
        let own = self.own(file);
        own.has_mode(Mode::AccessWrite) && own.has_mode(Mode::AccessRead)
    }

    /// The aggregate of the others' values of a black box, if this client knows it. For tests and
    /// tools.
    pub fn others(&self, file: &FileId, field: &Field) -> Option<bool> {
        match self.files.others(file, field) {
            Known::Used(value) => Some(value),
            Known::Unused | Known::Unknown => None,
        }
    }

    pub(crate) fn open(
        &mut self,
        now: Now,
        cred: Cred,
        call::OpenFile { file, open, mask }: call::OpenFile,
    ) -> Result<Reply, Stop> {
        self.used(&file);
        let own = self.own(&file);
        // Through a handle that reads, the kernel shows its pages. These may already have a
        // write-through change that does not count yet.
        let is_back = self.files.get(&file).is_none_or(|known| known.writes == Writes::WriteBack);
        if open.has_mode(Mode::AccessRead) && !is_back {
            return Err(want_content(&file, Kind::Write));
        }
        self.decide(now, operation::Open { file: file.clone(), mask, open, own, cred }.into())?;
        if let Some(known) = self.files.get_mut(&file) {
            known.add_handle(open);
        }
        // A program must not write through a mapping to pages that were read earlier, unless this
        // client holds the write lease.
        let known = self.files.get(&file);
        let keep_pages = !self.may_be_mapped(&file)
            || known.is_some_and(|known| known.covers(&Field::Content, Kind::Write));
        Ok(Reply::Opened { keep_pages, uncached: self.passes(now, &file) })
    }

    /// Opens a handle on a file that the server has just made for this client.
    pub(crate) fn open_shipped(&mut self, now: Now, entry: Entry, open: OpenModes) -> Result<Reply, Stop> {
        let file = entry.file.clone();
        let stat = self.stat(now, &file)?;
        // The creator of a file may use its handle as requested, whatever the permissions of the
        // new file.
        let cred = self.rights().cred(&Cred::default());
        self.open(now, cred, call::OpenFile { file, open, mask: 0 })?;
        Ok(Reply::Node(entry, stat))
    }

    pub(crate) fn set_disposition(
        &mut self,
        now: Now,
        cred: Cred,
        file: FileId,
        link: Option<Link>,
    ) -> Result<Reply, Stop> {
        self.require_quiet()?;
        self.used(&file);
        let own = self.own(&file);
        self.decide(now, operation::SetDisposition { file, link, own, cred, time: now.wall }.into())?;
        Ok(Reply::Nothing)
    }

    /// Closes a handle. If a value becomes false by that, `SelfWrite` is needed. Other clients
    /// close their handles without any message to this one (BlackBox §4.3).
    pub(crate) fn close_handle(
        &mut self,
        now: Now,
        waiting: &Waiting,
        file: &FileId,
        open: OpenModes,
        out: &mut Vec<Output>,
    ) -> Result<Reply, Stop> {
        if self.close_lost(file, open) {
            return Ok(Reply::Nothing);
        }
        if waiting.caller == Caller::FrontDoor
            && self.files.get(file).is_some_and(|known| known.ends(open).has(&Field::Handles))
        {
            self.linger_if_left(now, file);
        }
        let Some(known) = self.files.get(file) else { return Ok(Reply::Nothing) };
        if known.handles.is_none() {
            return Ok(Reply::Nothing);
        }
        let ends = known.ends(open);
        let last = ends.has(&Field::Handles);
        let mut hand_over = false;
        if !known.gone {
            let missing = ends.fields().filter(|field| !known.held.covers(field, Kind::Touch));
            let wants: Vec<Lease> =
                missing.map(|field| Lease::new(file.clone(), field, Kind::Touch)).collect();
            if !wants.is_empty() {
                let operation = Operation::Access(operation::Access {
                    file: file.clone(),
                    mask: 0,
                    cred: Cred::default(),
                });
                return Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants }));
            }
            hand_over = last && self.dispose_at_last_close(now, waiting, file)?;
        }
        let is_urgent = hand_over && self.may_lose_name(file);
        let Some(known) = self.files.get_mut(file) else { return Ok(Reply::Nothing) };
        known.remove_handle(open);
        if last && known.buried {
            self.files.all.remove(file);
        } else if last {
            self.shut(file, out);
        }
        if hand_over {
            let keep = self.files.holds(file, &Field::Handles, Kind::Read).then_some(Kind::Read);
            let released = Released { file: file.clone(), field: Field::Handles, keep };
            let server = self.server_of(file);
            self.release(now, server, vec![released]);
            if is_urgent {
                // The name goes with the handle. Nobody is to find the name until the log is due.
                self.servers.get_mut(server).log.age_from(Time(0));
            }
        }
        Ok(Reply::Nothing)
    }

    /// Deletes the file if its last handle goes and its deletion is pending.
    ///
    /// Returns whether the server has to do that. The server learns which client's handle is really
    /// the last.
    fn dispose_at_last_close(&mut self, now: Now, waiting: &Waiting, file: &FileId) -> Result<bool, Stop> {
        let attributes = self.files.attributes(file, Kind::Read);
        let is_named = matches!(attributes, Known::Used(attributes) if attributes.links > 0);
        let disposition = self.files.disposition(file, Kind::Read);
        if is_named && matches!(disposition, Known::Used(None)) {
            return Ok(false);
        }
        if self.rights().read_only {
            return Ok(true);
        }
        let deletes = matches!(disposition, Known::Used(Some(_))) && self.may_lose_name(file);
        if deletes {
            self.require_quiet()?;
        }
        match self.decide(now, operation::Dispose { file: file.clone(), time: now.wall }.into()) {
            // Other clients have it open, or no deletion is pending after all.
            Ok(_) | Err(Stop::Error(Error::Invalid)) => Ok(false),
            // A program that deletes by closing must not find the name afterwards. For that the
            // client requests the leases once.
            Err(Stop::Need(need)) if deletes && !waiting.keeps_losing() => Err(Stop::Need(need)),
            Err(_) => Ok(true),
        }
    }

    /// Whether a name may go with the last handle on the file: its deletion may be pending, and it
    /// may have a name.
    fn may_lose_name(&self, file: &FileId) -> bool {
        let attributes = self.files.attributes(file, Kind::Read);
        let disposition = self.files.disposition(file, Kind::Read);
        !matches!(attributes, Known::Used(attributes) if attributes.links == 0)
            && !matches!(disposition, Known::Used(None))
    }
}
