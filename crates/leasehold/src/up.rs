//! `leasehold up`, and `leasehold mount`, which is the same for a machine that has joined.

use crate::answer::Answer;
use crate::cluster::join;
use crate::guard::Guard;
use crate::metrics::Endpoint;
use crate::progress::step;
use crate::smb::{SmbListener, SmbOptions, SmbPlace};
use crate::{Failure, arguments, places, service};
use backup::{BackupOrder, BackupSchedule};
use clap::Args;
use fuse::Options;
use node::{
    Expiry, GroupSettings, Listen, Machine, MachineError, MachineSettings, ShareSettings, Version, Versions,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The default port of machines.
const PORT: u16 = 4470;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Up {
    /// Where this machine keeps its part: server state, shares, keys. Made on the first run.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the file system appears. Made if it does not exist.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Where other machines can call this one, if it has the server. Port 4470 of all its addresses
    /// if that is free; only machines that were invited get further than the handshake.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = arguments::listen_at)]
    listen: Option<SocketAddr>,
    /// Where a server is now, host name and port (again for more), if all servers have moved from
    /// the addresses that this machine knows. Needed once: the machine remembers the address. If
    /// two servers do not find each other, tell either of them.
    #[arg(long, value_name = "HOST:PORT", value_parser = arguments::host_and_port)]
    at: Vec<String>,
    /// Keep this server's content in an S3-compatible store, s3://BUCKET/PREFIX, and not on this
    /// machine. Said once, before it has any; endpoint and keys are in the environment
    /// (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) at every start.
    #[arg(long, value_name = "URL")]
    content: Option<node::Location>,
    /// When leases of keys' accounts at this server expire: when they say (age), so many days after
    /// they were renewed last, whatever they say (after=DAYS), or if that was before a time
    /// (before=SECONDS since 1970 UTC). Never by themselves if absent. Shares that the cluster's
    /// own files refer to expire by no setting.
    #[arg(long, value_name = "age|after=DAYS|before=SECONDS", value_parser = expiry)]
    expire_leases: Option<Expiry>,
    /// Let set-user-id programs and device files on the mount count for nothing, as where the mount
    /// is not root's: for whoever does not trust the root of each machine that may make some.
    #[arg(long)]
    nosuid: bool,
    /// Let other users of this machine see the mount, as root's mounts do. Needs root, or
    /// user_allow_other in /etc/fuse.conf.
    #[arg(long)]
    allow_other: bool,
    #[command(flatten)]
    smb_options: SmbOptions,
    /// MiB that the server keeps its rows in, however many files there are.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(8..1 << 20))]
    server_memory: u32,
    /// Make backups in this directory, as long as the machine is up and has a server: see leasehold
    /// backup.
    #[arg(long, value_name = "DIR")]
    backup: Option<PathBuf>,
    /// Hours from one backup to the next.
    #[arg(long, value_name = "HOURS", default_value_t = 24.0, value_parser = arguments::hours, requires = "backup")]
    backup_every: f64,
    #[command(flatten)]
    knows: Knows,
    /// Go on though this server's state is older than what it had acknowledged, or than what the
    /// other servers know: its disk was put back from a copy, and there is nothing better. All
    /// sessions of an only server end, and what was acknowledged since is not there.
    #[arg(long)]
    accept_older_state: bool,
    /// Keep the latest N backups; all if absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "backup")]
    backup_keep: Option<u32>,
    #[command(flatten)]
    place: MountPlace,
}

/// Where a machine runs.
#[derive(Debug, Args)]
struct MountPlace {
    /// A name for this machine, when it makes a file system or joins one; that of its host if
    /// absent.
    #[arg(long)]
    name: Option<String>,
    /// Return once it is mounted, and go on in the background until leasehold down. Its messages
    /// go to leasehold.log in the data directory.
    #[arg(long)]
    background: bool,
    /// Serve metrics for Prometheus at this port of this machine alone, or at this address and
    /// port: http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", value_parser = arguments::metrics_at)]
    metrics: Option<SocketAddr>,
    /// It was started so.
    #[arg(long, hide = true)]
    detached: bool,
}

/// Which versions it knows.
#[derive(Debug, Args)]
struct Knows {
    /// Work as a leasehold whose newest version is N, and keep the cluster at that version: an
    /// older program can then be installed again.
    #[arg(long, value_name = "N", value_parser = version)]
    hold_version: Option<Version>,
    /// Know the next version, too, which has nothing new in it yet. For tests of upgrades: no
    /// leasehold that is released can open what has gone over to it.
    #[arg(long, hide = true)]
    next_version: bool,
}

impl Knows {
    fn versions(&self) -> Versions {
        let known = if self.next_version { Versions::WITH_NEXT } else { Versions::KNOWN };
        if self.next_version {
            tracing::warn!(%known, "--next-version is for tests: no other leasehold can open what goes over to it");
        }
        self.hold_version.map_or(known, |newest| known.held_to(newest))
    }
}

/// Parses when leases of keys' accounts expire.
fn expiry(text: &str) -> Result<Expiry, String> {
    match text.split_once('=') {
        None if text == "age" => Ok(Expiry::Age),
        Some(("after", span)) => arguments::days(span).map(Expiry::Override),
        Some(("before", time)) => time.parse().map(Expiry::CutOff).map_err(|_| "not a number".to_owned()),
        _ => Err("one of age, after=DAYS, before=SECONDS".to_owned()),
    }
}

/// Parses a version that this program knows.
fn version(text: &str) -> Result<Version, String> {
    let known = Versions::KNOWN;
    let version = text.parse().map(Version).map_err(|_| "not a number".to_owned())?;
    if known.know(version) { Ok(version) } else { Err(format!("this leasehold knows {known}")) }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Mount {
    /// Where the file system appears. Made if it does not exist.
    dir: PathBuf,
    /// Join with this token first; - reads it from standard input, @FILE from a file.
    #[arg(long, value_name = "TOKEN")]
    join: Option<String>,
    /// Where this machine keeps its part: keys, and what could not be applied.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Let set-user-id programs and device files on the mount count for nothing.
    #[arg(long)]
    nosuid: bool,
    /// Let other users of this machine see the mount: see leasehold up.
    #[arg(long)]
    allow_other: bool,
    /// Where other machines can call this one once it is made a server.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = arguments::listen_at)]
    listen: Option<SocketAddr>,
    /// Where a server is now, host name and port (again for more), if all servers have moved: see
    /// leasehold up.
    #[arg(long, value_name = "HOST:PORT", value_parser = arguments::host_and_port)]
    at: Vec<String>,
    #[command(flatten)]
    knows: Knows,
    #[command(flatten)]
    place: MountPlace,
}

impl Up {
    /// Brings the machine up, and then waits for a signal.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let dir = self.mount.map_or_else(places::mount, Ok)?;
        if self.place.background {
            return service::begin(&data);
        }
        let settings = MachineSettings {
            name: self.place.name.clone().unwrap_or_else(places::host_name),
            group: GroupSettings {
                memory_bytes: (self.server_memory as usize) << 20,
                ..GroupSettings::default()
            },
            listen: listen(self.listen),
            at: self.at,
            knows: self.knows.versions(),
            shares: ShareSettings { content: self.content, expiry: self.expire_leases },
            accepts_older: self.accept_older_state,
            ..MachineSettings::default()
        };
        let (every, keep) = (self.backup_every, self.backup_keep.map(|keep| keep as usize));
        let schedule = self.backup.map(|dir| BackupSchedule {
            order: BackupOrder { dir, keep },
            every: Duration::from_secs_f64(every * 3600.0),
        });
        let sight =
            Sight { nosuid: self.nosuid, allow_other: self.allow_other, smb: self.smb_options.place()? };
        run(&data, &dir, settings, schedule, sight, &self.place)
    }
}

impl Mount {
    /// Joins if need be, mounts, and then waits for a signal.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        if self.place.background {
            return service::begin(&data);
        }
        let joined = data.join("format").exists();
        match self.join {
            Some(_) if joined => {
                let text = format!(
                    "{} is a machine's data directory already, so there is nothing to join with that token: leasehold mount without --join mounts it, --data DIR is for another machine",
                    data.display()
                );
                return Err(text.into());
            }
            Some(token) => step(&join(&data, &token, self.place.name.clone())?.to_string()),
            None if !joined => {
                let text = format!(
                    "{} is no machine's data directory: leasehold mount --join TOKEN, or leasehold up for a new file system",
                    data.display()
                );
                return Err(text.into());
            }
            None => {}
        }
        let (at, knows) = (self.at, self.knows.versions());
        let settings =
            MachineSettings { listen: listen(self.listen), at, knows, ..MachineSettings::default() };
        let sight = Sight { nosuid: self.nosuid, allow_other: self.allow_other, smb: None };
        run(&data, &self.dir, settings, None, sight, &self.place)
    }
}

