//! Counts the operations that a front door is asked for, by kind, and the time that their answers
//! take.
//!
//! Nothing is counted until a reader asks. Directories are counted only while a reader watches: for
//! ten seconds after each look.

use crate::busiest::Busiest;
use ident::FileId;
use metrics::Histogram;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long directories are counted after a look at them.
const WATCHES: Duration = Duration::from_secs(10);
/// Directories that are counted apart.
const DIRECTORIES: usize = 64;
/// Directories that are reported.
const TOLD: usize = 16;

macro_rules! kinds {
    ($($kind:ident $name:literal),* $(,)?) => {
        /// A kind of operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Kind { $($kind),* }

        impl Kind {
            /// All kinds, in their order.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// The operation's usual name.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),* }
            }
        }
    };
}

kinds! {
    Lookup "lookup", Stat "stat", SetAttributes "setattr", ReadLink "readlink", Symlink "symlink", MakeNode "mknod",
    MakeDirectory "mkdir", Unlink "unlink", RemoveDirectory "rmdir", Rename "rename", Link "link", Create "create",
    Open "open", Read "read", Write "write", Flush "flush", Release "release", Sync "fsync", Space "statfs",
    OpenDirectory "opendir", ReadDirectory "readdir", ReleaseDirectory "releasedir", GetXattr "getxattr",
    SetXattr "setxattr", ListXattr "listxattr", RemoveXattr "removexattr", Access "access", GetLock "getlk",
    SetLock "setlk", Allocate "fallocate", Seek "lseek", Other "other",
}

const KINDS: usize = Kind::ALL.len();

/// The counts of one front door.
#[derive(Debug)]
pub struct Activity {
    door: &'static str,
    began: Instant,
    /// Operations are counted until then, ms since `began`; 0 if no reader has asked.
    counts_until: AtomicU64,
    /// Directories are counted until then, ms since `began`.
    watched_until: AtomicU64,
    kinds: [Tally; KINDS],
    histograms: OnceLock<[Histogram; KINDS]>,
    directories: Mutex<Busiest<FileId>>,
}

#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    nanos: AtomicU64,
}

/// An operation that is not answered yet. Dropping it ends the operation.
#[derive(Debug)]
pub struct Underway {
    activity: Arc<Activity>,
    kind: Kind,
    began: Instant,
}

/// The counts of a front door at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivityReport {
    /// When it was made, seconds since the front door's start.
    pub at_s: f64,
    /// Operations that were answered while they were counted, by kind.
    pub operations: Vec<OperationReport>,
    /// The busiest directories since a reader began to watch, and their operations.
    pub directories: Vec<(String, u64)>,
}

/// Operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The operation's usual name.
    pub kind: String,
    /// The front door's name.
    pub door: String,
    /// How many were answered.
    pub count: u64,
    /// Seconds that all these answers took together.
    pub seconds: f64,
}

// Relaxed: counts order nothing.
impl Activity {
    /// Counts of the front door named `door`. Nothing is counted yet.
    pub fn new(door: &'static str) -> Activity {
        Activity {
            door,
            began: Instant::now(),
            counts_until: AtomicU64::new(0),
            watched_until: AtomicU64::new(0),
            kinds: from_fn(|_| Tally::default()),
            histograms: OnceLock::new(),
            directories: Mutex::new(Busiest::new(DIRECTORIES)),
        }
    }

