//! The client: one lease holder for the whole machine, whatever front doors it serves.

use crate::accesses::Accesses;
use crate::evict::EvictionClock;
use crate::known::Files;
use crate::lingering::Lingering;
use crate::log::OperationLog;
use crate::promised::Promised;
use crate::publish::Publishing;
use crate::recall::{Flushing, Yields};
use crate::reopen::Reopening;
use crate::reported::PingPongFiles;
use crate::requests::Requests;
use crate::session::Session;
use crate::waiting::{Need, Stop, Waiting};
use crate::{Call, Input, Now, Outcome, Output, Reply, Ticket};
use ident::FileId;
use lease::{Field, Time};
use namespace::{Answer, Cred, Effects, Error, Operation, Verdict, decide};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{LogEntry, Rights, Space, ToClient, Version};

/// The host's settings for a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Entropy for names of shares, keys and nonces. No two incarnations may share a seed.
    pub seed: [u8; 32],
    /// The age at which updates are sent to the server at the latest, ms. This covers their content
    /// too: its upload begins at half that age.
    pub flush_after_ms: u64,
    /// Bytes of content that may be dirty before writers wait.
    pub dirty_bytes_max: usize,
    /// Files that the client knows before it forgets the least used ones.
    pub files_max: usize,
    /// Names of one directory that are held one by one before the client releases them all.
    pub names_max: usize,
}

impl Settings {
    /// The defaults, with `seed`.
    pub fn new(seed: [u8; 32]) -> Settings {
        Settings {
            seed,
            flush_after_ms: 4_500,
            dirty_bytes_max: 192 << 20,
            files_max: 400_000,
            names_max: 256,
        }
    }
}

/// The rest of the allowance: bytes and files that the server has reserved for this session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    pub bytes: u64,
    pub files: u64,
    /// The request for more that is under way: the bytes and files it needs at least, and the bytes
    /// it lacks to replace content.
    pub asking: Option<(u64, u64, u64)>,
}

/// The maximum depth of a path. The directories known here could form a circle.
const DEPTH_MAX: usize = 256;

/// The client's state machine.
///
/// The host reads clocks and passes [`Now`], which never goes back. It carries out every [`Output`]
/// in order. [`Client::deadline`] says when the next [`Input::Tick`] is due. A spurious tick does
/// no harm.
#[derive(Debug)]
pub struct Client {
    pub(crate) settings: Settings,
    pub(crate) rng: ChaCha12Rng,
    pub(crate) files: Files,
    pub(crate) log: OperationLog,
    /// When the oldest unsent entry of the log began to wait.
    pub(crate) unsent_since: Option<Time>,
    pub(crate) publishing: Publishing,
    pub(crate) waiting: BTreeMap<Ticket, Waiting>,
    pub(crate) next_ticket: u64,
    next_number: u64,
    pub(crate) requests: Requests,
    pub(crate) inodes: (u64, u64),
    pub(crate) inodes_next: (u64, u64),
    /// The end of the last block that came.
    pub(crate) inodes_known: u64,
    pub(crate) reserving_inodes: bool,
    pub(crate) allowance: Allowance,
    /// The part of the allowance that is promised to ranges of files.
    pub(crate) promised: Promised,
    pub(crate) space: Space,
    /// When the server reported it.
    pub(crate) space_told: Time,
    /// A lock was released here, so calls that wait for one can be tried again.
    pub(crate) unlocked: bool,
    /// Leases that are to be released and cannot be yet.
    pub(crate) yields: Yields,
    /// Files whose content ping-pongs.
    pub(crate) passing: PingPongFiles,
    /// A call is being tried on values reported for this one try, without a lease.
    pub(crate) is_told: bool,
    /// Files with a release in the log that is not acknowledged yet, and its sequence number.
    pub(crate) letting_go: FxHashMap<FileId, u64>,
    /// Reports that wait for content to be published.
    pub(crate) flushing: Vec<Flushing>,
    /// Writes in write-through mode that the server has not confirmed yet: their log entries and
    /// files.
    pub(crate) unheard: VecDeque<(u64, FileId)>,
    /// Files that were deleted here. A tombstone goes when the server has acknowledged the deletion
    /// (by sequence number).
    pub(crate) tombstones: VecDeque<(u64, FileId)>,
    /// Touches of directories whose times were not known here, until the server acknowledges them
    /// (by sequence number).
    pub(crate) touches: VecDeque<(u64, FileId, namespace::Timestamp)>,
    /// The order in which files are forgotten.
    pub(crate) hand: EvictionClock,
    /// The rights of this machine, as last reported by the server.
    pub(crate) rights: Rights,
    /// By which operations are decided, as the server said last.
    pub(crate) version: Version,
    pub(crate) session: Session,
    /// Handles that programs opened in earlier sessions.
    pub(crate) reopening: BTreeMap<FileId, Reopening>,
    /// The machine is about to end. The client still accepts writes, whether or not they reach the
    /// server.
    pub(crate) ending: bool,
    /// Whether a front door caches what the client answers about files.
    pub(crate) is_handed_out: bool,
    /// Files that have no name any more and are still known to a front door.
    pub(crate) lingering: Lingering,
    /// Access times that the server is to receive.
    pub(crate) accesses: Accesses,
    /// Files with lost data that no sync has reported yet. The flag is for a sync of everything.
    pub(crate) unsaved: BTreeSet<FileId>,
    pub(crate) unsaved_any: bool,
}

