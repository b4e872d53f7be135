//! The fields that were recalled lately: they are granted narrowly, and those that pass to and fro
//! are reported.

use ident::FileId;
use lease::{Field, Label, SessionId, Time};
use namespace::{Attributes, ContentHead, Times};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Recently recalled labels that make a directory one in which several machines work at once.
pub(crate) const CROWDED: usize = 8;

/// The time after a recall for which a field counts as contended, and is granted narrowly, ms.
const CONTENDED_MS: u64 = 10_000;
/// Contended fields that are remembered.
const CONTENDED_MAX: usize = 4096;
/// Recalls of a field, each within that time of the last, that make it ping-pong.
const RECALLS: u8 = 2;
/// The same for attributes. A file that one machine makes, and of which another changes the mode
/// once, is not ping-pong: those who watch the file want the lease.
const ATTRIBUTE_RECALLS: u8 = 6;
/// Unchanged reports of a ping-pong field in a row. After these the field is no longer ping-pong,
/// and the next asker gets the lease.
const TOLD_UNCHANGED_MAX: u8 = 3;

/// A field that was recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contended {
    /// When it was last recalled.
    at: Time,
    /// The session whose requests needed it; absent if it was recalled for several sessions.
    asker: Option<SessionId>,
    /// The time that the last answer to a recall took, ms.
    took_ms: Option<u64>,
    /// The number of recalls, each while the field was contended.
    recalls: u8,
    /// The value reported since, and how often it was the same as the time before.
    told: Option<(ReportedValue, u8)>,
}

/// A value that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReportedValue {
    Attributes(Attributes),
    Content(ContentHead),
    Times(Times),
}

/// The memory of recalls. It is part of the replicated state, since it decides what is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contention(BTreeMap<(FileId, Field), Contended>);

impl Contention {
    /// Notes that `field` is recalled for `asker`.
    pub fn recalled(&mut self, now: Time, asker: SessionId, file: &FileId, field: &Field) {
        if self.0.len() >= CONTENDED_MAX {
            self.0.retain(|_, contended| now.ms_since(contended.at) < CONTENDED_MS);
        }
        if self.0.len() < CONTENDED_MAX {
            let asker = Some(asker);
            let new = Contended { at: now, asker, took_ms: None, recalls: 0, told: None };
            let contended = self.0.entry((file.clone(), field.clone())).or_insert(new);
            if now.ms_since(contended.at) >= CONTENDED_MS {
                (contended.recalls, contended.asker) = (0, asker);
            }
            contended.asker = contended.asker.filter(|before| Some(*before) == asker);
            (contended.at, contended.told) = (now, None);
            contended.recalls = contended.recalls.saturating_add(1);
        }
    }

    /// Notes the time that the answer to a recall of `field` took.
    pub fn answered(&mut self, file: &FileId, field: &Field, took_ms: u64) {
        if let Some(contended) = self.0.get_mut(&(file.clone(), field.clone())) {
            contended.took_ms = Some(took_ms);
        }
    }

    /// Whether `field` is ping-pong: it was recalled again and again, and changes between one asker
    /// and the next.
    pub fn is_ping_pong(&self, now: Time, file: &FileId, field: &Field) -> bool {
        self.0.get(&(file.clone(), field.clone())).is_some_and(|contended| {
            let changes = contended.told.is_none_or(|(_, unchanged)| unchanged < TOLD_UNCHANGED_MAX);
            let recalls = if *field == Field::Attributes { ATTRIBUTE_RECALLS } else { RECALLS };
            contended.recalls >= recalls && changes && now.ms_since(contended.at) < CONTENDED_MS
        })
    }

    /// Notes the value that was reported of `field`.
    pub fn reported(&mut self, now: Time, file: &FileId, field: &Field, value: ReportedValue) {
        if let Some(contended) = self.0.get_mut(&(file.clone(), field.clone())) {
            let before = contended.told.filter(|(told, _)| *told == value);
            let unchanged = before.map_or(0, |(_, unchanged)| unchanged.saturating_add(1));
            (contended.at, contended.told) = (now, Some((value, unchanged)));
        }
    }

    /// The time that the last recall of `field` took, ms, as far as it is remembered.
    pub fn last_recall_ms(&self, file: &FileId, field: &Field) -> Option<u64> {
        self.0.get(&(file.clone(), field.clone())).and_then(|contended| contended.took_ms)
    }

    /// Whether this field was recalled lately. Names that `session` goes on taking
    /// ([`Contention::takes_alone`]) do not count.
    pub fn is_contended(&self, now: Time, session: SessionId, file: &FileId, field: &Field) -> bool {
        let of_names = matches!(field, Field::Child(_) | Field::Children);
        self.contended_of(now, file).any(|(contended, it)| {
            contended == field
                && !(of_names && it.asker == Some(session) && self.takes_alone(now, session, file))
        })
    }

    /// Whether any field of `file` was recalled lately.
    pub fn is_contended_anywhere(&self, now: Time, file: &FileId) -> bool {
        self.contended_of(now, file).next().is_some()
    }

    /// The labels of `file` that were recalled lately, but for those that `session` goes on taking.
    pub fn contended_labels(&self, now: Time, session: SessionId, file: &FileId) -> Vec<Label> {
        let alone = self.takes_alone(now, session, file);
        let labels = self.contended_of(now, file).filter_map(|(field, it)| match field {
            Field::Child(label) if !(alone && it.asker == Some(session)) => Some(label.clone()),
            _ => None,
        });
        labels.collect()
    }

    /// The number of labels of `file` that were recalled lately, whoever asked.
    pub fn labels_recalled(&self, now: Time, file: &FileId) -> usize {
        self.recalled_labels(now, file).count()
    }

    /// Whether `session` goes on taking names which no other session asks back, or all names were
    /// recalled for it, and none for others since. It contends with nobody, and may have all of
    /// them.
    pub fn takes_alone(&self, now: Time, session: SessionId, file: &FileId) -> bool {
        let is_own = |it: &Contended| it.asker == Some(session);
        let all = self.contended_of(now, file).find(|(field, _)| **field == Field::Children);
        let since = all.map(|(_, it)| it).filter(|it| is_own(it)).map(|it| it.at);
        self.recalled_labels(now, file).filter(|it| is_own(it)).count() >= CROWDED
            || since
                .is_some_and(|since| self.recalled_labels(now, file).all(|it| is_own(it) || it.at <= since))
    }

    /// The labels that were recalled lately.
    fn recalled_labels<'a>(&'a self, now: Time, file: &'a FileId) -> impl Iterator<Item = &'a Contended> {
        let labels = self.contended_of(now, file).filter(|(field, _)| matches!(field, Field::Child(_)));
        labels.map(|(_, it)| it)
    }

    fn contended_of<'a>(
        &'a self,
        now: Time,
        file: &'a FileId,
    ) -> impl Iterator<Item = (&'a Field, &'a Contended)> {
        // `Attributes` is the first field in their order.
        let of_file = self.0.range((file.clone(), Field::Attributes)..);
        let of_file = of_file.take_while(move |((other, _), _)| other == file);
        let lately = of_file.filter(move |(_, contended)| now.ms_since(contended.at) < CONTENDED_MS);
        lately.map(|((_, field), contended)| (field, contended))
    }
}
