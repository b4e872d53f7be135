//! The client: one lease holder for the whole machine, whatever front doors it serves.

use crate::accesses::Accesses;
use crate::evict::EvictionClock;
use crate::known::Files;
use crate::lingering::Lingering;
use crate::log::Log;
use crate::promised::Promised;
use crate::publish::Publishing;
use crate::recall::{Flushing, Yields};
use crate::reopen::Reopening;
use crate::reported::Passing;
use crate::requests::Requests;
use crate::session::Session;
use crate::waiting::{Need, Stop, Waiting};
use crate::{Call, Input, Now, Outcome, Output, Reply, Ticket};
use ident::FileId;
use lease::{Field, Time};
use namespace::{Answer, Cred, Effects, Error, Operation, Rules, Verdict, decide};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{LogEntry, Rights, Space, ToClient};

/// What the host decides about a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Entropy: names of shares, keys, nonces. Never the same for two incarnations.
    pub seed: [u8; 32],
    /// Updates are on their way to the server at the latest so long after they were made, ms;
    /// content that they are of, too: it begins to be uploaded when half of that is over.
    pub flush_after_ms: u64,
    /// Bytes of content that may be dirty before writers wait.
    pub dirty_bytes_max: usize,
    /// Files of which something is known before the least used are forgotten.
    pub files_max: usize,
    /// Names of one directory that are held one by one before they are let go.
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

/// What is left of the allowance: bytes and files that the server has set aside for this session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    pub bytes: u64,
    pub files: u64,
    /// The request for more that is under way: for how many bytes and files at least, and how many
    /// bytes are lacking to replace content.
    pub asking: Option<(u64, u64, u64)>,
}

/// Directories above one that are told at most: those known here could go round.
const DEPTH_MAX: usize = 256;

/// See the module. The host reads clocks and passes [`Now`], which never goes back; it carries out
/// every [`Output`] in order; a spurious [`Input::Tick`] does no harm; [`Client::deadline`] says
/// when the next one is due.
#[derive(Debug)]
pub struct Client {
    pub(crate) settings: Settings,
    pub(crate) rng: ChaCha12Rng,
    pub(crate) files: Files,
    pub(crate) log: Log,
    /// Since when something in the log has been waiting to be sent.
    pub(crate) unsent_since: Option<Time>,
    pub(crate) publishing: Publishing,
    pub(crate) waiting: BTreeMap<Ticket, Waiting>,
    pub(crate) next_ticket: u64,
    next_number: u64,
    pub(crate) requests: Requests,
    pub(crate) inodes: (u64, u64),
    pub(crate) inodes_next: (u64, u64),
    /// Where the last block that came ends.
    pub(crate) inodes_known: u64,
    pub(crate) reserving_inodes: bool,
    pub(crate) allowance: Allowance,
    /// What of it is set aside for ranges of files.
    pub(crate) promised: Promised,
    pub(crate) space: Space,
    /// When the server said so.
    pub(crate) space_told: Time,
    /// Something was unlocked here: who waits for that can be tried again.
    pub(crate) unlocked: bool,
    /// What is to be let go and could not yet be.
    pub(crate) yields: Yields,
    /// Files whose content passes to and fro.
    pub(crate) passing: Passing,
    /// A call is being tried on what was told for this once, and is not leased.
    pub(crate) is_told: bool,
    /// Files of which something was let go in log entries (by sequence number) that are not
    /// acknowledged yet.
    pub(crate) letting_go: FxHashMap<FileId, u64>,
    /// Reports that wait for content to be published.
    pub(crate) flushing: Vec<Flushing>,
    /// What was written through and not heard of yet: the log entries, and of which files.
    pub(crate) unheard: VecDeque<(u64, FileId)>,
    /// Files that were deleted here; their tombstones go when the server knows (by sequence
    /// number).
    pub(crate) tombstones: VecDeque<(u64, FileId)>,
    /// Touches of directories whose times were not known here, until the server knows (by sequence
    /// number).
    pub(crate) touches: VecDeque<(u64, FileId, namespace::Timestamp)>,
    /// What is forgotten first.
    pub(crate) hand: EvictionClock,
    /// What this machine may do, as the server said last.
    pub(crate) rights: Rights,
    /// By which operations are decided, as the server said last.
    pub(crate) rules: Rules,
    pub(crate) session: Session,
    /// What programs opened in sessions that are over.
    pub(crate) reopening: BTreeMap<FileId, Reopening>,
    /// The machine is about to end: what is still written is taken, whatever becomes of it.
    pub(crate) ending: bool,
    /// Whether there is something below that keeps what it is told of files.
    pub(crate) is_handed_out: bool,
    /// Files that have no name any more and are known below.
    pub(crate) lingering: Lingering,
    /// Access times that the server is to hear of.
    pub(crate) accesses: Accesses,
    /// Files of which something was lost, and nobody who asked for them to be durable was told yet;
    /// and whether anything was, for who asks for all.
    pub(crate) unsaved: BTreeSet<FileId>,
    pub(crate) unsaved_any: bool,
}

