//! The programs' knowledge.

use ident::FileId;
use lease::{Label, OpenModes};
use namespace::Entry;

/// The programs' knowledge.
#[derive(Debug, Default)]
pub(crate) struct ProgramKnowledge {
    pub dirs: Vec<FileId>,
    pub files: Vec<FileId>,
    /// Labels of each directory in this run.
    pub labels: Vec<Label>,
    /// By machine: entries that it saw lately.
    pub seen: Vec<Vec<Entry>>,
    /// By machine: the handles of its programs.
    pub open: Vec<Vec<(FileId, OpenModes)>>,
}
