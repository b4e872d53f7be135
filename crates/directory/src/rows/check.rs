//! The invariants of the whole state, between any two turns. `fsck` and the simulation check them.

use crate::joint::{joint_of, session_of};
use crate::regions::Regions;
use crate::rows::decoded::DecodedRecords;
use crate::rows::extents::ShareRow;
use crate::rows::files::extent_from_row;
use crate::rows::keys::{self, RowOf, Table, Tag};
use crate::rows::machines;
use crate::rows::placement;
use crate::rows::record::{Record, entry_from_bytes};
use crate::rows::servers;
use crate::state::DirectoryState;
use crate::{Corrupt, Store};
use ident::{FileId, ServerId};
use lease::{Field, Granularity, Kind, Label, SessionId};
use namespace::{ContentHead, Entry, Extent, FileKind, INLINE_SEAL_BYTES, Place, ShareId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Rows read at a time.
const SCAN: usize = 4096;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A row cannot be read.
    #[error("{0}")]
    Corrupt(#[from] Corrupt),
    /// A row belongs to a file that does not exist.
    #[error("{file} has a row (tag {tag}) but no record")]
    RowWithoutRecord {
        /// The file.
        file: FileId,
        /// The tag of the row.
        tag: u8,
    },
    /// There is no root.
    #[error("there is no root")]
    NoRoot,
    /// A label is bound to a file that does not say that it is linked there.
    #[error("{dir}/{label} is bound to {file}, which is not there, is something else or is not linked so")]
    DanglingLabel {
        /// The directory.
        dir: FileId,
        /// The label.
        label: Label,
        /// The file that the label is bound to.
        file: FileId,
    },
    /// A file says that it is linked where it is not.
    #[error("{file} is linked as {dir}/{label}, which is bound to something else")]
    DanglingLink {
        /// The file.
        file: FileId,
        /// The directory.
        dir: FileId,
        /// The label.
        label: Label,
    },
    /// The positions of a directory's entries and its labels do not agree.
    #[error("{dir}: position {position} and its label do not agree")]
    PositionMismatch {
        /// The directory.
        dir: FileId,
        /// The position.
        position: u64,
    },
    /// A count in a record is wrong.
    #[error("{file}: {what} is {said}, but there are {found}")]
    WrongCount {
        /// The file.
        file: FileId,
        /// The thing counted.
        what: &'static str,
        /// The count in the record.
        said: u64,
        /// The true count.
        found: u64,
    },
    /// A file without a name is not listed as such, or one with a name is.
    #[error("{file} is {} among those that go with their last handle, and has {links} links", if *listed { "listed" } else { "not listed" })]
    Doomed {
        /// The file.
        file: FileId,
        /// Whether the file is in the list.
        listed: bool,
        /// The number of its links.
        links: usize,
    },
    /// A file is listed as dead with rows left, and is not dead or has none.
    #[error("{file} is listed among the dead that have rows left, and is not one")]
    Dying {
        /// The file.
        file: FileId,
    },
    /// A directory cannot be reached from the root.
    #[error("{dir} is not below the root")]
    Unreachable {
        /// The directory.
        dir: FileId,
    },
    /// An extent overlaps another, or stands beyond the file's end.
    #[error("{file}: the extent at {offset} overlaps another or is beyond the end")]
    MisplacedExtent {
        /// The file.
        file: FileId,
        /// Where the extent begins.
        offset: u64,
    },
    /// The recorded number of references to a share is wrong.
    #[error("share {share}: {said} references are written down, there are {found}")]
    ShareReferences {
        /// The share.
        share: ShareId,
        /// The recorded number.
        said: u64,
        /// The true number.
        found: u64,
    },
    /// A number is in use that its counter has yet to give out.
    #[error("{file}: {what} {used} is in use, but its counter is at {counter}")]
    CounterBehind {
        /// The file.
        file: FileId,
        /// The thing counted.
        what: &'static str,
        /// The number in use.
        used: u64,
        /// The counter.
        counter: u64,
    },
    /// A record that the server remembers is not as its row.
    #[error("{file}: its record is remembered otherwise than its row says")]
    Misremembered {
        /// The file.
        file: FileId,
    },
    /// The index of shields disagrees with the files' records or the sessions. A shield is a
    /// session that is stuck at having a file open, or has locked it.
    #[error(
        "{file}: that {session} is stuck at having it open or has locked it stands not in both index and record, or the session is over and forgotten"
    )]
    Shield {
        /// The file.
        file: FileId,
        /// The session.
        session: SessionId,
    },
    /// A file is recorded as write-through by a session that may not write it.
    #[error("{file} is written through by {session}, which may not write it")]
    WriteThrough {
        /// The file.
        file: FileId,
        /// The session.
        session: SessionId,
    },
    /// A file and a joint operation do not agree about what is lent.
    #[error("{file}: that something is lent to the joint operation of {session} is not known to both")]
    Lent {
        /// The file.
        file: FileId,
        /// The session that stands for the operation.
        session: SessionId,
    },
    /// Two sessions hold leases that exclude each other.
    #[error("{file}: {what}")]
    Holdings {
        /// The file.
        file: FileId,
        /// The violation.
        what: String,
    },
}

