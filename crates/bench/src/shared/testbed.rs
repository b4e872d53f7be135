//! A server and the machines that have joined it: each a process, with a mount of its own.

use super::relay::Relay;
use crate::target::{Target, TargetKind};
use admin::Invitation;
use node::Token;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// A server and the machines that have joined it. The machine with the server does nothing else.
#[derive(Debug)]
pub struct Testbed {
    // In the order in which they are dropped.
    machines: Vec<Target>,
    relays: Vec<Relay>,
    server: Target,
}

/// The measurement of some work between machines.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Operations done.
    pub operations: u64,
    /// Wall time.
    pub wall: Duration,
    /// The server's counts, until all the work was durable at the server.
    pub counts: Counts,
}

/// The server's counts: since its start, or of some work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Messages between sessions and the server, both ways, renewals too.
    pub messages: u64,
    /// Messages among them that recall leases.
    pub recalls: u64,
    /// Times that the log was made durable.
    pub flushes: u64,
}

impl Testbed {
    /// Starts a server and so many machines in directories of `base`. Messages take `delay` on
    /// their way, either way.
    pub fn start(base: &Path, machines: usize, delay: Duration) -> io::Result<Testbed> {
        let server = Target::start(TargetKind::Mount, &base.join("server"))?;
        let mut testbed = Testbed { machines: Vec::new(), relays: Vec::new(), server };
        for n in 1..=machines {
            let name = format!("machine-{n}");
            let token = testbed.invite(delay)?;
            let base = base.join(&name);
            std::fs::create_dir_all(&base)?;
            node::join(&base.join("data"), &token, &name).map_err(io::Error::other)?;
            testbed.machines.push(Target::start(TargetKind::Mount, &base)?);
        }
        Ok(testbed)
    }

    /// A token for a machine that is `delay` away.
    fn invite(&mut self, delay: Duration) -> io::Result<Token> {
        let invitation = Invitation {
            path: "/".to_owned(),
            read_only: false,
            squash: None,
            good_for_s: 600,
            addresses: Vec::new(),
        };
        let invited = admin::invite(self.server.data(), invitation).map_err(io::Error::other)?;
        let mut token: Token = invited.token.parse().map_err(io::Error::other)?;
        if !delay.is_zero() {
            let server =
                token.addresses.first().ok_or_else(|| io::Error::other("the server has no address"))?;
            let relay = Relay::start(server.parse().map_err(io::Error::other)?, delay)?;
            token.addresses = vec![relay.address().to_string()];
            self.relays.push(relay);
        }
        Ok(token)
    }

    /// Starts a testbed with so many servers. They are machines of their own, which do nothing
    /// else.
    pub fn with_servers(base: &Path, machines: usize, servers: usize) -> io::Result<Testbed> {
        let testbed = Testbed::start(base, machines + servers - 1, Duration::ZERO)?;
        for n in machines + 1..machines + servers {
            admin::add_server(testbed.server.data(), &format!("machine-{n}"), &mut |_| {})
                .map_err(io::Error::other)?;
        }
        let voters = || -> io::Result<usize> {
            let servers = admin::servers(testbed.server.data()).map_err(io::Error::other)?;
            Ok(servers.iter().filter(|server| server.votes).count())
        };
        // Only an odd number of servers votes.
        while voters()? < servers.saturating_sub(1) / 2 * 2 + 1 {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(testbed)
    }

    /// Takes the last machine out of the testbed, to be dropped before the rest.
    pub fn take_machine(&mut self) -> Option<Target> {
        self.machines.pop()
    }

    /// Messages between the machines and the server so far.
    pub fn messages(&self) -> io::Result<u64> {
        self.counts().map(|counts| counts.messages)
    }

    /// The machines' mounts, those of servers last.
    pub fn machines(&self) -> &[Target] {
        &self.machines
    }

    /// The processes of all servers: the first server's, and those of machines that became servers.
    /// The first machine is not among them, since it does the work.
    pub fn servers(&self) -> impl Iterator<Item = u32> {
        self.machines.iter().skip(1).chain([&self.server]).filter_map(Target::process)
    }

    /// The processes of all machines, the server's among them.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.machines.iter().chain([&self.server]).filter_map(Target::process)
    }

    /// Measures `work`, which returns its number of operations.
    pub fn measure(&self, work: impl FnOnce() -> io::Result<u64>) -> io::Result<Measured> {
        let before = self.counts()?;
        let began = Instant::now();
        let operations = work()?.max(1);
        let wall = began.elapsed();
        self.machines.iter().try_for_each(Target::sync)?;
        Ok(Measured { operations, wall, counts: self.counts()?.since(before) })
    }

    fn counts(&self) -> io::Result<Counts> {
        let status = admin::ask_status(self.server.data()).map_err(io::Error::other)?;
        let server = status.and_then(|status| status.server);
        let server = server.ok_or_else(|| io::Error::other("the server is gone"))?;
        Ok(Counts {
            messages: server.traffic.messages_heard + server.traffic.messages_told,
            recalls: server.traffic.recalls,
            flushes: server.log_flushes,
        })
    }
}

impl Counts {
    fn since(self, before: Counts) -> Counts {
        Counts {
            messages: self.messages - before.messages,
            recalls: self.recalls - before.recalls,
            flushes: self.flushes - before.flushes,
        }
    }
}
