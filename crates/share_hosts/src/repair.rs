//! Repair: brings the shares of a host to what it is to have. The directory's state says which
//! shares are referred to, and the host's place among the others says which of them are its own.
//!
//! One mechanism serves a host that is new, was down, has lost some or all of its disk, or is
//! drained. A look goes through all references when the host starts, when the hosts change, and now
//! and then. It renews the leases that are due, and fetches the shares that are to be here and are
//! not. Then it goes through the shares that are here. It releases the unreferenced ones. It
//! releases those that other hosts are to keep, once each of these says that it keeps them. It
//! releases uploads of sessions that are over, if they are not adopted by then. The only host of a
//! cluster does the same, and has no other to fetch from.
//!
//! The group's leases last for a term (leasedb: the account renews what it wants kept). A look that
//! has gone through everything vouches for it ([`shares::ShareServer::vouch`]), if its state was no
//! older than any that was ever acted on. Nothing refers to the shares whose leases ended before
//! that look began. No other leases of the group ever expire. So a host that was off or cut off, or
//! that keeps what others copy, loses nothing by the clock.

use crate::fragments::put_together;
use crate::hosts::HostList;
use crate::peers::fetched;
use crate::references::{Arrangement, ReferenceIndex};
use crate::share_host::ShareHost;
use bytes::Bytes;
use lease::SessionId;
use namespace::{Error, ShareId, Spread};
use net::Pending;
use os::STOP_LOOK;
use parking_lot::{Condvar, Mutex};
use shares::{DatabaseError, Holds, NewShare, Seconds};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::{MachineId, ShareCall};

/// Shares that are compared at a time.
const STEP: usize = 256;
/// Shares that are fetched together, so that they share the disk's flushes.
const TOGETHER: usize = 16;
/// Shares that wait to be fetched, or for other hosts to fetch them, at most. Later looks find the
/// rest again.
const WAITING_MAX: usize = 4096;
/// The rate of fetching at most, bytes a second: machines have other work.
const RATE: f64 = (64 << 20) as f64;
/// How long another host may stay silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks through everything when nothing was amiss.
const AGAIN: Duration = Duration::from_secs(3600);
/// The same when more was amiss than is kept in memory.
const AGAIN_SOON: Duration = Duration::from_secs(2);
/// The same for the only host, which has nothing to fetch.
const AGAIN_ALONE: Duration = Duration::from_secs(24 * 3600);
/// How often other hosts are asked whether they have the shares that are kept here for them.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Between two attempts to fetch a share, at first.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Between two attempts to fetch a share, at most.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The shares that this host is still to fetch, and those that it keeps for other hosts.
#[derive(Default)]
pub struct Repair {
    state: Mutex<RepairState>,
    changed: Condvar,
}

#[derive(Default)]
struct RepairState {
    wanted: BTreeMap<ShareId, Attempts>,
    fetching: usize,
    /// More shares were wanted than are kept in memory.
    overflowed: bool,
    compare: bool,
    /// All references have been gone through since the start.
    adopted: bool,
    /// Shares that are kept here in place of the hosts that are to keep them.
    astray: BTreeSet<ShareId>,
    /// The hosts of the last look that went through everything.
    complete_for: u64,
}

#[derive(Clone, Copy)]
struct Attempts {
    failures: u32,
    not_before: Instant,
}

/// How far repair is on this host.
pub struct RepairStanding {
    pub missing: u64,
    pub fetching: u64,
    pub leaving: u64,
    /// The [`HostList::fingerprint`] of the last complete look; 0 if there was none.
    pub complete_for: u64,
}

/// A look through everything.
struct RepairPass {
    hosts: u64,
    begun: Instant,
    /// When the look began by the share server's clock, and the arrangement of regions then, if no
    /// reference was missing. If that is the arrangement at the end, too, the look renews the
    /// leases of all shares that are to be kept.
    vouches_for: Option<(Seconds, Arrangement)>,
    at: At,
    /// Sessions that were over when it began. The shares that they published are adopted once all
    /// references have been gone through.
    over: BTreeSet<(MachineId, SessionId)>,
}

/// How far a look is.
enum At {
    /// Comparing the referenced shares with those here, after this share.
    References(Option<ShareId>),
    /// Comparing the shares that are here, after this share.
    Shares(Option<ShareId>),
}

