//! Handing a region over, at the server that has it.
//!
//! 1. A large region cools: one pass recalls what sessions hold of it, while requests are served as
//!    ever. So programs wait later for what is in use, and not for what once was.
//! 2. Everything that sessions hold of the region is recalled, and nothing of it is granted any
//!    more. Requests wait, but for operations that the server does itself: those grant nothing, and
//!    a session that waits for one may be unable to release. A file that is open, locked or about
//!    to go keeps the region here, and so does a session that says nothing for a while: nobody
//!    loses anything because a region moves, and nobody waits long for that. A session that works
//!    has more time. Its answer may be in a long queue, and an overloaded server most needs to hand
//!    something over.
//! 3. The rows go to the next server, page by page. No row changes any more. A server that does not
//!    take them soon goes without.
//! 4. One entry gives up all authority over the region. Requests that wait are told where it is.
//! 5. Once the next server has confirmed, the rows here are deleted.

use super::{Away, LeavingStep, Regions, Standing};
use crate::io::{DelegateError, Output};
use crate::joint::joint_of;
use crate::rows::files::{Files, extent_from_row};
use crate::rows::keys::{self, RowOf, Table, Tag};
use crate::rows::record::Record;
use crate::transaction::Transaction;
use ident::{FileId, OVERFLOW, ServerId};
use lease::{Released, SessionId, Time};
use wire::{HandOver, HandOverStep, RegionRows};

/// A session that holds something of the region, and whose log has not grown for so long since it
/// was asked, keeps the region here, ms. So does a server that has not taken a page in this time.
const SILENT_MS_MAX: u64 = 5_000;
/// The time for which requests wait in all while sessions release a region, ms. If anything is held
/// by then, the region stays.
const RECALL_MS_MAX: u64 = 60_000;
/// Rows of a region that one step looks at, sends or deletes.
const ROWS_PER_STEP: usize = 512;
/// Files with unanswered recalls, up to which a region that cools goes on to its next rows: more
/// than sessions answer between two ticks, and few enough to keep in mind.
const COOLING_MAX: usize = 8 * ROWS_PER_STEP;
/// Rows of the largest region that does not cool first. Its sessions release it within a moment.
const COOL_ROWS_MAX: usize = 8 * ROWS_PER_STEP;
/// Files that a pass over a region remembers as held. If there are more, the next pass is over all.
const HELD_MAX: usize = 1024;
/// How long a region may cool, ms. After that, its requests wait for what has not come back.
const COOLING_MS_MAX: u64 = 60_000;

impl LeavingStep {
    /// The beginning of a pass over `region`, in which all is recalled, since this time.
    fn recalling(since: Time, region: &FileId) -> LeavingStep {
        let start = Some(region.as_bytes().to_vec());
        LeavingStep::Recalling { since, start, held: Vec::new(), is_whole: true }
    }
}

impl Regions {
    /// The epoch in which `region` may be handed over to `to`, if the region begins at a file.
    pub fn may_leave(&self, region: &FileId, has_file: bool, to: ServerId) -> Result<u64, DelegateError> {
        let is_root = *region == FileId::root() || *region == FileId::root().child(OVERFLOW);
        let epoch = match self.of(region) {
            _ if is_root => return Err(DelegateError::Root),
            _ if to == self.server => return Err(DelegateError::SameServer),
            (_, Standing::Owned { .. }) if !has_file && self.manage(region) => {
                return Err(DelegateError::NoFile);
            }
            (within, Standing::Owned { epoch }) if self.born_elsewhere(within, region).is_none() => {
                // A longer prefix that begins anew counts from where its region is.
                epoch + 1
            }
            (_, Standing::Leaving { .. }) => return Err(DelegateError::Moves),
            _ => return Err(DelegateError::NotHere),
        };
        if self.all.keys().any(|other| other != region && region.is_prefix_of(other)) {
            return Err(DelegateError::HasRegions);
        }
        Ok(epoch)
    }

