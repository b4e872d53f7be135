//! The flushes that reports wait for.

use crate::{Arrival, Field, SessionId, Time};
use ident::FileId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The holder, and the field that it is to flush.
type Flush = (SessionId, FileId, Field);

/// The flushes that were requested from holders, for each report.
///
/// Each report has flushes of its own, since an earlier flush does not show the field as it is now.
/// A flush stays noted until its report is answered: the holder keeps its lease, and would
/// otherwise be asked again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushes {
    /// The latest number given.
    last: u64,
    /// By report: the requested flushes, each with its number until it came.
    asked: BTreeMap<Arrival, BTreeMap<Flush, Option<u64>>>,
    /// By number: the flushes that did not come yet.
    open: BTreeMap<u64, (Arrival, Flush, Time)>,
}

impl Flushes {
    /// Requests that `holder` flushes `field` for `report`, and returns the number of the request.
    /// Returns None if it was requested already.
    pub fn flush(
        &mut self,
        now: Time,
        report: Arrival,
        holder: SessionId,
        file: &FileId,
        field: &Field,
    ) -> Option<u64> {
        let what = (holder, file.clone(), field.clone());
        let asked = self.asked.entry(report).or_default();
        if asked.contains_key(&what) {
            return None;
        }
        self.last += 1;
        asked.insert(what.clone(), Some(self.last));
        self.open.insert(self.last, (report, what, now));
        Some(self.last)
    }

    /// Notes that `holder` has flushed. Returns the report, if that waits for no other flush.
    pub fn flushed(&mut self, holder: SessionId, number: u64) -> Option<Arrival> {
        let (report, what, _) =
            self.open.get(&number).filter(|(_, (asked, ..), _)| *asked == holder)?.clone();
        self.open.remove(&number);
        let asked = self.asked.get_mut(&report).and_then(|asked| asked.get_mut(&what));
        *asked.expect("an open flush is one of its report") = None;
        (!self.is_waiting(report)).then_some(report)
    }

    /// Returns whether `report` waits for a flush.
    pub fn is_waiting(&self, report: Arrival) -> bool {
        self.asked.get(&report).is_some_and(|asked| asked.values().any(Option::is_some))
    }

    /// Returns the holders that have not flushed for `report` yet.
    pub fn awaited_by(&self, report: Arrival) -> impl Iterator<Item = SessionId> {
        let asked = self.asked.get(&report).into_iter().flatten();
        asked.filter(|(_, number)| number.is_some()).map(|((holder, ..), _)| *holder)
    }

    /// Forgets the flushes of `report`.
    pub fn forget(&mut self, report: Arrival) {
        for number in self.asked.remove(&report).into_iter().flat_map(BTreeMap::into_values).flatten() {
            self.open.remove(&number);
        }
    }

    /// Notes that `holder` is over and will flush nothing. Returns the reports that now wait for no
    /// other flush.
    pub fn end(&mut self, holder: SessionId) -> BTreeSet<Arrival> {
        let its: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, (_, (asked, ..), _))| *asked == holder)
            .map(|(number, _)| *number)
            .collect();
        its.into_iter().filter_map(|number| self.flushed(holder, number)).collect()
    }

    /// Returns each holder that owes a flush, and the time of the request.
    pub fn owed(&self) -> impl Iterator<Item = (SessionId, Time)> + '_ {
        self.open.values().map(|(_, (holder, ..), since)| (*holder, *since))
    }

    /// Returns all flushes that did not come yet: holder, number, and field.
    pub fn unanswered(&self) -> impl Iterator<Item = (SessionId, u64, &FileId, &Field)> {
        self.open.iter().map(|(number, (_, (holder, file, field), _))| (*holder, *number, file, field))
    }
}
