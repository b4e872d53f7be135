//! Leading a joint operation.
//!
//! 1. Gathering: each server concerned is asked for the fields of its files, this one too. With
//!    what is lent the operation is decided, which may show that more is needed.
//! 2. One entry decides. It applies the effects on this server's files, and keeps those on others'.
//!    A refused operation, one that takes too long, and one that is wounded has no effects.
//! 3. Settling: each server that was asked for anything is told the effects on its files, until it
//!    has confirmed.

use super::gathered::{Gathered, covers};
use super::{Borrowed, Leading, Stage, Standing, fields, session_of};
use crate::paths::WayUp;
use crate::requests::authority::{Authority, Replay};
use crate::requests::pending::Asked;
use crate::sessions::session::Shipped;
use crate::transaction::{SERVER, Transaction};
use ident::{FileId, ServerId};
use lease::{Arrival, Field, Kind, Lease, SessionId};
use namespace::{Answer, Effect, Effects, Error, Knowledge, Known, Operation, Verdict, decide, operation};
use std::collections::{BTreeMap, BTreeSet};
use wire::{FileGrant, JointAge, JointId, JointStep, ToClient};

/// The time after which an operation that still gathers is given up, ms. Less than calls wait.
const TOO_LATE_MS: u64 = 60_000;

impl Transaction<'_> {
    /// Leads the operation of a request whose decision needs files of other servers.
    pub fn lead_jointly(&mut self, arrival: Arrival, asked: Asked) {
        self.state.region.pending.remove(arrival);
        let Asked { session: asker, number, operation, since, .. } = asked;
        if let Operation::Rename(operation::Rename { from_dir, whiteout: Some(_), .. }) = &operation
            && !self.files.regions.manage(from_dir)
        {
            // Only the directory's own server can give the new file its numbers.
            return self.answer_shipped(asker, number, Err(Error::NotSupported));
        }
        let age = JointAge { since, first: self.state.server.joint.next };
        self.try_jointly(asker, number, operation, age);
    }

    fn try_jointly(&mut self, asker: SessionId, number: u64, operation: Operation, age: JointAge) {
        let op = self.state.server.joint.next;
        self.state.server.joint.next = JointId(op.0 + 1);
        let named = fields::of_named(&operation);
        let stage = Stage::Gathering { files: BTreeMap::new(), asked: BTreeSet::new() };
        let leading = Leading { asker, number, operation, age, stage };
        self.state.server.joint.leading.insert(op, leading);
        self.begin_lending(op, age);
        self.borrow(op, named);
    }

    /// Asks for these leases, as far as they are not asked for. Whether any is not.
    fn borrow(&mut self, op: JointId, wants: Vec<Lease>) -> bool {
        let servers: Vec<ServerId> = wants.iter().map(|want| self.asked_first(&want.file)).collect();
        let Some(leading) = self.state.server.joint.leading.get_mut(&op) else { return false };
        let Stage::Gathering { files, .. } = &mut leading.stage else { return false };
        let named: BTreeSet<&FileId> = leading.operation.files().into_iter().collect();
        let mut more: BTreeSet<FileId> = BTreeSet::new();
        for (Lease { file, field, kind }, server) in wants.into_iter().zip(servers) {
            let is_new = !files.contains_key(&file);
            let borrowed = files.entry(file.clone()).or_insert_with(|| Borrowed {
                server,
                wants: BTreeMap::new(),
                standing: Standing::Waits,
            });
            let found = if is_new && !named.contains(&file) {
                fields::of_found(&leading.operation, &field)
            } else {
                &[]
            };
            let wants = found.iter().cloned().chain([(field, kind)]);
            if wants.fold(false, |any, (field, kind)| borrowed.wants(field, kind) | any) {
                borrowed.standing = Standing::Waits;
                more.insert(file);
            }
        }
        more.iter().for_each(|file| self.ask_to_lend(op, file));
        !more.is_empty()
    }

    /// The server that is asked about a file first.
    pub(crate) fn asked_first(&self, file: &FileId) -> ServerId {
        let hint = self.state.server.joint.whereabouts(file);
        let (known, here) = (self.files.regions.server_of(file), self.files.regions.server());
        if known == here { known } else { hint.filter(|hint| *hint != here).unwrap_or(known) }
    }

    /// Asks the server of the file for what the operation needs of it.
    fn ask_to_lend(&mut self, op: JointId, file: &FileId) {
        let server = self.files.regions.server();
        let open_from = self.state.server.joint.open_from();
        let Some(Leading { operation, age, stage, .. }) = self.state.server.joint.leading.get_mut(&op) else {
            return;
        };
        let Stage::Gathering { files, asked } = stage else { return };
        let Some(borrowed) = files.get_mut(file) else { return };
        if self.files.regions.manage(file) {
            borrowed.server = server;
        } else if borrowed.server == server {
            borrowed.server = self.files.regions.server_of(file);
        }
        let (to, file, operation) = (borrowed.server, file.clone(), operation.clone());
        let wants: Vec<(Field, Kind)> =
            borrowed.wants.iter().map(|(field, kind)| (field.clone(), *kind)).collect();
        if to == server {
            return self.queue_borrow(op, operation, file, wants);
        }
        asked.insert(to);
        let age = *age;
        self.say_joint(to, op, JointStep::Borrow { age, operation, file, wants, open_from });
    }

    /// Takes in that fields are lent. An answer to an earlier question may lack some.
    pub(super) fn on_lent(&mut self, from: ServerId, op: JointId, grant: FileGrant) {
        let Some(borrowed) = self.state.server.joint.waiting_for(from, op, &grant.file) else {
            return self.settle_again(from, op);
        };
        if borrowed.wants.iter().all(|(field, kind)| covers(&grant, field, *kind)) {
            borrowed.standing = Standing::Lent(Box::new(grant));
            self.decide_jointly(op);
        }
    }

    /// Takes in that a file is gone, or that this server has lent fields of its own.
    pub(super) fn borrowed(&mut self, from: ServerId, op: JointId, file: &FileId, standing: Standing) {
        if let Some(borrowed) = self.state.server.joint.waiting_for(from, op, file) {
            borrowed.standing = standing;
            self.decide_jointly(op);
        }
    }

    pub(super) fn on_gone(&mut self, from: ServerId, op: JointId, file: &FileId) {
        self.borrowed(from, op, file, Standing::Gone);
    }

    /// Asks the server that has the file. If that is no longer this one's directory, the client has
    /// to ask there.
    pub(super) fn on_not_here(&mut self, from: ServerId, op: JointId, file: &FileId, server: ServerId) {
        let Some(borrowed) = self.state.server.joint.waiting_for(from, op, file) else { return };
        borrowed.server = server;
        self.state.server.joint.is_at(file, server);
        let Some(Leading { operation, number, .. }) = self.state.server.joint.leading.get(&op) else {
            return;
        };
        if operation.leading_file() == file
            && let Some(elsewhere) = self.files.regions.elsewhere(*number, file)
        {
            let Some(Leading { asker, .. }) = self.give_up(op) else { return };
            if asker != SERVER {
                self.send(asker, elsewhere);
            }
            return;
        }
        self.ask_to_lend(op, file);
    }

    /// Decides, once everything that was asked for is lent.
    fn decide_jointly(&mut self, op: JointId) {
        let Some(Leading { operation, stage: Stage::Gathering { files, .. }, .. }) =
            self.state.server.joint.leading.get(&op)
        else {
            return;
        };
        if files.values().any(|borrowed| borrowed.standing == Standing::Waits) {
            return;
        }
        let authority = Authority { files: &self.files, session: session_of(op), for_itself: false };
        let gathered = Gathered { own: Replay { authority }, files };
        let (mut moved, mut blocked) = (Vec::new(), Vec::new());
        for (dir, into) in fields::moves(operation, &gathered) {
            match gathered.is_above(&dir, &into) {
                Known::Used(false) => moved.push(Lease::new(dir, Field::Path, Kind::Write)),
                // In itself, or in a directory that is gone: it stays.
                Known::Used(true) | Known::Unused => {}
                Known::Unknown => blocked.push(into),
            }
        }
        match (decide(operation, &gathered), blocked.first()) {
            (Verdict::Refused { error, .. }, _) => self.refuse_jointly(op, error),
            // The way up is found before anything of the directory is borrowed. So a loop is found
            // before the operation stands in its own way.
            (_, Some(into)) => self.look_up(op, into),
            (Verdict::Done { answer, effects }, None) => {
                if !self.borrow(op, moved) {
                    self.commit(op, answer, effects);
                }
            }
            (Verdict::Unknown { wants }, None) => {
                if !self.borrow(op, wants.into_iter().chain(moved).collect()) {
                    // All of it is lent, and a value does not fit into a message.
                    self.refuse_jointly(op, Error::NotSupported);
                }
            }
        }
    }

    /// Finds out what is above `dir`, or has younger operations make way that may change that.
    fn look_up(&mut self, op: JointId, dir: &FileId) {
        let Some(age) = self.state.server.joint.age_of(op) else { return };
        let paths = &self.files.paths;
        match self.files.climb(dir, |at| paths.is_moved_by_another(at, Some(op))) {
            WayUp::Stopped(at) => {
                if self.asks_to_give_way(&at, age).is_continue() {
                    self.decide_jointly(op);
                }
            }
            WayUp::Elsewhere(other) => self.ask_path(other, Some(age)),
            WayUp::Root | WayUp::Held(_) | WayUp::Nameless(_) | WayUp::Endless => {}
        }
    }

    /// Decides the operations to which everything is lent: ways to the root have changed.
    pub fn decide_waiting(&mut self) {
        let ops: Vec<JointId> = self.state.server.joint.leading.keys().copied().collect();
        ops.into_iter().for_each(|op| self.decide_jointly(op));
    }

    /// The operation succeeds: from this entry on it has happened, at all servers.
    fn commit(&mut self, op: JointId, answer: Answer, effects: Effects) {
        let Some(Leading { asker, number, operation, stage, .. }) =
            self.state.server.joint.leading.get(&op).cloned()
        else {
            return;
        };
        let Stage::Gathering { files, asked } = stage else { return };
        if let Err(error) = self.may_commit(asker, &operation, &effects) {
            return self.refuse_jointly(op, error);
        }
        let mut left: BTreeMap<ServerId, Vec<Effect>> =
            asked.into_iter().map(|server| (server, Vec::new())).collect();
        let mut own = Vec::new();
        for effect in &effects {
            let file = fields::changed_by(effect).map(|lease| lease.file);
            let lender = file.and_then(|file| files.get(&file)).map(|borrowed| borrowed.server);
            match lender.and_then(|server| left.get_mut(&server)) {
                Some(theirs) => theirs.push(effect.clone()),
                None => own.push(effect.clone()),
            }
        }
        self.is_decided(op, left);
        self.carry_out(asker, &operation, &own);
        self.end_gathering(op);
        if let Operation::SetDisposition(operation::SetDisposition { file, .. }) = &operation {
            self.dispose_unless_open(file);
        }
        self.answer_shipped(asker, number, Ok((answer, effects.into_vec())));
    }

    fn may_commit(
        &mut self,
        asker: SessionId,
        operation: &Operation,
        effects: &[Effect],
    ) -> Result<(), Error> {
        self.may_be_done(operation)?;
        self.refusal_of_effects(asker, effects).map_or(Ok(()), Err)?;
        self.state.server.sessions.spend_unclaimed(wire::cost(operation).0)
    }

    fn refuse_jointly(&mut self, op: JointId, error: Error) {
        if let Some(Leading { asker, number, .. }) = self.give_up(op) {
            self.answer_shipped(asker, number, Err(error));
        }
    }

    /// Ends an undecided operation without effects, and returns it.
    fn give_up(&mut self, op: JointId) -> Option<Leading> {
        let leading = self.state.server.joint.leading.get(&op)?.clone();
        let Stage::Gathering { asked, .. } = &leading.stage else { return None };
        self.is_decided(op, asked.iter().map(|server| (*server, Vec::new())).collect());
        self.end_gathering(op);
        Some(leading)
    }

    fn is_decided(&mut self, op: JointId, left: BTreeMap<ServerId, Vec<Effect>>) {
        if let Some(leading) = self.state.server.joint.leading.get_mut(&op) {
            leading.stage = Stage::Settling { left };
        }
    }

    /// Takes back what this server has lent, and tells the others.
    fn end_gathering(&mut self, op: JointId) {
        self.end_lending(op);
        self.settle(op);
    }

    /// Tells the servers that have yet to confirm; forgets the operation when there is none.
    fn settle(&mut self, op: JointId) {
        let Some(Leading { stage: Stage::Settling { left }, .. }) = self.state.server.joint.leading.get(&op)
        else {
            return;
        };
        if left.is_empty() {
            self.state.server.joint.leading.remove(&op);
            return;
        }
        let open_from = self.state.server.joint.open_from();
        for (to, effects) in left.clone() {
            self.say_joint(to, op, JointStep::Settle { effects, open_from });
        }
    }

    /// Answers a server that has lent something too late.
    fn settle_again(&mut self, from: ServerId, op: JointId) {
        let joint = &self.state.server.joint;
        let open_from = joint.open_from();
        let effects = match joint.leading.get(&op).map(|leading| &leading.stage) {
            Some(Stage::Settling { left }) => left.get(&from).cloned(),
            Some(Stage::Gathering { .. }) => None,
            None => (op < joint.next).then(Vec::new),
        };
        if let Some(effects) = effects {
            self.say_joint(from, op, JointStep::Settle { effects, open_from: open_from.min(op) });
        }
    }

    pub(super) fn on_settled(&mut self, from: ServerId, op: JointId) {
        if let Some(Leading { stage: Stage::Settling { left }, .. }) =
            self.state.server.joint.leading.get_mut(&op)
            && left.remove(&from).is_some()
            && left.is_empty()
        {
            self.state.server.joint.leading.remove(&op);
        }
    }

    /// An older operation waits for what this one has borrowed of `from`. This one begins anew,
    /// with its age, so that it becomes the oldest one day.
    pub(super) fn on_wounded(&mut self, from: ServerId, op: JointId) {
        let is_lender = |borrowed: &Borrowed| borrowed.server == from;
        let files = self.state.server.joint.gathering(op);
        if !files.is_some_and(|files| files.values().any(is_lender)) {
            return;
        }
        if let Some(Leading { asker, number, operation, age, .. }) = self.give_up(op) {
            self.try_jointly(asker, number, operation, age);
        }
    }

    /// Gives up the undecided operations of `session`, which is over.
    pub fn end_asker(&mut self, session: SessionId) {
        let leading = self.state.server.joint.leading.iter();
        let its: Vec<JointId> = leading.filter(|(_, it)| it.asker == session).map(|(op, _)| *op).collect();
        for op in its {
            _ = self.give_up(op);
        }
    }

    /// Asks again, tells again, and gives up what takes too long.
    pub(super) fn continue_leading(&mut self) {
        let led = self.state.server.led;
        for (op, leading) in self.state.server.joint.leading.clone() {
            match leading.stage {
                Stage::Settling { .. } => self.settle(op),
                Stage::Gathering { .. } if self.now.ms_since(leading.age.since.max(led)) > TOO_LATE_MS => {
                    self.refuse_jointly(op, Error::CutOff);
                }
                Stage::Gathering { files, .. } => {
                    let waits = files.iter().filter(|(_, borrowed)| borrowed.standing == Standing::Waits);
                    waits.for_each(|(file, _)| self.ask_to_lend(op, file));
                    self.decide_jointly(op);
                }
            }
        }
    }

    /// Remembers the result of a shipped operation, and tells the asker.
    pub fn answer_shipped(&mut self, session: SessionId, number: u64, result: Shipped) {
        if session == SERVER {
            // A file that is not gone may have to go after all, at another try.
            return if result == Err(Error::CutOff) {
                self.look_for_the_doomed()
            };
        }
        if let Some(known) = self.state.server.sessions.all.get_mut(&session) {
            known.remember(number, result.clone());
            self.send(session, ToClient::Shipped { number, result });
        }
    }
}
