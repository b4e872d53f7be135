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

/// Rows fetched at a time: no reader keeps the database's log from being folded in for long.
const PAGE: usize = 1000;

/// One directory of shares, and the database of who wants them kept. All operations may be called
/// by many threads at once.
#[derive(Debug)]
pub struct ShareServer {
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
}

/// What the operations and the threads in the background share.
#[derive(Debug)]
pub(crate) struct Server {
    pub dir: PathBuf,
    pub settings: ShareServerSettings,
    pub backend: Arc<dyn Backend>,
    pub database: Database,
    pub shelf: Arc<Shelf>,
    pub file_locks: FileLocks,
    pub reaper: Arc<Reaper>,
    pub crawler: Arc<Crawler>,
    /// Held during a step of the scrub: somebody in a hurry may be at it as well.
    pub scrubbing: Mutex<()>,
    /// Numbers uploads; no upload outlives the process.
    pub uploads: AtomicI64,
    /// See [`ShareServer::vouch`].
    pub vouched: AtomicU64,
    /// Held as long as the directory is ours.
    _lock: File,
}

impl ShareServer {
    /// Opens the share server in `dir`, which is made if there is nothing yet.
    pub fn open(dir: &Path, settings: ShareServerSettings) -> Result<ShareServer, OpenError> {
        ShareServer::start(Server::open(dir, settings)?)
    }

