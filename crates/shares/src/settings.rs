//! The settings of a share server.

use std::{fmt, sync::Arc, time::Duration};

use namespace::ShareId;

use crate::{
    content::Location,
    rows::LeaseRow,
    share::{Clock, Seconds},
};

/// A callback that gets a share. Any thread may call it, so it must not block.
pub type Tell = Arc<dyn Fn(ShareId) + Send + Sync>;

/// The limits on the machine's time for the background processes, and the intervals of their
/// passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Leases that the expirer examines in a second.
    pub leases_per_second: u32,
    /// Shares that the reaper deletes in a second.
    pub deletions_per_second: u32,
    /// Shares that discovery examines in a second.
    pub shares_per_second: u32,
    /// Bytes that the scrub reads in a second.
    pub scrub_bytes_per_second: u32,
    /// The time from the end of an expirer pass to the next.
    pub expire_every: Duration,
    /// The time from the end of a scrub to the next.
    pub scrub_every: Duration,
}

impl Default for Pace {
    /// The default takes a few percent of a small machine.
    fn default() -> Pace {
        Pace {
            leases_per_second: 20_000,
            deletions_per_second: 10_000,
            shares_per_second: 10_000,
            scrub_bytes_per_second: 16 << 20,
            expire_every: Duration::from_secs(12 * 3600),
            scrub_every: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// When leases of accounts that are not the cluster's own expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At their recorded end.
    Age,
    /// This many seconds after their last renewal, whatever their recorded end.
    Override(Seconds),
    /// When their last renewal is older than this time, whatever their recorded end.
    CutOff(Seconds),
}

impl Expiry {
    /// Whether `lease` is over.
    pub(crate) fn is_over(self, lease: &LeaseRow, now: i64) -> bool {
        let signed = |seconds| i64::try_from(seconds).unwrap_or(i64::MAX);
        match self {
            Expiry::Age => lease.expires_at.is_some_and(|end| end <= now),
            Expiry::Override(seconds) => lease.renewed_at.saturating_add(signed(seconds)) <= now,
            Expiry::CutOff(time) => lease.renewed_at < signed(time),
        }
    }
}

/// The settings of a share server.
#[derive(Clone)]
pub struct ShareServerSettings {
    /// The wall clock.
    pub clock: Clock,
    /// The place of the share files, for a directory that has none yet. `None`: the directory
    /// itself, or its recorded place.
    pub content: Option<Location>,
    /// The time that a share stays after its last lease, unless it is released for
    /// [`crate::Deletion::AtOnce`].
    pub grace: Duration,
    /// The most files kept open for reading.
    pub open_files_max: usize,
    /// When leases of accounts that are not the cluster's own expire; `None`: never by themselves.
    pub expiry: Option<Expiry>,
    /// The pace of the background processes.
    pub pace: Pace,
    /// Called with a share each time a reader or the scrub finds it damaged or missing. A machine
    /// that has its bytes from elsewhere may store it anew.
    pub on_damage: Tell,
}

impl ShareServerSettings {
    /// The default settings: a day of grace, 256 files, and no lease of a stranger expires.
    pub fn new(clock: Clock) -> ShareServerSettings {
        let (grace, open_files_max) = (Duration::from_secs(24 * 3600), 256);
        ShareServerSettings {
            clock,
            content: None,
            grace,
            open_files_max,
            expiry: None,
            pace: Pace::default(),
            on_damage: Arc::new(|_| ()),
        }
    }
}

impl fmt::Debug for ShareServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShareServerSettings { clock: _, content, grace, open_files_max, expiry, pace, on_damage: _ } =
            self;
        f.debug_struct("Settings")
            .field("content", content)
            .field("grace", grace)
            .field("open_files_max", open_files_max)
            .field("expiry", expiry)
            .field("pace", pace)
            .finish_non_exhaustive()
    }
}
