//! `leasehold shares`, `leasehold gc`.

use crate::answer::Answer;
use crate::progress::Progress;
use crate::words::Words;
use crate::{Failure, arguments, places};
use admin::{
    Allowance, AskError, ControlProgress, DeletionReport, EndedLeases, GarbageReport, LeasesReport,
    ParcelReport, SharesRequest, StoresReport, UsageReport,
};
use clap::{Args, Subcommand};
use data_encoding::BASE64;
use node::{AccountClient, KeyFile, Sum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum Shares {
    /// How the stores of all servers stand. That is what is stored, damaged, or waits to be
    /// deleted, and what goes on in the background.
    Status(Asking),
    /// The shares that each account has leased at this server, and its quota.
    Usage(Asking),
    /// The accounts that have leased a share at this server, or each share of a path.
    Leases {
        /// A share (32 hexadecimal digits), or a file or directory by its path from the root of the
        /// file system.
        which: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Write shares with their leases into a file, for another server to take in.
    ///
    /// The content in it is as encrypted as it is here. The machine need not be up: then only what
    /// its own store has is exported, all of it or by the names of shares. Exits with 1 if some
    /// shares could not be had.
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
    /// Look for shares that this server does not know, and for known ones that are gone. That is
    /// for after files were put into its store, or restored.
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
        /// A name for it.
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
    /// End the leases of an account that it has not renewed for some time. A program that renews
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

/// Which machine is asked.
#[derive(Debug, Args)]
pub struct Asking {
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// The account that a request is of, and the machine that carries it to a server.
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

/// A share that was stored, and its bytes.
#[derive(Serialize)]
struct Stored {
    share: String,
    bytes: usize,
}

/// A share that was read.
#[derive(Serialize)]
struct Body {
    #[serde(flatten)]
    stored: Stored,
    /// The share's bytes, base64.
    body: String,
}

/// A share that the account has leased.
#[derive(Serialize)]
struct Leased {
    share: String,
}

/// Shares that the account has released.
#[derive(Serialize)]
struct ReleasedShares {
    shares: Vec<String>,
}

/// A key that was made.
#[derive(Serialize)]
struct MadeKey {
    file: String,
    /// Its public half.
    key: String,
}

impl Shares {
    /// Carries out the command.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            Shares::Status(asking) => asking.answer::<StoresReport>(SharesRequest::Status),
            Shares::Usage(asking) => asking.answer::<UsageReport>(SharesRequest::Usage),
            Shares::Leases { which, asking } => {
                let which = asking.below_root(which)?;
                asking.answer::<LeasesReport>(SharesRequest::Leases(which))
            }
            Shares::Export { file, which, asking } => {
                let which = which.into_iter().map(|which| asking.below_root(which));
                let which = which.collect::<Result<Vec<_>, _>>()?;
                // The running machine has another working directory.
                let file = std::path::absolute(file)?;
                parcel(asking.ask(|data, tell| node::export_shares(data, &file, &which, tell))?)
            }
            Shares::Import { file, asking } => {
                let request = SharesRequest::Import { file: std::path::absolute(file)? };
                parcel(asking.ask(|data, tell| admin::shares(data, request, tell))?)
            }
            Shares::Discover(asking) => {
                let stored: Sum =
                    asking.ask(|data, tell| admin::shares(data, SharesRequest::Discover, tell))?;
                Answer::told(&stored, format!("every share in the store here is known: {}", Words(&stored)))
            }
            Shares::Account(account) => account.run(),
            Shares::Put { file, of } => {
                let mut body = Vec::new();
                match file {
                    Some(file) => body = std::fs::read(file)?,
                    None => drop(std::io::stdin().read_to_end(&mut body)?),
                }
                let share = of.connect()?.store(&body)?.to_string();
                let stored = Stored { share, bytes: body.len() };
                Answer::told(&stored, &stored.share)
            }
            Shares::Get { share, of } => {
                let body = of.connect()?.read(node::share_of(&share).ok_or_else(|| no_share(&share))?)?;
                let stored = Stored { share, bytes: body.len() };
                Answer::bytes(&Body { stored, body: BASE64.encode(&body) }, body.into())
            }
            Shares::List { renew, of } => {
                let mut account = of.connect()?;
                let mut shares = account.list()?;
                if renew {
                    shares = account.renew(&shares)?;
                }
                let shares: Vec<Leased> =
                    shares.iter().map(|share| Leased { share: share.to_string() }).collect();
                let words: String = shares.iter().map(|leased| format!("{}\n", leased.share)).collect();
                Answer::told(&shares, words)
            }
            Shares::Drop { shares, of } => {
                let named = shares.iter().map(|name| node::share_of(name).ok_or_else(|| no_share(name)));
                of.connect()?.release(named.collect::<Result<_, _>>()?)?;
                Answer::told(&ReleasedShares { shares }, "")
            }
        }
    }
}

impl Account {
    fn run(self) -> Result<Answer, Failure> {
        match self {
            Account::Key { file } => {
                let key = MadeKey { key: KeyFile::generate(&file)?, file: file.display().to_string() };
                Answer::told(&key, &key.key)
            }
            Account::Add { name, key, quota, asking } => {
                asking.answer::<Allowance>(SharesRequest::AddAccount { name, key, quota })
            }
            Account::List(asking) => asking.answer::<UsageReport>(SharesRequest::Usage),
            Account::Sweep { account, unrenewed, asking } => {
                asking.answer::<EndedLeases>(SharesRequest::SweepAccount { account, unrenewed })
            }
            Account::Remove { account, asking } => {
                asking.answer::<EndedLeases>(SharesRequest::RemoveAccount(account))
            }
        }
    }
}

impl Collect {
    /// Deletes the shares that may go, and reports what stays.
    pub fn run(self) -> Result<Answer, Failure> {
        match self.what {
            Some(Collecting::Status(asking)) => asking.answer::<DeletionReport>(SharesRequest::Deletion),
            None => self.asking.answer::<GarbageReport>(SharesRequest::Collect { dry_run: self.dry_run }),
        }
    }
}

impl Asking {
    /// Returns a share unchanged, or a path from the root of the file system. `which` may also be a
    /// path below the mount.
    fn below_root(&self, which: String) -> Result<String, Failure> {
        if node::share_of(&which).is_some() {
            return Ok(which);
        }
        Ok(places::below_root(&self.data.clone().map_or_else(places::data, Ok)?, which))
    }

    /// Asks the machine, and shows its progress.
    fn ask<T>(
        self,
        ask: impl FnOnce(&Path, &mut dyn FnMut(&ControlProgress)) -> Result<T, AskError>,
    ) -> Result<T, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let progress = Progress::new();
        Ok(ask(&data, &mut |at| progress.say(at))?)
    }

    /// Answers a request. The reply is a `T`.
    fn answer<T: Serialize + DeserializeOwned>(self, request: SharesRequest) -> Result<Answer, Failure>
    where
        for<'a> Words<'a, T>: Display,
    {
        let told: T = self.ask(|data, tell| admin::shares(data, request, tell))?;
        Answer::report(&told)
    }
}

/// Answers with the report. Exits with 1 if some shares could not be taken along.
fn parcel(report: ParcelReport) -> Result<Answer, Failure> {
    Ok(Answer::report(&report)?.no_if(!report.faults.is_empty()))
}

impl Of {
    fn connect(self) -> Result<AccountClient, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let server = match self.server {
            Some(server) => server,
            None => {
                let status =
                    admin::ask_status(&data)?.ok_or("no machine is up here; say where with --server")?;
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
