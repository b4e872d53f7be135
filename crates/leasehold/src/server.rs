//! `leasehold server`: which machines hold the directory and the content.

use crate::answer::Answer;
use crate::confirm::Confirm;
use crate::progress::step_of;
use crate::table::table;
use crate::words::Words;
use crate::{Failure, places};
use admin::{MachineName, ServerStanding};
use clap::{Args, Subcommand};
use figures::span;
use std::path::PathBuf;

/// A server that was heard of within this time is up, ms.
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
    List {
        /// The data directory of a server on this machine.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
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

impl ServerCommand {
    /// Adds, removes or lists servers.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            ServerCommand::Add(Named { machine, data }) => {
                let added = admin::add_server(&data.map_or_else(places::data, Ok)?, &machine, &mut step_of)?;
                said(&added)
            }
            ServerCommand::Remove(Departing { named: Named { machine, data }, confirm }) => {
                confirm.ask(&format!(
                    "{machine} will be no server any more, and what its disk has will be worth nothing."
                ))?;
                let data = data.map_or_else(places::data, Ok)?;
                said(&admin::remove_server(&data, &machine, &mut step_of)?)
            }
            ServerCommand::List { data } => {
                let servers = admin::servers(&data.map_or_else(places::data, Ok)?)?;
                let headings = ["NAME", "ROLE", "CONTENT", "VERSION", "ADDRESS", ""];
                Answer::told(&servers, table(headings, servers.iter().map(row)))
            }
        }
    }
}

/// Answers with the machine. The steps are already reported.
fn said(machine: &MachineName) -> Result<Answer, Failure> {
    Answer::told(machine, "")
}

fn row(server: &ServerStanding) -> [String; 6] {
    let role = match (server.leads, server.votes) {
        (true, _) => "leads",
        (false, true) => "votes",
        (false, false) => "follows",
    };
    let behind = server.behind.filter(|behind| *behind > 0).map(|behind| format!("{behind} entries behind"));
    let silent = server.heard_ms.filter(|ms| *ms > SILENT_MS && !server.leads);
    let silent = match (silent, server.heard_ms) {
        (Some(ms), _) => Some(format!("not heard of for {}", span(ms / 1000))),
        // A leader that has just been elected has heard of nobody yet. It is told once the machine
        // is known to be up.
        (None, None) if server.machine_up => Some("not heard of yet".to_owned()),
        (None, _) => None,
    };
    let silent = silent.map(|silent| {
        let though =
            if server.machine_up { ", though its machine is up: leasehold status there" } else { "" };
        silent + though
    });
    [
        server.name.clone(),
        role.to_owned(),
        Words(&server.keeping).to_string(),
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
    /// Drains the server.
    pub fn run(self) -> Result<Answer, Failure> {
        let Departing { named: Named { machine, data }, confirm } = self.departing;
        confirm.ask(&format!("Other servers will keep the content that {machine} keeps."))?;
        said(&admin::drain(&data.map_or_else(places::data, Ok)?, &machine, &mut step_of)?)
    }
}
