//! One machine on a host whose disk fills up, loses power, and holds the server's log and the
//! shares.
//!
//! Everything that takes time is a queue here. The seed chooses the queue that moves next. A crash
//! loses all that the disk had not made durable.

use crate::gather::gather;
use crate::host::{Host, News, Violation};
use crate::model::feed;
use crate::names;
use crate::workload::Users;
use client::{Call, Outcome, Reply, Settings, Ticket, Upload};
use directory::{Input, Inspector, MemoryStore, Policy, ShareWork};
use lease::{Label, Time};
use namespace::{Cred, Error, Extent, Place, ShareId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{Rights, Space, ToServer};

/// The place of the one machine.
const IT: usize = 0;

/// A stored share and its two possible lease holders.
#[derive(Debug)]
struct StoredShare {
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
    host: Host,
    /// The labels in use: few, so that they collide.
    pub(crate) labels: Vec<Label>,
    /// Log entries; the first `durable` survive a crash, the first `applied` are in the store.
    log: Vec<(Time, Vec<Input>)>,
    durable: usize,
    applied: usize,
    /// The checkpoint: its number of entries, and the store after them.
    checkpoint: (usize, MemoryStore),
    uploads: VecDeque<Upload>,
    share_work: VecDeque<Vec<ShareWork>>,
    shares: BTreeMap<ShareId, StoredShare>,
    answers: BTreeMap<Ticket, Result<Reply, Error>>,
    /// Bytes that the disk can hold of shares and log.
    pub(crate) space: u64,
    /// Whether uploads fail now and then.
    pub(crate) upload_faults: bool,
    /// Digest of every input and output so far: two equal runs have equal ones.
    pub trace: u64,
}

impl Cluster {
    /// A new file system with `space` bytes of disk.
    pub fn new(seed: u64, space: u64) -> Result<Cluster, Violation> {
        // Small bounds, so that every limit is met.
        let settings = Settings::new([0; 32]);
        let settings = Settings { dirty_bytes_max: 256 << 10, files_max: 60, names_max: 4, ..settings };
        let host = Host::new(seed, Policy::default(), settings);
        let mut cluster = Cluster {
            labels: Vec::new(),
            checkpoint: (0, host.server.store.clone()),
            host,
            log: Vec::new(),
            durable: 0,
            applied: 0,
            uploads: VecDeque::new(),
            share_work: VecDeque::new(),
            shares: BTreeMap::new(),
            answers: BTreeMap::new(),
            space,
            upload_faults: false,
            trace: 0xcbf2_9ce4_8422_2325,
        };
        cluster.host.space = cluster.measure();
        cluster.host.join(Rights::FULL)?;
        cluster.host.machines[IT].to_server.push_front(Input::Lead);
        cluster.labels = names::some(&mut cluster.host.rng, LABELS);
        cluster.host.began = BEGINNINGS[cluster.below(BEGINNINGS.len() as u64) as usize];
        Ok(cluster)
    }

    /// Those who call.
    pub(crate) fn users(&mut self) -> Users<'_> {
        Users { rng: &mut self.host.rng, labels: &self.labels }
    }

    /// A random number less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.host.below(bound)
    }

    /// True in one of `odds` cases.
    pub(crate) fn one_in(&mut self, odds: u64) -> bool {
        self.host.one_in(odds)
    }

    fn measure(&self) -> Space {
        Space {
            total: self.space,
            free: self.space.saturating_sub(self.used()),
            files: 0,
            lends: 0,
            elsewhere: 0,
        }
    }

    fn used(&self) -> u64 {
        let shares = self.shares.values().map(|share| share.bytes.len() as u64);
        shares.sum::<u64>() + self.host.server.store.bytes() as u64
    }

    /// Adds to the trace.
    fn feed(&mut self, what: &impl std::fmt::Debug) {
        feed(&mut self.trace, format!("{what:?}").as_bytes());
    }

    /// Begins a call.
    pub fn call(&mut self, call: Call) -> Result<Outcome, Violation> {
        let outcome = self.host.call(IT, &Cred::default(), call)?;
        self.feed(&outcome);
        self.hear()?;
        Ok(outcome)
    }

    /// The answer of a call that waited, once the answer has come.
    pub fn answer(&mut self, ticket: Ticket) -> Option<Result<Reply, Error>> {
        self.answers.remove(&ticket)
    }

    /// Makes a call, and runs everything else until the call is answered.
    pub fn complete(&mut self, call: Call) -> Result<Result<Reply, Error>, Violation> {
        let text = format!("{call:?}");
        match self.call(call)? {
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

    fn hear(&mut self) -> Result<(), Violation> {
        while let Some(news) = self.host.news.pop_front() {
            self.feed(&news);
            match news {
                News::Answer { ticket, result, .. } => _ = self.answers.insert(ticket, result),
                News::Store(upload) => self.uploads.push_back(upload),
                News::Unneeded(shares) => self.release(&shares),
                News::Shares(work) => self.share_work.push_back(work),
                News::Fenced { .. } | News::CutOff { .. } | News::Refused { .. } => {
                    return Err(format!("what the client had done did not happen: {news:?}"));
                }
            }
        }
        Ok(())
    }

    /// Lets one thing happen.
    pub fn step(&mut self) -> Result<(), Violation> {
        match self.below(16) {
            0..4 => self.append(),
            4..7 => self.durable = self.log.len(),
            7..10 => self.apply()?,
            10..13 => self.host.client_receives(IT)?,
            13 => self.store_upload()?,
            14 => self.settle_shares(),
            _ => self.pass_time()?,
        }
        self.hear()
    }

    /// Makes a log entry of a batch of inputs that arrived.
    fn append(&mut self) {
        let count = 1 + self.below(4) as usize;
        let mut batch = Vec::new();
        while batch.len() < count
            && let Some(input) = self.host.machines[IT].to_server.pop_front()
        {
            if let Input::Message { session, message: query @ ToServer::Extents { .. } } = &input {
                let server = &self.host.server;
                if let Some(reply) = server.directory.query(*session, query, &server.store) {
                    self.host.send(*session, reply);
                }
                continue;
            }
            self.feed(&input);
            batch.push(input);
        }
        if !batch.is_empty() {
            self.log.push((self.host.now, batch));
        }
    }

    fn apply(&mut self) -> Result<(), Violation> {
        if self.applied >= self.durable {
            return Ok(());
        }
        let (time, inputs) = self.log[self.applied].clone();
        self.applied += 1;
        for input in inputs {
            self.host.apply(time, input)?;
            let digest = self.host.server.directory.digest();
            self.feed(&digest);
            if std::mem::take(&mut self.host.server.again) {
                self.host.machines[IT].to_server.push_back(Input::Tick);
            }
        }
        if self.one_in(8) {
            let server = &mut self.host.server;
            server.directory.checkpoint(&mut server.store);
            self.checkpoint = (self.applied, server.store.clone());
        }
        Ok(())
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
            let incarnation = self.host.machines[IT].incarnation;
            let pieces = upload.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
            let (bytes, hashes) = content::seal_share(&upload.key, pieces);
            if self
                .shares
                .insert(upload.share, StoredShare { bytes, by_machine: Some(incarnation), by_server: false })
                .is_some()
            {
                return Err("a share's name came twice".into());
            }
            Ok(hashes)
        };
        self.host.input(IT, client::Input::Stored { upload: upload.upload, result })
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
        self.host.machines[IT].to_server.push_back(Input::SharesSettled(work));
    }

    fn release(&mut self, shares: &[ShareId]) {
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

    fn pass_time(&mut self) -> Result<(), Violation> {
        self.host.machines_tick(400)?;
        if self.one_in(16) {
            let space = self.measure();
            self.host.machines[IT].to_server.push_back(Input::Space(space));
        }
        Ok(())
    }

    /// A power failure: client, server and wires lose all that the disk had not made durable.
    pub fn crash(&mut self) -> Result<(), Violation> {
        self.log.truncate(self.durable);
        self.share_work.clear();
        let (held, store) = self.checkpoint.clone();
        self.host.server.store = store;
        self.host.server.opens()?;
        self.applied = self.durable;
        for (time, inputs) in &self.log[held..] {
            for input in inputs {
                // The outputs were sent before the crash, or their receivers are gone.
                self.host.server.handle(*time, input.clone())?;
            }
        }
        self.host.machines[IT].to_server.retain(|input| matches!(input, Input::SharesSettled(_)));
        self.start()
    }

    /// The client's process dies. Of the messages under way to the server a random beginning
    /// arrives.
    pub fn crash_client(&mut self) -> Result<(), Violation> {
        self.host.lose_end(IT);
        self.start()
    }

    fn start(&mut self) -> Result<(), Violation> {
        self.uploads.clear();
        self.answers.clear();
        self.host.space = self.measure();
        self.host.machines[IT].to_server.push_back(Input::Lead);
        self.host.start(IT)
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
            self.host.machines[IT].to_server.len(),
            self.host.machines[IT].to_client.len(),
            self.uploads.len(),
            self.share_work.len(),
            self.applied,
            self.durable,
            self.log.len()
        ))
    }

    fn is_quiet(&self) -> bool {
        let machine = &self.host.machines[IT];
        machine.to_server.is_empty()
            && machine.to_client.is_empty()
            && self.uploads.is_empty()
            && self.share_work.is_empty()
            && self.applied == self.log.len()
            && machine.client.dirty_bytes() == 0
    }

    /// Drops the leases of the machine's account that an earlier incarnation took and no server
    /// adopted, as a start does.
    pub fn sweep_shares(&mut self) {
        let now = self.host.machines[IT].incarnation;
        self.shares
            .values_mut()
            .for_each(|share| share.by_machine = share.by_machine.filter(|then| *then == now));
        self.collect();
    }

    /// Checks the server's whole state, and that every share it references is stored.
    pub fn check(&self) -> Result<(), Violation> {
        let mut seen = Seen::default();
        self.host.server.directory.check(&self.host.server.store, &mut seen);
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
        self.host.server.directory.check(&self.host.server.store, &mut seen);
        match self.shares.iter().find(|(share, _)| !seen.shares.contains(share)) {
            Some((id, StoredShare { by_machine, by_server, .. })) => Err(format!(
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
        gather(parts, |share| self.shares.get(share).map(|stored| stored.bytes.as_slice()))
    }
}
