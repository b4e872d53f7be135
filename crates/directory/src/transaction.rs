//! One turn: one input, and everything that follows from it at once.

use crate::io::{Input, Output};
use crate::joint::joint_of;
use crate::requests::pending::{Asked, to_recall};
use crate::requests::recalling::TurnRecalls;
use crate::requests::subtrees::Subtrees;
use crate::rows::decoded::DecodedRecords;
use crate::rows::effects::Aftermath;
use crate::rows::extents::shares_in;
use crate::rows::files::{Files, Surroundings};
use crate::rows::keys::Table;
use crate::rows::record::Record;
use crate::sessions::session::Misdeed;
use crate::state::DirectoryState;
use crate::{Corrupt, DelegateError, Policy};
use ident::FileId;
use lease::{Field, SessionId, Time};
use namespace::{Effect, Error, Operation, operation};
use rustc_hash::FxHashSet;
use std::cell::RefCell;
use wire::{ShareWork, ToClient, ToServer};

/// The time without a renewal after which a session may be taken for lapsed, ms.
///
/// Leases have no other expiry. This departs from Farsite §3.3. With such an expiry, a machine that
/// is away and in no other's way would lose its work for nothing. A machine that is there renews
/// all its leases at once. A machine that is in the way of another is fenced when that other asks.
pub const TERM_MS: u64 = 30_000;
/// Files to go with their last handle that are examined in one tick, after a session's end.
const DOOMED_PER_STEP: usize = 256;
/// The session as which the server decides for itself. No session has this number.
pub(crate) const SERVER: SessionId = SessionId(0);
/// The smallest block of a directory's integers. Even over a slow link the next block arrives
/// before the last is used up.
const RESERVATION_MIN: u64 = wire::BIRTH_RESERVATION;
/// The largest block of a directory's integers.
const RESERVATION_MAX: u64 = 4096;

/// One turn on the state. Ends with [`Transaction::finish`].
pub(crate) struct Transaction<'a> {
    pub now: Time,
    pub files: Files<'a>,
    pub state: &'a mut DirectoryState,
    pub policy: &'a Policy,
    pub out: &'a mut Vec<Output>,
    pub misdeeds: &'a mut Vec<(SessionId, Misdeed)>,
    /// The ancestry of files, as far as it was asked for.
    pub subtrees: RefCell<&'a mut Subtrees>,
    /// The recalls of this turn that are not sent yet.
    pub recalls: TurnRecalls,
    /// Work for the share server.
    pub shares: Vec<ShareWork>,
    /// Whether background work is left.
    pub again: bool,
    /// Whether a session will take an answer for the acknowledgment of its log. Then the effects of
    /// the log must last, whatever they were.
    pub promised: bool,
    /// Whether the way to the root of any directory may be known, or free to change, that was not.
    pub ways_changed: bool,
}

