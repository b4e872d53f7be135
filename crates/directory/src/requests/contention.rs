//! The fields that were recalled lately: they are granted narrowly, and those that pass to and fro
//! are reported.

use ident::FileId;
use lease::{Field, Label, Time};
use namespace::{ContentHead, Times};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The time after a recall for which a field counts as contended, and is granted narrowly, ms.
const CONTENDED_MS: u64 = 10_000;
/// Contended fields that are remembered.
const CONTENDED_MAX: usize = 4096;
/// Recalls of a field, each within that time of the last, that make it ping-pong.
const PASSES: u8 = 2;
/// Unchanged reports of a ping-pong field in a row. After these the field is no longer ping-pong,
/// and the next asker gets the lease.
const TOLD_UNCHANGED_MAX: u8 = 3;

/// A field that was recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contended {
    /// When it was last recalled.
    at: Time,
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
    Content(ContentHead),
    Times(Times),
}

/// The memory of recalls. It is part of the replicated state, since it decides what is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contention(BTreeMap<(FileId, Field), Contended>);

impl Contention {
    /// Notes that `field` is recalled.
    pub fn recalled(&mut self, now: Time, file: &FileId, field: &Field) {
        if self.0.len() >= CONTENDED_MAX {
            self.0.retain(|_, contended| now.ms_since(contended.at) < CONTENDED_MS);
        }
        if self.0.len() < CONTENDED_MAX {
            let new = Contended { at: now, took_ms: None, recalls: 0, told: None };
            let contended = self.0.entry((file.clone(), field.clone())).or_insert(new);
            if now.ms_since(contended.at) >= CONTENDED_MS {
                contended.recalls = 0;
            }
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
    pub fn passes(&self, now: Time, file: &FileId, field: &Field) -> bool {
        self.0.get(&(file.clone(), field.clone())).is_some_and(|contended| {
            let changes = contended.told.is_none_or(|(_, unchanged)| unchanged < TOLD_UNCHANGED_MAX);
            contended.recalls >= PASSES && changes && now.ms_since(contended.at) < CONTENDED_MS
        })
    }

    /// Notes the value that was reported of `field`.
    pub fn told(&mut self, now: Time, file: &FileId, field: &Field, value: ReportedValue) {
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

    /// Whether this field was recalled lately.
    pub fn is_contended(&self, now: Time, file: &FileId, field: &Field) -> bool {
        self.contended_of(now, file).any(|contended| contended == field)
    }

    /// Whether any field of `file` was recalled lately.
    pub fn is_contended_anywhere(&self, now: Time, file: &FileId) -> bool {
        self.contended_of(now, file).next().is_some()
    }

    /// The labels of `file` that were recalled lately.
    pub fn contended_labels(&self, now: Time, file: &FileId) -> Vec<Label> {
        let labels = self.contended_of(now, file).filter_map(|field| match field {
            Field::Child(label) => Some(label.clone()),
            _ => None,
        });
        labels.collect()
    }

    fn contended_of<'a>(&'a self, now: Time, file: &'a FileId) -> impl Iterator<Item = &'a Field> {
        // `Attributes` is the first field in their order.
        let of_file = self.0.range((file.clone(), Field::Attributes)..);
        let of_file = of_file.take_while(move |((other, _), _)| other == file);
        let lately = of_file.filter(move |(_, contended)| now.ms_since(contended.at) < CONTENDED_MS);
        lately.map(|((_, field), _)| field)
    }
}
