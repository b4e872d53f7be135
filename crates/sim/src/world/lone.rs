//! A group of one voter. It applies inputs as they come, and makes them durable when an output
//! rests on them. An entry in its log is no promise to anyone. Inputs that a crash lost after their
//! application had no outputs that left.

use super::events::Event;
use super::rows::Rows;
use super::{Violation, World};
use directory::{Directory, Input, Output};
use lease::Time;
use std::rc::Rc;
use wire::Space;

/// Applied entries after which a checkpoint is made.
const CHECKPOINT_EVERY: usize = 400;
/// The one replica.
const IT: usize = 0;

impl World {
    pub(super) fn lone_leads(&mut self) {
        self.propose(IT, Input::Lead);
        self.propose(
            IT,
            Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0, elsewhere: 0 }),
        );
    }

    /// Puts an input into the log, as an entry of its own.
    pub(super) fn lone_proposes(&mut self, input: Input) {
        if !self.group.replicas[IT].up {
            return;
        }
        let disk = self.below(6);
        let (now, lone) = (self.now, &mut self.lone);
        lone.pending.push_back((Time(now), input));
        lone.applied_at = lone.applied_at.max(now + disk);
        let (time, start) = (lone.applied_at, self.group.replicas[IT].start);
        self.events.add(time, Event::Applies(start));
    }

    /// Applies the earliest entry of the log.
    pub(super) fn applies(&mut self, start: u64) -> Result<(), Violation> {
        let replica = &self.group.replicas[IT];
        if start != replica.start || !replica.up {
            return Ok(());
        }
        let Some((time, input)) = self.lone.pending.pop_front() else { return Ok(()) };
        // Its disk does not rot: a lone server would refuse to go on, and only a backup would help.
        let Some(out) = self.applies_input(IT, time, &input)? else { return Ok(()) };
        self.lone.lasting |= self.group.replicas[IT].directory.lasts();
        let rests = self.lone.lasting && out.iter().any(Output::rests_on_the_log);
        self.lone.unsaid.push((time, input, out.clone()));
        if rests {
            self.syncs()?;
        }
        out.into_iter().try_for_each(|output| self.server_puts_out(IT, output))
    }

    /// Makes all applied entries durable.
    fn syncs(&mut self) -> Result<(), Violation> {
        for (time, input, out) in std::mem::take(&mut self.lone.unsaid) {
            self.note_applied(&input, &out)?;
            self.lone.log.push((time, input));
        }
        let replica = &mut self.group.replicas[IT];
        self.lone.lasting = false;
        self.lone.digest = replica.directory.digest();
        if self.lone.log.len() >= CHECKPOINT_EVERY {
            replica.directory.checkpoint(&mut replica.store);
            replica.checkpoint.rows = Rc::new(replica.store.clone());
            self.lone.log.clear();
        }
        Ok(())
    }

    /// The process ends, with all connections. It starts again after `pause`.
    pub(super) fn lone_crashes(&mut self, pause: u64) {
        if !self.group.replicas[IT].up {
            return;
        }
        self.happened.restarts += 1;
        self.group.replicas[IT].crashes(0);
        self.lone.pending.clear();
        self.lone.unsaid.clear();
        self.lone.lasting = false;
        self.loses_server(IT);
        self.later(pause, Event::ReplicaStarts(IT));
    }

    /// The process starts again from its durable entries, and must reach the same state.
    pub(super) fn lone_starts(&mut self) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[IT];
        if replica.up {
            return Ok(());
        }
        replica.up = true;
        replica.store = Rows::clone(&replica.checkpoint.rows);
        replica.directory = Directory::open(&replica.store, replica.knows).map_err(|e| e.to_string())?;
        for (time, input) in self.lone.log.clone() {
            // The outputs were sent before the crash, or their receivers are gone.
            let unheard = &mut Vec::new();
            replica.directory.handle(time, input, &mut replica.store, unheard).map_err(|e| e.to_string())?;
        }
        if replica.directory.digest() != self.lone.digest {
            return Err("the server came to something else when it did the same again".into());
        }
        self.lone_leads();
        Ok(())
    }
}
