//! The snapshot of a department's file server: the lengths of identifiers (Farsite §8.2.1, §8.3.1).

use super::PaperRow;
use super::parts::SnapshotTree;
use super::plot::{Line, Plot};
use super::report::Section;
use sim::Violation;
use sim::snapshot::{DirectoryTree, FixedSize, Lengths, copy, lengths_by_the_papers_code};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The part's name on the command line.
pub(super) const NAME: &str = "snapshot";
/// Directories and files of the paper's server.
const PAPERS_SIZE: (u32, u64) = (168_000, 2_300_000);
/// Sizes of fixed-size identifiers in bits, with the paper's share of files within their region and
/// its share of files with an identifier, in %.
const FIXED: [(u32, u64, u64); 3] = [(32, 16, 62), (48, 54, 100), (107, 95, 100)];

const WHY_SHORTER: &str = "Identifiers get longer with the depth of a tree and with the order of its entries, and the paper's tree is not known.";
const WHY_FIXED: &str =
    "Here, too, the deeper a directory is, the smaller its region; how much spills depends on the tree.";

/// The section of the report.
pub(super) fn section(seed: u64, tree: &SnapshotTree) -> Result<Section, Violation> {
    let tree = match tree {
        SnapshotTree::Department => DirectoryTree::department(seed, PAPERS_SIZE.0, PAPERS_SIZE.1),
        SnapshotTree::Given(tree) => tree.clone(),
    };
    let how = format!(
        "One machine copies the metadata of {} directories, {} levels deep, with {} files. The shipped client makes\n\
         each directory's entries in order, depth first, and the shipped server replays that. A generated department\n\
         has the shape that Agrawal, Bolosky, Douceur and Lorch found (FAST 2007): a new directory goes into one with C\n\
         others with a probability in proportion to C + 2, n files are in a directory in proportion to (n + 2.36)^-2,\n\
         and entries are in order of age. The controls assign fixed-size identifiers in the same order.",
        tree.directories(),
        tree.depth(),
        tree.files(),
    );
    let papers = lengths_by_the_papers_code(&tree);
    let fixed = FIXED.map(|(bits, ..)| FixedSize::assign(&tree, bits));
    let lengths = copy(seed, tree)?;
    Ok(Section {
        title: "Server snapshot",
        place: "Farsite §8.2.1, §8.3.1",
        how,
        rows: rows(&lengths, &papers, &fixed),
        plots: vec![plot(&lengths, &papers)],
        notes: vec![format!(
            "The paper's own code takes {:.0} bits on average on this tree, and took 52 on the paper's, so this tree is an \
             easier one. That code does not say where an identifier ends. Here the end is in the code, so that identifiers \
             are keys in order, and rows can stand behind them.",
            papers.mean(),
        )],
    })
}

fn rows(lengths: &Lengths, papers: &Lengths, fixed: &[FixedSize; FIXED.len()]) -> Vec<PaperRow> {
    let row = |control, counted: String, paper, measured, why| PaperRow {
        experiment: NAME,
        control,
        counted,
        paper,
        measured,
        bar: String::new(),
        met: true,
        why,
    };
    let of = |lengths: &Lengths| [lengths.mean().ceil() as u64, lengths.quantile(0.99), lengths.max()];
    let names = ["mean", "99th percentile", "maximum"];
    let figures = names.into_iter().zip([52, 80, 107]).zip(of(lengths)).zip(of(papers));
    let mut rows = Vec::new();
    for (((name, paper), measured), by_papers_code) in figures {
        let it = row(false, format!("bits of an identifier: {name}"), paper, measured, WHY_SHORTER);
        rows.push(PaperRow { bar: format!("at most {paper}"), met: measured <= paper, ..it });
        let counted = format!("the paper's code on this tree: {name}");
        rows.push(row(true, counted, paper, by_papers_code, WHY_SHORTER));
    }
    for ((bits, within, with), fixed) in FIXED.into_iter().zip(fixed) {
        let all = (fixed.within + fixed.spilled + fixed.without).max(1);
        let in_100 = |part: u64| (100.0 * part as f64 / all as f64).round() as u64;
        let counted = |what: &str| format!("fixed size of {bits} bits: % of files {what}");
        rows.push(row(true, counted("within their region"), within, in_100(fixed.within), WHY_FIXED));
        let some = in_100(fixed.within + fixed.spilled);
        rows.push(row(true, counted("with an identifier"), with, some, WHY_FIXED));
    }
    rows
}

fn plot(lengths: &Lengths, papers: &Lengths) -> Plot {
    let line = |name: &str, lengths: &Lengths| {
        let mut sum = 0.0;
        let points = lengths.shares().map(|(bits, share)| {
            sum += 100.0 * share;
            (bits as f64, sum)
        });
        Line { name: name.to_owned(), points: points.collect() }
    };
    Plot {
        name: "identifiers",
        title: "Identifiers of at most so many bits",
        x: "bits",
        y: "% of all files",
        lines: vec![line("here", lengths), line("the paper's code on the same tree", papers)],
    }
}

/// Reads the names below `top`: which directories there are, and how many files in each. Entries
/// are in order of age where the file system knows that, or else in order of names. Symbolic links
/// are files. A directory that cannot be read fails.
pub fn read_tree(top: &Path) -> io::Result<DirectoryTree> {
    let mut tree = DirectoryTree::new();
    let mut left = vec![(0, top.to_owned())];
    while let Some((number, dir)) = left.pop() {
        let mut entries = fs::read_dir(&dir)
            .and_then(|entries| {
                entries.map(|entry| entry.and_then(|it| aged(&it))).collect::<Result<Vec<_>, _>>()
            })
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display())))?;
        entries.sort();
        for Aged { is_directory, path, .. } in entries {
            match is_directory {
                true => left.push((tree.add_directory(number), path)),
                false => tree.add_file(number),
            }
        }
    }
    Ok(tree)
}

/// An entry and its age.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Aged {
    made: Option<SystemTime>,
    path: PathBuf,
    is_directory: bool,
}

fn aged(entry: &fs::DirEntry) -> io::Result<Aged> {
    let metadata = entry.metadata()?;
    Ok(Aged { made: metadata.created().ok(), path: entry.path(), is_directory: metadata.is_dir() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trees_names_are_read() {
        let top = tempfile::tempdir().unwrap();
        let below = top.path().join("below");
        fs::create_dir(&below).unwrap();
        (0..3).for_each(|n| fs::write(below.join(n.to_string()), "").unwrap());
        std::os::unix::fs::symlink(&below, top.path().join("loop")).unwrap();
        let tree = read_tree(top.path()).unwrap();
        assert_eq!((tree.directories(), tree.files(), tree.depth()), (2, 4, 1));
        assert!(read_tree(&top.path().join("missing")).unwrap_err().to_string().contains("missing"));
    }

    #[test]
    fn lengths_have_the_papers_bars() {
        let mut lengths = Lengths::default();
        lengths.count(53);
        let fixed = FixedSize { within: 1, spilled: 1, without: 2 };
        let rows = rows(&lengths, &Lengths::default(), &[fixed; 3]);
        let met: Vec<bool> = rows.iter().map(|row| row.met).collect();
        assert_eq!(met[..6], [false, true, true, true, true, true], "{rows:?}");
        assert_eq!((rows[6].measured, rows[7].measured), (25, 50));
        let plot = plot(&lengths, &Lengths::default());
        assert_eq!(plot.lines[0].points.last(), Some(&(53.0, 100.0)));
    }
}
