//! `leasehold server`: which machines hold the directory and the content.

use crate::answer::answer;
use crate::{Failure, places};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum Server {
    /// Make a machine of the cluster a server. It must be up. Returns when it has learnt all that there was when it was asked.
    ///
    /// With three servers any one may die, with five any two. Of an even number one only follows: it has everything, and does not vote.
    Add(Named),
    /// Make a server an ordinary machine again. Drain it first, if it lives: leasehold drain.
    Remove(Named),
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

impl Server {
    /// Does it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut progress = |text: &str| eprintln!("{text}");
        match self {
            Server::Add(Named { machine, data }) => {
                node::add_server(&data.map_or_else(places::data, Ok)?, &machine, &mut progress)?;
            }
            Server::Remove(Named { machine, data }) => {
                node::remove_server(&data.map_or_else(places::data, Ok)?, &machine, &mut progress)?;
            }
            Server::List(List { data, json }) => {
                let servers = node::servers(&data.map_or_else(places::data, Ok)?)?;
                answer(json, &servers, |servers| {
                    servers.iter().map(|server| format!("{server}\n")).collect()
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Drain {
    #[command(flatten)]
    named: Named,
}

impl Drain {
    /// Does it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let Named { machine, data } = self.named;
        node::drain(&data.map_or_else(places::data, Ok)?, &machine, &mut |text| eprintln!("{text}"))?;
        Ok(ExitCode::SUCCESS)
    }
}
