//! The scrub reads the whole store from time to time: first the database, then every share, in
//! order, against its digest.

use std::thread;

use namespace::ShareId;
use parking_lot::Mutex;

use crate::{
    check,
    crawler::Step,
    database,
    error::{DatabaseError, ReadError},
    passes,
    rows::ShareRow,
    server::SharedState,
    share::{Process, State, successor},
    transitions,
};

/// The shares of a step.
const STEP: usize = 32;
/// The shares read at once: the disk reads some while others are checked.
const AT_ONCE: usize = 4;

impl SharedState {
    /// Scrubs the next shares; before the first, the database. The step's work is in bytes.
    pub(crate) fn scrub_some(&self) -> Result<Step, DatabaseError> {
        let _scrubbing = self.scrubbing.lock();
        let now = i64::try_from((self.settings.clock)()).unwrap_or(i64::MAX);
        let looking = "looking where the scrub is";
        let mut pass = self.database.read(looking, |c| passes::current(c, Process::Scrub, now))?;
        let first = match pass.position {
            None => {
                self.scrub_database()?;
                Some(ShareId([0; 16]))
            }
            Some(last) => successor(&last),
        };
        let page = match first {
            Some(first) => self.database.read("listing shares", |c| transitions::page(c, &first, STEP))?,
            None => Vec::new(),
        };
        let (bytes, damaged) = self.scrub_shares(&page)?;
        pass.examined += page.len() as u64;
        pass.acted += damaged;
        let position = page.last().filter(|_| page.len() == STEP).map(|row| row.id);
        self.database.write("noting where the scrub is", move |tx| passes::save(tx, pass, position))?;
        Ok(Step { work: bytes, is_last: position.is_none() })
    }

    /// Checks the database on a connection of its own, so no request waits for it.
    fn scrub_database(&self) -> Result<(), DatabaseError> {
        let doing = "looking through the database";
        match database::connect(&self.dir).and_then(|connection| check::check(&connection)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(what)) => {
                self.database.suspicion().raise(&what);
                Ok(())
            }
            Err(cause) if DatabaseError::says_corrupt(&cause) => {
                self.database.suspicion().raise(&cause);
                Ok(())
            }
            Err(cause) => Err(DatabaseError::new(doing, cause)),
        }
    }

    /// Verifies shares. Returns the bytes read, and the number of shares newly found damaged.
    fn scrub_shares(&self, page: &[ShareRow]) -> Result<(u64, u64), DatabaseError> {
        let next = Mutex::new(page.iter());
        let scrub_each = || {
            let (mut bytes, mut damaged) = (0, 0);
            while let Some(row) = { next.lock().next() } {
                let (read, found) = self.scrub_share(row)?;
                bytes += read;
                damaged += found;
            }
            Ok((bytes, damaged))
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..AT_ONCE).map(|_| scope.spawn(scrub_each)).collect();
            let mine = scrub_each();
            // A panicking thread ends the step with the scope.
            others.into_iter().filter_map(|other| other.join().ok()).fold(mine, |sum, some| {
                let ((bytes, damaged), (more, found)) = (sum?, some?);
                Ok((bytes + more, damaged + found))
            })
        })
    }

    fn scrub_share(&self, row: &ShareRow) -> Result<(u64, u64), DatabaseError> {
        if row.state != State::Stable || row.upload.is_some() {
            return Ok((0, 0));
        }
        match self.verify(&row.id) {
            Ok(length) => Ok((length.into(), 0)),
            Err(ReadError::Damaged { .. }) => Ok((0, row.is_sound().into())),
            Err(ReadError::Database(error)) => Err(error),
            // The share is gone meanwhile. Otherwise the disk refuses: the error is logged, and the
            // scrub goes on.
            Err(ReadError::NotFound(_) | ReadError::Going(_) | ReadError::Beyond { .. }) => Ok((0, 0)),
            Err(error @ ReadError::Disk(_)) => {
                tracing::error!(%error, "a share cannot be scrubbed");
                Ok((0, 0))
            }
        }
    }
}
