//! Granting: the leases that a request needs, more than that where no other session is affected,
//! and the values that they give knowledge of.

use crate::requests::pending::Asked;
use crate::requests::values::{Page, Room};
use crate::rows::record::Record;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Granularity, Held, Holdings, Kind, Label, Lease, Mode, Released, SessionId};
use namespace::{Entry, Operation, operation};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::{AskMode, FileGrant};

/// Entries of a directory in one grant. A directory with no more is granted with all of them.
pub const PAGE: usize = 1000;
/// Entries that come along with one label of a larger directory: those that were linked after the
/// label.
const NEIGHBOURS: usize = 128;
/// Labels that a generous infinite lease excludes at most. A directory where others hold more gets
/// no such lease.
const EXCLUDED_MAX: usize = 64;
/// Labels that a row of holdings names of one session at most, by leases or by exclusions: the row
/// is read and written whole.
const NAMED_MAX: usize = 1024;

impl Transaction<'_> {
    /// Grants the leases that the request needs, all at once; no holder is in the way.
    pub fn grant(&mut self, request: &Asked, needs: &[Lease]) -> Vec<FileGrant> {
        self.watch_lockers(request.session, needs);
        let mut by_file: BTreeMap<FileId, Vec<(Field, Kind)>> = BTreeMap::new();
        for need in needs {
            by_file.entry(need.file.clone()).or_default().push((need.field.clone(), need.kind));
        }
        let mut room = Room::whole();
        let mut grants = Vec::with_capacity(by_file.len());
        for (file, needs) in by_file {
            grants.push(self.grant_file(request, &file, needs, &mut room));
        }
        let directories =
            grants.iter().filter(|grant| grant.fields.iter().any(|(field, _)| is_of_labels(field)));
        for dir in directories.map(|grant| grant.file.clone()).collect::<Vec<_>>() {
            self.limit_named(&dir);
        }
        if self.policy.generous {
            self.grant_neighbours(request.session, &mut grants, &mut room);
        }
        self.grant_ahead(request, needs, &mut grants, &mut room);
        grants
    }

    fn grant_file(
        &mut self,
        request: &Asked,
        file: &FileId,
        needs: Vec<(Field, Kind)>,
        room: &mut Room,
    ) -> FileGrant {
        let session = request.session;
        let wants_labels = needs.iter().any(|(field, _)| is_of_labels(field));
        let writes_labels = self.files.holdings(file).held(session).is_some_and(holds_labels_to_write);
        let whole = self.may_be_granted_whole(session, file, wants_labels);
        let fields = match whole {
            true => Vec::new(),
            false => self.with_shared_open(request, file, self.widened(session, file, needs.clone())),
        };
        let excluded = if whole { Vec::new() } else { self.excluded(session, file, &fields, &needs) };
        let shown = if whole { whole_fields(wants_labels.then_some(&needs)) } else { fields.clone() };
        let fields = self.not_held(request, file, fields);
        let held = self.issue(session, file, whole, &fields, &excluded);
        let page =
            self.page_of(request, file, wants_labels && (whole || held.kind(&Field::Children).is_some()));
        let mut values = self.files.values(file, &shown, (session, &held), page, room);
        // Integers come with the right to use them, unless the client shows that it has some.
        if !writes_labels && holds_labels_to_write(&held) && !brings_integer(&request.operation, file) {
            values.reservation = Some(self.reserve_integers(file));
        }
        FileGrant { file: file.clone(), whole, fields, excluded, excluded_xattrs: Vec::new(), values }
    }

    /// Gives `session` leases on all of `file`, or on these fields of it. A lease on all labels
    /// leaves out those that are `excluded`. Returns what the session holds of the file then.
    ///
    /// Every grant to a session and every loan to a joint operation goes through here. The one
    /// other lease is the birthright in a new file, whose directory the creator holds.
    ///
    /// # Panics
    /// If the file is about to be another server's, or is already. Nobody would recall the lease,
    /// and two sessions would hold what excludes each other: that is worse than a server that
    /// stops.
    pub fn issue(
        &mut self,
        session: SessionId,
        file: &FileId,
        whole: bool,
        fields: &[(Field, Kind)],
        excluded: &[Label],
    ) -> Held {
        assert!(self.files.regions.may_grant(file), "{file} is granted, and its region is not here to stay");
        self.files.change_holdings(file, |holdings| {
            if whole {
                holdings.grant_whole(session);
            }
            for (field, kind) in fields {
                let excluded = if *field == Field::Children { excluded.to_vec() } else { Vec::new() };
                holdings.grant(session, field, *kind, excluded);
            }
        });
        for (field, kind) in fields {
            self.state.region.pending.queue.recalls.granted(session, file, field, *kind);
        }
        self.files.holdings(file).held(session).cloned().unwrap_or_default()
    }

    /// The fields that the asker does not hold yet, or that it says it misses. Of the others it
    /// gets the values once more, and no lease.
    fn not_held(&self, request: &Asked, file: &FileId, mut fields: Vec<(Field, Kind)>) -> Vec<(Field, Kind)> {
        let holdings = self.files.holdings(file);
        fields.retain(|(field, kind)| {
            let missed = |want: &Lease| want.file == *file && want.field == *field;
            !holdings.covers(request.session, field, *kind) || request.wants.iter().any(missed)
        });
        fields
    }

    /// Bounds the labels in a row. From a holder of too many labels by name it recalls those
    /// labels; from a holder that is to leave too many out it recalls the infinite lease.
    fn limit_named(&mut self, dir: &FileId) {
        let mut holders = Vec::new();
        for (holder, held) in self.files.holdings(dir).iter() {
            let fields = match (held.named().count() > NAMED_MAX, held.excluded().count() > NAMED_MAX) {
                (true, _) => held.named().cloned().map(Field::Child).collect(),
                (false, true) => vec![Field::Children],
                (false, false) => continue,
            };
            let released = fields.into_iter().map(|field| Released { file: dir.clone(), field, keep: None });
            holders.extend(released.map(|released| (holder, released)));
        }
        self.recall(holders);
    }

    /// Whether `session` may have all of the file although it asked for less: no other session
    /// holds, waits for or lately wanted any of it.
    fn may_be_granted_whole(&self, session: SessionId, file: &FileId, wants_labels: bool) -> bool {
        let Some(record) = self.files.record(file) else { return false };
        self.policy.generous
            && self.may_hold_whole(session, file)
            && (!record.is_directory() || wants_labels || record.children == 0)
            // The handles of a file that is to go with its last handle may be on their way back,
            // for the server to dispose of it.
            && record.attributes.links > 0
            && record.disposition.is_none()
            // Others' locks are reported to a session that asks for them, and then they are
            // watched.
            && record.locks.iter().all(|lock| lock.holder.0 == session)
            && self.files.holdings(file).is_alone(session)
            && self.files.holdings(file).held(session).is_none_or(|held| held.excluded().next().is_none())
            && !self.state.region.pending.others_wait(file, session)
            && !self.state.region.contention.is_contended_anywhere(self.now, file)
            && self.files.unasked_bytes(file).is_some()
    }

    /// The needs, each in write where that costs no other session anything, and the infinite child
    /// lease with any label of a directory.
    fn widened(
        &self,
        session: SessionId,
        file: &FileId,
        mut needs: Vec<(Field, Kind)>,
    ) -> Vec<(Field, Kind)> {
        if !self.policy.generous || self.state.region.pending.others_wait(file, session) {
            return needs;
        }
        let holdings = self.files.holdings(file);
        let (now, contention) = (self.now, &self.state.region.contention);
        let granularity = self.policy.granularity;
        let alone = holdings.is_alone(session);
        let free = |field: &Field| {
            // Each session takes only what it needs of a black box. More would be in the way of the
            // next opener.
            (alone || !field.is_black_box())
                && !contention.is_contended(now, session, file, field)
                && granularity.in_the_way(&holdings, session, field, Kind::Write).is_empty()
        };
        if granularity != Granularity::Files || needs.iter().all(|(field, _)| free(field)) {
            for (field, kind) in &mut needs {
                if free(field) {
                    *kind = self.most(session, file, field, Kind::Write);
                }
            }
        }
        let wants_one = needs.iter().any(|(field, _)| matches!(field, Field::Child(_)));
        let wants_all = needs.iter().any(|(field, _)| *field == Field::Children);
        if wants_one && !wants_all && !contention.is_contended(now, session, file, &Field::Children) {
            let fits =
                |excluded: Option<Vec<Label>>| excluded.is_some_and(|labels| labels.len() <= EXCLUDED_MAX);
            let kind = [self.most(session, file, &Field::Children, Kind::Write), Kind::Read];
            let kind =
                kind.into_iter().find(|kind| fits(holdings.excluded_for(session, &Field::Children, *kind)));
            needs.extend(kind.map(|kind| (Field::Children, kind)));
        }
        needs
    }

    /// Adds the leases that any handle needs and that keep no session from anything, to those on
    /// which an open succeeds or fails. Such leases are only in the way of openers that exclude
    /// others. So a client that opens a file that others have open asks once, however often it
    /// tries, and in whichever shared modes.
    fn with_shared_open(
        &self,
        request: &Asked,
        file: &FileId,
        mut fields: Vec<(Field, Kind)>,
    ) -> Vec<(Field, Kind)> {
        if !self.policy.generous
            || !matches!(&request.operation, Operation::Open(operation::Open { file: f, .. }) if f == file)
        {
            return fields;
        }
        let (session, granularity) = (request.session, self.policy.granularity);
        let holdings = self.files.holdings(file);
        let waiting = self.state.region.pending.wants_of_others(file, session);
        let access = [Mode::AccessRead, Mode::AccessWrite, Mode::AccessDelete];
        let touches =
            access.map(Field::Mode).into_iter().chain([Field::Handles]).map(|field| (field, Kind::Touch));
        let reads = access.map(|mode| (Field::Mode(mode.against()), Kind::Read));
        for (field, kind) in touches.chain(reads) {
            let known = fields.iter().any(|(known, _)| *known == field);
            if known || !granularity.in_the_way(&holdings, session, &field, kind).is_empty() {
                continue;
            }
            // First come, first served: no waiting request gets something more in its way.
            let mut with = Holdings::clone(&holdings);
            with.grant(session, &field, kind, []);
            let hinders = |(other, want): &(SessionId, Lease)| {
                let in_the_way = granularity.in_the_way(&with, *other, &field, want.kind);
                want.field == field && in_the_way.iter().any(|it| it.session == session)
            };
            if !waiting.iter().any(hinders) {
                fields.push((field, kind));
            }
        }
        fields
    }

    /// The labels that an infinite child lease among `fields` has to exclude: those that others
    /// hold, and those that they lately wanted. A label that was asked for has a lease of its own.
    fn excluded(
        &self,
        session: SessionId,
        file: &FileId,
        fields: &[(Field, Kind)],
        needs: &[(Field, Kind)],
    ) -> Vec<Label> {
        let asked = needs.iter().any(|(field, _)| *field == Field::Children);
        let Some((_, kind)) = fields.iter().find(|(field, _)| *field == Field::Children).filter(|_| !asked)
        else {
            return Vec::new();
        };
        let excluded = self.files.holdings(file).excluded_for(session, &Field::Children, *kind);
        let mut excluded = excluded.unwrap_or_default();
        let held = self.files.holdings(file).held(session).cloned().unwrap_or_default();
        // A label that the session once released comes back by name only, with the value: the
        // session's knowledge of all other labels goes on meanwhile.
        excluded.extend(held.excluded().cloned());
        let lately = self.state.region.contention.contended_labels(self.now, session, file);
        excluded.extend(lately.into_iter().filter(|label| held.kind(&Field::Child(label.clone())).is_none()));
        excluded.sort();
        excluded.dedup();
        excluded
    }

    /// Which page of entries goes along.
    fn page_of(&self, request: &Asked, file: &FileId, infinite: bool) -> Option<Page> {
        if let (AskMode::Page { after }, Operation::List(operation::List { dir })) =
            (request.mode, &request.operation)
            && dir == file
        {
            return Some(Page { after, limit: PAGE, contiguous: true });
        }
        let record = self.files.record(file)?;
        if !infinite || !record.is_directory() {
            // For an empty directory an empty page costs nothing.
            return (record.is_directory() && record.children == 0).then_some(Page {
                after: 0,
                limit: 1,
                contiguous: true,
            });
        }
        if record.children <= PAGE as u64 || matches!(request.operation, Operation::List { .. }) {
            return Some(Page { after: 0, limit: PAGE, contiguous: true });
        }
        let label = match &request.operation {
            Operation::Lookup(operation::Lookup { dir, label, .. })
            | Operation::Find(operation::Find { dir, label, .. })
                if dir == file =>
            {
                label
            }
            _ => return None,
        };
        let position = self.files.child(file, label)?.position;
        let limit = if request.ahead.is_some_and(|files| files > 0) { PAGE } else { NEIGHBOURS };
        self.policy.generous.then_some(Page { after: position, limit, contiguous: false })
    }

    /// Grants also the files that the granted entries name, if no session holds any of them: so
    /// `ls -l` asks once.
    fn grant_neighbours(&mut self, session: SessionId, grants: &mut Vec<FileGrant>, room: &mut Room) {
        let entries: Vec<Entry> = grants
            .iter()
            .flat_map(|grant| grant.values.children.iter().map(|(_, entry)| entry.clone()))
            .collect();
        let mut granted: Vec<FileId> = grants.iter().map(|grant| grant.file.clone()).collect();
        granted.sort();
        for Entry { file, .. } in entries {
            let free = self.files.holdings(&file).is_empty()
                && self.files.regions.may_grant(&file)
                && granted.binary_search(&file).is_err()
                && !self.state.region.pending.others_wait(&file, session)
                && !self.state.region.contention.is_contended_anywhere(self.now, &file);
            let locked = |record: &Record| record.locks.iter().any(|lock| lock.holder.0 != session);
            let fits = |record: &Arc<Record>| free && !locked(record) && self.takes_along(&file, room);
            let Some(record) = self.files.record(&file).filter(fits) else {
                continue;
            };
            // The labels of a directory are for the first session that looks into it.
            let empty = record.is_directory() && record.children == 0;
            let all = !record.is_directory() || empty;
            let whole = all && self.may_hold_whole(session, &file);
            let fields = match (whole, all) {
                (true, _) => Vec::new(),
                (false, false) => self.at_most(session, &file, all_but_labels()),
                (false, true) => {
                    let more = if empty { Field::Children } else { Field::Content };
                    let all = all_but_labels().into_iter().chain([(more, Kind::Write)]);
                    self.at_most(session, &file, all.collect())
                }
            };
            let held = self.issue(session, &file, whole, &fields, &[]);
            let page = empty.then_some(Page { after: 0, limit: 1, contiguous: true });
            let shown = if whole { whole_fields(None) } else { fields.clone() };
            let mut values = self.files.values(&file, &shown, (session, &held), page, room);
            // A client that opens the file asks for its extents; a client that only looks at it
            // does not need them.
            values.extents = values.extents.filter(|(extents, _)| extents.is_empty());
            grants.push(FileGrant {
                file,
                whole,
                fields,
                excluded: Default::default(),
                excluded_xattrs: Default::default(),
                values,
            });
        }
    }

    /// Whether there is room for all of `file`; if so, takes the room.
    pub fn takes_along(&self, file: &FileId, room: &mut Room) -> bool {
        let left = self.files.unasked_bytes(file).and_then(|bytes| room.unasked.checked_sub(bytes));
        left.inspect(|left| room.unasked = *left).is_some()
    }

    /// Limits each field to the most that `session` may hold.
    fn at_most(
        &self,
        session: SessionId,
        file: &FileId,
        mut fields: Vec<(Field, Kind)>,
    ) -> Vec<(Field, Kind)> {
        fields.iter_mut().for_each(|(field, kind)| *kind = self.most(session, file, field, *kind));
        fields
    }

    /// The values of a report, which grants no lease.
    pub fn report(&mut self, request: &Asked, needs: &[Lease]) -> Vec<FileGrant> {
        let mut by_file: BTreeMap<FileId, Vec<(Field, Kind)>> = BTreeMap::new();
        // Trap: the asker may know more of the fields that it holds than the server does, so the
        // report leaves these out.
        let holds = |need: &Lease| {
            let wants = request.wants.iter().any(|want| want.file == need.file && want.field == need.field);
            !wants && self.files.holdings(&need.file).covers(request.session, &need.field, Kind::Read)
        };
        for need in needs.iter().filter(|need| !holds(need)) {
            by_file.entry(need.file.clone()).or_default().push((need.field.clone(), need.kind));
        }
        let mut room = Room::whole();
        let told = by_file.into_iter().map(|(file, fields)| {
            let wants_all = fields.iter().any(|(field, _)| *field == Field::Children);
            let page = wants_all.then_some(Page { after: 0, limit: PAGE, contiguous: true });
            let values =
                self.files.values(&file, &fields, (request.session, &Held::whole()), page, &mut room);
            let (excluded, excluded_xattrs) = (Default::default(), Default::default());
            FileGrant { file, whole: false, fields, excluded, excluded_xattrs, values }
        });
        debug_assert!(matches!(request.mode, AskMode::Report | AskMode::Values));
        told.collect()
    }

    /// Whether `session` may have integers of `dir`: it holds something of the directory, so it may
    /// come to write labels.
    pub fn may_reserve(&self, session: SessionId, dir: &FileId) -> bool {
        self.files.holdings(dir).held(session).is_some()
    }
}

