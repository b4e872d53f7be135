//! What nothing needs any more: what of it goes now, and what keeps the rest.

use super::leases::LeaseNames;
use super::report::{PassReport, StoreReport};
use super::{Sum, words};
use crate::figures::{date, when};
use crate::machine::STOP_LOOK;
use crate::server::Server;
use crate::share_host::ShareHost;
use serde::{Deserialize, Serialize};
use shares::{AccountId, DatabaseError, ShareLease, State, StoredShare};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

/// Shares that are compared with the directory at a time.
const STEP: usize = 1000;

/// What is stored here that nothing needs, and why it is still there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GarbageReport {
    /// What the share server's clock says, UTC seconds.
    pub now: u64,
    /// What has gone since it was asked, with what others let go meanwhile; nothing in a dry run.
    pub gone: Sum,
    /// What files refer to, and stays.
    pub needed: Sum,
    /// What may go now; after a collection it is on its way.
    pub goes: Sum,
    /// What does not go yet, by what keeps it.
    pub stays: Vec<Kept>,
    /// Why nothing is deleted at all, if that is so.
    pub suspended: Option<String>,
}

/// Shares that nothing refers to and that stay for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// What keeps them.
    pub by: String,
    /// Which these are.
    #[serde(flatten)]
    pub sum: Sum,
    /// Until when, for the longest; for as long as it lasts if absent.
    pub until: Option<u64>,
}

/// How deleting stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeletionReport {
    /// What the share server's clock says, UTC seconds.
    pub now: u64,
    /// What nobody has leased.
    pub unleased: Sum,
    /// Of that, what may be deleted now.
    pub due: Sum,
    /// When the first of the rest may be.
    pub next_due: Option<u64>,
    /// What is being deleted.
    pub going: Sum,
    /// Why nothing is deleted, if that is so.
    pub suspended: Option<String>,
    /// A backup is being made: what nothing refers to any more stays until it is.
    pub held: bool,
    /// When all that files refer to was last known to be leased.
    pub vouched: Option<u64>,
    /// What was deleted, day by day, the latest first.
    pub days: Vec<PassReport>,
}

/// Has everything looked through and what may go deleted, unless it is a `dry_run`; and says what
/// is there then.
pub(super) fn collect(
    server: &Server,
    dry_run: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<GarbageReport, String> {
    let store = server.shares().server();
    let before = store.stored().map_err(words)?;
    if !dry_run {
        look_through(server, progress)?;
        store.expire().map_err(words)?;
        store.reap().map_err(words)?;
    }
    let after = store.stored().map_err(words)?;
    let mut report = sort(server).map_err(words)?;
    report.gone = Sum {
        shares: before.shares.saturating_sub(after.shares),
        bytes: before.bytes.saturating_sub(after.bytes),
    };
    Ok(report)
}

/// Has all references gone through, so that what nothing refers to is let go.
fn look_through(server: &Server, progress: &mut dyn FnMut(&str)) -> Result<(), String> {
    let (share_host, store) = (server.share_host(), server.shares().server());
    let begun = store.now();
    share_host.compare();
    while store.vouched().is_none_or(|at| at < begun) {
        if share_host.is_stopping() {
            return Err("this machine is being stopped".to_owned());
        }
        progress(match share_host.is_held() {
            true => "a backup is being made; until it is, nothing that it may need goes",
            false => "looking through what files refer to",
        });
        std::thread::sleep(STOP_LOOK);
    }
    Ok(())
}

/// How deleting stands.
pub(super) fn standing(share_host: &ShareHost) -> Result<DeletionReport, DatabaseError> {
    let mut store = StoreReport::of(share_host)?;
    store.passes.retain(|pass| pass.process == "reaper");
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

/// Looks at all that is stored.
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
    let StoreReport { due, unleased, next_due, going, suspended, .. } = StoreReport::of(server.share_host())?;
    let Sorting { mut report, stays, .. } = sorting;
    report.goes.shares += due.shares + going.shares;
    report.goes.bytes += due.bytes + going.bytes;
    report.stays.extend(stays.into_iter().map(|(by, (sum, until))| Kept { by, sum, until }));
    let waits = Sum {
        shares: unleased.shares.saturating_sub(due.shares),
        bytes: unleased.bytes.saturating_sub(due.bytes),
    };
    if waits.shares > 0 {
        report.stays.push(Kept { by: "the grace period".to_owned(), sum: waits, until: next_due });
    }
    report.suspended = suspended;
    Ok(report)
}

struct Sorting<'a> {
    server: &'a Server,
    names: LeaseNames,
    keys: BTreeSet<AccountId>,
    report: GarbageReport,
    stays: BTreeMap<String, (Sum, Option<u64>)>,
}

