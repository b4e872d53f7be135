//! A client's way to shares: stored at several hosts, read at the nearest that has them.

use crate::hosts::HostList;
use crate::keeper::Keeper;
use crate::net::{Pending, Unanswered};
use crate::peers::Peers;
use bytes::Bytes;
use client::Upload;
use lease::SessionId;
use namespace::{Error, ShareId};
use parking_lot::RwLock;
use shares::NewShare;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{MachineId, ShareCall};

/// What became of an upload: its number, and the hashes of its pieces.
pub(crate) type Stored = (u64, Result<Vec<[u8; 32]>, Error>);

/// A part of a share: which, from where, how many bytes.
pub(crate) type Part = (ShareId, u32, u32);

/// How long a host may say nothing at all before another one is asked, or is enough; twice as long each time that all were.
const PATIENCE: Duration = Duration::from_millis(750);
const PATIENCE_MAX: Duration = Duration::from_secs(6);
/// The same, of a host whose copy is needed: a disk may take long to write.
const STORE_PATIENCE: Duration = Duration::from_secs(3);
/// What some hosts do not have and others cannot be asked for is not to be had, after this long.
const GRACE: Duration = Duration::from_secs(3);
/// Before hosts are asked once more, none of which could be reached.
const PAUSE: Duration = Duration::from_millis(100);
/// Shares that go in one request, bytes: no request holds up others for long.
const STORE_BYTES: usize = 4 << 20;

/// See the module.
pub(crate) struct Copies {
    peers: Arc<Peers>,
    /// This machine's own share server, while it has one.
    here: RwLock<Option<Arc<Keeper>>>,
}

impl Copies {
    /// Of the machine whose connections are `peers`.
    pub(crate) fn new(peers: Arc<Peers>) -> Copies {
        Copies { peers, here: RwLock::default() }
    }

    /// From now on this is the machine's own share server, or there is none.
    pub(crate) fn set_here(&self, keeper: Option<Arc<Keeper>>) {
        *self.here.write() = keeper;
    }

    fn here(&self) -> Option<Arc<Keeper>> {
        self.here.read().clone()
    }

    /// The share server, if it is this machine's and there is no other.
    fn alone(&self) -> Option<Arc<Keeper>> {
        self.here().filter(|keeper| keeper.is_alone())
    }

    /// Whether all hosts of these are this very machine, so that a front door's thread may wait for what is read.
    pub(crate) fn are_here(&self, mut shares: impl Iterator<Item = ShareId>) -> bool {
        if self.here.read().is_none() {
            return false;
        }
        let (hosts, me) = (self.peers.hosts().now(), self.peers.me());
        hosts.is_only(me) || shares.all(|share| hosts.placed(&share).contains(&me))
    }

    /// Seals uploads here, and has them stored together. Blocks until they are durable at all hosts that are to have them, or at enough.
    pub(crate) fn store(&self, session: SessionId, uploads: Vec<Upload>) -> Vec<Stored> {
        let mut shares = Vec::with_capacity(uploads.len());
        let mut sealed = Vec::with_capacity(uploads.len());
        for Upload { upload, share, key, pieces } in uploads {
            let (bytes, hashes) =
                content::seal_share(&key, pieces.iter().map(|(nonce, plain)| (*nonce, plain)));
            shares.push((share, Bytes::from(bytes)));
            sealed.push((upload, hashes));
        }
        let results = match self.alone() {
            Some(keeper) => store_here(&keeper, session, shares),
            None => Storing::new(self, session, shares).run(),
        };
        let all = sealed.into_iter().zip(results);
        all.map(|((upload, hashes), result)| (upload, result.map(|()| hashes))).collect()
    }

    /// Reads parts of shares, together, and `open`s them, which fails for bytes that are not what they were. Blocks.
    pub(crate) fn read<T>(
        &self,
        parts: &[Part],
        open: impl Fn(usize, Vec<u8>) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        if let Some(keeper) = self.alone() {
            let parts = parts.iter().enumerate();
            let read = |(index, &(share, at, length)): (usize, &Part)| {
                keeper.read(share, at, length).and_then(|bytes| open(index, bytes))
            };
            return parts.map(read).collect();
        }
        self.read_anywhere(parts, open)
    }

