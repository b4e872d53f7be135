//! The errors of the store's file.

use crate::Life;
use crate::alarm::{Alarm, Raised};
use futures_util::FutureExt;
use os::is_lost;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};

/// The reason why the store's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk failed, or the file's content is wrong.
    #[error("{doing} {file}: {cause}", file = file.display())]
    File {
        /// The operation that failed.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// Why it failed.
        cause: Box<redb::Error>,
    },
    /// Another version wrote the file.
    #[error("{file} has format {found}, this version reads {}", super::FORMAT, file = file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// The format that it declares.
        found: u32,
    },
}

impl StoreError {
    pub(super) fn new(doing: &'static str, file: &Path, cause: impl Into<redb::Error>) -> StoreError {
        StoreError::File { doing, file: file.to_owned(), cause: Box::new(cause.into()) }
    }

    /// Returns whether written data is lost: the file holds other bytes, or the disk cannot read
    /// it. The remedy is another member's state, or a backup.
    pub fn is_damage(&self) -> bool {
        let StoreError::File { cause, .. } = self else { return false };
        match &**cause {
            redb::Error::Corrupted(_) => true,
            redb::Error::Io(cause) => is_lost(cause),
            _ => false,
        }
    }
}

/// Exit code of a server that stopped because its disk failed (`EX_IOERR`).
pub const EXIT_DISK: i32 = 74;

/// Stops the process, or the simulated member: a wrong server is worse than a stopped one.
/// Acknowledged changes are in the log, which the next start replays. So nothing is lost without
/// unwinding.
pub fn stop(error: &dyn std::error::Error) -> ! {
    if let Some(life) = Life::current() {
        life.gives_up(error);
    }
    tracing::error!(%error, "the server cannot go on; stopping");
    std::process::exit(EXIT_DISK)
}

/// A guard of a thread that the server cannot do without. If the thread panics, nothing would be
/// applied any more, so the process stops. A panic for the alarm is the exception.
pub struct Indispensable(pub Alarm);

#[derive(Debug, thiserror::Error)]
#[error("a part of the server panicked")]
struct Panicked;

impl Drop for Indispensable {
    fn drop(&mut self) {
        if std::thread::panicking() && self.0.why().is_none() {
            stop(&Panicked);
        }
    }
}

/// Runs `task`, which the server cannot do without either.
pub async fn indispensable<T>(task: impl Future<Output = T>) -> T {
    let done = AssertUnwindSafe(task).catch_unwind().await;
    done.unwrap_or_else(|panic| {
        if !panic.is::<Raised>() {
            // A simulated member unwinds with its data.
            Life::current().map_or_else(|| stop(&Panicked), |life| life.fails(&Panicked));
        }
        resume_unwind(panic)
    })
}
