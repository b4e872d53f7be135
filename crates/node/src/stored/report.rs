//! The state of stores: this machine's, and those of the other hosts that answer.

use super::Sum;
use crate::figures::when;
use crate::server::Server;
use crate::share_host::ShareHost;
use serde::{Deserialize, Serialize};
use shares::{DatabaseError, Pass, Process, Suspended};
use std::fmt;
use wire::MachineId;

/// How many incidents a report holds: the latest.
const INCIDENTS: usize = 20;

/// The state of the stores of all hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoresReport {
    /// One entry for each host.
    pub hosts: Vec<HostStore>,
}

/// A host's store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostStore {
    /// The machine's number.
    pub machine: u64,
    /// Its name.
    pub name: String,
    /// The state of the store; `None` if the host does not answer.
    pub store: Option<StoreReport>,
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
    pub suspended: Option<String>,
    /// When all that files refer to was last known to be leased. Leases of the cluster that have
    /// ended since then stay.
    pub vouched: Option<u64>,
    /// The passes of the background processes: the latest pass of each first.
    pub passes: Vec<PassReport>,
    /// Incidents, the latest first.
    pub incidents: Vec<IncidentReport>,
}

/// A pass of a background process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassReport {
    /// The process: expirer, reaper, discovery or scrub.
    pub process: String,
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

/// An event that ought not to have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentReport {
    /// When it happened.
    pub at: u64,
    /// The share that it is about.
    pub share: Option<String>,
    /// The description, in words.
    pub what: String,
}

/// The state of the stores of all hosts.
pub(super) fn all(server: &Server) -> StoresReport {
    let names = server.machines();
    let name =
        |machine: u64| names.iter().find(|known| known.machine == machine).map(|known| known.name.clone());
    let stores = server.share_host().stores().into_iter().map(|(MachineId(machine), store)| HostStore {
        machine,
        name: name(machine).unwrap_or_else(|| format!("machine {machine}")),
        store,
    });
    StoresReport { hosts: stores.collect() }
}

impl StoreReport {
    /// The state of this machine's store.
    pub(crate) fn of(share_host: &ShareHost) -> Result<StoreReport, DatabaseError> {
        let server = share_host.shares().server();
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
            suspended: server.suspended()?.map(why),
            vouched: server.vouched(),
            passes: server.passes()?.into_iter().map(PassReport::from).collect(),
            incidents: incidents.collect(),
        })
    }
}

fn why(suspended: Suspended) -> String {
    match suspended {
        Suspended::Damaged => "its database is damaged; it is made anew at the next start".to_owned(),
        Suspended::Discovering => "not all that lies there is known yet".to_owned(),
        Suspended::Clock { .. } => {
            "the clock has jumped, and what files refer to is not renewed yet".to_owned()
        }
    }
}

impl From<Pass> for PassReport {
    fn from(pass: Pass) -> PassReport {
        let Pass { process, cycle, began_at, ended_at, progress, examined, acted } = pass;
        let process = match process {
            Process::Expirer => "expirer",
            Process::Reaper => "reaper",
            Process::Discovery => "discovery",
            Process::Scrub => "scrub",
        };
        let process = process.to_owned();
        PassReport { process, cycle, began: began_at, ended: ended_at, progress, examined, acted }
    }
}

impl fmt::Display for StoresReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for HostStore { machine, name, store } in &self.hosts {
            match store {
                Some(store) => write!(f, "{name} (machine {machine})\n{store}")?,
                None => writeln!(f, "{name} (machine {machine}) DOES NOT ANSWER")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  stored     {}", self.stable)?;
        let mut told = |what: &str, sum: &Sum| match sum.shares {
            0 => Ok(()),
            _ => writeln!(f, "  {what:<10} {sum}"),
        };
        told("coming", &self.coming)?;
        told("going", &self.going)?;
        told("MISSING", &self.missing)?;
        told("DAMAGED", &self.corrupt)?;
        if self.unleased.shares > 0 {
            write!(f, "  unleased   {}; {} of them may go now", self.unleased, self.due.shares)?;
            match self.next_due {
                Some(at) => writeln!(f, ", the next {}", when(at, self.now))?,
                None => writeln!(f)?,
            }
        }
        if let Some(why) = &self.suspended {
            writeln!(f, "  SUSPENDED  nothing expires or is deleted: {why}")?;
        }
        match self.vouched {
            Some(at) => writeln!(f, "  leased     all that files refer to, as of {}", when(at, self.now))?,
            None => writeln!(
                f,
                "  leased     what files refer to is being looked through; until then none of the cluster's leases ends"
            )?,
        }
        let mut told: Vec<&str> = Vec::new();
        for pass in &self.passes {
            if told.contains(&pass.process.as_str()) {
                continue;
            }
            told.push(&pass.process);
            write!(f, "  {:<10} ", pass.process)?;
            match pass.ended {
                Some(at) => write!(f, "ended {}", when(at, self.now))?,
                None => {
                    write!(f, "began {}, {:.0} % through", when(pass.began, self.now), pass.progress * 100.0)?
                }
            }
            writeln!(f, ": {} looked at, {} of them acted upon", pass.examined, pass.acted)?;
        }
        for IncidentReport { at, share, what } in &self.incidents {
            let share = share.as_ref().map_or(String::new(), |share| format!("share {share}: "));
            writeln!(f, "  incident   {}, {share}{what}", when(*at, self.now))?;
        }
        Ok(())
    }
}