    /// Counts all operations from now on. `histogram` gives the histogram for a kind and door, in
    /// which the time of each operation is recorded.
    pub fn measure(&self, histogram: impl Fn(Kind, &'static str) -> Histogram) {
        let _ = self.histograms.set(from_fn(|at| histogram(Kind::ALL[at], self.door)));
        self.counts_until.store(u64::MAX, Relaxed);
    }

    /// Counts operations and directories for ten seconds from now on.
    pub fn watch(&self) {
        let now = self.ms(Instant::now());
        let until = now.saturating_add(WATCHES.as_millis() as u64);
        if self.watched_until.swap(until, Relaxed) < now {
            self.directories.lock().clear();
        }
        self.counts_until.fetch_max(until, Relaxed);
    }

    /// Begins an operation on `directory`, or on something in it. Nothing while operations are not
    /// counted.
    pub fn begin(
        self: &Arc<Self>,
        kind: Kind,
        directory: impl FnOnce() -> Option<FileId>,
    ) -> Option<Underway> {
        let until = self.counts_until.load(Relaxed);
        // No reader asks, so no clock is read.
        if until == 0 {
            return None;
        }
        let began = Instant::now();
        let now = self.ms(began);
        if now > until {
            let _ = self.counts_until.compare_exchange(until, 0, Relaxed, Relaxed);
            return None;
        }
        if now <= self.watched_until.load(Relaxed)
            && let Some(directory) = directory()
            // A sample is enough: no operation waits to be counted.
            && let Some(mut directories) = self.directories.try_lock()
        {
            directories.count(directory);
        }
        Some(Underway { activity: Arc::clone(self), kind, began })
    }

    /// The counts as of now. `path` says where a directory is.
    pub fn report(&self, path: impl Fn(&FileId) -> String) -> ActivityReport {
        let at_s = self.began.elapsed().as_secs_f64();
        let busiest = self.directories.lock().top(TOLD);
        let operations = Kind::ALL.iter().zip(&self.kinds).map(|(kind, tally)| OperationReport {
            kind: kind.name().to_owned(),
            door: self.door.to_owned(),
            count: tally.count.load(Relaxed),
            seconds: Duration::from_nanos(tally.nanos.load(Relaxed)).as_secs_f64(),
        });
        ActivityReport {
            at_s,
            operations: operations.collect(),
            directories: busiest.into_iter().map(|(dir, count)| (path(&dir), count)).collect(),
        }
    }

    fn ms(&self, at: Instant) -> u64 {
        // Never 0, which means that no reader asks.
        at.duration_since(self.began).as_millis() as u64 + 1
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let at = self.kind as usize;
        if let Some(tally) = self.activity.kinds.get(at) {
            tally.count.fetch_add(1, Relaxed);
            tally.nanos.fetch_add(took.as_nanos() as u64, Relaxed);
        }
        if let Some(histogram) = self.activity.histograms.get().and_then(|of| of.get(at)) {
            histogram.record(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(activity: &Activity, kind: Kind) -> u64 {
        activity.report(FileId::to_string).operations[kind as usize].count
    }

    #[test]
    fn nothing_is_counted_until_somebody_asks() {
        let activity = Arc::new(Activity::new("fuse"));
        assert!(activity.begin(Kind::Open, || panic!("asked for a directory")).is_none());
        activity.measure(|_, _| Histogram::noop());
        drop(activity.begin(Kind::Open, || panic!("asked for a directory")));
        assert_eq!((count(&activity, Kind::Open), count(&activity, Kind::Read)), (1, 0));
        assert!(activity.report(FileId::to_string).directories.is_empty());
    }

    #[test]
    fn an_operation_counts_when_it_ends_and_its_directory_when_it_begins() {
        let activity = Arc::new(Activity::new("fuse"));
        activity.watch();
        let dir = FileId::root().child(7);
        let underway = activity.begin(Kind::Create, || Some(dir.clone()));
        assert_eq!(count(&activity, Kind::Create), 0);
        assert_eq!(activity.report(|_| "/d".to_owned()).directories, [("/d".to_owned(), 1)]);
        drop(underway);
        let report = activity.report(FileId::to_string);
        let created = &report.operations[Kind::Create as usize];
        assert_eq!((&*created.kind, &*created.door, created.count), ("create", "fuse", 1));
        assert!(created.seconds > 0.0 && created.seconds < report.at_s + 1.0);
    }

    #[test]
    fn counting_ends_when_nobody_has_looked_for_a_while() {
        let activity = Arc::new(Activity::new("fuse"));
        activity.watch();
        activity.counts_until.store(1, Relaxed);
        std::thread::sleep(Duration::from_millis(3));
        assert!(activity.begin(Kind::Open, || None).is_none());
        assert_eq!(activity.counts_until.load(Relaxed), 0);
    }
}