/// Returns where a server can be called.
fn listen(said: Option<SocketAddr>) -> Listen {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    said.map_or(Listen::IfFree(everywhere), Listen::At)
}

/// Which users see the file system, by which front door, and with which rights.
struct Sight {
    nosuid: bool,
    allow_other: bool,
    /// Where SMB is served, and how users log on there.
    smb: Option<SmbPlace>,
}

fn run(
    data: &Path,
    dir: &Path,
    settings: MachineSettings,
    schedule: Option<BackupSchedule>,
    Sight { nosuid, allow_other, smb }: Sight,
    place: &MountPlace,
) -> Result<Answer, Failure> {
    if place.detached {
        service::detach();
    }
    if allow_other {
        fuse::may_mount_for_others()?;
    }
    // Before anything is made.
    are_apart(data, dir)?;
    schedule.iter().try_for_each(|schedule| places::is_beside(&schedule.order.dir, dir))?;
    let dir = fuse::prepare(dir)?;
    if let (Listen::At(address), false) = (&settings.listen, data.join("format").exists()) {
        // So that a machine that cannot start leaves nothing behind.
        let failed = |error| format!("cannot listen on {address} (choose another with --listen): {error}");
        drop(TcpListener::bind(address).map_err(failed)?);
    }
    let endpoint = place.metrics.map(Endpoint::bind).transpose()?;
    // A closed terminal ends nothing: the user has `leasehold down`.
    let ignored = Signals::new([SIGHUP])?;
    let starting = Starting::begin()?;
    let began = Instant::now();
    let purpose = format!("leasehold, mounted on {}", dir.display());
    let mut machine = Machine::start(data, &purpose, settings).map_err(|error| start_failed(error, data))?;
    let ms = began.elapsed().as_millis();
    let name = machine.name();
    if let Some(wanted) = place.name.as_ref().filter(|wanted| **wanted != name) {
        machine.stop()?;
        return Err(format!("this machine is called {name}, and not {wanted}: a name is given once").into());
    }
    let mut words = match machine.served_by() {
        Some(server) => format!("connected to {server} ({ms} ms)\n"),
        None if machine.data().is_new() => format!("made a new file system in {}\n", data.display()),
        None => format!("opened the file system in {} ({ms} ms)\n", data.display()),
    };
    if let Some(address) = machine.listens() {
        words.push_str(&format!("other machines can join at {address}: leasehold invite\n"));
    }
    if let Some(endpoint) = endpoint {
        let address = endpoint.serve(data, machine.file_service().activity())?;
        words.push_str(&format!("metrics are at http://{address}/metrics\n"));
    }
    let usual = Options::default();
    let raiser = vec![std::env::current_exe()?.into_os_string(), "raise-events".into()];
    let options = Options {
        trusted: usual.trusted && !nosuid,
        allow_other: usual.allow_other || allow_other,
        raiser,
        ..usual
    };
    let signals = starting.end()?;
    let smb_listener = match smb {
        Some(place) => {
            let smb_listener = SmbListener::open(machine.store().clone(), data, &name, place)?;
            words.push_str(&format!("SMB is served at {}\n", smb_listener.address()));
            Some(smb_listener)
        }
        None => None,
    };
    let mount = Arc::new(fuse::Mount::start(machine.file_service(), &dir, &options)?);
    machine.is_mounted_on(mount.dir());
    let guard = mount.connection().map(|connection| Guard::start(connection, mount.dir())).transpose();
    if let Err(error) = &guard {
        tracing::warn!(%error, "should this process be killed, its mount may hang");
    }
    if let Some(schedule) = schedule {
        machine.back_up(schedule)?;
    }
    words.push_str(&format!(
        "mounted on {0}\ntry: git clone SOME-REPOSITORY {0}/work   leasehold status   leasehold fsck\nCtrl-C unmounts and makes everything durable",
        dir.display()
    ));
    let answer = Answer::told(&machine.status(), words)?;
    Ok(answer.then(move || {
        let _ignored = ignored;
        service::is_ready(&dir);
        serve(machine, smb_listener, &mount, guard.ok().flatten(), signals)
    }))
}

