//! Taking a region over, at the next server.

use super::{Away, Regions, Standing};
use crate::rows::extents::ShareRow;
use crate::rows::keys::{self, RowOf, Table};
use crate::transaction::Transaction;
use ident::{FileId, ServerId};
use wire::{HandOverStep, RegionRows};

/// The answer to the first page of a region.
enum Welcome {
    Begin,
    /// Not yet, or not any more: the message is late, or rows are still to be deleted here.
    Ignore,
    /// The region is not the sender's to give.
    Decline,
}

impl Regions {
    fn welcome(&self, from: ServerId, region: &FileId, epoch: u64) -> Welcome {
        let is_related = |other: &FileId| other.is_prefix_of(region) || region.is_prefix_of(other);
        let has_rows = |standing: &Standing| matches!(standing, Standing::Away(away) if away.left.is_some());
        if self.all.iter().any(|(other, standing)| is_related(other) && has_rows(standing)) {
            return Welcome::Ignore;
        }
        let has_longer = self.all.iter().any(|(other, standing)| {
            let is_past = matches!(standing, Standing::Away(away) if away.epoch < epoch);
            other != region && region.is_prefix_of(other) && !is_past
        });
        match self.of(region) {
            _ if from == self.server || *region == FileId::root() || has_longer => Welcome::Decline,
            (_, Standing::Away(away)) if away.epoch >= epoch => Welcome::Ignore,
            (_, Standing::Away(_)) => Welcome::Begin,
            (_, Standing::Coming { .. }) => Welcome::Ignore,
            // Word of an earlier hand-over is late, and of a later one untrue.
            (_, Standing::Owned { epoch: as_ } | Standing::Leaving { epoch: as_, .. }) if *as_ >= epoch => {
                Welcome::Ignore
            }
            (_, Standing::Owned { .. } | Standing::Leaving { .. }) => Welcome::Decline,
        }
    }

    /// Whether `from` hands the region over to this server; the page that is due.
    fn due_page(&self, from: ServerId, region: &FileId, epoch: u64) -> Option<u64> {
        match self.all.get(region)? {
            Standing::Coming { from: of, epoch: as_, page, .. } if *of == from && *as_ == epoch => {
                Some(*page)
            }
            _ => None,
        }
    }
}

impl Transaction<'_> {
    pub(super) fn on_rows(
        &mut self,
        from: ServerId,
        region: &FileId,
        epoch: u64,
        page: u64,
        rows: RegionRows,
    ) {
        if page == 0 && self.files.regions.due_page(from, region, epoch).is_none() {
            match self.files.regions.welcome(from, region, epoch) {
                Welcome::Begin => {}
                Welcome::Ignore => return,
                Welcome::Decline => return self.say(from, region, epoch, HandOverStep::Declined),
            }
            // The region is whole where it comes from, so parts that were elsewhere once are not
            // any more.
            let coming = Standing::Coming { from, epoch, page: 0 };
            self.files.regions.all.retain(|other, _| !region.is_prefix_of(other));
            self.files.regions.all.insert(region.clone(), coming);
        }
        let Some(due) = self.files.regions.due_page(from, region, epoch) else { return };
        if page != due {
            // The sender hears which page is due, whatever became of the answer before.
            return self.say(from, region, epoch, HandOverStep::HasRows { page: due });
        }
        if !rows.iter().all(|(key, row)| self.may_come(region, key, row)) {
            self.on_withdrawn(from, region, epoch);
            return self.say(from, region, epoch, HandOverStep::Declined);
        }
        rows.into_iter().for_each(|(key, row)| self.files.set(&key, Some(row)));
        if let Some(Standing::Coming { page, .. }) = self.files.regions.all.get_mut(region) {
            *page += 1;
        }
        self.say(from, region, epoch, HandOverStep::HasRows { page: page + 1 });
    }

    pub(super) fn on_take_over(&mut self, from: ServerId, region: &FileId, epoch: u64, files: u64) {
        if self.files.regions.due_page(from, region, epoch).is_some() {
            self.files.regions.own(region.clone(), epoch);
            self.state.region.files += files;
            self.subtrees.get_mut().forget();
            return self.say(from, region, epoch, HandOverStep::Taken);
        }
        // It was taken, and the answer was lost, whatever became of the region since.
        match self.files.regions.of(region).1 {
            Standing::Owned { epoch: as_ } if *as_ >= epoch => {}
            Standing::Leaving { epoch: as_, .. } | Standing::Coming { epoch: as_, .. } if *as_ > epoch => {}
            Standing::Away(away) if away.epoch > epoch => {}
            _ => return,
        }
        self.say(from, region, epoch, HandOverStep::Taken);
    }

    /// The hand-over is cancelled: what has come goes again.
    pub(super) fn on_withdrawn(&mut self, from: ServerId, region: &FileId, epoch: u64) {
        if self.files.regions.due_page(from, region, epoch).is_none() {
            return;
        }
        // The region is its server's, as before, and in the epoch that was offered.
        let away = Away { epoch, left: Some(region.as_bytes().to_vec()), ..Away::at(from) };
        self.files.regions.all.insert(region.clone(), Standing::Away(away));
        self.again = true;
    }

    /// Whether this row may come with the region: it is of a file there, or of a share of such a
    /// file.
    fn may_come(&self, region: &FileId, key: &[u8], row: &[u8]) -> bool {
        match keys::row_of(key) {
            Ok(RowOf::File(file, ..)) => region.is_prefix_of(&file),
            Ok(RowOf::Table(Table::Share)) => {
                let is_there = |row: ShareRow| region.is_prefix_of(&row.file);
                let known = Table::Share.share(key).map(|share| self.files.share(&share));
                ShareRow::from_bytes(row).is_some_and(is_there)
                    && known.is_ok_and(|known| known.is_none_or(is_there))
            }
            _ => false,
        }
    }
}
