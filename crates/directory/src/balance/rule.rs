//! The rule by which servers hand regions over to balance their load (Farsite §4, §7.2.2).
//!
//! A file is active if its metadata was in use within five minutes, and the load of a server is the
//! number of its active files. Servers compare their loads in pairs. One that has much more load
//! than the other hands a subtree of identifiers over: the heaviest that does not make the other
//! the more loaded one. The paper's servers do so from twice the load on, and ours from one and a
//! half times. So the most loaded server stays near one and a half times the mean.
//!
//! A directory with its files is often the least that can move: what is in it has no subtrees but
//! single files. So a server with two such directories, and another one with one, may be left with
//! nothing to hand over, though one has nearly twice the load of the other. Then the one hands a
//! directory over, and takes a lighter subtree of the other for it.
//!
//! Small loads, subtrees with a small part of what is to move, and regions that moved lately stay.
//! So regions do not move to and fro, and few cuts are made.

use super::activity::ActiveFiles;
use ident::FileId;
use std::collections::BTreeMap;

/// A subtree moves if it has at least this part of the load that is to move.
const PART: usize = 32;

/// The rule's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceRule {
    /// A server with at most this load, in % of the other's, hands nothing over.
    pub more_percent: u64,
    /// A server with fewer active files hands nothing over.
    pub least: u64,
}

impl Default for BalanceRule {
    /// A thousand active files are little work: one server handles a hundred times as many. And
    /// each file that moves costs its holders a recall.
    fn default() -> BalanceRule {
        BalanceRule { more_percent: 150, least: 1_000 }
    }
}

/// The region that a server hands over to another, and the one that it takes for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The region that goes.
    pub gives: FileId,
    /// The region that comes.
    pub takes: Option<FileId>,
}

/// The reason for which a server hands nothing over to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StayReason {
    /// The server has too few active files to care.
    #[error("the load is small")]
    Small,
    /// The other server has nearly as much load, or more.
    #[error("the other has about as much load, or more")]
    Even,
    /// No subtree that may move has about the load that is to move.
    #[error("no subtree that may move has the right load")]
    NothingFits,
}

impl BalanceRule {
    /// The exchange of a server with another one, if their loads differ much. `mine` are its active
    /// files, and `theirs` the other's. `may_go` says whether one of its regions may be handed over
    /// at all, and `may_come` whether one of the other's may.
    ///
    /// # Errors
    /// The reason why nothing is to move.
    pub fn chooses(
        &self,
        mine: &ActiveFiles,
        theirs: &ActiveFiles,
        may_go: impl Fn(&FileId) -> bool,
        may_come: impl Fn(&FileId) -> bool,
    ) -> Result<Exchange, StayReason> {
        let (mine, theirs) = mine.alike(theirs);
        if mine.count() < self.least {
            return Err(StayReason::Small);
        }
        if 100 * mine.count() <= self.more_percent.max(100) * theirs.count() {
            return Err(StayReason::Even);
        }
        let (mine, theirs) = (mine.files(), theirs.files());
        // After a transfer of half the difference both have the same load.
        let most = mine.len().saturating_sub(theirs.len()).div_ceil(2);
        let mine = subtrees(mine);
        // Of equally loaded ones the outermost comes first, and so is the one that is taken.
        let mut best: Option<(Exchange, usize)> = None;
        for (region, load) in &mine {
            let is_better = best.as_ref().is_none_or(|(_, so_far)| load > so_far);
            if *load <= most && PART * load >= most && is_better && may_go(region) {
                best = Some((Exchange { gives: region.clone(), takes: None }, *load));
            }
        }
        if best.as_ref().is_some_and(|(_, load)| 2 * load >= most) {
            return best.map(|(exchange, _)| exchange).ok_or(StayReason::NothingFits);
        }
        // Nothing has about the right load: a heavier one goes, and a lighter one may come for
        // that. The other may be left with more, but the difference is at most half of what it was.
        let off = |moves: usize| (moves.abs_diff(most), moves > most);
        let mut best = best.map(|(exchange, load)| (exchange, off(load)));
        let theirs = subtrees(theirs);
        for (region, load) in mine.iter().filter(|(_, load)| **load > most) {
            let lighter = theirs.iter().filter(|(_, other)| PART * **other >= most);
            let all = std::iter::once((None, 0)).chain(lighter.map(|(it, other)| (Some(it), *other)));
            for (takes, other) in all {
                let moves = load.saturating_sub(other);
                let is_of_use = 2 * moves <= 3 * most && PART * moves >= most;
                let is_better = best.as_ref().is_none_or(|(_, so_far)| off(moves) < *so_far);
                let is_apart = |it: &FileId| !it.is_prefix_of(region) && !region.is_prefix_of(it);
                let comes = || takes.is_none_or(|it| is_apart(it) && may_come(it));
                if is_of_use && is_better && comes() && may_go(region) {
                    best = Some((Exchange { gives: region.clone(), takes: takes.cloned() }, off(moves)));
                }
            }
        }
        best.map(|(exchange, _)| exchange).ok_or(StayReason::NothingFits)
    }
}