impl Transaction<'_> {
    /// Takes the input.
    pub fn take(&mut self, input: Input) {
        let Some(input) = self.refuse_elsewhere(input) else { return };
        match input {
            Input::Open { machine, incarnation, greeting, session, connection, version } => {
                self.greet((machine, version), (incarnation, greeting), session, connection)
            }
            Input::Message { session, message } => self.on_message(session, message),
            Input::Tick => self.tick(),
            Input::Space(space) => self.state.server.sessions.measured(space),
            Input::SharesSettled(work) => work.into_iter().for_each(|work| self.files.settled(work)),
            Input::Lead => self.lead(),
            Input::Invite { token, rights, at, until } => self.invite(token, rights, at, until),
            Input::Revoke { token } => self.revoke(token),
            Input::Enrol { token, name, key, at, connection } => {
                self.enrol(&token, name, key, at, connection)
            }
            Input::Expel { machine } => self.expel(machine),
            Input::NoMessage { session } => self.fence(session, Some(Misdeed::NoMessage)),
            Input::Restored { at } => self.restored(at),
            Input::Raise { to } => self.raise(to),
            Input::Authorize { number, authority } => self.authorize(number, authority),
            Input::Known { machine, known, itself } => self.known(machine, known, itself),
            Input::Found { number, founder } => self.found_server(number, founder),
            Input::Registry(feed) => self.take_feed(feed),
            Input::Delegate { region, to } => self.delegate(region, to),
            Input::Keep { region } => self.keep(&region, DelegateError::Kept),
            Input::HandOver { from, message } => self.on_hand_over(from, message),
            Input::Joint { from, message } => self.on_joint(from, *message),
            Input::PathLease { from, message } => self.on_path_lease(from, message),
            Input::Pin { file, pinned } => self.files.set_pin(&file, pinned),
            Input::Moved { region, moved } => self.files.set_moved(&region, moved),
            Input::Balance { on } => self.files.set_balance(on),
        }
    }

    /// Serves the requests that the input concerned, and writes back the changes. Returns the live
    /// sessions, the records for later turns, and whether something was
    /// [promised](Transaction::promised).
    pub fn finish(mut self) -> Result<(FxHashSet<SessionId>, DecodedRecords, bool), Corrupt> {
        self.serve_woken();
        while std::mem::take(&mut self.ways_changed) {
            self.continue_ways();
            self.serve_woken();
        }
        self.send_recalls();
        if !self.shares.is_empty() {
            self.out.push(Output::Shares(std::mem::take(&mut self.shares)));
        }
        if self.again {
            self.out.push(Output::Again);
        }
        let Surroundings { live, regions, paths, digest, dying, decoded } = self.files.finish()?;
        (self.state.server.digest, self.state.region.dying) = (digest, dying);
        (self.state.server.regions, self.state.server.paths) = (regions, paths);
        Ok((live, decoded, self.promised))
    }

    /// Sends a message to a client.
    pub fn send(&mut self, session: SessionId, message: ToClient) {
        self.send_recalls_to(session);
        let rests = matches!(
            message,
            ToClient::Granted { .. } | ToClient::Reported { .. } | ToClient::Shipped { .. }
        );
        if rests && self.state.server.sessions.owed.contains(&session) {
            // So a client knows which of its releases each grant followed.
            self.acknowledge(session, (Vec::new(), 0));
        }
        self.out.push(Output::Send { session, message });
    }

    fn on_message(&mut self, session: SessionId, message: ToServer) {
        let Some(known) = self.state.server.sessions.all.get_mut(&session) else {
            return self.send(session, ToClient::Fenced);
        };
        known.renewed = self.now;
        let result = match message {
            ToServer::Renew => {
                let space = self.state.server.sessions.space(self.state.region.files);
                self.send(session, ToClient::Renewed { space });
                Ok(())
            }
            ToServer::Ask { number, operation, wants, mode } => {
                let since = self.now;
                self.on_ask(Asked { session, number, operation, wants, mode, since, ahead: None })
            }
            ToServer::Log { first, entries, answer } => self.on_log(session, first, entries, answer),
            ToServer::Reserve { dir } => {
                self.reserve(session, dir);
                Ok(())
            }
            ToServer::ReserveInodes { known } => {
                let (first, end) = match self.may_write(session) {
                    true => self.state.server.sessions.reserve_inodes(session, known),
                    false => (0, 0),
                };
                self.send(session, ToClient::ReservedInodes { first, end });
                Ok(())
            }
            ToServer::Allow { held, want, replaces } => {
                let (bytes, files) = match self.may_write(session) {
                    true => self.state.server.sessions.allow(session, held, want, replaces),
                    false => (0, 0),
                };
                let space = self.state.server.sessions.space(self.state.region.files);
                self.send(session, ToClient::Allowance { bytes, files, space });
                Ok(())
            }
            ToServer::Extents { number, file, from } => {
                let message = self.extents_for(session, number, &file, from);
                self.send(session, message);
                Ok(())
            }
            ToServer::Goodbye => {
                self.end(session);
                Ok(())
            }
        };
        if let Err(misdeed) = result {
            self.fence(session, Some(misdeed));
        }
    }

    /// Gives integers to a session that holds anything of the directory: enough for about as long
    /// as the last block lasted.
    fn reserve(&mut self, session: SessionId, dir: FileId) {
        let (first, end) = match self.may_write(session) && self.may_reserve(session, &dir) {
            true => self.reserve_integers(&dir),
            false => (0, 0),
        };
        self.send(session, ToClient::Reserved { dir, first, end });
    }

    /// Takes a block off the directory's counter; its size grows with the directory.
    pub fn reserve_integers(&mut self, dir: &FileId) -> (u64, u64) {
        let Some(record) = self.files.record_mut(dir).filter(|record| record.is_directory()) else {
            return (0, 0);
        };
        let first = record.next_integer;
        let size = record.children.next_power_of_two().clamp(RESERVATION_MIN, RESERVATION_MAX);
        record.next_integer = first.saturating_add(size).min(namespace::POSITION_MAX);
        (first, record.next_integer)
    }

    /// Whether the numbers and names in an update were given out and are not yet used, which
    /// `decide` cannot know.
    pub fn may_be_done(&self, operation: &Operation) -> Result<(), Error> {
        let unused =
            |dir: &FileId, position: u64| self.files.record(dir).is_some_and(|r| position >= r.unused_from);
        let given = |dir: &FileId, position: u64| {
            self.files.record(dir).is_some_and(|record| position < record.next_integer)
                && (unused(dir, position) || self.files.label_at(dir, position).is_none())
        };
        let is_new = |dir: &FileId, position: u64, file: &FileId| {
            // Only a file that was made with this integer of this directory ever had this
            // identifier.
            unused(dir, position) && *file == dir.child(position)
                || self.files.record(file).is_none() && !self.files.is_dying(file)
        };
        let fits = match operation {
            Operation::Create(operation::Create { dir, position, new, .. }) => {
                given(dir, *position) && is_new(dir, *position, &new.file)
            }
            Operation::Link(operation::Link { dir, position, .. }) => given(dir, *position),
            Operation::Rename(operation::Rename { from_dir, to_dir, position, whiteout, .. }) => {
                given(to_dir, *position)
                    && whiteout.is_none_or(|left| {
                        given(from_dir, left.integer)
                            && is_new(from_dir, left.integer, &left.new_file(from_dir).file)
                    })
            }
            Operation::Publish(operation::Publish { file, change, .. }) => {
                shares_in(change).all(|share| self.files.may_refer(file, &share))
            }
            _ => true,
        };
        if fits { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Carries out an operation that `session` decided, or that was decided for it.
    pub fn carry_out(
        &mut self,
        session: SessionId,
        operation: &Operation,
        effects: &[Effect],
    ) -> Vec<FileId> {
        let says_open = matches!(
            operation,
            Operation::Unlink(operation::Unlink { open: true, .. })
                | Operation::Rename(operation::Rename { open: true, .. })
                | Operation::Link(operation::Link { open: true, .. })
                | Operation::SetDisposition { .. }
        );
        self.apply(session, says_open, effects)
    }

    /// Applies the effects of a decision of `session`, which may say that it has the file open that
    /// is to go. Returns the files that were made.
    pub fn apply(&mut self, session: SessionId, says_open: bool, effects: &[Effect]) -> Vec<FileId> {
        for effect in effects {
            let file = effect.file();
            debug_assert!(!self.files.regions.are_copying(file), "{file} changes while its rows go over");
            if matches!(effect, Effect::Lock { .. } | Effect::Disposition { .. } | Effect::Orphan { .. }) {
                self.files.regions.look_again_at(file);
            }
        }
        let mut aftermath = Aftermath::default();
        self.subtrees.get_mut().note(&self.files, effects);
        let machine = self.state.server.sessions.all.get(&session).map(|session| session.machine);
        self.files.apply(session, machine, effects, &mut aftermath);
        self.state.region.files = (self.state.region.files + aftermath.born.len() as u64)
            .saturating_sub(aftermath.dead.len() as u64);
        self.shares.append(&mut aftermath.shares);
        aftermath.born.iter().for_each(|file| self.files.regions.look_again_at(file));
        for file in &aftermath.dead {
            self.state.region.died(file);
            if self.files.is_dying(file) {
                self.again = true;
                self.files.regions.look_again_at(file);
            }
        }
        self.recall_paths_of(&aftermath.dead);
        // A search under way need not start from the beginning for every file that dies.
        if !aftermath.dead.is_empty() && self.state.region.departed_next.is_none() {
            self.look_for_the_departed();
        }
        for file in &aftermath.doomed {
            // A client that deletes a file that it has open says so, and will report the close.
            if !(says_open && self.files.holdings(file).black_box(&Field::Handles).writes(session)) {
                self.dispose_unless_open(file);
            }
        }
        aftermath.born
    }

    /// Disposes of a file that is to go with its last handle, if no session has it open any more.
    /// Sessions that may have it open, and may not, are asked; after each answer this is tried
    /// again.
    pub fn dispose_unless_open(&mut self, file: &FileId) {
        let Some(record) = self.files.record(file) else { return };
        if !record.is_doomed() {
            return;
        }
        match record.holdings.anybody(&Field::Handles) {
            Ok(true) => {}
            Ok(false) => self.dispose(file, &record),
            Err(in_the_way) => self.recall(to_recall(file, in_the_way).collect()),
        }
    }

    /// Does what the last close would have done. No lease is in the way of the death of a file
    /// without a name. A name may be leased to others, so for that the server queues a request of
    /// its own.
    fn dispose(&mut self, file: &FileId, record: &Record) {
        let since = record.disposition.as_ref().map(|disposition| disposition.since);
        let operation =
            Operation::Dispose(operation::Dispose { file: file.clone(), time: since.unwrap_or_default() });
        if record.attributes.links > 0 {
            return self.ask_itself(file, operation);
        }
        let effects = [Effect::Death { file: file.clone() }];
        self.carry_out(SERVER, &operation, &effects);
    }

    /// Time has passed, or background work goes on: does one step of each kind.
    fn tick(&mut self) {
        for session in self.state.server.sessions.owed.clone() {
            self.acknowledge(session, (Vec::new(), 0));
        }
        if self.may_look_for_the_late() {
            self.fence_the_deaf();
            self.fence_the_lapsed();
            self.fence_lapsed_lockers();
        }
        self.again |= self.files.clear_dying(&mut self.shares);
        self.sweep_doomed();
        self.sweep_shields();
        self.move_regions();
        self.continue_joint(false);
        self.continue_paths(false);
        if self.files.regions.are_several() {
            self.wake_the_limited();
        }
    }

    /// Examines all files that are to go with their last handle, from the beginning.
    pub fn look_for_the_doomed(&mut self) {
        self.state.region.sweep = Some(Table::Doomed.range().0.into_vec());
        self.again = true;
    }

    /// One step of the search for files that are to go and that only departed sessions had open.
    fn sweep_doomed(&mut self) {
        let Some(from) = self.state.region.sweep.take() else { return };
        let doomed = self.files.table(Table::Doomed, Some(&from), DOOMED_PER_STEP);
        if doomed.len() == DOOMED_PER_STEP {
            self.state.region.sweep = doomed.last().map(|(key, _)| [key, [0].as_slice()].concat());
            self.again = true;
        }
        for (key, _) in doomed {
            if let Some(file) = self.files.parse_key(Table::Doomed.file(&key)) {
                self.dispose_unless_open(&file);
            }
        }
    }

    /// A new leader begins: it knows neither which messages were sent nor which sessions are still
    /// there.
    fn lead(&mut self) {
        for session in self.state.server.sessions.all.values_mut() {
            (session.renewed, session.worked) = (self.now, self.now);
        }
        self.state.server.led = self.now;
        self.state.region.write_through.end_all();
        self.state.region.pending.queue.recalls.tell_again(self.now);
        let recalls: Vec<_> = self.state.region.pending.queue.recalls.unanswered().collect();
        for (session, released) in recalls {
            self.recall_from(session, [released], []);
        }
        let flushes = self.state.region.pending.queue.flushes.unanswered();
        let flushes: Vec<_> = flushes
            .map(|(session, number, file, field)| (session, number, file.clone(), field.clone()))
            .collect();
        for (session, number, file, field) in flushes {
            self.send(session, ToClient::Flush { number, file, field });
        }
        self.continue_joint(true);
        self.continue_paths(true);
        self.shares = self.files.unsettled();
        self.again = true;
    }

    /// Whether `session` was not heard of for its term.
    pub fn is_lapsed(&self, session: SessionId) -> bool {
        match self.state.server.sessions.all.get(&session) {
            Some(known) => known.lapsed(self.now, TERM_MS),
            // A joint operation gives back what it has borrowed when it is decided, and not before.
            None => joint_of(session).is_none(),
        }
    }

    /// Ends the session and reports that to its client.
    pub fn fence(&mut self, session: SessionId, misdeed: Option<Misdeed>) {
        if self.end(session) {
            self.send(session, ToClient::Fenced);
            self.misdeeds.extend(misdeed.map(|misdeed| (session, misdeed)));
        }
    }

    /// Ends the session. Its leases are free, at no cost: its identifier just counts for nothing in
    /// the rows that name it. Files at which it is stuck are cleared in the background.
    fn end(&mut self, session: SessionId) -> bool {
        if !self.state.server.sessions.end(session) {
            return false;
        }
        self.files.end_session(session);
        self.state.region.pending.end_session(session);
        self.state.region.write_through.end_session(session);
        self.state.server.lockers.remove(&session);
        self.state.server.departed.insert(session);
        self.look_for_the_departed();
        self.end_asker(session);
        // Files that only this session had open are to be disposed of.
        self.look_for_the_doomed();
        true
    }
}