/// The result of a step of a [`RepairPass`].
enum RepairStep {
    More,
    /// The state is too old to act on, or nothing may be released for now.
    Waits,
    Done,
}

impl Repair {
    /// Notes that `share` is not here, or not sound. It is fetched if it is to be here.
    pub fn want(&self, share: ShareId) {
        let mut state = self.state.lock();
        if state.wanted.len() >= WAITING_MAX {
            state.overflowed = true;
            return;
        }
        state.wanted.entry(share).or_insert(Attempts { failures: 0, not_before: Instant::now() });
        self.changed.notify_all();
    }

    /// Notes that `share` is here and leased, in place of other hosts that may be to keep it.
    pub fn took(&self, share: ShareId) {
        let mut state = self.state.lock();
        state.overflowed |= state.astray.len() >= WAITING_MAX;
        if state.astray.len() < WAITING_MAX {
            state.astray.insert(share);
        }
    }

    /// Starts a look through everything: see [`ShareHost::compare`].
    pub fn compare(&self) {
        self.state.lock().compare = true;
        self.changed.notify_all();
    }

    /// Whether the group leases all referenced shares that are here, also those whose adoption the
    /// last end cut short.
    pub fn has_adopted(&self) -> bool {
        self.state.lock().adopted
    }

    pub fn standing(&self) -> RepairStanding {
        let state = self.state.lock();
        RepairStanding {
            missing: state.wanted.len() as u64,
            fetching: state.fetching as u64,
            leaving: state.astray.len() as u64,
            complete_for: state.complete_for,
        }
    }

    /// Repairs until the machine stops.
    pub fn run(&self, share_host: &ShareHost, references: &dyn ReferenceIndex) {
        let mut look: Option<RepairPass> = None;
        let (mut looked_for, mut next, mut ask) = (0, Instant::now(), Instant::now());
        while !share_host.is_stopping() {
            let hosts = share_host.peers().hosts().now();
            let asked = std::mem::take(&mut self.state.lock().compare);
            let idle = look.is_none() && Instant::now() >= next;
            if asked || idle || hosts.change() != looked_for {
                looked_for = hosts.change();
                let now = share_host.shares().server().now();
                let vouches_for = references.arrangement().map(|arrangement| (now, arrangement));
                let sessions = share_host.shares().sessions();
                let over = sessions.iter().zip(references.are_over(&sessions));
                let over = over.filter_map(|(session, is_over)| is_over.then_some(*session)).collect();
                let (at, begun) = (At::References(None), Instant::now());
                look = Some(RepairPass { hosts: hosts.fingerprint(), begun, vouches_for, at, over });
            }
            let mut busy = self.fetch_some(share_host, references, &hosts);
            let step = match &mut look {
                Some(look) if self.has_room(look) => self.step(look, share_host, references, &hosts),
                _ => Ok(RepairStep::Waits),
            };
            match (step, &look) {
                (Ok(RepairStep::More), _) => busy = true,
                (Ok(RepairStep::Done), Some(done)) => {
                    next = Instant::now() + self.finish(share_host, references, done);
                    look = None;
                }
                (Ok(RepairStep::Done | RepairStep::Waits), _) => {}
                (Err(error), _) => warn(&error),
            }
            if Instant::now() >= ask && references.arrangement().is_some() && !share_host.is_held() {
                ask = Instant::now() + ASK_EVERY;
                if let Err(error) = self.shed_astray(share_host, references, &hosts) {
                    warn(&error);
                }
            }
            if !busy {
                self.changed.wait_for(&mut self.state.lock(), STOP_LOOK);
            }
        }
    }

    /// Whether memory has room for what the next step finds.
    fn has_room(&self, look: &RepairPass) -> bool {
        let state = self.state.lock();
        let waiting = match look.at {
            At::References(_) => state.wanted.len(),
            At::Shares(_) => state.astray.len(),
        };
        waiting + STEP <= WAITING_MAX
    }