impl Client {
    /// A client without a session. Calls wait until one is open.
    pub fn new(settings: Settings) -> Client {
        Client {
            rng: ChaCha12Rng::from_seed(settings.seed),
            settings,
            files: Files::default(),
            log: OperationLog::new(),
            unsent_since: None,
            publishing: Publishing::default(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
            next_number: 0,
            requests: Requests::default(),
            inodes: (0, 0),
            inodes_next: (0, 0),
            inodes_known: 0,
            reserving_inodes: false,
            allowance: Allowance::default(),
            promised: Promised::default(),
            space: Space::default(),
            space_told: Time::default(),
            unlocked: false,
            yields: Yields::default(),
            passing: PingPongFiles::default(),
            is_told: false,
            letting_go: FxHashMap::default(),
            flushing: Vec::new(),
            unheard: VecDeque::new(),
            tombstones: VecDeque::new(),
            touches: VecDeque::new(),
            hand: EvictionClock::default(),
            rights: Rights::FULL,
            version: Version::NEWEST,
            session: Session::default(),
            reopening: BTreeMap::new(),
            ending: false,
            is_handed_out: false,
            lingering: Lingering::default(),
            accesses: Accesses::default(),
            unsaved: BTreeSet::new(),
            unsaved_any: false,
        }
    }

    /// Does `call` for `cred`, at once if the leases at hand cover it.
    pub fn call(&mut self, now: Now, cred: &Cred, call: Call, out: &mut Vec<Output>) -> Outcome {
        self.read_clock(now, out);
        let mut waiting = Waiting::new(now, cred.clone(), call);
        match self.attempt(now, &mut waiting, out) {
            Ok(reply) => {
                if self.unlocked {
                    self.settle(now, out);
                }
                self.tidy(now, out);
                self.evict(out);
                Outcome::Done(Ok(reply))
            }
            Err(Stop::Error(error)) => Outcome::Done(Err(error)),
            Err(Stop::Need(need)) => {
                let ticket = self.ticket();
                self.wait(now, ticket, waiting, need, out);
                if self.unlocked {
                    self.settle(now, out);
                }
                self.tidy(now, out);
                self.evict(out);
                Outcome::Waiting(ticket)
            }
        }
    }

    /// Ends the wait of a call, which is answered with `Error::Interrupted`. Nothing of the call is
    /// done, unless the server is doing it. Returns whether the call was still under way.
    pub fn cancel(&mut self, ticket: Ticket, out: &mut Vec<Output>) -> bool {
        let waited = self.waiting.remove(&ticket).is_some();
        if waited {
            out.push(Output::Answer { ticket, result: Err(Error::Interrupted) });
        }
        waited
    }

    /// Takes an input. The answers come in `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.read_clock(now, out);
        // Trap: a host without caching front doors answers a revocation at once. Each batch of
        // evictions would then start the next one from within.
        let may_evict = !matches!(input, Input::Yielded { .. });
        match input {
            Input::Greeting => self.on_greeting(now),
            Input::Message(message) => self.on_message(now, message, out),
            Input::Stored { upload, result } => self.on_stored(now, upload, result, out),
            Input::Yielded { number } => self.on_yielded(now, number, out),
            Input::Forgotten(files) => self.on_forgotten(now, files, out),
            Input::Tick => self.on_tick(now, out),
        }
        self.settle(now, out);
        self.tidy(now, out);
        if may_evict {
            self.evict(out);
        }
    }

