//! The rows about the placement of regions, at the root server: pins, the last move of each region,
//! and whether regions move by themselves. None of them says where a region is: that is known to
//! the servers that have it. So a row that is late or lost misleads people only.

use crate::Corrupt;
use crate::rows::files::Files;
use crate::rows::keys::Table;
use crate::rows::record::exact;
use ident::{FileId, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The reason for which a region moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveReason {
    /// Somebody had it delegated.
    Asked,
    /// The loads of two servers differed.
    Balance,
}

/// The last move of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The server that has it since.
    pub to: ServerId,
    /// The time of the move, UTC seconds.
    pub at: u64,
    /// The reason.
    pub why: MoveReason,
}

/// The placement of regions, as people and the balance have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Whether no region is to move by itself.
    pub is_off: bool,
    /// The files that are to stay where they are, with all around them and below them.
    pub pins: BTreeSet<FileId>,
    /// The last move of each region that has moved.
    pub moved: BTreeMap<FileId, Moved>,
}

impl Placement {
    /// Whether a region may not move by itself: a pinned file is in it, or it lies below one.
    pub fn is_pinned(&self, region: &FileId) -> bool {
        self.pins.iter().any(|pin| region.is_prefix_of(pin) || pin.is_prefix_of(region))
    }
}

impl Files<'_> {
    /// All of it.
    pub fn placement(&self) -> Placement {
        let files = |table: Table| {
            let rows = self.table(table, None, usize::MAX).into_iter();
            rows.filter_map(move |(key, row)| Some((self.parse_key(table.file(&key))?, key, row)))
        };
        Placement {
            is_off: self.row(Table::Unbalanced, &[]).is_some(),
            pins: files(Table::Pin).map(|(file, ..)| file).collect(),
            moved: files(Table::Moved)
                .filter_map(|(region, key, row)| Some((region, self.parse(&key, &row)?)))
                .collect(),
        }
    }

    /// Pins a file to where it is, or takes the pin away.
    pub fn set_pin(&mut self, file: &FileId, pinned: bool) {
        self.set_row(Table::Pin, file.as_bytes(), pinned.then(Vec::new));
    }

    /// Records the last move of a region. It moved whole, so no region below it is left.
    pub fn set_moved(&mut self, region: &FileId, moved: Option<Moved>) {
        for below in self.placement().moved.into_keys().filter(|it| region.is_prefix_of(it)) {
            self.set_row(Table::Moved, below.as_bytes(), None);
        }
        if let Some(moved) = moved {
            self.set_row(Table::Moved, region.as_bytes(), Some(wire::encode(&moved)));
        }
    }

    /// Records whether regions move by themselves.
    pub fn set_balance(&mut self, on: bool) {
        self.set_row(Table::Unbalanced, &[], (!on).then(Vec::new));
    }
}

/// Reads a row of [`Table::Moved`].
pub(crate) fn check_moved(key: &[u8], row: &[u8]) -> Result<(), Corrupt> {
    Table::Moved.file(key)?;
    exact::<Moved>(row).map(|_| ()).ok_or_else(|| Corrupt::at(key, "move"))
}
