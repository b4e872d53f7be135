//! Flushes that reports wait for.

use crate::{Arrival, Field, SessionId, Time};
use ident::FileId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who is to flush what.
type Flush = (SessionId, FileId, Field);

/// Which holders were asked to flush which field for which report.
///
/// Each report has flushes of its own: what a holder flushed before the report was asked for is not
/// what the field is now. Those that came stay noted until the report is answered, since the holder
/// keeps its lease and would be asked again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushes {
    /// The number given last.
    last: u64,
    /// By report: what it asked for, and under which number, until it came.
    asked: BTreeMap<Arrival, BTreeMap<Flush, Option<u64>>>,
    /// By number, those that did not come yet.
    open: BTreeMap<u64, (Arrival, Flush, Time)>,
}

impl Flushes {
    /// The number under which `holder` is to be asked to flush `field` for `report`; nothing if it
    /// was asked already.
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

    /// `holder` has flushed. Gives the report, if it waits for no other flush.
    pub fn flushed(&mut self, holder: SessionId, number: u64) -> Option<Arrival> {
        let (report, what, _) =
            self.open.get(&number).filter(|(_, (asked, ..), _)| *asked == holder)?.clone();
        self.open.remove(&number);
        if let Some(number) = self.asked.get_mut(&report).and_then(|asked| asked.get_mut(&what)) {
            *number = None;
        }
        (!self.is_waiting(report)).then_some(report)
    }

    /// Whether `report` waits for a flush.
    pub fn is_waiting(&self, report: Arrival) -> bool {
        self.asked.get(&report).is_some_and(|asked| asked.values().any(Option::is_some))
    }

    /// Who has not flushed for `report` yet.
    pub fn awaited_by(&self, report: Arrival) -> impl Iterator<Item = SessionId> {
        let asked = self.asked.get(&report).into_iter().flatten();
        asked.filter(|(_, number)| number.is_some()).map(|((holder, ..), _)| *holder)
    }

    /// `report` needs no flushes any more.
    pub fn forget(&mut self, report: Arrival) {
        for number in self.asked.remove(&report).into_iter().flat_map(BTreeMap::into_values).flatten() {
            self.open.remove(&number);
        }
    }

    /// `holder` is over and will flush nothing. Gives the reports that wait for no other flush now.
    pub fn end(&mut self, holder: SessionId) -> BTreeSet<Arrival> {
        let its: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, (_, (asked, ..), _))| *asked == holder)
            .map(|(number, _)| *number)
            .collect();
        its.into_iter().filter_map(|number| self.flushed(holder, number)).collect()
    }

    /// Who is to flush something, and since when.
    pub fn owed(&self) -> impl Iterator<Item = (SessionId, Time)> + '_ {
        self.open.values().map(|(_, (holder, ..), since)| (*holder, *since))
    }

    /// All that did not come yet: whose, under which number, and what.
    pub fn unanswered(&self) -> impl Iterator<Item = (SessionId, u64, &FileId, &Field)> {
        self.open.iter().map(|(number, (_, (holder, file, field), _))| (*holder, *number, file, field))
    }
}
