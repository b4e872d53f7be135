//! `leasehold server`: which machines hold the directory and the content.

use crate::answer::answer;
use crate::confirm::Confirm;
use crate::progress::step;
use crate::table::table;
use crate::{Failure, places};
use clap::{Args, Subcommand};
use node::ServerStanding;
use node::figures::span;
use std::path::PathBuf;
use std::process::ExitCode;

/// A server that was heard of since is there, ms.
const SILENT_MS: u64 = 2_000;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Make a machine of the cluster a server. It must be up. Returns when it has learnt all that
    /// there was when it was asked.
    ///
    /// With three servers any one may die, with five any two. Of an even number one only follows:
    /// it has everything, and does not vote.
    Add(Named),
    /// Make a server an ordinary machine again. Drain it first, if it lives: leasehold drain.
    Remove(Departing),
    /// The servers, and how they stand.
    List(List),
}

/// Which machine.
#[derive(Debug, Args)]
pub struct Named {
    /// Its name, or its number.
    machine: String,
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// A server that others are to do without.
#[derive(Debug, Args)]
pub struct Departing {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    confirm: Confirm,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct List {
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl ServerCommand {
    /// Does it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut progress = step;
        match self {
            ServerCommand::Add(Named { machine, data }) => {
                node::add_server(&data.map_or_else(places::data, Ok)?, &machine, &mut progress)?;
            }
            ServerCommand::Remove(Departing { named: Named { machine, data }, confirm }) => {
                confirm.ask(&format!(
                    "{machine} will be no server any more, and what its disk has will be worth nothing."
                ))?;
                node::remove_server(&data.map_or_else(places::data, Ok)?, &machine, &mut progress)?;
            }
            ServerCommand::List(List { data, json }) => {
                let servers = node::servers(&data.map_or_else(places::data, Ok)?)?;
                answer(json, &servers, |servers| {
                    let headings = ["NAME", "ROLE", "CONTENT", "VERSION", "ADDRESS", ""];
                    table(headings, servers.iter().map(row))
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row(server: &ServerStanding) -> [String; 6] {
    let role = match (server.leads, server.votes) {
        (true, _) => "leads",
        (false, true) => "votes",
        (false, false) => "follows",
    };
    let behind = server.behind.filter(|behind| *behind > 0).map(|behind| format!("{behind} entries behind"));
    let silent = server.heard_ms.filter(|ms| *ms > SILENT_MS && !server.leads);
    let silent = silent.map(|ms| format!("not heard of for {}", span(ms / 1000)));
    [
        server.name.clone(),
        role.to_owned(),
        server.keeping.clone(),
        server.speaks.map_or_else(|| "-".to_owned(), |version| version.to_string()),
        server.addresses.first().map_or("-", String::as_str).to_owned(),
        behind.into_iter().chain(silent).collect::<Vec<_>>().join(", "),
    ]
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Drain {
    #[command(flatten)]
    departing: Departing,
}

impl Drain {
    /// Does it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let Departing { named: Named { machine, data }, confirm } = self.departing;
        confirm.ask(&format!("Other servers will keep the content that {machine} keeps."))?;
        node::drain(&data.map_or_else(places::data, Ok)?, &machine, &mut step)?;
        Ok(ExitCode::SUCCESS)
    }
}
