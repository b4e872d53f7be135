//! The work of a machine, and the results of checks.

use super::{Words, seconds};
use admin::{
    CallWait, FsckFault, FsckReport, Hint, LinkReport, ScrubReport, UnresponsiveReport, VersionReport,
    VersionWait,
};
use figures::{size, span, when};
use std::fmt;

impl fmt::Display for Words<'_, CallWait> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CallWait::Connection => "the connection to the server",
            CallWait::ContentRelease => "the release of content, which another machine waits for",
            CallWait::Storing => "what was done here to be stored",
            CallWait::Space => "space, on a full disk",
            CallWait::Server => "the server, or another machine that has to release first",
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
        self.0.faults.iter().try_for_each(|fault| writeln!(f, "{}", Words(fault)))?;
        let FsckReport { rows, pieces, bytes, shares, faults } = self.0;
        let verdict = if faults.is_empty() { "clean".to_owned() } else { format!("{} faults", faults.len()) };
        writeln!(
            f,
            "{verdict}: {rows} rows, {pieces} pieces of content ({}), {shares} shares checked",
            size(*bytes)
        )
    }
}

impl fmt::Display for Words<'_, FsckFault> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FsckFault::Rows { why } | FsckFault::Share { why, .. } => f.write_str(why),
            FsckFault::InlinePiece { bytes } => {
                write!(f, "an inline piece of {bytes} bytes does not match its hash")
            }
            FsckFault::InlineContent { bytes, why } => write!(f, "inline content of {bytes} bytes: {why}"),
            FsckFault::Fragment { share, why } => write!(f, "fragment {share} is damaged: {why}"),
            FsckFault::PieceDamaged { share, at } => {
                write!(f, "share {share}: the piece at {at} does not match its hash")
            }
            FsckFault::PieceUnread { share, at, why } => {
                write!(f, "share {share}: the piece at {at} cannot be read: {why}")
            }
            FsckFault::Unleased { share } => {
                write!(f, "share {share}: referenced, and the server's account has no lease on it")
            }
            FsckFault::LeasesUnread { share, why } => {
                write!(f, "share {share}: its leases cannot be read: {why}")
            }
            FsckFault::Unreferenced { share } => {
                write!(f, "share {share}: leased, and nothing refers to it")
            }
            FsckFault::SharesUnlisted { why } => write!(f, "the shares cannot be listed: {why}"),
        }
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
