//! What tests of several modules begin with.

use crate::Now;
use ident::FileId;
use lease::{Field, Kind, Time};
use namespace::{Attributes, FileKind, Rules, Timestamp};
use wire::{FileGrant, Rights, Space, ToClient, Values};

pub(crate) fn at(ms: u64) -> Now {
    Now { time: Time(ms), wall: Timestamp::default() }
}

/// A session begins, with all rights and nothing set aside.
pub(crate) fn opened() -> ToClient {
    ToClient::Opened {
        inodes: (2, 9),
        allowance: (0, 0),
        space: Space::default(),
        term_ms: 30_000,
        rules: Rules::NEWEST.number(),
        rights: Rights::FULL,
    }
}

/// A directory without entries, and all of it known.
pub(crate) fn empty(dir: &FileId) -> FileGrant {
    let (kind, mode, links, ino) = (FileKind::Directory, 0o755, 1, 2);
    let time = Timestamp::default();
    let attributes =
        Attributes { kind, mode, uid: 0, gid: 0, links, ino, rdev: 0, ctime: time, btime: time, atime: time };
    let values =
        Values { attributes: Some(attributes), children_through: Some(u64::MAX), ..Values::default() };
    let fields = vec![(Field::Attributes, Kind::Read), (Field::Children, Kind::Read)];
    let (excluded, excluded_xattrs) = (Vec::new(), Vec::new());
    FileGrant { file: dir.clone(), whole: false, fields, excluded, excluded_xattrs, values }
}
