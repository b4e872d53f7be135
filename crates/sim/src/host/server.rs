//! A server without a group: a directory on rows in memory.

use super::Violation;
use directory::{Directory, Input, Inspector, MemoryStore, OuterEdge, Output, Policy};
use ident::ServerId;
use lease::Time;
use namespace::{Attributes, FileKind, Timestamp};
use std::collections::BTreeSet;
use wire::{MachineId, Rights, Versions};

/// The directory, its rows, and counts of its work.
pub(crate) struct DirectoryHost {
    pub directory: Directory,
    pub store: MemoryStore,
    policy: Policy,
    /// Whether background work is left.
    pub again: bool,
    /// Times that the log had to become durable before a message left.
    pub flushes: u64,
    /// Whether a lasting change was applied since the last flush.
    lasting: bool,
}

impl DirectoryHost {
    /// A new cluster with a root without children.
    pub fn found(policy: Policy) -> DirectoryHost {
        let mut store = MemoryStore::default();
        let directory = Directory::create(&mut store, root(), "machine-1", Versions::KNOWN);
        let directory = directory.with_policy(policy);
        DirectoryHost { directory, store, policy, again: false, flushes: 0, lasting: false }
    }

    /// Another server of the cluster of `root`, which manages no file yet.
    pub fn found_beside(root: &DirectoryHost, number: ServerId) -> Result<DirectoryHost, Violation> {
        let mut store = MemoryStore::default();
        let registry = root.directory.registry(0, &root.store);
        let directory = Directory::create_beside(&mut store, number, (&registry, 0), Versions::KNOWN)
            .map_err(|fault| fault.to_string())?;
        let directory = directory.with_policy(root.policy);
        Ok(DirectoryHost { directory, store, policy: root.policy, again: false, flushes: 0, lasting: false })
    }

    /// Handles an input. Reports a misdeed of a client, and a machine that gets no session.
    pub fn handle(&mut self, time: Time, input: Input) -> Result<Vec<Output>, Violation> {
        let out = self.take(time, input)?;
        let why = out.iter().find_map(|output| match output {
            Output::Refused { why, .. } => Some(why),
            _ => None,
        });
        why.map_or(Ok(()), |why| Err(why.to_string()))?;
        Ok(out)
    }

    /// Handles an input. Reports a misdeed of a client.
    pub fn take(&mut self, time: Time, input: Input) -> Result<Vec<Output>, Violation> {
        self.again &= !matches!(input, Input::Tick);
        let mut out = Vec::new();
        self.directory.handle(time, input, &mut self.store, &mut out).map_err(|e| e.to_string())?;
        self.lasting |= self.directory.lasts();
        if self.lasting && out.iter().any(Output::rests_on_the_log) {
            self.flushes += 1;
            self.lasting = false;
        }
        self.again |= out.iter().any(|output| matches!(output, Output::Again));
        if let Some((session, misdeed)) = self.directory.misdeeds().first() {
            return Err(format!("{session:?}: {misdeed}"));
        }
        Ok(out)
    }

    /// Stops, and starts again from its checkpoint. [`Input::Lead`] is to follow.
    pub fn restart(&mut self) -> Result<(), Violation> {
        self.directory.checkpoint(&mut self.store);
        self.opens()
    }

    /// Starts from the rows.
    pub fn opens(&mut self) -> Result<(), Violation> {
        let directory = Directory::open(&self.store, Versions::KNOWN).map_err(|e| e.to_string())?;
        self.directory = directory.with_policy(self.policy);
        Ok(())
    }

    /// Checks that the whole state is sound.
    pub fn check(&self) -> Result<(), Violation> {
        let mut violations: Vec<directory::Violation> = Vec::new();
        self.directory.check(&self.store, &mut violations);
        match violations.first() {
            Some(first) => {
                Err(format!("{} faults in the server's state, the first: {first}", violations.len()))
            }
            None => Ok(()),
        }
    }
}

/// Checks that each edge between files of two servers is known to both. Nothing may be under way.
pub(crate) fn check_edges(servers: &[DirectoryHost]) -> Result<(), Violation> {
    let mut edges = Edges::default();
    servers.iter().for_each(|server| server.directory.check(&server.store, &mut edges));
    match edges.labels.symmetric_difference(&edges.links).next() {
        Some(edge) => Err(format!("only one of two servers knows of {edge:?}")),
        None => Ok(()),
    }
}

/// The edges between files of two servers, as the labels have them and as the links do.
#[derive(Default)]
struct Edges {
    labels: BTreeSet<OuterEdge>,
    links: BTreeSet<OuterEdge>,
}

impl Inspector for Edges {
    fn outer_label(&mut self, edge: OuterEdge) {
        self.labels.insert(edge);
    }

    fn outer_link(&mut self, edge: OuterEdge) {
        self.links.insert(edge);
    }

    fn violation(&mut self, _: directory::Violation) {}
}

/// The inputs that enrol a machine with these rights.
pub(crate) fn enrols(machine: MachineId, rights: Rights) -> [Input; 2] {
    let mut token = [0; 32];
    token[..8].copy_from_slice(&machine.0.to_be_bytes());
    let (name, key, connection) = (format!("machine-{}", machine.0), [0; 32], 0);
    let enrol = Input::Enrol { token, name, key, at: 0, connection };
    [Input::Invite { token, rights, at: 0, until: 1 }, enrol]
}

/// The attributes of a new root.
pub(crate) fn root() -> Attributes {
    let time = Timestamp { secs: 1_700_000_000, nanos: 0 };
    Attributes {
        kind: FileKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: time,
        btime: time,
        atime: time,
    }
}