    /// Ends a look that has gone through everything. Returns when the next one is due.
    fn finish(&self, share_host: &ShareHost, references: &dyn ReferenceIndex, look: &RepairPass) -> Duration {
        // A reference may have moved from a part that was still to come to one that was seen
        // before.
        let vouches = look.vouches_for.as_ref();
        let vouches = vouches.filter(|(_, before)| references.arrangement().as_ref() == Some(before));
        if let Some((at, _)) = vouches {
            share_host.shares().server().vouch(*at);
        }
        let mut state = self.state.lock();
        if std::mem::take(&mut state.overflowed) {
            // A look may take long: most of the time none is under way.
            return AGAIN_SOON.max(look.begun.elapsed() * 10).min(AGAIN);
        }
        state.complete_for = look.hosts;
        match vouches {
            None => AGAIN_SOON,
            Some(_) if share_host.is_alone() => AGAIN_ALONE,
            Some(_) => AGAIN,
        }
    }

    fn step(
        &self,
        look: &mut RepairPass,
        share_host: &ShareHost,
        references: &dyn ReferenceIndex,
        hosts: &HostList,
    ) -> Result<RepairStep, DatabaseError> {
        match look.at {
            At::References(after) => {
                let (shares, last) = references.shares_after(after.as_ref(), STEP);
                self.keep(share_host, references, hosts, &shares)?;
                if last.is_some() {
                    look.at = At::References(last);
                } else {
                    look.at = At::Shares(None);
                    self.state.lock().adopted = true;
                    if share_host.trusts_state() {
                        share_host.shares().sweep(|machine, session| look.over.contains(&(machine, session)));
                    }
                }
                Ok(RepairStep::More)
            }
            At::Shares(_) if references.arrangement().is_none() || share_host.is_held() => {
                Ok(RepairStep::Waits)
            }
            At::Shares(after) => {
                let server = share_host.shares().server();
                let shares = server.leased_by(share_host.shares().group, after.as_ref(), STEP)?;
                self.state.lock().astray.extend(shed(share_host, references, hosts, &shares)?);
                look.at = At::Shares(shares.last().copied());
                Ok(if shares.len() < STEP { RepairStep::Done } else { RepairStep::More })
            }
        }
    }

    /// Compares the referenced shares of one step with what is here.
    fn keep(
        &self,
        share_host: &ShareHost,
        references: &dyn ReferenceIndex,
        hosts: &HostList,
        shares: &[ShareId],
    ) -> Result<(), DatabaseError> {
        let holds = share_host.shares().server().holds(share_host.shares().group, shares)?;
        let me = share_host.peers().me();
        let is_to_be_here = |share: &ShareId| hosts.placed(share).contains(&me);
        // Every share that is here is leased, also in place of other hosts. A share that seems
        // absent may be damaged, and the only copy.
        let unsure = shares.iter().zip(holds).filter(|(share, holds)| match holds {
            Holds::Leased => false,
            Holds::Due | Holds::Unleased => true,
            Holds::Nothing => is_to_be_here(share),
        });
        let unsure: Vec<ShareId> = unsure.map(|(share, _)| *share).collect();
        let mut missing = share_host.shares().adopt(&unsure, &share_host.publishers(&unsure, references))?;
        missing.retain(is_to_be_here);
        if !share_host.is_alone() {
            missing.into_iter().for_each(|share| self.want(share));
        } else if !missing.is_empty() {
            tracing::warn!(missing = missing.len(), "files refer to shares that are not here, or damaged");
        }
        Ok(())
    }

    /// Releases the astray shares that other hosts have by now.
    fn shed_astray(
        &self,
        share_host: &ShareHost,
        references: &dyn ReferenceIndex,
        hosts: &HostList,
    ) -> Result<(), DatabaseError> {
        let astray: Vec<ShareId> = self.state.lock().astray.iter().copied().collect();
        for shares in astray.chunks(STEP) {
            let stay: BTreeSet<ShareId> = shed(share_host, references, hosts, shares)?.into_iter().collect();
            let mut state = self.state.lock();
            shares.iter().filter(|share| !stay.contains(share)).for_each(|share| {
                state.astray.remove(share);
            });
        }
        Ok(())
    }

