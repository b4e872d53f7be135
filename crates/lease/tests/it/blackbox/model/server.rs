//! The server: the shipped field, a queue, and the deliberate faults.

use super::state::{Client, Down, Life, State, Up, Wrong};
use super::{Fault, System, Value};
use crate::blackbox::definition::{Definition, Enumerable};
use lease::SessionId;
use lease::blackbox::{
    BlackBox, BlackBoxAnswer, Departure, GrantPolicy, Own, Recall, SelfWrites, SubLease, TableRow,
};
use smallvec::SmallVec;

/// The server during one step.
pub struct Server<'a, A: Enumerable> {
    field: BlackBox<A>,
    state: &'a mut State<Value<A>>,
    system: &'a System<A>,
    /// Whether the first of the requests that waited before the step is served or gone.
    first_is_done: bool,
}

impl<'a, A: Enumerable> Server<'a, A> {
    pub fn new(system: &'a System<A>, state: &'a mut State<Value<A>>) -> Server<'a, A> {
        let rows = state.clients.iter().enumerate();
        let rows =
            rows.map(|(x, client)| TableRow { session: session(x), own: client.own, reads: client.reads });
        let listed = rows.filter(|row| row.reads || row.own != Own::Stuck(A::IDENTITY));
        // A property of its own shows that a field and its rows are equivalent.
        let field = match BlackBox::from_rows(&listed.collect::<SmallVec<[_; 4]>>()) {
            Ok(field) => field,
            Err(_) => {
                state.wrong = Some(Wrong::Unexpected);
                BlackBox::new()
            }
        };
        Server { field, state, system, first_is_done: false }
    }

    pub fn finish(mut self) -> bool {
        self.serve();
        for (x, client) in self.state.clients.iter_mut().enumerate() {
            let class = self.field.class(session(x));
            (client.own, client.reads) = (class.own, class.reads);
        }
        self.first_is_done
    }

    pub fn handle(&mut self, x: usize, up: Up<Value<A>>) {
        let returned = match up {
            Up::ReturnSelfWrite(value) => {
                self.state.clients[x].recalled[0] = false;
                self.field.return_self_write(session(x), value)
            }
            Up::ReturnOtherRead => {
                self.state.clients[x].recalled[1] = false;
                self.field.return_other_read(session(x))
            }
            Up::End => {
                self.begin_to_leave(x);
                Ok(())
            }
        };
        if returned.is_err() {
            self.state.wrong = Some(Wrong::Unexpected);
        }
    }

    pub fn begin_to_leave(&mut self, x: usize) {
        let client = &mut self.state.clients[x];
        client.end(Life::Leaving);
        client.up.clear();
        client.recalled = [false; 2];
        self.first_is_done |= self.state.queue.first().is_some_and(|(first, _)| *first as usize == x);
        self.state.queue.retain(|(it, _)| *it as usize != x);
        // This happens at once: another session that is leaving may have waited for these leases.
        if self.system.fault != Fault::LetsTheDepartingWait {
            self.leave(x);
        }
    }

    /// Serves departures, then requests in the order of arrival.
    fn serve(&mut self) {
        let mut departing = false;
        let last = self.system.fault == Fault::LetsTheDepartingWait && !self.state.queue.is_empty();
        for x in 0..self.state.clients.len() {
            if self.state.clients[x].life == Life::Leaving && !last {
                departing |= !self.leave(x);
            }
        }
        if departing {
            return;
        }
        while let Some(&(first, lease)) = self.state.queue.first() {
            let recalled = self.state.clients.iter().any(|client| client.recalled != [false; 2]);
            let forgotten = self.system.fault == Fault::ForgetsTheFirst && self.state.round > 0;
            if recalled || forgotten || !self.ask(first as usize, lease) {
                break;
            }
            self.state.queue.remove(0);
            self.state.round = 0;
            self.first_is_done = true;
        }
        if self.system.fault == Fault::ServesTheLast {
            let grantable = |(x, lease): &(u8, SubLease)| match lease {
                SubLease::SelfWrite => {
                    Definition::of(&self.field).exposed_to(session(*x as usize)).is_empty()
                }
                SubLease::OtherRead => {
                    Definition::of(&self.field).grantable_other_read(session(*x as usize)).is_some()
                }
            };
            if let Some(at) = self.state.queue.iter().rposition(grantable) {
                let (x, lease) = self.state.queue.remove(at);
                self.ask(x as usize, lease);
            }
        }
    }

    /// Returns whether `x` is gone.
    fn leave(&mut self, x: usize) -> bool {
        let mut departure = self.field.leave(session(x));
        if let (Departure::Recall(recalls), Fault::LetsLeaveAtOnce) = (&departure, self.system.fault) {
            self.take_back(recalls.clone(), A::IDENTITY);
            departure = self.field.leave(session(x));
        }
        match departure {
            Departure::Gone => self.state.clients[x] = Client::new(A::IDENTITY),
            Departure::Recall(recalls) => {
                let resting = Definition::of(&self.field).resting_on(session(x));
                let needed = recalls
                    .iter()
                    .all(|recall| recall.lease == SubLease::OtherRead && resting.contains(&recall.session));
                self.recall(&recalls, needed && !resting.is_empty());
            }
        }
        self.state.clients[x].life == Life::Alive
    }

    /// Returns whether the request is granted.
    fn ask(&mut self, x: usize, lease: SubLease) -> bool {
        let (policy, round) = (self.system.policy, u32::from(self.state.round));
        let x_is = session(x);
        let (grant, recalls) = match lease {
            SubLease::OtherRead => match self.faulty_ask_other_read(x_is, policy, round) {
                BlackBoxAnswer::Granted(value) => (Some(Down::GrantOtherRead(value)), Vec::new()),
                BlackBoxAnswer::Recall(recalls) => (None, recalls),
                BlackBoxAnswer::Held(_) => return self.unexpected(),
            },
            SubLease::SelfWrite => match self.faulty_ask_self_write(x_is, policy, round) {
                BlackBoxAnswer::Granted(()) => (Some(Down::GrantSelfWrite), Vec::new()),
                BlackBoxAnswer::Recall(recalls) => (None, recalls),
                BlackBoxAnswer::Held(()) => return self.unexpected(),
            },
        };
        if let Some(grant) = grant {
            self.state.clients[x].down.push(grant);
            return true;
        }
        let definition = Definition::of(&self.field);
        let exposed = definition.exposed_to(x_is);
        let ungrantable = match lease {
            SubLease::OtherRead => definition.grantable_other_read(x_is).is_none(),
            SubLease::SelfWrite => !exposed.is_empty(),
        };
        let helps = |recall: &Recall| match recall.lease {
            SubLease::SelfWrite => definition.writers_but(x_is).contains(&recall.session),
            SubLease::OtherRead => lease == SubLease::SelfWrite && exposed.contains(&recall.session),
        };
        self.recall(&recalls, ungrantable && recalls.iter().all(helps));
        if policy.self_writes == SelfWrites::Growing || self.system.fault == Fault::ForgetsTheFirst {
            self.state.round += 1;
        }
        false
    }

    fn unexpected(&mut self) -> bool {
        self.state.wrong = Some(Wrong::Unexpected);
        true
    }

    fn recall(&mut self, recalls: &[Recall], needed: bool) {
        if !needed {
            self.state.wrong = Some(Wrong::NeedlessRecall);
        }
        for recall in recalls {
            let client = &mut self.state.clients[recall.session.0 as usize];
            let told = &mut client.recalled[recall.lease as usize];
            if !*told && client.life == Life::Alive {
                client.down.push(Down::Recall(recall.lease));
            }
            *told |= client.life != Life::Leaving;
        }
    }

    /// Acts as if these leases had been returned, `SelfWrite` with this value.
    fn take_back(&mut self, recalls: Vec<Recall>, value: Value<A>) {
        for recall in recalls {
            let taken = match recall.lease {
                SubLease::SelfWrite => self.field.return_self_write(recall.session, value),
                SubLease::OtherRead => self.field.return_other_read(recall.session),
            };
            assert_eq!(taken, Ok(()), "only what is held is recalled");
        }
    }

    fn faulty_ask_other_read(
        &mut self,
        x: SessionId,
        policy: GrantPolicy,
        round: u32,
    ) -> BlackBoxAnswer<Value<A>> {
        let before = self.field.clone();
        let answer = self.field.ask_other_read(x, policy, round);
        match (self.system.fault, answer) {
            (Fault::TakesWritersForStuck, BlackBoxAnswer::Recall(recalls)) => {
                self.take_back(recalls, A::IDENTITY);
                self.field.ask_other_read(x, policy, round)
            }
            (Fault::TakesAWriterForAShield, BlackBoxAnswer::Recall(recalls)) => {
                self.take_back(recalls, A::ABSORBING.expect("an aggregate with shields"));
                self.field.ask_other_read(x, policy, round)
            }
            (Fault::RecallsWritersInC1, BlackBoxAnswer::Granted(_))
                if !Definition::of(&before).writers_but(x).is_empty() =>
            {
                let writers = Definition::of(&before).writers_but(x).into_iter();
                self.field = before;
                BlackBoxAnswer::Recall(
                    writers.map(|session| Recall { session, lease: SubLease::SelfWrite }).collect(),
                )
            }
            (_, answer) => answer,
        }
    }

    fn faulty_ask_self_write(&mut self, x: SessionId, policy: GrantPolicy, round: u32) -> BlackBoxAnswer<()> {
        let before = self.field.clone();
        let answer = self.field.ask_self_write(x, policy, round);
        let readers = || {
            let rows = before.members().into_iter().filter(|row| row.reads && row.session != x);
            rows.map(|row| Recall { session: row.session, lease: SubLease::OtherRead }).collect::<Vec<_>>()
        };
        let shields = |recalls: &[Recall]| {
            let is_shield = |recall: &Recall| matches!(before.class(recall.session).own, Own::Stuck(value) if Some(value) == A::ABSORBING);
            recalls.len() == 1 && recalls.iter().all(is_shield)
        };
        match (self.system.fault, answer) {
            (Fault::ForgetsReaders, BlackBoxAnswer::Recall(recalls)) if !shields(&recalls) => {
                self.take_back(recalls, A::IDENTITY);
                self.field.ask_self_write(x, policy, round)
            }
            (Fault::TakesAShieldToShieldItself, BlackBoxAnswer::Recall(recalls)) if shields(&recalls) => {
                self.take_back(recalls, A::IDENTITY);
                self.field.ask_self_write(x, policy, round)
            }
            (Fault::RecallsReadersInD1, BlackBoxAnswer::Granted(())) if !readers().is_empty() => {
                let recalls = readers();
                self.field = before;
                BlackBoxAnswer::Recall(recalls)
            }
            (_, answer) => answer,
        }
    }
}

fn session(client: usize) -> SessionId {
    SessionId(client as u64)
}
