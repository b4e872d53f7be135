//! What the servers have set aside for this client to use without asking: integers of directories, inode numbers, space.

use crate::client::Client;
use crate::waiting::{Need, Stop, Waiting};
use crate::{Output, Reply};
use ident::FileId;
use wire::ToServer;

/// What a session asks for at a time: enough for a few seconds of writing.
const ALLOWANCE_BYTES: u64 = 256 << 20;
/// Files likewise.
const ALLOWANCE_FILES: u64 = 20_000;

impl Client {
    /// The next integer of `dir`, not used up yet.
    pub(crate) fn integer(&self, dir: &FileId) -> Option<u64> {
        self.files.get(dir)?.children.as_ref()?.next_integer()
    }

    /// Uses up an integer of `dir`, and asks for more in time.
    pub(crate) fn take_integer(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        let Some(children) = self.files.get_mut(dir).and_then(|known| known.children.as_mut()) else {
            return;
        };
        children.take_integer();
        if children.integers_low() {
            self.reserve(dir, out);
        }
    }

    pub(crate) fn reserve(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        let Some(children) = self.files.get_mut(dir).and_then(|known| known.children.as_mut()) else {
            return;
        };
        if !children.reserving {
            children.reserving = true;
            // The right to reserve may be the birthright of a create that the server does not know yet.
            self.send_log_first(out);
            self.request_integers(dir, out);
        }
    }

    /// The next inode number, not used up yet.
    pub(crate) fn inode(&self) -> Result<u64, Stop> {
        if self.inodes.0 < self.inodes.1 { Ok(self.inodes.0) } else { Err(Stop::Need(Need::Inodes)) }
    }

    pub(crate) fn take_inode(&mut self) {
        self.inodes.0 += 1;
        if self.inodes.0 >= self.inodes.1 {
            self.inodes = std::mem::take(&mut self.inodes_next);
        }
    }

    pub(crate) fn reserve_inodes(&mut self, out: &mut Vec<Output>) {
        if !self.reserving_inodes {
            self.reserving_inodes = true;
            self.send(ToServer::ReserveInodes { known: self.inodes_known }, out);
        }
    }

    /// Uses up space, if what was set aside has it; what a call has accepted fits.
    pub(crate) fn charge(&mut self, waiting: &Waiting, bytes: u64, files: u64) -> Result<(), Stop> {
        if self.allowance.bytes >= bytes && self.allowance.files >= files {
            self.allowance.bytes -= bytes;
            self.allowance.files -= files;
            return Ok(());
        }
        if waiting.asked_allowance && self.allowance.asking.is_none() {
            return Err(Stop::Error(namespace::Error::NoSpace));
        }
        Err(Stop::Need(Need::Allowance { bytes, files }))
    }

    /// Gives back what was charged for something that did not come about.
    pub(crate) fn give_back(&mut self, bytes: u64, files: u64) {
        self.allowance.bytes += bytes;
        self.allowance.files += files;
    }

    pub(crate) fn ask_allowance(&mut self, bytes: u64, files: u64, out: &mut Vec<Output>) {
        if self.allowance.asking.is_some() {
            return;
        }
        self.allowance.asking = Some((bytes, files));
        let (log_bytes, log_files) = self.log.charged();
        let held = (
            self.allowance.bytes + self.publishing.dirty_bytes() as u64 + log_bytes,
            self.allowance.files + log_files,
        );
        let want = (held.0 + bytes.max(ALLOWANCE_BYTES), held.1 + files.max(ALLOWANCE_FILES));
        self.send(ToServer::Allow { held, want }, out);
    }

    /// Asks for whatever is low before somebody has to wait for it.
    pub(crate) fn refill(&mut self, out: &mut Vec<Output>) {
        if self.rights.read_only {
            return;
        }
        if self.inodes_next.0 >= self.inodes_next.1 && self.inodes.1.saturating_sub(self.inodes.0) < 1024 {
            self.reserve_inodes(out);
        }
        let low = self.allowance.bytes < ALLOWANCE_BYTES / 4 || self.allowance.files < ALLOWANCE_FILES / 4;
        // Near the end what was asked for does not come; then each call asks for itself instead of all inputs in vain.
        if low && self.space.free > ALLOWANCE_BYTES {
            self.ask_allowance(0, 0, out);
        }
    }

    pub(crate) fn space(&self) -> Reply {
        let unused = self.allowance.bytes;
        Reply::Space { total: self.space.total, free: self.space.free + unused, files: self.space.files }
    }
}
