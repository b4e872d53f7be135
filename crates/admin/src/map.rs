//! Which server of the directory manages which regions.

use serde::{Deserialize, Serialize};

/// The servers of the directory, the root server first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapReport {
    /// The servers.
    pub servers: Vec<ServerOfMap>,
    /// Whether regions move by themselves.
    pub balance: bool,
    /// The files that are pinned to their servers.
    pub pins: Vec<PinnedFile>,
}

/// A server of the directory: a replicated group that manages regions of the name space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOfMap {
    /// Its number; the root server's is 0.
    pub server: u16,
    /// The name of the machine that leads it, if that is known.
    pub leader: Option<String>,
    /// The names of the machines that are members of its group.
    pub members: Vec<String>,
    /// The files that it manages.
    pub files: u64,
    /// The sessions of machines there.
    pub sessions: usize,
    /// The regions that it manages, in the order of identifiers.
    pub regions: Vec<MapEntry>,
}

/// A region: a file, and all that was made below it and has no region of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapEntry {
    /// The path of the file at which the region begins, or its identifier if it has no path.
    pub path: String,
    /// The identifier of that file: the prefix of all identifiers of the region.
    pub region: String,
    /// Counts the servers that the region has had, with what is around it.
    pub epoch: u64,
    /// The server to which the region is handed over just now.
    pub leaving_for: Option<u16>,
    /// The time at which it came to its server, UTC seconds, if that is known.
    pub since: Option<u64>,
    /// The reason for that, if it is known. A region that was there from its beginning has none.
    pub why: Option<MovedWhy>,
    /// Whether it stays for the sake of a pin.
    pub pinned: bool,
}

/// The reason for which a region moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MovedWhy {
    /// Somebody had it delegated.
    Asked,
    /// The loads of two servers differed.
    Balance,
}

/// A file that is pinned to its server, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedFile {
    /// Its path, or its identifier if it has none.
    pub path: String,
    /// Its identifier.
    pub file: String,
}

/// A region that was handed over from one server to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionMove {
    /// The path of the file at which the region begins.
    pub path: String,
    /// Its identifier.
    pub region: String,
    /// The server that had the region.
    pub from: u16,
    /// The server that has it.
    pub to: u16,
    /// Whether it is pinned there.
    pub pinned: bool,
}
