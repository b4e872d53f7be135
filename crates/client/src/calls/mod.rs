//! Calls of front doors: one try at each, and the calls that wait.
//!
//! Each try starts from the beginning of the call. The client does nothing of a call before all of
//! it can be done, in one logical step. So leases may be recalled while a call waits, and no call
//! ever holds one back.

mod accesses;
mod attempt;
mod begin_again;
mod decide;
mod file_io;
mod handles;
mod in_doubt;
mod locks;
mod need;
mod reopen;
mod reserve;
mod settle;
mod shipped;
mod stop;
mod waiting;
mod write_through;

pub(crate) use stop::{Need, Stop};
pub(crate) use waiting::{Caller, Progress, Waiting, WaitingFor};
pub use waiting::{WaitReason, WaitReport};

use crate::{Output, Ticket};
use ident::FileId;
use lease::Time;
use namespace::{Error, LockChange};
use std::collections::BTreeMap;

/// The calls that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: BTreeMap<Ticket, Waiting>,
    last_ticket: u64,
    /// A lock was released here, so calls that wait for one can be tried again.
    pub unlocked: bool,
}

impl Calls {
    /// A ticket for a call that is about to wait.
    pub fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Adds a call, which waits from now on.
    pub fn insert(&mut self, ticket: Ticket, waiting: Waiting) {
        self.waiting.insert(ticket, waiting);
    }

    /// Removes a call, if it waits.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        self.waiting.remove(&ticket)
    }

    /// A call, if it waits.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiting> {
        self.waiting.get_mut(&ticket)
    }

    /// All calls, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &Waiting)> {
        self.waiting.iter().map(|(ticket, waiting)| (*ticket, waiting))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.waiting.values_mut()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Has the calls tried again that wait for the answer to the request `number`. Each takes its
    /// part of the answer.
    pub fn answered(&mut self, number: u64, mut take: impl FnMut(&mut Waiting)) {
        for waiting in self.waiting.values_mut() {
            if matches!(waiting.on, WaitingFor::Number(n) if n == number) {
                waiting.on = WaitingFor::Answered;
                take(waiting);
            }
        }
    }

    /// Answers the calls that `fails` picks with an error.
    pub fn fail(&mut self, error: Error, fails: impl Fn(Ticket, &Waiting) -> bool, out: &mut Vec<Output>) {
        for (ticket, _) in self.waiting.extract_if(.., |ticket, waiting| fails(*ticket, waiting)) {
            out.push(Output::Answer { ticket, result: Err(error) });
        }
    }

    /// When the first call that waits for free space asks again.
    pub fn freed_deadline(&self) -> Option<Time> {
        let until = |waiting: &Waiting| match waiting.on {
            WaitingFor::Freed { until } => Some(until),
            _ => None,
        };
        self.waiting.values().filter_map(until).min()
    }

    /// The lock changes that calls wait for.
    pub fn lock_waits(&self) -> impl Iterator<Item = (&FileId, &LockChange)> {
        self.waiting.values().filter_map(|waiting| match &waiting.on {
            WaitingFor::Unlocked { file, change } => Some((file, change)),
            _ => None,
        })
    }
}
