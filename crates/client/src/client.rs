//! The client: one lease holder for the whole machine, whatever front doors it serves.

use crate::accesses::Accesses;
use crate::evict::EvictionClock;
use crate::known::{Files, KnownFile};
use crate::lingering::Lingering;
use crate::publish::Publishing;
use crate::recall::{Flushing, Yields};
use crate::reopen::Reopening;
use crate::reported::PingPongFiles;
use crate::server::{ServerId, Servers};
use crate::waiting::{Need, Stop, Waiting};
use crate::{Call, Input, Now, Outcome, Output, Reply, Ticket};
use ident::FileId;
use lease::{Field, Open, Released, Time};
use namespace::{Answer, Cred, Effects, Error, Operation, Verdict, decide};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::collections::{BTreeMap, BTreeSet};
use wire::{LogEntry, Rights, ToClient};

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
    /// Everything that belongs to one server.
    pub(crate) servers: Servers,
    /// When the clock was read last.
    pub(crate) clock_read: Option<Time>,
    pub(crate) publishing: Publishing,
    pub(crate) waiting: BTreeMap<Ticket, Waiting>,
    pub(crate) next_ticket: u64,
    next_number: u64,
    /// A lock was released here, so calls that wait for one can be tried again.
    pub(crate) unlocked: bool,
    /// Leases that are to be released and cannot be yet.
    pub(crate) yields: Yields,
    /// Files whose content ping-pongs.
    pub(crate) passing: PingPongFiles,
    /// A call is being tried on values reported for this one try, without a lease.
    pub(crate) is_told: bool,
    /// Reports that wait for content to be published.
    pub(crate) flushing: Vec<Flushing>,
    /// The order in which files are forgotten.
    pub(crate) hand: EvictionClock,
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
            servers: Servers::new(),
            clock_read: None,
            publishing: Publishing::default(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
            next_number: 0,
            unlocked: false,
            yields: Yields::default(),
            passing: PingPongFiles::default(),
            is_told: false,
            flushing: Vec::new(),
            hand: EvictionClock::default(),
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
            Input::Greeting => self.servers.get_mut(ServerId::ONLY).term.greet(now.time),
            Input::Message(message) => self.on_message(now, ServerId::ONLY, message, out),
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
        let connected = self.servers.iter().filter(|(_, server)| server.is_connected());
        let unsent = connected.filter_map(|(_, server)| server.log.unsent_since()).min();
        let flush = unsent.map(|since| since.after_ms(self.settings.flush_after_ms));
        let publish = self.publishing.oldest_dirty().map(|since| since.after_ms(self.publish_after_ms()));
        let lingering = self.lingering_deadline();
        let access = self.accesses.deadline().filter(|_| self.is_connected());
        let freed = self.freed_deadline();
        [flush, publish, lingering, access, freed, self.session_deadline()].into_iter().flatten().min()
    }

    /// This machine's root directory, with nothing above it. Known once a session has begun.
    pub fn root(&self) -> &FileId {
        &self.rights().root
    }

    /// The rights of this machine. Known once a session has begun.
    pub fn rights(&self) -> &Rights {
        &self.servers.get(ServerId::ONLY).rights
    }

    /// The number of log entries that no server has acknowledged.
    pub fn operations_unsent(&self) -> usize {
        self.servers.iter().map(|(_, server)| server.log.len()).sum()
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
        while at != *self.root() {
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
        let server = self.servers.id_for(&operation);
        let sequence = self.servers.get_mut(server).push_update(now.time, operation);
        for effect in effects {
            self.files.apply(effect, true);
            match effect {
                namespace::Effect::Death { file } => {
                    self.bury(server, sequence, file);
                    let session = self.servers.get_mut(server);
                    if session.is_short_of_space() {
                        // Another machine may wait for the freed space.
                        session.log.age_from(Time(0));
                    }
                }
                namespace::Effect::Birth { file, .. } => self.hand.add(file.clone()),
                // Many clients touch a directory's times without knowing them.
                namespace::Effect::Touch { dir, time } if !self.knows_times(dir) => {
                    self.servers.get_mut(server).touches.push(sequence, (dir.clone(), *time));
                }
                _ => {}
            }
        }
    }

    /// Buries `file`, whose death is this entry of the server's log.
    pub(crate) fn bury(&mut self, server: ServerId, sequence: u64, file: &FileId) {
        self.forget_content(file);
        self.servers.of_mut(file).break_promise(file, 0..u64::MAX);
        self.servers.get_mut(server).tombstones.push(sequence, file.clone());
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
        if self.rights().are_of_subtree() {
            self.files.revive(&grant);
        }
        self.files.grant(grant);
        if of_names {
            self.let_go_of_names(&file);
        }
        if let Some(times) = self.files.get_mut(&file).filter(|_| !knew).and_then(|k| k.times.as_mut()) {
            let touches = self.servers.iter().flat_map(|(_, server)| server.touches.iter());
            for (_, (_, time)) in touches.filter(|(_, (dir, _))| *dir == file) {
                **times = times.touched(*time);
            }
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn on_message(&mut self, now: Now, server: ServerId, message: ToClient, out: &mut Vec<Output>) {
        let session = self.servers.get_mut(server);
        if let ToClient::Granted { number, .. }
        | ToClient::Reported { number, .. }
        | ToClient::Shipped { number, .. } = &message
            && session.is_connected()
            && let Some(through) = session.requests.applied_by(*number)
        {
            self.on_applied(server, through, &[], out);
        }
        let session = self.servers.get_mut(server);
        match message {
            ToClient::Opened { inodes, allowance, space, term_ms, version, rights } => {
                (session.rights, session.version) = (rights, version);
                session.learn_space(now.time, space);
                self.on_opened(now, server, (inodes, allowance), term_ms, out);
            }
            ToClient::Resumed { through, rejected, space, term_ms, version } => {
                // Updates in the log already carry the version that decided them.
                session.version = version;
                session.learn_space(now.time, space);
                self.on_resumed(server, through, &rejected, term_ms, out);
            }
            // The host keeps receipts for its greetings.
            ToClient::Receipt(_) => {}
            ToClient::Fenced => self.cut_off(now, server, out),
            // The message belongs to an earlier connection.
            _ if !session.is_connected() => {}
            ToClient::Renewed { space } => {
                session.learn_space(now.time, space);
                session.term.end_renewal();
            }
            ToClient::Granted { number, grants, gone } => {
                for grant in grants {
                    if self.servers.of(&grant.file).is_letting_go(&grant.file) {
                        continue;
                    }
                    self.learn_grant(grant);
                }
                self.gone(server, gone);
                self.granted(server, number);
            }
            ToClient::Reported { number, values, gone } => {
                self.gone(server, gone);
                self.on_reported(now, server, number, values);
            }
            ToClient::Shipped { number, result } => self.on_shipped(server, number, result),
            ToClient::Recall { leases } => self.on_recall(now, server, leases, out),
            ToClient::Flush { number, file, field } => self.on_flush(now, number, file, &field, out),
            ToClient::FlushThrough { number, file } => {
                self.on_flush_content(now, Flushing { number, file, through: true }, out);
            }
            ToClient::Heard { file, through, goes_on } => self.on_heard(server, &file, through, goes_on),
            ToClient::Applied { through, rejected } => self.on_applied(server, through, &rejected, out),
            ToClient::Reserved { dir, first, end } => {
                session.requests.reserved(&dir);
                if let Some(children) = self.files.get_mut(&dir).and_then(|known| known.children.as_mut()) {
                    children.integers.is_reserving = false;
                    children.integers.add((first, end));
                }
            }
            ToClient::ReservedInodes { first, end } => {
                session.inodes.is_reserving = false;
                session.inodes.add((first, end));
            }
            ToClient::Allowance { bytes, files, space } => {
                session.learn_space(now.time, space);
                session.allowance.asking = None;
                session.allowance.add(bytes, files);
            }
            ToClient::Extents { number, file, from, to, extents, inline } => {
                self.learn_extents(&file, from, to, extents, inline);
                self.granted(server, number);
            }
        }
    }

    fn gone(&mut self, server: ServerId, gone: Vec<FileId>) {
        let session = self.servers.get_mut(server);
        for file in gone {
            // Identifiers are never reused, so a death is known for ever and needs no lease. A
            // request that is repeated gets the same answer.
            let known = self.files.0.entry(file.clone()).or_default();
            // The server knew of a death that was not decided here before this client did. So no
            // grant of the file is on its way.
            known.buried |= !known.gone;
            known.gone = true;
            session.break_promise(&file, 0..u64::MAX);
            session.tombstones.push(session.log.last(), file);
        }
    }

    pub(crate) fn on_applied(
        &mut self,
        server: ServerId,
        through: u64,
        rejected: &[(u64, Error)],
        out: &mut Vec<Output>,
    ) {
        let session = self.servers.get_mut(server);
        let refused = session.acknowledge(through, rejected);
        while let Some((_, file)) = session.tombstones.pop(through) {
            if let Some(known) = self.files.get_mut(&file).filter(|known| known.gone) {
                known.buried = true;
                if known.handles.is_none() {
                    self.files.0.remove(&file);
                }
            }
        }
        self.settle_content(server, through);
        self.refused(server, refused, out);
    }

    fn on_tick(&mut self, now: Now, out: &mut Vec<Output>) {
        let flush_after_ms = self.settings.flush_after_ms;
        self.publish_old(now, out);
        let is_due = |since: Time| now.time >= since.after_ms(flush_after_ms);
        if self.servers.iter().any(|(_, server)| server.log.unsent_since().is_some_and(is_due)) {
            // Content that can be published at once goes along with the names.
            self.publish_all(now, out);
            self.flush_logs(out);
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
        let dirty_bytes = self.publishing.dirty_bytes() as u64;
        for server in self.servers.iter_mut().filter(|server| server.is_connected()) {
            server.send_what_is_due(out);
            server.refill(dirty_bytes, out);
        }
    }

    /// Sends all of the logs, and asks for acknowledgments at once.
    pub(crate) fn flush_logs(&mut self, out: &mut Vec<Output>) {
        self.servers.iter_mut().for_each(|server| server.flush_log(out));
    }

    /// Closes the sessions in order: publishes dirty content, flushes the logs, says goodbye.
    ///
    /// Returns true once nothing waits for acknowledgment. Until then the host calls this again
    /// after each input.
    pub fn close(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        self.publish_all(now, out);
        self.flush_logs(out);
        let clean =
            self.publishing.is_idle() && self.servers.iter().all(|(_, server)| server.log.is_all_applied());
        if clean {
            self.say_goodbye(now, out);
        }
        clean
    }

    pub(crate) fn release(&mut self, now: Now, leases: Vec<Released>) {
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
        let mut answers = self.servers.split(answers);
        for (server, leases) in self.servers.split(still_held) {
            self.servers.get_mut(server).log.age_from(now.time);
            self.push_release(server, leases, answers.remove(&server).unwrap_or_default());
        }
    }

    /// Logs releases of leases from one server. Those of one file's black boxes go in one entry,
    /// together with this client's own values. `answers` are the releases of leases that are not
    /// held.
    pub(crate) fn push_release(&mut self, server: ServerId, leases: Vec<Released>, answers: Vec<Released>) {
        let session = self.servers.get_mut(server);
        if self.yields.let_go(&leases) {
            // A recall waits for it, so it is due.
            session.log.age_from(Time(0));
        }
        for lost in leases.iter().filter(|it| it.field == Field::Content && it.keep.is_none()) {
            // Another client writes the range from now on, and this one may never hear of its
            // deletion.
            session.break_promise(&lost.file, 0..u64::MAX);
        }
        let files: Vec<FileId> = leases.iter().map(|released| released.file.clone()).collect();
        let (boxes, released): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|released| released.field.is_black_box());
        let mut returned: BTreeMap<FileId, Vec<_>> = BTreeMap::new();
        for Released { file, field, keep } in boxes {
            returned.entry(file).or_default().push((field, keep));
        }
        for (file, fields) in returned {
            let own = self.files.get(&file).map_or(Open::CLOSED, KnownFile::own);
            let bytes = 48 + 4 * fields.len();
            session.log.push(LogEntry::Return { file, fields, own }, bytes);
        }
        if !released.is_empty() {
            session.log.push_release(released, answers);
        }
        session.let_go(&files);
    }

    /// A reply without its leases: see [`Reply::Node`].
    pub(crate) fn node(&mut self, now: Now, entry: namespace::Entry) -> Result<Reply, Stop> {
        let stat = self.stat(now, &entry.file)?;
        Ok(Reply::Node(entry, stat))
    }

    pub(crate) fn stat(&mut self, now: Now, file: &FileId) -> Result<namespace::Stat, Stop> {
        match self.decide(now, Operation::Stat { file: file.clone() })? {
            Answer::Stat(stat) => {
                let occupied = stat.occupied.saturating_add(self.servers.of(file).promised.of(file));
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