impl Sorting<'_> {
    fn take(&mut self, page: &[StoredShare]) -> Result<(), DatabaseError> {
        let group = self.server.group();
        let referenced = group.query(|_, rows| {
            page.iter().map(|share| directory::refers_to(rows, &share.id.whole())).collect::<Vec<_>>()
        });
        for (share, referenced) in page.iter().zip(referenced) {
            match share.state {
                State::Stable if referenced => self.report.needed.add(share.length),
                State::Stable if share.leases > 0 => self.sort(share)?,
                State::Stable | State::Coming | State::Going => {}
            }
        }
        Ok(())
    }

    /// A share that is leased and that nothing refers to.
    fn sort(&mut self, share: &StoredShare) -> Result<(), DatabaseError> {
        let mut leases = self.server.shares().server().leases_of(&share.id)?;
        // The next look lets go of the group's. A key's lease is its own matter, so it is told
        // before that of an upload, or of what was found.
        leases.retain(|lease| lease.account != self.server.shares().group);
        let of_key = |lease: &&ShareLease| self.keys.contains(&lease.account);
        match leases.iter().find(of_key).or(leases.first()) {
            None => self.report.goes.add(share.length),
            Some(lease) => {
                let by = format!("a lease of {}", self.names.of(lease.account));
                let until = if of_key(&lease) { None } else { lease.expires_at };
                let (sum, longest) = self.stays.entry(by).or_insert((Sum::default(), until));
                sum.add(share.length);
                *longest = longest.zip(until).map(|(longest, until)| longest.max(until));
            }
        }
        Ok(())
    }
}

impl fmt::Display for GarbageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gone != Sum::default() {
            writeln!(f, "gone       {}", self.gone)?;
        }
        writeln!(f, "needed     {}", self.needed)?;
        writeln!(f, "goes now   {}", self.goes)?;
        for Kept { by, sum, until } in &self.stays {
            write!(f, "stays      {sum}, for {by}")?;
            match until {
                Some(until) => writeln!(f, " (ends {})", when(*until, self.now))?,
                None => writeln!(f)?,
            }
        }
        match &self.suspended {
            Some(why) => writeln!(f, "SUSPENDED  nothing expires or is deleted: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for DeletionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "unleased   {}; {} of them may go now", self.unleased, self.due.shares)?;
        if let Some(at) = self.next_due {
            writeln!(f, "next       {}", when(at, self.now))?;
        }
        writeln!(f, "going      {}", self.going)?;
        if let Some(why) = &self.suspended {
            writeln!(f, "SUSPENDED  nothing expires or is deleted: {why}")?;
        }
        if self.held {
            writeln!(f, "HELD       a backup is being made; until it is, nothing that it may need goes")?;
        }
        match self.vouched {
            Some(at) => writeln!(f, "looked     through all that files refer to {}", when(at, self.now))?,
            None => writeln!(f, "looked     not through all that files refer to yet, since the start")?,
        }
        for pass in &self.days {
            writeln!(f, "deleted    {} shares in the pass that began {}", pass.acted, date(pass.began))?;
        }
        Ok(())
    }
}
