//! Storing shares: rows, files, rows. This order makes a crash at any point harmless (leasedb,
//! "Durability").
//!
//! All shares of a batch are announced in one transaction, stored together, and made stable with
//! the uploader's lease in a second transaction. Other batches under way share these transactions.

use std::sync::atomic::Ordering;

use namespace::ShareId;
use rustc_hash::FxHashSet;

use crate::{
    NewShare,
    backend::ShareFile,
    database::BegunTransaction,
    digest::Hasher,
    error::{DatabaseError, Refusal, StoreError},
    header::ShareHeader,
    server::SharedState,
    share::{AccountId, Seconds},
    shelf::Withheld,
    transitions::{self, Coming, Refused},
};

/// The row data of a share to be written, and its file.
fn prepare(share: NewShare) -> Result<(Coming, ShareFile), StoreError> {
    let length = share.parts.iter().try_fold(0_u32, |sum, part| {
        u32::try_from(part.len()).ok().and_then(|length| sum.checked_add(length))
    });
    let too_long = || StoreError::Refused { share: share.id, why: Refusal::TooLong };
    let length = length.ok_or_else(too_long)?;
    let mut hasher = Hasher::default();
    for part in &share.parts {
        hasher.update(part);
    }
    let digest = hasher.finish();
    let header = ShareHeader { id: share.id, length, digest }.encode();
    let file = ShareFile { id: share.id, header, parts: share.parts };
    Ok((Coming { id: share.id, length, digest }, file))
}

impl SharedState {
    pub(crate) fn store_many(
        &self,
        shares: Vec<NewShare>,
        account: AccountId,
        until: Option<Seconds>,
    ) -> Result<(), StoreError> {
        let prepared = shares.into_iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        let (mut coming, mut files): (Vec<Coming>, Vec<ShareFile>) = prepared.into_iter().unzip();
        let ids: Vec<ShareId> = coming.iter().map(|c| c.id).collect();
        let turn = self.file_locks.take(&ids);
        self.find(&turn, &ids)??;
        let upload = self.uploads.fetch_add(1, Ordering::Relaxed);
        let announced = self.announce(upload, coming.clone(), account, until)?;
        // Staging runs beside the transaction: a file that never gets into its place does not
        // count.
        let staged = self.backend.stage(upload, &files);
        let to_write = announced.wait().map_err(StoreError::from).and_then(|begun| begun.map_err(refused));
        let needed: FxHashSet<ShareId> = to_write.iter().flatten().copied().collect();
        self.discard(upload, ids.into_iter().filter(|id| !needed.contains(id)).collect());
        let to_write = to_write?;
        if to_write.is_empty() {
            return Ok(());
        }
        coming.retain(|c| needed.contains(&c.id));
        files.retain(|file| needed.contains(&file.id));
        let stored = staged
            .and_then(|()| self.backend.place(upload, &files))
            .map_err(StoreError::from)
            .and_then(|()| self.finish(upload, coming, account, until));
        if stored.is_err() {
            // The reaper makes the shares going at once (leasedb, fault 1). It retries when the
            // database or the disk fails as well.
            self.reaper.abandon(upload, to_write);
        }
        stored
    }

    /// Discards staged files at once, since their room may be what is missing. The reaper removes
    /// the rest.
    fn discard(&self, upload: i64, ids: Vec<ShareId>) {
        if self.backend.discard(upload, &ids).is_err() {
            self.reaper.abandon(upload, ids);
        }
    }

    fn announce(
        &self,
        upload: i64,
        coming: Vec<Coming>,
        account: AccountId,
        until: Option<Seconds>,
    ) -> Result<BegunTransaction<Vec<ShareId>, Refused>, DatabaseError> {
        let shelf = self.shelf.clone();
        self.database.begin_write(
            "announcing an upload",
            move |tx| transitions::begin(tx, upload, &coming, account, until),
            move |to_write| shelf.withhold(to_write, Withheld::Coming),
        )
    }

    fn finish(
        &self,
        upload: i64,
        written: Vec<Coming>,
        account: AccountId,
        until: Option<Seconds>,
    ) -> Result<(), StoreError> {
        let ids: Vec<ShareId> = written.iter().map(|c| c.id).collect();
        let shelf = self.shelf.clone();
        self.database
            .write_unless_refused(
                "finishing an upload",
                move |tx| transitions::finish(tx, upload, &written, account, until),
                move |()| shelf.release(&ids),
            )?
            .map_err(refused)
    }

    /// The reaper's part of a failed upload. Returns the shares to be deleted.
    pub(crate) fn settle_abandoned(
        &self,
        upload: i64,
        ids: &[ShareId],
    ) -> Result<Vec<ShareId>, DatabaseError> {
        let (ids, shelf) = (ids.to_vec(), self.shelf.clone());
        let abandoned = self.database.write_then(
            "abandoning an upload",
            move |tx| transitions::abandon(tx, upload, &ids),
            move |abandoned| {
                shelf.withhold(&abandoned.going, Withheld::Going);
                shelf.withhold(&abandoned.damaged, Withheld::Damaged);
            },
        )?;
        Ok(abandoned.going)
    }
}

fn refused((share, why): (ShareId, Refusal)) -> StoreError {
    StoreError::Refused { share, why }
}
