//! Within five seconds every update is at the server, names and content alike, without any request
//! (ARCHITECTURE, invariant 11). So updates older than that survive a machine's crash. The check
//! applies while nothing goes wrong on the way: the connection has been up since, and neither link
//! nor servers had faults.

use crate::world::history::{Called, Key, Life, Value};
use crate::world::{Violation, World};
use client::{Call, call};
use ident::FileId;

/// The bound, and the time of messages where nothing is wrong, ms.
const BOUND_MS: u64 = 5_000 + 150;

impl World {
    /// Checks the updates of this life of the machine, which has crashed just now.
    pub(in crate::world) fn check_soon(&self, at: usize, life: Life) -> Result<(), Violation> {
        let machine = &self.machines[at];
        let weather = &self.weather;
        let is_fair = weather.loses == 0 && !weather.shipped && weather.upgrade_ms == 0;
        let Some(steady) = machine.steady.filter(|_| is_fair && !self.is_limited(at)) else { return Ok(()) };
        let steady = steady.max(machine.rough_until);
        let is_late = |called: &&Called| {
            called.life == life && called.when >= steady && self.now > called.when + BOUND_MS
        };
        let missing = self.history.missing().filter(is_late);
        // Content that the machine itself has removed meanwhile is not missed, even before the
        // server knows of the removal.
        let removed: Vec<FileId> = self.removed_by(life);
        let is_removed = |key| matches!(key, Key::Content(file) if removed.contains(&file));
        let mut missing = missing.filter(|called| !called.changes().into_iter().all(is_removed));
        match missing.next() {
            Some(called) => Err(format!(
                "machine {at} crashed {} ms after {:?}, and that is not at the server",
                self.now - called.when,
                called.call
            )),
            None => Ok(()),
        }
    }

    /// Files of which the machine has removed a name, or put another file in its place, before the
    /// server knows.
    fn removed_by(&self, life: Life) -> Vec<FileId> {
        let of_life = self.history.calls.iter().filter(|called| called.life == life && !called.applied);
        let names = of_life.filter(|called| called.done < u64::MAX).filter_map(|called| match &called.call {
            Call::Unlink(call::Unlink { dir, label, .. })
            | Call::Rename(call::Rename { to_dir: dir, to: label, .. }) => {
                Some(Key::Name(dir.clone(), label.clone()))
            }
            _ => None,
        });
        let bound = |key| match self.history.now(&key) {
            Some(Value::Bound(file)) => Some(file),
            _ => None,
        };
        names.filter_map(bound).collect()
    }
}
