//! The file map: the server that manages each file (Farsite §4.1.4).

use crate::FileId;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A map from prefixes of identifiers to servers. The longest prefix that fits counts, and the
/// root's always fits.
///
/// The scheme is that of Lampson, Srinivasan and Varghese. Each prefix is a range of keys, and
/// ranges nest. So their two ends cut the keys into at most twice as many stretches, and the answer
/// for each stretch is computed beforehand. A look-up is one binary search, and the space is
/// linear. A change is rare, and computes all stretches again.
#[derive(Clone, Debug)]
pub struct FileMap<S> {
    root: S,
    /// Prefixes other than the root, and the server of each.
    delegated: BTreeMap<FileId, S>,
    /// The stretches in key order, each from its start on. Before the first, the root's server
    /// counts.
    stretches: Vec<Stretch<S>>,
}

#[derive(Clone, Debug)]
struct Stretch<S> {
    start: SmallVec<[u8; 16]>,
    server: S,
}

impl<S: Clone> FileMap<S> {
    /// Makes a map in which `server` manages everything.
    pub fn new(server: S) -> FileMap<S> {
        FileMap { root: server, delegated: BTreeMap::new(), stretches: Vec::new() }
    }

    /// Maps `prefix` to `server`, but for longer prefixes that are mapped themselves. Returns the
    /// server that exactly this prefix had before.
    pub fn insert(&mut self, prefix: FileId, server: S) -> Option<S> {
        let before = if prefix == FileId::root() {
            Some(std::mem::replace(&mut self.root, server))
        } else {
            self.delegated.insert(prefix, server)
        };
        self.work_out();
        before
    }

    /// Removes the mapping of `prefix`, so that the server of the next shorter prefix manages it.
    /// The root stays mapped. Returns the server that was removed.
    pub fn remove(&mut self, prefix: &FileId) -> Option<S> {
        let before = self.delegated.remove(prefix);
        self.work_out();
        before
    }

    /// Returns the server that manages `file`.
    pub fn lookup(&self, file: &FileId) -> &S {
        let after = self.stretches.partition_point(|stretch| stretch.start.as_slice() <= file.as_bytes());
        match after.checked_sub(1).and_then(|at| self.stretches.get(at)) {
            Some(stretch) => &stretch.server,
            None => &self.root,
        }
    }

    /// Returns all prefixes and their servers in key order: the root first, parents before what
    /// they contain.
    pub fn regions(&self) -> impl Iterator<Item = (FileId, &S)> {
        std::iter::once((FileId::root(), &self.root))
            .chain(self.delegated.iter().map(|(id, server)| (id.clone(), server)))
    }

    fn work_out(&mut self) {
        self.stretches.clear();
        // The ranges that may contain the next prefix, outermost first: their ends and their
        // servers.
        let mut open: Vec<(Vec<u8>, &S)> = Vec::new();
        let close = |stretches: &mut Vec<Stretch<S>>, open: &mut Vec<(Vec<u8>, &S)>, upto: Option<&[u8]>| {
            while let Some((end, _)) = open.pop_if(|(end, _)| upto.is_none_or(|upto| end.as_slice() <= upto))
            {
                let server = open.last().map_or(&self.root, |(_, server)| *server);
                push(stretches, &end, server);
            }
        };
        for (prefix, server) in &self.delegated {
            // Only the root's range has no end, and the root is not among the delegated prefixes.
            let (start, Some(end)) = prefix.region_range() else { continue };
            close(&mut self.stretches, &mut open, Some(&start));
            push(&mut self.stretches, &start, server);
            open.push((end, server));
        }
        close(&mut self.stretches, &mut open, None);
    }
}

/// Appends a stretch from `start` on. It replaces the last one, if that would be empty.
fn push<S: Clone>(stretches: &mut Vec<Stretch<S>>, start: &[u8], server: &S) {
    stretches.pop_if(|last| last.start.as_slice() == start);
    stretches.push(Stretch { start: SmallVec::from_slice(start), server: server.clone() });
}