/// An edge of the tree between files of two servers, as one of the two knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OuterEdge {
    /// The directory.
    pub dir: FileId,
    /// The name there.
    pub label: Label,
    /// The file.
    pub file: FileId,
}

/// An observer of the check.
pub trait Inspector {
    /// Reports the number of rows seen so far.
    fn rows(&mut self, _rows: u64) {}
    /// Reports an extent of a file.
    fn extent(&mut self, _extent: &Extent) {}
    /// Reports the whole inline content of a file, sealed with the key in its head.
    fn inline(&mut self, _head: &ContentHead, _sealed: &[u8]) {}
    /// Reports a label whose file is at another server.
    fn outer_label(&mut self, _edge: OuterEdge) {}
    /// Reports a link whose directory is at another server.
    fn outer_link(&mut self, _edge: OuterEdge) {}
    /// Reports a violated invariant.
    fn violation(&mut self, violation: Violation);
}

impl Inspector for Vec<Violation> {
    fn violation(&mut self, violation: Violation) {
        self.push(violation);
    }
}

/// Shows `inspector` the remembered records that are not as their rows are for these sessions and
/// regions.
pub(crate) fn check_decoded(
    decoded: &DecodedRecords,
    (live, regions): (&FxHashSet<SessionId>, &Regions),
    store: &dyn Store,
    inspector: &mut dyn Inspector,
) {
    for (file, remembered) in decoded.iter() {
        let key = keys::of(file, Tag::Record);
        let row = regions
            .manage(file)
            .then(|| store.get(&key))
            .flatten()
            .map(|row| Record::of_the_living(file, &key, &row, live))
            .transpose();
        if row.is_ok_and(|record| record.as_ref() != Some(remembered)) {
            inspector.violation(Violation::Misremembered { file: file.clone() });
        }
    }
}

