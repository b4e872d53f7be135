//! `leasehold shares`, `leasehold gc`.

use crate::answer::{self, lines, put};
use crate::progress::Progress;
use crate::{Failure, arguments, places};
use clap::{Args, Subcommand};
use node::{AccountClient, KeyFile, SharesRequest};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum Shares {
    /// How the stores of all servers stand: what is stored, damaged, or waits to be deleted, and
    /// what goes on in the background.
    Status(Asking),
    /// What each account has leased at this server, and what it may.
    Usage(Asking),
    /// Who has leased a share at this server, or each share of a path.
    Leases {
        /// A share (32 hexadecimal digits), or a file or directory by its path from the root of the
        /// file system.
        which: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Write shares with their leases into a file, from which another server can take them in.
    ///
    /// What is in it is as encrypted as it is here. The machine need not be up: then only what its
    /// own store has is exported, all of it or by the names of shares. Exits with 1 if some shares
    /// could not be had.
    Export {
        /// The file. There must be none yet.
        file: PathBuf,
        /// Shares and paths, as for `leases`; all that this server has if there are none.
        which: Vec<String>,
        #[command(flatten)]
        asking: Asking,
    },
    /// Take in shares that were exported. They are kept for 60 days, and for whoever had leased
    /// them.
    ///
    /// Exits with 1 if some could not be taken in.
    Import {
        /// The file.
        file: PathBuf,
        #[command(flatten)]
        asking: Asking,
    },
    /// Look through the store of this server for shares that it does not know, and for known ones
    /// that are not there: after files were put there, or restored.
    Discover(Asking),
    /// Accounts of keys: programs that may store shares of their own at this server.
    #[command(subcommand)]
    Account(Account),
    /// Store a file as one share, for the account of a key. Prints the share's name.
    Put {
        /// The file; standard input if absent.
        file: Option<PathBuf>,
        #[command(flatten)]
        of: Of,
    },
    /// Print a share.
    Get {
        /// Its name.
        share: String,
        #[command(flatten)]
        of: Of,
    },
    /// The shares that the account of a key has leased, or leases them anew with `--renew`.
    List {
        /// Renew all leases.
        #[arg(long)]
        renew: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Let go of shares that the account of a key has leased.
    Drop {
        /// Their names.
        #[arg(required = true)]
        shares: Vec<String>,
        #[command(flatten)]
        of: Of,
    },
}

/// Accounts of keys.
#[derive(Debug, Subcommand)]
pub enum Account {
    /// Make a key, in a file of its own. Prints its public half, which a server is to be given.
    Key {
        /// The file. There must be none yet.
        file: PathBuf,
    },
    /// Make an account for a key at this server, or change its quota.
    Add {
        /// What it is to be called.
        name: String,
        /// The public half of its key.
        key: String,
        /// Bytes that it may lease at most; as much as there is room for if absent.
        #[arg(long, value_name = "BYTES", value_parser = arguments::bytes)]
        quota: Option<u64>,
        #[command(flatten)]
        asking: Asking,
    },
    /// All accounts at this server.
    List(Asking),
    /// End the leases of an account that it has not renewed for some time: a program that renews
    /// what it wants to keep has the rest go so.
    Sweep {
        /// Its name, or its key.
        account: String,
        /// Days since they were renewed last.
        #[arg(long, value_name = "DAYS", value_parser = arguments::days)]
        unrenewed: u64,
        #[command(flatten)]
        asking: Asking,
    },
    /// End an account: its leases end, and what nobody else has leased goes a day later.
    Remove {
        /// Its name, or its key.
        account: String,
        #[command(flatten)]
        asking: Asking,
    },
}

/// See the command's help.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Collect {
    #[command(subcommand)]
    what: Option<Collecting>,
    /// Only say what would go, and what keeps the rest.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Debug, Subcommand)]
enum Collecting {
    /// How deleting stands: what waits for it, and what was deleted day by day.
    Status(Asking),
}

/// Which machine is asked, and how it answers.
#[derive(Debug, Args)]
pub struct Asking {
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Whose request it is, and who carries it to which server.
#[derive(Debug, Args)]
pub struct Of {
    /// The file with the account's key.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The server's address; this machine's own, or the one that it is connected to, if absent.
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// The data directory of this machine, which is one of the cluster.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Shares {
    /// Does what is asked.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Shares::Status(asking) => asking.ask(SharesRequest::Status),
            Shares::Usage(asking) | Shares::Account(Account::List(asking)) => {
                asking.ask(SharesRequest::Usage)
            }
            Shares::Leases { which, asking } => {
                let which = asking.below_root(which)?;
                asking.ask(SharesRequest::Leases(which))
            }
            Shares::Export { file, which, asking } => {
                let which = which.into_iter().map(|which| asking.below_root(which));
                let which = which.collect::<Result<_, _>>()?;
                // The machine that is up is somewhere else.
                asking.ask(SharesRequest::Export { file: std::path::absolute(file)?, which })
            }
            Shares::Import { file, asking } => {
                asking.ask(SharesRequest::Import { file: std::path::absolute(file)? })
            }
            Shares::Account(Account::Key { file }) => done(KeyFile::generate(&file)?),
            Shares::Account(Account::Add { name, key, quota, asking }) => {
                asking.ask(SharesRequest::AddAccount { name, key, quota })
            }
            Shares::Account(Account::Sweep { account, unrenewed, asking }) => {
                asking.ask(SharesRequest::SweepAccount { account, unrenewed })
            }
            Shares::Discover(asking) => asking.ask(SharesRequest::Discover),
            Shares::Account(Account::Remove { account, asking }) => {
                asking.ask(SharesRequest::RemoveAccount(account))
            }
            Shares::Put { file, of } => {
                let mut body = Vec::new();
                match file {
                    Some(file) => body = std::fs::read(file)?,
                    None => drop(std::io::stdin().read_to_end(&mut body)?),
                }
                let share = of.connect()?.store(&body)?;
                done(node::share_name(&share))
            }
            Shares::Get { share, of } => {
                let body = of.connect()?.read(node::share_of(&share).ok_or_else(|| no_share(&share))?)?;
                put(&body)?;
                Ok(ExitCode::SUCCESS)
            }
            Shares::List { renew, of } => {
                let mut account = of.connect()?;
                let mut shares = account.list()?;
                if renew {
                    shares = account.renew(&shares)?;
                }
                lines(shares.iter().map(node::share_name))?;
                Ok(ExitCode::SUCCESS)
            }
            Shares::Drop { shares, of } => {
                let shares = shares.iter().map(|name| node::share_of(name).ok_or_else(|| no_share(name)));
                of.connect()?.let_go(shares.collect::<Result<_, _>>()?)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Collect {
    /// Has what may go deleted, and says what stays.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self.what {
            Some(Collecting::Status(asking)) => asking.ask(SharesRequest::Deletion),
            None => self.asking.ask(SharesRequest::Collect { dry_run: self.dry_run }),
        }
    }
}

impl Asking {
    /// A share as it is; a path from the root of the file system, also where one below the mount is
    /// said.
    fn below_root(&self, which: String) -> Result<String, Failure> {
        if node::share_of(&which).is_some() {
            return Ok(which);
        }
        Ok(places::below_root(&self.data.clone().map_or_else(places::data, Ok)?, which))
    }

    fn ask(self, request: SharesRequest) -> Result<ExitCode, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let progress = Progress::new();
        let reply = node::shares(&data, request, &mut |text| progress.say(text))?;
        drop(progress);
        if self.json {
            answer::say(reply.json()?)?
        } else {
            answer::say(&reply)?
        }
        Ok(if reply.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Of {
    fn connect(self) -> Result<AccountClient, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let server = match self.server {
            Some(server) => server,
            None => {
                let status =
                    node::ask_status(&data)?.ok_or("no machine is up here; say where with --server")?;
                let own = status.listens.into_iter().next();
                let its = || status.link.map(|link| link.server);
                own.or_else(its).ok_or("this machine has no server that listens; say where with --server")?
            }
        };
        Ok(AccountClient::connect(&data, &server, &self.key)?)
    }
}

fn no_share(name: &str) -> Failure {
    format!("{name} is no share: one has 32 hexadecimal digits").into()
}

fn done(word: String) -> Result<ExitCode, Failure> {
    answer::say(word)?;
    Ok(ExitCode::SUCCESS)
}
