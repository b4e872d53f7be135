//! The state of this machine's store.

use serde::{Deserialize, Serialize};
use shares::{DatabaseError, Pass, Process, ShareServer, Suspended};

/// How many incidents a report holds: the latest.
const INCIDENTS: usize = 20;

/// A number of shares and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// How many shares.
    pub shares: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl From<shares::Usage> for Sum {
    fn from(shares::Usage { shares, bytes }: shares::Usage) -> Sum {
        Sum { shares, bytes }
    }
}

impl Sum {
    /// Adds a share with so many bytes.
    pub fn add(&mut self, bytes: u32) {
        self.shares += 1;
        self.bytes += u64::from(bytes);
    }
}

/// The state of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreReport {
    /// The store's identifier. Accounts sign for it.
    pub id: String,
    /// The time by its clock, UTC seconds, as are all times here.
    pub now: u64,
    /// Shares that are being written.
    pub coming: Sum,
    /// Shares that are stored.
    pub stable: Sum,
    /// Shares that are being deleted.
    pub going: Sum,
    /// Stored shares that no account has leased.
    pub unleased: Sum,
    /// Unleased shares that may be deleted now.
    pub due: Sum,
    /// When the next unleased share may be deleted.
    pub next_due: Option<u64>,
    /// Shares whose file is gone.
    pub missing: Sum,
    /// Shares that differ from what was stored, or are incomplete.
    pub corrupt: Sum,
    /// Why nothing expires and nothing is deleted, if so.
    pub suspended: Option<Suspension>,
    /// When all that files refer to was last known to be leased. Leases of the cluster that have
    /// ended since then stay.
    pub vouched: Option<u64>,
    /// The passes of the background processes: the latest pass of each first.
    pub passes: Vec<PassReport>,
    /// Incidents, the latest first.
    pub incidents: Vec<IncidentReport>,
}

/// The reason why nothing expires and nothing is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspension {
    /// The database is damaged. The next start makes it anew.
    DatabaseDamaged,
    /// Some shares in the store may not be known yet.
    Discovering,
    /// The clock has jumped, and the leases of what files refer to are not renewed yet.
    ClockJumped,
}

/// A pass of a background process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassReport {
    /// The process.
    pub process: PassProcess,
    /// The number of the pass; for the reaper, the day since 1970.
    pub cycle: u64,
    /// When the pass began.
    pub began: u64,
    /// When the pass ended, if it has.
    pub ended: Option<u64>,
    /// The progress, from 0 to 1.
    pub progress: f64,
    /// How many shares it has examined.
    pub examined: u64,
    /// How many of these it acted upon.
    pub acted: u64,
}

/// A background process of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassProcess {
    /// Ends leases that are over.
    Expirer,
    /// Deletes what nothing has leased.
    Reaper,
    /// Finds shares that the database does not know.
    Discovery,
    /// Reads all shares against their digests.
    Scrub,
}

/// An event that ought not to have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentReport {
    /// When it happened.
    pub at: u64,
    /// The share that it is about.
    pub share: Option<String>,
    /// The error, as the store has written it down.
    pub what: String,
}

impl StoreReport {
    /// The state of this machine's store.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn of(server: &ShareServer) -> Result<StoreReport, DatabaseError> {
        let sums = server.inventory()?;
        let corrupt = Sum {
            shares: sums.corrupt.shares + sums.partial.shares,
            bytes: sums.corrupt.bytes + sums.partial.bytes,
        };
        let incidents = server.incidents()?.into_iter().take(INCIDENTS).map(|incident| IncidentReport {
            at: incident.at,
            share: incident.share.map(|share| share.to_string()),
            what: incident.what,
        });
        Ok(StoreReport {
            id: server.id()?.iter().map(|byte| format!("{byte:02x}")).collect(),
            now: server.now(),
            coming: sums.coming.into(),
            stable: sums.stable.into(),
            going: sums.going.into(),
            unleased: sums.unleased.into(),
            due: sums.due.into(),
            next_due: sums.next_due,
            missing: sums.missing.into(),
            corrupt,
            suspended: server.suspended()?.map(Suspension::from),
            vouched: server.vouched(),
            passes: server.passes()?.into_iter().map(PassReport::from).collect(),
            incidents: incidents.collect(),
        })
    }
}

impl From<Suspended> for Suspension {
    fn from(suspended: Suspended) -> Suspension {
        match suspended {
            Suspended::Damaged => Suspension::DatabaseDamaged,
            Suspended::Discovering => Suspension::Discovering,
            Suspended::Clock { .. } => Suspension::ClockJumped,
        }
    }
}

impl From<Pass> for PassReport {
    fn from(pass: Pass) -> PassReport {
        let Pass { process, cycle, began_at, ended_at, progress, examined, acted } = pass;
        let process = match process {
            Process::Expirer => PassProcess::Expirer,
            Process::Reaper => PassProcess::Reaper,
            Process::Discovery => PassProcess::Discovery,
            Process::Scrub => PassProcess::Scrub,
        };
        PassReport { process, cycle, began: began_at, ended: ended_at, progress, examined, acted }
    }
}
