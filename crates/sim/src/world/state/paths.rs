//! The state of programs that make calls on paths.

use crate::world::history::CallNumber;
use ident::FileId;
use lease::OpenModes;
use std::collections::BTreeMap;

/// Names that always exist, each with the name under which its successors are made.
pub(crate) const ALWAYS: [(&str, &str); 2] = [("a", "a new"), ("b", "b new")];
/// The state of programs that make such calls.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// By machine and program.
    pub walks: BTreeMap<(usize, usize), Walk>,
    /// For each of their calls: its beginning, and how often each name had been replaced then.
    pub begun: BTreeMap<CallNumber, (u64, [u64; ALWAYS.len()])>,
    /// Times that each name has been replaced.
    pub replaced: [u64; ALWAYS.len()],
}

/// A call on a path that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub name: &'static str,
    /// The file that the lookup found.
    pub found: Option<FileId>,
    /// The file was gone once, and the name is looked up again.
    pub again: bool,
    /// The handle that remains to be closed.
    pub open: Option<(FileId, OpenModes)>,
    /// The machine's life in which the call began.
    pub life: usize,
}
