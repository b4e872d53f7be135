//! The alarm of a server that has lost state. Either the disk returns other bytes for a row or a
//! log entry, or the state differs from that of the others.
//!
//! Such a member must stop at once, since no one knows which of its promises it has forgotten. A
//! call that raises the alarm does not return.

use crate::stop::stop;
use std::error::Error;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// The alarm of one member, shared by its threads.
#[derive(Clone)]
pub(crate) struct Alarm(Arc<Inner>);

struct Inner {
    why: OnceLock<String>,
    raised: Notify,
    tell: Box<dyn Fn(String) + Send + Sync>,
}

/// The payload with which a thread unwinds after it raised the alarm, or met it raised.
pub(crate) struct Raised;

impl Alarm {
    /// Makes an alarm. When it is raised, `tell` gets the reason, on any thread and with any lock
    /// held.
    pub(crate) fn new(tell: impl Fn(String) + Send + Sync + 'static) -> Alarm {
        Alarm(Arc::new(Inner { why: OnceLock::new(), raised: Notify::new(), tell: Box::new(tell) }))
    }

    /// Raises the alarm for the damage that `error` describes.
    pub(crate) fn raise(&self, error: &dyn Error) -> ! {
        let why = error.to_string();
        if self.0.why.set(why.clone()).is_ok() {
            tracing::error!(why, "this server has lost what it had");
            self.0.raised.notify_one();
            (self.0.tell)(why);
        }
        // Unwinds without a message: the reason is already reported.
        resume_unwind(Box::new(Raised))
    }

    /// Handles an error that is no damage. The process stops, unless the error comes from a raised
    /// alarm.
    pub(crate) fn stop(&self, error: &dyn Error) -> ! {
        if self.why().is_some() { resume_unwind(Box::new(Raised)) } else { stop(error) }
    }

    /// Returns why it was raised, if it was.
    pub(crate) fn why(&self) -> Option<&str> {
        self.0.why.get().map(String::as_str)
    }

    /// Returns once it is raised. Only the first waiter is woken.
    pub(crate) async fn raised(&self) {
        self.0.raised.notified().await;
    }
}
