//! The lease database's connections: one thread that writes, and a connection that reads.
//!
//! Requests that wait for the writer while it commits go into its next transaction together, each
//! in a savepoint of its own. All are answered after the commit. `synchronous=FULL`: an
//! acknowledged request survives a power cut, since losing a renewal is losing data later.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use os::private;
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::{
    disk,
    error::{DatabaseError, DiskError, OpenError},
    share::Clock,
    tx::Tx,
};

/// The most requests that share a transaction.
const GROUP_MAX: usize = 256;
/// Name of the database's file.
pub(crate) const FILE: &str = "leases.sqlite";
/// A file that marks the database as found corrupt. The next start checks the whole database before
/// it trusts it again.
pub(crate) const SUSPECT: &str = "leases.suspect";

/// Observes every commit. In tests it is a machine that loses power at a chosen commit.
pub(crate) trait Commits: Send + Sync {
    /// Called before a commit.
    fn begin(&self) -> Result<(), DiskError>;
    /// Called after a commit, before any request is answered.
    fn done(&self) -> Result<(), DiskError>;
}

/// Observes nothing.
impl Commits for () {
    fn begin(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn done(&self) -> Result<(), DiskError> {
        Ok(())
    }
}

/// The lease database.
pub(crate) struct Database {
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    writer: Option<JoinHandle<()>>,
    reader: Mutex<Connection>,
    suspicion: Arc<Suspicion>,
}

/// Whether the database has been found corrupt. Then only shares that are going already are
/// deleted, and the next start checks the whole database.
#[derive(Debug)]
pub(crate) struct Suspicion {
    file: PathBuf,
    raised: AtomicBool,
}

impl Suspicion {
    /// Whether a suspicion is raised.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Raises the suspicion, whatever the reason.
    pub fn raise(&self, why: &dyn fmt::Display) {
        if self.raised.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::error!(%why, "the lease database is damaged: nothing is deleted any more, and the next start makes it anew");
        if let Err(cause) = disk::replace_file(&self.file, b"") {
            tracing::error!(%cause, "the lease database could not be marked as damaged");
        }
    }

    fn judge(&self, cause: &rusqlite::Error) {
        if DatabaseError::says_corrupt(cause) {
            self.raise(cause);
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

/// Opens a connection with our settings.
pub(crate) fn connect(dir: &Path) -> rusqlite::Result<Connection> {
    let file = dir.join(FILE);
    // SQLite gives its log and its shared memory the mode of the database.
    let made = private::options().write(true).create(true).truncate(false).open(&file);
    made.map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // The log grows while a reader goes through the whole database.
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

impl Database {
    /// Starts the writer on `connection`.
    pub fn start(
        dir: &Path,
        connection: Connection,
        clock: Clock,
        commits: Arc<dyn Commits>,
    ) -> Result<Database, OpenError> {
        let opening = |e| DatabaseError::new("opening", e);
        let reader = connect(dir).map_err(opening)?;
        // KiB, negative by SQLite's convention. Keys are random: the pages above the leaves should
        // stay in memory.
        connection.pragma_update(None, "cache_size", -32 * 1024).map_err(opening)?;
        let (jobs, waiting) = mpsc::channel();
        let suspicion = Arc::new(Suspicion { file: dir.join(SUSPECT), raised: AtomicBool::new(false) });
        let mut writer = DatabaseWriter { connection, clock, commits, suspicion: suspicion.clone() };
        let thread = thread::Builder::new().name("shares-db".into());
        let writer = thread.spawn(move || writer.run(&waiting)).map_err(OpenError::Thread)?;
        Ok(Database { jobs: Some(jobs), writer: Some(writer), reader: Mutex::new(reader), suspicion })
    }

    /// The suspicion that the database is corrupt.
    pub fn suspicion(&self) -> &Suspicion {
        &self.suspicion
    }

    /// Runs `work` in a transaction and returns when it is durable.
    pub fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.write_then(doing, work, |_| ())
    }

    /// As [`Self::write`], with a callback. `then` is called after the commit, before any waiter of
    /// this or a later transaction is answered. So state in memory that follows the rows changes in
    /// their order.
    pub fn write_then<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let done: Result<T, Never> = self.write_unless_refused(doing, |tx| work(tx).map(Ok), then)?;
        match done {
            Ok(value) => Ok(value),
            Err(never) => match never {},
        }
    }

    /// As [`Self::write_then`]. A refusal rolls back the changes of `work`.
    pub fn write_unless_refused<T: Send + 'static, R: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> rusqlite::Result<Result<T, R>> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<Result<T, R>, DatabaseError> {
        self.begin_write(doing, work, then)?.wait()
    }

    /// As [`Self::write_unless_refused`], but returns at once.
    pub fn begin_write<T: Send + 'static, R: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> rusqlite::Result<Result<T, R>> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<BegunTransaction<T, R>, DatabaseError> {
        let closed = DatabaseError::Closed { doing };
        let (answer, answered) = mpsc::sync_channel(1);
        let suspicion = self.suspicion.clone();
        let job = Box::new(DatabaseJob {
            doing,
            suspicion,
            work: Some(work),
            then: Some(then),
            done: None,
            answer,
        });
        self.jobs.as_ref().ok_or(closed.clone())?.send(job).map_err(|_| closed)?;
        Ok(BegunTransaction { doing, answered })
    }

