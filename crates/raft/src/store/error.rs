//! What can go wrong with the store's file.

use crate::Life;
use crate::alarm::{Alarm, Raised};
use futures_util::FutureExt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};

/// The store's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk or the file's content failed us: what was being done, to which file, and why it
    /// failed.
    #[error("{doing} {file}: {cause}", file = file.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        file: PathBuf,
        /// Why it failed.
        cause: Box<redb::Error>,
    },
    /// Written by another version.
    #[error("{file} has format {found}, this version reads {}", super::FORMAT, file = file.display())]
    Format {
        /// Which file.
        file: PathBuf,
        /// The format that it says it has.
        found: u32,
    },
}

impl StoreError {
    pub(super) fn new(doing: &'static str, file: &Path, cause: impl Into<redb::Error>) -> StoreError {
        StoreError::File { doing, file: file.to_owned(), cause: Box::new(cause.into()) }
    }

    /// Whether what was written is not there any more: the file holds other bytes, or the disk
    /// cannot read it. The way out is to have it again from elsewhere, or from a backup.
    pub fn is_damage(&self) -> bool {
        let StoreError::File { cause, .. } = self else { return false };
        match &**cause {
            redb::Error::Corrupted(_) => true,
            redb::Error::Io(cause) => is_lost(cause),
            _ => false,
        }
    }
}

/// Whether an error of reading means that what was written is not there any more.
pub fn is_lost(cause: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(cause.kind(), InvalidData | UnexpectedEof)
        || cause.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Exit code of a server that stopped because its disk failed (`EX_IOERR`).
pub const EXIT_DISK: i32 = 74;

/// Stops the process, or the member if it is simulated: a wrong server is worse than a stopped one.
/// What was acknowledged is in the log, which the next start replays; nothing is lost by not
/// unwinding.
pub fn stop(error: &dyn std::error::Error) -> ! {
    if let Some(life) = Life::current() {
        life.gives_up(error);
    }
    tracing::error!(%error, "the server cannot go on; stopping");
    std::process::exit(EXIT_DISK)
}

/// Held by a thread that the server cannot do without: if it panics, so that nothing would be
/// applied any more, the process stops, unless it is for the alarm.
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

/// Does `task`, which the server cannot do without either.
pub async fn indispensable<T>(task: impl Future<Output = T>) -> T {
    let done = AssertUnwindSafe(task).catch_unwind().await;
    done.unwrap_or_else(|panic| {
        if !panic.is::<Raised>() {
            // Simulated, it unwinds with what it has.
            Life::current().map_or_else(|| stop(&Panicked), |life| life.fails(&Panicked));
        }
        resume_unwind(panic)
    })
}
