//! Reports of crates below in words for people.

use figures::{size, when};
use share_hosts::{IncidentReport, StoreReport, Sum};
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
        let mut told: Vec<&str> = Vec::new();
        for pass in &self.0.passes {
            if told.contains(&pass.process.as_str()) {
                continue;
            }
            told.push(&pass.process);
            write!(f, "  {:<10} ", pass.process)?;
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