    /// Starts what goes on in the background.
    pub(crate) fn start(server: Server) -> Result<ShareServer, OpenError> {
        let server = Arc::new(server);
        // What has been started ends with this.
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

    /// A server in which nothing happens by itself.
    #[cfg(test)]
    pub(crate) fn without_threads(server: Server) -> ShareServer {
        ShareServer { server: Arc::new(server), threads: Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Server {
        &self.server
    }

    /// Stores shares and takes the account's lease on each; returns when all are durable. All or
    /// none: on an error, what was written is removed. A share that is there already with the same
    /// bytes is only leased.
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

    /// As [`Self::read`], of a share that may be damaged: what its file has there, for whoever
    /// knows what that is to be.
    pub fn read_unsound(&self, id: &ShareId, at: u32, length: u32) -> Result<Vec<u8>, ReadError> {
        self.server.read_unsound(id, at, length)
    }

    /// Reads all of a share and checks its digest, in quarantine or not; returns its length. What
    /// is damaged is put in quarantine, and what turns out to be sound is taken out of it.
    pub fn verify(&self, id: &ShareId) -> Result<u32, ReadError> {
        self.server.verify(id)
    }

    /// All of a share's body, and its digest, which it was found to have.
    pub fn whole(&self, id: &ShareId) -> Result<(Vec<u8>, [u8; 16]), ReadError> {
        self.server.whole(id)
    }

    /// The directory that what is stored fills, if that is on this machine's disk.
    pub fn disk(&self) -> Option<&Path> {
        self.server.backend.is_local().then_some(self.server.dir.as_path())
    }

    /// What this store calls itself; signed requests name it.
    pub fn id(&self) -> Result<[u8; 16], DatabaseError> {
        Ok(self.server.database.read("naming the store", tx::store)?.id)
    }

    /// The cluster's own account of that name, made if there is none.
    pub fn account(&self, name: &str) -> Result<AccountId, DatabaseError> {
        let name = name.to_owned();
        self.server.database.write("naming an account", move |tx| accounts::named(tx, &name))
    }

    /// The account of that key, made if there is none, with what it may lease at most (`None`: as
    /// much as there is room for). It keeps what it has, if that is more, and gets nothing new. Its
    /// name, which people know it by, is given once.
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

    /// Whose request this is. Its number is durably used up: it is believed once.
    pub fn admit(&self, signed: &Signed) -> Result<Result<AccountId, SignatureError>, DatabaseError> {
        // Before anything is written: strangers cost the database nothing.
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

    /// Lets go of all leases of an account, and forgets it; returns how many they were. What nobody
    /// else wants stays for the grace period.
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

    /// The same, for accounts that hold little of all that is stored.
    pub fn held_by(
        &self,
        account: AccountId,
        after: Option<&ShareId>,
        limit: usize,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        self.server.database.read("listing leased shares", |c| leases::held_by(c, account, after, limit))
    }

    /// Takes or renews the account's lease on each share, until [`Self::lease_end`], and lets go of
    /// those of the cluster's other accounts in the same moment. Returns the shares that are held
    /// now, as [`Self::lease`] does; what is damaged is leased, too, and stays leased by the
    /// others. What others of the cluster's accounts alone have leased than its `believed`
    /// uploaders is not what it is called: it is deleted instead, and may be stored again.
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

    /// Takes or renews the account's lease on each share, never shortening it (`None`: it never
    /// ends). Returns the shares that are held now: stable and sound ones. The others are not
    /// there, or not to be relied on.
    pub fn lease(
        &self,
        account: AccountId,
        ids: &[ShareId],
        until: Option<Seconds>,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        let lease = move |tx: &mut Tx<'_>, ids: &[ShareId]| leases::lease(tx, account, ids, until);
        self.server.lease_with("leasing shares", ids, lease)
    }

    /// Lets go of the account's leases on these shares.
    pub fn let_go(
        &self,
        account: AccountId,
        ids: &[ShareId],
        deletion: Deletion,
    ) -> Result<(), DatabaseError> {
        self.let_go_of(Some(account), ids, deletion)
    }

    /// Lets go of all leases of the cluster's own accounts on these shares. For the server group
    /// alone, which knows when nothing refers to a share of its files any more: an uploader that is
    /// gone, or a starter lease, must not keep it. What a key has leased stays.
    pub fn let_go_all(&self, ids: &[ShareId], deletion: Deletion) -> Result<(), DatabaseError> {
        self.let_go_of(None, ids, deletion)
    }

    fn let_go_of(
        &self,
        account: Option<AccountId>,
        ids: &[ShareId],
        deletion: Deletion,
    ) -> Result<(), DatabaseError> {
        let ids = ids.to_vec();
        let work = move |tx: &mut Tx<'_>| leases::let_go(tx, account, &ids, deletion);
        if self.server.database.write("letting go of shares", work)? > 0 {
            self.server.reaper.wake();
        }
        Ok(())
    }

    /// What its clock says.
    pub fn now(&self) -> Seconds {
        (self.server.settings.clock)()
    }

    /// When a lease ends that is taken or renewed now: 31 days on. It is to be renewed after a week
    /// ([`Holds::Due`]).
    pub fn lease_end(&self) -> Seconds {
        self.now().saturating_add(leases::TERM)
    }

    /// The cluster says that whatever it wanted kept at `at` is leased by its own accounts beyond
    /// that time. Those of their leases that ended by then are nobody's, and only those expire:
    /// until it has said so after a start, none.
    pub fn vouch(&self, at: Seconds) {
        self.server.vouched.fetch_max(at, Ordering::SeqCst);
    }

    /// When the cluster last did; `None`: not since the start.
    pub fn vouched(&self) -> Option<Seconds> {
        Some(self.server.vouched.load(Ordering::SeqCst)).filter(|at| *at > 0)
    }

    /// Takes in a share that another store had, with `leases` of accounts that hold it then as they
    /// did there; and with a starter lease, unless a key is among them.
    pub fn bring(&self, share: NewShare, leases: &[ShareLease]) -> Result<(), StoreError> {
        let (id, starter) = (share.id, self.now().saturating_add(STARTER_SECONDS));
        // What is here already and has lost its bytes gets them again; whatever else is wrong with
        // it shows when it is stored.
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

    /// Lets go of all leases that the account took or renewed last before `since`: it renews what
    /// it wants kept, then sweeps. Returns how many.
    pub fn drop_unrenewed_since(&self, account: AccountId, since: Seconds) -> Result<usize, DatabaseError> {
        self.drop_leases("sweeping leases", account, Some(since))
    }

    /// In bounded transactions; whoever is interrupted does it again. An account that ends is
    /// forgotten in the same transaction as its last lease.
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
            // Of an account that ends everything went: whatever it took meanwhile is looked for
            // from the beginning.
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

    /// What the account holds; takes the same time however much that is.
    pub fn usage(&self, account: AccountId) -> Result<Usage, DatabaseError> {
        self.server.database.read("summing up an account", |c| accounts::usage(c, account))
    }

    /// What is stored, including what is coming or going.
    pub fn stored(&self) -> Result<Usage, DatabaseError> {
        Ok(self.server.database.read("summing up shares", tx::store)?.stored)
    }

    /// How what is stored stands. Takes as long as there is work: what is leased and sound is not
    /// looked at.
    pub fn inventory(&self) -> Result<Inventory, DatabaseError> {
        let (now, grace) = (self.now(), self.server.settings.grace.as_secs());
        self.server.database.read("taking an inventory", |c| inventory::take(c, now, grace))
    }

    /// What the database knows of a share.
    pub fn share(&self, id: &ShareId) -> Result<Option<StoredShare>, DatabaseError> {
        let row = self.server.database.read("looking up a share", |c| transitions::row(c, id))?;
        Ok(row.map(|row| row.told()))
    }

    /// Who holds a share.
    pub fn leases_of(&self, id: &ShareId) -> Result<Vec<ShareLease>, DatabaseError> {
        self.server.database.read("listing leases", |c| leases::leases_of(c, id))
    }

    /// Shows every share to `look`, in order of id, until it breaks off. Not one moment's picture:
    /// shares may come and go meanwhile.
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

    /// Deletes what is due now, without waiting for the reaper's own thread and its pauses after
    /// failures.
    pub fn reap(&self) -> Result<(), ReapError> {
        self.server.reap(false)
    }

    /// Ends all leases that are over now, without waiting for the expirer's turn.
    pub fn expire(&self) -> Result<(), DatabaseError> {
        through(|| self.server.expire_some())
    }

    /// Takes in what lies among the shares without a row, and notes what has a row and does not:
    /// for whoever has put share files there. Until it is through nothing is deleted, also if it is
    /// interrupted and goes on after a restart.
    pub fn discover(&self) -> Result<(), ReapError> {
        self.server.rediscover()?;
        self.finish_discovery()
    }

    /// Goes on with discovery, if that is under way, without its pauses.
    pub fn finish_discovery(&self) -> Result<(), ReapError> {
        through(|| self.server.discover_some())
    }

    /// Reads the database and every share, from the beginning and without pauses. `look` is shown
    /// how far that is, and may break off; then it goes on at its pace.
    pub fn scrub_now(&self, mut look: impl FnMut(&Pass) -> ControlFlow<()>) -> Result<(), DatabaseError> {
        let begin_anew = |tx: &mut Tx<'_>| passes::begin_anew(tx, Process::Scrub);
        self.server.database.write("beginning to scrub", begin_anew)?;
        through(|| {
            let step = self.server.scrub_some()?;
            let pass = self.passes()?.into_iter().find(|pass| pass.process == Process::Scrub);
            let broken_off = pass.is_some_and(|pass| look(&pass).is_break());
            Ok(Step { is_last: step.is_last || broken_off, ..step })
        })
    }

    /// Goes on with the scrub, or begins one, without pauses.
    #[cfg(test)]
    pub(crate) fn scrub(&self) -> Result<(), DatabaseError> {
        through(|| self.server.scrub_some())
    }

    /// How many shares are known to be damaged, or gone.
    pub fn damaged(&self) -> Result<u64, DatabaseError> {
        let damaged = self.server.database.read("listing damaged shares", transitions::unhealthy)?;
        Ok(damaged.len() as u64)
    }

    /// How far the processes in the background are, and how their last passes went.
    pub fn passes(&self) -> Result<Vec<Pass>, DatabaseError> {
        self.server.database.read("listing passes", passes::all)
    }

    /// What ought not to have happened, the latest first.
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

    /// What keeps leases from expiring and unleased shares from being deleted, if anything does.
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

    /// Somebody who knows says that the clock is right: it has jumped since the machine was off for
    /// long, or was wrong before.
    pub fn confirm_clock(&self) -> Result<(), DatabaseError> {
        self.server.database.write("confirming the clock", |tx| {
            tx.store.clock_doubted_at = None;
            Ok(())
        })?;
        self.server.reaper.wake();
        Ok(())
    }
}

/// Why nothing expires and nothing is deleted that was not let go for [`Deletion::AtOnce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// The database is damaged, and is made anew at the next start. Nothing is deleted at all.
    Damaged,
    /// Not everything that lies here is known yet. Nothing is deleted at all.
    Discovering,
    /// The wall clock has jumped, and nobody has said that it is right
    /// ([`ShareServer::confirm_clock`]).
    Clock {
        /// What it said then.
        at: Seconds,
    },
}

fn through<E>(mut step: impl FnMut() -> Result<Step, E>) -> Result<(), E> {
    while !step()?.is_last {}
    Ok(())
}

impl Drop for ShareServer {
    fn drop(&mut self) {
        self.server.reaper.stop();
        self.server.crawler.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has been reported by the panic itself.
            let _ = thread.join();
        }
    }
}

impl Server {
    /// Opens everything but the threads.
    pub(crate) fn open(dir: &Path, settings: ShareServerSettings) -> Result<Server, OpenError> {
        let wanted = settings.content.clone();
        let backend = || content::open(dir, wanted.as_ref(), s3::connect);
        Server::open_on(dir, settings, Arc::new(()), backend)
    }

    /// As [`Self::open`], on what `backend` opens once the directory is ours; it says whether
    /// nothing can be there yet.
    pub(crate) fn open_on(
        dir: &Path,
        settings: ShareServerSettings,
        commits: Arc<dyn Commits>,
        backend: impl FnOnce() -> Result<(Arc<dyn Backend>, bool), OpenError>,
    ) -> Result<Server, OpenError> {
        let lock = restart::claim(dir)?;
        let (backend, is_new) = backend()?;
        let last_run = restart::open_database(dir, &settings.clock, is_new)?;
        let database = Database::start(dir, last_run.connection, settings.clock.clone(), commits)?;
        let shelf = Arc::new(Shelf::new(settings.open_files_max));
        shelf.withhold(&last_run.going, Withheld::Going);
        shelf.withhold(&last_run.damaged, Withheld::Damaged);
        let reaper = Arc::new(Reaper::default());
        reaper.delete(&last_run.going);
        Ok(Server {
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
