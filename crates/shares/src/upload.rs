//! Storing shares: rows, files, directories, rows, in the order that makes a crash at any point harmless (leasedb, "Durability").
//!
//! All shares of a batch are announced in one transaction, written and synced together beside that, renamed, their directories synced together,
//! and made stable with the uploader's lease in a second transaction. Transactions and syncs are shared with other batches under way.

use std::sync::{Arc, atomic::Ordering};

use namespace::ShareId;
use rustc_hash::FxHashSet;

use crate::{
    NewShare,
    database::Begun,
    digest::Hasher,
    disk::{Dirty, Temporary},
    error::{DatabaseError, DiskError, Refusal, StoreError},
    header::{HEADER_BYTES, Header},
    server::Server,
    share::{AccountId, Seconds, file_name},
    shelf::Withheld,
    transitions::{self, Coming, Refused},
};

/// A share with everything that is to be known of it before it is written.
struct Prepared {
    coming: Coming,
    header: [u8; HEADER_BYTES],
    share: NewShare,
}

impl Prepared {
    fn new(share: NewShare) -> Result<Prepared, StoreError> {
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
        let header = Header { id: share.id, length, digest }.encode();
        Ok(Prepared { coming: Coming { id: share.id, length, digest }, header, share })
    }
}

/// A share whose file is written, and not in its place yet.
struct Staged {
    coming: Coming,
    temporary: Arc<Temporary>,
}

/// Names an upload's file in `tmp/`.
pub(crate) fn temporary_name(id: &ShareId, upload: i64) -> String {
    format!("{}.{upload}", file_name(id))
}

impl Server {
    pub(crate) fn store_many(
        &self,
        shares: Vec<NewShare>,
        account: AccountId,
        until: Option<Seconds>,
    ) -> Result<(), StoreError> {
        let prepared = shares.into_iter().map(Prepared::new).collect::<Result<Vec<_>, _>>()?;
        let upload = self.uploads.fetch_add(1, Ordering::Relaxed);
        let coming: Vec<Coming> = prepared.iter().map(|p| p.coming).collect();
        let announced = self.announce(upload, coming, account, until)?;
        // Beside that: what never gets into its place is nothing.
        let staged = self.stage(upload, &prepared);
        let to_write = announced.wait().map_err(StoreError::from).and_then(|begun| begun.map_err(refused));
        let needed: FxHashSet<ShareId> = to_write.iter().flatten().copied().collect();
        let staged = staged.map(|mut staged| {
            self.discard(upload, staged.extract_if(.., |each| !needed.contains(&each.coming.id)));
            staged
        });
        let to_write = to_write?;
        if to_write.is_empty() {
            return Ok(());
        }
        let stored = staged.map_err(StoreError::from).and_then(|staged| {
            let written = staged.iter().map(|each| each.coming).collect();
            self.put_in_place(upload, staged)?;
            self.finish(upload, written, account, until)
        });
        if stored.is_err() {
            // Going at once (leasedb, fault 1): by the reaper, which goes on trying when the database or the disk fails as well.
            self.reaper.abandon(upload, to_write);
        }
        stored
    }

    fn announce(
        &self,
        upload: i64,
        coming: Vec<Coming>,
        account: AccountId,
        until: Option<Seconds>,
    ) -> Result<Begun<Vec<ShareId>, Refused>, DatabaseError> {
        let shelf = self.shelf.clone();
        self.database.begin_write(
            "announcing an upload",
            move |tx| transitions::begin(tx, upload, &coming, account, until),
            move |to_write| shelf.withhold(to_write, Withheld::Coming),
        )
    }

    /// Writes and syncs all files, which are in `tmp/` then.
    fn stage(&self, upload: i64, prepared: &[Prepared]) -> Result<Vec<Staged>, DiskError> {
        let mut staged = Vec::with_capacity(prepared.len());
        let done = self.write_all(upload, prepared, &mut staged).and_then(|()| {
            let dirty = staged.iter().map(|each| Dirty::File(each.temporary.clone()));
            self.rounds.sync(&*self.disk, dirty.collect())
        });
        match done {
            Ok(()) => Ok(staged),
            Err(error) => {
                self.discard(upload, staged);
                Err(error)
            }
        }
    }

    fn write_all(
        &self,
        upload: i64,
        prepared: &[Prepared],
        staged: &mut Vec<Staged>,
    ) -> Result<(), DiskError> {
        for each in prepared {
            let mut parts: Vec<&[u8]> = vec![&each.header];
            parts.extend(each.share.parts.iter().map(|part| &part[..]));
            let name = temporary_name(&each.coming.id, upload);
            let temporary = Arc::new(self.disk.write(name, &parts)?);
            staged.push(Staged { coming: each.coming, temporary });
        }
        Ok(())
    }

    /// At once, since the room may be what is lacking. What stays all the same is the reaper's.
    fn discard(&self, upload: i64, staged: impl IntoIterator<Item = Staged>) {
        for each in staged {
            if self.disk.discard(&each.temporary.name).is_err() {
                self.reaper.abandon(upload, vec![each.coming.id]);
            }
        }
    }

    /// Renames announced files and syncs their directories: a file in its place is always complete, and has a row.
    fn put_in_place(&self, upload: i64, staged: Vec<Staged>) -> Result<(), DiskError> {
        let renamed =
            staged.iter().try_for_each(|each| self.disk.put_in_place(&each.temporary.name, &each.coming.id));
        let ids: Vec<ShareId> = staged.iter().map(|each| each.coming.id).collect();
        let placed = renamed.and_then(|()| self.sync_prefixes(&ids));
        if placed.is_err() {
            self.discard(upload, staged);
        }
        placed
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

    /// Makes the entries of these shares durable.
    pub(crate) fn sync_prefixes(&self, ids: &[ShareId]) -> Result<(), DiskError> {
        let prefixes: FxHashSet<u8> = ids.iter().map(|id| id.0[0]).collect();
        self.rounds.sync(&*self.disk, prefixes.into_iter().map(Dirty::Prefix).collect())
    }

    /// The reaper's part of a failed upload: returns what is to be deleted.
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
