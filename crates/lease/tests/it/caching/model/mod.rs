//! A model of all that can happen between machines, their SMB clients and a server above, with
//! messages in flight.
//!
//! Each machine decides with the shipped [`Object`]. Around it is what the module says its caller
//! has to do, and channels that keep the order. A client may at any time open, close, write, rename,
//! sit on a message, keep less than it may, or let its time pass. The server recalls, and it
//! extends the cover where no other machine has what is in the way.
//!
//! Two rules keep the space small:
//! * A client opens when no earlier answer is in flight to it, and for the first time when nothing
//!   is. So an acknowledgment does not meet a lease that its client has closed and made anew.
//! * Time is the order of deadlines, and nothing else.

mod shown;
mod state;

pub use shown::{
    BELIEVES_WHAT_IS_SO, COVERED, ENDS, FLOWS, ONE_BREAK, OWN, RECALL_WAITS, REFUSED, WENT_ON, WRITES_ALONE,
};

use super::{exclusive, overwriting, plain, stat};
use lease::caching::{
    Act, Actor, Asks, Break, Judgement, Object, Opening, SharingViolation, State as Flags, Version,
};
use smallvec::SmallVec;
use state::{Client, Deed, Down, Machine, State, Up, Who, Wrong, holder, lease_id, open_id};
use stateright::{Model, Property};

/// A kind of open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Plain,
    Exclusive,
    Overwriting,
    Stat,
}

/// A deliberate fault of the caller or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// An act goes on although it is told to wait.
    WaitsForNobody,
    /// An act that is judged again sends its breaks again.
    SendsAgain,
    /// An act by an open is passed on as anybody's.
    ForgetsTheActor,
    /// A recall is answered before its acknowledgments.
    AnswersARecallAtOnce,
    /// The cover is extended again when the recall has been answered.
    ForgetsTheRecall,
    /// Acts that wait are not judged again.
    ForgetsWhoWaits,
    /// An open is refused instead of waiting.
    RefusesAtOnce,
    /// A break that wants no acknowledgment is not sent.
    LosesABreak,
    /// A break overtakes an answer.
    BreakOvertakes,
    /// A client acknowledges, and goes on caching writes.
    ClientWritesOn,
}

/// A small system.
pub struct System {
    /// The machine and the key of each client.
    pub clients: &'static [(usize, u8)],
    pub machines: usize,
    pub kinds: &'static [Kind],
    /// The number of opens that a client has at a time: 1 or 2.
    pub opens: usize,
    /// Whether calls of the machine's own read and write.
    pub local: bool,
    /// Whether the server recalls.
    pub recalls: bool,
    pub fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Do(usize, Who, Deed),
    /// The act is given up.
    Cancel(usize, Who),
    Close(usize, usize),
    /// The client takes a message. If it is a break, the client keeps what it may, or nothing.
    Down(usize, bool),
    Up(usize),
    Expire(usize),
    Extend(usize, Flags),
}

impl System {
    fn machine_of(&self, client: usize) -> usize {
        self.clients[client].0
    }

    fn clients_at(&self, machine: usize) -> impl Iterator<Item = usize> {
        (0..self.clients.len()).filter(move |client| self.machine_of(*client) == machine)
    }

    /// The clients of a machine whose own key is not that of the actor.
    fn others(&self, machine: usize, who: Who) -> impl Iterator<Item = usize> {
        self.clients_at(machine).filter(move |other| match who {
            Who::Client(client) => self.clients[*other].1 != self.clients[client].1,
            Who::Local | Who::Server => true,
        })
    }

    fn opening(&self, client: usize, kind: Kind) -> Opening {
        let asks = |state| Asks::Lease { lease: lease_id(self, client), state, version: Version::V1 };
        match kind {
            Kind::Plain => plain(asks(Flags::RWH)),
            Kind::Exclusive => exclusive(asks(Flags::RW)),
            Kind::Overwriting => overwriting(asks(Flags::RH)),
            Kind::Stat => stat(asks(Flags::RWH)),
        }
    }

