//! The machines with restricted rights.

use ident::FileId;
use lease::SessionId;
use std::collections::BTreeMap;
use wire::{MachineId, Rights};

/// The rights of such machines, and the state of their enrolment.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub rights: BTreeMap<MachineId, Rights>,
    pub sessions: BTreeMap<SessionId, Rights>,
    pub files: Vec<FileId>,
    pub invited: bool,
    pub enrolled: u64,
}
