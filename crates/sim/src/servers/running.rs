//! Calls under way, each with what its program has seen in the end.

use super::machines::clocks;
use super::{Lie, ManyServers, NOTE_MAX, STEPS_MAX, files_of};
use crate::gather::gather;
use crate::host::Violation;
use crate::kernel::Kept;
use client::{Call, Input, Outcome, Reply, Ticket};
use ident::FileId;
use namespace::{Cred, Entry, Error};
use std::collections::BTreeSet;

/// One of this many offered items stays in the kernel, on average, although nothing needs it.
const KEEPS_ONE_OF: u64 = 8;

/// The observation of a program.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Reply(Reply),
    /// The kernel had the name's entry, and nothing of the file.
    Entry(Entry),
    Content(Vec<u8>),
}

/// A call, from its beginning on.
pub(super) struct Running {
    pub at: usize,
    pub call: Call,
    /// Its answer is to come under this name.
    ticket: Option<Ticket>,
    /// Its answer.
    pub seen: Option<Result<Seen, Error>>,
}

impl Running {
    /// A call that has its answer.
    #[cfg(test)]
    pub fn answered(at: usize, call: Call, seen: Result<Seen, Error>) -> Running {
        Running { at, call, ticket: None, seen: Some(seen) }
    }

    /// The call and its answer, for people.
    pub fn told(&self) -> String {
        let Running { at, call, seen, .. } = self;
        let short = |text: String| text.chars().take(NOTE_MAX).collect::<String>();
        format!("machine {at}: {} gave {}", short(format!("{call:?}")), short(format!("{seen:?}")))
    }
}

impl ManyServers {
    /// Begins a call. The kernel answers it, half of the time that the kernel can.
    pub(super) fn begins(&mut self, at: usize, call: &Call) -> Result<Running, Violation> {
        let machine = &mut self.machines[at];
        machine.tick += 1;
        let (begun, now) = (machine.tick, self.now);
        self.notes(|| format!("machine {at} is called: {call:?}"));
        let running = |ticket, seen| Running { at, call: call.clone(), ticket, seen };
        if let Some(kept) = self.machines[at].kernel.answer(call, now)
            && self.one_in(2)
        {
            self.tally.kept += 1;
            self.notes(|| format!("machine {at} has kept {kept:?}"));
            return Ok(running(None, Some(seen_by_kernel(kept))));
        }
        let mut out = Vec::new();
        let outcome = self.machines[at].client.call(clocks(now), &Cred::default(), call.clone(), &mut out);
        let begun = match outcome {
            Outcome::Done(result) => running(None, Some(self.told_program(at, (call, begun), result)?)),
            Outcome::Waiting(ticket) => {
                self.machines[at].calls.insert(ticket, (call.clone(), begun));
                running(Some(ticket), None)
            }
        };
        self.carry_out(at, out)?;
        Ok(begun)
    }

    /// The client has answered a call that waited.
    pub(super) fn answers(
        &mut self,
        at: usize,
        ticket: Ticket,
        result: Result<Reply, Error>,
    ) -> Result<(), Violation> {
        let Some((call, begun)) = self.machines[at].calls.remove(&ticket) else {
            return Err(format!("{ticket:?} of machine {at} is answered twice"));
        };
        let seen = self.told_program(at, (&call, begun), result)?;
        self.answers.insert((at, ticket), seen);
        Ok(())
    }

    /// The kernel keeps what it may of an answer, and hands it on.
    fn told_program(
        &mut self,
        at: usize,
        (call, begun): (&Call, u64),
        result: Result<Reply, Error>,
    ) -> Result<Result<Seen, Error>, Violation> {
        let now = self.now;
        let machine = &mut self.machines[at];
        let until = now.after_ms(machine.client.valid_for_ms(now));
        machine.kernel.given(now, (call, begun), &result, until);
        Ok(match result {
            Ok(Reply::Glimpsed(None)) => Err(Error::NotFound),
            Ok(Reply::Data(parts)) => {
                let bytes = gather(&parts, |share| self.shares.get(share).map(Vec::as_slice))?;
                if let Call::Read(read) = call {
                    self.machines[at].kernel.given_pages(read, begun, &bytes, until);
                }
                Ok(Seen::Content(bytes))
            }
            Ok(Reply::Lingers(file)) => {
                machine.forgets.push(file);
                Ok(Seen::Reply(Reply::Nothing))
            }
            Ok(reply) => Ok(Seen::Reply(reply.told())),
            Err(error) => Err(error),
        })
    }

