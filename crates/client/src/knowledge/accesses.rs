//! Access times of files that ping-pong between machines.
//!
//! With each access in the log, a reader would have one more entry to log before it could release.
//! So the client logs nothing while the file may leave this machine at once. This machine shows the
//! new time. The server receives it a little later, if it still counts then.

use ident::FileId;
use lease::Time;
use namespace::{Attributes, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The client reports an access this much later, ms. A file that ping-pongs is on another machine
/// by then.
pub(crate) const AFTER_MS: u64 = 1_000;
/// The number of accesses for which leases are requested at once.
const AT_ONCE: usize = 16;
/// The number of accesses that are remembered. The server never receives any beyond these.
const ACCESSES_MAX: usize = 10_000;

/// The accesses that the server has not received yet.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    pub by_file: FxHashMap<FileId, Access>,
    /// In order of arrival.
    unsaid: VecDeque<(Time, FileId)>,
    /// The accesses for which leases are requested.
    pub asking: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub time: Timestamp,
    /// The file's change time at the access. If another machine sets the times later, its times
    /// stand.
    pub ctime: Timestamp,
}

impl Accesses {
    /// The access time to show of a file with these attributes.
    pub fn shown(&self, file: &FileId, attributes: &Attributes) -> Timestamp {
        let of = self.by_file.get(file).filter(|access| access.ctime == attributes.ctime);
        of.map_or(attributes.atime, |access| access.time.max(attributes.atime))
    }

    /// Notes that `file` was read at `time`.
    pub fn note(&mut self, now: Time, file: &FileId, time: Timestamp, ctime: Timestamp) {
        let is_said = self.by_file.contains_key(file);
        if is_said || self.by_file.len() < ACCESSES_MAX {
            self.by_file.insert(file.clone(), Access { time, ctime });
        }
        if !is_said && self.by_file.contains_key(file) {
            self.unsaid.push_back((now, file.clone()));
        }
    }

    /// When the first unreported access is due.
    pub fn deadline(&self) -> Option<Time> {
        let first = self.unsaid.front().filter(|_| self.asking < AT_ONCE);
        first.map(|(since, _)| since.after_ms(AFTER_MS))
    }

    /// The next file whose access is due, which is reported now.
    pub fn next_due(&mut self, now: Time) -> Option<FileId> {
        self.deadline().filter(|due| now >= *due)?;
        self.unsaid.pop_front().map(|(_, file)| file)
    }

    /// Forgets all accesses at the end of a session.
    pub fn forget(&mut self) {
        *self = Accesses::default();
    }
}
