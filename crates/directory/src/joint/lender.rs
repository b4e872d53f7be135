//! Lending fields to a joint operation, at each server that has files of it.
//!
//! A question for fields waits among the other requests, and what is in its way is recalled from
//! everybody. It waits for holders, and for older operations that wait themselves. It does not wait
//! for earlier requests of clients: one of those may wait for this same operation, and no age would
//! break that circle. Later requests wait behind it.
//!
//! A lender never takes anything back by itself. It knows the tries that are over, so that nothing
//! is lent or applied twice.

use super::{Lending, Standing, fields, joint_of, session_of};
use crate::requests::ask::may_be_leased;
use crate::requests::pending::{Asked, what_for};
use crate::requests::values::{Page, Room};
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Arrival, Field, Held, Kind, Lease, SessionId, WANTS_MAX};
use namespace::{Effect, Operation};
use std::collections::BTreeSet;
use wire::{AskMode, FileGrant, JointAge, JointId, JointStep};

impl Transaction<'_> {
    /// Makes the operation known here: from now on its session holds what is lent.
    pub(super) fn begin_lending(&mut self, op: JointId, age: JointAge) {
        let new = || Lending { age, files: BTreeSet::new() };
        self.state.server.joint.lending.entry(op).or_insert_with(new);
        self.files.live.insert(session_of(op));
    }

    /// Takes back everything that is lent to the operation, and forgets what it waits for.
    pub(super) fn end_lending(&mut self, op: JointId) {
        let (session, lending) = (session_of(op), self.state.server.joint.lending.remove(&op));
        self.state.region.pending.end_session(session);
        for file in lending.into_iter().flat_map(|lending| lending.files) {
            self.files.change_holdings(&file, |holdings| holdings.end(session));
            self.state.region.pending.wake(&file);
            self.clear_departed(&file);
            self.dispose_unless_open(&file);
        }
        self.files.end_session(session);
        self.ways_changed |= self.files.paths.end_moves(op);
    }

    /// Takes in a leader's question. One that is repeated is answered as before.
    pub(super) fn on_borrow(
        &mut self,
        op: JointId,
        age: JointAge,
        operation: Operation,
        (file, wants): (FileId, Vec<(Field, Kind)>),
        open_from: JointId,
    ) {
        self.state.server.joint.settled_of(op.leader()).all_below(open_from);
        let is_path = |wanted: &(Field, Kind)| *wanted == (Field::Path, Kind::Write);
        let may_be_lent = |(field, kind): &(Field, Kind)| may_be_leased(field, Some(*kind));
        let may_be_lent = |wanted: &(Field, Kind)| is_path(wanted) || may_be_lent(wanted);
        if self.state.server.joint.is_settled(op) || wants.len() > WANTS_MAX || !wants.iter().all(may_be_lent)
        {
            return;
        }
        if !self.files.regions.manage(&file) {
            return self.say_not_here(op, &file);
        }
        self.begin_lending(op, age);
        self.queue_borrow(op, operation, file, wants);
    }

    /// Lets the operation wait for these fields. A question that waits already keeps its place.
    pub(super) fn queue_borrow(
        &mut self,
        op: JointId,
        operation: Operation,
        file: FileId,
        wants: Vec<(Field, Kind)>,
    ) {
        let session = session_of(op);
        let lease = |(field, kind): (Field, Kind)| Lease::new(file.clone(), field, kind);
        let wants: Vec<Lease> = wants.into_iter().map(lease).collect();
        let pending = &mut self.state.region.pending;
        let same_file = |asked: &Asked| asked.wants.first().is_some_and(|want| want.file == file);
        let waiting: Vec<Arrival> = pending.queue.of_session(session).collect();
        let waiting = waiting.into_iter().find_map(|at| Some((at, pending.asked(at).filter(same_file)?)));
        let arrival = match waiting {
            Some((arrival, asked)) if asked.wants == wants => arrival,
            other => {
                if let Some((arrival, _)) = other {
                    pending.remove(arrival);
                }
                let (mode, since, ahead) = (AskMode::Lease, self.now, Some(0));
                pending.push(Asked { session, number: 0, operation, wants, mode, since, ahead })
            }
        };
        pending.wake_at(arrival);
    }

    /// Lends the fields, or lets the operation wait and recalls the leases in its way.
    pub fn serve_borrow(&mut self, arrival: Arrival, op: JointId) {
        while let Some(asked) = self.state.region.pending.asked(arrival) {
            let Some(file) = asked.wants.first().map(|want| want.file.clone()) else {
                return self.state.region.pending.remove(arrival);
            };
            if !self.files.regions.manage(&file) {
                self.state.region.pending.remove(arrival);
                return self.say_not_here(op, &file);
            }
            if self.files.record(&file).is_none() {
                self.state.region.pending.remove(arrival);
                return self.say_gone(op, &file);
            }
            self.state.region.pending.replace_wants(arrival, asked.wants.clone(), what_for(asked.mode));
            if self.files.regions.are_leaving(&file) {
                return;
            }
            if self.clear_first(&asked.wants) {
                continue;
            }
            let mut holders = self.in_the_way(&asked, &asked.wants);
            // A departed session's shield may rest on what is lent to this operation already.
            holders.retain(|(holder, _)| *holder != asked.session);
            let lapsed: Vec<SessionId> =
                holders.iter().map(|(holder, _)| *holder).filter(|holder| self.is_lapsed(*holder)).collect();
            if !lapsed.is_empty() {
                lapsed.into_iter().for_each(|holder| self.fence(holder, None));
                continue;
            }
            let mut waiting = self.state.region.pending.queue.waiting_on(&file).into_iter();
            if holders.is_empty() && waiting.any(|other| self.gives_way(op, &asked.wants, other)) {
                return;
            }
            if holders.is_empty() {
                self.lend(op, &file, &asked.wants);
                let moves = asked.wants.iter().any(|want| want.field == Field::Path);
                if moves && !self.may_move(op, &file) {
                    return;
                }
                self.state.region.pending.remove(arrival);
                return self.say_lent(op, file, &asked.wants);
            }
            let younger = holders.iter().filter_map(|(holder, _)| joint_of(*holder));
            let younger: BTreeSet<JointId> =
                younger.filter(|other| self.state.server.joint.is_older(op, *other)).collect();
            self.recall(holders);
            if !younger.into_iter().fold(false, |any, other| self.wound(other) | any) {
                return;
            }
        }
    }

    /// Whether the operation lets an older one go first, which waits for the same fields. Otherwise
    /// it could take them again and again, each time that it is wounded.
    fn gives_way(&self, op: JointId, wants: &[Lease], other: Arrival) -> bool {
        let Some(request) = self.state.region.pending.queue.get(other) else { return false };
        let is_older = joint_of(request.session).is_some_and(|it| self.state.server.joint.is_older(it, op));
        let conflicts = |want: &Lease| {
            let is_same = |theirs: &&Lease| theirs.file == want.file && theirs.field.overlaps(&want.field);
            request.wants.iter().filter(is_same).any(|theirs| !theirs.kind.agrees_with(want.kind))
        };
        is_older && wants.iter().any(conflicts)
    }

    /// Makes a younger operation give way; whether it has done so already.
    pub(crate) fn wound(&mut self, op: JointId) -> bool {
        let server = self.files.regions.server();
        if op.leader() != server {
            self.say_joint(op.leader(), op, JointStep::Wounded);
            return false;
        }
        self.on_wounded(server, op);
        !self.state.server.joint.lending.contains_key(&op)
    }

    /// Lends the fields. The path is no field of a row: see `may_move`.
    fn lend(&mut self, op: JointId, file: &FileId, wants: &[Lease]) {
        let wants = wants.iter().filter(|want| want.field != Field::Path);
        let fields: Vec<(Field, Kind)> = wants.map(|want| (want.field.clone(), want.kind)).collect();
        self.issue(session_of(op), file, false, &fields, &[]);
        if let Some(lending) = self.state.server.joint.lending.get_mut(&op) {
            lending.files.insert(file.clone());
        }
    }

    fn say_lent(&mut self, op: JointId, file: FileId, wants: &[Lease]) {
        let session = session_of(op);
        let server = self.files.regions.server();
        if op.leader() == server {
            return self.borrowed(server, op, &file, Standing::LentHere);
        }
        let fields: Vec<(Field, Kind)> = wants.iter().map(|want| (want.field.clone(), want.kind)).collect();
        let held: Held = self.files.holdings(&file).held(session).cloned().unwrap_or_default();
        let all = fields.iter().any(|(field, _)| *field == Field::Children);
        let page = all.then_some(Page { after: 0, limit: 1, contiguous: true });
        let values = self.files.values(&file, &fields, (session, &held), page, &mut Room::whole());
        let grant = FileGrant {
            file,
            whole: false,
            fields,
            excluded: Default::default(),
            excluded_xattrs: Default::default(),
            values,
        };
        self.say_joint(op.leader(), op, JointStep::Lent { grant });
    }

    fn say_gone(&mut self, op: JointId, file: &FileId) {
        let server = self.files.regions.server();
        match op.leader() == server {
            true => self.borrowed(server, op, file, Standing::Gone),
            false => self.say_joint(op.leader(), op, JointStep::Gone { file: file.clone() }),
        }
    }

    fn say_not_here(&mut self, op: JointId, file: &FileId) {
        let (here, server) = (self.files.regions.server(), self.files.regions.server_of(file));
        match op.leader() == here {
            true => self.on_not_here(here, op, file, server),
            false => {
                let file = file.clone();
                self.say_joint(op.leader(), op, JointStep::NotHere { file, server });
            }
        }
    }

    /// Applies the effects of a decided operation, once, and takes back what was lent.
    pub(super) fn on_settle(&mut self, op: JointId, effects: &[Effect], open_from: JointId) {
        let joint = &self.state.server.joint;
        if !joint.is_settled(op) {
            // No leader commits before everything is lent.
            if !effects.iter().all(|effect| self.may_settle(op, effect)) {
                return;
            }
            self.apply(session_of(op), false, effects);
            self.end_lending(op);
            self.state.server.joint.settled_of(op.leader()).others.insert(op);
        }
        self.state.server.joint.settled_of(op.leader()).all_below(open_from);
        self.say_joint(op.leader(), op, JointStep::Settled);
    }

    /// Whether what the effect changes is lent to the operation.
    fn may_settle(&self, op: JointId, effect: &Effect) -> bool {
        let is_lent = fields::changed_by(effect).is_some_and(|Lease { file, field, kind }| {
            self.files.holdings(&file).covers(session_of(op), &field, kind)
        });
        let moves = self.files.moved_directory(effect);
        is_lent && moves.is_none_or(|dir| self.files.paths.moved_by(dir) == Some(op))
    }

    /// Tries again what waits: an older operation may have to say once more that it does.
    pub(crate) fn continue_lending(&mut self) {
        let ops: Vec<JointId> = self.state.server.joint.lending.keys().copied().collect();
        for op in ops {
            self.state.region.pending.wake_session(session_of(op));
        }
    }
}
