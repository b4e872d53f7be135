//! Threads and tasks that the server cannot do without.

use crate::alarm::{Alarm, Raised};
use crate::life::Life;
use crate::stop::stop;
use futures_util::FutureExt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

/// A guard of a thread that the server cannot do without. If the thread panics, nothing would be
/// applied any more, so the process stops. A panic for the alarm is the exception.
pub(crate) struct Indispensable(pub Alarm);

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
pub(crate) async fn indispensable<T>(task: impl Future<Output = T>) -> T {
    let done = AssertUnwindSafe(task).catch_unwind().await;
    done.unwrap_or_else(|panic| {
        if !panic.is::<Raised>() {
            // A simulated member unwinds with its data.
            Life::current().map_or_else(|| stop(&Panicked), |life| life.fails(&Panicked));
        }
        resume_unwind(panic)
    })
}
