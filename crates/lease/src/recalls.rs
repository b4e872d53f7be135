//! Recalls that are not answered yet.

use crate::{Field, Kind, Released, SessionId, Time};
use ident::FileId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who was told to let go of what and has not answered: so that nobody is told twice, and a new
/// leader knows what to say once more.
///
/// A recall is answered by a release of the same field down to what may be kept, even of what is no
/// longer held: what is owed an answer is the only thing that may be let go without being held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalls(BTreeMap<FileId, BTreeMap<(SessionId, Field), Recall>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Recall {
    /// What the holder may keep.
    keep: Option<Kind>,
    /// When it was first told.
    since: Time,
    /// From when on it has had the chance to answer: then, or when the latest leader began.
    told: Time,
}

impl Recalls {
    /// Notes that `session` has to let go of `field` down to `keep`, and gives what it is to be
    /// told; nothing if it was told already. Who was told to let go down to something else before
    /// is told to let go of both.
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

    /// `session` has let go of `field` down to `keep`. If that answers a recall: since when it had
    /// been told.
    pub fn let_go(
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

    /// Whether `session` owes an answer to a recall of `field`.
    pub fn is_owed(&self, session: SessionId, file: &FileId, field: &Field) -> bool {
        self.0.get(file).is_some_and(|of_file| of_file.contains_key(&(session, field.clone())))
    }

    /// `session` is granted `kind` on the black box `field`, one of whose two leases may be
    /// recalled meanwhile: this one is not, any more. (Of a shared value the answer that is owed
    /// takes back what is granted before it comes.)
    pub fn granted(&mut self, session: SessionId, file: &FileId, field: &Field, kind: Kind) {
        let of_file = self.0.get_mut(file).filter(|_| field.is_black_box());
        if let Some(recall) = of_file.and_then(|of_file| of_file.get_mut(&(session, field.clone()))) {
            recall.keep = Some(recall.keep.map_or(kind, |keep| keep.and(kind)));
        }
    }

    /// `file` is no more.
    pub fn forget(&mut self, file: &FileId) {
        self.0.remove(file);
    }

    /// `session` is over. Gives the files that something of its was recalled on: who waits for them
    /// can be tried again.
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

    /// What each session has been told and not answered, in the order of files.
    pub fn unanswered(&self) -> impl Iterator<Item = (SessionId, Released)> + '_ {
        self.open().map(|(file, (session, field), recall)| {
            (*session, Released { file: file.clone(), field: field.clone(), keep: recall.keep })
        })
    }

    /// What was recalled of `file` and not answered: from whom, of which field, what may be kept,
    /// and since when.
    pub fn unanswered_of(
        &self,
        file: &FileId,
    ) -> impl Iterator<Item = (SessionId, &Field, Option<Kind>, Time)> {
        let of_file = self.0.get(file).into_iter().flatten();
        of_file.map(|((session, field), recall)| (*session, field, recall.keep, recall.since))
    }

    /// Since when each session has owed an answer.
    pub fn owed_since(&self) -> BTreeMap<SessionId, Time> {
        let mut owed = BTreeMap::new();
        for (_, (session, _), recall) in self.open() {
            let since = owed.entry(*session).or_insert(recall.since);
            *since = recall.since.min(*since);
        }
        owed
    }

    /// A leader begins, and tells everybody again: what nobody could hear before counts for
    /// nothing.
    pub fn tell_again(&mut self, now: Time) {
        self.0.values_mut().flat_map(BTreeMap::values_mut).for_each(|recall| recall.told = now);
    }

    /// Who owes answers, and since when it has had the chance to give each.
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
