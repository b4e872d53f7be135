//! `leasehold bench`.

use crate::Failure;
use crate::answer::{Answer, put};
use bench::local::{self, Section, Settings};
use bench::paper::parts::{self, EvaluationPart, SnapshotTree};
use bench::paper::report::Circumstances;
use bench::paper::{self, PaperRow};
use bench::{floor, shared, shares, smb, table};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// One machine, alone: the mount, a null FUSE file system, and the disk, in turns.
    ///
    /// Needs root, to drop the kernel's caches. Figures are only comparable within one run. Exits
    /// with 1 if a bar is missed.
    Local(Local),
    /// The Farsite paper's experiments on leases, in one thread. Beside its figures stands what is
    /// measured here.
    ///
    /// Real clients and a real server on a simulated network; leases are counted, with coarser
    /// leases beside as controls. Needs no root, no network and no disk. The same seed gives the
    /// same figures, everywhere. Exits with 1 if a bar is missed.
    Paper(Paper),
    /// Several machines, each a process on this one: what sharing a file system costs them.
    ///
    /// Needs no root. Work in a private directory of a remote server is compared with one machine
    /// alone, the rest with the same calls on null FUSE file systems; messages, recalls and log
    /// flushes are the server's counts, renewals included. Every read is checked. Figures are only
    /// comparable within one run. Exits with 1 if a bar is missed.
    Shared(Shared),
    /// A share server alone, beside what its disk does in the same run.
    ///
    /// Durable shares, renewals, lookups, the scrub, and what a large store takes. Needs no root.
    /// Figures are only comparable within one run. Exits with 1 if a bar is missed.
    Shares(Shares),
    /// The SMB server beside Samba, asked by the same client in turns.
    ///
    /// By the CPU time of the server for each unit of work. Samba is installed by apt if it is
    /// missing, which needs root, as Samba itself does. Exits with 1 if a bar is missed.
    Smb(Smb),
    /// A machine of `paper --processes`: what it is to do comes on standard input.
    #[command(hide = true)]
    PaperMachine {
        /// Its data directory.
        data: PathBuf,
        /// Where to listen, if it has the server.
        #[arg(long)]
        listen: Option<SocketAddr>,
    },
    /// Mount the null FUSE file system (what `local` and `shared` compare with) until it is killed.
    #[command(hide = true)]
    Floor {
        /// Where.
        dir: PathBuf,
    },
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Local {
    /// A directory on the disk to compare with.
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Only these parts: names and attributes; the same cold, with memory and store; long
    /// transfers; small random synced writes; many files without a mount.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = named(Section::ALL, Section::name))]
    only: Vec<Section>,
    /// Files in the work on names.
    #[arg(long, default_value_t = 200_000)]
    files: usize,
    /// Rounds of the work on names.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Another leasehold binary, an older one say, that does the work on names in turns with this
    /// one. Its columns are ratios: above 1, this one is faster.
    #[arg(long, value_name = "BINARY")]
    beside: Option<PathBuf>,
    /// MiB of the long transfers.
    #[arg(long, default_value_t = 1024)]
    stream_mib: u64,
    /// MiB of the file that is written at random.
    #[arg(long, default_value_t = 4096)]
    random_mib: u64,
    /// Seconds of random writes.
    #[arg(long, default_value_t = 120)]
    random_secs: u64,
    /// Files that are made without a mount.
    #[arg(long, default_value_t = 10_000_000)]
    load_files: usize,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Shared {
    /// A directory on the disk whose flushes are to count.
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Only these parts: work on names in a directory of one's own; the same with 5 ms of delay to
    /// the server, either way; two machines that make files in one directory; a small file that
    /// goes from one to another; that save files as editors do; that open one file.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = named(shared::Section::ALL, shared::Section::name))]
    only: Vec<shared::Section>,
    /// Files in the work on names.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..))]
    files: u32,
    /// Rounds of the work on names, of which the middle one counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each of the rest.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    secs: u64,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Shares {
    /// A directory on the disk that is to keep the shares.
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Only these parts: storing small shares, and finding them again without a database; reading
    /// all against its digest; the database of a large store; memory with that of a very large one,
    /// which takes minutes and 5 GB.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = named(shares::Section::ALL, shares::Section::name))]
    only: Vec<shares::Section>,
    /// Shares in the database of the large store.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    shares: u64,
    /// Shares in that of the very large one.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    memory_shares: u64,
    /// Seconds of each of what can go on for any time.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    secs: u64,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Smb {
    /// A directory on the disk that both servers are to use.
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Only these parts: opens and closes; long writes and reads; files of 4 KiB; listings of a
    /// large directory; connections that do nothing, which need no Samba.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = named(smb::Section::ALL, smb::Section::name))]
    only: Vec<smb::Section>,
    /// Rounds of each work, of which the middle one counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Opens of a round.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    opens: u32,
    /// MiB written and read in a round.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    mib: u32,
    /// Files made in a round.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// Entries of the large directory.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    entries: u32,
    /// Connections that do nothing.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Paper {
    /// Only these parts: two clients that edit two files in one directory (Farsite §8.3.3); twelve
    /// that open one file (§8.3.4); the identifiers of a department's file server (§8.3.1); renames
    /// over six servers (§8.3.2); fifteen machines of which ever more share a directory (§9.1);
    /// fifteen machines and fifteen servers on which gremlins do what people do (§8.2.6), and ever
    /// more of both (§8.3.6). Those of §8.3.1, §9.1, §8.2.6 and §8.3.6 take minutes, and run only
    /// if they are named here, or with --all.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = named(EvaluationPart::ALL, EvaluationPart::name))]
    only: Vec<EvaluationPart>,
    /// Every part.
    #[arg(long, conflicts_with = "only")]
    all: bool,
    /// Simulated minutes of the gremlins.
    #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Simulated minutes of each size in `scaling`.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    scaling_minutes: u64,
    /// The directory tree whose metadata `snapshot` copies, instead of a generated one.
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Which client does something next, and which message arrives.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// On processes instead: a server, and clients that join it and talk to it over mutual TLS on
    /// this host, below $TMPDIR. Without the controls: coarser leases are a rule that only the
    /// simulated server can be given.
    #[arg(long)]
    processes: bool,
    /// Write `report.md` with plots into this directory, which is made if it is not there.
    #[arg(long, value_name = "DIR", conflicts_with = "processes")]
    report: Option<PathBuf>,
}

/// Reads one of `all` by its name.
fn named<T, const N: usize>(all: [T; N], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let find = move |given: String| all.into_iter().find(|one| name(*one) == given);
    PossibleValuesParser::new(all.map(name)).try_map(move |given| find(given).ok_or("there is no such part"))
}

impl Bench {
    /// Measures, and prints the figures.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            Bench::Local(local) => local.run(),
            Bench::Paper(paper) => paper.run(),
            Bench::Shared(shared) => shared.run(),
            Bench::Shares(shares) => shares.run(),
            Bench::Smb(smb) => smb.run(),
            Bench::PaperMachine { data, listen } => {
                paper::play(&data, listen, &mut std::io::stdin().lock(), &mut std::io::stdout().lock())?;
                Ok(Answer::nothing())
            }
            Bench::Floor { dir } => {
                floor::run(&dir, || drop(put(format!("mounted on {}\n", dir.display()).as_bytes())))?;
                Ok(Answer::nothing())
            }
        }
    }
}