    /// When the next tick is due.
    pub fn deadline(&self) -> Option<Time> {
        let unsent = self.unsent_since.filter(|_| self.session.is_connected());
        let flush = unsent.map(|since| since.after_ms(self.settings.flush_after_ms));
        let publish = self.publishing.oldest_dirty().map(|since| since.after_ms(self.publish_after_ms()));
        let lingering = self.lingering_deadline();
        let access = self.accesses.deadline().filter(|_| self.session.is_connected());
        let freed = self.freed_deadline();
        [flush, publish, lingering, access, freed, self.session_deadline()].into_iter().flatten().min()
    }

    /// This machine's root directory, with nothing above it. Known once a session has begun.
    pub fn root(&self) -> &FileId {
        &self.rights.root
    }

    /// The rights of this machine. Known once a session has begun.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The number of log entries that the server has not acknowledged.
    pub fn operations_unsent(&self) -> usize {
        self.log.len()
    }

    /// The number of files that the client knows anything about.
    pub fn files_known(&self) -> usize {
        self.files.0.len()
    }

    /// The leases that this client holds, file by file, until its session's term runs out. For
    /// tests and tools.
    pub fn held(&self, now: Time) -> impl Iterator<Item = (&FileId, &lease::Held)> {
        let valid = self.valid_for_ms(now) > 0;
        let files = self.files.0.iter().filter(move |(_, known)| valid && !known.gone);
        files.map(|(file, known)| (file, &known.held))
    }

    /// The path of `file` under this machine's root, as far as the client knows. A part that is not
    /// leased may have moved since. For people to read.
    pub fn path(&self, file: &FileId) -> Option<String> {
        let (mut labels, mut at) = (Vec::new(), file.clone());
        while at != self.rights.root {
            let (dir, label) = self.files.place(&at).filter(|_| labels.len() < DEPTH_MAX)?;
            labels.push(String::from_utf8_lossy(label.as_bytes()).into_owned());
            at = dir;
        }
        labels.push(String::new());
        labels.reverse();
        Some(if labels.len() == 1 { "/".to_owned() } else { labels.join("/") })
    }

    /// Bytes of content that are not yet stored.
    pub fn dirty_bytes(&self) -> usize {
        self.publishing.dirty_bytes()
    }

