//! The balance of load among the servers of the directory.

use crate::map::RegionMove;
use serde::{Deserialize, Serialize};

/// The loads of the servers, and what the balance would do about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalanceReport {
    /// Whether regions move by themselves.
    pub on: bool,
    /// The servers, the root server first.
    pub servers: Vec<ServerLoad>,
    /// Each two servers, those first whose loads differ most.
    pub pairs: Vec<LoadPair>,
    /// The regions that moved for this request.
    pub moved: Vec<RegionMove>,
}

/// A server and its load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLoad {
    /// Its number.
    pub server: u16,
    /// The files that were in use within five minutes.
    pub active: u64,
    /// The files that it manages.
    pub files: u64,
}

/// Two servers. The first has more load, or as much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPair {
    /// The number of the server that would hand a region over.
    pub from: u16,
    /// The number of the other.
    pub to: u16,
    /// The path of the region that would go.
    pub gives: Option<String>,
    /// The path of the region that would come for it.
    pub takes: Option<String>,
    /// The reason why nothing moves; absent if the balance would act.
    pub stays: Option<KeptWhy>,
}

/// The reason for which no region goes from one server to another by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptWhy {
    /// The server has few files in use.
    Small,
    /// The other has about as many.
    Even,
    /// No subtree has about the load that is to move.
    NothingFits,
    /// The one that fits is pinned, has a pinned file in it, or lies below one.
    Pinned,
    /// The one that fits moved lately, or could not move.
    Rests,
    /// The one that fits cannot move: a part of it was delegated by itself, say.
    Tied,
    /// The machine that answers has not watched the servers for five minutes.
    NotWatched,
    /// One of the servers has no leader, or fewer voters than the root server.
    NotReady,
    /// One of the servers takes part in a move.
    Moving,
}

/// Whether regions move by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalanceSwitch {
    /// Whether they do.
    pub on: bool,
}