impl Local {
    fn run(self) -> Result<Answer, Failure> {
        let parts = match self.only.is_empty() {
            true => Section::ALL.to_vec(),
            false => self.only,
        };
        let settings = Settings {
            parts,
            files: self.files,
            rounds: self.rounds,
            beside: self.beside,
            stream_bytes: self.stream_mib << 20,
            random_bytes: self.random_mib << 20,
            random_time: Duration::from_secs(self.random_secs),
            load_files: self.load_files,
        };
        let rows = telling_progress(|tell| local::run(&self.data, &settings, tell))?;
        Ok(Answer::told(&rows, table::text(&rows))?.no_if(rows.iter().any(|row| row.met == Some(false))))
    }
}

impl Shared {
    fn run(self) -> Result<Answer, Failure> {
        let parts = match self.only.is_empty() {
            true => shared::Section::ALL.to_vec(),
            false => self.only,
        };
        let settings = shared::Settings {
            parts,
            files: self.files as usize,
            rounds: self.rounds as usize,
            time: Duration::from_secs(self.secs),
        };
        let rows = telling_progress(|tell| shared::run(&self.data, &settings, tell))?;
        Ok(Answer::told(&rows, shared::text(&rows))?.no_if(rows.iter().any(|row| !row.met())))
    }
}

