//! The fields that were recalled lately: they are granted narrowly, and those that pass to and fro
//! are reported.

use ident::FileId;
use lease::{Field, Label, Recent, SessionId, Time};
use namespace::{Attributes, ContentHead, Times};
use serde::{Deserialize, Serialize};

/// Recently recalled labels that make a directory one in which several machines work at once.
pub(crate) const CROWDED: usize = 8;

/// Recalls of a field in a row that make it ping-pong.
const RECALLS: u8 = 2;
/// The same for attributes. A file that one machine makes, and of which another changes the mode
/// once, is not ping-pong: those who watch the file want the lease.
const ATTRIBUTE_RECALLS: u8 = 6;
/// Unchanged reports of a ping-pong field in a row. After these the field is no longer ping-pong,
/// and the next asker gets the lease.
const TOLD_UNCHANGED_MAX: u8 = 3;

/// A field that was recalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contended {
    /// When it was last recalled, or reported.
    at: Time,
    /// The session whose requests needed it; absent if it was recalled for several sessions.
    asker: Option<SessionId>,
    /// The time that the last answer to a recall took, ms.
    took_ms: Option<u64>,
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

/// The memory of recalls: they are the events that count, and a report is one that does not. It is
/// part of the replicated state, since it decides what is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contention(Recent<(FileId, Field), Contended>);

impl Contention {
    /// Notes that `field` is recalled for `asker`.
    pub fn recalled(&mut self, now: Time, asker: SessionId, file: &FileId, field: &Field) {
        let key = (file.clone(), field.clone());
        let is_first = self.0.count(now, &key) == 0;
        if let Some(contended) = self.0.note(now, &key, 1) {
            let is_same = is_first || contended.asker == Some(asker);
            contended.asker = is_same.then_some(asker);
            (contended.at, contended.told) = (now, None);
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
        let key = (file.clone(), field.clone());
        let recalls = if *field == Field::Attributes { ATTRIBUTE_RECALLS } else { RECALLS };
        let changes = |it: &Contended| it.told.is_none_or(|(_, unchanged)| unchanged < TOLD_UNCHANGED_MAX);
        self.0.count(now, &key) >= recalls && self.0.get(&key).is_some_and(changes)
    }

    /// Notes the value that was reported of `field`.
    pub fn reported(&mut self, now: Time, file: &FileId, field: &Field, value: ReportedValue) {
        let key = (file.clone(), field.clone());
        if self.0.get(&key).is_some()
            && let Some(contended) = self.0.note(now, &key, 0)
        {
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
        let first = (file.clone(), Field::Attributes);
        let of_file = self.0.recent_among(now, first, move |(other, _)| other == file);
        of_file.map(|((_, field), contended)| (field, contended))
    }
}
