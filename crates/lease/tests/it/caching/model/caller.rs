//! The caller of the object: it does what an act is judged to be, sends breaks, and judges again
//! what waits. The faults are here. So is the look at each act that goes on, or is refused.

use super::state::{Deed, Down, State, Who, Wrong, holder, lease_id, open_id};
use super::{Fault, Kind, System};
use crate::caching::{exclusive, overwriting, plain, stat};
use lease::caching::{
    Act, Actor, Asks, Break, CachingState as Flags, Judgement, LeaseVersion, Opening, SharingViolation,
};
use smallvec::SmallVec;

impl System {
    fn opening(&self, client: usize, kind: Kind) -> Opening {
        let asks = |state| Asks::Lease { lease: lease_id(self, client), state, version: LeaseVersion::V1 };
        match kind {
            Kind::Plain => plain(asks(Flags::RWH)),
            Kind::Exclusive => exclusive(asks(Flags::RW)),
            Kind::Overwriting => overwriting(asks(Flags::RH)),
            Kind::Stat => stat(asks(Flags::RWH)),
        }
    }

    /// Judges the act. Returns whether it is over.
    pub(super) fn judge(
        &self,
        state: &mut State,
        m: usize,
        (who, deed): (Who, Deed),
        is_first: bool,
    ) -> bool {
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
        let waits = matches!(judged, Ok(Judgement::Waits(_)));
        let refused = judged.is_err() || (waits && self.fault == Fault::RefusesAtOnce);
        if let (Deed::Open(kind), true) = (deed, refused) {
            self.note_refused(state, m, who, kind);
            return true;
        }
        let goes_anyway = match deed {
            Deed::Open(_) => false,
            Deed::Recall(_) => self.fault == Fault::AnswersARecallAtOnce,
            Deed::Read | Deed::Write | Deed::Rename => self.fault == Fault::WaitsForNobody,
        };
        let goes = !waits || goes_anyway;
        if goes {
            self.note_gone_on(state, m, who, deed);
        }
        goes
    }

    /// Looks at what the clients believe, and at their messages: the act is done now.
    fn note_gone_on(&self, state: &mut State, m: usize, who: Who, deed: Deed) {
        let others = || self.others(m, who).map(|other| &state.clients[other]);
        let has = |flags: Flags| others().any(|client| client.believes(flags));
        let untold =
            |flags: Flags| others().any(|client| client.believes(flags) && !client.is_told_to_drop(flags));
        let wrong = match deed {
            Deed::Open(Kind::Stat) => false,
            Deed::Open(kind) => {
                let voids = kind == Kind::Overwriting && untold(Flags::READ);
                has(Flags::WRITE) || voids || self.conflicts(state, m, kind, Some(who)).next().is_some()
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

    fn note_refused(&self, state: &mut State, m: usize, who: Who, kind: Kind) {
        let in_the_way: SmallVec<[usize; 4]> = self.conflicts(state, m, kind, None).collect();
        let cached = |client: &usize| {
            self.others(m, who).any(|other| other == *client)
                && state.clients[*client].believes(Flags::HANDLE)
        };
        if in_the_way.is_empty() || in_the_way.iter().any(cached) {
            state.wrong = Some(Wrong::Refused);
        }
    }

    /// The clients whose opens exclude one of this kind, which is open already if it has an actor.
    fn conflicts(
        &self,
        state: &State,
        m: usize,
        kind: Kind,
        open: Option<Who>,
    ) -> impl Iterator<Item = usize> {
        let excludes = move |it: Kind| {
            kind != Kind::Stat && it != Kind::Stat && (kind == Kind::Exclusive || it == Kind::Exclusive)
        };
        self.clients_at(m).filter(move |x| {
            let opens = state.clients[*x].opens.iter().flatten();
            let itself = open == Some(Who::Client(*x)) && kind == Kind::Exclusive;
            opens.filter(|it| excludes(**it)).count() > usize::from(itself)
        })
    }

    pub(super) fn send(&self, state: &mut State, out: &[Break]) {
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
    pub(super) fn judge_again(&self, state: &mut State, m: usize) {
        if self.fault == Fault::ForgetsWhoWaits {
            return;
        }
        for waiting in std::mem::take(&mut state.machines[m].queue) {
            if !self.judge(state, m, waiting, false) {
                state.machines[m].queue.push(waiting);
            }
        }
    }
}
