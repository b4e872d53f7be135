//! The share server: what the crate offers, in one place.

use std::{
    fmt,
    fs::File,
    ops::ControlFlow,
    path::Path,
    sync::{Arc, atomic::AtomicI64},
    thread::{self, JoinHandle},
    time::Duration,
};

use namespace::ShareId;

use crate::{
    NewShare,
    database::Database,
    disk::{Disk, LocalDisk},
    error::{DatabaseError, OpenError, ReadError, ReapError, StoreError},
    leases, reaper,
    reaper::Reaper,
    restart,
    rounds::SyncRounds,
    share::{AccountId, Deletion, Holds, Seconds, ShareLease, StoredShare, Usage, successor},
    shelf::{Shelf, Withheld},
    transitions,
};

/// Tells UTC seconds.
pub type Clock = Arc<dyn Fn() -> Seconds + Send + Sync>;

/// Rows fetched at a time: no reader keeps the database's log from being folded in for long.
const PAGE: usize = 1000;

/// How a share server is to be run.
#[derive(Clone)]
pub struct Settings {
    /// The wall clock.
    pub clock: Clock,
    /// How long a share stays after its last lease, unless it is let go for [`Deletion::AtOnce`].
    pub grace: Duration,
    /// Files kept open for reading at most.
    pub open_files_max: usize,
}

impl Settings {
    /// The usual ones: a day of grace, 256 files.
    pub fn new(clock: Clock) -> Settings {
        Settings { clock, grace: Duration::from_secs(24 * 3600), open_files_max: 256 }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { clock: _, grace, open_files_max } = self;
        f.debug_struct("Settings")
            .field("grace", grace)
            .field("open_files_max", open_files_max)
            .finish_non_exhaustive()
    }
}

/// One directory of shares, and the database of who wants them kept. All operations may be called by many threads at once.
#[derive(Debug)]
pub struct ShareServer {
    server: Arc<Server>,
    reaper: Option<JoinHandle<()>>,
}

/// What the operations and the reaper's thread share.
#[derive(Debug)]
pub(crate) struct Server {
    pub settings: Settings,
    pub disk: Arc<dyn Disk>,
    pub database: Database,
    pub shelf: Arc<Shelf>,
    pub rounds: SyncRounds,
    pub reaper: Arc<Reaper>,
    /// Numbers uploads; no upload outlives the process.
    pub uploads: AtomicI64,
    /// Held as long as the directory is ours.
    _lock: File,
}

impl ShareServer {
    /// Opens the share server in `dir`, which is made if there is nothing yet.
    pub fn open(dir: &Path, settings: Settings) -> Result<ShareServer, OpenError> {
        let server = Arc::new(Server::open(dir, settings, |local| Arc::new(local))?);
        let (weak, reaper) = (Arc::downgrade(&server), server.reaper.clone());
        let thread = thread::Builder::new().name("shares-reaper".into());
        let reaper = thread.spawn(move || reaper::run(&weak, &reaper)).map_err(OpenError::Thread)?;
        Ok(ShareServer { server, reaper: Some(reaper) })
    }

    /// A server that deletes only when it is told to.
    #[cfg(test)]
    pub(crate) fn without_thread(server: Server) -> ShareServer {
        ShareServer { server: Arc::new(server), reaper: None }
    }

    /// Stores shares and takes the account's lease on each; returns when all are durable. All or none: on an error, what was written is removed.
    /// A share that is there already with the same bytes is only leased.
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

    /// Reads all of a share and checks its digest, in quarantine or not; returns its length. What is damaged is put in quarantine, and what turns out
    /// to be sound is taken out of it.
    pub fn verify(&self, id: &ShareId) -> Result<u32, ReadError> {
        self.server.verify(id)
    }

    /// All of a share's body, and its digest, which it was found to have.
    pub fn whole(&self, id: &ShareId) -> Result<(Vec<u8>, [u8; 16]), ReadError> {
        self.server.whole(id)
    }

    /// The account of that name, made if there is none.
    pub fn account(&self, name: &str) -> Result<AccountId, DatabaseError> {
        let name = name.to_owned();
        self.server.database.write("naming an account", move |tx, now| leases::account(tx, now, &name))
    }

    /// All accounts and their names.
    pub fn accounts(&self) -> Result<Vec<(AccountId, String)>, DatabaseError> {
        self.server.database.read("listing accounts", leases::accounts)
    }

    /// Lets go of all leases of an account, and forgets it; returns how many they were. What nobody else wants stays for the grace period.
    pub fn end_account(&self, account: AccountId) -> Result<usize, DatabaseError> {
        let work = move |tx: &_, _| leases::end_account(tx, account);
        let dropped = self.server.database.write("ending an account", work)?;
        if dropped > 0 {
            self.server.reaper.wake();
        }
        Ok(dropped)
    }