    /// Judges the act. Returns whether it is over.
    fn judge(&self, state: &mut State, m: usize, (who, deed): (Who, Deed), is_first: bool) -> bool {
        let (mut out, now) = (Vec::new(), state.machines[m].now());
        let object = &mut state.machines[m].object;
        let judged: Result<Judgement<()>, SharingViolation> = match (deed, who) {
            (Deed::Open(kind), Who::Client(client)) => {
                let slot = usize::from(state.clients[client].opens[0].is_some());
                let opening = self.opening(client, kind);
                object.open(now, open_id(client, slot), opening, &mut out).map(|judged| match judged {
                    Judgement::Waits(holders) => Judgement::Waits(holders),
                    Judgement::Go(grant) => {
                        state.clients[client].opens[slot] = Some(kind);
                        // The breaks of this open go out before its answer, and to others only.
                        state.clients[client].down.push(Down::Granted { grant, stale: false });
                        Judgement::Go(())
                    }
                })
            }
            (Deed::Recall(keep), _) => Ok(object.recall(now, keep, &mut out)),
            (deed, who) => {
                let act = match deed {
                    Deed::Read => Act::Read,
                    Deed::Write => Act::Write,
                    _ => Act::Rename,
                };
                let actor = match who {
                    Who::Client(client) if self.fault != Fault::ForgetsTheActor => {
                        let slot = state.clients[client].opens.iter().position(Option::is_some);
                        Actor::Open(open_id(client, slot.unwrap_or(0)))
                    }
                    _ => Actor::Other,
                };
                Ok(object.act(now, act, actor, &mut out))
            }
        };
        if let (Ok(Judgement::Waits(holders)), Fault::SendsAgain, false) = (&judged, self.fault, is_first) {
            let again = holders.iter().map(|holder| {
                let (from, to) = (Flags::RWH, Flags::NONE);
                Break { holder: *holder, from, to, epoch: 0, acknowledge: true }
            });
            out.extend(again);
        }
        let is_own = |it: &Break| {
            self.clients_at(m).any(|x| holder(self, x) == it.holder)
                && !self.others(m, who).any(|x| holder(self, x) == it.holder)
        };
        if out.iter().any(is_own) {
            state.wrong = Some(Wrong::BrokeItsOwn);
        }
        self.send(state, &out);
        let goes = match judged {
            Ok(Judgement::Go(())) => true,
            Ok(Judgement::Waits(_)) => match (self.fault, deed) {
                (Fault::WaitsForNobody, Deed::Read | Deed::Write | Deed::Rename) => true,
                (Fault::AnswersARecallAtOnce, Deed::Recall(_)) => true,
                (Fault::RefusesAtOnce, Deed::Open(_)) => {
                    self.note_refused(state, m, who, deed);
                    return true;
                }
                _ => false,
            },
            Err(SharingViolation) => {
                self.note_refused(state, m, who, deed);
                return true;
            }
        };
        if goes {
            self.note_gone_on(state, m, who, deed);
        }
        goes
    }

    /// Looks at what the clients believe, and at their messages: the act is done now.
    fn note_gone_on(&self, state: &mut State, m: usize, who: Who, deed: Deed) {
        let has = |flags: Flags| {
            self.others(m, who).any(|other| {
                let client = &state.clients[other];
                client.believes(flags)
            })
        };
        let untold = |flags: Flags| {
            self.others(m, who).any(|other| {
                let client = &state.clients[other];
                client.believes(flags) && !client.is_told_to_drop(flags)
            })
        };
        let wrong = match deed {
            Deed::Open(Kind::Stat) => false,
            Deed::Open(kind) => {
                let voids = kind == Kind::Overwriting && untold(Flags::READ);
                has(Flags::WRITE) || voids || self.conflicts(state, m, who, kind).next().is_some()
            }
            Deed::Read => has(Flags::WRITE),
            Deed::Write => has(Flags::WRITE) || untold(Flags::READ),
            Deed::Rename => has(Flags::HANDLE),
            Deed::Recall(keep) => {
                let above = Flags::RWH.but(keep.of_lease());
                has(above.but(Flags::READ)) || untold(above)
            }
        };
        if wrong {
            state.wrong = Some(Wrong::WentOn);
        }
        if let (Deed::Recall(keep), machine) = (deed, &mut state.machines[m]) {
            machine.cover = machine.cover.and(keep.of_lease());
            if self.fault == Fault::ForgetsTheRecall {
                machine.object.extend_cover(Flags::RWH);
            }
        }
    }

    fn note_refused(&self, state: &mut State, m: usize, who: Who, deed: Deed) {
        let Deed::Open(kind) = deed else { unreachable!("no open: {deed:?}") };
        let in_the_way: SmallVec<[usize; 4]> = self.conflicts(state, m, who, kind).collect();
        let cached = |client: &usize| {
            self.others(m, who).any(|other| other == *client)
                && state.clients[*client].believes(Flags::HANDLE)
        };
        if in_the_way.is_empty() || in_the_way.iter().any(cached) {
            state.wrong = Some(Wrong::Refused);
        }
    }

