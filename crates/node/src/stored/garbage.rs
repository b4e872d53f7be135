//! Shares that nothing needs any more: which of them go now, and what keeps the rest.

use super::leases::LeaseNames;
use super::unread;
use crate::server::Server;
use admin::{ControlProgress, ControlRefusal, DeletionReport, GarbageReport, KeptBy, KeptShares};
use os::STOP_LOOK;
use share_hosts::{PassProcess, ReferenceIndex, ShareHost, StoreReport, Sum};
use shares::{AccountId, DatabaseError, ShareLease, State, StoredShare};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// How many shares are compared with the directory at a time.
const STEP: usize = 1000;

/// Compares everything with the directory and deletes what may go, unless it is a `dry_run`. Then
/// it reports what is there.
pub(super) fn collect(
    server: &Server,
    dry_run: bool,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<GarbageReport, ControlRefusal> {
    let store = server.shares().server();
    let before = store.stored().map_err(unread)?;
    if !dry_run {
        look_through(server, progress)?;
        store.expire().map_err(unread)?;
        store.reap().map_err(unread)?;
    }
    let after = store.stored().map_err(unread)?;
    let mut report = sort(server).map_err(unread)?;
    report.gone = Sum {
        shares: before.shares.saturating_sub(after.shares),
        bytes: before.bytes.saturating_sub(after.bytes),
    };
    Ok(report)
}

/// Has the share host compare all references, so that it releases the shares that nothing refers
/// to.
fn look_through(server: &Server, progress: &mut dyn FnMut(&ControlProgress)) -> Result<(), ControlRefusal> {
    let (share_host, store) = (server.share_host(), server.shares().server());
    let begun = store.now();
    share_host.compare();
    while store.vouched().is_none_or(|at| at < begun) {
        if share_host.is_stopping() {
            return Err(ControlRefusal::Stopping);
        }
        progress(match share_host.is_held() {
            true => &ControlProgress::Held,
            false => &ControlProgress::Comparing,
        });
        std::thread::sleep(STOP_LOOK);
    }
    Ok(())
}

/// The state of deletion.
pub(super) fn standing(share_host: &ShareHost) -> Result<DeletionReport, DatabaseError> {
    let mut store = StoreReport::of(share_host.shares().server())?;
    store.passes.retain(|pass| pass.process == PassProcess::Reaper);
    Ok(DeletionReport {
        now: store.now,
        unleased: store.unleased,
        due: store.due,
        next_due: store.next_due,
        going: store.going,
        suspended: store.suspended,
        held: share_host.is_held(),
        vouched: store.vouched,
        days: store.passes,
    })
}

/// Classifies all stored shares.
fn sort(server: &Server) -> Result<GarbageReport, DatabaseError> {
    let store = server.shares().server();
    let mut sorting = Sorting {
        server,
        names: LeaseNames::new(server)?,
        keys: store.accounts()?.iter().filter(|a| a.key.is_some()).map(|a| a.id).collect(),
        report: GarbageReport { now: store.now(), ..GarbageReport::default() },
        stays: BTreeMap::new(),
    };
    let (mut page, mut failed) = (Vec::with_capacity(STEP), Ok(()));
    store.for_each_share(|share| {
        page.push(share.clone());
        if page.len() == STEP {
            failed = sorting.take(&std::mem::take(&mut page));
        }
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    sorting.take(&page)?;
    let StoreReport { due, unleased, next_due, going, suspended, .. } = StoreReport::of(store)?;
    let Sorting { mut report, stays, .. } = sorting;
    report.goes.shares += due.shares + going.shares;
    report.goes.bytes += due.bytes + going.bytes;
    report.stays.extend(stays.into_iter().map(|(by, (sum, until))| KeptShares { by, sum, until }));
    let waits = Sum {
        shares: unleased.shares.saturating_sub(due.shares),
        bytes: unleased.bytes.saturating_sub(due.bytes),
    };
    if waits.shares > 0 {
        report.stays.push(KeptShares { by: KeptBy::GracePeriod, sum: waits, until: next_due });
    }
    report.suspended = suspended;
    Ok(report)
}

struct Sorting<'a> {
    server: &'a Server,
    names: LeaseNames,
    keys: BTreeSet<AccountId>,
    report: GarbageReport,
    stays: BTreeMap<KeptBy, (Sum, Option<u64>)>,
}

impl Sorting<'_> {
    fn take(&mut self, page: &[StoredShare]) -> Result<(), DatabaseError> {
        let ids: Vec<_> = page.iter().map(|share| share.id).collect();
        let referenced = self.server.refers_to(&ids);
        for (share, referenced) in page.iter().zip(referenced) {
            match share.state {
                State::Stable if referenced => self.report.needed.add(share.length),
                State::Stable if share.leases > 0 => self.sort(share)?,
                State::Stable | State::Coming | State::Going => {}
            }
        }
        Ok(())
    }

    /// Classifies a share that is leased and that nothing refers to.
    fn sort(&mut self, share: &StoredShare) -> Result<(), DatabaseError> {
        let mut leases = self.server.shares().server().leases_of(&share.id)?;
        // The next comparison releases the group's lease. A key's lease does not depend on files.
        // So it is reported before the lease of an upload or of a found share.
        leases.retain(|lease| lease.account != self.server.shares().group);
        let of_key = |lease: &&ShareLease| self.keys.contains(&lease.account);
        match leases.iter().find(of_key).or(leases.first()) {
            None => self.report.goes.add(share.length),
            Some(lease) => {
                let by = KeptBy::Lease { account: self.names.of(lease.account) };
                let until = if of_key(&lease) { None } else { lease.expires_at };
                let (sum, longest) = self.stays.entry(by).or_insert((Sum::default(), until));
                sum.add(share.length);
                *longest = longest.zip(until).map(|(longest, until)| longest.max(until));
            }
        }
        Ok(())
    }
}
