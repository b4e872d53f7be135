//! The scrub reads everything once in a while: the whole database first, then every share, in order, against its digest.

use std::{sync::mpsc, thread};

use namespace::ShareId;

use crate::{
    check,
    crawler::Step,
    database,
    error::{DatabaseError, ReadError},
    passes,
    rows::ShareRow,
    server::Server,
    share::{Process, State, successor},
    transitions,
};

/// Shares of a step.
const STEP: usize = 32;
/// So many files ahead the disk is told what will be read.
const AHEAD: usize = 8;

impl Server {
    /// Goes through the next shares; before the first, through the database. The step's work is in bytes.
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

    /// Through a connection of its own: nobody waits for it.
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

    /// How many bytes were read, and how many shares are damaged that were not known to be.
    fn scrub_shares(&self, page: &[ShareRow]) -> Result<(u64, u64), DatabaseError> {
        thread::scope(|scope| {
            let (asked, next) = mpsc::sync_channel(AHEAD);
            // Where the disk is fast, asking it takes as long as looking at what it has brought.
            scope.spawn(move || {
                page.iter().all(|row| {
                    self.backend.read_ahead(&row.id);
                    asked.send(row).is_ok()
                })
            });
            self.scrub_asked(next)
        })
    }

    fn scrub_asked<'a>(
        &self,
        shares: impl IntoIterator<Item = &'a ShareRow>,
    ) -> Result<(u64, u64), DatabaseError> {
        let (mut bytes, mut damaged) = (0, 0);
        for row in shares {
            if row.state != State::Stable || row.upload.is_some() {
                continue;
            }
            match self.verify(&row.id) {
                Ok(length) => bytes += u64::from(length),
                Err(ReadError::Damaged { .. }) => damaged += u64::from(row.is_sound()),
                Err(ReadError::Database(error)) => return Err(error),
                // Gone meanwhile; or the disk refuses, which is told and no reason not to go on.
                Err(ReadError::NotFound(_) | ReadError::Going(_) | ReadError::Beyond { .. }) => {}
                Err(error @ ReadError::Disk(_)) => tracing::error!(%error, "a share cannot be scrubbed"),
            }
        }
        Ok((bytes, damaged))
    }
}
