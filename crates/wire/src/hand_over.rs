//! The messages between two servers when one hands a region over to the other (Farsite §4.1.4).

use ident::FileId;
use serde::{Deserialize, Serialize};

/// Rows of a region: keys and values.
pub type RegionRows = Vec<(Vec<u8>, Vec<u8>)>;

/// About the hand-over of a region, from its server to the next one, or back.
///
/// The server of the region says each message again until its answer has come. The next one may
/// hear any of them twice, late, or in another order, and each is known by region and epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// The region: all files whose identifiers begin with this one, but for those that have a
    /// server of their own.
    pub region: FileId,
    /// Grows with each offer of the region, or of what is around it. It is the next server's.
    pub epoch: u64,
    /// The message.
    pub step: HandOverStep,
}

/// A step of a hand-over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOverStep {
    /// To the next server: a page of the region's rows. Pages count from 0.
    Rows {
        /// The page.
        page: u64,
        /// Its rows, in the order of keys.
        rows: RegionRows,
    },
    /// The answer to `Rows`: the pages below this one are there.
    HasRows {
        /// The page that is due next.
        page: u64,
    },
    /// To the next server: the region is its own, with as many files. The region's server before
    /// has just given up all authority over it.
    TakeOver {
        /// The files of the region.
        files: u64,
    },
    /// The answer to `TakeOver`: the next server has the region.
    Taken,
    /// To the next server: the hand-over is cancelled.
    Withdrawn,
    /// The answer to `Withdrawn`, and to any message of a hand-over that this server cannot take
    /// part in.
    Declined,
}