/// Walks all rows once, in order. Memory grows with directories and shares, not with files.
pub(crate) fn check(
    state: &DirectoryState,
    granularity: Granularity,
    store: &dyn Store,
    inspector: &mut dyn Inspector,
) {
    assert!(state.server.sessions.agree(), "the sessions' sums and indices are not theirs");
    let mut walk = Walk {
        store,
        granularity,
        inspector,
        regions: &state.server.regions,
        next_inode: state.server.sessions.next_inode,
        reachable: FxHashSet::from_iter([FileId::root()]),
        shares: FxHashMap::default(),
        shields: BTreeSet::new(),
        sessions: state.server.sessions.all.keys().chain(&state.server.departed).copied().collect(),
        lent: state.server.joint.lent().map(|(op, file)| (session_of(op), file.clone())).collect(),
        files: 0,
        dying: 0,
        machines: 0,
        changes: state.cluster.changes.last,
        founded: state.cluster.enrolment.servers,
        invitations: 0,
        servers: 0,
        file: None,
    };
    let has_root = state.server.regions.manage(&FileId::root());
    if has_root && store.get(&keys::of(&FileId::root(), Tag::Record)).is_none() {
        walk.inspector.violation(Violation::NoRoot);
    }
    let (mut start, mut rows) = (Vec::new(), 0);
    loop {
        let batch = store.scan(&start, &[0xff; 40], SCAN);
        rows += batch.len() as u64;
        walk.inspector.rows(rows);
        let Some((last, _)) = batch.last() else { break };
        start = [last.as_slice(), &[0]].concat();
        for (key, value) in &batch {
            if let Err(corrupt) = walk.row(key, value) {
                walk.inspector.violation(corrupt.into());
            }
        }
    }
    walk.end_of_file();
    walk.shares();
    for (session, file) in std::mem::take(&mut walk.lent) {
        walk.inspector.violation(Violation::Lent { file, session });
    }
    for (session, file) in std::mem::take(&mut walk.shields) {
        walk.inspector.violation(Violation::Shield { file, session });
    }
    for (file, session) in state.region.write_through.holders() {
        let record = walk.load(file).ok().flatten();
        let writes = |record: &Record| record.holdings.covers(session, &Field::Content, Kind::Write);
        if !record.as_ref().is_some_and(writes) {
            walk.inspector.violation(Violation::WriteThrough { file: file.clone(), session });
        }
    }
    let counts = [
        ("the number of files", state.region.files, walk.files),
        ("the number of files that are no more but have rows", state.region.dying, walk.dying),
        ("the number of machines", state.cluster.enrolment.machines, walk.machines),
        ("the number of invitations", state.cluster.enrolment.invitations, walk.invitations),
        ("the number of servers", state.cluster.enrolment.servers, walk.servers),
    ];
    for (what, said, found) in counts.into_iter().filter(|(_, said, found)| said != found) {
        walk.inspector.violation(Violation::WrongCount { file: FileId::root(), what, said, found });
    }
}

struct Walk<'a> {
    store: &'a dyn Store,
    granularity: Granularity,
    inspector: &'a mut dyn Inspector,
    /// Rows of files that other servers manage are on their way, and no part of the state.
    regions: &'a Regions,
    next_inode: u64,
    /// Directories known to be within the root.
    reachable: FxHashSet<FileId>,
    /// References found, by share.
    shares: FxHashMap<ShareId, (FileId, u64)>,
    /// Shields named by only one of the index and the record so far; a pair named by both is
    /// removed.
    shields: BTreeSet<(SessionId, FileId)>,
    /// Sessions that are not over, or have departed and are not yet cleared away.
    sessions: FxHashSet<SessionId>,
    /// Fields lent to joint operations, as they know and their files do not yet.
    lent: BTreeSet<(SessionId, FileId)>,
    files: u64,
    dying: u64,
    machines: u64,
    /// The last change of the registry of machines.
    changes: u64,
    /// The server that was founded last.
    founded: u64,
    invitations: u64,
    servers: u64,
    /// The file whose rows are being read.
    file: Option<CheckPass>,
}

/// The rows seen of one file, in sum.
struct CheckPass {
    file: FileId,
    record: Option<Record>,
    dying: bool,
    children: u64,
    positions: u64,
    xattrs: u64,
    extents: u64,
    occupied: u64,
    inline_bytes: u64,
    /// Where the last extent ended.
    end: u64,
}

