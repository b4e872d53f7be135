//! Tasks that a member cannot do without.

use crate::alarm::{Alarm, Raised};
use crate::life::Life;
use crate::stop::stop;
use futures_util::FutureExt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

#[derive(Debug, thiserror::Error)]
#[error("a part of the server panicked")]
struct Panicked;

/// Runs `task`, which the member that it works for cannot do without. If it panics, nothing would
/// be applied any more, so the member ends. A task of no member stops the process. A panic for the
/// alarm is the exception.
pub(crate) async fn indispensable<T>(task: impl Future<Output = T>) -> T {
    let done = AssertUnwindSafe(task).catch_unwind().await;
    done.unwrap_or_else(|panic| {
        if !panic.is::<Raised>() {
            // A simulated member unwinds with its data.
            match (Life::current(), Alarm::current()) {
                (Some(life), _) => life.fails(&Panicked),
                (None, Some(alarm)) => alarm.failed(&Panicked),
                (None, None) => stop(&Panicked),
            }
        }
        resume_unwind(panic)
    })
}
