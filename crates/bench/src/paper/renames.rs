//! Conflicting renames over six servers (Farsite §8.2.2, §8.3.2).

use super::PaperRow;
use super::report::Section;
use sim::Violation;
use sim::renames::{Order, Renames, conflicting};

/// The part's name on the command line.
pub(super) const NAME: &str = "renames";
/// Sequences of four renames.
const SEQUENCES: u64 = 100;

const WHY_PATHS: &str = "Of a rename's three servers only the leader asks for the way to the root. A lease has all directories \
                         above, is cached, and is recalled only if one of these gets another parent.";
const WHY_JOINT: &str = "The leader borrows from each of the two other servers, and settles with each: a question and an answer \
                         either time, which is 8 a rename where the paper has 6. A message without an answer is sent again after 100 ms.";

/// The section of the report.
pub(super) fn section(seed: u64) -> Result<Section, Violation> {
    let in_turns = conflicting(seed, SEQUENCES, Order::InTurns)?;
    let at_once = conflicting(seed, SEQUENCES, Order::AtOnce)?;
    Ok(Section {
        title: "Conflicting renames",
        place: "Farsite §8.2.2, §8.3.2",
        how: "Six directories on six servers, and the root on a seventh. Two clients move directories below each\n\
              other and back, 400 times, in sequences of four renames that follow each other, as the paper's figure 1 has\n\
              them. Messages between servers take 0.5 to 1.5 ms. At the end the tree is what it was."
            .to_owned(),
        rows: rows(in_turns),
        plots: Vec::new(),
        notes: vec![about_both(at_once)],
    })
}

fn rows(run: Renames) -> Vec<PaperRow> {
    let row = |counted: &str, paper: u64, measured: u64, why| PaperRow {
        experiment: NAME,
        control: false,
        counted: counted.to_owned(),
        paper,
        measured,
        bar: String::new(),
        met: true,
        why,
    };
    let Renames { renames, path_messages, joint_messages, .. } = run;
    let each = (path_messages + joint_messages).div_ceil(renames.max(1));
    let sum = row("messages between servers for each rename, rounded up", 12, each, "The sum of the two.");
    vec![
        row("messages about path leases", 2404, path_messages, WHY_PATHS),
        row("messages between servers about the renames", 2400, joint_messages, WHY_JOINT),
        PaperRow { bar: "at most 12".to_owned(), met: each <= 12, ..sum },
    ]
}

/// The same with both clients at once.
fn about_both(run: Renames) -> String {
    let Renames { renames, refused, path_messages, joint_messages } = run;
    format!(
        "With both clients at once, {renames} renames take {path_messages} messages about path leases and \
         {joint_messages} about the renames; {refused} are refused, since the other move was first, or there was \
         nothing to move back. No loop is made in any order of events."
    )
}
