//! Which server manages which file (Farsite §4.1.4).

use crate::FileId;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Maps prefixes of identifiers to servers; the longest that fits counts, and the root's always
/// fits.
///
/// The scheme of Lampson, Srinivasan and Varghese: each prefix is a range of keys, and ranges nest,
/// so their two ends cut the keys into at most twice as many stretches, each with one answer that
/// is worked out beforehand. A look-up is one binary search, the space is linear, and a change,
/// which is rare, works all stretches out again.
#[derive(Clone, Debug)]
pub struct FileMap<S> {
    root: S,
    /// Prefixes other than the root, with what is delegated to whom.
    delegated: BTreeMap<FileId, S>,
    /// Where an answer begins to hold, in key order. Before the first it is the root's.
    stretches: Vec<Stretch<S>>,
}

#[derive(Clone, Debug)]
struct Stretch<S> {
    start: SmallVec<[u8; 16]>,
    server: S,
}

impl<S: Clone> FileMap<S> {
    /// Everything is with `server`.
    pub fn new(server: S) -> FileMap<S> {
        FileMap { root: server, delegated: BTreeMap::new(), stretches: Vec::new() }
    }

    /// `server` manages everything below `prefix`, but what is delegated further down. Gives who
    /// was mapped to exactly this prefix before.
    pub fn insert(&mut self, prefix: FileId, server: S) -> Option<S> {
        let before = if prefix == FileId::root() {
            Some(std::mem::replace(&mut self.root, server))
        } else {
            self.delegated.insert(prefix, server)
        };
        self.work_out();
        before
    }

    /// What was delegated below `prefix` is again with whoever manages its surroundings. The root
    /// stays mapped.
    pub fn remove(&mut self, prefix: &FileId) -> Option<S> {
        let before = self.delegated.remove(prefix);
        self.work_out();
        before
    }

    /// Who manages `file`.
    pub fn lookup(&self, file: &FileId) -> &S {
        let after = self.stretches.partition_point(|stretch| stretch.start.as_slice() <= file.as_bytes());
        match after.checked_sub(1).and_then(|at| self.stretches.get(at)) {
            Some(stretch) => &stretch.server,
            None => &self.root,
        }
    }

    /// All prefixes and their servers, in key order: the root first, parents before what they
    /// contain.
    pub fn regions(&self) -> impl Iterator<Item = (FileId, &S)> {
        std::iter::once((FileId::root(), &self.root))
            .chain(self.delegated.iter().map(|(id, server)| (id.clone(), server)))
    }

    fn work_out(&mut self) {
        self.stretches.clear();
        // The ranges that the next prefix may be inside of, outermost first: their ends, and whose
        // they are.
        let mut open: Vec<(Vec<u8>, &S)> = Vec::new();
        let close = |stretches: &mut Vec<Stretch<S>>, open: &mut Vec<(Vec<u8>, &S)>, upto: Option<&[u8]>| {
            while let Some((end, _)) = open.pop_if(|(end, _)| upto.is_none_or(|upto| end.as_slice() <= upto))
            {
                let server = open.last().map_or(&self.root, |(_, server)| *server);
                push(stretches, &end, server);
            }
        };
        for (prefix, server) in &self.delegated {
            // Only the root's range has no end, and the root is not among these.
            let (start, Some(end)) = prefix.region_range() else { continue };
            close(&mut self.stretches, &mut open, Some(&start));
            push(&mut self.stretches, &start, server);
            open.push((end, server));
        }
        close(&mut self.stretches, &mut open, None);
    }
}

/// A stretch from `start` on; instead of the last one, if that would be empty.
fn push<S: Clone>(stretches: &mut Vec<Stretch<S>>, start: &[u8], server: &S) {
    stretches.pop_if(|last| last.start.as_slice() == start);
    stretches.push(Stretch { start: SmallVec::from_slice(start), server: server.clone() });
}