    /// Begins to hand `region` over to `to`.
    fn leave(
        &mut self,
        region: &FileId,
        has_file: bool,
        to: ServerId,
        step: LeavingStep,
    ) -> Result<(), DelegateError> {
        let epoch = self.may_leave(region, has_file, to)?;
        self.all.insert(region.clone(), Standing::Leaving { to, epoch, step });
        Ok(())
    }

    /// Notes that `file` is locked, about to go with its rows, or made by a session that has all of
    /// it. The pass over a region that is about to leave may have been at the file before.
    pub fn look_again_at(&mut self, file: &FileId) {
        if !self.are_leaving(file) {
            return;
        }
        let region = self.of(file).0.clone();
        if let Some(Standing::Leaving { step: LeavingStep::Recalling { held, is_whole, .. }, .. }) =
            self.all.get_mut(&region)
        {
            match held.len() < HELD_MAX {
                true => held.push(file.clone()),
                false => *is_whole = false,
            }
        }
    }

    /// Whether the region is about to leave for `to` as its `epoch`th server.
    fn is_leaving_for(&self, region: &FileId, to: ServerId, epoch: u64) -> bool {
        matches!(self.all.get(region), Some(Standing::Leaving { to: next, epoch: as_, .. })
            if *next == to && *as_ == epoch)
    }
}

/// Whether a file keeps its region here.
#[derive(PartialEq, Eq)]
enum Hold {
    /// Nobody has anything of the file.
    Nothing,
    /// Sessions have leases, which are recalled.
    Leases,
    /// The file is dead. It has rows, and no record; the rows go soon.
    Rows,
    /// The file is open or locked, about to go, or part of a joint operation; or a session that has
    /// something of it is silent.
    Use,
}

/// All leases that sessions have of the file.
fn holders_of(file: &FileId, record: &Record) -> Vec<(SessionId, Released)> {
    let of = |(session, held): (_, &lease::Held)| {
        let released = move |field| (session, Released { file: file.clone(), field, keep: None });
        held.iter().map(move |(field, _)| released(field)).collect::<Vec<_>>()
    };
    record.holdings.iter().flat_map(of).collect()
}

/// A page of a region's rows.
struct RowsPage {
    rows: RegionRows,
    /// The files among them.
    files: u64,
    /// Where the next page begins; nothing if there is none.
    next: Option<Vec<u8>>,
}

impl Files<'_> {
    /// The rows of the region from `start` on, at most [`ROWS_PER_STEP`], and the key behind them
    /// if there are more. Rows that no turn has written back yet are not among them.
    fn rows_of_region(&self, region: &FileId, start: &[u8]) -> (RegionRows, Option<Vec<u8>>) {
        let end = region.region_range().1.unwrap_or_else(|| keys::BEYOND.to_vec());
        let rows = self.scan(start, &end, ROWS_PER_STEP);
        let next = match rows.last() {
            Some((last, _)) if rows.len() == ROWS_PER_STEP => Some([last.as_slice(), &[0]].concat()),
            _ => None,
        };
        (rows, next)
    }

    /// Whether the region has to cool before it leaves.
    fn is_large(&self, region: &FileId) -> bool {
        let end = region.region_range().1.unwrap_or_else(|| keys::BEYOND.to_vec());
        self.scan(region.as_bytes(), &end, COOL_ROWS_MAX + 1).len() > COOL_ROWS_MAX
    }

    /// The files of these rows, in their order.
    fn files_of(&self, rows: &RegionRows) -> Vec<FileId> {
        let file_of = |(key, _): &(Vec<u8>, _)| match self.parse_key(keys::row_of(key)) {
            Some(RowOf::File(file, ..)) => Some(file),
            _ => None,
        };
        let mut files: Vec<FileId> = rows.iter().filter_map(file_of).collect();
        files.dedup();
        files
    }

    /// The same with the rows of the shares to which these rows refer.
    fn page_of_region(&self, region: &FileId, start: &[u8]) -> RowsPage {
        let (mut rows, next) = self.rows_of_region(region, start);
        let tag_of = |key: &[u8]| match self.parse_key(keys::row_of(key)) {
            Some(RowOf::File(_, tag, _)) => Some(tag),
            _ => None,
        };
        let records = rows.iter().filter(|(key, _)| tag_of(key) == Some(Tag::Record as u8));
        let files = records.count() as u64;
        let shares: Vec<_> = rows.iter().filter_map(|(key, row)| self.share_row_of(key, row)).collect();
        rows.extend(shares);
        RowsPage { rows, files, next }
    }

    /// The row of the share to which a row refers, if it is an extent's and refers to one.
    fn share_row_of(&self, key: &[u8], row: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let RowOf::File(_, tag, _) = self.parse_key(keys::row_of(key))? else { return None };
        let extent = (tag == Tag::Extent as u8).then(|| self.parse_key(extent_from_row::<&[u8]>(key, row)));
        let share = extent??.piece.place.share()?;
        let key = Table::Share.key(&share.0);
        Some((key.to_vec(), self.row(Table::Share, &share.0)?))
    }
}

