//! Shares on their way to their hosts, whole or in fragments: to all hosts that should have them,
//! or to enough.

use super::{Copies, PATIENCE_MIN, PAUSE, patience, store_here};
use crate::hosts::HostList;
use bytes::Bytes;
use lease::SessionId;
use namespace::{Error, ShareId, Spread};
use net::{Pending, Unanswered};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use wire::{MachineId, ShareCall};

/// The silence allowed to a host whose copy is needed: a disk may take long to write.
const STORE_PATIENCE: Duration = Duration::from_secs(3);
/// The bytes of shares in one request. No request holds up others for long.
const STORE_BYTES: usize = 4 << 20;

impl Copies {
    /// Stores shares. Returns when each is durable at all hosts that should have it, or at enough.
    pub(super) fn store_anywhere(
        &self,
        session: SessionId,
        shares: Vec<(ShareId, Bytes)>,
    ) -> Vec<Result<(), Error>> {
        Storing::new(self, session, shares).run()
    }
}

/// An upload of shares to their hosts.
struct Storing<'a> {
    copies: &'a Copies,
    hosts: Arc<HostList>,
    session: SessionId,
    shares: Vec<ShareToStore>,
    /// The units given to hosts: each share itself, or its fragments.
    placings: Vec<Placing>,
    /// Requests that are no longer awaited: the answer may still come.
    late: Vec<Sent>,
}

/// A share that is to be stored.
struct ShareToStore {
    id: ShareId,
    /// Its range of the placings.
    placings: Range<usize>,
    failed: Option<Error>,
    done: Option<Result<(), Error>>,
}

/// A share or a fragment on its way.
struct Placing {
    name: ShareId,
    /// The share to which it belongs.
    share: usize,
    bytes: Bytes,
    /// The hosts that have it.
    kept: Vec<MachineId>,
    /// The hosts that have not been asked yet, the first last.
    left: Vec<MachineId>,
    /// The number of extra hosts that should keep it, beyond the usual number, since too few others
    /// can be reached.
    more: usize,
}

/// A request to store some placings.
struct Sent {
    machine: MachineId,
    which: Vec<usize>,
    pending: Pending,
}

