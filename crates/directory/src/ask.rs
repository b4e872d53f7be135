//! Requests: what they need, what is in the way, and doing them once nothing is (Farsite §7.2.1:
//! first come, first served).

use crate::authority::Authority;
use crate::departed_sessions::files_of_the_departed;
use crate::pending::{Asked, what_for};
use crate::session::Misdeed;
use crate::transaction::{SERVER, Transaction};
use ident::FileId;
use lease::{Arrival, Field, InTheWay, Kind, Lease, REQUESTS_MAX, Released, SessionId, WANTS_MAX};
use namespace::{Answer, Effects, Error, FileKind, Operation, Traced, Verdict, decide, fold};
use std::collections::BTreeMap;
use wire::{AskMode, ToClient};

/// So many labels of a directory asked back lately make it one that several machines work in at
/// once.
const CROWDED: usize = 8;

/// Leases that one message asks back.
const RECALLED_TOGETHER: usize = 1000;

/// Who has to let go of what before a request can be done.
type Holders = Vec<(SessionId, Released)>;

/// What was found out about a request.
pub(crate) struct Found {
    verdict: Verdict,
    pub needs: Vec<Lease>,
    /// Files that it concerns and that are no more.
    gone: Vec<FileId>,
}

impl Transaction<'_> {
    /// A request arrives.
    pub fn on_ask(&mut self, asked: Asked) -> Result<(), Misdeed> {
        if self.is_asked_again(&asked) {
            return Ok(());
        }
        self.will_acknowledge(asked.session);
        if asked.wants.len() > WANTS_MAX {
            return Err(Misdeed::TooManyWants);
        }
        if self.state.pending.queue.of_session(asked.session).len() >= REQUESTS_MAX {
            return Err(Misdeed::TooManyRequests);
        }
        if self.is_refused(&asked) {
            return Ok(());
        }
        let operation = match asked.mode {
            AskMode::Ship => self.renumber(found_out(asked.operation)),
            AskMode::Lease
            | AskMode::Page { .. }
            | AskMode::Report
            | AskMode::LeaseOrReport
            | AskMode::Values => asked.operation,
        };
        let arrival = self.state.pending.push(Asked { operation, ..asked });
        self.serve(arrival);
        Ok(())
    }

    /// Departs from Farsite §6, where recipients need not draw inferences: because a lease that
    /// goes to and fro takes a message less each way. Both sides go by one rule, and the simulation
    /// compares what they come to.
    ///
    /// Its answer will say how far the log has come: the client knows how far that was when it
    /// asked. Unless another answer, to what it asked before some of that, may come first.
    fn will_acknowledge(&mut self, session: SessionId) {
        if self.state.pending.queue.of_session(session).len() == 0
            && let Some(known) = self.state.sessions.all.get_mut(&session)
        {
            self.promised |= std::mem::take(&mut known.owed);
        }
    }

    /// Whether the request is known already: it still waits and is answered in its turn, or it was
    /// done and is answered once more. A client asks again over a new connection, since it cannot
    /// know what became of it.
    fn is_asked_again(&mut self, asked: &Asked) -> bool {
        let Asked { session, number, mode, .. } = asked;
        if self.state.pending.is_waiting(*session, *number) {
            return true;
        }
        let known = self.state.sessions.all.get(session).filter(|_| *mode == AskMode::Ship);
        let Some(result) = known.and_then(|known| known.shipped_as(*number)).cloned() else { return false };
        self.send(*session, ToClient::Shipped { number: *number, result });
        true
    }

    /// Whether the asker's machine has no right to it, which it is told.
    fn is_refused(&mut self, asked: &Asked) -> bool {
        let Asked { session, number, operation, wants, mode, .. } = asked;
        let Some(error) = self.refusal(*session, operation, wants, *mode) else { return false };
        self.send(*session, ToClient::Shipped { number: *number, result: Err(error) });
        true
    }

    /// The server wants something done itself: it stands in line like anybody, and nobody is told.
    /// At most once for each file; what is too much at a time is found again when there is room.
    pub fn ask_itself(&mut self, file: &FileId, operation: Operation) {
        let queue = &self.state.pending.queue;
        let asked = |arrival: &Arrival| queue.get(*arrival).is_some_and(|request| request.session == SERVER);
        if queue.of_session(SERVER).len() >= REQUESTS_MAX || queue.waiting_on(file).iter().any(asked) {
            return;
        }
        let (session, number, wants, mode, since) = (SERVER, 0, Vec::new(), AskMode::Ship, self.now);
        let arrival = self.state.pending.push(Asked { session, number, operation, wants, mode, since });
        self.serve(arrival);
    }

    /// Tries again whom something that happened in this turn may concern, in the order of arrival.
    pub fn serve_woken(&mut self) {
        while let Some(arrival) = self.state.pending.next_woken() {
            self.serve(arrival);
        }
    }

    /// Does the request, or lets it wait in its place and recalls what is in its way.
    fn serve(&mut self, arrival: Arrival) {
        while let Some(asked) = self.state.pending.asked(arrival) {
            // What it is about may have been moved away since it came.
            if self.is_refused(&asked) {
                return self.state.pending.remove(arrival);
            }
            let mut found = self.find(&asked);
            let asked = self.lease_or_report(asked, &mut found);
            if self.fade_first(&found.needs) {
                continue;
            }
            let holders = self.in_the_way(&asked, &found.needs);
            let lockers = self.lockers(asked.session, &found.needs);
            let holders_and_lockers = holders.iter().map(|(holder, _)| *holder).chain(lockers);
            let lapsed: Vec<SessionId> =
                holders_and_lockers.filter(|holder| self.is_lapsed(*holder)).collect();
            if !lapsed.is_empty() {
                // A session that nobody hears of keeps its leases until somebody needs them: now.
                lapsed.into_iter().for_each(|holder| self.fence(holder, None));
                continue;
            }
            self.state.pending.replace_wants(arrival, found.needs.clone(), what_for(asked.mode));
            let waits = if asked.mode == AskMode::Report {
                self.ask_to_flush(arrival, holders);
                self.state.pending.queue.flushes.is_waiting(arrival)
            } else {
                let waits = !holders.is_empty() || self.state.pending.queue.blocked_by_earlier(arrival);
                self.recall(holders);
                waits
            };
            if !waits {
                self.state.pending.remove(arrival);
                self.fulfil(&asked, found);
            }
            return;
        }
    }

    /// Decides on the authoritative state what the request rests on: the proof of success, or one
    /// counterexample.
    fn find(&self, request: &Asked) -> Found {
        let for_itself = request.mode == AskMode::Ship;
        let authority = Authority { files: &self.files, session: request.session, for_itself };
        let traced = Traced::new(&authority);
        let verdict = decide(&request.operation, &traced);
        let mut opens = None;
        if let (Operation::Lookup { .. }, Verdict::Done { answer: Answer::Entry(entry), .. }) =
            (&request.operation, &verdict)
        {
            // Whoever looks a name up is told what stat shows of the file, and comes back for it:
            // so nobody removes the file in between without asking whether it is open. All of it at
            // one time, or who replaces the file again and again would keep it from ever being
            // found.
            decide(&Operation::Stat { file: entry.file.clone() }, &traced);
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
                // For this machine there never was such a file; one that it did not name it is not
                // told of.
                if request.wants.iter().any(|want| want.file == file) && !gone.contains(&file) {
                    gone.push(file);
                }
                continue;
            };
            if self.files.record(&lease.file).is_none() {
                if !gone.contains(&lease.file) {
                    gone.push(lease.file);
                }
                continue;
            }
            // Of a black box there is no value to report: who holds it has but its own.
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

    /// What others hold that goes ill with what is needed.
    fn in_the_way(&self, asked: &Asked, needs: &[Lease]) -> Holders {
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
            holders.extend(self.crowded(&need.file, to_let_go(&need.file, in_the_way)));
        }
        for file in files_of_the_departed(needs) {
            // The end of a session goes before all requests: see `fade`.
            holders.extend(self.resting_on_the_departed(file));
        }
        holders.extend(self.unknown_to(asked, needs));
        holders
    }

    /// What the asker itself holds of files that the server is to change for it, and that it does
    /// not know to be changed: a name that it holds no lease on may be of any file. Others may be
    /// told what was done before it is, and it would go on answering from that.
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

    /// Where many labels were asked back lately from whom holds all, it is asked for all that it
    /// has no lease of its own on: one by one, each new name of somebody else would be another
    /// recall. Nobody is granted all labels of such a directory for a while, so names are asked for
    /// and nobody need be recalled.
    fn crowded(&self, file: &FileId, holders: impl Iterator<Item = (SessionId, Released)>) -> Holders {
        let mut holders: Holders = holders.collect();
        let asked_back =
            |(_, it): &(SessionId, Released)| matches!(it.field, Field::Child(_)) && it.keep.is_none();
        if holders.iter().any(asked_back)
            && self.state.pending.contended_labels(self.now, file).len() >= CROWDED
        {
            let holdings = self.files.holdings(file);
            for (holder, released) in holders.iter_mut().filter(|it| asked_back(it)) {
                if holdings.held(*holder).is_some_and(|held| held.kind(&Field::Children).is_some()) {
                    released.field = Field::Children;
                }
            }
            holders.dedup();
        }
        holders
    }

    /// Tells holders to let go, each once.
    pub fn recall(&mut self, holders: Holders) {
        let mut by_holder: BTreeMap<SessionId, Vec<Released>> = BTreeMap::new();
        for (holder, released) in holders {
            let told = self.state.pending.recall(self.now, holder, &released);
            by_holder.entry(holder).or_default().extend(told);
        }
        by_holder.into_iter().for_each(|(holder, leases)| self.tell_to_let_go(holder, &leases));
    }

    /// In messages that are not long.
    pub fn tell_to_let_go(&mut self, holder: SessionId, leases: &[Released]) {
        for leases in leases.chunks(RECALLED_TOGETHER) {
            self.send(holder, ToClient::Recall { leases: leases.to_vec() });
        }
    }

    /// Asks holders to flush what is pending and keep their leases, each once.
    fn ask_to_flush(&mut self, report: Arrival, holders: Holders) {
        for (holder, Released { file, field, .. }) in holders {
            if let Some(number) =
                self.state.pending.queue.flushes.flush(self.now, report, holder, &file, &field)
            {
                let message = self.flush(number, file, field);
                self.send(holder, message);
            }
        }
    }

    /// Nothing is in the way: grants, does or tells.
    fn fulfil(&mut self, request: &Asked, found: Found) {
        let Asked { session, number, .. } = *request;
        if session == SERVER {
            // Refused: it is not to go after all.
            let _ = self.ship(session, &request.operation, found.verdict);
            if self.state.pending.queue.of_session(SERVER).len() + 1 == REQUESTS_MAX {
                self.look_for_the_doomed();
            }
            return;
        }
        let message = match request.mode {
            AskMode::Lease | AskMode::Page { .. } | AskMode::LeaseOrReport => {
                for want in request.wants.iter().filter(|want| want.field == Field::Content) {
                    self.end_through(session, &want.file);
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
                self.note_told(&found.needs);
                let mut values = self.report(request, &found.needs);
                self.confine(session, &mut values);
                ToClient::Reported { number, values, gone: found.gone }
            }
            AskMode::Ship => {
                let result = self.ship(session, &request.operation, found.verdict);
                let result = result.map(|(answer, effects)| (answer, effects.into_vec()));
                if let Some(known) = self.state.sessions.all.get_mut(&session) {
                    known.remember(number, result.clone());
                }
                ToClient::Shipped { number, result }
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
                    self.state.sessions.spend_unclaimed(wire::cost(operation).0)?;
                    self.carry_out(session, operation, &effects);
                    if let Operation::SetDisposition { file, .. } = operation {
                        // The handle that it says it has may have been closed while it waited.
                        self.dispose_unless_open(file);
                    }
                }
                Ok((answer, effects))
            }
            Verdict::Refused { error, .. } => Err(error),
            // The authoritative state leaves no question open once nobody is in the way.
            Verdict::Unknown { .. } => Err(Error::Invalid),
        }
    }

    /// What a client gave a shipped operation for numbers may be used up by the time that it is
    /// done: it gets new ones.
    fn renumber(&mut self, mut operation: Operation) -> Operation {
        match &mut operation {
            Operation::Create { dir, position, new, .. } => {
                *position = self.next_integer(dir);
                new.ino = self.state.sessions.next_inode;
                self.state.sessions.next_inode += 1;
                new.file = FileId::for_child(dir, *position, new.ino);
            }
            Operation::Link { dir, position, .. } => *position = self.next_integer(dir),
            Operation::Rename { from_dir, to_dir, position, whiteout, .. } => {
                *position = self.next_integer(to_dir);
                if let Some(left) = whiteout {
                    left.integer = self.next_integer(from_dir);
                    left.ino = self.state.sessions.next_inode;
                    self.state.sessions.next_inode += 1;
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

/// Who has the file open the server finds out by itself: what the client said of the file that it
/// knew by that label may be of another now.
fn found_out(mut operation: Operation) -> Operation {
    if let Operation::Unlink { open, .. } | Operation::Rename { open, .. } = &mut operation {
        *open = false;
    }
    operation
}

/// Who is refused a lock waits for it, and to unlock it the holder has to ask for the lease in any
/// case: what it kept until then would only be recalled once more.
fn is_for_locking(operation: &Operation) -> bool {
    matches!(operation, Operation::Lock { change, .. } if change.kind.is_some())
}

/// What is in the way, as those who hold it are told.
pub(crate) fn to_let_go(
    file: &FileId,
    in_the_way: impl IntoIterator<Item = InTheWay>,
) -> impl Iterator<Item = (SessionId, Released)> {
    let released =
        |InTheWay { session, field, keep }| (session, Released { file: file.clone(), field, keep });
    in_the_way.into_iter().map(released)
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
