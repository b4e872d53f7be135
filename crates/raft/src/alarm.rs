//! Raised when this server turns out not to have what it once had: a row or a log entry that the
//! disk gives back otherwise, a state that is not that of the others.
//!
//! Then nothing of this member may go on, since nobody knows what it has forgotten of what it
//! promised. Whoever raises the alarm does not come back from it.

use crate::store::stop;
use std::error::Error;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// See the module.
#[derive(Clone)]
pub(crate) struct Alarm(Arc<Inner>);

struct Inner {
    why: OnceLock<String>,
    raised: Notify,
    tell: Box<dyn Fn(String) + Send + Sync>,
}

/// What a thread unwinds with that has raised the alarm, or come upon something after that.
pub(crate) struct Raised;

impl Alarm {
    /// When it is raised, `tell` is told why: on any thread, with any lock held.
    pub(crate) fn new(tell: impl Fn(String) + Send + Sync + 'static) -> Alarm {
        Alarm(Arc::new(Inner { why: OnceLock::new(), raised: Notify::new(), tell: Box::new(tell) }))
    }

    /// For damage that `error` tells of.
    pub(crate) fn raise(&self, error: &dyn Error) -> ! {
        let why = error.to_string();
        if self.0.why.set(why.clone()).is_ok() {
            tracing::error!(why, "this server has lost what it had");
            self.0.raised.notify_one();
            (self.0.tell)(why);
        }
        // Quietly: it has been said what is the matter.
        resume_unwind(Box::new(Raised))
    }

    /// For an error that is no damage: the process stops, unless it comes of the alarm.
    pub(crate) fn stop(&self, error: &dyn Error) -> ! {
        if self.why().is_some() { resume_unwind(Box::new(Raised)) } else { stop(error) }
    }

    /// Why it was raised.
    pub(crate) fn why(&self) -> Option<&str> {
        self.0.why.get().map(String::as_str)
    }

    /// Returns once it is raised, to the first who waits.
    pub(crate) async fn raised(&self) {
        self.0.raised.notified().await;
    }
}