    /// The clients whose opens exclude one of this kind, apart from the newest open of the actor.
    fn conflicts<'a>(
        &'a self,
        state: &'a State,
        m: usize,
        who: Who,
        kind: Kind,
    ) -> impl Iterator<Item = usize> + 'a {
        let excludes = move |it: Kind| {
            kind != Kind::Stat && it != Kind::Stat && (kind == Kind::Exclusive || it == Kind::Exclusive)
        };
        self.clients_at(m).filter(move |x| {
            let opens = state.clients[*x].opens.iter().flatten().copied();
            let own = Who::Client(*x) == who;
            opens.filter(|it| excludes(*it)).count() > usize::from(own && kind == Kind::Exclusive)
        })
    }

    fn send(&self, state: &mut State, out: &[Break]) {
        for it in out {
            let Some(x) = (0..self.clients.len()).find(|x| holder(self, *x) == it.holder) else { continue };
            let down = &mut state.clients[x].down;
            let sent = Down::Break { to: it.to, acknowledge: it.acknowledge, stale: false };
            match self.fault {
                Fault::LosesABreak if !it.acknowledge => {}
                Fault::BreakOvertakes => down.insert(0, sent),
                _ => down.push(sent),
            }
        }
    }

    /// Judges again what waits, in the order of arrival.
    fn judge_again(&self, state: &mut State, m: usize) {
        if self.fault == Fault::ForgetsWhoWaits {
            return;
        }
        for waiting in std::mem::take(&mut state.machines[m].queue) {
            if !self.judge(state, m, waiting, false) {
                state.machines[m].queue.push(waiting);
            }
        }
    }

    fn take(&self, state: &mut State, x: usize, keeps_all: bool) {
        let client = &mut state.clients[x];
        match client.down.remove(0) {
            Down::TooLate { stale } => {
                client.believes = Flags::NONE;
                client.is_lost &= stale;
            }
            Down::Granted { grant, stale } => {
                // During a break the break says what is left.
                if client.is_open() && !grant.is_breaking {
                    client.believes = grant.state;
                }
                client.is_lost &= stale;
            }
            Down::Break { to, acknowledge, stale } => {
                let keeps = if keeps_all { to } else { Flags::NONE };
                if self.fault != Fault::ClientWritesOn {
                    client.believes = client.believes.and(keeps);
                }
                if acknowledge {
                    client.up.push(Up { keeps, stale });
                }
            }
        }
    }

    fn acknowledge(&self, state: &mut State, x: usize) {
        let (m, up) = (self.machine_of(x), state.clients[x].up.remove(0));
        let (mut out, now) = (Vec::new(), state.machines[m].now());
        let taken = state.machines[m].object.acknowledge(now, holder(self, x), up.keeps, &mut out);
        match taken {
            Ok(kept) if !up.stale && kept == up.keeps => {}
            Err(_) if up.stale => state.clients[x].down.push(Down::TooLate { stale: false }),
            _ => state.wrong = Some(Wrong::Unexpected),
        }
        self.send(state, &out);
        self.judge_again(state, m);
    }

    fn close(&self, state: &mut State, x: usize, slot: usize) {
        let m = self.machine_of(x);
        let client = &mut state.clients[x];
        // The first slot is the one in use.
        client.opens[slot] = None;
        let mut close = open_id(x, slot);
        if slot == 0 && client.opens[1].is_some() {
            // Both opens are of one kind, so either may stay.
            close = open_id(x, 1);
            client.opens.swap(0, 1);
        }
        state.machines[m].object.close(close);
        if !client.is_open() {
            (client.believes, client.is_lost) = (Flags::NONE, false);
            client.make_stale();
        }
        self.judge_again(state, m);
    }

    fn expire(&self, state: &mut State, m: usize) {
        let Some(deadline) = state.machines[m].object.next_deadline() else { return };
        for gone in state.machines[m].object.expire(deadline) {
            if let Some(x) = self.clients_at(m).find(|x| holder(self, *x) == gone) {
                state.clients[x].make_stale();
                state.clients[x].is_lost = true;
            }
        }
        self.judge_again(state, m);
    }

    fn client_actions(&self, state: &State, x: usize, actions: &mut Vec<Action>) {
        let (client, m, who) = (&state.clients[x], self.machine_of(x), Who::Client(x));
        if !client.down.is_empty() {
            actions.push(Action::Down(x, true));
            if matches!(client.down[0], Down::Break { to, .. } if to != Flags::NONE) {
                actions.push(Action::Down(x, false));
            }
        }
        if !client.up.is_empty() {
            actions.push(Action::Up(x));
        }
        if state.waits(m, who) {
            actions.push(Action::Cancel(m, who));
            return;
        }
        let answered = !client.down.iter().any(|down| matches!(down, Down::Granted { .. }));
        let first = client.down.is_empty() && client.up.is_empty();
        let opens = client.opens.iter().flatten().count();
        if opens < self.opens && answered && (opens > 0 || first) {
            // A further open is of the kind of the first.
            let kinds = self.kinds.iter().filter(|kind| client.opens[0].is_none_or(|it| it == **kind));
            actions.extend(kinds.map(|kind| Action::Do(m, who, Deed::Open(*kind))));
        }
        if opens > 0 {
            actions.push(Action::Close(x, opens - 1));
            actions.extend([Deed::Write, Deed::Rename].map(|deed| Action::Do(m, who, deed)));
        }
    }

    fn machine_actions(&self, state: &State, m: usize, actions: &mut Vec<Action>) {
        let machine = &state.machines[m];
        if machine.object.next_deadline().is_some() {
            actions.push(Action::Expire(m));
        }
        if self.local {
            if state.waits(m, Who::Local) {
                actions.push(Action::Cancel(m, Who::Local));
            } else {
                actions.extend([Deed::Read, Deed::Write].map(|deed| Action::Do(m, Who::Local, deed)));
            }
        }
        if self.recalls && !state.waits(m, Who::Server) {
            let keeps = super::STATES.into_iter().filter(|keep| !keep.has(machine.cover));
            actions.extend(keeps.map(|keep| Action::Do(m, Who::Server, Deed::Recall(keep))));
            // Writing excludes other machines, and handles do not.
            let others = state.machines.iter().enumerate().filter(|(other, _)| *other != m);
            let taken = others.fold(Flags::NONE, |taken, (_, it)| taken.or(it.cover));
            let free = |flags: &Flags| {
                let excluded = flags.has(Flags::WRITE) && taken.has(Flags::READ);
                !machine.cover.has(*flags) && !excluded && !taken.has(Flags::WRITE)
            };
            actions.extend(super::STATES.into_iter().filter(free).map(|flags| Action::Extend(m, flags)));
        }
    }

    /// The machine whose acts that wait the step is about.
    fn machine_in(&self, action: Action) -> usize {
        match action {
            Action::Do(m, ..) | Action::Cancel(m, _) | Action::Expire(m) | Action::Extend(m, _) => m,
            Action::Close(x, _) | Action::Down(x, _) | Action::Up(x) => self.machine_of(x),
        }
    }
}