    /// Runs queries on the committed state.
    pub fn read<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        work(&self.reader.lock()).map_err(|cause| {
            self.suspicion.judge(&cause);
            DatabaseError::new(doing, cause)
        })
    }
}

/// The result of a transaction that was begun.
type JobAnswer<T, R> = Result<Result<T, R>, DatabaseError>;

/// A transaction that was begun. Dropping this does not stop it.
#[must_use]
pub(crate) struct BegunTransaction<T, R> {
    doing: &'static str,
    answered: mpsc::Receiver<JobAnswer<T, R>>,
}

impl<T, R> BegunTransaction<T, R> {
    /// Waits until the transaction is durable or has failed.
    pub fn wait(self) -> JobAnswer<T, R> {
        self.answered.recv().map_err(|_| DatabaseError::Closed { doing: self.doing })?
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has reported itself.
            let _ = writer.join();
        }
    }
}

enum Never {}

/// One request of a group.
trait Job: Send {
    /// Does the work. `false`: the work is to be rolled back, and its answer is known already.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// The group is durable.
    fn committed(&mut self);
    /// Answers the waiter, now that the group is durable or has failed.
    fn answer(self: Box<Self>, committed: &Result<(), JobFailure>);
}

/// The reason why a whole group was lost.
enum JobFailure {
    Sql(Arc<rusqlite::Error>),
    Disk,
}

struct DatabaseJob<W, N, T, R> {
    doing: &'static str,
    suspicion: Arc<Suspicion>,
    work: Option<W>,
    then: Option<N>,
    done: Option<JobAnswer<T, R>>,
    answer: mpsc::SyncSender<JobAnswer<T, R>>,
}

impl<W, N, T, R> Job for DatabaseJob<W, N, T, R>
where
    N: FnOnce(&T) + Send,
    W: FnOnce(&mut Tx<'_>) -> rusqlite::Result<Result<T, R>> + Send,
    T: Send,
    R: Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        let Some(work) = self.work.take() else { return false };
        let done = work(tx).map_err(|cause| {
            self.suspicion.judge(&cause);
            DatabaseError::new(self.doing, cause)
        });
        let keep = matches!(done, Ok(Ok(_)));
        self.done = Some(done);
        keep
    }

    fn committed(&mut self) {
        if let (Some(Ok(Ok(value))), Some(then)) = (&self.done, self.then.take()) {
            then(value);
        }
    }

    fn answer(self: Box<Self>, committed: &Result<(), JobFailure>) {
        let doing = self.doing;
        let failed = match committed {
            Ok(()) => None,
            Err(JobFailure::Disk) => Some(DatabaseError::Closed { doing }),
            Err(JobFailure::Sql(cause)) => Some(DatabaseError::shared(doing, cause.clone())),
        };
        let done = match (self.done, failed) {
            (Some(Ok(Ok(_))) | None, Some(failed)) => Err(failed),
            (Some(done), _) => done,
            (None, None) => Err(DatabaseError::Closed { doing }),
        };
        // The waiter may have gone.
        let _ = self.answer.send(done);
    }
}

struct DatabaseWriter {
    connection: Connection,
    clock: Clock,
    commits: Arc<dyn Commits>,
    suspicion: Arc<Suspicion>,
}

impl DatabaseWriter {
    fn run(&mut self, waiting: &mpsc::Receiver<Box<dyn Job>>) {
        while let Ok(first) = waiting.recv() {
            let mut group = vec![first];
            group.extend(waiting.try_iter().take(GROUP_MAX - 1));
            let committed = self.commit(&mut group);
            if let Err(JobFailure::Sql(cause)) = &committed {
                self.suspicion.judge(cause);
            }
            if committed.is_ok() {
                group.iter_mut().for_each(|job| job.committed());
            }
            for job in group {
                job.answer(&committed);
            }
        }
    }

    fn commit(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), JobFailure> {
        self.commits.begin().map_err(|_| JobFailure::Disk)?;
        self.transact(group).map_err(|e| JobFailure::Sql(Arc::new(e)))?;
        self.commits.done().map_err(|_| JobFailure::Disk)
    }

    fn transact(&mut self, group: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
        let now = i64::try_from((self.clock)()).unwrap_or(i64::MAX);
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let mut tx = Tx::begin(&transaction, now)?;
        for job in group {
            transaction.prepare_cached("SAVEPOINT job")?.execute([])?;
            if job.run(&mut tx) {
                tx.keep();
            } else {
                // This fails if the error ended the whole transaction. The group then fails too.
                transaction.prepare_cached("ROLLBACK TO job")?.execute([])?;
                tx.take_back();
            }
            transaction.prepare_cached("RELEASE job")?.execute([])?;
        }
        tx.end()?;
        transaction.commit()
    }
}