    /// Waits for the answers to these calls while everything else goes on.
    pub(super) fn wait_for(&mut self, running: &mut [Running]) -> Result<(), Violation> {
        for _ in 0..STEPS_MAX {
            for call in running.iter_mut() {
                if let Some(ticket) = call.ticket
                    && let Some(seen) = self.answers.remove(&(call.at, ticket))
                {
                    (call.ticket, call.seen) = (None, Some(seen));
                }
            }
            if running.iter().all(|call| call.seen.is_some()) {
                return Ok(());
            }
            self.step()?;
        }
        let waits = |call: &Running| format!("{}, {:?}", call.told(), self.waits(call.at));
        let open: Vec<String> = running.iter().filter(|call| call.seen.is_none()).map(waits).collect();
        Err(format!("never answered: {open:#?}"))
    }

    fn waits(&self, at: usize) -> Vec<client::WaitReport> {
        self.machines[at].client.waits(self.now, 0)
    }

    /// A kernel does some of what the client wants, or forgets a lingering file.
    pub(super) fn front_door_goes_on(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].revoked.is_empty() {
            return self.forgets(at);
        }
        (0..=self.below(3)).try_for_each(|_| self.revokes(at))
    }

    /// A kernel drops what the client revokes, and what is offered but for some of it.
    fn revokes(&mut self, at: usize) -> Result<(), Violation> {
        let revocations = self.machines[at].revoked.len() as u64;
        if revocations == 0 {
            return Ok(());
        }
        let pick = self.below(revocations) as usize;
        let (number, mut what, mut offered) = self.machines[at].revoked.swap_remove(pick);
        let mut kept = BTreeSet::new();
        for file in offered.iter().filter_map(client::Invalidation::file) {
            if self.below(KEEPS_ONE_OF) == 0 {
                kept.insert(file.clone());
            }
        }
        offered.retain(|what| what.file().is_some_and(|file| !kept.contains(file)));
        what.append(&mut offered);
        if self.lie != Some(Lie::KeptBelow) {
            let (machine, now) = (&mut self.machines[at], self.now);
            machine.tick += 1;
            machine.kernel.contend(now, &what);
            machine.kernel.takes_back(&what);
            machine.kernel.bar(machine.tick, &what);
        }
        self.input(at, Input::Revoked { number, kept })
    }

    /// The kernel forgets a lingering file, unless a call on it is under way or it is open.
    fn forgets(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &self.machines[at];
        let is_open = |file: &FileId| self.handles.get(file).is_some_and(|machines| machines.contains(&at));
        let is_called = |file: &FileId| machine.calls.values().any(|(call, _)| files_of(call).contains(file));
        let Some(next) = machine.forgets.iter().position(|file| !is_open(file) && !is_called(file)) else {
            return Ok(());
        };
        let file = self.machines[at].forgets.swap_remove(next);
        self.input(at, Input::Forgotten(vec![file]))
    }
}

fn seen_by_kernel(kept: Kept) -> Result<Seen, Error> {
    match kept {
        Kept::Name(None) => Err(Error::NotFound),
        Kept::Name(Some((entry, Some(stat)))) => Ok(Seen::Reply(Reply::Node(entry, stat))),
        Kept::Name(Some((entry, None))) => Ok(Seen::Entry(entry)),
        Kept::Stat(stat) => Ok(Seen::Reply(Reply::Stat(stat))),
        Kept::Content(bytes) => Ok(Seen::Content(bytes)),
    }
}