/// Serves until a signal comes, or the mount is gone. Then ends in order.
fn serve(
    machine: Machine,
    smb_listener: Option<SmbListener>,
    mount: &Arc<fuse::Mount>,
    guard: Option<Guard>,
    mut signals: Signals,
) -> Result<(), Failure> {
    // Another process may unmount it (umount, fusermount3 -u). Then this command ends, too.
    let (mounted, handle) = (Arc::clone(mount), signals.handle());
    std::thread::spawn(move || {
        if let Err(error) = mounted.wait() {
            tracing::error!(%error, "the mount failed");
        }
        handle.close();
    });
    match signals.forever().next() {
        Some(signal) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
            step(&format!("unmounting ({name})"));
        }
        None => step("unmounted by somebody else"),
    }
    let began = Instant::now();
    service::is_stopping();
    drop(smb_listener);
    machine.begin_ending();
    let unmounted = mount.unmount();
    drop(guard);
    machine.stop()?;
    unmounted?;
    step(&format!("everything is durable ({} ms)", began.elapsed().as_millis()));
    Ok(())
}

/// Explains why the machine did not start, and what helps if the data directory is at fault.
fn start_failed(error: MachineError, data: &Path) -> Failure {
    let kinds = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem, ErrorKind::NotADirectory];
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |cause| cause.source());
    let mut io = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    if io.any(|cause| kinds.contains(&cause.kind())) {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let why = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        return format!("{why}; {} must be writable: choose another with --data", data.display()).into();
    }
    error.into()
}

