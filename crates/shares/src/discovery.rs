//! Discovery takes in share files without a row, and notes rows without a file. It runs after the
//! database was lost or has missed something, or on request. It goes through the prefix directories
//! one by one. Nothing is deleted before it has completed (leasedb, "Fail-safe").

use namespace::ShareId;
use rustc_hash::FxHashSet;

use crate::{
    crawler::Step,
    error::{Damage, ReadError, ReapError},
    file::OpenShare,
    passes,
    server::SharedState,
    share::{Process, State, from_file_name, successor},
    transitions, tx,
};

/// The most shares of a transaction.
const BATCH: usize = 500;

impl SharedState {
    /// Begins discovery anew. Callers have put share files there, or doubt the database.
    pub(crate) fn rediscover(&self) -> Result<(), ReapError> {
        self.database.write("beginning discovery", |tx| {
            tx.store.discovered = 0;
            Ok(())
        })?;
        self.crawler.wake();
        Ok(())
    }

    /// Goes through the next prefix directories, up to the first that is not empty.
    pub(crate) fn discover_some(&self) -> Result<Step, ReapError> {
        let begun_at = self.database.read("looking where discovery is", tx::store)?.discovered;
        let (mut examined, mut acted, mut next) = (0, 0, begun_at);
        while let Ok(prefix) = u8::try_from(next)
            && examined < BATCH as u64
        {
            // Files are listed before rows. So a share stored meanwhile is not taken for a
            // stranger, and one deleted meanwhile is looked at once more.
            let present = self.listed(prefix)?;
            for batch in present.chunks(BATCH) {
                acted += self.take_in(batch)?;
            }
            examined += present.len() as u64;
            acted += self.go_through_rows(prefix, &present.into_iter().collect())?;
            next += 1;
        }
        if next == begun_at {
            return Ok(Step::LAST);
        }
        let is_last = self.database.write("ending a step of discovery", move |tx| {
            let mut pass = passes::current(tx.connection, Process::Discovery, tx.now)?;
            pass.examined += examined;
            pass.acted += acted;
            // Otherwise discovery was begun anew meanwhile, and this step does not count.
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

    fn listed(&self, prefix: u8) -> Result<Vec<ShareId>, ReapError> {
        let mut present = Vec::new();
        for name in self.backend.list(prefix)? {
            match from_file_name(&name).filter(|id| id.0[0] == prefix) {
                Some(id) => present.push(id),
                None => {
                    tracing::warn!(prefix, name, "a file among the shares that is none; it is left alone")
                }
            }
        }
        Ok(present)
    }

    /// Takes in the present shares without a row. Returns how many there were.
    fn take_in(&self, present: &[ShareId]) -> Result<u64, ReapError> {
        let mut strangers = Vec::new();
        for id in present {
            if self.is_unknown(id)? {
                strangers.push(*id);
            }
        }
        Ok(self.find(&self.file_locks.take(&strangers), &strangers)??)
    }

    /// Goes through the rows of a prefix. A row whose share is not in the list is confirmed by
    /// itself (leasedb, fault 5). If all shares are to get starter leases, each row that is not
    /// lost gets one, listed or not. Returns how many shares are lost.
    fn go_through_rows(&self, prefix: u8, present: &FxHashSet<ShareId>) -> Result<u64, ReapError> {
        let starters_for_all =
            self.database.read("looking what discovery is for", tx::store)?.starters_for_all;
        let mut vanished = 0;
        let mut first = Some(first_of(prefix));
        while let Some(from) = first {
            let page = self.database.read("listing shares", |c| transitions::page(c, &from, BATCH))?;
            first = page.last().and_then(|last| successor(&last.id)).filter(|id| id.0[0] == prefix);
            let rows = page.iter().filter(|row| row.id.0[0] == prefix);
            let (listed, unlisted): (Vec<_>, Vec<_>) = rows.partition(|row| present.contains(&row.id));
            let mut here: Vec<ShareId> = listed.into_iter().map(|row| row.id).collect();
            for row in unlisted {
                if !row.is_sound() {
                    // A share that these rows call damaged may have been repaired since.
                    if starters_for_all
                        && OpenShare::open(&*self.backend, &row.id)?.err() != Some(Damage::Missing)
                    {
                        here.push(row.id);
                    }
                    continue;
                }
                match self.confirm_damage(row.id, Damage::Missing) {
                    Ok(true) => vanished += 1,
                    Ok(false) => here.push(row.id),
                    Err(ReadError::Disk(error)) => return Err(error.into()),
                    Err(ReadError::Database(error)) => return Err(error.into()),
                    Err(_) => {}
                }
            }
            if starters_for_all && !here.is_empty() {
                self.database.write("giving starter leases", move |tx| {
                    for id in here {
                        if let Some(row) = tx.share(&id)?.filter(|row| row.state == State::Stable) {
                            transitions::give_starter(tx, &row)?;
                        }
                    }
                    Ok(())
                })?;
            }
        }
        Ok(vanished)
    }
}

/// The first share that a prefix directory may have.
fn first_of(prefix: u8) -> ShareId {
    ShareId(std::array::from_fn(|i| if i == 0 { prefix } else { 0 }))
}