impl Shares {
    fn run(self) -> Result<Answer, Failure> {
        let parts = match self.only.is_empty() {
            true => shares::Section::ALL.to_vec(),
            false => self.only,
        };
        let settings = shares::Settings {
            parts,
            shares: self.shares,
            memory_shares: self.memory_shares,
            time: Duration::from_secs(self.secs),
        };
        let rows = telling_progress(|tell| shares::run(&self.data, &settings, tell))?;
        Ok(Answer::told(&rows, shares::text(&rows))?.no_if(rows.iter().any(|row| row.met == Some(false))))
    }
}

impl Smb {
    fn run(self) -> Result<Answer, Failure> {
        let parts = match self.only.is_empty() {
            true => smb::Section::ALL.to_vec(),
            false => self.only,
        };
        let settings = smb::Settings {
            parts,
            rounds: self.rounds as usize,
            opens: self.opens as usize,
            mib: self.mib as usize,
            files: self.files as usize,
            entries: self.entries as usize,
            connections: self.connections as usize,
        };
        let rows = telling_progress(|tell| smb::run(&self.data, &settings, tell))?;
        Ok(Answer::told(&rows, smb::text(&rows))?.no_if(rows.iter().any(|row| row.met == Some(false))))
    }
}

impl Paper {
    fn run(self) -> Result<Answer, Failure> {
        let is_asked = |part: &EvaluationPart| match self.only.is_empty() {
            true => self.all || part.is_short(),
            false => self.only.contains(part),
        };
        let parts = EvaluationPart::ALL.into_iter().filter(is_asked);
        let rows: Vec<PaperRow> = match self.processes {
            true => {
                parts.map(|part| part.run_on_processes(self.seed)).collect::<Result<Vec<_>, _>>()?.concat()
            }
            false => {
                let (minutes, scaling_minutes) = (self.minutes, self.scaling_minutes);
                let tree = match &self.tree {
                    Some(top) => SnapshotTree::Given(paper::snapshot::read_tree(top)?),
                    None => SnapshotTree::Department,
                };
                let settings = parts::Settings { seed: self.seed, minutes, scaling_minutes, tree };
                let sections = parts.map(|part| part.run(&settings)).collect::<Result<Vec<_>, _>>()?;
                if let Some(dir) = &self.report {
                    let typed: Vec<String> = std::env::args().skip(1).collect();
                    let (command, date) =
                        (format!("leasehold {}", typed.join(" ")), figures::date(os::utc_secs()));
                    let run = Circumstances { command: &command, seed: self.seed, date: &date };
                    paper::report::write(dir, run, &sections)?;
                }
                sections.into_iter().flat_map(|section| section.rows).collect()
            }
        };
        Ok(Answer::told(&rows, paper::text(&rows))?.no_if(rows.iter().any(|row| !row.met)))
    }
}

/// Measures, and shows on the way what is being measured.
fn telling_progress<T>(
    measure: impl FnOnce(&mut dyn FnMut(&str)) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let terminal = std::io::stderr().is_terminal();
    let result = measure(&mut |progress| {
        let _ = match terminal {
            true => write!(std::io::stderr(), "\r\x1b[K{progress}"),
            false => writeln!(std::io::stderr(), "{progress}"),
        };
    });
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    result
}
