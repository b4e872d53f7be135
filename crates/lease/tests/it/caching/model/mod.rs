//! A model of all that can happen between machines, their SMB clients and a server above, with
//! messages in flight.
//!
//! Each machine decides with the shipped [`Object`]. Around it is what the module says its caller
//! has to do, and channels that keep the order. A client may at any time open, close, write,
//! rename, sit on a message, keep less than it may, or let its time pass. The server recalls, and
//! it extends the cover where no other machine has what is in the way.
//!
//! Two rules keep the space small:
//! * A client opens when no earlier answer is in flight to it, and for the first time when nothing
//!   is. So an acknowledgment does not meet a lease that its client has closed and made anew.
//! * Time is the order of deadlines, and nothing else.

mod caller;
mod shown;
mod state;

pub use shown::{
    BELIEVES_WHAT_IS_SO, COVERED, ENDS, FLOWS, ONE_BREAK, OWN, RECALL_WAITS, REFUSED, WENT_ON, WRITES_ALONE,
};

use lease::caching::{CachingState as Flags, Object};
use smallvec::SmallVec;
use state::{Client, Deed, Down, Machine, State, Up, Who, Wrong, holder, open_id};
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
    Close(usize),
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

    /// Closes the newest open.
    fn close(&self, state: &mut State, x: usize) {
        let m = self.machine_of(x);
        let client = &mut state.clients[x];
        let Some(slot) = client.opens.iter().rposition(Option::is_some) else { return };
        client.opens[slot] = None;
        state.machines[m].object.close(open_id(x, slot));
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
            actions.push(Action::Close(x));
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
            Action::Close(x) | Action::Down(x, _) | Action::Up(x) => self.machine_of(x),
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
            Action::Close(x) => self.close(&mut state, x),
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
