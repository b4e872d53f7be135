//! `leasehold balance`, `pin` and `unpin`: which regions move among the servers of the directory to
//! balance their load.

use crate::answer::Answer;
use crate::progress::step_of;
use crate::table::table;
use crate::words::Words;
use crate::{Failure, places};
use admin::{BalanceReport, ServerLoad};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Balance {
    /// Whether regions move by themselves from now on. Without it, loads are compared once.
    #[arg(conflicts_with = "dry_run")]
    switch: Option<Switch>,
    /// Only tell the loads, and what would move.
    #[arg(long)]
    dry_run: bool,
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Whether regions move by themselves.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    /// They do, as in a new cluster.
    On,
    /// They do not.
    Off,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Pin {
    /// The path of a file or directory, from the root of the file system.
    path: String,
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Balance {
    /// Switches the balance, or compares loads.
    pub fn run(self) -> Result<Answer, Failure> {
        let Balance { switch, dry_run, data } = self;
        let data = data.map_or_else(places::data, Ok)?;
        let Some(switch) = switch else {
            let report = admin::balance(&data, !dry_run, &mut step_of)?;
            return Answer::told(&report, words(&report));
        };
        let on = matches!(switch, Switch::On);
        let said = match on {
            true => "regions move by themselves to balance the load of servers",
            false => "no region moves by itself any more",
        };
        Answer::told(&admin::switch_balance(&data, on)?, said)
    }
}

impl Pin {
    /// Pins the file to its server, or takes the pin away.
    pub fn run(self, pinned: bool) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let file = admin::pin(&data, self.path, pinned)?;
        let said = match pinned {
            true => format!("{} stays at its server, with all below and around it", file.path),
            false => format!("{} may move to balance the load", file.path),
        };
        Answer::told(&file, said)
    }
}

fn words(report: &BalanceReport) -> String {
    let row = |load: &ServerLoad| [load.server.to_string(), load.active.to_string(), load.files.to_string()];
    let mut text = table(["SERVER", "IN USE", "FILES"], report.servers.iter().map(row));
    if !report.on {
        text.push_str("no region moves by itself: leasehold balance on\n");
    }
    for pair in &report.pairs {
        text.push_str(&format!("{}\n", Words(pair)));
    }
    for moved in &report.moved {
        text.push_str(&format!("server {} manages {} now\n", moved.to, moved.path));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{KeptWhy, LoadPair, RegionMove};

    #[test]
    fn loads_come_first_then_pairs_and_what_moved() {
        let server = |server, active| ServerLoad { server, active, files: 9 };
        let pair = LoadPair { from: 1, to: 0, stays: Some(KeptWhy::Even), ..LoadPair::default() };
        let moved = RegionMove { path: "/a".to_owned(), to: 1, ..RegionMove::default() };
        let report = BalanceReport {
            on: false,
            servers: vec![server(0, 3), server(1, 40)],
            pairs: vec![pair],
            moved: vec![moved],
        };
        let expected = "SERVER  IN USE  FILES\n0       3       9\n1       40      9\n\
                        no region moves by itself: leasehold balance on\n\
                        server 1 to server 0: nothing (both have about as many files in use)\n\
                        server 1 manages /a now\n";
        assert_eq!(words(&report), expected);
    }
}
