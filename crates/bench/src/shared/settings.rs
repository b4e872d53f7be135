//! The parts of the measurements, and the settings of a run.

use std::time::Duration;

/// A part of the measurements, which can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Work on names in a private directory, on a machine without a server.
    Private,
    /// The same over a slow link.
    Delayed,
    /// Two machines make files in one directory.
    Create,
    /// A small file goes from one machine to another.
    Handover,
    /// Two machines save files in one directory, as editors do.
    Save,
    /// Two machines open and close one file.
    Open,
    /// A machine walks a tree that another machine has made.
    Tree,
    /// Three servers instead of one.
    Servers,
    /// Several servers of the directory on one machine.
    Groups,
    /// Two copies of content instead of one.
    Copies,
    /// Content in fragments.
    Coded,
}

impl Section {
    /// All parts, in the order in which they run.
    pub const ALL: [Section; 11] = [
        Section::Private,
        Section::Delayed,
        Section::Create,
        Section::Handover,
        Section::Save,
        Section::Open,
        Section::Tree,
        Section::Servers,
        Section::Groups,
        Section::Copies,
        Section::Coded,
    ];

    /// The part's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Section::Private => "private",
            Section::Delayed => "delayed",
            Section::Create => "create",
            Section::Handover => "handover",
            Section::Save => "save",
            Section::Open => "open",
            Section::Tree => "tree",
            Section::Servers => "servers",
            Section::Groups => "groups",
            Section::Copies => "copies",
            Section::Coded => "coded",
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Parts to measure.
    pub parts: Vec<Section>,
    /// Files in the work on names.
    pub files: usize,
    /// Times that each work on names is done, in turns.
    pub rounds: usize,
    /// Length of each other measurement.
    pub time: Duration,
}