/// The time before the mount. Nothing needs an orderly end until then, since the disk is consistent
/// at any time. So the first signal ends the process.
struct Starting {
    ended: Arc<AtomicBool>,
    handle: signal_hook::iterator::Handle,
}

impl Starting {
    fn begin() -> std::io::Result<Starting> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (ended, handle) = (Arc::new(AtomicBool::new(false)), signals.handle());
        let is_over = Arc::clone(&ended);
        std::thread::Builder::new().name("starting".to_owned()).spawn(move || {
            let signal = signals.forever().next();
            if let Some(signal) = signal.filter(|_| !is_over.load(SeqCst)) {
                step("ended before it was mounted");
                std::process::exit(128 + signal);
            }
        })?;
        Ok(Starting { ended, handle })
    }

    /// Returns the signals to the thread that mounts.
    fn end(self) -> std::io::Result<Signals> {
        let signals = Signals::new([SIGINT, SIGTERM])?;
        self.ended.store(true, SeqCst);
        self.handle.close();
        Ok(signals)
    }
}

/// Fails if the data directory would be on the mount, or on another machine's: the machine would
/// wait for itself. Fails as well if the mount would be in the data directory, where it would be in
/// the way of what the machine keeps.
fn are_apart(data: &Path, dir: &Path) -> Result<(), Failure> {
    let (there, dir) = (places::resolved(data)?, places::resolved(dir)?);
    if dir.starts_with(&there) && dir != there {
        let text = format!(
            "the mount point {} is in the data directory {}, which is for what leasehold keeps alone: choose another with --mount or --data",
            dir.display(),
            there.display()
        );
        return Err(text.into());
    }
    if there.starts_with(&dir) {
        let text = format!(
            "{} is on the mount point {}, which would hide it: choose another with --mount or --data",
            there.display(),
            dir.display()
        );
        return Err(text.into());
    }
    if fuse::is_leasehold(&there) {
        let text = format!(
            "{} is on a file system of leasehold itself, which would wait for itself: choose another with --data",
            there.display()
        );
        return Err(text.into());
    }
    Ok(())
}