/// All subtrees but the root's that these files are in, with the number of files in each.
fn subtrees(files: &[FileId]) -> BTreeMap<FileId, usize> {
    let mut loads: BTreeMap<FileId, usize> = BTreeMap::new();
    for file in files {
        let mut at = Some(file.clone());
        while let Some(region) = at.filter(|region| *region != FileId::root()) {
            at = region.parent();
            *loads.entry(region).or_default() += 1;
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: BalanceRule = BalanceRule { more_percent: 150, least: 8 };

    fn id(path: &[u64]) -> FileId {
        path.iter().fold(FileId::root(), |id, n| id.child(*n))
    }

    /// Directories 1 and 2 of the root with these numbers of active files.
    fn tree(first: u64, second: u64) -> ActiveFiles {
        let of = |dir: u64, files: u64| (1..=files).map(move |file| id(&[dir, file]));
        of(1, first).chain(of(2, second)).collect()
    }

    /// So many files of another server, each in a directory of its own.
    fn others(count: u64) -> ActiveFiles {
        (1..=count).map(|n| id(&[3, n, 1])).collect()
    }

    /// The region that is given to a server that may hand nothing over.
    fn gives(
        rule: &BalanceRule,
        mine: &ActiveFiles,
        theirs: u64,
        may_go: impl Fn(&FileId) -> bool,
    ) -> Option<FileId> {
        let exchange = rule.chooses(mine, &others(theirs), may_go, |_| false).ok()?;
        assert_eq!(exchange.takes, None);
        Some(exchange.gives)
    }

    #[test]
    fn only_much_more_load_moves_anything() {
        let rule = BalanceRule { more_percent: 200, ..RULE };
        assert_eq!(gives(&rule, &tree(10, 10), 10, |_| true), None);
        assert_eq!(gives(&rule, &tree(10, 10), 9, |_| true), Some(id(&[1, 1])));
        assert_eq!(gives(&rule, &tree(10, 10), 0, |_| true), Some(id(&[1])));
        assert_eq!(gives(&rule, &tree(4, 3), 0, |_| true), None, "a small load stays");
    }

    /// Two directories of 100 files here, and there one of 80 beside 20 single ones.
    #[test]
    fn a_directory_goes_for_a_lighter_subtree_where_it_is_too_heavy_alone() {
        let rule = RULE;
        let mine = tree(100, 100);
        let dir = |n: u64, files: u64| (1..=files).map(move |file| id(&[n, file]));
        let theirs: ActiveFiles = dir(4, 80).chain(dir(5, 20)).collect();
        // Of 100 more, 50 are to move. Single files are too light.
        let exchange = rule.chooses(&mine, &theirs, |_| true, |_| true).unwrap();
        assert_eq!(exchange, Exchange { gives: id(&[1]), takes: Some(id(&[4])) });
        let exchange = rule.chooses(&mine, &theirs, |_| true, |region| *region == id(&[5]));
        assert_eq!(exchange, Err(StayReason::NothingFits), "then the other would have 180");
        let may_not = |region: &FileId| *region != id(&[1]);
        let exchange = rule.chooses(&mine, &theirs, may_not, |_| true).unwrap();
        assert_eq!(exchange, Exchange { gives: id(&[2]), takes: Some(id(&[4])) });
        assert_eq!(rule.chooses(&mine, &theirs, |_| true, |_| false), Err(StayReason::NothingFits));
        // The pair that is nearest to half of the difference, if less than that or hardly more.
        let theirs: ActiveFiles = dir(4, 60).chain(dir(5, 40)).collect();
        let exchange = rule.chooses(&mine, &theirs, |_| true, |_| true).unwrap();
        assert_eq!(exchange, Exchange { gives: id(&[1]), takes: Some(id(&[4])) });
        let theirs: ActiveFiles = dir(4, 60).chain(dir(5, 35)).collect();
        let exchange = rule.chooses(&mine, &theirs, |_| true, |_| true).unwrap();
        assert_eq!(exchange, Exchange { gives: id(&[1]), takes: Some(id(&[5])) }, "65 of 105, not 40");
    }

    #[test]
    fn the_heaviest_subtree_moves_that_leaves_the_other_no_more_loaded() {
        let rule = RULE;
        assert_eq!(gives(&rule, &tree(20, 12), 0, |_| true), Some(id(&[2])));
        let first = |region: &FileId| *region != id(&[2]);
        assert_eq!(gives(&rule, &tree(400, 120), 0, first), None, "single files");
        assert_eq!(gives(&rule, &tree(200, 120), 0, first), Some(id(&[1])), "200 of 320, not 160");
        // A directory in a directory: the outermost of equally loaded ones.
        let nested: ActiveFiles =
            (1..=8).map(|n| id(&[1, 5, n])).chain(tree(0, 20).files().to_vec()).collect();
        assert_eq!(gives(&rule, &nested, 0, |_| true), Some(id(&[1])));
    }

    /// After every move the receiver has hardly more than the giver, and by exchanges of random
    /// pairs every server comes within that load of every other.
    #[test]
    fn exchanges_come_to_rest() {
        for seed in 0..20_u64 {
            let mut draws = 0;
            let mut below = |n: u64| {
                draws += 1;
                twox_hash::XxHash3_64::oneshot_with_seed(seed, &u64::to_le_bytes(draws)) % n
            };
            let rule = BalanceRule { least: 1, ..RULE };
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
                let sample = |files: &Vec<FileId>| files.iter().cloned().collect::<ActiveFiles>();
                let (mine, theirs) = (sample(&of[from]), sample(&of[to]));
                if let Ok(exchange) = rule.chooses(&mine, &theirs, |_| true, |_| true) {
                    let before = of[from].len() - of[to].len();
                    let mut moves = |region: FileId, from: usize, to: usize| {
                        let moves: Vec<FileId> =
                            of[from].extract_if(.., |file| region.is_prefix_of(file)).collect();
                        assert!(!moves.is_empty());
                        of[to].extend(moves);
                    };
                    moves(exchange.gives, from, to);
                    exchange.takes.into_iter().for_each(|region| moves(region, to, from));
                    assert!(of[to].len() <= of[from].len() + before / 2 + 2, "seed {seed}");
                }
            }
            let loads: Vec<usize> = of.iter().map(Vec::len).collect();
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(100 * most <= rule.more_percent as usize * least, "seed {seed}: {loads:?}");
        }
    }
}
