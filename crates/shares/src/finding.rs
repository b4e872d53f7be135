//! Share files without a row (leasedb, faults 10 and 11). A request for such a share takes it in
//! with a starter lease, wherever the file came from and however the row was lost. So a share that
//! discovery's list lacked is not lost either.

use namespace::ShareId;

use crate::{
    error::{Damage, DatabaseError, DiskError},
    file::OpenShare,
    file_locks::FileLock,
    leases::Leased,
    server::SharedState,
    shelf::Withheld,
    transitions,
    tx::Tx,
};

impl SharedState {
    /// Leases shares. It looks for the files of those without a row, and leases them if it finds
    /// them. Returns the shares held now, in the order of `ids`.
    pub(crate) fn lease_with(
        &self,
        doing: &'static str,
        ids: &[ShareId],
        lease: impl Fn(&mut Tx<'_>, &[ShareId]) -> rusqlite::Result<Leased> + Clone + Send + 'static,
    ) -> Result<Vec<ShareId>, DatabaseError> {
        let attempt = |ids: Vec<ShareId>| {
            let (lease, shelf) = (lease.clone(), self.shelf.clone());
            let going = move |leased: &Leased| shelf.withhold(&leased.turned_away, Withheld::Going);
            let leased = self.database.write_then(doing, move |tx| lease(tx, &ids), going)?;
            self.reaper.delete(&leased.turned_away);
            Ok::<_, DatabaseError>(leased)
        };
        let Leased { mut held, unknown, .. } = attempt(ids.to_vec())?;
        if unknown.is_empty() {
            return Ok(held);
        }
        if let Err(error) = self.find(&self.file_locks.take(&unknown), &unknown)? {
            // The share counts as not held. The next asker looks for it again.
            tracing::warn!(%error, "files that may be shares cannot be opened");
        }
        held.extend(attempt(unknown)?.held);
        Ok(ids.iter().filter(|id| held.contains(id)).copied().collect())
    }

    /// Takes in those of these shares that have a file and no row, and returns how many. No other
    /// operation changes their files while the lock is held. The inner error: some files could not
    /// be looked for.
    pub(crate) fn find(
        &self,
        _turn: &FileLock<'_>,
        ids: &[ShareId],
    ) -> Result<Result<u64, DiskError>, DatabaseError> {
        let mut found = Vec::new();
        let mut failed = None;
        for (id, opened) in ids.iter().zip(OpenShare::open_many(&*self.backend, ids)) {
            match opened {
                Ok(Err(Damage::Missing)) => {}
                Ok(opened) if self.is_unknown(id)? => found.push((*id, opened.map(|share| share.header))),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        let mut strangers = 0;
        if !found.is_empty() {
            strangers = self.database.write("taking in shares", move |tx| {
                found.iter().try_fold(0, |strangers, (id, found)| {
                    let found = found.as_ref().map_err(|damage| *damage);
                    Ok(strangers + u64::from(transitions::find(tx, id, found)?))
                })
            })?;
        }
        Ok(failed.map_or(Ok(strangers), Err))
    }

    /// Whether a share has no row.
    pub(crate) fn is_unknown(&self, id: &ShareId) -> Result<bool, DatabaseError> {
        Ok(self.database.read("looking up a share", |c| transitions::row(c, id))?.is_none())
    }
}
