//! Recalls that are not answered yet.

use crate::{Field, Kind, Released, SessionId, Time};
use ident::FileId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The recalls that were sent and not answered. No recall is sent twice, and a new leader knows
/// which ones to send once more.
///
/// A release of the same field, down to what the recall lets the holder keep, answers it. That
/// holds even if the lease is no longer held. Only a lease with an unanswered recall may be
/// released without being held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalls(BTreeMap<FileId, BTreeMap<(SessionId, Field), Recall>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Recall {
    /// The kind that the holder may keep.
    keep: Option<Kind>,
    /// When the recall was first sent.
    since: Time,
    /// Since when the holder could answer: `since`, or the start of the latest leader.
    told: Time,
}

impl Recalls {
    /// Notes that `session` has to release `field` down to `keep`, and returns the recall to send.
    /// Returns None if that recall was sent already. If `session` has an open recall of this field
    /// with another `keep`, the new recall combines both.
    pub fn recall(
        &mut self,
        now: Time,
        session: SessionId,
        file: &FileId,
        field: &Field,
        keep: Option<Kind>,
    ) -> Option<Released> {
        let of_file = self.0.entry(file.clone()).or_default();
        let keep = match of_file.get_mut(&(session, field.clone())) {
            Some(recall) => {
                let lower = recall.keep.and_then(|told| told.within(keep));
                if lower == recall.keep {
                    return None;
                }
                recall.keep = lower;
                lower
            }
            None => {
                of_file.insert((session, field.clone()), Recall { keep, since: now, told: now });
                keep
            }
        };
        Some(Released { file: file.clone(), field: field.clone(), keep })
    }

    /// Notes that `session` released `field` down to `keep`. If that answers a recall, returns the
    /// time when it was first sent.
    pub fn released(
        &mut self,
        session: SessionId,
        file: &FileId,
        field: &Field,
        keep: Option<Kind>,
    ) -> Option<Time> {
        let of_file = self.0.get_mut(file)?;
        let key = (session, field.clone());
        let recall = of_file.get(&key)?;
        let answers = keep.and_then(|kind| kind.within(recall.keep)) == keep;
        let since = answers.then(|| of_file.remove(&key)).flatten().map(|recall| recall.since);
        self.tidy(file);
        since
    }

    /// Returns whether `session` owes an answer to a recall of `field`.
    pub fn is_owed(&self, session: SessionId, file: &FileId, field: &Field) -> bool {
        self.0.get(file).is_some_and(|of_file| of_file.contains_key(&(session, field.clone())))
    }

    /// Notes that `session` is granted `kind` on the black box `field`. One of its two leases may
    /// be under recall meanwhile; the recall no longer includes the granted one. (For a shared
    /// value, the owed answer releases also what is granted before the answer comes.)
    pub fn granted(&mut self, session: SessionId, file: &FileId, field: &Field, kind: Kind) {
        let of_file = self.0.get_mut(file).filter(|_| field.is_black_box());
        if let Some(recall) = of_file.and_then(|of_file| of_file.get_mut(&(session, field.clone()))) {
            recall.keep = Some(recall.keep.map_or(kind, |keep| keep.and(kind)));
        }
    }

    /// Forgets `file`, which is deleted.
    pub fn forget(&mut self, file: &FileId) {
        self.0.remove(file);
    }

    /// Forgets `session`, which is over. Returns the files of its recalls, so that the requests
    /// waiting for them are tried again.
    pub fn end(&mut self, session: SessionId) -> Vec<FileId> {
        let mut files = Vec::new();
        self.0.retain(|file, of_file| {
            let before = of_file.len();
            of_file.retain(|(holder, _), _| *holder != session);
            if of_file.len() < before {
                files.push(file.clone());
            }
            !of_file.is_empty()
        });
        files
    }

    /// Returns the unanswered recalls with their sessions, in the order of files.
    pub fn unanswered(&self) -> impl Iterator<Item = (SessionId, Released)> + '_ {
        self.open().map(|(file, (session, field), recall)| {
            (*session, Released { file: file.clone(), field: field.clone(), keep: recall.keep })
        })
    }

    /// Returns the unanswered recalls of `file`: session, field, what may be kept, and since when.
    pub fn unanswered_of(
        &self,
        file: &FileId,
    ) -> impl Iterator<Item = (SessionId, &Field, Option<Kind>, Time)> {
        let of_file = self.0.get(file).into_iter().flatten();
        of_file.map(|((session, field), recall)| (*session, field, recall.keep, recall.since))
    }

    /// Returns the number of files with unanswered recalls.
    pub fn files(&self) -> usize {
        self.0.len()
    }

    /// Returns since when each session has owed an answer.
    pub fn owed_since(&self) -> BTreeMap<SessionId, Time> {
        let mut owed = BTreeMap::new();
        for (_, (session, _), recall) in self.open() {
            let since = owed.entry(*session).or_insert(recall.since);
            *since = recall.since.min(*since);
        }
        owed
    }

    /// Notes that a new leader sends all recalls again. The time before counts for nothing, since
    /// holders may have heard no recall.
    pub fn tell_again(&mut self, now: Time) {
        self.0.values_mut().flat_map(BTreeMap::values_mut).for_each(|recall| recall.told = now);
    }

    /// Returns each session that owes an answer, and since when it could give that answer.
    pub fn owed(&self) -> impl Iterator<Item = (SessionId, Time)> + '_ {
        self.open().map(|(_, (session, _), recall)| (*session, recall.told))
    }

    fn open(&self) -> impl Iterator<Item = (&FileId, &(SessionId, Field), &Recall)> {
        self.0.iter().flat_map(|(file, of_file)| of_file.iter().map(move |(key, recall)| (file, key, recall)))
    }

    fn tidy(&mut self, file: &FileId) {
        if self.0.get(file).is_some_and(BTreeMap::is_empty) {
            self.0.remove(file);
        }
    }
}
