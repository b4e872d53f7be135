//! The two servers: ours and Samba.

use super::client::{PASSWORD, SHARE, SmbClient, USER};
use super::protection::Way;
use super::row::{SmbRow, Spent};
use super::samba::Samba;
use crate::cost::cpu_of_all_below;
use crate::target::{Target, TargetKind};
use smb::accounts::{Share, User, add_share, add_user};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Our server: a machine that serves its file system.
pub(super) struct Ours {
    pub(super) target: Target,
    pub(super) address: SocketAddr,
}

/// Where a server is, and its process.
struct MeasuredServer {
    name: &'static str,
    address: SocketAddr,
    process: u32,
}

/// Both servers.
pub(super) struct Beside {
    pub(super) ours: Ours,
    pub(super) samba: Samba,
    rounds: usize,
}

/// Some work, of which a unit is a part.
pub(super) struct MeasuredWork<'a> {
    pub(super) name: String,
    pub(super) units: usize,
    pub(super) way: Way,
    /// Does the work of a round.
    pub(super) run: &'a dyn Fn(&mut SmbClient, usize) -> io::Result<()>,
}

impl Ours {
    /// Starts a machine in a directory of `base`.
    pub(super) fn start(base: &Path) -> io::Result<Ours> {
        Ours::serve(Target::start(TargetKind::Mount, base)?)
    }

    /// Starts a machine again, with a share of all it has.
    pub(super) fn serve(mut target: Target) -> io::Result<Ours> {
        let user = User::new(USER, Some(PASSWORD), 0, 0, Vec::new());
        add_user(target.data(), user).map_err(io::Error::other)?;
        add_share(target.data(), Share::new(SHARE, "/")).map_err(io::Error::other)?;
        let address = target.serve_smb()?;
        Ok(Ours { target, address })
    }

    /// The process.
    pub(super) fn process(&self) -> io::Result<u32> {
        self.target.process().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Beside {
    /// Starts both in directories of `base`.
    pub(super) fn start(base: &Path, rounds: usize, tell: &mut dyn FnMut(&str)) -> io::Result<Beside> {
        Ok(Beside { samba: Samba::start(base, tell)?, ours: Ours::start(base)?, rounds })
    }

    /// Does some work by both servers in turns. `prepare` comes before each, and costs nothing.
    pub(super) fn compare(
        &self,
        work: &MeasuredWork<'_>,
        prepare: impl Fn(&mut SmbClient, usize) -> io::Result<()>,
        tell: &mut dyn FnMut(&str),
    ) -> io::Result<SmbRow> {
        let servers = [
            MeasuredServer { name: "Leasehold", address: self.ours.address, process: self.ours.process()? },
            MeasuredServer { name: "Samba", address: self.samba.address, process: self.samba.process() },
        ];
        let mut spent = [Vec::new(), Vec::new()];
        for round in 0..self.rounds {
            for turn in 0..servers.len() {
                // Each comes first as often as last.
                let which = (round + turn) % servers.len();
                let server = &servers[which];
                tell(&format!("{}: {}, round {}", work.name, server.name, round + 1));
                let mut client = SmbClient::connect(server.address, work.way)?;
                prepare(&mut client, round)?;
                server.settle()?;
                spent[which].push(server.measure(work, &mut client, round)?);
                client.log_off()?;
            }
        }
        let [ours, samba] = spent.map(median);
        Ok(SmbRow::of(format!("{}, {}", work.name, work.way.name()), ours, samba))
    }
}

/// How long a server does nothing until it counts as through with its work.
const QUIET: Duration = Duration::from_millis(200);
/// The longest wait for that: a server may have something to do all the time.
const SETTLED: Duration = Duration::from_secs(3);

impl MeasuredServer {
    /// Measures a round, with what the server does after its last answer.
    fn measure(&self, work: &MeasuredWork<'_>, client: &mut SmbClient, round: usize) -> io::Result<Spent> {
        let before = cpu_of_all_below(self.process)?;
        let began = Instant::now();
        (work.run)(client, round)?;
        let wall = began.elapsed();
        self.settle()?;
        let cpu = cpu_of_all_below(self.process)?.saturating_sub(before);
        let units = work.units as f64;
        Ok(Spent { cpu_us: cpu.as_secs_f64() * 1e6 / units, rate: units / wall.as_secs_f64() })
    }

    /// Waits until the server does nothing any more.
    fn settle(&self) -> io::Result<()> {
        let began = Instant::now();
        let mut last = cpu_of_all_below(self.process)?;
        while began.elapsed() < SETTLED {
            std::thread::sleep(QUIET);
            let now = cpu_of_all_below(self.process)?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(())
    }
}

/// The medians of rounds.
fn median(rounds: Vec<Spent>) -> Spent {
    let of = |field: fn(&Spent) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(field).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    Spent { cpu_us: of(|spent| spent.cpu_us), rate: of(|spent| spent.rate) }
}
