//! Linearizable registers: a register is a label, a file's owner and mode, or a file's content. Its
//! versions are in the order of the server. Each version must have an instant within the call that
//! made it. Every answer must show the register's value at some instant within the asking call.
//!
//! If a value occurs more than once, the version seen is not known. The earliest possible one is
//! taken, which leaves the most room to later observations.

use crate::world::Violation;
use crate::world::history::{
    History, Key, Life, Observation, RegisterVersion, Seen, Value, at_first, is_update,
};
use std::collections::BTreeMap;

impl History {
    /// Checks these registers.
    pub(super) fn check_registers(&self, those: impl Fn(&Key) -> bool) -> Result<(), Violation> {
        let (lost, nameless) = (self.first_lost(), self.nameless());
        // A file that is gone, or was never made at the server, has no policy; a file may have
        // none, too.
        let of_none = |observation: &&Observation| match (&observation.key, &observation.seen) {
            (key @ Key::Policy(file), Seen::Value(Value::Policy(None))) => {
                let is_known = self.registers.contains_key(key) || at_first(key).is_some();
                nameless.contains(file) || !is_known
            }
            _ => false,
        };
        let mut of_key: BTreeMap<&Key, Vec<&Observation>> = BTreeMap::new();
        let observations = self.observations.iter().filter(|observation| those(&observation.key));
        for observation in observations.filter(|observation| !of_none(observation)) {
            // A life that has seen its own lost update loses that observation and all its later
            // ones with the update.
            let first = lost.get(&(observation.life, observation.key.clone()));
            if first.is_none_or(|first| observation.ended <= *first) {
                of_key.entry(&observation.key).or_default().push(observation);
            }
        }
        for (key, versions) in self.registers.iter().filter(|(key, _)| those(key)) {
            let observations = of_key.remove(key).unwrap_or_default();
            self.check_register(key, versions, observations)?;
        }
        for (key, observations) in of_key {
            // A register that no update has changed.
            let versions: Vec<RegisterVersion> =
                at_first(key).into_iter().map(|value| RegisterVersion { value, by: None }).collect();
            self.check_register(key, &versions, observations)?;
        }
        Ok(())
    }

    /// The time of each life's first lost change to a register.
    fn first_lost(&self) -> BTreeMap<(Life, Key), u64> {
        let mut lost = BTreeMap::new();
        for called in self.calls.iter().filter(|called| !called.applied && called.done < u64::MAX) {
            for key in called.changes().into_iter().filter(|_| is_update(&called.call)) {
                let first = lost.entry((called.life, key)).or_insert(called.done - 1);
                *first = called.done.saturating_sub(1).min(*first);
            }
        }
        lost
    }

    /// The times between which a version may have come about.
    fn span(&self, version: &RegisterVersion) -> (u64, u64) {
        let called = version.by.and_then(|by| self.calls.get(by));
        called.map_or((0, 0), |called| (called.begun, called.done))
    }

    fn check_register(
        &self,
        key: &Key,
        versions: &[RegisterVersion],
        mut observations: Vec<&Observation>,
    ) -> Result<(), Violation> {
        let spans: Vec<(u64, u64)> = versions.iter().map(|version| self.span(version)).collect();
        let mut latest_begun = 0;
        for (index, (begun, done)) in spans.iter().enumerate() {
            if *done < latest_begun {
                return Err(format!(
                    "{key:?}: version {index} was done before one that comes before it was begun"
                ));
            }
            latest_begun = latest_begun.max(*begun);
        }
        // The time by which each version was there for sure.
        let mut there = spans.iter().map(|(_, done)| *done).collect::<Vec<u64>>();
        for index in (1..there.len()).rev() {
            there[index - 1] = there[index - 1].min(there[index]);
        }
        observations.sort_by_key(|observation| observation.begun);
        // Observations that have ended, by time. A later observation sees no earlier version than
        // an ended one.
        let mut ended: BTreeMap<u64, usize> = BTreeMap::new();
        for observation in observations {
            let sure = there.partition_point(|there| *there < observation.begun).saturating_sub(1);
            let seen_before = ended.range(..observation.begun).next_back().map_or(0, |(_, index)| *index);
            let from = sure.max(seen_before);
            let possible = (from..versions.len()).find(|index| {
                spans[*index].0 <= observation.ended && observation.seen.fits(&versions[*index].value)
            });
            let Some(index) = possible else {
                return Err(self.not_linearizable(key, versions, observation, from));
            };
            let before = ended.range(..=observation.ended).next_back().map_or(0, |(_, index)| *index);
            if index > before {
                ended.insert(observation.ended, index);
                let later: Vec<u64> = ended
                    .range(observation.ended + 1..)
                    .take_while(|(_, i)| **i <= index)
                    .map(|(e, _)| *e)
                    .collect();
                later.into_iter().for_each(|end| _ = ended.remove(&end));
            }
        }
        Ok(())
    }

    fn not_linearizable(
        &self,
        key: &Key,
        versions: &[RegisterVersion],
        observation: &Observation,
        from: usize,
    ) -> Violation {
        let fits = |(index, version): (usize, &RegisterVersion)| {
            observation.seen.fits(&version.value).then(|| (index, self.span(version)))
        };
        let fitting: Vec<_> = versions.iter().enumerate().filter_map(fits).collect();
        let Observation { seen, begun, ended, at, life, .. } = observation;
        let due: Vec<_> =
            versions.iter().enumerate().skip(from).take(3).map(|(i, v)| (i, v, self.span(v))).collect();
        format!(
            "{key:?}: machine {at} (life {life}) saw {seen:?} at {begun}..{ended}, which it was not: it fits {fitting:?}, and was {due:?} at the earliest, of {}",
            versions.len()
        )
    }
}
