//! The rule by which servers hand regions over to balance their load (Farsite §4, §7.2.2).
//!
//! A file is active if its metadata was in use within five minutes, and the load of a server is the
//! number of its active files. Servers compare their loads in pairs. One that has much more load
//! than the other hands a subtree of identifiers over: the heaviest that does not make the other
//! the more loaded one. The paper's servers do so from twice the load on, and ours from one and a
//! half times. So the most loaded server stays near one and a half times the mean.
//!
//! Small loads, subtrees with a small part of what is to move, and regions that moved lately stay.
//! So regions do not move to and fro, and few cuts are made.

use ident::FileId;
use std::collections::BTreeMap;

/// A file is active for so long after its last use, s.
pub(super) const ACTIVE_S: u64 = 300;
/// A subtree moves if it has at least this part of the load that is to move.
const PART: usize = 32;

/// The rule's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Balance {
    /// The interval at which a server compares its load with that of another one, s.
    pub every_s: u64,
    /// The time for which a region stays after it was handed over, or could not be, s.
    pub rests_s: u64,
    /// A server with at most this load, in % of the other's, hands nothing over.
    pub more_percent: usize,
    /// A server with fewer active files hands nothing over.
    pub least: usize,
    /// Whether a file is handed over once at most (the control of Farsite §8.3.5).
    pub once: bool,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance { every_s: 10, rests_s: 120, more_percent: 150, least: 8, once: false }
    }
}

/// The region that a server hands over to another. `mine` are its active files, and `theirs` is the
/// other's number of them. `may_go` says whether a region may be handed over at all.
pub(crate) fn chooses(
    rule: &Balance,
    mine: &[FileId],
    theirs: usize,
    may_go: impl Fn(&FileId) -> bool,
) -> Option<FileId> {
    if mine.len() < rule.least || 100 * mine.len() <= rule.more_percent * theirs {
        return None;
    }
    // After a transfer of half the difference both have the same load.
    let most = (mine.len() - theirs).div_ceil(2);
    let mut loads: BTreeMap<FileId, usize> = BTreeMap::new();
    for file in mine {
        let mut at = Some(file.clone());
        while let Some(region) = at.filter(|region| *region != FileId::root()) {
            at = region.parent();
            *loads.entry(region).or_default() += 1;
        }
    }
    // Of equally loaded ones the outermost comes first, and so is the one that is taken.
    let mut best: Option<(FileId, usize)> = None;
    for (region, load) in loads {
        let is_better = best.as_ref().is_none_or(|(_, so_far)| load > *so_far);
        if load <= most && PART * load >= most && is_better && may_go(&region) {
            best = Some((region, load));
        }
    }
    best.map(|(region, _)| region)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(path: &[u64]) -> FileId {
        path.iter().fold(FileId::root(), |id, n| id.child(*n))
    }

    /// Directories 1 and 2 of the root with these numbers of active files.
    fn tree(first: u64, second: u64) -> Vec<FileId> {
        let of = |dir: u64, files: u64| (1..=files).map(move |file| id(&[dir, file]));
        of(1, first).chain(of(2, second)).collect()
    }

    #[test]
    fn only_much_more_load_moves_anything() {
        let rule = Balance { more_percent: 200, ..Balance::default() };
        assert_eq!(chooses(&rule, &tree(10, 10), 10, |_| true), None);
        assert_eq!(chooses(&rule, &tree(10, 10), 9, |_| true), Some(id(&[1, 1])));
        assert_eq!(chooses(&rule, &tree(10, 10), 0, |_| true), Some(id(&[1])));
        assert_eq!(chooses(&rule, &tree(4, 3), 0, |_| true), None, "a small load stays");
    }

    #[test]
    fn the_heaviest_subtree_moves_that_leaves_the_other_no_more_loaded() {
        let rule = Balance::default();
        assert_eq!(chooses(&rule, &tree(20, 12), 0, |_| true), Some(id(&[2])));
        assert_eq!(chooses(&rule, &tree(200, 120), 0, |region| *region != id(&[2])), None, "single files");
        // A directory in a directory: the outermost of equally loaded ones.
        let nested: Vec<FileId> = (1..=8).map(|n| id(&[1, 5, n])).chain(tree(0, 20)).collect();
        assert_eq!(chooses(&rule, &nested, 0, |_| true), Some(id(&[1])));
    }

    /// After every move the receiver has no more than the giver, and by exchanges of random pairs
    /// every server comes within that load of every other.
    #[test]
    fn exchanges_come_to_rest() {
        use rand_chacha::ChaCha12Rng;
        use rand_core::{Rng, SeedableRng};
        for seed in 0..20 {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            let mut below = |n: u64| rng.next_u64() % n;
            let rule = Balance { least: 1, ..Balance::default() };
            let servers = 2 + below(14) as usize;
            let mut of: Vec<Vec<FileId>> = vec![Vec::new(); servers];
            of[0] = (0..600).map(|_| id(&[1 + below(20), 1 + below(9), 1 + below(50)])).collect();
            of[0].sort();
            of[0].dedup();
            for _ in 0..20_000 {
                let (from, to) = (below(servers as u64) as usize, below(servers as u64) as usize);
                if from == to {
                    continue;
                }
                if let Some(region) = chooses(&rule, &of[from], of[to].len(), |_| true) {
                    let moves: Vec<FileId> =
                        of[from].extract_if(.., |file| region.is_prefix_of(file)).collect();
                    assert!(!moves.is_empty());
                    of[to].extend(moves);
                    assert!(of[to].len() <= of[from].len() + 1, "seed {seed}");
                }
            }
            let loads: Vec<usize> = of.iter().map(Vec::len).collect();
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(100 * most <= rule.more_percent * least, "seed {seed}: {loads:?}");
        }
    }
}