    /// Fetches some of the wanted shares that are due. Returns whether there were any.
    fn fetch_some(&self, share_host: &ShareHost, references: &dyn ReferenceIndex, hosts: &HostList) -> bool {
        let due: Vec<ShareId> = {
            let mut state = self.state.lock();
            let now = Instant::now();
            let due = state.wanted.iter().filter(|(_, attempts)| attempts.not_before <= now);
            let due: Vec<_> = due.map(|(share, _)| *share).take(TOGETHER).collect();
            state.fetching = due.len();
            due
        };
        if due.is_empty() {
            return false;
        }
        let begun = Instant::now();
        let (bytes, lacking) = fetch(share_host, references, hosts, &due);
        let mut state = self.state.lock();
        state.fetching = 0;
        for share in due {
            if !lacking.contains(&share) {
                state.wanted.remove(&share);
            } else if let Some(attempts) = state.wanted.get_mut(&share) {
                let pause = PAUSE_MIN.saturating_mul(1 << attempts.failures.min(16)).min(PAUSE_MAX);
                attempts.failures += 1;
                attempts.not_before = Instant::now() + pause;
            }
        }
        drop(state);
        let least = Duration::from_secs_f64(bytes as f64 / RATE);
        std::thread::sleep(least.saturating_sub(begun.elapsed()));
        true
    }
}

/// Releases those of these shares that the group keeps here and is not to keep. Returns the ones
/// that stay until others have them, or until no hold is left.
fn shed(
    share_host: &ShareHost,
    references: &dyn ReferenceIndex,
    hosts: &HostList,
    shares: &[ShareId],
) -> Result<Vec<ShareId>, DatabaseError> {
    let mut unreferenced = Vec::new();
    let mut moved = Vec::new();
    let before = references.arrangement();
    for (share, referred) in shares.iter().zip(references.refers_to(shares)) {
        if !referred {
            unreferenced.push(*share);
        } else if !hosts.placed(share).contains(&share_host.peers().me()) {
            moved.push(*share);
        }
    }
    if !unreferenced.is_empty() {
        // A hold may have begun before the last reference went. The next look finds that it is
        // over.
        if share_host.is_held() {
            return Ok(shares.to_vec());
        }
        if before.is_none() || references.arrangement() != before {
            return Ok(shares.to_vec());
        }
        share_host.shares().release_of_group(&unreferenced)?;
    }
    let kept = kept_by_all(share_host, hosts, &moved);
    let gone: Vec<ShareId> = kept.iter().copied().collect();
    if !gone.is_empty() && share_host.leave(hosts, &gone)? {
        moved.retain(|share| !kept.contains(share));
    }
    Ok(moved)
}

fn warn(error: &DatabaseError) {
    tracing::error!(error = error as &dyn std::error::Error, "shares cannot be compared; it is tried again");
}

/// Returns those of `shares` that every host which is to keep them says that it keeps.
fn kept_by_all(share_host: &ShareHost, hosts: &HostList, shares: &[ShareId]) -> BTreeSet<ShareId> {
    let mut asked = BTreeMap::<MachineId, Vec<ShareId>>::new();
    for share in shares {
        for machine in hosts.placed(share) {
            asked.entry(machine).or_default().push(*share);
        }
    }
    let asked: Vec<_> = asked
        .into_iter()
        .map(|(machine, shares)| {
            (share_host.peers().call(hosts, machine, ShareCall::Keep(shares.clone()), Vec::new()), shares)
        })
        .collect();
    // A share that no host is to keep stays.
    let mut kept: BTreeSet<ShareId> =
        shares.iter().filter(|share| !hosts.placed(share).is_empty()).copied().collect();
    for (pending, shares) in asked {
        let results = pending.and_then(|pending| pending.wait(Some(PATIENCE)).ok());
        let results = results.map_or_else(Vec::new, |(results, _)| results);
        let results = results.into_iter().chain(std::iter::repeat(Err(Error::NotFound)));
        for (share, result) in shares.iter().zip(results) {
            if result.is_err() {
                kept.remove(share);
            }
        }
    }
    kept
}

