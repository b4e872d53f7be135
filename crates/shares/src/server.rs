//! The share server: what the crate offers, in one place.

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use namespace::ShareId;
use parking_lot::Mutex;

use crate::{
    NewShare, ShareServerSettings,
    accounts::{self, Account, AccountError, AccountKey, SignatureError, Signed},
    backend::Backend,
    content,
    crawler::{self, Crawler, Step},
    database::{Commits, Database},
    error::{DatabaseError, OpenError, ReadError, ReapError, StoreError},
    file_locks::FileLocks,
    inventory::{self, Inventory},
    leases, passes, reaper,
    reaper::Reaper,
    restart,
    rows::{IncidentRow, LeaseRow},
    s3, seal,
    share::{
        AccountId, Deletion, Holds, Incident, Pass, Process, Seconds, ShareLease, StoredShare, Uploaders,
        Usage, successor,
    },
    shelf::{Shelf, Withheld},
    transitions::{self, STARTER_SECONDS},
    tx::{self, Tx},
};

/// Rows fetched at a time. No reader keeps the database's log from being folded in for long.
const PAGE: usize = 1000;

/// One directory of shares, and the database of their leases. Many threads may call all operations
/// at once.
#[derive(Debug)]
pub struct ShareServer {
    server: Arc<SharedState>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that the operations and the background threads share.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub dir: PathBuf,
    pub settings: ShareServerSettings,
    pub backend: Arc<dyn Backend>,
    pub database: Database,
    pub shelf: Arc<Shelf>,
    pub file_locks: FileLocks,
    pub reaper: Arc<Reaper>,
    pub crawler: Arc<Crawler>,
    /// Held during a step of the scrub. An impatient caller may scrub at the same time.
    pub scrubbing: Mutex<()>,
    /// Numbers uploads; no upload outlives the process.
    pub uploads: AtomicI64,
    /// The time given to the last [`ShareServer::vouch`].
    pub vouched: AtomicU64,
    /// The lock on the directory, held while the server is open.
    _lock: File,
}

impl ShareServer {
    /// Opens the share server in `dir`. A `dir` without a store gets a new one.
    pub fn open(dir: &Path, settings: ShareServerSettings) -> Result<ShareServer, OpenError> {
        ShareServer::start(SharedState::open(dir, settings)?)
    }

    /// Starts the background threads.
    pub(crate) fn start(server: SharedState) -> Result<ShareServer, OpenError> {
        let server = Arc::new(server);
        // Dropping this ends the threads started so far.
        let mut opened = ShareServer { server: server.clone(), threads: Vec::new() };
        let (weak, reaper) = (Arc::downgrade(&server), server.reaper.clone());
        let thread = thread::Builder::new().name("shares-reaper".into());
        let thread = thread.spawn(move || reaper::run(&weak, &reaper)).map_err(OpenError::Thread)?;
        opened.threads.push(thread);
        let (weak, crawler) = (Arc::downgrade(&server), server.crawler.clone());
        let thread = thread::Builder::new().name("shares-crawler".into());
        let thread = thread.spawn(move || crawler::run(&weak, &crawler)).map_err(OpenError::Thread)?;
        opened.threads.push(thread);
        Ok(opened)
    }