fn is_of_labels(field: &Field) -> bool {
    matches!(field, Field::Child(_) | Field::Children)
}

fn holds_labels_to_write(held: &Held) -> bool {
    held.iter().any(|(field, kind)| is_of_labels(&field) && kind == Kind::Write)
}

/// Whether the operation brings an integer of `dir` along, so that the client must have a block of
/// them. A client without one writes the first integer.
fn brings_integer(operation: &Operation, dir: &FileId) -> bool {
    match operation {
        Operation::Create(operation::Create { dir: of, position, .. })
        | Operation::Link(operation::Link { dir: of, position, .. }) => of == dir && *position > 1,
        Operation::Rename(operation::Rename { to_dir, position, .. }) => to_dir == dir && *position > 1,
        _ => false,
    }
}

/// The fields whose values go along with everything, and the labels that were asked for. The page
/// of a large directory does not hold all of these labels.
fn whole_fields(needs: Option<&Vec<(Field, Kind)>>) -> Vec<(Field, Kind)> {
    let labels = needs.into_iter().flatten().filter(|(field, _)| matches!(field, Field::Child(_)));
    all_but_labels().into_iter().chain([(Field::Content, Kind::Write)]).chain(labels.cloned()).collect()
}

/// All fields of a directory that do not depend on which session looks into it.
fn all_but_labels() -> Vec<(Field, Kind)> {
    let fields =
        [Field::Attributes, Field::Times, Field::Disposition, Field::Parent, Field::Xattrs, Field::Locks];
    fields.into_iter().chain(Field::BLACK_BOXES).map(|field| (field, Kind::Write)).collect()
}
