//! Requests: the leases that they need, the leases in their way, and their execution once none is
//! (Farsite §7.2.1: first come, first served).

use crate::joint::joint_of;
use crate::requests::authority::Authority;
use crate::requests::contention::CROWDED;
use crate::requests::pending::{Asked, to_recall, what_for};
use crate::sessions::departed_sessions::files_of_the_departed;
use crate::sessions::session::Misdeed;
use crate::transaction::{SERVER, Transaction};
use ident::FileId;
use lease::{
    Arrival, Field, InTheWay, Kind, Lease, REQUESTS_MAX, Released, RequestKind, SessionId, WANTS_MAX,
};
use namespace::{Answer, Effects, Error, FileKind, Operation, Traced, Verdict, decide, fold, operation};
use std::collections::BTreeMap;
use wire::{AskMode, ToClient};

/// The leases that holders have to release before a request can be done.
type Holders = Vec<(SessionId, Released)>;

/// The result of deciding a request.
pub(crate) struct Found {
    verdict: Verdict,
    pub needs: Vec<Lease>,
    /// Files that the request concerns and that no longer exist.
    gone: Vec<FileId>,
}

impl Transaction<'_> {
    /// Takes in a request.
    pub fn on_ask(&mut self, asked: Asked) -> Result<(), Misdeed> {
        if self.is_asked_again(&asked) {
            return Ok(());
        }
        self.will_acknowledge(asked.session);
        if asked.wants.len() > WANTS_MAX {
            return Err(Misdeed::TooManyWants);
        }
        if self.open_requests(asked.session) >= REQUESTS_MAX {
            return Err(Misdeed::TooManyRequests);
        }
        if self.is_elsewhere(&asked) || !self.waits_for_ways(&asked) && self.is_refused(&asked) {
            return Ok(());
        }
        let operation = match asked.mode {
            AskMode::Ship => self.renumber(found_out(asked.operation)),
            AskMode::Lease
            | AskMode::Page { .. }
            | AskMode::Report
            | AskMode::LeaseOrReport
            | AskMode::LeaseIfFree
            | AskMode::Values => asked.operation,
        };
        let arrival = self.state.region.pending.push(Asked { operation, ..asked });
        self.serve(arrival);
        Ok(())
    }

    /// Lets the coming answer acknowledge the session's log. Departs from Farsite §6, where
    /// recipients need not draw inferences, because a ping-pong lease then takes one message less
    /// each way. Both sides go by one rule, and the simulation compares their results.
    ///
    /// The answer tells how far the log has come, since the client knows how far the log was when
    /// it asked. This does not work if another answer may come first, to a request made before some
    /// part of that log.
    fn will_acknowledge(&mut self, session: SessionId) {
        if self.open_requests(session) == 0 {
            self.promised |= self.state.server.sessions.owed.remove(&session);
        }
    }

    /// The requests of `session` that have no answer yet.
    fn open_requests(&self, session: SessionId) -> usize {
        self.state.region.pending.queue.of_session(session).len() + self.state.server.joint.count_of(session)
    }

    /// Whether the request is known already. It still waits and is answered in its turn, or it was
    /// done and is answered once more. A client repeats its requests over a new connection, since
    /// it cannot know their fate.
    fn is_asked_again(&mut self, asked: &Asked) -> bool {
        let Asked { session, number, mode, .. } = asked;
        if self.state.region.pending.is_waiting(*session, *number)
            || self.state.server.joint.is_asked(*session, *number)
        {
            return true;
        }
        let known = self.state.server.sessions.all.get(session).filter(|_| *mode == AskMode::Ship);
        let Some(result) = known.and_then(|known| known.shipped_as(*number)).cloned() else { return false };
        self.send(*session, ToClient::Shipped { number: *number, result });
        true
    }

    /// Whether the asker's machine has no right to the request; if so, sends the refusal.
    fn is_refused(&mut self, asked: &Asked) -> bool {
        let Asked { session, number, operation, wants, mode, .. } = asked;
        let Some(error) = self.refusal(*session, operation, wants, *mode) else { return false };
        self.send(*session, ToClient::Shipped { number: *number, result: Err(error) });
        true
    }

    /// Whether another server manages the file that the request is about; if so, tells the asker
    /// where. So it is with the files whose leases are wanted; of a shipped operation these are
    /// only files that the asker doubts.
    fn is_elsewhere(&mut self, asked: &Asked) -> bool {
        let is_wanted = asked.mode != AskMode::Ship;
        let wanted = asked.wants.iter().filter(|_| is_wanted).map(|want| &want.file);
        let mut files = std::iter::once(asked.operation.leading_file()).chain(wanted);
        let Some(elsewhere) = files.find_map(|file| self.files.regions.elsewhere(asked.number, file)) else {
            return false;
        };
        if asked.session != SERVER {
            self.send(asked.session, elsewhere);
        }
        true
    }

    /// Whether the request has to wait until a region has gone to another server, or stays.
    ///
    /// An operation that the server does itself grants nothing, so it waits only while the rows go
    /// over. Trap: a program may keep a directory locked in its kernel until the operation is done,
    /// and the region may wait for what that kernel knows of the directory.
    fn waits_for_region(&self, asked: &Asked, needs: &[Lease]) -> bool {
        let regions = &self.files.regions;
        let waits = |file: &FileId| match asked.mode {
            AskMode::Ship => regions.are_copying(file),
            _ => regions.are_leaving(file),
        };
        asked.operation.files().into_iter().any(waits) || needs.iter().any(|need| waits(&need.file))
    }

    /// Asks for an operation on the server's own behalf. The request queues like any other, and its
    /// result is sent to no client. There is at most one for each file; requests beyond the bound
    /// are found again when there is room.
    pub fn ask_itself(&mut self, file: &FileId, operation: Operation) {
        let queue = &self.state.region.pending.queue;
        let asked = |arrival: &Arrival| queue.get(*arrival).is_some_and(|request| request.session == SERVER);
        let is_asked =
            queue.waiting_on(file).iter().any(asked) || self.state.server.joint.is_asked_about(SERVER, file);
        if is_asked || queue.of_session(SERVER).len() >= REQUESTS_MAX {
            return;
        }
        let (session, number, wants, mode, since) = (SERVER, 0, Vec::new(), AskMode::Ship, self.now);
        let arrival = self.state.region.pending.push(Asked {
            session,
            number,
            operation,
            wants,
            mode,
            since,
            ahead: None,
        });
        self.serve(arrival);
    }

    /// Tries again the requests that this turn's changes may concern, in the order of arrival.
    pub fn serve_woken(&mut self) {
        while let Some(arrival) = self.state.region.pending.next_woken() {
            self.serve(arrival);
        }
    }

    /// Does the request, or lets it wait in its place and recalls the leases in its way.
    fn serve(&mut self, arrival: Arrival) {
        while let Some(asked) = self.state.region.pending.asked(arrival) {
            if let Some(op) = joint_of(asked.session) {
                return self.serve_borrow(arrival, op);
            }
            // Since the request came, its file may have gone to another server, or out of the
            // subtree.
            if self.is_elsewhere(&asked) {
                return self.state.region.pending.remove(arrival);
            }
            if self.waits_for_ways(&asked) {
                return;
            }
            if self.is_refused(&asked) {
                return self.state.region.pending.remove(arrival);
            }
            let mut found = self.find(&asked);
            if self.waits_for_region(&asked, &found.needs) {
                // A request for leases keeps its place, and meanwhile it is in the way of no
                // operation that need not wait.
                let wants = if asked.mode == AskMode::Ship { found.needs } else { Vec::new() };
                return self.state.region.pending.replace_wants(arrival, wants, what_for(asked.mode));
            }
            let is_joint = || self.spans_servers(&found.verdict) || self.moves_a_known_way(&found.verdict);
            if asked.mode == AskMode::Ship && is_joint() {
                return self.lead_jointly(arrival, asked);
            }
            let mut asked = self.lease_or_report(asked, &mut found);
            if asked.ahead.is_none() {
                let files = self.step_of_walk(&asked, &found.needs);
                self.state.region.pending.takes_ahead(arrival, files);
                asked.ahead = Some(files);
            }
            if self.clear_first(&found.needs) {
                continue;
            }
            let holders = self.in_the_way(&asked, &found.needs);
            let lockers = self.lockers(asked.session, &found.needs);
            let holders_and_lockers = holders.iter().map(|(holder, _)| *holder).chain(lockers);
            let lapsed: Vec<SessionId> =
                holders_and_lockers.filter(|holder| self.is_lapsed(*holder)).collect();
            if !lapsed.is_empty() {
                // A silent session keeps its leases until a request needs them: now.
                lapsed.into_iter().for_each(|holder| self.fence(holder, None));
                continue;
            }
            let is_lent = holders.iter().any(|(holder, _)| joint_of(*holder).is_some());
            // Nobody can flush a lent field: a report of it waits in its turn.
            let what = if is_lent { RequestKind::Lease } else { what_for(asked.mode) };
            self.state.region.pending.replace_wants(arrival, found.needs.clone(), what);
            let waits = match asked.mode {
                AskMode::Report if is_lent => true,
                AskMode::Report => {
                    self.ask_to_flush(arrival, holders);
                    self.state.region.pending.queue.flushes.is_waiting(arrival)
                }
                _ => {
                    let waits =
                        !holders.is_empty() || self.state.region.pending.queue.blocked_by_earlier(arrival);
                    let ahead = self.recalls_ahead(&asked, &found.needs, &holders);
                    self.recall_with(asked.session, holders, ahead);
                    waits
                }
            };
            if !waits {
                self.state.region.pending.remove(arrival);
                self.fulfil(&asked, found);
            }
            return;
        }
    }

    /// Decides on the authoritative state which leases the request rests on: the proof of success,
    /// or one counterexample.
    fn find(&self, request: &Asked) -> Found {
        let for_itself = request.mode == AskMode::Ship;
        let authority = Authority { files: &self.files, session: request.session, for_itself };
        let traced = Traced::new(&authority);
        let verdict = decide(&request.operation, &traced);
        let mut opens = None;
        if let (Operation::Lookup { .. }, Verdict::Done { answer: Answer::Entry(entry), .. }) =
            (&request.operation, &verdict)
        {
            // A client that looks a name up also learns what stat shows of the file, and comes back
            // for the file. So no other session removes the file in between without asking whether
            // it is open. All of it is granted at one time. Otherwise a client that replaces the
            // file again and again would keep others from ever finding it.
            decide(&Operation::Stat(operation::Stat { file: entry.file.clone() }), &traced);
            let handle = || Lease::new(entry.file.clone(), Field::Handles, Kind::Touch);
            opens = (entry.kind != FileKind::Directory).then(handle);
        }
        let mut leases = match &verdict {
            Verdict::Refused { evidence, .. } => evidence.clone(),
            Verdict::Done { .. } | Verdict::Unknown { .. } => traced.into_leases(),
        };
        let refused = matches!(verdict, Verdict::Refused { .. });
        if !refused && request.mode != AskMode::Ship {
            leases.extend(request.wants.iter().cloned());
        }
        leases.extend(opens);
        let mut strongest: BTreeMap<(FileId, Field), Kind> = BTreeMap::new();
        let mut gone = Vec::new();
        for lease in leases {
            let file = lease.file.clone();
            let Some(lease) = self.within_rights(request.session, lease) else {
                // For this machine such a file never existed. A file that the machine did not name
                // is not mentioned to it.
                if request.wants.iter().any(|want| want.file == file) && !gone.contains(&file) {
                    gone.push(file);
                }
                continue;
            };
            if !self.files.regions.manage(&lease.file) {
                // The client asks the file's server for it.
                continue;
            }
            if self.files.record(&lease.file).is_none() {
                if !gone.contains(&lease.file) {
                    gone.push(lease.file);
                }
                continue;
            }
            // A black box has no value to report: each holder has only its own.
            let only_values = matches!(request.mode, AskMode::Report | AskMode::Values);
            let told = !only_values || !lease.field.is_black_box();
            if !told || !may_be_leased(&lease.field, Some(lease.kind)) {
                continue;
            }
            let kind = if only_values { Kind::Read } else { lease.kind };
            let known = strongest.entry((lease.file, lease.field)).or_insert(kind);
            *known = known.and(kind);
        }
        let needs = strongest.into_iter().map(|((file, field), kind)| Lease { file, field, kind }).collect();
        let needs = match request.mode {
            AskMode::Report => needs,
            _ => self.policy.granularity.rounded(needs),
        };
        Found { verdict, needs, gone }
    }

    /// The leases of others that conflict with the needs.
    pub fn in_the_way(&self, asked: &Asked, needs: &[Lease]) -> Holders {
        let mut holders = Holders::new();
        for need in needs {
            let holdings = self.files.holdings(&need.file);
            let in_the_way = match asked.mode {
                AskMode::Ship if need.field.is_black_box() => {
                    holdings.anybody(&need.field).err().unwrap_or_default()
                }
                _ => {
                    let granularity = self.policy.granularity;
                    granularity.in_the_way(&holdings, asked.session, &need.field, need.kind)
                }
            };
            let wholly = need.field == Field::Locks && is_for_locking(&asked.operation);
            let is_told = |it: &InTheWay| {
                asked.mode == AskMode::Report && self.is_written_through(&need.file, &it.field, it.session)
            };
            let in_the_way = in_the_way.into_iter().filter(|it| !is_told(it));
            let in_the_way = in_the_way.map(|it| InTheWay { keep: it.keep.filter(|_| !wholly), ..it });
            holders.extend(self.crowded(&need.file, to_recall(&need.file, in_the_way)));
        }
        for file in files_of_the_departed(needs) {
            // The end of a session goes before all requests: see `fade`.
            holders.extend(self.resting_on_the_departed(file));
        }
        holders.extend(self.unknown_to(asked, needs));
        holders
    }

    /// The leases that the asker itself holds on files that the server is to change for it, without
    /// the asker knowing. A name that the asker holds no lease on may belong to any file. Others
    /// may learn of the change before the asker does, and the asker would go on answering from its
    /// leases.
    fn unknown_to(&self, asked: &Asked, needs: &[Lease]) -> Holders {
        if asked.mode != AskMode::Ship {
            return Holders::new();
        }
        let named = asked.operation.files();
        let doubted =
            |file: &FileId| named.contains(&file) || asked.wants.iter().any(|want| want.file == *file);
        let changed = needs.iter().filter(|need| need.kind != Kind::Read && !need.field.is_black_box());
        let unknown = changed.filter(|need| !doubted(&need.file)).filter(|need| {
            let holdings = self.files.holdings(&need.file);
            holdings.held(asked.session).is_some_and(|held| held.kind(&need.field).is_some())
        });
        let released = |Lease { file, field, .. }: &Lease| Released {
            file: file.clone(),
            field: field.clone(),
            keep: None,
        };
        unknown.map(|need| (asked.session, released(need))).collect()
    }

    /// Turns recalls of single labels into a recall of all labels where many were recalled lately
    /// from a holder of all. That holder keeps the labels that it has leases of their own on. Label
    /// by label, each new name of another client would cost another recall. For a while no session
    /// is granted all labels of such a directory, so clients ask for names and no recall is needed.
    fn crowded(&self, file: &FileId, holders: impl Iterator<Item = (SessionId, Released)>) -> Holders {
        let mut holders: Holders = holders.collect();
        let recalled =
            |(_, it): &(SessionId, Released)| matches!(it.field, Field::Child(_)) && it.keep.is_none();
        if holders.iter().any(recalled)
            && self.state.region.contention.labels_recalled(self.now, file) >= CROWDED
        {
            let holdings = self.files.holdings(file);
            for (holder, released) in holders.iter_mut().filter(|it| recalled(it)) {
                if holdings.held(*holder).is_some_and(|held| held.kind(&Field::Children).is_some()) {
                    released.field = Field::Children;
                }
            }
            holders.dedup();
        }
        holders
    }

    /// Recalls leases for the server itself, each once.
    pub fn recall(&mut self, holders: Holders) {
        self.recall_with(SERVER, holders, Holders::new());
    }

    /// Recalls leases that a request of `asker` needs, each once. With them go wishes for leases
    /// ahead of a walk, to holders that are told of a recall. Fields that are lent to a joint
    /// operation come back by themselves.
    fn recall_with(&mut self, asker: SessionId, holders: Holders, ahead: Holders) {
        let mut by_holder: BTreeMap<SessionId, (Vec<Released>, Vec<Released>)> = BTreeMap::new();
        for (holder, released) in holders.into_iter().filter(|(holder, _)| joint_of(*holder).is_none()) {
            if let Some(told) = self.state.region.recall(self.now, asker, holder, &released) {
                by_holder.entry(holder).or_default().0.push(told);
            }
        }
        for (holder, released) in ahead {
            if let Some((_, ahead)) = by_holder.get_mut(&holder) {
                ahead.push(released);
            }
        }
        by_holder.into_iter().for_each(|(holder, (leases, ahead))| {
            self.recall_from(holder, leases, ahead);
        });
    }

    /// Asks holders to flush their pending changes and keep their leases, each once.
    fn ask_to_flush(&mut self, report: Arrival, holders: Holders) {
        for (holder, Released { file, field, .. }) in holders {
            if let Some(number) =
                self.state.region.pending.queue.flushes.flush(self.now, report, holder, &file, &field)
            {
                let message = self.flush(number, file, field);
                self.send(holder, message);
            }
        }
    }

    /// Fulfils a request with nothing in its way: grants, does or reports.
    fn fulfil(&mut self, request: &Asked, mut found: Found) {
        let Asked { session, number, .. } = *request;
        if session == SERVER {
            // If this is refused, the file is not to go after all.
            let _ = self.ship(session, &request.operation, found.verdict);
            if self.state.region.pending.queue.of_session(SERVER).len() + 1 == REQUESTS_MAX {
                self.look_for_the_doomed();
            }
            return;
        }
        let message = match request.mode {
            AskMode::Lease | AskMode::Page { .. } | AskMode::LeaseOrReport | AskMode::LeaseIfFree => {
                for want in request.wants.iter().filter(|want| want.field == Field::Content) {
                    self.end_write_through(session, &want.file);
                }
                let mut grants = self.grant(request, &found.needs);
                self.confine(session, &mut grants);
                ToClient::Granted { number, grants, gone: found.gone }
            }
            AskMode::Values => {
                let mut values = self.report(request, &found.needs);
                self.confine(session, &mut values);
                ToClient::Reported { number, values, gone: found.gone }
            }
            AskMode::Report => {
                found.needs.retain(|need| !need.field.is_black_box());
                self.note_told(&found.needs);
                let mut values = self.report(request, &found.needs);
                self.confine(session, &mut values);
                ToClient::Reported { number, values, gone: found.gone }
            }
            AskMode::Ship => {
                let result = self.ship(session, &request.operation, found.verdict);
                let result = result.map(|(answer, effects)| (answer, effects.into_vec()));
                return self.answer_shipped(session, number, result);
            }
        };
        self.send(session, message);
    }

    /// Does the operation on the authoritative state.
    fn ship(
        &mut self,
        session: SessionId,
        operation: &Operation,
        verdict: Verdict,
    ) -> Result<(Answer, Effects), Error> {
        match verdict {
            Verdict::Done { answer, effects } => {
                if operation.is_update() {
                    self.may_be_done(operation)?;
                    self.refusal_of_effects(session, &effects).map_or(Ok(()), Err)?;
                    self.state.server.sessions.spend_unclaimed(wire::cost(operation).0)?;
                    self.carry_out(session, operation, &effects);
                    if let Operation::SetDisposition(operation::SetDisposition { file, .. }) = operation {
                        // The handle that the client claims may have been closed while the request
                        // waited.
                        self.dispose_unless_open(file);
                    }
                }
                Ok((answer, effects))
            }
            Verdict::Refused { error, .. } => Err(error),
            // The authoritative state leaves no question open once no holder is in the way. A
            // release build refuses the operation all the same: servers that stop at a log entry
            // would stop at it again at each start.
            Verdict::Unknown { .. } => {
                debug_assert!(false, "no holder is in the way, and this is undecided: {operation:?}");
                Err(Error::Invalid)
            }
        }
    }

    /// Whether the decision needs to know files of other servers, too: those that the operation
    /// names, the file that has a name, or a directory on the way to the root. Values that clients
    /// hold are unknown as well, until they are recalled.
    fn spans_servers(&self, verdict: &Verdict) -> bool {
        let Verdict::Unknown { wants } = verdict else { return false };
        wants.iter().any(|want| want.field == Field::Path || !self.files.regions.manage(&want.file))
    }

    /// Whether a directory gets another parent that other servers know by path leases. As a joint
    /// operation it waits until they are back.
    fn moves_a_known_way(&self, verdict: &Verdict) -> bool {
        let Verdict::Done { effects, .. } = verdict else { return false };
        let mut moved = effects.iter().filter_map(|effect| self.files.moved_directory(effect));
        moved.any(|dir| self.is_path_issued_over(dir))
    }

    /// Gives a shipped operation new numbers: those that the client chose may be used up by the
    /// time that it is done.
    fn renumber(&mut self, mut operation: Operation) -> Operation {
        match &mut operation {
            Operation::Create(operation::Create { dir, position, new, .. }) => {
                *position = self.next_integer(dir);
                new.ino = self.state.server.sessions.next_inode;
                self.state.server.sessions.next_inode += 1;
                new.file = FileId::for_child(dir, *position, new.ino);
            }
            Operation::Link(operation::Link { dir, position, .. }) => *position = self.next_integer(dir),
            Operation::Rename(operation::Rename { from_dir, to_dir, position, whiteout, .. }) => {
                *position = self.next_integer(to_dir);
                if let Some(left) = whiteout {
                    left.integer = self.next_integer(from_dir);
                    left.ino = self.state.server.sessions.next_inode;
                    self.state.server.sessions.next_inode += 1;
                }
            }
            _ => {}
        }
        operation
    }

    fn next_integer(&mut self, dir: &FileId) -> u64 {
        self.files.record_mut(dir).filter(|record| record.is_directory()).map_or(1, |record| {
            record.next_integer += 1;
            record.next_integer - 1
        })
    }
}

/// Makes the server find out which sessions have the file open. The client's claim was about the
/// file that it knew by that label, and the label may name another file now.
fn found_out(mut operation: Operation) -> Operation {
    if let Operation::Unlink(operation::Unlink { open, .. })
    | Operation::Rename(operation::Rename { open, .. })
    | Operation::Link(operation::Link { open, .. }) = &mut operation
    {
        *open = false;
    }
    operation
}

/// Whether the operation sets a lock. A client that is refused a lock waits for it, and the holder
/// has to ask for the lease to unlock it in any case. A lease that the holder kept until then would
/// only be recalled once more.
fn is_for_locking(operation: &Operation) -> bool {
    matches!(operation, Operation::Lock(operation::Lock { change, .. }) if change.kind.is_some())
}

/// Whether a client may hold this at all. Labels are leased by their folds.
pub(crate) fn may_be_leased(field: &Field, kind: Option<Kind>) -> bool {
    let named = match field {
        Field::Path => false,
        Field::Child(label) => fold(label) == *label,
        _ => true,
    };
    named && kind.is_none_or(|kind| field.admits(kind))
}