    /// Decides on what the client knows. A successful update is done here and logged.
    pub(crate) fn decide(&mut self, now: Now, operation: Operation) -> Result<Answer, Stop> {
        match decide(&operation, &self.files) {
            Verdict::Done { answer, effects } => {
                if operation.is_update() {
                    self.commit(now, operation, &effects);
                }
                Ok(answer)
            }
            Verdict::Refused { error, .. } => Err(Stop::Error(error)),
            Verdict::Unknown { wants } => {
                Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants }))
            }
        }
    }

    fn commit(&mut self, now: Now, operation: Operation, effects: &Effects) {
        let sequence = self.push_update(now.time, operation);
        for effect in effects {
            self.files.apply(effect, true);
            match effect {
                namespace::Effect::Death { file } => {
                    self.bury(sequence, file);
                    if self.is_short_of_space() {
                        // Another machine may wait for the freed space.
                        self.unsent_since = Some(Time(0));
                    }
                }
                namespace::Effect::Birth { file, .. } => self.hand.add(file.clone()),
                // Many clients touch a directory's times without knowing them.
                namespace::Effect::Touch { dir, time } if !self.knows_times(dir) => {
                    self.touches.push_back((sequence, dir.clone(), *time));
                }
                _ => {}
            }
        }
    }

    /// Buries `file`, whose death is entry `sequence` of the log.
    pub(crate) fn bury(&mut self, sequence: u64, file: &FileId) {
        self.forget_content(file);
        self.break_promise(file, 0..u64::MAX);
        self.tombstones.push_back((sequence, file.clone()));
    }

    fn knows_times(&self, dir: &FileId) -> bool {
        self.files.get(dir).is_some_and(|known| known.times.is_some())
    }

    /// Learns a grant. The server granted a directory's times before it saw the newest touches of
    /// this client, so these are applied again.
    pub(crate) fn learn_grant(&mut self, grant: wire::FileGrant) {
        let (file, knew) = (grant.file.clone(), self.knows_times(&grant.file));
        let of_names = grant.fields.iter().any(|(field, _)| matches!(field, Field::Child(_)));
        if !self.files.0.contains_key(&file) {
            self.hand.add(file.clone());
        }
        if self.rights.are_of_subtree() {
            self.files.revive(&grant);
        }
        self.files.grant(grant);
        if of_names {
            self.let_go_of_names(&file);
        }
        if let Some(times) = self.files.get_mut(&file).filter(|_| !knew).and_then(|k| k.times.as_mut()) {
            for (_, _, time) in self.touches.iter().filter(|(_, dir, _)| *dir == file) {
                **times = times.touched(*time);
            }
        }
    }

    /// Logs an update of a change made at `since`.
    pub(crate) fn push_update(&mut self, since: Time, operation: Operation) -> u64 {
        self.unsent_since = Some(self.unsent_since.map_or(since, |before| before.min(since)));
        self.log.push_update(self.version, operation)
    }

    /// Sends all of the log and asks for an acknowledgment at once, for callers that wait for
    /// durability.
    pub(crate) fn flush_log(&mut self, out: &mut Vec<Output>) {
        self.send_log(true, out);
    }

    /// Sends all of the log ahead of another message. No caller here waits for the acknowledgment.
    pub(crate) fn send_log_first(&mut self, out: &mut Vec<Output>) {
        self.send_log(false, out);
    }

    fn send_log(&mut self, answer: bool, out: &mut Vec<Output>) {
        if !self.session.is_connected() {
            return;
        }
        while let Some(message) = self.log.next_message(answer) {
            out.push(Output::Send(message));
        }
        self.unsent_since = None;
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn on_message(&mut self, now: Now, message: ToClient, out: &mut Vec<Output>) {
        if let ToClient::Granted { number, .. }
        | ToClient::Reported { number, .. }
        | ToClient::Shipped { number, .. } = &message
            && self.session.is_connected()
            && let Some(through) = self.requests.applied_by(*number)
        {
            self.on_applied(through, &[], out);
        }
        match message {
            ToClient::Opened { inodes, allowance, space, term_ms, version, rights } => {
                (self.rights, self.version) = (rights, version);
                self.learn_space(now, space);
                self.on_opened(now, inodes, allowance, term_ms, out);
            }
            ToClient::Resumed { through, rejected, space, term_ms, version } => {
                // Updates that are in the log name the version that decided them.
                self.version = version;
                self.learn_space(now, space);
                self.on_resumed(through, &rejected, term_ms, out);
            }
            // The host keeps receipts for its greetings.
            ToClient::Receipt(_) => {}
            ToClient::Fenced => self.cut_off(now, out),
            // The message belongs to an earlier connection.
            _ if !self.session.is_connected() => {}
            ToClient::Renewed { space } => self.on_renewed(now, space),
            ToClient::Granted { number, grants, gone } => {
                for grant in grants {
                    if self.is_letting_go(&grant.file) {
                        continue;
                    }
                    self.learn_grant(grant);
                }
                self.gone(gone);
                self.granted(number);
            }
            ToClient::Reported { number, values, gone } => {
                self.gone(gone);
                self.on_reported(now, number, values);
            }
            ToClient::Shipped { number, result } => self.on_shipped(number, result),
            ToClient::Recall { leases } => self.on_recall(now, leases, out),
            ToClient::Flush { number, file, field } => self.on_flush(now, number, file, &field, out),
            ToClient::FlushThrough { number, file } => {
                self.on_flush_content(now, Flushing { number, file, through: true }, out);
            }
            ToClient::Heard { file, through, goes_on } => self.on_heard(&file, through, goes_on),
            ToClient::Applied { through, rejected } => self.on_applied(through, &rejected, out),
            ToClient::Reserved { dir, first, end } => {
                self.requests.reserved(&dir);
                if let Some(children) = self.files.get_mut(&dir).and_then(|known| known.children.as_mut()) {
                    children.reserving = false;
                    children.add_integers((first, end));
                }
            }
            ToClient::ReservedInodes { first, end } => {
                self.reserving_inodes = false;
                if end <= self.inodes_known {
                    // The same block came twice.
                    return;
                }
                self.inodes_known = end;
                if self.inodes.0 >= self.inodes.1 {
                    self.inodes = (first, end);
                } else {
                    self.inodes_next = (first, end);
                }
            }
            ToClient::Allowance { bytes, files, space } => {
                self.learn_space(now, space);
                let Allowance { bytes: had_bytes, files: had_files, .. } = self.allowance;
                self.allowance =
                    Allowance { bytes: had_bytes + bytes, files: had_files + files, asking: None };
            }
            ToClient::Extents { number, file, from, to, extents, inline } => {
                self.learn_extents(&file, from, to, extents, inline);
                self.granted(number);
            }
        }
    }

    fn gone(&mut self, gone: Vec<FileId>) {
        for file in gone {
            // Identifiers are never reused, so a death is known for ever and needs no lease. A
            // request that is repeated gets the same answer.
            let known = self.files.0.entry(file.clone()).or_default();
            // The server knew of a death that was not decided here before this client did. So no
            // grant of the file is on its way.
            known.buried |= !known.gone;
            known.gone = true;
            self.break_promise(&file, 0..u64::MAX);
            self.tombstones.push_back((self.log.last(), file));
        }
    }

    pub(crate) fn on_applied(&mut self, through: u64, rejected: &[(u64, Error)], out: &mut Vec<Output>) {
        let refused = self.log.acknowledge(through, rejected);
        while let Some((sequence, file)) = self.tombstones.front()
            && *sequence <= through
        {
            if let Some(known) = self.files.get_mut(file).filter(|known| known.gone) {
                known.buried = true;
                if known.handles.is_none() {
                    self.files.0.remove(file);
                }
            }
            self.tombstones.pop_front();
        }
        while self.touches.front().is_some_and(|(sequence, ..)| *sequence <= through) {
            self.touches.pop_front();
        }
        self.letting_go.retain(|_, sequence| *sequence > through);
        self.settle_content(through);
        self.refused(refused, out);
    }

    fn on_tick(&mut self, now: Now, out: &mut Vec<Output>) {
        let flush_after_ms = self.settings.flush_after_ms;
        self.publish_old(now, out);
        if self.unsent_since.is_some_and(|since| now.time >= since.after_ms(flush_after_ms)) {
            // Content that can be published at once goes along with the names.
            self.publish_all(now, out);
            self.flush_log(out);
        }
        self.end_lingering(now, out);
        self.tell_accesses(now, out);
        self.keep_session(now, out);
    }

    /// Ends every input: sends what is due, and asks for more of what is low.
    fn tidy(&mut self, now: Now, out: &mut Vec<Output>) {
        self.yield_recalled(now, out);
        if !self.publishing.unneeded.is_empty() {
            out.push(Output::Unneeded(std::mem::take(&mut self.publishing.unneeded)));
        }
        if !self.publishing.settled.is_empty() {
            out.push(Output::Settled(std::mem::take(&mut self.publishing.settled)));
        }
        if self.session.is_connected() {
            if self.publishing.is_much_unsettled() && self.log.has_unsent() {
                self.flush_log(out);
            }
            while self.log.is_due()
                && let Some(message) = self.log.next_message(true)
            {
                out.push(Output::Send(message));
            }
            self.refill(out);
        }
        if !self.log.has_unsent() {
            self.unsent_since = None;
        }
    }

    /// Closes the session in order: publishes dirty content, flushes the log, says goodbye.
    ///
    /// Returns true once nothing waits for acknowledgment. Until then the host calls this again
    /// after each input.
    pub fn close(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        self.publish_all(now, out);
        self.flush_log(out);
        let clean = self.publishing.is_idle() && self.log.applied() == self.log.last();
        if clean {
            self.say_goodbye(now, out);
        }
        clean
    }

    pub(crate) fn release(&mut self, now: Now, leases: Vec<lease::Released>) {
        for released in leases.iter().filter(|released| released.field == Field::Locks) {
            self.write_down_locks(now, &released.file);
        }
        let held = self.files.release(&leases);
        let (mut still_held, mut answers) = (leases.clone(), Vec::new());
        for ((released, held), answer) in leases.iter().zip(held).zip(&mut still_held) {
            if held == held.and_then(|kind| kind.within(released.keep)) {
                answers.push(released.clone());
            }
            match (&released.field, released.keep) {
                (Field::Content, None) => self.publishing.orphan(&released.file),
                (Field::Content, Some(_)) => self.stop_folding(&released.file),
                _ => {}
            }
            if released.field.is_black_box() {
                // A recall may name more than this client holds: one of the two leases of a black
                // box may be here without the other.
                answer.keep =
                    self.files.get(&released.file).and_then(|known| known.held.kind(&released.field));
            }
        }
        self.unsent_since.get_or_insert(now.time);
        self.push_release(still_held, answers);
    }

    /// Logs releases. Those of one file's black boxes go in one entry, together with this client's
    /// own values. `answers` are the releases of leases that are not held.
    pub(crate) fn push_release(&mut self, leases: Vec<lease::Released>, answers: Vec<lease::Released>) {
        if self.yields.let_go(&leases) {
            // A recall waits for it, so it is due.
            self.unsent_since = Some(Time(0));
        }
        for lost in leases.iter().filter(|it| it.field == Field::Content && it.keep.is_none()) {
            // Another client writes the range from now on, and this one may never hear of its
            // deletion.
            self.break_promise(&lost.file, 0..u64::MAX);
        }
        let files: Vec<FileId> = leases.iter().map(|released| released.file.clone()).collect();
        let (boxes, released): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|released| released.field.is_black_box());
        let mut returned: BTreeMap<FileId, Vec<_>> = BTreeMap::new();
        for lease::Released { file, field, keep } in boxes {
            returned.entry(file).or_default().push((field, keep));
        }
        for (file, fields) in returned {
            let (own, bytes) = (self.own(&file), 48 + 4 * fields.len());
            self.log.push(LogEntry::Return { file, fields, own }, bytes);
        }
        if !released.is_empty() {
            self.log.push_release(released, answers);
        }
        let sequence = self.log.last();
        self.letting_go.extend(files.into_iter().map(|file| (file, sequence)));
    }

    /// Whether a release of a lease on `file` is not acknowledged yet.
    ///
    /// The server made a grant that arrives before then without knowledge of the release. The
    /// release then ends the granted lease too. So the client ignores such a grant, and the call
    /// that wanted it asks again.
    pub(crate) fn is_letting_go(&self, file: &FileId) -> bool {
        self.letting_go.get(file).is_some_and(|sequence| *sequence > self.log.applied())
    }

    /// A reply without its leases: see [`Reply::Node`].
    pub(crate) fn node(&mut self, now: Now, entry: namespace::Entry) -> Result<Reply, Stop> {
        let stat = self.stat(now, &entry.file)?;
        Ok(Reply::Node(entry, stat))
    }

    pub(crate) fn stat(&mut self, now: Now, file: &FileId) -> Result<namespace::Stat, Stop> {
        match self.decide(now, Operation::Stat { file: file.clone() })? {
            Answer::Stat(stat) => {
                let occupied = stat.occupied.saturating_add(self.promised.of(file));
                let atime = self.accesses.shown(file, &stat.attributes);
                let attributes = namespace::Attributes { atime, ..stat.attributes };
                Ok(namespace::Stat { attributes, occupied, ..stat })
            }
            Answer::Nothing | Answer::Entry(_) | Answer::Bytes(_) | Answer::Names(_) | Answer::Lock(_) => {
                Err(Stop::Error(Error::Invalid))
            }
        }
    }
}
