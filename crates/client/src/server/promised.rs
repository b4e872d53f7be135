//! Space that programs reserved for ranges of files (posix_fallocate).
//!
//! A promise is taken out of the allowance, so no other write can have the space. It ends when the
//! range is written or cut off, or when the file, its content's lease or the session goes. So a
//! promised write fits when the disk is full.

use super::ServerSession;
use ident::FileId;
use std::collections::BTreeMap;
use std::ops::Range;

/// By file: disjoint promised ranges without content, by their starts.
#[derive(Debug, Default)]
pub(crate) struct Promised {
    files: BTreeMap<FileId, BTreeMap<u64, u64>>,
    bytes: u64,
}

impl Promised {
    /// All promised bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The promised bytes of `file`.
    pub fn of(&self, file: &FileId) -> u64 {
        self.files.get(file).map_or(0, |ranges| ranges.iter().map(|(from, to)| to - from).sum())
    }

    /// The promised parts of `range`.
    fn within(&self, file: &FileId, range: &Range<u64>) -> Vec<Range<u64>> {
        let ranges = self.files.get(file).into_iter().flatten();
        let cut = ranges.map(|(from, to)| range.start.max(*from)..range.end.min(*to));
        cut.filter(|part| part.start < part.end).collect()
    }

    /// The promised bytes of `range`.
    pub fn covers(&self, file: &FileId, range: &Range<u64>) -> u64 {
        self.within(file, range).iter().map(|part| part.end - part.start).sum()
    }

    /// The parts of these ranges that are not promised yet.
    pub fn lacks(&self, file: &FileId, ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let mut lacks = Vec::new();
        for range in ranges {
            let mut from = range.start;
            for part in self.within(file, &range) {
                if from < part.start {
                    lacks.push(from..part.start);
                }
                from = part.end;
            }
            if from < range.end {
                lacks.push(from..range.end);
            }
        }
        lacks
    }

    /// Promises a range, of which no part is promised yet.
    pub fn add(&mut self, file: &FileId, range: Range<u64>) {
        self.bytes += range.end - range.start;
        self.files.entry(file.clone()).or_default().insert(range.start, range.end);
    }

    /// Ends the promises of `range`. Returns how many bytes they were.
    pub fn take(&mut self, file: &FileId, range: &Range<u64>) -> u64 {
        let Some(ranges) = self.files.get_mut(file) else { return 0 };
        let touched: Vec<(u64, u64)> = ranges
            .range(..range.end)
            .filter(|(_, to)| **to > range.start)
            .map(|(from, to)| (*from, *to))
            .collect();
        let mut taken = 0;
        for (from, to) in touched {
            ranges.remove(&from);
            if from < range.start {
                ranges.insert(from, range.start);
            }
            if to > range.end {
                ranges.insert(range.end, to);
            }
            taken += to.min(range.end) - from.max(range.start);
        }
        if ranges.is_empty() {
            self.files.remove(file);
        }
        self.bytes -= taken;
        taken
    }
}

impl ServerSession {
    /// Gives the space of `range` back to the allowance.
    pub fn break_promise(&mut self, file: &FileId, range: Range<u64>) {
        let bytes = self.promised.take(file, &range);
        self.allowance.add(bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a model of one flag for each byte.
        #[test]
        fn what_is_promised_is_what_was_added_and_not_taken(
            steps in prop::collection::vec((any::<bool>(), 0_u64..2, 0_u64..40, 1_u64..20), 1..40)
        ) {
            let mut promised = Promised::default();
            let mut model = [[false; 60]; 2];
            for (adds, which, from, length) in steps {
                let (file, range) = (FileId::root().child(which + 1), from..from + length);
                let flags = &mut model[which as usize][from as usize..(from + length) as usize];
                let had = flags.iter().filter(|flag| **flag).count() as u64;
                prop_assert_eq!(promised.covers(&file, &range), had);
                if adds {
                    let lacks = promised.lacks(&file, vec![range]);
                    let bytes: u64 = lacks.iter().map(|part| part.end - part.start).sum();
                    prop_assert_eq!(bytes, length - had);
                    lacks.into_iter().for_each(|part| promised.add(&file, part));
                } else {
                    prop_assert_eq!(promised.take(&file, &range), had);
                }
                flags.fill(adds);
                let of = |which: usize| model[which].iter().filter(|flag| **flag).count() as u64;
                prop_assert_eq!(promised.of(&file), of(which as usize));
                prop_assert_eq!(promised.bytes(), of(0) + of(1));
            }
        }
    }
}
