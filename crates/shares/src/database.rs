//! The lease database's connections: one thread that writes, and a connection that reads.
//!
//! Requests that wait for the writer while it commits go into its next transaction together, each
//! in a savepoint of its own; all are answered after the commit. `synchronous=FULL`: what was
//! acknowledged survives a power cut, since losing a renewal is losing data later.

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
    Clock, disk,
    error::{DatabaseError, DiskError, OpenError},
    tx::Tx,
};

/// Requests that share a transaction at most.
const GROUP_MAX: usize = 256;
/// Name of the database's file.
pub(crate) const FILE: &str = "leases.sqlite";
/// Present after the database was found corrupt: to be looked through before it is trusted again.
pub(crate) const SUSPECT: &str = "leases.suspect";

/// Is told of every commit: in tests, a machine that loses power at a chosen one.
pub(crate) trait Commits: Send + Sync {
    /// The database is about to commit.
    fn begin(&self) -> Result<(), DiskError>;
    /// It has; nobody has been told.
    fn done(&self) -> Result<(), DiskError>;
}

/// Nobody who would want to know.
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

/// Whether the database has been found corrupt. Then nothing is deleted that is not being deleted
/// already, and the next start looks through all of it.
#[derive(Debug)]
pub(crate) struct Suspicion {
    file: PathBuf,
    raised: AtomicBool,
}

impl Suspicion {
    /// Whether there is one.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Raises it, whatever the reason.
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
    // It grows while somebody looks through the whole database.
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
        let mut writer = Writer { connection, clock, commits, suspicion: suspicion.clone() };
        let thread = thread::Builder::new().name("shares-db".into());
        let writer = thread.spawn(move || writer.run(&waiting)).map_err(OpenError::Thread)?;
        Ok(Database { jobs: Some(jobs), writer: Some(writer), reader: Mutex::new(reader), suspicion })
    }

    /// Whether the database has been found corrupt.
    pub fn suspicion(&self) -> &Suspicion {
        &self.suspicion
    }

    /// Runs `work` in a transaction; returns when it is durable.
    pub fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        self.write_then(doing, work, |_| ())
    }

    /// As [`Self::write`]. `then` is called after the commit, before anyone who waits for this
    /// transaction or a later one is told: what is kept in memory beside the rows changes in their
    /// order.
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

    /// As [`Self::write_then`]; what `work` did is taken back when it refuses.
    pub fn write_unless_refused<T: Send + 'static, R: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> rusqlite::Result<Result<T, R>> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<Result<T, R>, DatabaseError> {
        self.begin_write(doing, work, then)?.wait()
    }

    /// As [`Self::write_unless_refused`], and returns at once.
    pub fn begin_write<T: Send + 'static, R: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> rusqlite::Result<Result<T, R>> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<Begun<T, R>, DatabaseError> {
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
        Ok(Begun { doing, answered })
    }

    /// Runs queries on what is committed.
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

/// What a transaction that was begun comes to.
type JobAnswer<T, R> = Result<Result<T, R>, DatabaseError>;

/// A transaction that was begun: dropped, it goes on.
#[must_use]
pub(crate) struct Begun<T, R> {
    doing: &'static str,
    answered: mpsc::Receiver<JobAnswer<T, R>>,
}

impl<T, R> Begun<T, R> {
    /// Returns when it is durable, or has failed.
    pub fn wait(self) -> JobAnswer<T, R> {
        self.answered.recv().map_err(|_| DatabaseError::Closed { doing: self.doing })?
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has been reported by the panic itself.
            let _ = writer.join();
        }
    }
}

enum Never {}

/// One request of a group.
trait Job: Send {
    /// Does the work; `false`: it is to be taken back, and the answer is known already.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// The group is durable.
    fn committed(&mut self);
    /// Tells who waits, now that the group is durable (or not).
    fn answer(self: Box<Self>, committed: &Result<(), JobFailure>);
}

/// Why a whole group was lost.
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
        // Nobody may be waiting any more.
        let _ = self.answer.send(done);
    }
}

struct Writer {
    connection: Connection,
    clock: Clock,
    commits: Arc<dyn Commits>,
    suspicion: Arc<Suspicion>,
}

impl Writer {
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
                // Fails if the error ended the whole transaction; then so does the group.
                transaction.prepare_cached("ROLLBACK TO job")?.execute([])?;
                tx.take_back();
            }
            transaction.prepare_cached("RELEASE job")?.execute([])?;
        }
        tx.end()?;
        transaction.commit()
    }
}
