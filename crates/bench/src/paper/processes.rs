//! A testbed of processes: a machine with the server, and clients that have joined it and are
//! connected by mutual TLS.
//!
//! The seed chooses whose turn it is, and a turn ends with the answer to its call. So the counts do
//! not depend on how long anything takes.

use super::player::{Order, Said, receive, send};
use admin::Invitation;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use sim::Violation;
use sim::paper::{Actor, Leases, Testbed};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;
use wire::ToClient;

/// The server listens at any free port.
const LISTEN: &str = "127.0.0.1:0";
/// Seconds that a token is good for. Tokens are used at once.
const TOKEN_GOOD_FOR_S: u64 = 600;

/// The testbed: the server's process and the clients' processes.
pub(super) struct Processes {
    server: Process,
    clients: Vec<Process>,
    rng: ChaCha12Rng,
    /// Messages that the server sent to clients which have ended.
    heard: Vec<ToClient>,
    /// The data directories, dropped last.
    _base: TempDir,
}

/// Runs an experiment on so many clients. Afterwards all of them stop in order, and everything is
/// checked.
pub(super) fn run(
    seed: u64,
    clients: usize,
    experiment: impl FnOnce(&mut Processes) -> Result<Leases, Violation>,
) -> Result<Leases, Violation> {
    let mut testbed = Processes::start(seed, clients)?;
    let leases = experiment(&mut testbed)?;
    testbed.finish()?;
    Ok(leases)
}

impl Processes {
    fn start(seed: u64, clients: usize) -> Result<Processes, Violation> {
        let base = tempfile::Builder::new().prefix("leasehold-bench-").tempdir().map_err(in_words)?;
        let mut server = Process::start(base.path().join("server"), Some(LISTEN))?;
        server.is_up()?;
        let join = |at: usize| {
            let data = base.path().join(format!("client-{at}"));
            join(&server.data, &data, &format!("client-{at}"))?;
            Process::start(data, None)
        };
        let mut clients = (0..clients).map(join).collect::<Result<Vec<Process>, Violation>>()?;
        clients.iter_mut().try_for_each(Process::is_up)?;
        let (rng, heard) = (ChaCha12Rng::seed_from_u64(seed), Vec::new());
        Ok(Processes { server, clients, rng, heard, _base: base })
    }

    fn finish(mut self) -> Result<(), Violation> {
        self.clients.iter_mut().for_each(Process::end);
        self.clients.iter_mut().try_for_each(Process::has_ended)?;
        let report = node::fsck(&self.server.data, &mut |_| {}).map_err(in_words)?;
        if !report.faults.is_empty() {
            return Err(format!("fsck: {:?}", report.faults));
        }
        self.server.end();
        self.server.has_ended()
    }
}

impl Testbed for Processes {
    fn run(&mut self, parts: Vec<(usize, Actor)>) -> Result<Vec<Actor>, Violation> {
        let machines: Vec<usize> = parts.iter().map(|(at, _)| *at).collect();
        for (at, part) in parts {
            self.clients[at].order(&Order::Take(part))?;
        }
        let mut done: Vec<Option<Actor>> = vec![None; machines.len()];
        loop {
            let playing: Vec<usize> = (0..done.len()).filter(|at| done[*at].is_none()).collect();
            if playing.is_empty() {
                return Ok(done.into_iter().flatten().collect());
            }
            let next = playing[(self.rng.next_u64() % playing.len() as u64) as usize];
            done[next] = self.clients[machines[next]].turn()?;
        }
    }

    fn restart(&mut self, machine: usize) -> Result<(), Violation> {
        let client = &mut self.clients[machine];
        self.heard.extend(client.heard()?);
        client.end();
        client.has_ended()?;
        *client = Process::start(client.data.clone(), None)?;
        client.is_up()
    }

    fn heard(&mut self) -> Result<Vec<ToClient>, Violation> {
        let mut heard = std::mem::take(&mut self.heard);
        for machine in self.clients.iter_mut().chain([&mut self.server]) {
            heard.extend(machine.heard()?);
        }
        Ok(heard)
    }
}

/// A machine's process.
struct Process {
    data: PathBuf,
    child: Child,
    /// None once the process is ordered to end.
    orders: Option<ChildStdin>,
    says: ChildStdout,
}

impl Process {
    fn start(data: PathBuf, listen: Option<&str>) -> Result<Process, Violation> {
        let mut command = leasehold()?;
        command.args(["bench", "paper-machine"]).arg(&data);
        if let Some(listen) = listen {
            command.args(["--listen", listen]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(in_words)?;
        let (orders, says) = (child.stdin.take(), child.stdout.take().ok_or("a process without output")?);
        Ok(Process { data, child, orders, says })
    }

    fn is_up(&mut self) -> Result<(), Violation> {
        match self.said()? {
            Said::Up => Ok(()),
            other => Err(self.is_not_due(&other)),
        }
    }

    fn turn(&mut self) -> Result<Option<Actor>, Violation> {
        self.order(&Order::Turn)?;
        match self.said()? {
            Said::Turned(done) => Ok(done),
            other => Err(self.is_not_due(&other)),
        }
    }

    fn heard(&mut self) -> Result<Vec<ToClient>, Violation> {
        self.order(&Order::Tell)?;
        match self.said()? {
            Said::Heard(heard) => Ok(heard),
            other => Err(self.is_not_due(&other)),
        }
    }

    fn order(&mut self, order: &Order) -> Result<(), Violation> {
        let orders = self.orders.as_mut().ok_or("a machine that is to end is given no orders")?;
        send(orders, order).map_err(in_words)
    }

    fn said(&mut self) -> Result<Said, Violation> {
        let said = receive(&mut self.says).map_err(in_words)?;
        said.ok_or_else(|| format!("{} ended: what it wrote to standard error says why", self.name()))
    }

    fn is_not_due(&self, said: &Said) -> Violation {
        format!("{} says {said:?}", self.name())
    }

    fn name(&self) -> String {
        self.data.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Orders the process to end.
    fn end(&mut self) {
        self.orders = None;
    }

    fn has_ended(&mut self) -> Result<(), Violation> {
        let status = self.child.wait().map_err(in_words)?;
        if status.success() { Ok(()) } else { Err(format!("{} ended: {status}", self.name())) }
    }
}

/// No process stays after a failure.
impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Makes `data` the directory of a machine called `name`, which joins the cluster of the machine on
/// `server`.
fn join(server: &Path, data: &Path, name: &str) -> Result<(), Violation> {
    let invitation = Invitation {
        path: "/".to_owned(),
        read_only: false,
        squash: None,
        good_for_s: TOKEN_GOOD_FOR_S,
        addresses: Vec::new(),
    };
    let invited = admin::invite(server, invitation).map_err(in_words)?;
    let mut command = leasehold()?;
    command.args(["join", &invited.token, "--name", name, "--data"]).arg(data);
    let joined = command.stdout(Stdio::null()).status().map_err(in_words)?;
    if joined.success() { Ok(()) } else { Err(format!("{name} does not join: {joined}")) }
}

/// A command that runs this program.
fn leasehold() -> Result<Command, Violation> {
    std::env::current_exe().map(Command::new).map_err(in_words)
}

fn in_words(error: impl std::error::Error) -> Violation {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
