//! Machines, servers and leases on files.

use super::{Words, seconds};
use admin::{
    ContentKeeping, FileLeases, LeaseLine, LeaseRight, LeaseStanding, MachineReport, MachineStanding,
    RightsReport,
};
use std::fmt;

impl fmt::Display for Words<'_, RightsReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.read_only { "reads" } else { "reads and writes" })?;
        if self.0.path != "/" {
            write!(f, " below {}", self.0.path)?;
        }
        self.0.squash.map_or(Ok(()), |id| write!(f, ", as user {id}"))
    }
}

impl fmt::Display for Words<'_, FileLeases> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file {}", self.0.file)?;
        if self.0.leases.is_empty() {
            return writeln!(f, "nobody holds anything of it");
        }
        for LeaseLine { field, of, machine, standing, last_recall_ms } in &self.0.leases {
            let field = of.as_ref().map_or(field.clone(), |of| format!("{field} {of}"));
            write!(f, "{field:<24} {machine:<16} {}", Words(standing))?;
            match last_recall_ms {
                Some(ms) => writeln!(f, " (the last recall took {ms} ms)")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

/// How a machine stands, and the recall that it has not answered.
impl fmt::Display for Words<'_, MachineReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Words(&self.0.standing))?;
        let unanswered = |ms| write!(f, "; has not answered a recall for {:.1} s", seconds(ms));
        self.0.unanswered_ms.map_or(Ok(()), unanswered)
    }
}

impl fmt::Display for Words<'_, MachineStanding> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MachineStanding::Expelled => f.write_str("expelled"),
            MachineStanding::NotConnected => f.write_str("not connected"),
            MachineStanding::Lapsed { heard_ms } => {
                write!(f, "lapsed, not heard of for {} s", heard_ms / 1000)
            }
            MachineStanding::Up { heard_ms } => write!(f, "up, heard of {} s ago", heard_ms / 1000),
        }
    }
}

impl fmt::Display for Words<'_, LeaseRight> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            LeaseRight::Read => "read",
            LeaseRight::Touch => "touch",
            LeaseRight::Write => "write",
            LeaseRight::OtherRead => "OtherRead",
            LeaseRight::SelfWrite => "SelfWrite",
            LeaseRight::SelfWriteAndOtherRead => "SelfWrite and OtherRead",
        })
    }
}

impl fmt::Display for Words<'_, LeaseStanding> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LeaseStanding::Holds { lease, left_ms } => {
                write!(f, "holds {} for {:.1} s more unless renewed", Words(lease), seconds(*left_ms))
            }
            LeaseStanding::Recalled { keep, for_ms } => {
                let keep = keep.map_or("nothing".to_owned(), |keep| Words(&keep).to_string());
                write!(f, "was asked {:.1} s ago to keep {keep}, and has not answered", seconds(*for_ms))
            }
            LeaseStanding::Waits { lease, for_ms } => {
                write!(f, "waits for {} since {:.1} s", Words(lease), seconds(*for_ms))
            }
            LeaseStanding::Excluded => f.write_str("holds all but this one"),
        }
    }
}

impl fmt::Display for Words<'_, ContentKeeping> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ContentKeeping::Keeps { weight_gib: None } => f.write_str("keeps content"),
            ContentKeeping::Keeps { weight_gib: Some(gib) } => write!(f, "keeps content ({gib} GiB)"),
            ContentKeeping::Away => f.write_str("away: others keep its content"),
            ContentKeeping::Drains => f.write_str("is being drained"),
        }
    }
}