    /// Opens a server without background threads.
    #[cfg(test)]
    pub(crate) fn without_threads(server: SharedState) -> ShareServer {
        ShareServer { server: Arc::new(server), threads: Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &SharedState {
        &self.server
    }

    /// Stores shares and takes the account's lease on each. It returns when all are durable. An
    /// error stores none of them: the files written so far are removed. A share that is stored
    /// already with the same bytes is only leased.
    pub fn store_many(
        &self,
        shares: Vec<NewShare>,
        account: AccountId,
        until: Option<Seconds>,
    ) -> Result<(), StoreError> {
        self.server.store_many(shares, account, until)
    }

    /// Reads `length` bytes of a share's body from `at` on.
    pub fn read(&self, id: &ShareId, at: u32, length: u32) -> Result<Vec<u8>, ReadError> {
        self.server.read(id, at, length)
    }

    /// Reads part of a share that may be damaged: the bytes that its file has there. The caller
    /// must know from elsewhere what the bytes should be. Otherwise as [`Self::read`].
    pub fn read_unsound(&self, id: &ShareId, at: u32, length: u32) -> Result<Vec<u8>, ReadError> {
        self.server.read_unsound(id, at, length)
    }

    /// Reads all of a share, in quarantine or not, and checks its digest. Returns its length. A
    /// damaged share goes into quarantine; a share found sound leaves it.
    pub fn verify(&self, id: &ShareId) -> Result<u32, ReadError> {
        self.server.verify(id)
    }

    /// Reads all of a share's body. Returns it with the verified digest.
    pub fn whole(&self, id: &ShareId) -> Result<(Vec<u8>, [u8; 16]), ReadError> {
        self.server.whole(id)
    }

    /// The directory that the stored shares fill, if it is on this machine's disk.
    pub fn disk(&self) -> Option<&Path> {
        self.server.backend.is_local().then_some(self.server.dir.as_path())
    }

    /// The store's own id. Signed requests name it.
    pub fn id(&self) -> Result<[u8; 16], DatabaseError> {
        Ok(self.server.database.read("naming the store", tx::store)?.id)
    }

    /// The cluster's own account of that name. It is made if it is missing.
    pub fn account(&self, name: &str) -> Result<AccountId, DatabaseError> {
        let name = name.to_owned();
        self.server.database.write("naming an account", move |tx| accounts::named(tx, &name))
    }

    /// The account of that key, made if it is missing. `quota` bounds its leases (`None`: the room
    /// of the store does). An account above its quota keeps its leases and gets no new ones. Its
    /// name is for people and is given once.
    pub fn key_account(
        &self,
        key: AccountKey,
        name: &str,
        quota: Option<Usage>,
    ) -> Result<Result<AccountId, AccountError>, DatabaseError> {
        let name = name.to_owned();
        let work = move |tx: &mut Tx<'_>| accounts::keyed(tx, key, &name, quota);
        self.server.database.write_unless_refused("making an account", work, |_| ())
    }

    /// Finds the account that signed this request. The request's number is durably used up, so a
    /// request is believed once.
    pub fn admit(&self, signed: &Signed) -> Result<Result<AccountId, SignatureError>, DatabaseError> {
        // The signature is checked before anything is written: strangers cost the database nothing.
        if !signed.is_signed_for(&self.id()?) {
            return Ok(Err(SignatureError::Signature));
        }
        let (key, nonce) = (signed.key, signed.nonce);
        self.server.database.write_unless_refused(
            "admitting a request",
            move |tx| accounts::admit(tx, &key, nonce),
            |_| (),
        )
    }

    /// All accounts.
    pub fn accounts(&self) -> Result<Vec<Account>, DatabaseError> {
        let rows = self.server.database.read("listing accounts", accounts::all)?;
        Ok(rows.into_iter().map(Account::from).collect())
    }

    /// Releases all leases of an account and forgets it. Returns how many leases it had. Shares
    /// without another lease stay for the grace period.
    pub fn end_account(&self, account: AccountId) -> Result<usize, DatabaseError> {
        self.drop_leases("ending an account", account, None)
    }

    /// How the account stands to each of these shares.
    pub fn holds(&self, account: AccountId, ids: &[ShareId]) -> Result<Vec<Holds>, DatabaseError> {
        ids.iter().map(|id| self.server.holds(account, id)).collect()
    }

    /// The first shares after `after` that the account has leases on, in order.
    pub fn leased_by(
        &self,
        account: AccountId,
        after: Option<&ShareId>,
        limit: usize,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        self.server.database.read("listing leased shares", |c| leases::leased_by(c, account, after, limit))
    }

    /// As [`Self::leased_by`], for accounts that hold a small part of the store.
    pub fn held_by(
        &self,
        account: AccountId,
        after: Option<&ShareId>,
        limit: usize,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        self.server.database.read("listing leased shares", |c| leases::held_by(c, account, after, limit))
    }

    /// Takes or renews the account's lease on each share, until [`Self::lease_end`]. In the same
    /// transaction it ends the leases of the cluster's other accounts on them.
    ///
    /// Returns the shares that are held now, as [`Self::lease`] does. A damaged share is leased
    /// too, is not reported as held, and stays leased by the others.
    ///
    /// A share may be leased only by accounts of the cluster that are not its `believed` uploaders,
    /// or by none. Its content may then not be what its name promises: it is deleted, and may be
    /// stored again.
    pub fn take_over(
        &self,
        account: AccountId,
        ids: &[ShareId],
        believed: Uploaders,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        let (believed, may_go) = (Arc::new(believed), !self.server.database.suspicion().is_raised());
        let lease =
            move |tx: &mut Tx<'_>, ids: &[ShareId]| leases::take_over(tx, account, ids, &believed, may_go);
        self.server.lease_with("taking over shares", ids, lease)
    }

    /// Takes or renews the account's lease on each share and never shortens it (`None`: the lease
    /// never ends). Returns the shares that are held now: stable and sound ones. The other shares
    /// are missing or unreliable.
    pub fn lease(
        &self,
        account: AccountId,
        ids: &[ShareId],
        until: Option<Seconds>,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        let lease = move |tx: &mut Tx<'_>, ids: &[ShareId]| leases::lease(tx, account, ids, until);
        self.server.lease_with("leasing shares", ids, lease)
    }

    /// Releases the account's leases on these shares.
    pub fn release(
        &self,
        account: AccountId,
        ids: &[ShareId],
        deletion: Deletion,
    ) -> Result<(), DatabaseError> {
        self.release_of(Some(account), ids, deletion)
    }

    /// Releases all leases of the cluster's own accounts on these shares. Only the server group may
    /// call this: it knows when no file refers to a share any more. A departed uploader, or a
    /// starter lease, must not keep the share. Leases of keys stay.
    pub fn release_all(&self, ids: &[ShareId], deletion: Deletion) -> Result<(), DatabaseError> {
        self.release_of(None, ids, deletion)
    }

    fn release_of(
        &self,
        account: Option<AccountId>,
        ids: &[ShareId],
        deletion: Deletion,
    ) -> Result<(), DatabaseError> {
        let ids = ids.to_vec();
        let work = move |tx: &mut Tx<'_>| leases::release(tx, account, &ids, deletion);
        if self.server.database.write("letting go of shares", work)? > 0 {
            self.server.reaper.wake();
        }
        Ok(())
    }

    /// The time by the server's clock.
    pub fn now(&self) -> Seconds {
        (self.server.settings.clock)()
    }

    /// The end of a lease that is taken or renewed now: 31 days from now. The lease is due for
    /// renewal after a week ([`Holds::Due`]).
    pub fn lease_end(&self) -> Seconds {
        self.now().saturating_add(leases::TERM)
    }

    /// Records the cluster's promise about its leases at time `at`. Every share that the cluster
    /// wanted then is leased by its own accounts beyond `at`. Leases of these accounts that ended
    /// by `at` are therefore obsolete, and only those expire. After a start none expires until this
    /// is called.
    pub fn vouch(&self, at: Seconds) {
        self.server.vouched.fetch_max(at, Ordering::SeqCst);
    }

    /// The last time given to [`Self::vouch`]; `None`: none since the start.
    pub fn vouched(&self) -> Option<Seconds> {
        Some(self.server.vouched.load(Ordering::SeqCst)).filter(|at| *at > 0)
    }

    /// Takes in a share from another store with its `leases` there. The accounts in `leases` hold
    /// it on the same terms here. The share also gets a starter lease, unless a key is among them.
    pub fn bring(&self, share: NewShare, leases: &[ShareLease]) -> Result<(), StoreError> {
        let (id, starter) = (share.id, self.now().saturating_add(STARTER_SECONDS));
        // A share that is here and has lost its bytes gets them again. Other faults show when it is
        // stored.
        let _ = self.verify(&id);
        self.store_many(vec![share], AccountId::STARTER, Some(starter))?;
        let row = |lease: &ShareLease| LeaseRow {
            share: id,
            account: lease.account,
            renewed_at: i64::try_from(lease.renewed_at).unwrap_or(i64::MAX),
            expires_at: lease.expires_at.map(|end| i64::try_from(end).unwrap_or(i64::MAX)),
        };
        let leases: Vec<LeaseRow> = leases.iter().map(row).collect();
        let work = move |tx: &mut Tx<'_>| leases::bring(tx, &id, &leases);
        Ok(self.server.database.write("taking in leases", work)?)
    }

    /// Releases all leases that the account took or renewed last before `since`, and returns how
    /// many. A caller renews the shares that it wants, then sweeps the rest.
    pub fn drop_unrenewed_since(&self, account: AccountId, since: Seconds) -> Result<usize, DatabaseError> {
        self.drop_leases("sweeping leases", account, Some(since))
    }

    /// Works in bounded transactions. An interrupted caller repeats the call. The last transaction
    /// also forgets an account that ends.
    fn drop_leases(
        &self,
        doing: &'static str,
        account: AccountId,
        since: Option<Seconds>,
    ) -> Result<usize, DatabaseError> {
        let (mut dropped, mut after) = (0, None);
        loop {
            let (some, next) = self.server.database.write(doing, move |tx| {
                let (some, next) = leases::drop_unrenewed(tx, account, since, after.as_ref(), PAGE)?;
                if since.is_none() && next.is_none() {
                    accounts::forget(tx, account)?;
                }
                Ok((some, next))
            })?;
            dropped += some;
            // An ending account loses every lease. Leases taken meanwhile are found by starting
            // again from the beginning.
            after = next.filter(|_| since.is_some());
            if next.is_none() {
                break;
            }
        }
        if dropped > 0 {
            self.server.reaper.wake();
        }
        Ok(dropped)
    }

    /// The account's usage. The time does not depend on how much it holds.
    pub fn usage(&self, account: AccountId) -> Result<Usage, DatabaseError> {
        self.server.database.read("summing up an account", |c| accounts::usage(c, account))
    }

    /// The usage of the whole store, including coming and going shares.
    pub fn stored(&self) -> Result<Usage, DatabaseError> {
        Ok(self.server.database.read("summing up shares", tx::store)?.stored)
    }

    /// The state of the store in numbers. The time depends on the work queued: leased and sound
    /// shares are not read.
    pub fn inventory(&self) -> Result<Inventory, DatabaseError> {
        let (now, grace) = (self.now(), self.server.settings.grace.as_secs());
        self.server.database.read("taking an inventory", |c| inventory::take(c, now, grace))
    }

    /// The row that the database has of a share.
    pub fn share(&self, id: &ShareId) -> Result<Option<StoredShare>, DatabaseError> {
        let row = self.server.database.read("looking up a share", |c| transitions::row(c, id))?;
        Ok(row.map(|row| row.told()))
    }

    /// The leases on a share.
    pub fn leases_of(&self, id: &ShareId) -> Result<Vec<ShareLease>, DatabaseError> {
        self.server.database.read("listing leases", |c| leases::leases_of(c, id))
    }

    /// Shows every share to `look`, in order of id, until `look` breaks off. The rows are no
    /// snapshot: shares may come and go meanwhile.
    pub fn for_each_share(
        &self,
        mut look: impl FnMut(&StoredShare) -> ControlFlow<()>,
    ) -> Result<(), DatabaseError> {
        let mut first = Some(ShareId([0; 16]));
        while let Some(from) = first {
            let page = self.server.database.read("listing shares", |c| transitions::page(c, &from, PAGE))?;
            if page.iter().any(|share| look(&share.told()).is_break()) {
                break;
            }
            first = page.last().and_then(|last| successor(&last.id));
        }
        Ok(())
    }

    /// Deletes the shares that are due now. It does not wait for the reaper's thread or for its
    /// pauses after failures.
    pub fn reap(&self) -> Result<(), ReapError> {
        self.server.reap(false)
    }

    /// Ends all leases that are over now, without waiting for the expirer's turn.
    pub fn expire(&self) -> Result<(), DatabaseError> {
        run_to_end(|| self.server.expire_some())
    }

    /// Starts discovery and runs it to its end. It takes in share files without a row, and notes
    /// rows without a file. It is for callers that have put share files there. Nothing is deleted
    /// before discovery has completed, even if it is interrupted and continues after a restart.
    pub fn discover(&self) -> Result<(), ReapError> {
        self.server.rediscover()?;
        self.finish_discovery()
    }

    /// Finishes a discovery that is under way, without its pauses.
    pub fn finish_discovery(&self) -> Result<(), ReapError> {
        run_to_end(|| self.server.discover_some())
    }

    /// Scrubs the database and every share from the beginning, without pauses. `look` sees the
    /// progress and may break off. The scrub then continues at its usual pace.
    pub fn scrub_now(&self, mut look: impl FnMut(&Pass) -> ControlFlow<()>) -> Result<(), DatabaseError> {
        let begin_anew = |tx: &mut Tx<'_>| passes::begin_anew(tx, Process::Scrub);
        self.server.database.write("beginning to scrub", begin_anew)?;
        run_to_end(|| {
            let step = self.server.scrub_some()?;
            let pass = self.passes()?.into_iter().find(|pass| pass.process == Process::Scrub);
            let broken_off = pass.is_some_and(|pass| look(&pass).is_break());
            Ok(Step { is_last: step.is_last || broken_off, ..step })
        })
    }

    /// Continues or begins a scrub, without pauses.
    #[cfg(test)]
    pub(crate) fn scrub(&self) -> Result<(), DatabaseError> {
        run_to_end(|| self.server.scrub_some())
    }

    /// The number of shares known to be damaged or missing.
    pub fn damaged(&self) -> Result<u64, DatabaseError> {
        let damaged = self.server.database.read("listing damaged shares", transitions::unhealthy)?;
        Ok(damaged.len() as u64)
    }

    /// The progress of the background processes, and the results of their last passes.
    pub fn passes(&self) -> Result<Vec<Pass>, DatabaseError> {
        self.server.database.read("listing passes", passes::all)
    }

    /// The incidents, the latest first.
    pub fn incidents(&self) -> Result<Vec<Incident>, DatabaseError> {
        let sql = "SELECT * FROM incidents ORDER BY number DESC";
        let rows: Vec<IncidentRow> =
            self.server.database.read("listing incidents", |c| seal::all(c, sql, []))?;
        let told = |row: IncidentRow| Incident {
            at: u64::try_from(row.at).unwrap_or(0),
            share: row.share,
            what: row.what,
        };
        Ok(rows.into_iter().map(told).collect())
    }

    /// The reason why leases do not expire and unleased shares are not deleted, if there is one.
    pub fn suspended(&self) -> Result<Option<Suspended>, DatabaseError> {
        if self.server.database.suspicion().is_raised() {
            return Ok(Some(Suspended::Damaged));
        }
        let store = self.server.database.read("looking at the clock", tx::store)?;
        Ok(match store.clock_doubted_at {
            _ if !store.is_discovered() => Some(Suspended::Discovering),
            Some(at) => Some(Suspended::Clock { at: u64::try_from(at).unwrap_or(0) }),
            None => None,
        })
    }

    /// Confirms that the wall clock is right. A clock jumps when the machine was off for long, or
    /// when it was wrong before.
    pub fn confirm_clock(&self) -> Result<(), DatabaseError> {
        self.server.database.write("confirming the clock", |tx| {
            tx.store.clock_doubted_at = None;
            Ok(())
        })?;
        self.server.reaper.wake();
        Ok(())
    }
}

/// The reason why nothing expires, and why only shares released for [`Deletion::AtOnce`] are
/// deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// The database is damaged. The next start rebuilds it. Nothing is deleted at all.
    Damaged,
    /// Discovery is under way: some shares here may be unknown. Nothing is deleted at all.
    Discovering,
    /// The wall clock has jumped, and no operator has confirmed it
    /// ([`ShareServer::confirm_clock`]).
    Clock {
        /// The clock's time at the jump.
        at: Seconds,
    },
}

fn run_to_end<E>(mut step: impl FnMut() -> Result<Step, E>) -> Result<(), E> {
    while !step()?.is_last {}
    Ok(())
}

impl Drop for ShareServer {
    fn drop(&mut self) {
        self.server.reaper.stop();
        self.server.crawler.stop();
        for thread in self.threads.drain(..) {
            // A panic of the thread has reported itself.
            let _ = thread.join();
        }
    }
}

impl SharedState {
    /// Opens everything except the threads.
    pub(crate) fn open(dir: &Path, settings: ShareServerSettings) -> Result<SharedState, OpenError> {
        let wanted = settings.content.clone();
        let backend = || content::open(dir, wanted.as_ref(), s3::connect);
        SharedState::open_on(dir, settings, Arc::new(()), backend)
    }

