//! How a share server is to be run.

use std::{fmt, sync::Arc, time::Duration};

use namespace::ShareId;

use crate::{content::Location, crawler::Pace, expirer::Expiry, share::Seconds};

/// Tells UTC seconds.
pub type Clock = Arc<dyn Fn() -> Seconds + Send + Sync>;

/// Is told of shares, on any thread: it must not block.
pub type Tell = Arc<dyn Fn(ShareId) + Send + Sync>;

/// How a share server is to be run.
#[derive(Clone)]
pub struct ShareServerSettings {
    /// The wall clock.
    pub clock: Clock,
    /// Where the files of shares are to be kept, of a directory that has none yet; `None`: in it,
    /// or where it says.
    pub content: Option<Location>,
    /// How long a share stays after its last lease, unless it is let go for
    /// [`crate::Deletion::AtOnce`].
    pub grace: Duration,
    /// Files kept open for reading at most.
    pub open_files_max: usize,
    /// When leases of accounts that are not the cluster's own expire; `None`: never by themselves.
    pub expiry: Option<Expiry>,
    /// What the processes in the background may take of the machine.
    pub pace: Pace,
    /// Is told of each share that a reader or the scrub finds damaged, or gone, whenever one does:
    /// whoever has it from elsewhere may store it anew.
    pub on_damage: Tell,
}

impl ShareServerSettings {
    /// The usual ones: a day of grace, 256 files, and no lease of a stranger expires.
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
