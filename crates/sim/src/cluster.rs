//! One machine in one thread: client, server, share server, disk and wires, all driven by one seed.
//!
//! Everything that takes time in the world is a queue here. The seed chooses the queue that moves
//! next. A crash loses all that the disk had not made durable.

use crate::model::feed;
use crate::names;
use client::{Call, Client, Now, Outcome, Output, Reply, Salvage, Settings, Ticket, Upload};
use directory::{Directory, Input, Inspector, MemoryStore, ShareWork};
use lease::{Label, SessionId, Time};
use namespace::{Attributes, Cred, Error, Extent, FileKind, Place, ShareId, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{MachineId, Space, ToClient, ToServer};

/// The one machine.
const MACHINE: MachineId = MachineId(1);

/// The description of a violation, readable without the source.
pub type Violation = String;

/// A stored share and its two possible lease holders.
#[derive(Debug)]
struct Share {
    bytes: Vec<u8>,
    /// The incarnation that stored the share, until it releases the share.
    by_machine: Option<u64>,
    by_server: bool,
}

/// The results of a check of the server's state.
#[derive(Default)]
struct Seen {
    faults: Vec<directory::Violation>,
    shares: BTreeSet<ShareId>,
}

impl Inspector for Seen {
    fn extent(&mut self, extent: &Extent) {
        if let Place::Share { share, .. } = extent.piece.place {
            self.shares.insert(share);
        }
    }

    fn violation(&mut self, violation: directory::Violation) {
        self.faults.push(violation);
    }
}

/// Starts of the wall clock, seconds: now, just before 1970 (and soon after it), long before, and
/// the ends of 32 and 34 bits.
const BEGINNINGS: [i64; 5] = [1_700_000_000, -5, -(1 << 40), (1 << 31) - 5, (1 << 34) - 5];
/// Number of labels in use.
const LABELS: usize = 9;

/// The machine with all its parts.
pub struct Cluster {
    pub(crate) rng: ChaCha12Rng,
    /// The labels in use: few, so that they collide.
    pub(crate) labels: Vec<Label>,
    /// The wall clock at the beginning, seconds.
    began: i64,
    now: Time,
    directory: Directory,
    store: MemoryStore,
    /// Log entries; the first `durable` survive a crash, the first `applied` are in the store.
    log: Vec<(Time, Vec<Input>)>,
    durable: usize,
    applied: usize,
    /// The checkpoint: its number of entries, and the store after them.
    checkpoint: (usize, MemoryStore),
    client: Client,
    session: Option<SessionId>,
    incarnation: u64,
    to_server: VecDeque<Input>,
    to_client: VecDeque<(SessionId, ToClient)>,
    uploads: VecDeque<Upload>,
    share_work: VecDeque<Vec<ShareWork>>,
    shares: BTreeMap<ShareId, Share>,
    answers: BTreeMap<Ticket, Result<Reply, Error>>,
    /// Bytes that the disk can hold of shares and log.
    pub(crate) space: u64,
    /// Whether uploads fail now and then.
    pub(crate) upload_faults: bool,
    /// Digest of every input and output so far: two equal runs have equal ones.
    pub trace: u64,
    /// Updates that the server refused. Any such update is a violation.
    rejected: Vec<Violation>,
}

impl Cluster {
    /// A new file system with `space` bytes of disk.
    pub fn new(seed: u64, space: u64) -> Cluster {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut store = MemoryStore::default();
        let directory = Directory::create(&mut store, root(), "machine-1", wire::Versions::KNOWN);
        let client = new_client(&mut rng);
        let labels = names::some(&mut rng, LABELS);
        let began = BEGINNINGS[(rng.next_u64() % BEGINNINGS.len() as u64) as usize];
        let mut cluster = Cluster {
            rng,
            labels,
            began,
            now: Time(1_000),
            directory,
            checkpoint: (0, store.clone()),
            store,
            log: Vec::new(),
            durable: 0,
            applied: 0,
            client,
            session: None,
            incarnation: 0,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            uploads: VecDeque::new(),
            share_work: VecDeque::new(),
            shares: BTreeMap::new(),
            answers: BTreeMap::new(),
            space,
            upload_faults: false,
            trace: 0xcbf2_9ce4_8422_2325,
            rejected: Vec::new(),
        };
        cluster.connect();
        cluster
    }

    /// A random number less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    /// True in one of `odds` cases.
    pub(crate) fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn now(&self) -> Now {
        let wall = Timestamp {
            secs: self.began + (self.now.0 / 1_000) as i64,
            nanos: (self.now.0 % 1_000) as u32 * 1_000_000,
        };
        Now { time: self.now, wall }
    }

    fn connect(&mut self) {
        self.incarnation += 1;
        self.session = None;
        self.input(client::Input::Greeting);
        let free = self.space.saturating_sub(self.used());
        self.to_server.push_back(Input::Lead);
        self.to_server.push_back(Input::Space(Space { total: self.space, free, files: 0, lends: 0 }));
        self.to_server.push_back(Input::Open {
            machine: MACHINE,
            incarnation: self.incarnation,
            greeting: wire::GreetingNumber::default(),
            session: None,
            connection: 0,
            version: wire::Version::NEWEST,
        });
    }

    fn used(&self) -> u64 {
        self.shares.values().map(|share| share.bytes.len() as u64).sum::<u64>() + self.store.bytes() as u64
    }

    /// Begins a call.
    pub fn call(&mut self, call: Call) -> Outcome {
        let mut out = Vec::new();
        let outcome = self.client.call(self.now(), &Cred::default(), call, &mut out);
        self.carry_out(out);
        outcome
    }

    /// The answer of a call that waited, once the answer has come.
    pub fn answer(&mut self, ticket: Ticket) -> Option<Result<Reply, Error>> {
        self.answers.remove(&ticket)
    }

    /// Makes a call, and runs everything else until the call is answered.
    pub fn complete(&mut self, call: Call) -> Result<Result<Reply, Error>, Violation> {
        let text = format!("{call:?}");
        match self.call(call) {
            Outcome::Done(result) => Ok(result),
            Outcome::Waiting(ticket) => {
                for _ in 0..20_000 {
                    self.step()?;
                    if let Some(result) = self.answer(ticket) {
                        return Ok(result);
                    }
                }
                Err(format!("never answered: {text}"))
            }
        }
    }

    fn carry_out(&mut self, out: Vec<Output>) {
        let mut yielded = Vec::new();
        for output in out {
            feed(&mut self.trace, format!("{output:?}").as_bytes());
            match output {
                Output::Send(message) => {
                    if let Some(session) = self.session {
                        self.to_server.push_back(Input::Message { session, message });
                    }
                }
                Output::Answer { ticket, result } => {
                    self.answers.insert(ticket, result);
                }
                Output::Store(upload) => self.uploads.push_back(upload),
                Output::Unneeded(shares) => self.let_go(&shares),
                Output::Settled(_) => {}
                Output::Salvage(salvage) => {
                    let Salvage { cut_off, items } = salvage;
                    self.rejected.push(format!(
                        "what the client had done did not happen (cut off: {cut_off}): {items:?}"
                    ));
                }
                Output::Yield { number, .. } => yielded.push(number),
                Output::Invalidate(_) => {}
            }
        }
        // No front door has anything cached.
        yielded
            .into_iter()
            .for_each(|number| self.input(client::Input::Yielded { number, kept: Default::default() }));
    }

    fn input(&mut self, input: client::Input) {
        let mut out = Vec::new();
        self.client.handle(self.now(), input, &mut out);
        self.carry_out(out);
    }

    /// Lets one thing happen.
    pub fn step(&mut self) -> Result<(), Violation> {
        match self.below(16) {
            0..4 => self.append(),
            4..7 => self.durable = self.log.len(),
            7..10 => self.apply()?,
            10..13 => self.receive(),
            13 => self.store_upload()?,
            14 => self.settle_shares(),
            _ => self.pass_time(),
        }
        match self.rejected.pop() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// Makes a log entry of a batch of inputs that arrived.
    fn append(&mut self) {
        let count = 1 + self.below(4) as usize;
        let mut batch = Vec::new();
        while batch.len() < count
            && let Some(input) = self.to_server.pop_front()
        {
            if let Input::Message { session, message: query @ ToServer::Extents { .. } } = &input {
                if let Some(reply) = self.directory.query(*session, query, &self.store) {
                    self.to_client.push_back((*session, reply));
                }
                continue;
            }
            batch.push(input);
        }
        if !batch.is_empty() {
            self.log.push((self.now, batch));
        }
    }

    fn apply(&mut self) -> Result<(), Violation> {
        if self.applied >= self.durable {
            return Ok(());
        }
        let (time, inputs) = self.log[self.applied].clone();
        self.applied += 1;
        for input in inputs {
            let mut out = Vec::new();
            self.directory.handle(time, input, &mut self.store, &mut out).map_err(|e| e.to_string())?;
            feed(&mut self.trace, format!("{out:?}").as_bytes());
            self.deliver(out);
        }
        if self.one_in(8) {
            self.directory.checkpoint(&mut self.store);
            self.checkpoint = (self.applied, self.store.clone());
        }
        Ok(())
    }

    fn deliver(&mut self, out: Vec<directory::Output>) {
        for output in out {
            match output {
                directory::Output::Opened { session, incarnation, .. } if incarnation == self.incarnation => {
                    self.session = Some(session);
                }
                // A session of an earlier incarnation, which is gone.
                directory::Output::Opened { .. } => {}
                directory::Output::Send { session, message } => self.to_client.push_back((session, message)),
                directory::Output::Shares(work) => self.share_work.push_back(work),
                directory::Output::Again => self.to_server.push_back(Input::Tick),
                directory::Output::Sync => {}
                // Outputs for the founder's administration, which does not occur here.
                directory::Output::Refused { .. }
                | directory::Output::Raised { .. }
                | directory::Output::Authorized { .. }
                | directory::Output::Revoked { .. }
                | directory::Output::Invited { .. }
                | directory::Output::Enrolled { .. }
                | directory::Output::Expelled { .. } => {}
            }
        }
    }

    fn receive(&mut self) {
        if let Some((session, message)) = self.to_client.pop_front()
            && self.session == Some(session)
        {
            self.input(client::Input::Message(message));
        }
    }

    fn store_upload(&mut self) -> Result<(), Violation> {
        // Uploads finish in any order.
        let pick = self.below(self.uploads.len() as u64) as usize;
        let Some(upload) = self.uploads.remove(pick) else { return Ok(()) };
        let full =
            self.used() + upload.pieces.iter().map(|(_, plain)| plain.len() as u64).sum::<u64>() > self.space;
        let result = if full || (self.upload_faults && self.one_in(8)) {
            Err(if full { Error::NoSpace } else { Error::Damaged })
        } else {
            let pieces = upload.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
            let (bytes, hashes) = content::seal_share(&upload.key, pieces);
            if self
                .shares
                .insert(upload.share, Share { bytes, by_machine: Some(self.incarnation), by_server: false })
                .is_some()
            {
                return Err("a share's name came twice".into());
            }
            Ok(hashes)
        };
        self.input(client::Input::Stored { upload: upload.upload, result });
        Ok(())
    }

    fn settle_shares(&mut self) {
        let Some(work) = self.share_work.pop_front() else { return };
        for item in &work {
            match item {
                ShareWork::Adopt(id) => {
                    if let Some(share) = self.shares.get_mut(id) {
                        share.by_server = true;
                        share.by_machine = None;
                    }
                }
                ShareWork::Drop(id) => {
                    if let Some(share) = self.shares.get_mut(id) {
                        share.by_server = false;
                        share.by_machine = None;
                    }
                }
            }
        }
        self.collect();
        self.to_server.push_back(Input::SharesSettled(work));
    }

    fn let_go(&mut self, shares: &[ShareId]) {
        for id in shares {
            if let Some(share) = self.shares.get_mut(id) {
                share.by_machine = None;
            }
        }
        self.collect();
    }

    fn collect(&mut self) {
        self.shares.retain(|_, share| share.by_machine.is_some() || share.by_server);
    }

    fn pass_time(&mut self) {
        let by = 1 + self.below(400);
        self.now = self.now.after_ms(by);
        if self.client.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.input(client::Input::Tick);
        }
        if self.one_in(16) {
            let free = self.space.saturating_sub(self.used());
            self.to_server.push_back(Input::Space(Space { total: self.space, free, files: 0, lends: 0 }));
        }
    }

    /// A power failure: client, server and wires lose all that the disk had not made durable.
    pub fn crash(&mut self) -> Result<(), Violation> {
        self.log.truncate(self.durable);
        self.uploads.clear();
        self.share_work.clear();
        let (held, store) = self.checkpoint.clone();
        self.store = store;
        self.directory = Directory::open(&self.store, wire::Versions::KNOWN).map_err(|e| e.to_string())?;
        self.applied = held;
        let mut lost = Vec::new();
        while self.applied < self.durable {
            let (time, inputs) = self.log[self.applied].clone();
            self.applied += 1;
            for input in inputs {
                // The outputs were sent before the crash, or their receivers are gone.
                self.directory.handle(time, input, &mut self.store, &mut lost).map_err(|e| e.to_string())?;
            }
        }
        self.new_incarnation();
        Ok(())
    }

    /// The client's process dies. Of the messages under way to the server a random beginning
    /// arrives.
    pub fn crash_client(&mut self) {
        let arrives = self.below(self.to_server.len() as u64 + 1) as usize;
        self.to_server.truncate(arrives);
        self.uploads.clear();
        self.new_incarnation();
    }

    fn new_incarnation(&mut self) {
        let lost_power = self.uploads.is_empty() && self.share_work.is_empty();
        self.client = new_client(&mut self.rng);
        self.to_client.clear();
        self.answers.clear();
        if lost_power {
            self.to_server.retain(|input| matches!(input, Input::SharesSettled(_)));
        }
        self.connect();
    }

    /// Runs until everything has come to rest.
    pub fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..50_000 {
            self.step()?;
            if self.is_quiet() {
                return Ok(());
            }
        }
        Err(format!(
            "does not come to rest: {} to the server, {} to the client, {} uploads, {} share works, log {}/{}/{}",
            self.to_server.len(),
            self.to_client.len(),
            self.uploads.len(),
            self.share_work.len(),
            self.applied,
            self.durable,
            self.log.len()
        ))
    }

    fn is_quiet(&self) -> bool {
        self.to_server.is_empty()
            && self.to_client.is_empty()
            && self.uploads.is_empty()
            && self.share_work.is_empty()
            && self.applied == self.log.len()
            && self.client.dirty_bytes() == 0
    }

    /// Drops the leases of the machine's account that an earlier incarnation took and no server
    /// adopted, as a start does.
    pub fn sweep_shares(&mut self) {
        let now = self.incarnation;
        self.shares
            .values_mut()
            .for_each(|share| share.by_machine = share.by_machine.filter(|then| *then == now));
        self.collect();
    }

    /// Checks the server's whole state, and that every share it references is stored.
    pub fn check(&self) -> Result<(), Violation> {
        let mut seen = Seen::default();
        self.directory.check(&self.store, &mut seen);
        if let Some(fault) = seen.faults.first() {
            return Err(format!("{} faults in the server's state, the first: {fault}", seen.faults.len()));
        }
        match seen.shares.iter().find(|share| !self.shares.contains_key(share)) {
            Some(share) => Err(format!("share {share:?} is referenced and was deleted")),
            None => Ok(()),
        }
    }

    /// Checks that no unreferenced share is kept. The caller asks when all is at rest.
    pub fn check_no_garbage(&self) -> Result<(), Violation> {
        let mut seen = Seen::default();
        self.directory.check(&self.store, &mut seen);
        match self.shares.iter().find(|(share, _)| !seen.shares.contains(share)) {
            Some((id, Share { by_machine, by_server, .. })) => Err(format!(
                "share {id:?} is kept (by the machine: {by_machine:?}, by the server: {by_server}) and nothing references it"
            )),
            None => Ok(()),
        }
    }

    /// The number of shares that are kept.
    #[cfg(test)]
    pub fn shares(&self) -> usize {
        self.shares.len()
    }

    /// The bytes of a read.
    pub fn gather(&self, parts: &[content::ReadPart]) -> Result<Vec<u8>, Violation> {
        content::assemble(
            parts,
            |part| {
                let content::ReadPart::Piece { share, at, piece_length, nonce, hash, key, .. } = part else {
                    return Err("only pieces need opening".to_owned());
                };
                let stored =
                    self.shares.get(share).ok_or(format!("share {share:?} was deleted while it was read"))?;
                let (from, to) = (*at as usize, (*at + *piece_length) as usize + content::TAG_BYTES);
                let sealed = stored.bytes.get(from..to).ok_or("a share is too short")?.to_vec();
                content::open(key, nonce, hash, sealed).map(Into::into).map_err(|e| e.to_string())
            },
            || "a piece is too short".to_owned(),
        )
    }
}

pub(crate) fn root() -> Attributes {
    let time = Timestamp { secs: 1_700_000_000, nanos: 0 };
    Attributes {
        kind: FileKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: time,
        btime: time,
        atime: time,
    }
}

fn new_client(rng: &mut ChaCha12Rng) -> Client {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    // Small bounds, so that every limit is met.
    Client::new(Settings { dirty_bytes_max: 256 << 10, files_max: 60, names_max: 4, ..Settings::new(seed) })
}
