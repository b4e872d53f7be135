//! Recalls and grants ahead of a walk. A session that needs one file after the other of what
//! another session holds will soon need the rest of the directory, and after some directories the
//! rest of the subtree.
//!
//! From the third such request on, the recall says what the session is likely to need next, from
//! the same holders. They release what they can spare with one message and one flush of their logs,
//! and owe nothing. The request itself waits for its own needs only. Of the rest it is
//! granted all that is free by then.

use crate::requests::grant::PAGE;
use crate::requests::pending::{Asked, to_recall};
use crate::requests::values::{Page, Room};
use crate::requests::walks::{WalkedFields, strengthen};
use crate::rows::record::Record;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Granularity, Kind, Lease, Released, SessionId};
use namespace::{Operation, fold};
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, FileGrant};

/// A step of a walk: a request for one of its files.
struct WalkStep {
    file: FileId,
    region: FileId,
    /// The fields to take ahead.
    fields: WalkedFields,
    changes: bool,
    /// The number of files to take ahead.
    ahead: usize,
}

impl Transaction<'_> {
    /// Counts the request as a step of a walk, if it is for leases on a file that the asker does
    /// not hold. Returns the number of files to take ahead.
    pub fn step_of_walk(&mut self, asked: &Asked, needs: &[Lease]) -> usize {
        let (now, session) = (self.now, asked.session);
        let Some(file) = self.file_walked(asked, needs) else { return 0 };
        let holdings = self.files.holdings(&file);
        let of_file = |need: &&Lease| need.file == file && !matches!(need.field, Field::Child(_));
        if needs.iter().filter(of_file).all(|need| holdings.covers(session, &need.field, need.kind)) {
            return 0;
        }
        self.state.region.walks.note(now, session, &file);
        let Some(region) = self.state.region.walks.region(now, session, &file) else { return 0 };
        let is_directory = self.files.record(&file).is_some_and(|record| record.is_directory());
        let fields = WalkedFields::of(&file, is_directory, needs);
        let walks = &mut self.state.region.walks;
        let walk = (session, region);
        walks.note_read(now, &walk, &fields);
        if fields.are_only_read() || walks.goes_on(now, session, &file) { walks.begin(now, &walk) } else { 0 }
    }

    /// The leases that the asker is likely to need after those that are `in_the_way` now, and that
    /// the same sessions hold. None if these sessions have been asked before.
    pub fn recalls_ahead(
        &self,
        asked: &Asked,
        needs: &[Lease],
        in_the_way: &[(SessionId, Released)],
    ) -> Vec<(SessionId, Released)> {
        let (session, recalls) = (asked.session, &self.state.region.pending.queue.recalls);
        let is_new = |(holder, it): &(SessionId, Released)| !recalls.is_owed(*holder, &it.file, &it.field);
        if !in_the_way.iter().any(is_new) {
            return Vec::new();
        }
        let mut wanted = self.all_names(asked, needs);
        if let Some(step) = self.step(asked, needs) {
            let of_all_names = |lease: &Lease| lease.field == Field::Children && lease.kind == Kind::Write;
            let names = wanted.iter().filter(|lease| of_all_names(lease));
            let mut names: BTreeSet<FileId> = names.map(|lease| lease.file.clone()).collect();
            for file in self.files.next_files(&step.file, &step.region, step.ahead) {
                let needed = self.needed_ahead(session, &step, &file, &names);
                names.extend(needed.iter().any(of_all_names).then_some(file));
                wanted.extend(needed);
            }
        }
        let holders: BTreeSet<SessionId> = in_the_way.iter().map(|(holder, _)| *holder).collect();
        let mut ahead = Vec::new();
        for Lease { file, field, kind } in wanted {
            let in_the_way = self.files.holdings(&file).in_the_way(session, &field, kind);
            ahead.extend(to_recall(&file, in_the_way).filter(|(holder, _)| holders.contains(holder)));
        }
        ahead
    }

    /// Leases on all labels of the directories in which the session goes on looking names up, or
    /// changing them.
    fn all_names(&self, asked: &Asked, needs: &[Lease]) -> Vec<Lease> {
        let (session, contention) = (asked.session, &self.state.region.contention);
        let Some(file) = self.file_walked(asked, needs) else { return Vec::new() };
        let goes_on = self.state.region.walks.goes_on(self.now, session, &file);
        let mut dirs: BTreeMap<&FileId, Kind> = BTreeMap::new();
        for need in needs.iter().filter(|need| matches!(need.field, Field::Child(_))) {
            let takes_all =
                goes_on || need.kind == Kind::Read && contention.takes_alone(self.now, session, &need.file);
            if takes_all && !contention.is_contended(self.now, session, &need.file, &Field::Children) {
                dirs.entry(&need.file).and_modify(|kind| *kind = kind.and(need.kind)).or_insert(need.kind);
            }
        }
        dirs.into_iter().map(|(dir, kind)| Lease::new(dir.clone(), Field::Children, kind)).collect()
    }

    /// Grants also what the asker is likely to need next, as far as that is in no other session's
    /// way. A walk with nothing left to take ahead is over.
    pub fn grant_ahead(
        &mut self,
        asked: &Asked,
        needs: &[Lease],
        grants: &mut Vec<FileGrant>,
        room: &mut Room,
    ) {
        let Some(step) = self.step(asked, needs) else { return };
        let (session, before) = (asked.session, grants.len());
        let walk = (session, step.region.clone());
        self.state.region.walks.granted(self.now, &walk);
        let granted: BTreeSet<FileId> = grants.iter().map(|grant| grant.file.clone()).collect();
        for file in self.files.next_files(&step.file, &step.region, step.ahead) {
            let fields = self.free_ahead(session, &step, &file);
            if granted.contains(&file) || fields.is_empty() {
                continue;
            }
            if !self.takes_along(&file, room) {
                break;
            }
            grants.push(self.grant_fields(session, &file, fields, room));
        }
        let of_names = |grant: &FileGrant| grant.values.children.len() > 1;
        if grants.len() == before && !grants.iter().any(of_names) {
            self.state.region.walks.end(&walk);
        }
    }

    /// The fields of `file` that may be granted ahead: all that the walk needs, or none. All labels
    /// of a directory may be left out, and what others have open of a file that is to be changed.
    ///
    /// With part of it the client would have to ask again, for each file. A lookup needs a lease on
    /// the file's handles, too, so that one comes with its attributes.
    fn free_ahead(&self, session: SessionId, step: &WalkStep, file: &FileId) -> Vec<(Field, Kind)> {
        let holdings = self.files.holdings(file);
        let mut fields = Vec::new();
        for Lease { field, kind, .. } in self.needed_ahead(session, step, file, &BTreeSet::new()) {
            let is_free = holdings.in_the_way(session, &field, kind).is_empty();
            match field {
                Field::Children if !is_free || !self.fits_whole(session, file) => {}
                Field::Handles if !is_free && step.changes => {}
                _ if !is_free => return Vec::new(),
                _ => fields.push((field, kind)),
            }
        }
        fields
    }

    /// Whether all entries of the directory fit into a grant, and a lease on all of its labels
    /// would leave out none.
    fn fits_whole(&self, session: SessionId, dir: &FileId) -> bool {
        let held = self.files.holdings(dir).held(session).cloned().unwrap_or_default();
        self.files.record(dir).is_some_and(|record| record.children <= PAGE as u64)
            && !self.is_contended(session, dir, &Field::Children)
            && self.has_names_to_itself(session, dir)
            && held.excluded().next().is_none()
    }

    fn has_names_to_itself(&self, session: SessionId, dir: &FileId) -> bool {
        self.state.region.contention.contended_labels(self.now, session, dir).is_empty()
    }

    fn is_contended(&self, session: SessionId, file: &FileId, field: &Field) -> bool {
        self.state.region.contention.is_contended(self.now, session, file, field)
    }

    fn grant_fields(
        &mut self,
        session: SessionId,
        file: &FileId,
        fields: Vec<(Field, Kind)>,
        room: &mut Room,
    ) -> FileGrant {
        let held = self.issue(session, file, false, &fields, &[]);
        let whole = fields.iter().any(|(field, _)| *field == Field::Children);
        let page = whole.then_some(Page { after: 0, limit: PAGE, contiguous: true });
        let values = self.files.values(file, &fields, (session, &held), page, room);
        FileGrant {
            file: file.clone(),
            whole: false,
            fields,
            excluded: Default::default(),
            excluded_xattrs: Default::default(),
            values,
        }
    }

    /// The step of a walk that the request was counted as, if it was.
    fn step(&self, asked: &Asked, needs: &[Lease]) -> Option<WalkStep> {
        let ahead = asked.ahead.filter(|ahead| *ahead > 0)?;
        let file = self.file_walked(asked, needs)?;
        let walks = &self.state.region.walks;
        let region = walks.region(self.now, asked.session, &file)?;
        let mut fields = WalkedFields::of(&file, self.files.record(&file)?.is_directory(), needs);
        let changes = !fields.are_only_read();
        if changes && matches!(&asked.operation, Operation::Unlink(unlink) if !unlink.directory) {
            // The asker has the file open until its kernel forgets it, and disposes of it then.
            strengthen(&mut fields.files, &Field::Handles, Kind::Write);
        }
        // A walk that changes files looks at each of them first. Otherwise a change says nothing of
        // what else the walk will come to.
        if let Some(read) = walks.read(&(asked.session, region.clone())) {
            fields.add(read);
        }
        if fields.files.contains_key(&Field::Attributes) {
            strengthen(&mut fields.files, &Field::Handles, Kind::Touch);
        }
        Some(WalkStep { file, region, fields, changes, ahead })
    }

    /// The file that the request is about, if it may be one of a walk: the last one in the order of
    /// identifiers, as a file comes after the directory of its name.
    fn file_walked(&self, asked: &Asked, needs: &[Lease]) -> Option<FileId> {
        let leases = matches!(asked.mode, AskMode::Lease | AskMode::Page { .. } | AskMode::LeaseOrReport);
        if !leases || !self.policy.generous || self.policy.granularity != Granularity::Fields {
            return None;
        }
        let of_files = needs.iter().filter(|need| !matches!(need.field, Field::Child(_)));
        of_files.map(|need| &need.file).max().cloned()
    }

    /// The leases on `file` that the walk will need and that the session does not hold. None if
    /// another session waits for the file, or if the file is about to go to another server or to be
    /// deleted, or has others' locks.
    /// All names of the directories `names` are wished for together with them.
    fn needed_ahead(
        &self,
        session: SessionId,
        step: &WalkStep,
        file: &FileId,
        names: &BTreeSet<FileId>,
    ) -> Vec<Lease> {
        let Some(record) = self.files.record(file) else { return Vec::new() };
        let locked = record.locks.iter().any(|lock| lock.holder.0 != session);
        let dies = record.attributes.links == 0 || record.disposition.is_some();
        let leaves = !self.files.regions.may_grant(file);
        if locked || dies || leaves || self.state.region.pending.others_wait(file, session) {
            return Vec::new();
        }
        let asks_at_once = step.changes && !self.has_names_alone(session, &record, names);
        let need = |(field, kind): (&Field, &Kind)| Lease::new(file.clone(), field.clone(), *kind);
        let needs = step.fields.of_kind(record.is_directory()).iter();
        let needs = needs.filter(|(field, _)| !(asks_at_once && field.is_black_box())).map(need);
        let needs = needs.filter_map(|need| self.within_rights(session, need));
        let held = |need: &Lease| record.holdings.covers(session, &need.field, need.kind);
        let passes = |need: &Lease| self.state.region.contention.is_ping_pong(self.now, file, &need.field);
        needs.filter(|need| !held(need) && !passes(need)).collect()
    }

    /// Whether no other session has a lease on a name of the file, but on all those in `going`, the
    /// directories whose names are wished for together with the file's handles.
    ///
    /// Trap: as long as a kernel has a name, its client cannot know whether the file is about to be
    /// used. The holder of both gives the names up first, and keeps the handles with any name
    /// (`client::leases::lingering`). Without the name no client comes to use the file.
    fn has_names_alone(&self, session: SessionId, record: &Record, going: &BTreeSet<FileId>) -> bool {
        record.links.iter().all(|link| {
            let name = Field::Child(fold(&link.label));
            let is_alone =
                || self.files.holdings(&link.dir).in_the_way(session, &name, Kind::Write).is_empty();
            going.contains(&link.dir) || is_alone()
        })
    }
}
