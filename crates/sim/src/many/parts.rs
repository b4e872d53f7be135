//! Machines that do parts of an experiment. The seed does not choose their calls.

use super::{Doing, ManyMachines, TurnWork};
use crate::host::Violation;
use crate::paper::{Actor, Script, Testbed};
use client::{Call, call};
use directory::Policy;
use wire::ToClient;

/// Events within which all parts must end.
const PART_STEPS_MAX: u32 = 1_000_000;

impl ManyMachines {
    /// Makes so many machines that do only the parts they are given.
    pub(crate) fn for_parts(seed: u64, machines: u64, policy: Policy) -> Result<ManyMachines, Violation> {
        let mut office = ManyMachines::new(seed, machines, policy, usize::MAX, || TurnWork::Nothing)?;
        office.host.heard = Some(Vec::new());
        Ok(office)
    }

    /// Makes the next call of a script, once its last one has been answered.
    pub(super) fn go_on(&mut self, at: usize) -> Result<(), Violation> {
        let programs = &mut self.programs[at];
        let TurnWork::Script(script, answer) = &mut programs.work else { return Ok(()) };
        if !programs.calls.is_empty() {
            return Ok(());
        }
        let Some(call) = script.next(answer.take()).map_err(|what| format!("machine {at}: {what}"))? else {
            if let TurnWork::Script(script, _) = std::mem::replace(&mut programs.work, TurnWork::Nothing) {
                programs.work = TurnWork::Done(script.into_part());
            }
            return Ok(());
        };
        let doing = match &call {
            Call::OpenFile(call::OpenFile { file, open, .. }) => Doing::Open(file.clone(), *open),
            Call::Create(call::Create { open, .. }) => Doing::Create(*open),
            Call::Stat(call::Stat { file })
            | Call::Read(call::Read { file, .. })
            | Call::Write(call::Write { file, .. }) => Doing::Use(file.clone()),
            _ => Doing::Name,
        };
        self.call(at, call, doing)
    }
}

/// The seed chooses whose turn it is, and which message arrives.
impl Testbed for ManyMachines {
    fn run(&mut self, parts: Vec<(usize, Actor)>) -> Result<Vec<Actor>, Violation> {
        let machines: Vec<usize> = parts.iter().map(|(at, _)| *at).collect();
        for (at, part) in parts {
            self.programs[at].work = TurnWork::Script(Box::new(Script::of(part)), None);
        }
        let mut steps = 0..PART_STEPS_MAX;
        while self.programs.iter().any(|programs| matches!(programs.work, TurnWork::Script(..))) {
            steps.next().ok_or("the parts do not come to their ends")?;
            self.step()?;
        }
        let done = machines.into_iter().map(|at| {
            match std::mem::replace(&mut self.programs[at].work, TurnWork::Nothing) {
                TurnWork::Done(part) => Ok(part),
                _ => Err(format!("machine {at} has not done its part")),
            }
        });
        done.collect()
    }

    fn restart(&mut self, machine: usize) -> Result<(), Violation> {
        self.deliver()?;
        self.stop(machine)?;
        self.deliver()
    }

    fn heard(&mut self) -> Result<Vec<ToClient>, Violation> {
        Ok(self.host.heard.replace(Vec::new()).unwrap_or_default())
    }
}
