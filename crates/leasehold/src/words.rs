//! The reports of a machine in words for people.

use admin::{
    AccountReport, Allowance, CallWait, ContentKeeping, DeletionReport, EndedLeases, FileLeases, FsckReport,
    GarbageReport, Hint, HostStore, KeptBy, KeptShares, LeaseLine, LeaseRight, LeaseStanding, LeasesReport,
    LinkReport, MachineReport, MachineStanding, ParcelFault, ParcelReport, RightsReport, ScrubReport,
    ShareAccount, ShareLeaseReport, ShareReport, StoredState, StoresReport, UnresponsiveReport, UsageReport,
    VersionReport, VersionWait,
};
use figures::{date, size, span, when};
use share_hosts::{IncidentReport, PassProcess, StoreReport, Sum, Suspension};
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

impl fmt::Display for Words<'_, CallWait> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CallWait::Connection => "the connection to the server",
            CallWait::ContentRelease => "content to be let go, which another machine waits for",
            CallWait::Storing => "what was done here to be stored",
            CallWait::Space => "space, on a full disk",
            CallWait::Server => "the server, or another machine that has to let go first",
        })
    }
}

impl fmt::Display for Words<'_, UnresponsiveReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnresponsiveReport { name, unanswered_ms } = self.0;
        write!(f, "{name} has not answered a recall for {:.1} s", seconds(*unanswered_ms))
    }
}

impl fmt::Display for Words<'_, Hint> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hint::AddServers { machines, servers } = self.0;
        let have = if *servers == 2 { "two servers, one of which must not die" } else { "one server" };
        write!(
            f,
            "{machines} machines have {have}: with three any one may die (leasehold server add MACHINE)"
        )
    }
}

impl fmt::Display for Words<'_, LinkReport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkReport { server, since_s, down } = self.0;
        match down {
            None => write!(f, "{server}, connected for {}", span(*since_s)),
            Some(why) => write!(f, "{server}, NOT CONNECTED for {}: {why}", span(*since_s)),
        }
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
        for wait in waits_for {
            writeln!(f, "           not raised to {}: {}", cluster + 1, Words(wait))?;
        }
        if !older.is_empty() {
            writeln!(f, "           an older one may still be spoken by {}", older.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Words<'_, VersionWait> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            VersionWait::ServerAway { server } => write!(f, "server {server} is not there"),
            VersionWait::ServerOlder { server, speaks } => {
                write!(f, "server {server} knows none after version {speaks}, or is held to it")
            }
            VersionWait::MachineOlder { machine } => {
                write!(f, "machine {machine} may still speak an older one")
            }
        }
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

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
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
