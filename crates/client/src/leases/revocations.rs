//! The leases that are to be released, and what each of them waits for.

use crate::server::ServerId;
use ident::FileId;
use lease::{Field, Released};
use std::collections::{BTreeMap, BTreeSet};

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
}

impl ReleaseUnderway {
    pub(super) fn is_recalled(&self) -> bool {
        self.cause == Cause::Recalled
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

/// Leases on their way back to the server.
#[derive(Debug, Default)]
pub(crate) struct Revocations {
    /// Leases that wait for content to be published.
    pub(super) publishing: Vec<ReleaseUnderway>,
    /// Leases that wait for front doors to revoke them, by the number of the revocation.
    pub(super) dropping: BTreeMap<u64, Vec<ReleaseUnderway>>,
    /// Reports that wait for a revocation.
    pub(super) reporting: BTreeMap<u64, Flushing>,
    /// Requests that wait for a revocation: their numbers.
    pub shipping: BTreeMap<u64, u64>,
    /// Reports that wait for content to be published.
    pub(super) flushing: Vec<Flushing>,
}

impl Revocations {
    pub(super) fn all(&self) -> impl Iterator<Item = &ReleaseUnderway> {
        self.publishing.iter().chain(self.dropping.values().flatten())
    }

    /// Whether writers of `file` have to wait until its content is released. Otherwise no other
    /// client would ever get it.
    ///
    /// Writers go on while the pages are being dropped for the first times: a write holds its pages
    /// locked until it is answered.
    pub(crate) fn holds_up_writes(&self, file: &FileId) -> bool {
        let of_file = |y: &&ReleaseUnderway| {
            y.is_recalled() && y.released.field == Field::Content && y.released.file == *file
        };
        self.publishing.iter().any(|y| of_file(&y))
            || self.dropping.values().flatten().filter(of_file).any(|y| y.rounds > ROUNDS_MAX)
    }

    /// Takes recalls. A recall replaces an earlier one of the same lease that kept something else.
    /// Over a new connection the server repeats unanswered recalls, and a repetition changes
    /// nothing.
    pub(crate) fn recall(&mut self, server: ServerId, mut due: Vec<Released>) {
        let told: BTreeSet<&Released> =
            self.all().filter(|y| y.is_recalled()).map(|underway| &underway.released).collect();
        due.retain(|released| !told.contains(released));
        let leases: BTreeSet<(&FileId, &Field)> = due.iter().map(lease).collect();
        self.retain(|before| !leases.contains(&lease(&before.released)));
        self.begin(server, due, Cause::Recalled);
    }

    /// Adds releases that the client does not owe.
    pub(super) fn offer(&mut self, server: ServerId, mut due: Vec<Released>, cause: Cause) {
        let leases: BTreeSet<(&FileId, &Field)> = self.all().map(|y| lease(&y.released)).collect();
        due.retain(|released| !leases.contains(&lease(released)));
        due.sort_by(|one, other| lease(one).cmp(&lease(other)));
        due.dedup_by(|one, other| lease(one) == lease(other));
        self.begin(server, due, cause);
    }

    pub(super) fn begin(&mut self, server: ServerId, due: Vec<Released>, cause: Cause) {
        let underway = |released| ReleaseUnderway { released, cause, server, rounds: 0 };
        self.publishing.extend(due.into_iter().map(underway));
    }

    /// Drops the pending releases that `released` covers, which this client released unasked. The
    /// server takes these for the answers to its recalls, and expects no other. Returns whether any
    /// of them was recalled.
    pub(crate) fn released(&mut self, released: &[Released]) -> bool {
        let recalled = |revocations: &Revocations| revocations.all().filter(|y| y.is_recalled()).count();
        let before = recalled(self);
        if self.all().next().is_some() {
            self.retain(|due| !released.iter().any(|released| answers(released, &due.released)));
        }
        recalled(self) < before
    }

    /// Forgets what was to be released or reported to a server whose session is over, and the
    /// requests of that session. The client may know nothing of a file any more whose lease was
    /// recalled.
    pub(crate) fn forget(&mut self, server: ServerId, asked: impl Fn(u64) -> bool) {
        self.retain(|y| y.server != server);
        self.reporting.retain(|_, flushing| flushing.server != server);
        self.flushing.retain(|flushing| flushing.server != server);
        self.shipping.retain(|_, number| !asked(*number));
    }

    fn retain(&mut self, keep: impl Fn(&ReleaseUnderway) -> bool) {
        self.publishing.retain(&keep);
        self.dropping.values_mut().for_each(|dropping| dropping.retain(&keep));
    }
}

fn lease(released: &Released) -> (&FileId, &Field) {
    (&released.file, &released.field)
}

/// Whether a release answers a recall. It is of the same lease, and keeps no more than the recall
/// allows.
pub(crate) fn answers(released: &Released, recalled: &Released) -> bool {
    lease(released) == lease(recalled)
        && released.keep.and_then(|kind| kind.within(recalled.keep)) == released.keep
}
