//! Path leases (Farsite §4.3): what a server knows of the directories above another server's
//! directory (docs/internals/server.md, "Path leases").
//!
//! Within a server ancestors are walked. Where the walk leaves the server, it goes on in a path
//! lease: the identifiers of all directories above, issued by the server of the directory that the
//! walk has come to. That server needs a path lease itself if its own walk leaves it. So leases are
//! recursive, and each server deals only with those that have children of its directories. A lease
//! is cached, and lasts until it is recalled. It is recalled, and all that were issued on it first,
//! before any of these directories gets another parent.
//!
//! * `issuer`: issuing leases, and recalling them.
//! * `holder`: asking for leases, and giving them back.
//! * `messages`: what servers say to each other.

mod holder;
mod issuer;
mod messages;

use crate::rows::files::Files;
use ident::{FileId, ServerId};
use lease::Time;
use namespace::Effect;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{JointAge, JointId};

/// Directories between a file and the root, at most; a longer chain is a loop.
pub(crate) const DEPTH_MAX: usize = 1 << 16;

/// The path leases of a server, and those that it has issued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathLeases {
    /// The number of the latest question.
    latest: u64,
    /// The leases that this server holds, by directory.
    held: BTreeMap<FileId, HeldPath>,
    /// Questions of this server without an answer, by directory.
    asked: BTreeMap<FileId, AskedPath>,
    /// The leases that others hold of this server, by directory and holder.
    issued: BTreeMap<(FileId, ServerId), IssuedPath>,
    /// Questions of others that wait.
    wanted: BTreeMap<(FileId, ServerId), WantedPath>,
    /// Directories that are about to get another parent, each by a joint operation. No lease is
    /// issued that one of them is in.
    moving: BTreeMap<FileId, JointId>,
    /// When messages were last said again.
    said: Time,
}

/// A lease that this server holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldPath {
    issuer: ServerId,
    number: u64,
    /// The directories above, the nearest first.
    pub above: Vec<FileId>,
    /// Whether the issuer wants it back.
    is_recalled: bool,
}

/// A question of this server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AskedPath {
    of: ServerId,
    number: u64,
    /// The age of the oldest joint operation that waits.
    age: Option<JointAge>,
}

/// A lease that another server holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IssuedPath {
    number: u64,
    is_recalled: bool,
}

/// A question of another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WantedPath {
    number: u64,
    age: Option<JointAge>,
}

impl PathLeases {
    /// The leases that this server holds.
    pub fn held(&self) -> impl Iterator<Item = (&FileId, &[FileId])> {
        self.held.iter().map(|(dir, held)| (dir, held.above.as_slice()))
    }

    /// The directories above another server's directory, the nearest first, if a lease on it is
    /// held.
    pub fn above(&self, dir: &FileId) -> Option<&[FileId]> {
        self.held.get(dir).map(|held| held.above.as_slice())
    }

    /// Whether anything is asked for or recalled, by this server or of it.
    pub fn are_asked_for(&self) -> bool {
        !self.asked.is_empty()
            || !self.wanted.is_empty()
            || self.issued.values().any(|issued| issued.is_recalled)
            || self.held.values().any(|held| held.is_recalled)
    }

    /// The operation that is about to give `dir` another parent.
    pub fn moved_by(&self, dir: &FileId) -> Option<JointId> {
        self.moving.get(dir).copied()
    }

    /// Whether an operation other than `op` may be about to give `dir` another parent.
    pub fn is_moved_by_another(&self, dir: &FileId, op: Option<JointId>) -> bool {
        self.moved_by(dir).is_some_and(|by| Some(by) != op)
    }

    /// The operation is over, and moves nothing any more. Whether it was about to.
    pub fn end_moves(&mut self, op: JointId) -> bool {
        let before = self.moving.len();
        self.moving.retain(|_, by| *by != op);
        self.moving.len() < before
    }
}

/// Where a walk up from a directory ends.
pub(crate) enum WayUp<'a> {
    /// At this directory the walk was to stop.
    Stopped(FileId),
    /// At the root.
    Root,
    /// At a directory of another server, on which this one holds a lease.
    Held(&'a HeldPath),
    /// At a directory of another server, on which this one holds no lease.
    Elsewhere(FileId),
    /// At a directory that has no name, or is gone.
    Nameless(FileId),
    /// Nowhere within [`DEPTH_MAX`].
    Endless,
}

impl Files<'_> {
    /// Walks up from `dir` over this server's directories, to the first of another server at most.
    pub fn climb(&self, dir: &FileId, mut stops: impl FnMut(&FileId) -> bool) -> WayUp<'_> {
        let mut at = dir.clone();
        for _ in 0..DEPTH_MAX {
            if stops(&at) {
                return WayUp::Stopped(at);
            }
            if !self.regions.manage(&at) {
                return self.paths.held.get(&at).map_or(WayUp::Elsewhere(at), WayUp::Held);
            }
            let above = self.record(&at).and_then(|record| Some(record.links.first()?.dir.clone()));
            match above {
                Some(above) => at = above,
                None if at == FileId::root() => return WayUp::Root,
                None => return WayUp::Nameless(at),
            }
        }
        WayUp::Endless
    }

    /// The directory that the effect gives another parent.
    pub fn moved_directory<'e>(&self, effect: &'e Effect) -> Option<&'e FileId> {
        let Effect::AddLink { file, link } = effect else { return None };
        let record = self.record(file)?;
        let stays = record.links.iter().all(|old| old.dir == link.dir);
        (record.is_directory() && !stays).then_some(file)
    }

    /// Whether the walk up from `dir` comes by `other` before it leaves this server, or there.
    fn comes_by(&self, dir: &FileId, other: &FileId) -> bool {
        matches!(self.climb(dir, |at| at == other), WayUp::Stopped(_))
    }
}