    /// How the account stands to each of these shares.
    pub fn holds(&self, account: AccountId, ids: &[ShareId]) -> Result<Vec<Holds>, DatabaseError> {
        self.server.database.read("looking up leases", |c| leases::holds(c, account, ids))
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

    /// Takes the account's lease on each share, for ever, and lets go of everybody else's in the same moment. Returns the shares that are held now, as
    /// [`Self::lease`] does; of the others nobody's lease changes.
    pub fn take_over(&self, account: AccountId, ids: &[ShareId]) -> Result<Vec<ShareId>, DatabaseError> {
        let ids = ids.to_vec();
        let work = move |tx: &_, now| leases::take_over(tx, now, account, &ids);
        self.server.database.write("taking over shares", work)
    }

    /// Takes or renews the account's lease on each share, never shortening it (`None`: it never ends). Returns the shares that are
    /// held now: stable and sound ones. The others are not there, or not to be relied on.
    pub fn lease(
        &self,
        account: AccountId,
        ids: &[ShareId],
        until: Option<Seconds>,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        let ids = ids.to_vec();
        let work = move |tx: &_, now| leases::lease(tx, now, account, &ids, until);
        self.server.database.write("leasing shares", work)
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

    /// Lets go of everybody's leases on these shares. For the server group alone, which knows when nothing refers to a share of its files any more:
    /// an uploader that is gone, or a starter lease, must not keep it.
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
        let work = move |tx: &_, _| leases::let_go(tx, account, &ids, deletion);
        if self.server.database.write("letting go of shares", work)? > 0 {
            self.server.reaper.wake();
        }
        Ok(())
    }

    /// Lets go of all leases that the account took or renewed last before `since`: it renews what it wants kept, then sweeps. Returns how many.
    pub fn drop_unrenewed_since(&self, account: AccountId, since: Seconds) -> Result<usize, DatabaseError> {
        let work = move |tx: &_, _| leases::drop_unrenewed(tx, account, since);
        let dropped = self.server.database.write("sweeping leases", work)?;
        if dropped > 0 {
            self.server.reaper.wake();
        }
        Ok(dropped)
    }

    /// What the account holds; takes the same time however much that is.
    pub fn usage(&self, account: AccountId) -> Result<Usage, DatabaseError> {
        self.server.database.read("summing up an account", |c| leases::usage(c, account))
    }

    /// What is stored, including what is coming or going.
    pub fn stored(&self) -> Result<Usage, DatabaseError> {
        self.server.database.read("summing up shares", leases::stored)
    }

    /// What the database knows of a share.
    pub fn share(&self, id: &ShareId) -> Result<Option<StoredShare>, DatabaseError> {
        Ok(self
            .server
            .database
            .read("looking up a share", |c| transitions::row(c, id))?
            .map(|(share, _)| share))
    }

    /// Who holds a share.
    pub fn leases_of(&self, id: &ShareId) -> Result<Vec<ShareLease>, DatabaseError> {
        self.server.database.read("listing leases", |c| leases::leases_of(c, id))
    }

    /// Shows every share to `look`, in order of id, until it breaks off. Not one moment's picture: shares may come and go meanwhile.
    pub fn for_each_share(
        &self,
        mut look: impl FnMut(&StoredShare) -> ControlFlow<()>,
    ) -> Result<(), DatabaseError> {
        let mut first = Some(ShareId([0; 16]));
        while let Some(from) = first {
            let page = self.server.database.read("listing shares", |c| transitions::page(c, &from, PAGE))?;
            if page.iter().any(|share| look(share).is_break()) {
                break;
            }
            first = page.last().and_then(|last| successor(&last.id));
        }
        Ok(())
    }

    /// Deletes what is due now, without waiting for the reaper's own thread and its pauses after failures.
    pub fn reap(&self) -> Result<(), ReapError> {
        self.server.reap(false)
    }
}

impl Drop for ShareServer {
    fn drop(&mut self) {
        self.server.reaper.stop();
        if let Some(reaper) = self.reaper.take() {
            // A thread that panicked has been reported by the panic itself.
            let _ = reaper.join();
        }
    }
}

impl Server {
    /// Opens everything but the reaper's thread. `on` may put another disk over the local one.
    pub(crate) fn open(
        dir: &Path,
        settings: Settings,
        on: impl FnOnce(LocalDisk) -> Arc<dyn Disk>,
    ) -> Result<Server, OpenError> {
        let lock = restart::claim(dir)?;
        let last_run = restart::open_database(dir, &settings.clock)?;
        let disk = on(LocalDisk::open(dir)?);
        let database = Database::start(dir, last_run.connection, disk.clone(), settings.clock.clone())?;
        let mut going = last_run.going;
        let mut damaged = last_run.damaged;
        if last_run.rebuild {
            going = restart::discover(&database, &*disk, &settings.clock)?;
            damaged = database.read("listing quarantined shares", transitions::unhealthy)?;
        }
        let shelf = Arc::new(Shelf::new(settings.open_files_max));
        shelf.withhold(&going, Withheld::Going);
        shelf.withhold(&damaged, Withheld::Damaged);
        let reaper = Arc::new(Reaper::default());
        reaper.delete(&going);
        Ok(Server {
            settings,
            disk,
            database,
            shelf,
            rounds: SyncRounds::default(),
            reaper,
            uploads: AtomicI64::new(1),
            _lock: lock,
        })
    }
}
