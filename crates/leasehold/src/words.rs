//! The reports of a machine in words for people.

use admin::{
    AccountReport, Allowance, DeletionReport, EndedLeases, FileLeases, FsckReport, GarbageReport, HostStore,
    Kept, LeaseLine, LeaseReport, LeasesReport, ParcelReport, RightsReport, ScrubReport, ShareReport,
    Standing, StoresReport, UsageReport, VersionReport,
};
use figures::{date, size, when};
use share_hosts::{IncidentReport, PassProcess, StoreReport, Sum};
use std::fmt;

/// A report, written in words.
pub struct Words<'a, T>(pub &'a T);

impl fmt::Display for Words<'_, Sum> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shares, {}", self.0.shares, size(self.0.bytes))
    }
}

impl fmt::Display for Words<'_, StoreReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  stored     {}", Words(&self.0.stable))?;
        let mut told = |what: &str, sum: &Sum| match sum.shares {
            0 => Ok(()),
            _ => writeln!(f, "  {what:<10} {}", Words(sum)),
        };
        told("coming", &self.0.coming)?;
        told("going", &self.0.going)?;
        told("MISSING", &self.0.missing)?;
        told("DAMAGED", &self.0.corrupt)?;
        if self.0.unleased.shares > 0 {
            write!(f, "  unleased   {}; {} of them may go now", Words(&self.0.unleased), self.0.due.shares)?;
            match self.0.next_due {
                Some(at) => writeln!(f, ", the next {}", when(at, self.0.now))?,
                None => writeln!(f)?,
            }
        }
        if let Some(why) = &self.0.suspended {
            writeln!(f, "  SUSPENDED  nothing expires or is deleted: {why}")?;
        }
        match self.0.vouched {
            Some(at) => writeln!(f, "  leased     all that files refer to, as of {}", when(at, self.0.now))?,
            None => writeln!(
                f,
                "  leased     what files refer to is being looked through; until then none of the cluster's leases ends"
            )?,
        }
        let mut told: Vec<PassProcess> = Vec::new();
        for pass in &self.0.passes {
            if told.contains(&pass.process) {
                continue;
            }
            told.push(pass.process);
            write!(f, "  {:<10} ", process(pass.process))?;
            match pass.ended {
                Some(at) => write!(f, "ended {}", when(at, self.0.now))?,
                None => write!(
                    f,
                    "began {}, {:.0} % through",
                    when(pass.began, self.0.now),
                    pass.progress * 100.0
                )?,
            }
            writeln!(f, ": {} looked at, {} of them acted upon", pass.examined, pass.acted)?;
        }
        for IncidentReport { at, share, what } in &self.0.incidents {
            let share = share.as_ref().map_or(String::new(), |share| format!("share {share}: "));
            writeln!(f, "  incident   {}, {share}{what}", when(*at, self.0.now))?;
        }
        Ok(())
    }
}

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
        for LeaseLine { field, machine, standing, last_recall_ms } in &self.0.leases {
            write!(f, "{field:<24} {machine:<16} {standing}")?;
            match last_recall_ms {
                Some(ms) => writeln!(f, " (the last recall took {ms} ms)")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Words<'_, FsckReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.0.faults {
            writeln!(f, "{fault}")?;
        }
        let FsckReport { rows, pieces, bytes, shares, faults } = self.0;
        let verdict = if faults.is_empty() { "clean".to_owned() } else { format!("{} faults", faults.len()) };
        writeln!(
            f,
            "{verdict}: {rows} rows, {pieces} pieces of content ({}), {shares} shares checked",
            size(*bytes)
        )
    }
}

impl fmt::Display for Words<'_, ScrubReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScrubReport { ended, bytes, shares_ended, shares_examined, found, damaged } = self.0;
        let ago = |ended: &Option<u64>| match ended {
            Some(at) => format!("read {}", when(*at, os::utc_secs())),
            None => "not all read yet".to_owned(),
        };
        write!(f, "rows and log {}", ago(ended))?;
        if let Some(bytes) = bytes {
            write!(f, " ({} of the next pass)", size(*bytes))?;
        }
        write!(f, ", shares {}", ago(shares_ended))?;
        if let Some(examined) = shares_examined {
            write!(f, " ({examined} of the next pass)")?;
        }
        write!(f, ": {found} found damaged, {damaged} damaged now")
    }
}

