//! The leases that are to be released, and what each of them waits for.

use crate::server::ServerId;
use ident::FileId;
use lease::{Field, Released};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// How often content that was written while its pages were dropped is published and dropped again.
/// After that writers have to wait.
pub(super) const ROUNDS_MAX: u8 = 2;

/// Why a lease is to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The server recalled it and waits for an answer, even if the client no longer holds it by
    /// then.
    Recalled,
    /// The server wishes for it, ahead of another client's walk.
    WishedFor,
    /// This client holds too many of its kind.
    TooMany,
}

/// A lease that is to be released and is still held.
#[derive(Debug)]
pub(crate) struct ReleaseUnderway {
    pub released: Released,
    pub cause: Cause,
    /// The server that gets the release.
    pub server: ServerId,
    /// How often front doors have dropped their pages for it.
    pub rounds: u8,
    stage: ReleaseStage,
}

/// How far a release is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseStage {
    /// It waits for content to be published.
    Publishing,
    /// It waits for front doors to revoke it: the number of the revocation.
    Dropping(u64),
}

impl ReleaseUnderway {
    pub(super) fn is_recalled(&self) -> bool {
        self.cause == Cause::Recalled
    }

    fn lease(&self) -> (FileId, Field) {
        (self.released.file.clone(), self.released.field.clone())
    }
}

/// A report of content that waits for it to be published.
#[derive(Debug)]
pub(crate) struct Flushing {
    /// The server that asks, and its number for the report.
    pub server: ServerId,
    pub number: u64,
    pub file: FileId,
    /// The file is to be in write-through mode from then on, if it may be.
    pub write_through: bool,
}

/// Leases on their way back to the server. A region that is handed over takes back those of a
/// hundred thousand files at once: no step looks at all of them.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    /// By lease: each is released once.
    underway: BTreeMap<(FileId, Field), ReleaseUnderway>,
    /// The leases that wait for content to be published, as they came. Some may be further.
    publishing: Vec<(FileId, Field)>,
    /// The leases that wait for a revocation. Some may be recalled anew, and wait for another one.
    dropping: BTreeMap<u64, Vec<(FileId, Field)>>,
    /// Reports that wait for a revocation.
    pub(super) reporting: BTreeMap<u64, Flushing>,
    /// Requests that wait for a revocation: their numbers.
    pub shipping: BTreeMap<u64, u64>,
    /// Reports that wait for content to be published.
    pub(super) flushing: Vec<Flushing>,
}

impl Revocations {
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &ReleaseUnderway> {
        self.underway.values()
    }

    /// Whether writers of `file` have to wait until its content is released. Otherwise no other
    /// client would ever get it.
    ///
    /// Writers go on while the pages are being dropped for the first times: a write holds its pages
    /// locked until it is answered.
    pub(crate) fn holds_up_writes(&self, file: &FileId) -> bool {
        if self.underway.is_empty() {
            return false;
        }
        let of_content = self.underway.get(&(file.clone(), Field::Content));
        of_content.is_some_and(|underway| {
            let waits = underway.stage == ReleaseStage::Publishing || underway.rounds > ROUNDS_MAX;
            underway.is_recalled() && waits
        })
    }

    /// Takes recalls. A recall replaces an earlier one of the same lease that kept something else.
    /// Over a new connection the server repeats unanswered recalls, and a repetition changes
    /// nothing.
    pub(crate) fn recall(&mut self, server: ServerId, due: Vec<Released>) {
        for released in due {
            let before = self.underway.get(&(released.file.clone(), released.field.clone()));
            if before.is_none_or(|it| !it.is_recalled() || it.released != released) {
                self.begin(server, released, Cause::Recalled);
            }
        }
    }

    /// Adds releases that the client does not owe.
    pub(super) fn offer(&mut self, server: ServerId, mut due: Vec<Released>, cause: Cause) {
        due.sort();
        for released in due {
            if !self.underway.contains_key(&(released.file.clone(), released.field.clone())) {
                self.begin(server, released, cause);
            }
        }
    }

    fn begin(&mut self, server: ServerId, released: Released, cause: Cause) {
        let underway =
            ReleaseUnderway { released, cause, server, rounds: 0, stage: ReleaseStage::Publishing };
        self.publish(underway);
    }

    /// Has a release wait for content to be published, at first or once more.
    pub(super) fn publish(&mut self, underway: ReleaseUnderway) {
        self.publishing.push(underway.lease());
        let underway = ReleaseUnderway { stage: ReleaseStage::Publishing, ..underway };
        self.underway.insert(underway.lease(), underway);
    }

    /// Has releases wait for the revocation `number`.
    pub(super) fn drop_at(&mut self, number: u64, dropping: Vec<ReleaseUnderway>) {
        let leases = dropping.iter().map(ReleaseUnderway::lease).collect();
        self.dropping.insert(number, leases);
        for underway in dropping {
            let underway = ReleaseUnderway { stage: ReleaseStage::Dropping(number), ..underway };
            self.underway.insert(underway.lease(), underway);
        }
    }

    /// Takes out those that wait for content to be published, as they came.
    pub(super) fn take_publishing(&mut self) -> Vec<ReleaseUnderway> {
        let leases = std::mem::take(&mut self.publishing);
        self.take(leases, ReleaseStage::Publishing)
    }

    /// Takes out those that wait for the revocation `number`.
    pub(super) fn take_dropped(&mut self, number: u64) -> Vec<ReleaseUnderway> {
        let leases = self.dropping.remove(&number).unwrap_or_default();
        self.take(leases, ReleaseStage::Dropping(number))
    }

    fn take(&mut self, leases: Vec<(FileId, Field)>, stage: ReleaseStage) -> Vec<ReleaseUnderway> {
        let taken = leases.into_iter().filter_map(|lease| match self.underway.entry(lease) {
            Entry::Occupied(underway) if underway.get().stage == stage => Some(underway.remove()),
            _ => None,
        });
        taken.collect()
    }

    /// Drops the pending releases that `released` covers, which this client released unasked. The
    /// server takes these for the answers to its recalls, and expects no other. Returns whether any
    /// of them was recalled.
    pub(crate) fn released(&mut self, released: &[Released]) -> bool {
        let mut any_recalled = false;
        if self.underway.is_empty() {
            return false;
        }
        for released in released {
            if let Entry::Occupied(due) = self.underway.entry((released.file.clone(), released.field.clone()))
                && answers(released, &due.get().released)
            {
                any_recalled |= due.remove().is_recalled();
            }
        }
        any_recalled
    }

    /// Forgets what was to be released or reported to a server whose session is over, and the
    /// requests of that session. The client may know nothing of a file any more whose lease was
    /// recalled.
    pub(crate) fn forget(&mut self, server: ServerId, asked: impl Fn(u64) -> bool) {
        self.underway.retain(|_, underway| underway.server != server);
        self.reporting.retain(|_, flushing| flushing.server != server);
        self.flushing.retain(|flushing| flushing.server != server);
        self.shipping.retain(|_, number| !asked(*number));
    }
}

/// Whether a release answers a recall. It is of the same lease, and keeps no more than the recall
/// allows.
pub(crate) fn answers(released: &Released, recalled: &Released) -> bool {
    (&released.file, &released.field) == (&recalled.file, &recalled.field)
        && released.keep.and_then(|kind| kind.within(recalled.keep)) == released.keep
}
