//! Discovery takes in what lies among the shares without a row, and notes which rows have no file: after the database was lost, or has missed something,
//! or when it is asked to. It goes through the prefix directories one by one. Nothing is deleted before it is through (leasedb, "Fail-safe").

use namespace::ShareId;
use rustc_hash::FxHashSet;

use crate::{
    crawler::Step,
    error::{Damage, ReadError, ReapError},
    passes,
    rows::ShareRow,
    server::Server,
    share::{Process, State, from_file_name, successor},
    transitions::{self, known_or_found},
    tx::{self, Tx},
};

/// Shares of a transaction.
const BATCH: usize = 500;

impl Server {
    /// Begins discovery anew: for whoever has put share files there, or doubts the database.
    pub(crate) fn rediscover(&self) -> Result<(), ReapError> {
        self.database.write("beginning discovery", |tx| {
            tx.store.discovered = 0;
            Ok(())
        })?;
        self.crawler.wake();
        Ok(())
    }

    /// Goes through the next prefix directories, until there was something in them.
    pub(crate) fn discover_some(&self) -> Result<Step, ReapError> {
        let begun_at = self.database.read("looking where discovery is", tx::store)?.discovered;
        let (mut examined, mut acted, mut next) = (0, 0, begun_at);
        while let Ok(prefix) = u8::try_from(next)
            && examined < BATCH as u64
        {
            // Files first, rows afterwards: what is stored meanwhile is not taken for a stranger, and what is deleted meanwhile is looked at once more.
            let present = self.found(prefix)?;
            for batch in present.chunks(BATCH) {
                let batch = batch.to_vec();
                acted += self.database.write("taking in shares", move |tx| take_in(tx, &batch))?;
            }
            examined += present.len() as u64;
            acted += self.look_for_missing(prefix, &present.into_iter().collect())?;
            next += 1;
        }
        if next == begun_at {
            return Ok(Step::LAST);
        }
        let is_last = self.database.write("ending a step of discovery", move |tx| {
            let mut pass = passes::current(tx.connection, Process::Discovery, tx.now)?;
            pass.examined += examined;
            pass.acted += acted;
            // Otherwise it was begun anew meanwhile, and this step was for nothing.
            if tx.store.discovered == begun_at {
                tx.store.discovered = next;
            }
            let is_last = tx.store.is_discovered();
            tx.store.starters_for_all &= !is_last;
            let position = u8::try_from(tx.store.discovered).ok().map(first_of);
            passes::save(tx, pass, position)?;
            Ok(is_last)
        })?;
        if is_last {
            tracing::info!("discovery is through: every share that is here is known");
            self.reaper.wake();
        }
        Ok(Step { work: examined, is_last })
    }

    fn found(&self, prefix: u8) -> Result<Vec<ShareId>, ReapError> {
        let mut present = Vec::new();
        for name in self.disk.list(prefix)? {
            match from_file_name(&name).filter(|id| id.0[0] == prefix) {
                Some(id) => present.push(id),
                None => {
                    tracing::warn!(prefix, name, "a file among the shares that is none; it is left alone")
                }
            }
        }
        Ok(present)
    }

    /// Shares that the database knows and the directory did not have: each is confirmed by itself, in a transaction (leasedb, fault 5).
    fn look_for_missing(&self, prefix: u8, present: &FxHashSet<ShareId>) -> Result<u64, ReapError> {
        let mut vanished = 0;
        let mut first = Some(first_of(prefix));
        while let Some(from) = first {
            let page = self.database.read("listing shares", |c| transitions::page(c, &from, BATCH))?;
            first = page.last().and_then(|last| successor(&last.id)).filter(|id| id.0[0] == prefix);
            let lost =
                |row: &&ShareRow| row.id.0[0] == prefix && row.is_sound() && !present.contains(&row.id);
            for row in page.iter().filter(lost) {
                match self.confirm_damage(row.id, Damage::Missing) {
                    Ok(is_lost) => vanished += u64::from(is_lost),
                    Err(ReadError::Disk(error)) => return Err(error.into()),
                    Err(ReadError::Database(error)) => return Err(error.into()),
                    Err(_) => {}
                }
            }
        }
        Ok(vanished)
    }
}

/// How many were strangers.
fn take_in(tx: &mut Tx<'_>, found: &[ShareId]) -> rusqlite::Result<u64> {
    let mut strangers = 0;
    for id in found {
        let known = tx.share(id)?;
        match known {
            None => strangers += u64::from(known_or_found(tx, id)?.is_some()),
            Some(row) if tx.store.starters_for_all && row.state == State::Stable => {
                transitions::give_starter(tx, &row)?;
            }
            Some(_) => {}
        }
    }
    Ok(strangers)
}

/// The first share that a prefix directory may have.
fn first_of(prefix: u8) -> ShareId {
    ShareId(std::array::from_fn(|i| if i == 0 { prefix } else { 0 }))
}