impl Walk<'_> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Corrupt> {
        let (file, tag, sub) = match keys::row_of(key)? {
            RowOf::Table(table) => return self.row_of_table(table, key, value),
            RowOf::File(file, ..) if !self.regions.manage(&file) => return Ok(()),
            RowOf::File(file, tag, sub) => (file, tag, sub),
        };
        if self.file.as_ref().is_none_or(|passing| passing.file != file) {
            self.end_of_file();
            self.begin_file(&file)?;
        }
        let Some(mut passing) = self.file.take() else { return Ok(()) };
        let result = self.row_of(&mut passing, key, tag, sub, value);
        self.file = Some(passing);
        result
    }

    fn row_of_table(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Corrupt> {
        match table {
            Table::Doomed => {
                let file = table.file(key)?;
                if self.load(&file)?.is_none() {
                    self.inspector.violation(Violation::RowWithoutRecord { file, tag: table as u8 });
                }
            }
            Table::Dying => {
                self.dying += 1;
                let file = table.file(key)?;
                let (first, end) = (keys::of(&file, Tag::Record), keys::end_of(&file, Tag::Position));
                let rows = self.store.scan(&first, &end, 1);
                if rows.first().is_none_or(|(row, _)| *row == first.as_slice()) {
                    self.inspector.violation(Violation::Dying { file });
                }
            }
            Table::Shield => {
                let (session, file) = keys::shield_of(key)?;
                self.shield(session, file);
            }
            Table::Machine => {
                self.machines += 1;
                let changed = machines::check_machine(key, value)?;
                self.counted("change of a machine", changed, self.changes);
            }
            Table::Invitation => {
                self.invitations += 1;
                machines::check_invitation(key, value)?;
            }
            Table::Authority => machines::check_authority(key, value)?,
            Table::Founded => {
                self.servers += 1;
                let server = servers::check_server(key, value)?;
                self.counted("server", server.0.into(), self.founded);
            }
            Table::Pin => _ = table.file(key)?,
            Table::Moved => placement::check_moved(key, value)?,
            Table::Unbalanced => {}
            Table::Unsettled => _ = table.share(key)?,
            // Shares are compared once all extents are counted.
            Table::Share => {}
            // The state was read from these.
            Table::Region | Table::Requests | Table::Contention | Table::WriteThrough | Table::Walks => {}
            Table::Server | Table::Session | Table::Joint | Table::Paths | Table::Cluster => {}
        }
        Ok(())
    }

    fn begin_file(&mut self, file: &FileId) -> Result<(), Corrupt> {
        let key = keys::of(file, Tag::Record);
        let row = self.store.get(&key);
        let dying = row.is_none() && self.store.get(&Table::Dying.key(file.as_bytes())).is_some();
        let mut passing = CheckPass {
            file: file.clone(),
            record: None,
            dying,
            children: 0,
            positions: 0,
            xattrs: 0,
            extents: 0,
            occupied: 0,
            inline_bytes: 0,
            end: 0,
        };
        let record = row.map(|row| Record::from_bytes(file, &key, &row)).transpose();
        if let Ok(record) = &record {
            passing.record.clone_from(record);
        }
        self.file = Some(passing);
        record.map(|_| ())
    }

    fn row_of(
        &mut self,
        at: &mut CheckPass,
        key: &[u8],
        tag: u8,
        sub: &[u8],
        value: &[u8],
    ) -> Result<(), Corrupt> {
        if at.record.is_none() && !at.dying {
            self.inspector.violation(Violation::RowWithoutRecord { file: at.file.clone(), tag });
        }
        match tag {
            tag if tag == Tag::Record as u8 => {
                self.files += 1;
                if let Some(record) = at.record.clone() {
                    let sound =
                        record.holdings.check().and_then(|()| self.granularity.check(&record.holdings));
                    if let Err(what) = sound {
                        let (file, what) = (at.file.clone(), what.to_string());
                        self.inspector.violation(Violation::Holdings { file, what });
                    }
                    let borrowers = record.holdings.iter().map(|(session, _)| session);
                    for session in borrowers.filter(|session| joint_of(*session).is_some()) {
                        if !self.lent.remove(&(session, at.file.clone())) {
                            let file = at.file.clone();
                            self.inspector.violation(Violation::Lent { file, session });
                        }
                    }
                    for session in record.shields() {
                        self.shield(session, at.file.clone());
                        if !self.sessions.contains(&session) {
                            let file = at.file.clone();
                            self.inspector.violation(Violation::Shield { file, session });
                        }
                    }
                    self.record(&at.file, &record)?;
                }
            }
            tag if tag == Tag::Inline as u8 => {
                at.inline_bytes = value.len() as u64;
                // A link's target is not sealed.
                if let Some(record) = &at.record
                    && record.attributes.kind == FileKind::Regular
                {
                    self.inspector.inline(&record.content, value);
                }
            }
            tag if tag == Tag::Extent as u8 => {
                let extent = extent_from_row(key, value)?;
                let end = extent.offset + u64::from(extent.length);
                let size = at.record.as_ref().map_or(u64::MAX, |record| record.content.size);
                if extent.offset < at.end || end > size {
                    self.inspector.violation(Violation::MisplacedExtent {
                        file: at.file.clone(),
                        offset: extent.offset,
                    });
                }
                self.inspector.extent(&extent);
                at.end = end;
                at.extents += 1;
                at.occupied += u64::from(extent.length);
                if let Place::Share { share, .. } = extent.piece.place {
                    self.shares.entry(share).or_insert_with(|| (at.file.clone(), 0)).1 += 1;
                }
            }
            tag if tag == Tag::Xattr as u8 => at.xattrs += 1,
            tag if tag == Tag::Child as u8 => {
                at.children += 1;
                let label = keys::label_of_child(&at.file, key)?;
                let entry = entry_from_bytes(&at.file, key, value)?;
                self.child(at, &label, &entry)?;
            }
            tag if tag == Tag::Position as u8 => {
                at.positions += 1;
                let position = keys::position_of(&at.file, key)?;
                let label = Label::new(value).map_err(|_| Corrupt::at(key, "label"))?;
                let entry = self.entry(&at.file, &label)?;
                if entry.is_none_or(|entry| entry.position != position) {
                    self.inspector.violation(Violation::PositionMismatch { dir: at.file.clone(), position });
                }
            }
            _ => return Err(Corrupt { key: [key, sub].concat(), what: "tag" }),
        }
        Ok(())
    }

    fn load(&self, file: &FileId) -> Result<Option<Record>, Corrupt> {
        let key = keys::of(file, Tag::Record);
        self.store.get(&key).map(|row| Record::from_bytes(file, &key, &row)).transpose()
    }

    fn entry(&self, dir: &FileId, label: &Label) -> Result<Option<Entry>, Corrupt> {
        let key = keys::child(dir, label);
        self.store.get(&key).map(|row| entry_from_bytes(dir, &key, &row)).transpose()
    }

    fn record(&mut self, file: &FileId, record: &Record) -> Result<(), Corrupt> {
        let listed = self.store.get(&Table::Doomed.key(file.as_bytes())).is_some();
        let root = *file == FileId::root();
        if listed != record.is_doomed() {
            self.inspector.violation(Violation::Doomed {
                file: file.clone(),
                listed,
                links: record.links.len(),
            });
        }
        for link in &record.links {
            if !self.regions.manage(&link.dir) {
                let (dir, label) = (link.dir.clone(), link.label.clone());
                self.inspector.outer_link(OuterEdge { dir, label, file: file.clone() });
                continue;
            }
            let entry = self.entry(&link.dir, &link.label)?;
            if entry.is_none_or(|entry| entry.file != *file) {
                let (dir, label) = (link.dir.clone(), link.label.clone());
                self.inspector.violation(Violation::DanglingLink { file: file.clone(), dir, label });
            }
        }
        // A directory counts one link, of its one parent; the root counts one without a parent.
        let links = if root { 1 } else { record.links.len() as u64 };
        self.count(file, "the number of links", record.attributes.links.into(), links);
        if record.is_directory() && !root && record.links.len() > 1 {
            self.count(file, "the parents of a directory", 1, links);
        }
        let counter = self.next_inode;
        let is_ours = ServerId::of(record.attributes.ino).0 == ServerId::of(counter).0;
        if is_ours && record.attributes.ino >= counter {
            let (what, used) = ("inode number", record.attributes.ino);
            self.inspector.violation(Violation::CounterBehind { file: file.clone(), what, used, counter });
        }
        if record.is_directory() && !record.links.is_empty() {
            self.reach(file)?;
        }
        Ok(())
    }

    fn shield(&mut self, session: SessionId, file: FileId) {
        if !self.shields.remove(&(session, file.clone())) {
            self.shields.insert((session, file));
        }
    }

    /// Whether the way up from `dir` ends at the root.
    fn reach(&mut self, dir: &FileId) -> Result<(), Corrupt> {
        let mut way: FxHashSet<FileId> = FxHashSet::default();
        let mut at = dir.clone();
        // Directories of other servers are those servers' to check.
        while self.regions.manage(&at) && !self.reachable.contains(&at) {
            let next = self.load(&at)?.and_then(|record| record.links.first().map(|link| link.dir.clone()));
            match next {
                Some(next) if way.insert(at.clone()) => at = next,
                _ => {
                    self.inspector.violation(Violation::Unreachable { dir: dir.clone() });
                    return Ok(());
                }
            }
        }
        self.reachable.extend(way);
        Ok(())
    }

    fn child(&mut self, at: &CheckPass, label: &Label, entry: &Entry) -> Result<(), Corrupt> {
        let record = self.load(&entry.file)?;
        let is_outer = !self.regions.manage(&entry.file);
        if is_outer {
            let (dir, label, file) = (at.file.clone(), label.clone(), entry.file.clone());
            self.inspector.outer_label(OuterEdge { dir, label, file });
        }
        let agrees = is_outer
            || record.is_some_and(|record| {
                record.attributes.kind == entry.kind
                    && record.attributes.ino == entry.ino
                    && record.links.iter().any(|link| link.dir == at.file && link.label == *label)
            });
        if !agrees {
            let (dir, label, file) = (at.file.clone(), label.clone(), entry.file.clone());
            self.inspector.violation(Violation::DanglingLabel { dir, label, file });
        }
        let position = self.store.get(&keys::position(&at.file, entry.position));
        if position.as_deref() != Some(label.as_bytes()) {
            self.inspector
                .violation(Violation::PositionMismatch { dir: at.file.clone(), position: entry.position });
        }
        if let Some(record) = &at.record {
            let counter = record.next_integer.min(record.unused_from);
            if entry.position >= counter {
                let (file, what, used) = (at.file.clone(), "position", entry.position);
                self.inspector.violation(Violation::CounterBehind { file, what, used, counter });
            }
        }
        Ok(())
    }

    /// Checks a number of the cluster, of which `last` is the last.
    fn counted(&mut self, what: &'static str, used: u64, last: u64) {
        if used > last {
            let (file, counter) = (FileId::root(), last + 1);
            self.inspector.violation(Violation::CounterBehind { file, what, used, counter });
        }
    }

    fn count(&mut self, file: &FileId, what: &'static str, said: u64, found: u64) {
        if said != found {
            self.inspector.violation(Violation::WrongCount { file: file.clone(), what, said, found });
        }
    }

    fn end_of_file(&mut self) {
        let Some(at) = self.file.take() else { return };
        let Some(record) = &at.record else { return };
        let children = if record.attributes.kind == FileKind::Directory { record.children } else { 0 };
        self.count(&at.file, "the number of children", children, at.children);
        self.count(&at.file, "the number of positions", children, at.positions);
        self.count(&at.file, "the number of attributes", record.xattrs.into(), at.xattrs);
        self.count(&at.file, "the number of extents", record.extents, at.extents);
        self.count(&at.file, "the bytes of inline content", record.inline_bytes.into(), at.inline_bytes);
        if !record.is_directory() {
            let seal = if record.attributes.kind == FileKind::Regular { INLINE_SEAL_BYTES as u64 } else { 0 };
            let occupied = at.occupied + at.inline_bytes.saturating_sub(seal);
            self.count(&at.file, "what is occupied", record.content.occupied, occupied);
        }
    }

    /// Compares the recorded references to shares with those found.
    fn shares(&mut self) {
        let (mut start, end) = Table::Share.range();
        loop {
            let batch = self.store.scan(&start, &end, SCAN);
            let Some((last, _)) = batch.last() else { break };
            start = keys::RowKey::from_slice(last);
            start.push(0);
            for (key, value) in &batch {
                if let Err(corrupt) = self.share(key, value) {
                    self.inspector.violation(corrupt.into());
                }
            }
        }
        for (share, (_, found)) in std::mem::take(&mut self.shares) {
            self.inspector.violation(Violation::ShareReferences { share, said: 0, found });
        }
    }

    fn share(&mut self, key: &[u8], value: &[u8]) -> Result<(), Corrupt> {
        let share = Table::Share.share(key)?;
        let row = ShareRow::from_bytes(value).ok_or_else(|| Corrupt::at(key, "share"))?;
        if !self.regions.manage(&row.file) {
            return Ok(());
        }
        let found =
            self.shares.remove(&share).filter(|(file, _)| *file == row.file).map_or(0, |(_, found)| found);
        if found != row.references || found == 0 {
            self.inspector.violation(Violation::ShareReferences { share, said: row.references, found });
        }
        Ok(())
    }
}
