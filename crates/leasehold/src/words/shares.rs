//! Stored shares, their accounts and their leases.

use super::Words;
use admin::{
    AccountReport, Allowance, DeletionReport, EndedLeases, GarbageReport, HostStore, KeptBy, KeptShares,
    LeasesReport, ParcelFault, ParcelReport, ShareAccount, ShareLeaseReport, ShareReport, StoredState,
    StoresReport, UsageReport,
};
use figures::{date, size, when};
use share_hosts::{IncidentReport, PassProcess, StoreReport, Sum, Suspension};
use std::fmt;

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
        suspended(f, "  ", self.0.suspended)?;
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
        for KeptShares { by, sum, until } in &self.0.stays {
            write!(f, "stays      {}, for {}", Words(sum), Words(by))?;
            match until {
                Some(until) => writeln!(f, " (ends {})", when(*until, self.0.now))?,
                None => writeln!(f)?,
            }
        }
        suspended(f, "", self.0.suspended)
    }
}

impl fmt::Display for Words<'_, DeletionReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "unleased   {}; {} of them may go now", Words(&self.0.unleased), self.0.due.shares)?;
        if let Some(at) = self.0.next_due {
            writeln!(f, "next       {}", when(at, self.0.now))?;
        }
        writeln!(f, "going      {}", Words(&self.0.going))?;
        suspended(f, "", self.0.suspended)?;
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

impl fmt::Display for Words<'_, KeptBy> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            KeptBy::GracePeriod => f.write_str("the grace period"),
            KeptBy::Lease { account } => write!(f, "a lease of {}", Words(account)),
        }
    }
}

impl fmt::Display for Words<'_, ShareAccount> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ShareAccount::Cluster => f.write_str("files of the cluster"),
            ShareAccount::Key { name } => write!(f, "key {name}"),
            ShareAccount::Uploads { machine_name: Some(name), session, .. } => {
                write!(f, "{name}, uploads of session {session}")
            }
            ShareAccount::Uploads { machine, session, .. } => {
                write!(f, "machine {machine}, uploads of session {session}")
            }
            ShareAccount::Anonymous => f.write_str("nobody in particular"),
            ShareAccount::Starter => f.write_str("whoever it was when it was found"),
            ShareAccount::Other { name } => f.write_str(name),
            ShareAccount::Gone => f.write_str("an account that is gone"),
        }
    }
}

impl fmt::Display for Words<'_, UsageReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for AccountReport { account, leased, quota, .. } in &self.0.accounts {
            write!(f, "{:<40} {}", Words(account).to_string(), Words(leased))?;
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
            for ShareLeaseReport { account, renewed, ends } in leases {
                let account = Words(account).to_string();
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
        let ParcelReport { file, shares, bytes, leases, faults } = self.0;
        for fault in faults {
            match fault {
                ParcelFault::Missing { share } => writeln!(f, "share {share} cannot be had")?,
                ParcelFault::Damaged { share } => writeln!(f, "share {share} is not what was stored")?,
                ParcelFault::Refused { why, .. } => writeln!(f, "{why}")?,
                ParcelFault::LeaseRefused { name, why } => {
                    writeln!(f, "a lease of key {name} is not kept: {why}")?;
                }
                ParcelFault::CutOff { why } => writeln!(f, "{file}: {why}; what came before is taken in")?,
            }
        }
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

fn suspended(f: &mut fmt::Formatter<'_>, indent: &str, why: Option<Suspension>) -> fmt::Result {
    let why = match why {
        None => return Ok(()),
        Some(Suspension::DatabaseDamaged) => "its database is damaged; it is made anew at the next start",
        Some(Suspension::Discovering) => "not all that lies there is known yet",
        Some(Suspension::ClockJumped) => "the clock has jumped, and what files refer to is not renewed yet",
    };
    writeln!(f, "{indent}SUSPENDED  nothing expires or is deleted: {why}")
}

fn process(process: PassProcess) -> &'static str {
    match process {
        PassProcess::Expirer => "expirer",
        PassProcess::Reaper => "reaper",
        PassProcess::Discovery => "discovery",
        PassProcess::Scrub => "scrub",
    }
}

fn standing(standing: StoredState) -> &'static str {
    match standing {
        StoredState::NotHere => "not here",
        StoredState::Coming => "being written",
        StoredState::Going => "being deleted",
        StoredState::Sound => "sound",
        StoredState::Missing => "its file is gone",
        StoredState::Damaged => "damaged",
    }
}
