//! The settings of a share server.

use std::{fmt, sync::Arc, time::Duration};

use namespace::ShareId;

use crate::{content::Location, crawler::Pace, expirer::Expiry, share::Seconds};

/// Tells UTC seconds.
pub type Clock = Arc<dyn Fn() -> Seconds + Send + Sync>;

/// A callback that gets a share. Any thread may call it, so it must not block.
pub type Tell = Arc<dyn Fn(ShareId) + Send + Sync>;

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
