//! `leasehold invite`, `join`, `machines`, `expel`.

use crate::answer::{answer, say};
use crate::{Failure, places};
use clap::Args;
use node::{Invitation, MachineReport, Token};
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Invite {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The only directory that the machine may see, by its path from the root of the file system.
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,
    /// The machine may change nothing.
    #[arg(long)]
    read_only: bool,
    /// All users of the machine count as this one.
    #[arg(long, value_name = "UID")]
    squash: Option<u32>,
    /// Hours until the token expires.
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=24 * 365))]
    hours: u64,
    /// Where the machine is to call this one (again for more); the addresses of this machine if there is none.
    #[arg(long = "address", value_name = "HOST:PORT")]
    addresses: Vec<String>,
}

impl Invite {
    /// Prints the token, and nothing else on standard output.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let invitation = Invitation {
            path: self.path,
            read_only: self.read_only,
            squash: self.squash,
            good_for_s: self.hours * 3600,
            addresses: self.addresses,
        };
        say(node::invite(&data, invitation)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Join {
    /// What `leasehold invite` printed.
    token: String,
    /// What this machine is to be called; its host name if absent.
    #[arg(long)]
    name: Option<String>,
    /// Where this machine is to keep its part. Made for this.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Join {
    /// Joins.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        join(&data, &self.token, self.name)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes `data` a machine's of the cluster that `token` is of, called `name` or as its host.
pub fn join(data: &std::path::Path, token: &str, name: Option<String>) -> Result<(), Failure> {
    let token: Token = token.parse()?;
    let name = name.unwrap_or_else(places::host_name);
    let machine = node::join(data, &token, &name)?;
    Ok(say(format_args!("joined as {name}, machine {}; next: leasehold up", machine.0))?)
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Machines {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Machines {
    /// Lists them.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let machines = node::machines(&self.data.map_or_else(places::data, Ok)?)?;
        answer(self.json, &machines, |machines| {
            let line = |machine: &MachineReport| {
                format!(
                    "{:<5} {:<20} {:<24} {}\n",
                    machine.machine, machine.name, machine.rights, machine.standing
                )
            };
            machines.iter().map(line).collect()
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Expel {
    /// The machine's name, or its number.
    machine: String,
    /// This machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Expel {
    /// Expels it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        node::expel(&self.data.map_or_else(places::data, Ok)?, &self.machine)?;
        say(format_args!("{} is no machine of this cluster any more", self.machine))?;
        Ok(ExitCode::SUCCESS)
    }
}
