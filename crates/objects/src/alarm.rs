//! The alarm of a thread that has something to do at a time, or when it is told.

use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// Wakes one thread.
#[derive(Default)]
pub(crate) struct Alarm {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlarmState {
    is_set: bool,
    stopped: bool,
}

impl Alarm {
    /// Wakes the thread.
    pub(crate) fn set(&self) {
        self.state.lock().is_set = true;
        self.changed.notify_one();
    }

    /// Wakes the thread to end.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Waits until the alarm is set, or until `next`. Returns false if the thread has to end.
    pub(crate) fn wait(&self, next: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        while !state.stopped && !state.is_set && next.is_none_or(|next| next > Instant::now()) {
            match next {
                Some(next) => _ = self.changed.wait_until(&mut state, next),
                None => self.changed.wait(&mut state),
            }
        }
        state.is_set = false;
        !state.stopped
    }
}
