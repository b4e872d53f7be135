//! Reserves that a server gives this client for use without a request: inode numbers and space.

use super::ServerSession;
use crate::Output;
use lease::Time;
use wire::{Space, ToServer};

/// Bytes that a session requests at a time: enough for a few seconds of writing.
const ALLOWANCE_BYTES: u64 = 256 << 20;
/// Fewer bytes than this are not worth another request.
const ALLOWANCE_BYTES_MIN: u64 = 64 << 10;
/// Files that a session requests at a time.
const ALLOWANCE_FILES: u64 = 20_000;
/// Inode numbers that are left when more are requested.
const INODES_LOW: u64 = 1024;

/// The rest of the allowance: bytes and files that the server has reserved for this session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    pub bytes: u64,
    pub files: u64,
    /// The request for more that is under way.
    pub asking: Option<AllowanceRequest>,
}

/// A request for more allowance. A request for nothing asks how much space there is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllowanceRequest {
    /// The bytes that are needed at least.
    pub bytes: u64,
    /// The files that are needed at least.
    pub files: u64,
    /// The bytes that are missing to replace content.
    pub lacks: u64,
}

impl Allowance {
    /// Uses up these bytes and files, if there are so many. Returns whether there are.
    pub fn charge(&mut self, bytes: u64, files: u64) -> bool {
        let fits = self.bytes >= bytes && self.files >= files;
        if fits {
            self.bytes -= bytes;
            self.files -= files;
        }
        fits
    }

    /// Adds what the server grants, or the charge of an operation that was not done.
    pub fn add(&mut self, bytes: u64, files: u64) {
        self.bytes += bytes;
        self.files += files;
    }

    /// Whether the allowance has grown since it was `had`, so that a call that wants so many bytes
    /// and files may get them with further requests.
    pub fn comes_closer(&self, had: &Allowance, bytes: u64, files: u64) -> bool {
        let brings =
            |have: u64, had: u64, wants: u64, worth: u64| have >= wants || have.saturating_sub(had) >= worth;
        brings(self.bytes, had.bytes, bytes, ALLOWANCE_BYTES_MIN) && brings(self.files, had.files, files, 1)
    }
}

impl ServerSession {
    /// Whether space is so short that freed space matters.
    pub fn is_short_of_space(&self) -> bool {
        self.space.free < ALLOWANCE_BYTES
    }

    /// Learns how much space there is.
    pub fn learn_space(&mut self, now: Time, space: Space) {
        (self.space, self.space_told) = (space, now);
    }

    /// Requests more allowance. `dirty_bytes` is the number of bytes that are not published yet.
    pub fn ask_allowance(&mut self, request: AllowanceRequest, dirty_bytes: u64, out: &mut Vec<Output>) {
        if self.allowance.asking.is_some() {
            return;
        }
        self.allowance.asking = Some(request);
        // The server is to count deletions and publications first.
        self.send_log_first(out);
        let (log_bytes, log_files) = self.log.charged();
        let held = (
            self.allowance.bytes + self.promised.bytes() + dirty_bytes + log_bytes,
            self.allowance.files + log_files,
        );
        let AllowanceRequest { bytes, files, lacks } = request;
        let more = match (bytes, files) {
            (0, 0) => (0, 0),
            _ => (bytes.max(ALLOWANCE_BYTES), files.max(ALLOWANCE_FILES)),
        };
        let want = (held.0 + more.0, held.1 + more.1);
        self.send(ToServer::Allow { held, want, replaces: lacks }, out);
    }

    /// Requests more inode numbers.
    pub fn reserve_inodes(&mut self, out: &mut Vec<Output>) {
        if !self.inodes.is_reserving {
            self.inodes.is_reserving = true;
            self.send(ToServer::ReserveInodes { known: self.inodes.end() }, out);
        }
    }

    /// Requests more of what is low, before a call has to wait for it.
    pub fn refill(&mut self, dirty_bytes: u64, out: &mut Vec<Output>) {
        if self.rights.read_only {
            return;
        }
        if !self.inodes.has_next() && self.inodes.left() < INODES_LOW {
            self.reserve_inodes(out);
        }
        let low = self.allowance.bytes < ALLOWANCE_BYTES / 4 || self.allowance.files < ALLOWANCE_FILES / 4;
        // Near the end no more comes. Then each call makes its own request, instead of every input
        // in vain.
        if low && self.space.free > ALLOWANCE_BYTES {
            let request = AllowanceRequest { bytes: ALLOWANCE_BYTES, files: ALLOWANCE_FILES, lacks: 0 };
            self.ask_allowance(request, dirty_bytes, out);
        }
    }
}
