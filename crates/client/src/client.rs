//! The client: one lease holder for the whole machine, whatever front doors it serves.

use crate::calls::{Calls, Stop, Waiting};
use crate::knowledge::{Accesses, CoveredFiles, EvictionClock, Files, Reopening};
use crate::leases::{Lingering, PingPongFiles, Revocations, WatchedFiles};
use crate::publishing::Publishing;
use crate::server::{ServerId, Servers};
use crate::{Call, Input, Now, Outcome, Output, Ticket};
use ident::FileId;
use lease::Time;
use namespace::{Cred, Error};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::collections::{BTreeMap, BTreeSet};
use wire::Rights;

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
    pub(crate) calls: Calls,
    next_number: u64,
    /// Leases that are to be released and cannot be yet.
    pub(crate) revocations: Revocations,
    /// Files whose content ping-pongs.
    pub(crate) ping_pong: PingPongFiles,
    /// Files that another machine looks at after each change.
    pub(crate) watched: WatchedFiles,
    /// A call is being tried on values reported for this one try, without a lease.
    pub(crate) is_told: bool,
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
    pub(crate) covered: CoveredFiles,
    /// When an update here last freed space: the latest deletion, or content that was cut off.
    pub(crate) freed: Option<Time>,
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
            calls: Calls::default(),
            next_number: 0,
            revocations: Revocations::default(),
            ping_pong: PingPongFiles::default(),
            watched: WatchedFiles::default(),
            is_told: false,
            hand: EvictionClock::default(),
            reopening: BTreeMap::new(),
            ending: false,
            is_handed_out: false,
            lingering: Lingering::default(),
            accesses: Accesses::default(),
            unsaved: BTreeSet::new(),
            unsaved_any: false,
            covered: CoveredFiles::default(),
            freed: None,
        }
    }

    /// Does `call` for `cred`, at once if the leases at hand cover it.
    pub fn call(&mut self, now: Now, cred: &Cred, call: Call, out: &mut Vec<Output>) -> Outcome {
        self.read_clock(now, out);
        let mut waiting = Waiting::new(now, cred.clone(), call);
        match self.attempt(now, &mut waiting, out) {
            Ok(reply) => {
                if self.calls.unlocked {
                    self.settle(now, out);
                }
                self.tidy(now, out);
                self.evict(now, out);
                Outcome::Done(Ok(reply))
            }
            Err(Stop::Error(error)) => Outcome::Done(Err(error)),
            Err(Stop::Need(need)) => {
                let ticket = self.calls.ticket();
                self.wait(now, ticket, waiting, need, out);
                if self.calls.unlocked {
                    self.settle(now, out);
                }
                self.tidy(now, out);
                self.evict(now, out);
                Outcome::Waiting(ticket)
            }
        }
    }

    /// Ends the wait of a call, which is answered with `Error::Interrupted`. Nothing of the call is
    /// done, unless the server is doing it. Returns whether the call was still under way.
    pub fn cancel(&mut self, ticket: Ticket, out: &mut Vec<Output>) -> bool {
        let waited = self.calls.remove(ticket).is_some();
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
        let may_evict = !matches!(input, Input::Revoked { .. });
        match input {
            Input::Greeting(server) => self.servers.get_mut(server).term.greet(now.time),
            Input::Message(server, message) => self.on_message(now, server, message, out),
            Input::Stored { upload, result } => self.on_stored(now, upload, result, out),
            Input::Revoked { number, kept } => self.on_revoked(now, number, &kept, out),
            Input::Forgotten(files) => self.on_forgotten(now, files, out),
            Input::Tick => self.on_tick(now, out),
        }
        self.settle(now, out);
        self.tidy(now, out);
        if may_evict {
            self.evict(now, out);
        }
    }

    /// When the next tick is due.
    pub fn deadline(&self) -> Option<Time> {
        let connected = self.servers.iter().filter(|(_, server)| server.is_connected());
        let unsent = connected.filter_map(|(_, server)| server.log.unsent_since()).min();
        let flush = unsent.map(|since| since.after_ms(self.settings.flush_after_ms));
        let publish = self.publishing.oldest_dirty().map(|since| since.after_ms(self.publish_after_ms()));
        let lingering = self.lingering_deadline();
        let access = self.accesses.deadline().filter(|_| self.is_connected(ServerId::ROOT));
        let freed = self.calls.freed_deadline();
        [flush, publish, lingering, access, freed, self.session_deadline()].into_iter().flatten().min()
    }

    /// This machine's root directory, with nothing above it. Known once a session has begun.
    pub fn root(&self) -> &FileId {
        &self.rights().root
    }

    /// The rights of this machine. Known once a session has begun.
    pub fn rights(&self) -> &Rights {
        &self.servers.get(ServerId::ROOT).rights
    }

    /// The number of log entries that no server has acknowledged.
    pub fn operations_unsent(&self) -> usize {
        self.servers.iter().map(|(_, server)| server.log.len()).sum()
    }

    /// The number of files that the client knows anything about.
    pub fn files_known(&self) -> usize {
        self.files.all.len()
    }

    /// The leases that this client holds, file by file, until its session's term runs out. For
    /// tests and tools.
    pub fn held(&self, now: Time) -> impl Iterator<Item = (&FileId, &lease::Held)> {
        let valid = self.valid_for_ms(now) > 0;
        let files = self.files.all.iter().filter(move |(_, known)| valid && !known.gone);
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

    /// The last number that [`Client::number`] gave.
    pub(crate) fn last_number(&self) -> u64 {
        self.next_number
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
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
        self.revoke_recalled(now, out);
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
}