    /// Lets go what was stored and is not needed. What cannot be let go now is swept when this machine's next session begins.
    pub(crate) fn let_go(&self, shares: &[ShareId]) {
        let hosts = self.peers.hosts().now();
        let here = self.here();
        for host in hosts.all() {
            match &here {
                Some(keeper) if host.machine == self.peers.me() => {
                    keeper.shares().let_go(host.machine, shares);
                }
                _ => {
                    drop(self.peers.call(&hosts, host.machine, ShareCall::LetGo(shares.to_vec()), Vec::new()))
                }
            }
        }
    }

    fn read_anywhere<T>(
        &self,
        parts: &[Part],
        open: impl Fn(usize, Vec<u8>) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        let begun = Instant::now();
        let mut results: Vec<Option<Result<T, Error>>> = parts.iter().map(|_| None).collect();
        let mut searches: Vec<Search> = parts.iter().map(|_| Search::default()).collect();
        let mut patience = PATIENCE;
        loop {
            let hosts = self.peers.hosts().now();
            let wait = self::patience(&hosts, patience);
            let mut asked = Vec::new();
            let mut pause = false;
            for (index, ((part, result), search)) in
                parts.iter().zip(&mut results).zip(&mut searches).enumerate()
            {
                if result.is_some() {
                    continue;
                }
                match search.next(self, &hosts, part.0) {
                    Some(machine) => asked.push((index, machine, self.ask(&hosts, machine, *part))),
                    None if !search.unreachable && !hosts.all().is_empty() => {
                        *result = Some(Err(Error::Damaged));
                    }
                    None if search.failed && begun.elapsed() > GRACE => *result = Some(Err(Error::Damaged)),
                    None if self.peers.is_stopping() => *result = Some(Err(Error::CutOff)),
                    None => {
                        pause = true;
                        *search = Search { failed: search.failed, ..Search::default() };
                    }
                }
            }
            if results.iter().all(Option::is_some) {
                return results.into_iter().map(|result| result.unwrap_or(Err(Error::Damaged))).collect();
            }
            for (index, machine, asked) in asked {
                let (Some(result), Some(search), Some(part)) =
                    (results.get_mut(index), searches.get_mut(index), parts.get(index))
                else {
                    continue;
                };
                match asked.wait(wait) {
                    Ok(Ok(bytes)) => match open(index, bytes) {
                        Ok(opened) => *result = Some(Ok(opened)),
                        Err(_) => {
                            search.failed = true;
                            self.doubt(&hosts, machine, part.0);
                        }
                    },
                    Ok(Err(_)) => search.failed = true,
                    Err(_) => search.unreachable = true,
                }
            }
            if pause {
                std::thread::sleep(PAUSE);
                patience = (patience * 2).min(PATIENCE_MAX);
            }
        }
    }

    fn ask(&self, hosts: &HostList, machine: MachineId, (share, at, length): Part) -> Asked {
        match self.here() {
            Some(keeper) if machine == self.peers.me() => Asked::Answered(keeper.read(share, at, length)),
            _ => {
                let read = ShareCall::Read { share, at, length };
                self.peers.call(hosts, machine, read, Vec::new()).map_or(Asked::Unreachable, Asked::Pending)
            }
        }
    }

    fn doubt(&self, hosts: &HostList, machine: MachineId, share: ShareId) {
        tracing::error!(?share, machine = machine.0, "a piece of content does not match its hash");
        match self.here() {
            Some(keeper) if machine == self.peers.me() => keeper.doubt(share),
            _ => drop(self.peers.call(hosts, machine, ShareCall::Doubt(share), Vec::new())),
        }
    }

    /// The hosts that may have `share`, this machine first, then the nearest of those that are to have it.
    fn order(&self, hosts: &HostList, share: ShareId) -> Vec<MachineId> {
        let mut all = hosts.having(&share);
        let count = hosts.copies().min(all.len());
        if let Some(placed) = all.get_mut(..count) {
            self.peers.by_distance(placed);
            if let Some(at) = placed.iter().position(|machine| *machine == self.peers.me()) {
                placed.get_mut(..=at).into_iter().for_each(|first| first.rotate_right(1));
            }
        }
        all
    }
}