impl Client {
    /// A client whose session is about to be opened; calls wait for that.
    pub fn new(settings: Settings) -> Client {
        Client {
            rng: ChaCha12Rng::from_seed(settings.seed),
            settings,
            files: Files::default(),
            log: Log::new(),
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
            passing: Passing::default(),
            is_told: false,
            letting_go: FxHashMap::default(),
            flushing: Vec::new(),
            unheard: VecDeque::new(),
            tombstones: VecDeque::new(),
            touches: VecDeque::new(),
            hand: EvictionClock::default(),
            rights: Rights::FULL,
            rules: Rules::NEWEST,
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

    /// Does `call` for `cred`: at once if the leases at hand cover it.
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

    /// Whoever made this call does not wait any longer: it is answered with `Error::Interrupted`.
    /// Nothing of it is done, unless the server is doing it; whether it was still under way.
    pub fn cancel(&mut self, ticket: Ticket, out: &mut Vec<Output>) -> bool {
        let waited = self.waiting.remove(&ticket).is_some();
        if waited {
            out.push(Output::Answer { ticket, result: Err(Error::Interrupted) });
        }
        waited
    }

    /// Takes an input; answers come in `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.read_clock(now, out);
        // Trap: a host with nothing below says at once that it has gone, and each batch would bring
        // the next from within.
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

    /// The directory that this machine has for its root: there is nothing above it. Known once a
    /// session has begun.
    pub fn root(&self) -> &FileId {
        &self.rights.root
    }

    /// What this machine may do. Known once a session has begun.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Operations that the server is not known to have.
    pub fn operations_unsent(&self) -> usize {
        self.log.len()
    }

    /// How many files something is known of.
    pub fn files_known(&self) -> usize {
        self.files.0.len()
    }

    /// What this client holds, file by file, as long as its session's time has not run out. For
    /// tests and tools.
    pub fn held(&self, now: Time) -> impl Iterator<Item = (&FileId, &lease::Held)> {
        let valid = self.valid_for_ms(now) > 0;
        let files = self.files.0.iter().filter(move |(_, known)| valid && !known.gone);
        files.map(|(file, known)| (file, &known.held))
    }

    /// Where `file` is below this machine's root, as far as is known here: what is not leased may
    /// have moved since. For people to read.
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

    /// Decides on what is known here; an update that succeeds is done here and logged.
    pub(crate) fn decide(&mut self, now: Now, operation: Operation) -> Result<Answer, Stop> {
        match decide(self.rules, &operation, &self.files) {
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
                        // What that frees somebody may wait for.
                        self.unsent_since = Some(Time(0));
                    }
                }
                namespace::Effect::Birth { file, .. } => self.hand.add(file.clone()),
                // Many touch a directory's times without knowing them.
                namespace::Effect::Touch { dir, time } if !self.knows_times(dir) => {
                    self.touches.push_back((sequence, dir.clone(), *time));
                }
                _ => {}
            }
        }
    }

    /// Entry `sequence` of the log is the death of `file`.
    pub(crate) fn bury(&mut self, sequence: u64, file: &FileId) {
        self.forget_content(file);
        self.break_promise(file, 0..u64::MAX);
        self.tombstones.push_back((sequence, file.clone()));
    }

    fn knows_times(&self, dir: &FileId) -> bool {
        self.files.get(dir).is_some_and(|known| known.times.is_some())
    }

    /// Learns what was granted. What this client did to a directory's times after the server had
    /// seen its log so far is not in them yet.
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

    /// Logs an update of what was done `since` then.
    pub(crate) fn push_update(&mut self, since: Time, operation: Operation) -> u64 {
        self.unsent_since = Some(self.unsent_since.map_or(since, |before| before.min(since)));
        self.log.push_update(self.rules, operation)
    }

    /// Sends all of the log, for whom it is to be durable.
    pub(crate) fn flush_log(&mut self, out: &mut Vec<Output>) {
        self.send_log(true, out);
    }

    /// Sends all of the log, for something that comes behind it. Nobody here waits to hear of it.
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
            ToClient::Opened { inodes, allowance, space, term_ms, rules, rights } => {
                // A server names none but those of a version that the greeting has agreed upon.
                let Some(rules) = Rules::numbered(rules) else { return };
                (self.rights, self.rules) = (rights, rules);
                self.learn_space(now, space);
                self.on_opened(now, inodes, allowance, term_ms, out);
            }
            ToClient::Resumed { through, rejected, space, term_ms, rules } => {
                // Updates that are in the log name the rules that decided them.
                let Some(rules) = Rules::numbered(rules) else { return };
                self.rules = rules;
                self.learn_space(now, space);
                self.on_resumed(through, &rejected, term_ms, out);
            }
            // What the host keeps for its greetings.
            ToClient::Receipt(_) => {}
            ToClient::Fenced => self.cut_off(now, out),
            // Of a connection that is no more.
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
                    // A block that came twice is one block.
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
            // Identifiers are never reused, so this is known for ever and rests on no lease; a
            // question that comes again asks again.
            let known = self.files.0.entry(file.clone()).or_default();
            // What was not deleted here the server knew to be gone before we did: no grant of it is
            // on its way.
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
            // Names bring along what can come with them at once.
            self.publish_all(now, out);
            self.flush_log(out);
        }
        self.end_lingering(now, out);
        self.tell_accesses(now, out);
        self.keep_session(now, out);
    }

    /// After every input: what is due goes out, and what is low is asked for before it runs out.
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

    /// Lets everything go in order: what is dirty is published, the log flushed, the session ended.
    /// True once nothing is left to be acknowledged; to be called again after inputs until then.
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
                // What is recalled may be more than is held: one of the two leases may be here
                // without the other.
                answer.keep =
                    self.files.get(&released.file).and_then(|known| known.held.kind(&released.field));
            }
        }
        self.unsent_since.get_or_insert(now.time);
        self.push_release(still_held, answers);
    }

    /// Lets the server know of what was let go: of a file's black boxes together, with this
    /// client's own values. `answers` is what of it was not held.
    pub(crate) fn push_release(&mut self, leases: Vec<lease::Released>, answers: Vec<lease::Released>) {
        if self.yields.let_go(&leases) {
            // Somebody waits for it: it is due.
            self.unsent_since = Some(Time(0));
        }
        for lost in leases.iter().filter(|it| it.field == Field::Content && it.keep.is_none()) {
            // Another writes it, and nobody might ever say that it has gone.
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

    /// Whether the server has yet to see a release of something of `file`. A grant that comes
    /// before was made before, and the release takes it back: the call that wanted it asks again.
    pub(crate) fn is_letting_go(&self, file: &FileId) -> bool {
        self.letting_go.get(file).is_some_and(|sequence| *sequence > self.log.applied())
    }

    /// Everything of a reply but its leases: see [`Reply::Node`].
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
