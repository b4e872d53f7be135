//! The two kinds of knowledge that a server decides with: its own state, and the part of it that a
//! client's leases let that client know.

use crate::joint::joint_of;
use crate::paths::WayUp;
use crate::rows::files::Files;
use ident::FileId;
use lease::{Field, Kind, Label, SessionId};
use namespace::{
    Attributes, ContentHead, Disposition, Entry, FileKind, Knowledge, Known, Links, Locks, Times, fold,
};
use std::sync::Arc;

/// The authoritative state, as seen by a request of `session`.
pub(crate) struct Authority<'a, 's> {
    pub files: &'a Files<'s>,
    pub session: SessionId,
    /// Whether the server decides for itself: then the asker's own values count in the aggregates
    /// of black boxes.
    pub for_itself: bool,
}

impl Authority<'_, '_> {
    /// A value of `file`. Of a file that another server manages this one knows nothing: neither
    /// that the file is gone, nor what rows say that are still to be deleted.
    fn of<T>(&self, file: &FileId, value: Option<T>) -> Known<T> {
        match value {
            _ if !self.files.regions.manage(file) => Known::Unknown,
            Some(value) => Known::Used(value),
            None => Known::Unused,
        }
    }
}

impl Knowledge for Authority<'_, '_> {
    fn attributes(&self, file: &FileId, _: Kind) -> Known<Attributes> {
        self.of(file, self.files.record(file).map(|record| record.attributes))
    }

    fn content(&self, file: &FileId, _: Kind) -> Known<ContentHead> {
        self.of(file, self.files.record(file).map(|record| record.content))
    }

    fn inline(&self, file: &FileId) -> Known<Vec<u8>> {
        self.of(file, self.files.record(file).map(|_| self.files.inline(file)))
    }

    fn times(&self, dir: &FileId, _: Kind) -> Known<Times> {
        self.of(dir, self.files.record(dir).map(|record| record.times))
    }

    fn links(&self, file: &FileId, _: Kind) -> Known<Links> {
        self.of(file, self.files.record(file).map(|record| record.links.clone()))
    }

    fn child(&self, dir: &FileId, label: &Label, _: Kind) -> Known<Entry> {
        self.of(dir, self.files.child(dir, label))
    }

    fn childless(&self, dir: &FileId, _: Kind) -> Known<bool> {
        self.of(dir, self.files.record(dir).map(|record| record.children == 0))
    }

    fn xattr(&self, file: &FileId, name: &Label, _: Kind) -> Known<Vec<u8>> {
        self.of(file, self.files.xattr(file, name))
    }

    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>> {
        let sizes = || self.files.xattrs(file).into_iter().map(|(name, value)| (name, value.len())).collect();
        self.of(file, self.files.record(file).map(|_| sizes()))
    }

    fn disposition(&self, file: &FileId, _: Kind) -> Known<Option<Disposition>> {
        self.of(file, self.files.record(file).map(|record| record.disposition.as_deref().cloned()))
    }

    fn locks(&self, file: &FileId, _: Kind) -> Known<Arc<Locks>> {
        self.of(file, self.files.record(file).map(|record| Arc::new(record.locks.seen_by(&self.session))))
    }

    /// While another session may change the value, not even the server knows it: the sessions with
    /// authority over the values have to be asked first.
    fn others(&self, file: &FileId, field: &Field) -> Known<bool> {
        let Some(record) = self.files.record(file) else { return self.of(file, None) };
        let black_box = record.holdings.black_box(field);
        let known = if self.for_itself { black_box.everyone() } else { black_box.others(self.session) };
        known.map_or(Known::Unknown, Known::Used)
    }

    /// The server walks up its own directories, which nobody else can move. Above them a path lease
    /// tells it (Farsite §4.3).
    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> Known<bool> {
        let may_move = |at: &FileId| self.files.paths.is_moved_by_another(at, joint_of(self.session));
        match self.files.climb(dir, |at| at == ancestor || may_move(at)) {
            WayUp::Stopped(at) if at == *ancestor => Known::Used(true),
            WayUp::Stopped(_) | WayUp::Elsewhere(_) => Known::Unknown,
            WayUp::Held(held) => Known::Used(held.above.contains(ancestor)),
            WayUp::Root => Known::Used(false),
            WayUp::Nameless(at) => self.of(&at, self.files.record(&at).map(|_| false)),
            WayUp::Endless => Known::Used(true),
        }
    }