impl Model for System {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let cover = if self.recalls { Flags::NONE } else { Flags::RWH };
        let machine = Machine { object: Object::file(cover), cover, queue: SmallVec::new() };
        let machines = (0..self.machines).map(|_| machine.clone()).collect();
        vec![State { machines, clients: self.clients.iter().map(|_| Client::new()).collect(), wrong: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        (0..self.clients.len()).for_each(|x| self.client_actions(state, x, actions));
        (0..self.machines).for_each(|m| self.machine_actions(state, m, actions));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Do(m, who, deed) => {
                if !self.judge(&mut state, m, (who, deed), true) {
                    state.machines[m].queue.push((who, deed));
                }
            }
            Action::Cancel(m, who) => state.machines[m].queue.retain(|(it, _)| *it != who),
            Action::Close(x, slot) => self.close(&mut state, x, slot),
            Action::Down(x, keeps_all) => self.take(&mut state, x, keeps_all),
            Action::Up(x) => self.acknowledge(&mut state, x),
            Action::Expire(m) => self.expire(&mut state, m),
            Action::Extend(m, flags) => {
                let machine = &mut state.machines[m];
                machine.object.extend_cover(flags);
                machine.cover = machine.cover.or(flags);
            }
        }
        let m = self.machine_in(action);
        let first = |state: &State| state.machines[m].queue.first().copied();
        if first(before).is_some() && first(before) == first(&state) {
            let (was, is) = (before.flags_at(self, m), state.flags_at(self, m));
            let answers = match action {
                Action::Up(x) => !before.clients[x].up[0].stale,
                Action::Expire(_) => true,
                _ => false,
            };
            if is > was || (answers && is == was) {
                state.wrong.get_or_insert(Wrong::NotNearer);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<System>> {
        shown::properties()
    }
}