    /// As [`Self::open`], with another backend. `backend` runs once this process has the directory,
    /// and reports whether the store is certainly empty.
    pub(crate) fn open_on(
        dir: &Path,
        settings: ShareServerSettings,
        commits: Arc<dyn Commits>,
        backend: impl FnOnce() -> Result<(Arc<dyn Backend>, bool), OpenError>,
    ) -> Result<SharedState, OpenError> {
        let lock = restart::claim(dir)?;
        let (backend, is_new) = backend()?;
        let last_run = restart::open_database(dir, &settings.clock, is_new)?;
        let database = Database::start(dir, last_run.connection, settings.clock.clone(), commits)?;
        let shelf = Arc::new(Shelf::new(settings.open_files_max));
        shelf.withhold(&last_run.going, Withheld::Going);
        shelf.withhold(&last_run.damaged, Withheld::Damaged);
        let reaper = Arc::new(Reaper::default());
        reaper.delete(&last_run.going);
        Ok(SharedState {
            dir: dir.to_owned(),
            settings,
            backend,
            database,
            shelf,
            file_locks: FileLocks::default(),
            reaper,
            crawler: Arc::default(),
            scrubbing: Mutex::default(),
            uploads: AtomicI64::new(1),
            vouched: AtomicU64::new(0),
            _lock: lock,
        })
    }
}