    /// All authority that no other session has is here. (With coarser leases more leases are in the
    /// way, and none fewer.)
    fn holds(&self, file: &FileId, field: &Field, kind: Kind) -> bool {
        self.files.holdings(file).in_the_way(self.session, field, kind).is_empty()
    }
}

/// The knowledge that `session` has by its leases. A decision on this knowledge is one that the
/// session may have made itself. Decisions are monotone, so it does not matter whether the session
/// really knew that much (Farsite §6: "I know that the client knew").
pub(crate) struct Replay<'a, 's> {
    pub authority: Authority<'a, 's>,
}

impl Replay<'_, '_> {
    fn masked<T>(
        &self,
        file: &FileId,
        field: &Field,
        kind: Kind,
        value: impl FnOnce(&Authority<'_, '_>) -> Known<T>,
    ) -> Known<T> {
        if self.holds(file, field, kind) {
            value(&self.authority)
        } else if self.authority.files.record(file).is_none() && self.authority.files.regions.manage(file) {
            // Identifiers are never reused: a client that once learnt that a file is gone knows it
            // for ever, without a lease.
            Known::Unused
        } else {
            Known::Unknown
        }
    }
}

impl Knowledge for Replay<'_, '_> {
    fn attributes(&self, file: &FileId, kind: Kind) -> Known<Attributes> {
        self.masked(file, &Field::Attributes, kind, |all| all.attributes(file, kind))
    }

    fn kind(&self, file: &FileId) -> Known<FileKind> {
        self.authority.kind(file)
    }

    fn content(&self, file: &FileId, kind: Kind) -> Known<ContentHead> {
        self.masked(file, &Field::Content, kind, |all| all.content(file, kind))
    }

    fn inline(&self, file: &FileId) -> Known<Vec<u8>> {
        self.masked(file, &Field::Content, Kind::Read, |all| all.inline(file))
    }

    fn times(&self, dir: &FileId, kind: Kind) -> Known<Times> {
        self.masked(dir, &Field::Times, kind, |all| all.times(dir, kind))
    }

    fn links(&self, file: &FileId, kind: Kind) -> Known<Links> {
        self.masked(file, &Field::Parent, kind, |all| all.links(file, kind))
    }

    fn child(&self, dir: &FileId, label: &Label, kind: Kind) -> Known<Entry> {
        self.masked(dir, &Field::Child(fold(label)), kind, |all| all.child(dir, label, kind))
    }

    fn childless(&self, dir: &FileId, kind: Kind) -> Known<bool> {
        self.masked(dir, &Field::Children, kind, |all| all.childless(dir, kind))
    }

    fn xattr(&self, file: &FileId, name: &Label, kind: Kind) -> Known<Vec<u8>> {
        self.masked(file, &Field::Xattr(name.clone()), kind, |all| all.xattr(file, name, kind))
    }

    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>> {
        self.masked(file, &Field::Xattrs, Kind::Read, |all| all.xattrs(file))
    }

    fn disposition(&self, file: &FileId, kind: Kind) -> Known<Option<Disposition>> {
        self.masked(file, &Field::Disposition, kind, |all| all.disposition(file, kind))
    }

    fn locks(&self, file: &FileId, kind: Kind) -> Known<Arc<Locks>> {
        self.masked(file, &Field::Locks, kind, |all| all.locks(file, kind))
    }

    fn others(&self, file: &FileId, field: &Field) -> Known<bool> {
        self.masked(file, field, Kind::Read, |all| all.others(file, field))
    }

    /// No client holds a path lease.
    fn is_above(&self, _: &FileId, _: &FileId) -> Known<bool> {
        Known::Unknown
    }

    fn holds(&self, file: &FileId, field: &Field, kind: Kind) -> bool {
        self.authority.files.holdings(file).covers(self.authority.session, field, kind)
    }
}