/// Fetches those of `shares` that are to be here. Returns how many bytes came, and the shares that
/// are still lacking.
fn fetch(
    share_host: &ShareHost,
    references: &dyn ReferenceIndex,
    hosts: &HostList,
    shares: &[ShareId],
) -> (usize, BTreeSet<ShareId>) {
    let me = share_host.peers().me();
    let referred = shares.iter().zip(references.refers_to(shares));
    let to_keep = referred.filter(|(share, referred)| *referred && hosts.placed(share).contains(&me));
    let to_keep: Vec<ShareId> = to_keep.map(|(share, _)| *share).collect();
    // An upload may have arrived late.
    let publishers = share_host.publishers(&to_keep, references);
    let missing = share_host.shares().adopt(&to_keep, &publishers).unwrap_or(to_keep);
    let mut lacking: BTreeSet<ShareId> = missing.into_iter().collect();
    let others = |share: &ShareId| {
        let mut others = hosts.having(share);
        others.retain(|machine| *machine != me);
        others
    };
    let mut bytes = 0;
    // A share that other hosts have is copied. A share that none has is made anew, if other
    // fragments of it exist.
    for turn in 0..=hosts.all().len() {
        let asked: Vec<(ShareId, Pending)> = lacking
            .iter()
            .filter_map(|share| {
                let machine = *others(share).get(turn)?;
                let pending =
                    share_host.peers().call(hosts, machine, ShareCall::Fetch(*share), Vec::new())?;
                Some((*share, pending))
            })
            .collect();
        let mut found = Vec::new();
        if turn == hosts.all().len() {
            for (length, fragment) in lacking.iter().filter_map(|share| made_anew(share_host, hosts, share)) {
                bytes += length;
                found.push(fragment);
            }
        }
        for (share, pending) in asked {
            let Ok(answer) = pending.wait(Some(PATIENCE)) else { continue };
            if let Ok(body) = fetched(answer) {
                bytes += body.len();
                found.push(NewShare { id: share, parts: vec![body] });
            }
        }
        let ids: Vec<ShareId> = found.iter().map(|share| share.id).collect();
        for (id, stored) in ids.iter().zip(share_host.shares().store_for_group(found)) {
            if stored.is_ok() {
                lacking.remove(id);
            }
        }
        // The last reference may have gone, and its end been settled, during the fetch.
        let gone = ids.iter().zip(references.refers_to(&ids)).filter(|(_, referred)| !referred);
        let gone: Vec<ShareId> = gone.map(|(share, _)| *share).collect();
        if !gone.is_empty()
            && !share_host.is_held()
            && let Err(error) = share_host.shares().release_of_group(&gone)
        {
            tracing::warn!(%error, "what nothing refers to any more was not released; the next look does it");
        }
    }
    (bytes, lacking)
}

/// Makes a fragment that no host has any more anew of others. Returns how many bytes those were,
/// and the fragment.
fn made_anew(share_host: &ShareHost, hosts: &HostList, fragment: &ShareId) -> Option<(usize, NewShare)> {
    fragment.number()?;
    let whole = put_together(share_host.peers(), Some(share_host), hosts, fragment.whole(), PATIENCE).ok()?;
    let length = whole.len();
    let (id, body) =
        content::stored_parts(fragment.whole(), whole)?.into_iter().find(|(name, _)| name == fragment)?;
    Some((length, NewShare { id, parts: vec![body] }))
}

/// Why a share cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum WholeError {
    /// Too few of its fragments are anywhere.
    #[error("too few fragments of share {0} are to be had")]
    Fragments(ShareId),
    /// No host has it, and this store cannot read it.
    #[error(transparent)]
    Read(shares::ReadError),
    /// The bytes that this host has by its name are no copy, and no other host has one.
    #[error("no host has a copy of share {0} that the servers have adopted")]
    Unadopted(ShareId),
}

/// Returns all of a share: from here, from any other host that has it, or from its fragments.
///
/// # Errors
/// If none of these has it, with what was wrong here.
pub fn whole(share_host: &ShareHost, share: ShareId) -> Result<Bytes, WholeError> {
    let hosts = share_host.peers().hosts().now();
    if let Spread::Code { .. } = share.spread() {
        let together = put_together(share_host.peers(), Some(share_host), &hosts, share, PATIENCE);
        return together.map_err(|_| WholeError::Fragments(share));
    }
    let me = share_host.peers().me();
    let error = match share_host.shares().server().whole(&share) {
        Ok((body, _)) if share_host.shares().is_copy(me, &share).unwrap_or(false) => return Ok(body.into()),
        Ok(_) => WholeError::Unadopted(share),
        Err(error) => WholeError::Read(error),
    };
    let others = hosts.having(&share).into_iter().filter(|machine| *machine != me);
    let fetch = |machine| {
        let pending = share_host.peers().call(&hosts, machine, ShareCall::Fetch(share), Vec::new())?;
        fetched(pending.wait(Some(PATIENCE)).ok()?).ok()
    };
    others.into_iter().find_map(fetch).ok_or(error)
}