impl Transaction<'_> {
    /// Begins to hand a region over to another server.
    pub fn delegate(&mut self, region: FileId, to: ServerId) {
        let has_file = self.files.record(&region).is_some();
        let (since, start) = (self.now, region.as_bytes().to_vec());
        let step = match self.files.is_large(&region) {
            true => LeavingStep::Cooling { since, start },
            false => LeavingStep::recalling(since, &region),
        };
        match self.files.regions.leave(&region, has_file, to, step) {
            Ok(()) => self.again = true,
            Err(error) => self.out.push(Output::Delegated { region, result: Err(error) }),
        }
    }

    /// Cancels the hand-over of a region that is still here.
    pub fn keep(&mut self, region: &FileId, why: DelegateError) {
        let Some(Standing::Leaving { to, epoch, .. }) = self.files.regions.all.get(region).cloned() else {
            return;
        };
        self.files.regions.own(region.clone(), epoch);
        self.say(to, region, epoch, HandOverStep::Withdrawn);
        self.out.push(Output::Delegated { region: region.clone(), result: Err(why) });
        self.state.region.pending.wake_all();
        self.ways_changed = true;
    }

    pub(super) fn say(&mut self, to: ServerId, region: &FileId, epoch: u64, step: HandOverStep) {
        let message = HandOver { region: region.clone(), epoch, step };
        self.out.push(Output::HandOver { to, message });
    }

    /// Takes a message about a region that this server hands over, or the next one has.
    pub fn on_hand_over(&mut self, from: ServerId, HandOver { region, epoch, step }: HandOver) {
        match step {
            HandOverStep::HasRows { page } => self.on_has_rows(from, &region, epoch, page),
            HandOverStep::Taken => self.on_taken(from, &region, epoch),
            HandOverStep::Declined if self.files.regions.is_leaving_for(&region, from, epoch) => {
                self.keep(&region, DelegateError::Declined);
            }
            HandOverStep::Declined => {}
            HandOverStep::Rows { page, rows } => self.on_rows(from, &region, epoch, page, rows),
            HandOverStep::TakeOver { files } => self.on_take_over(from, &region, epoch, files),
            HandOverStep::Withdrawn => self.on_withdrawn(from, &region, epoch),
        }
    }

    /// One step of each hand-over, and each message that may have been lost once more.
    pub fn move_regions(&mut self) {
        if !self.files.regions.are_moving() {
            return;
        }
        let all: Vec<(FileId, Standing)> =
            self.files.regions.iter().map(|(region, it)| (region.clone(), it.clone())).collect();
        for (region, standing) in all {
            match standing {
                Standing::Owned { .. } => {}
                Standing::Leaving { to, epoch, step: LeavingStep::Cooling { since, start } } => {
                    self.cool_region(&region, (to, epoch, since), &start);
                }
                Standing::Leaving { step: LeavingStep::Recalling { .. }, .. } => self.recall_region(&region),
                Standing::Leaving { to, epoch, step: LeavingStep::Idle } => {
                    self.copy_page(&region, (to, epoch), (0, region.as_bytes().to_vec(), 0));
                }
                Standing::Leaving { step: LeavingStep::Copying { since, .. }, .. }
                    if self.now.ms_since(since) > SILENT_MS_MAX =>
                {
                    self.keep(&region, DelegateError::Silent);
                }
                Standing::Leaving { to, epoch, step: LeavingStep::Copying { page, start, .. } } => {
                    let rows = self.files.page_of_region(&region, &start).rows;
                    self.say(to, &region, epoch, HandOverStep::Rows { page, rows });
                }
                Standing::Away(Away { to, epoch, unconfirmed: Some(files), .. }) => {
                    self.say(to, &region, epoch, HandOverStep::TakeOver { files });
                }
                Standing::Away(away) => self.delete_rows(&region, away),
                Standing::Coming { from, epoch, page, .. } => {
                    self.say(from, &region, epoch, HandOverStep::HasRows { page });
                }
            }
        }
    }

    /// Recalls what is held of some files of a region that cools, unless too much is unanswered.
    fn cool_region(&mut self, region: &FileId, (to, epoch, since): (ServerId, u64, Time), start: &[u8]) {
        let is_late = self.now.ms_since(since) > COOLING_MS_MAX;
        if !is_late && self.state.region.pending.queue.recalls.files() > COOLING_MAX {
            return;
        }
        let (rows, next) = self.files.rows_of_region(region, start);
        for file in self.files.files_of(&rows) {
            if let Some(record) = self.files.record(&file) {
                self.recall(holders_of(&file, &record));
            }
        }
        let step = match next.filter(|_| !is_late) {
            Some(start) => LeavingStep::Cooling { since, start },
            None => LeavingStep::recalling(self.now, region),
        };
        self.again = true;
        let leaving = Standing::Leaving { to, epoch, step };
        self.files.regions.all.insert(region.clone(), leaving);
    }

    /// Recalls what is held of some files of the region. One pass over all is enough: nothing is
    /// granted since it began. After it, the files that were held are looked at again, and all only
    /// if they were too many, or something has come into use behind the pass.
    fn recall_region(&mut self, region: &FileId) {
        let Some(Standing::Leaving {
            to,
            epoch,
            step: LeavingStep::Recalling { since, start, mut held, mut is_whole },
        }) = self.files.regions.all.get(region).cloned()
        else {
            return;
        };
        let is_free = !self.recall_paths_over(|dir| region.is_prefix_of(dir));
        let (files, next) = match &start {
            Some(start) => {
                let (rows, next) = self.files.rows_of_region(region, start);
                (self.files.files_of(&rows), next)
            }
            None => (std::mem::take(&mut held), None),
        };
        for file in files {
            match self.recall_file(&file) {
                Hold::Nothing => {}
                Hold::Leases if held.len() < HELD_MAX => held.push(file),
                Hold::Leases | Hold::Rows => is_whole = false,
                Hold::Use => return self.keep(region, DelegateError::InUse),
            }
        }
        let is_idle = is_free && is_whole && held.is_empty();
        let step = match next {
            Some(start) => {
                self.again = true;
                LeavingStep::Recalling { since, start: Some(start), held, is_whole }
            }
            None if is_idle => {
                self.again = true;
                LeavingStep::Idle
            }
            None if self.now.ms_since(since) > RECALL_MS_MAX => {
                return self.keep(region, DelegateError::InUse);
            }
            None if is_whole => LeavingStep::Recalling { since, start: None, held, is_whole },
            None => LeavingStep::recalling(since, region),
        };
        let leaving = Standing::Leaving { to, epoch, step };
        self.files.regions.all.insert(region.clone(), leaving);
    }

    /// Sends a page of the region's rows, which begins at `start`; `files` are in those before it.
    fn copy_page(
        &mut self,
        region: &FileId,
        (to, epoch): (ServerId, u64),
        (page, start, files): (u64, Vec<u8>, u64),
    ) {
        let sent = self.files.page_of_region(region, &start);
        let (next, files) = (sent.next, files + sent.files);
        let step = LeavingStep::Copying { since: self.now, page, start, next, files };
        self.files.regions.all.insert(region.clone(), Standing::Leaving { to, epoch, step });
        self.say(to, region, epoch, HandOverStep::Rows { page, rows: sent.rows });
    }

    /// Recalls what is held of the file. A pass over a large region takes longer than a session may
    /// be silent, so each file counts from when it was asked for.
    fn recall_file(&mut self, file: &FileId) -> Hold {
        let Some(record) = self.files.record(file) else { return Hold::Rows };
        self.recall(holders_of(file, &record));
        let recalls = &self.state.region.pending.queue.recalls;
        let is_silent = |session: SessionId| {
            let known = self.state.server.sessions.all.get(&session);
            let asked = recalls.unanswered_of(file).filter(|(of, ..)| *of == session).map(|(.., at)| at);
            let since = asked.min().unwrap_or(self.now);
            known.is_none_or(|known| self.now.ms_since(since.max(known.worked)) > SILENT_MS_MAX)
        };
        let is_lent = record.holdings.iter().any(|(session, _)| joint_of(session).is_some());
        if is_lent || record.is_doomed() || !record.locks.is_empty() || !record.holdings.stuck().is_empty() {
            return Hold::Use;
        }
        if record.holdings.iter().any(|(session, _)| is_silent(session)) {
            return Hold::Use;
        }
        if record.holdings.is_empty() { Hold::Nothing } else { Hold::Leases }
    }

    fn on_has_rows(&mut self, from: ServerId, region: &FileId, epoch: u64, has: u64) {
        match self.files.regions.all.get(region).cloned() {
            Some(Standing::Leaving {
                to,
                epoch: as_,
                step: LeavingStep::Copying { page, next, files, .. },
            }) if to == from && as_ == epoch => match next {
                // An answer to an earlier page, late or twice.
                _ if has != page + 1 => {}
                Some(next) => self.copy_page(region, (to, epoch), (has, next, files)),
                None => self.hand_over(region, to, epoch, files),
            },
            Some(Standing::Leaving { to, epoch: as_, .. }) if to == from && as_ == epoch => {}
            Some(Standing::Away(Away { to, epoch: as_, unconfirmed, .. })) if to == from && as_ == epoch => {
                if let Some(files) = unconfirmed {
                    self.say(to, region, epoch, HandOverStep::TakeOver { files });
                }
            }
            _ => self.say(from, region, epoch, HandOverStep::Withdrawn),
        }
    }

    /// Gives up all authority over the region. From this entry on another server may decide about
    /// its files, and this one does not.
    fn hand_over(&mut self, region: &FileId, to: ServerId, epoch: u64, files: u64) {
        let left = Some(region.as_bytes().to_vec());
        let away = Away { to, epoch, unconfirmed: Some(files), left };
        self.files.regions.all.insert(region.clone(), Standing::Away(away));
        self.state.region.files -= files;
        self.say(to, region, epoch, HandOverStep::TakeOver { files });
        self.out.push(Output::Delegated { region: region.clone(), result: Ok(()) });
        self.state.region.pending.wake_all();
        self.ways_changed = true;
    }

    fn on_taken(&mut self, from: ServerId, region: &FileId, epoch: u64) {
        if let Some(Standing::Away(away)) = self.files.regions.all.get_mut(region)
            && (away.to, away.epoch) == (from, epoch)
        {
            away.unconfirmed = None;
            self.again = true;
        }
    }

    /// Deletes some rows of a region that is elsewhere. Its share rows go with the extents that
    /// name them. No step looks at what an earlier one has deleted.
    fn delete_rows(&mut self, region: &FileId, away: Away) {
        let Some(from) = &away.left else { return };
        let page = self.files.page_of_region(region, from);
        page.rows.iter().for_each(|(key, _)| self.files.set(key, None));
        self.again |= page.next.is_some();
        let away = Standing::Away(Away { left: page.next, ..away });
        self.files.regions.all.insert(region.clone(), away);
    }
}