impl fmt::Display for Words<'_, VersionReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VersionReport { cluster, known, older, waits_for } = self.0;
        match known > cluster {
            true => writeln!(f, "version    {cluster}; this server knows {known}")?,
            false => writeln!(f, "version    {cluster}")?,
        }
        for why in waits_for {
            writeln!(f, "           not raised to {}: {why}", cluster + 1)?;
        }
        if !older.is_empty() {
            writeln!(f, "           an older one may still be spoken by {}", older.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Words<'_, StoresReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for HostStore { machine, name, store } in &self.0.hosts {
            match store {
                Some(store) => write!(f, "{name} (machine {machine})\n{}", Words(store))?,
                None => writeln!(f, "{name} (machine {machine}) DOES NOT ANSWER")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Words<'_, GarbageReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.gone != Sum::default() {
            writeln!(f, "gone       {}", Words(&self.0.gone))?;
        }
        writeln!(f, "needed     {}", Words(&self.0.needed))?;
        writeln!(f, "goes now   {}", Words(&self.0.goes))?;
        for Kept { by, sum, until } in &self.0.stays {
            write!(f, "stays      {}, for {by}", Words(sum))?;
            match until {
                Some(until) => writeln!(f, " (ends {})", when(*until, self.0.now))?,
                None => writeln!(f)?,
            }
        }
        match &self.0.suspended {
            Some(why) => writeln!(f, "SUSPENDED  nothing expires or is deleted: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Words<'_, DeletionReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "unleased   {}; {} of them may go now", Words(&self.0.unleased), self.0.due.shares)?;
        if let Some(at) = self.0.next_due {
            writeln!(f, "next       {}", when(at, self.0.now))?;
        }
        writeln!(f, "going      {}", Words(&self.0.going))?;
        if let Some(why) = &self.0.suspended {
            writeln!(f, "SUSPENDED  nothing expires or is deleted: {why}")?;
        }
        if self.0.held {
            writeln!(f, "HELD       a backup is being made; until it is, nothing that it may need goes")?;
        }
        match self.0.vouched {
            Some(at) => writeln!(f, "looked     through all that files refer to {}", when(at, self.0.now))?,
            None => writeln!(f, "looked     not through all that files refer to yet, since the start")?,
        }
        for pass in &self.0.days {
            writeln!(f, "deleted    {} shares in the pass that began {}", pass.acted, date(pass.began))?;
        }
        Ok(())
    }
}

impl fmt::Display for Words<'_, UsageReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for AccountReport { account, leased, quota, .. } in &self.0.accounts {
            write!(f, "{account:<40} {}", Words(leased))?;
            match quota {
                Some(quota) => writeln!(f, " of {}", size(quota.bytes))?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "{:<40} {}", "stored in all", Words(&self.0.stored))
    }
}

impl fmt::Display for Words<'_, LeasesReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ShareReport { share, standing, bytes, referenced, leases } in &self.0.shares {
            let bytes = bytes.map_or(String::new(), |bytes| format!(", {}", size(bytes.into())));
            let referenced = if *referenced { "a file refers to it" } else { "no file refers to it" };
            writeln!(f, "{share}  {}{bytes}; {referenced}", self::standing(*standing))?;
            for LeaseReport { account, renewed, ends } in leases {
                let ends =
                    ends.map_or("never ends".to_owned(), |ends| format!("ends {}", when(ends, self.0.now)));
                writeln!(f, "    {account:<40} renewed {}, {ends}", when(*renewed, self.0.now))?;
            }
        }
        if self.0.shares.is_empty() {
            writeln!(f, "no shares: content up to 4 KiB is kept with the file")
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Words<'_, ParcelReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.faults.iter().try_for_each(|fault| writeln!(f, "{fault}"))?;
        let ParcelReport { file, shares, bytes, leases, .. } = self.0;
        writeln!(f, "{file}: {shares} shares, {}, {leases} leases", size(*bytes))
    }
}

impl fmt::Display for Words<'_, Allowance> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.quota {
            Some(bytes) => write!(f, "{} may lease {} here", self.0.account, size(bytes)),
            None => write!(f, "{} may lease as much as there is room for here", self.0.account),
        }
    }
}

impl fmt::Display for Words<'_, EndedLeases> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndedLeases { account, leases, removed } = self.0;
        if *removed {
            return write!(f, "{account} has no account here any more, and {leases} leases have ended");
        }
        write!(f, "{leases} leases of {account} have ended; what nobody else has leased goes a day later")
    }
}

fn process(process: PassProcess) -> &'static str {
    match process {
        PassProcess::Expirer => "expirer",
        PassProcess::Reaper => "reaper",
        PassProcess::Discovery => "discovery",
        PassProcess::Scrub => "scrub",
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::NotHere => "not here",
        Standing::Coming => "being written",
        Standing::Going => "being deleted",
        Standing::Sound => "sound",
        Standing::Missing => "its file is gone",
        Standing::Damaged => "damaged",
    }
}