/// Where a share has been looked for.
#[derive(Default)]
struct Search {
    order: Option<std::vec::IntoIter<MachineId>>,
    /// Some host does not have it.
    failed: bool,
    /// Some host could not be asked.
    unreachable: bool,
}

impl Search {
    fn next(&mut self, copies: &Copies, hosts: &HostList, share: ShareId) -> Option<MachineId> {
        self.order.get_or_insert_with(|| copies.order(hosts, share).into_iter()).next()
    }
}

/// A part that a host was asked for.
enum Asked {
    Answered(Result<Vec<u8>, Error>),
    Pending(Pending),
    Unreachable,
}

impl Asked {
    fn wait(self, patience: Option<Duration>) -> Result<Result<Vec<u8>, Error>, Unanswered> {
        match self {
            Asked::Answered(answer) => Ok(answer),
            Asked::Unreachable => Err(Unanswered::Unreachable),
            Asked::Pending(pending) => {
                let (results, body) = pending.wait(patience)?;
                let result = results.into_iter().next().unwrap_or(Err(Error::Damaged));
                Ok(result.map(|()| body.to_vec()))
            }
        }
    }
}

/// Where there is nobody else to ask, there is nothing but to wait.
fn patience(hosts: &HostList, patience: Duration) -> Option<Duration> {
    (hosts.all().len() > 1).then_some(patience)
}

fn store_here(keeper: &Keeper, session: SessionId, shares: Vec<(ShareId, Bytes)>) -> Vec<Result<(), Error>> {
    let shares = shares.into_iter().map(|(id, bytes)| NewShare { id, parts: vec![bytes] });
    keeper.shares().store(keeper.peers().me(), session, shares.collect())
}

/// Shares on their way to their hosts.
struct Storing<'a> {
    copies: &'a Copies,
    hosts: Arc<HostList>,
    session: SessionId,
    shares: Vec<Placing>,
    /// Sent, and not waited for any longer: the answer may come yet.
    late: Vec<Sent>,
}

/// A share on its way.
struct Placing {
    share: ShareId,
    bytes: Bytes,
    /// Who has it.
    kept: Vec<MachineId>,
    /// Who has not been asked yet, the first last.
    left: Vec<MachineId>,
    failed: Option<Error>,
    done: Option<Result<(), Error>>,
}

/// A request to store some of them.
struct Sent {
    machine: MachineId,
    which: Vec<usize>,
    pending: Pending,
}

