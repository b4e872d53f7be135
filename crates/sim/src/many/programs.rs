//! Machines on which programs run, instead of what the seed says.

use super::{Doing, Office, Work};
use crate::cluster::Violation;
use client::{Call, Reply};
use directory::Policy;
use namespace::Error;

/// Events until programs must have come to their ends.
const PROGRAM_STEPS_MAX: u32 = 1_000_000;

/// What runs on a machine and calls its client: one call after the other.
pub(crate) trait Program {
    /// The next call, after the last one (if any) came to `answer`; nothing when all is done. It says what of the answer is wrong.
    fn next(&mut self, answer: Option<Result<Reply, Error>>) -> Result<Option<Call>, Violation>;
}

impl Office {
    /// So many machines that do what programs say, and nothing else.
    pub(crate) fn with_programs(seed: u64, machines: u64, policy: Policy) -> Office {
        let mut office = Office::empty(seed, policy, usize::MAX);
        office.add_machines(machines, || Work::Nothing);
        office
    }

    /// Runs a program on each of these machines, all at once and as the seed says, until all have come to their ends.
    pub(crate) fn run_programs(
        &mut self,
        programs: impl IntoIterator<Item = (usize, Box<dyn Program>)>,
    ) -> Result<(), Violation> {
        for (at, program) in programs {
            self.machines[at].work = Work::Program(program, None);
        }
        for _ in 0..PROGRAM_STEPS_MAX {
            self.step()?;
            if self.machines.iter().all(|machine| matches!(machine.work, Work::Nothing)) {
                return Ok(());
            }
        }
        Err(format!("the programs do not come to their ends in {PROGRAM_STEPS_MAX} steps"))
    }

    /// The next call of a program, if its last one has been answered.
    pub(super) fn go_on(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        let Work::Program(program, answer) = &mut machine.work else { return Ok(()) };
        if !machine.calls.is_empty() {
            return Ok(());
        }
        let Some(call) = program.next(answer.take()).map_err(|what| format!("{:?}: {what}", machine.id))?
        else {
            machine.work = Work::Nothing;
            return Ok(());
        };
        let doing = match &call {
            Call::Open { file, open, .. } => Doing::Open(file.clone(), *open),
            Call::Create { open, .. } => Doing::Create(*open),
            Call::Stat { file } | Call::Read { file, .. } | Call::Write { file, .. } => {
                Doing::Use(file.clone())
            }
            _ => Doing::Name,
        };
        self.call(at, call, doing)
    }
}