impl<'a> Storing<'a> {
    fn new(copies: &'a Copies, session: SessionId, shares: Vec<(ShareId, Bytes)>) -> Storing<'a> {
        let hosts = copies.peers.hosts().now();
        let (placings, late) = (Vec::new(), Vec::new());
        let mut storing = Storing { copies, hosts, session, shares: Vec::new(), placings, late };
        for (id, bytes) in shares {
            storing.add(id, bytes);
        }
        storing.begin_again();
        storing
    }

    fn add(&mut self, id: ShareId, bytes: Bytes) {
        let kept = content::stored_parts(id, bytes);
        // The setter of the policy was answered that there is no such code.
        let done = kept.is_none().then_some(Err(Error::Invalid));
        let (from, share) = (self.placings.len(), self.shares.len());
        let placing = |(name, bytes)| {
            let (kept, left) = (Vec::new(), Vec::new());
            Placing { name, share, bytes, kept, left, more: 0 }
        };
        self.placings.extend(kept.into_iter().flatten().map(placing));
        self.shares.push(ShareToStore { id, placings: from..self.placings.len(), failed: None, done });
    }

    fn run(mut self) -> Vec<Result<(), Error>> {
        loop {
            while self.hand_out() || self.widen() {}
            self.hear_late();
            for index in 0..self.shares.len() {
                let enough = self.is_enough(index);
                let Some(share) = self.shares.get_mut(index).filter(|share| share.done.is_none()) else {
                    continue;
                };
                share.done = match (enough, share.failed) {
                    (true, _) => Some(Ok(())),
                    (false, Some(error)) => Some(Err(error)),
                    (false, None) if self.copies.peers.is_stopping() => Some(Err(Error::CutOff)),
                    (false, None) => None,
                };
            }
            if self.shares.iter().all(|share| share.done.is_some()) {
                break;
            }
            std::thread::sleep(PAUSE);
            self.begin_again();
        }
        self.shares.into_iter().map(|share| share.done.unwrap_or(Err(Error::CutOff))).collect()
    }

    /// Marks hosts to be asked again: all that lack the share and are not being asked.
    fn begin_again(&mut self) {
        self.hosts = self.copies.peers.hosts().now();
        for (index, placing) in self.placings.iter_mut().enumerate() {
            let under_way =
                |machine| self.late.iter().any(|sent| sent.machine == machine && sent.which.contains(&index));
            placing.left = self.hosts.keeping(&placing.name);
            placing.left.retain(|machine| !placing.kept.contains(machine) && !under_way(*machine));
            placing.left.reverse();
        }
    }

    /// Whether a share survives every loss that it must survive.
    fn is_enough(&self, share: usize) -> bool {
        let Some(share) = self.shares.get(share) else { return false };
        let placings = &self.placings[share.placings.clone()];
        match share.id.spread() {
            Spread::Code { data, parity } => {
                let kept: Vec<&[MachineId]> =
                    placings.iter().map(|placing| placing.kept.as_slice()).collect();
                self.hosts.survives((data, parity), &kept)
            }
            Spread::Usual | Spread::Copies(_) => {
                placings.iter().all(|placing| placing.kept.len() >= self.hosts.needed(&placing.name))
            }
        }
    }

    fn is_done(&self, share: usize) -> bool {
        self.shares.get(share).is_none_or(|share| share.done.is_some())
    }

    /// Asks the next hosts for placings with too few copies, and waits for the answers. Returns
    /// whether there were any.
    fn hand_out(&mut self) -> bool {
        let mut batches = BTreeMap::<MachineId, Vec<usize>>::new();
        for index in 0..self.placings.len() {
            let done = self.placings.get(index).is_none_or(|placing| self.is_done(placing.share));
            let Some(placing) = self.placings.get_mut(index).filter(|_| !done) else { continue };
            let wanted = self.hosts.copies(&placing.name) + placing.more;
            for _ in placing.kept.len()..wanted {
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
        // The local store runs while the others are busy.
        if let Some((which, share_host)) = here {
            let placings = which.iter().filter_map(|index| self.placings.get(*index));
            let shares = placings.map(|placing| (placing.name, placing.bytes.clone())).collect();
            let results = store_here(&share_host, self.session, shares);
            self.heard(self.copies.peers.me(), &which, results);
        }
        let silent = self.wait_for(sent, PATIENCE_MIN);
        // One copy fewer, which is repaired later, costs less than waiting writers.
        let (spare, needed) = silent.into_iter().partition(|sent| self.is_spare(sent));
        let silent = self.wait_for(needed, STORE_PATIENCE);
        self.late.extend(silent.into_iter().chain(spare).inspect(|sent| sent.pending.give_up()));
        any
    }

    /// Gives each placing one more host: every reachable host has its fragment, and that is not
    /// enough. Returns whether there are any hosts left.
    fn widen(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.shares.len() {
            if self.is_done(index) || self.is_enough(index) {
                continue;
            }
            let Some(ShareToStore { placings, .. }) = self.shares.get(index) else { continue };
            for placing in &mut self.placings[placings.clone()] {
                placing.more += usize::from(!placing.left.is_empty());
                any |= !placing.left.is_empty();
            }
        }
        any
    }

    /// Waits for answers. Returns the requests whose hosts have been silent for that long.
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

    /// Whether the shares of this request have enough copies without it.
    fn is_spare(&self, sent: &Sent) -> bool {
        let of_share = |index: &usize| self.placings.get(*index).map(|placing| placing.share);
        sent.which.iter().filter_map(of_share).all(|share| self.is_enough(share))
    }

    fn send(&self, machine: MachineId, which: Vec<usize>) -> Vec<Sent> {
        let mut requests = vec![Vec::new()];
        let mut length = 0;
        for index in which {
            let Some(placing) = self.placings.get(index) else { continue };
            if length > 0 && length + placing.bytes.len() > STORE_BYTES {
                requests.push(Vec::new());
                length = 0;
            }
            length += placing.bytes.len();
            requests.last_mut().into_iter().for_each(|request| request.push((index, placing)));
        }
        let send = |request: Vec<(usize, &Placing)>| {
            let length = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let shares = request.iter().map(|(_, placing)| (placing.name, length(&placing.bytes)));
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
            let Some(placing) = self.placings.get_mut(*index) else { continue };
            match result {
                Ok(()) => placing.kept.push(machine),
                // The host has not heard of our session yet. It is asked again if the others are
                // too few.
                Err(Error::CutOff) => {}
                Err(error) => {
                    let share = self.shares.get_mut(placing.share);
                    share.into_iter().for_each(|share| share.failed = Some(error));
                }
            }
        }
    }

    /// Takes the answers of slow hosts that have arrived meanwhile.
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