impl<'a> Storing<'a> {
    fn new(copies: &'a Copies, session: SessionId, shares: Vec<(ShareId, Bytes)>) -> Storing<'a> {
        let hosts = copies.peers.hosts().now();
        let shares = shares.into_iter().map(|(share, bytes)| {
            let (left, kept) = (Vec::new(), Vec::new());
            Placing { share, bytes, kept, left, failed: None, done: None }
        });
        let mut storing = Storing { copies, hosts, session, shares: shares.collect(), late: Vec::new() };
        storing.begin_again();
        storing
    }

    fn run(mut self) -> Vec<Result<(), Error>> {
        loop {
            while self.hand_out() {}
            self.hear_late();
            let needed = self.hosts.needed();
            for placing in self.shares.iter_mut().filter(|placing| placing.done.is_none()) {
                let enough = placing.kept.len() >= needed;
                placing.done = match (enough, placing.failed) {
                    (true, _) => Some(Ok(())),
                    (false, Some(error)) => Some(Err(error)),
                    (false, None) if self.copies.peers.is_stopping() => Some(Err(Error::CutOff)),
                    (false, None) => None,
                };
            }
            if self.shares.iter().all(|placing| placing.done.is_some()) {
                break;
            }
            std::thread::sleep(PAUSE);
            self.begin_again();
        }
        self.shares.into_iter().map(|placing| placing.done.unwrap_or(Err(Error::CutOff))).collect()
    }

    /// All hosts that do not have it, and have not been asked and may answer yet, are to be asked.
    fn begin_again(&mut self) {
        self.hosts = self.copies.peers.hosts().now();
        for (index, placing) in self.shares.iter_mut().enumerate() {
            let under_way =
                |machine| self.late.iter().any(|sent| sent.machine == machine && sent.which.contains(&index));
            placing.left = self.hosts.keeping(&placing.share);
            placing.left.retain(|machine| !placing.kept.contains(machine) && !under_way(*machine));
            placing.left.reverse();
        }
    }

    /// Asks the next hosts for what has too few copies, and waits for them; whether there were any.
    fn hand_out(&mut self) -> bool {
        let mut batches = BTreeMap::<MachineId, Vec<usize>>::new();
        for (index, placing) in self.shares.iter_mut().enumerate() {
            let lacking = self.hosts.copies().saturating_sub(placing.kept.len());
            for _ in 0..if placing.done.is_none() { lacking } else { 0 } {
                let Some(machine) = placing.left.pop() else { break };
                batches.entry(machine).or_default().push(index);
            }
        }
        let any = !batches.is_empty();
        let here = batches.remove(&self.copies.peers.me()).zip(self.copies.here());
        let mut sent = Vec::new();
        for (machine, which) in batches {
            sent.extend(self.send(machine, which));
        }
        // While the others are at it.
        if let Some((which, keeper)) = here {
            let shares = which.iter().filter_map(|index| self.shares.get(*index));
            let shares = shares.map(|placing| (placing.share, placing.bytes.clone())).collect();
            let results = store_here(&keeper, self.session, shares);
            self.heard(self.copies.peers.me(), &which, results);
        }
        let silent = self.wait_for(sent, PATIENCE);
        // A copy fewer, which is made good later, costs less than writers that wait.
        let (spare, needed) = silent.into_iter().partition(|sent| self.is_spare(sent));
        let silent = self.wait_for(needed, STORE_PATIENCE);
        self.late.extend(silent.into_iter().chain(spare).inspect(|sent| sent.pending.give_up()));
        any
    }

    /// Those who have said nothing at all for so long.
    fn wait_for(&mut self, sent: Vec<Sent>, patience: Duration) -> Vec<Sent> {
        let mut silent = Vec::new();
        for sent in sent {
            match sent.pending.wait_once(self::patience(&self.hosts, patience)) {
                Ok((results, _)) => self.heard(sent.machine, &sent.which, results),
                Err(Unanswered::Silent) => silent.push(sent),
                Err(Unanswered::Unreachable) => {}
            }
        }
        silent
    }

    /// Enough hosts have all that this one was sent.
    fn is_spare(&self, sent: &Sent) -> bool {
        let needed = self.hosts.needed();
        let has = |index: &usize| self.shares.get(*index).is_some_and(|placing| placing.kept.len() >= needed);
        sent.which.iter().all(has)
    }

    fn send(&self, machine: MachineId, which: Vec<usize>) -> Vec<Sent> {
        let mut requests = vec![Vec::new()];
        let mut length = 0;
        for index in which {
            let Some(placing) = self.shares.get(index) else { continue };
            if length > 0 && length + placing.bytes.len() > STORE_BYTES {
                requests.push(Vec::new());
                length = 0;
            }
            length += placing.bytes.len();
            requests.last_mut().into_iter().for_each(|request| request.push((index, placing)));
        }
        let send = |request: Vec<(usize, &Placing)>| {
            let length = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let shares = request.iter().map(|(_, placing)| (placing.share, length(&placing.bytes)));
            let store = ShareCall::Store { session: self.session, shares: shares.collect() };
            let body = request.iter().map(|(_, placing)| placing.bytes.clone()).collect();
            let pending = self.copies.peers.call(&self.hosts, machine, store, body)?;
            Some(Sent { machine, which: request.iter().map(|(index, _)| *index).collect(), pending })
        };
        requests.into_iter().filter_map(send).collect()
    }

    fn heard(&mut self, machine: MachineId, which: &[usize], results: Vec<Result<(), Error>>) {
        let results = results.into_iter().chain(std::iter::repeat(Err(Error::Damaged)));
        for (index, result) in which.iter().zip(results) {
            let Some(placing) = self.shares.get_mut(*index) else { continue };
            match result {
                Ok(()) => placing.kept.push(machine),
                Err(error) => placing.failed = Some(error),
            }
        }
    }

    /// Who was slow may have answered meanwhile.
    fn hear_late(&mut self) {
        for sent in std::mem::take(&mut self.late) {
            match sent.pending.heard() {
                Ok(Some((results, _))) => self.heard(sent.machine, &sent.which, results),
                Ok(None) => self.late.push(sent),
                Err(_) => {}
            }
        }
    }
}
