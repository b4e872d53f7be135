//! The counts of a campus.

use serde::Serialize;
use std::collections::BTreeSet;
use wire::{AskMode, FileGrant, JointId, LogEntry, ToClient, ToServer};

/// The kind of a message between servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Between {
    HandOver,
    Joint,
    PathLease,
}

/// The load of every server at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The time since the beginning, s.
    pub at_s: u64,
    /// Active files of each server.
    pub active: Vec<u64>,
    /// Messages that each server has handled since the last sample.
    pub handled: Vec<u64>,
}

/// The counts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Calls of programs.
    pub operations: u64,
    /// Calls of each machine's programs.
    pub by_machine: Vec<u64>,
    /// Calls that waited for a server.
    pub waited: u64,
    /// Requests for leases.
    pub requests: u64,
    /// Operations that a server was asked to do itself.
    pub shipped: u64,
    /// Files in grants.
    pub file_grants: u64,
    /// Leases in grants: a whole file, or each field.
    pub leases: u64,
    /// Leases that no recall preceded as fields, while another machine had a lease on the file with
    /// which one lease for each file would have conflicted.
    pub would_conflict: u64,
    /// Recalls that were sent.
    pub recalls: u64,
    /// Messages with updates.
    pub batches: u64,
    /// Updates in them.
    pub updates: u64,
    /// Operations that changed files of several servers.
    pub joint: u64,
    /// Messages between servers about operations over several of them.
    pub joint_messages: u64,
    /// Messages between servers about path leases.
    pub path_messages: u64,
    /// Messages between servers about regions.
    pub hand_over_messages: u64,
    /// Regions that were handed over.
    pub delegations: u64,
    /// Regions that were to be handed over, and stayed.
    pub stayed: u64,
    /// The longest time that a message waited for a server's processor and was handled, or for its
    /// disk, µs.
    pub longest_us: u64,
    /// The time that each server's processor has spent on messages, µs.
    pub busy_us: Vec<u64>,
    /// The time that each server's disk has spent on flushes, µs.
    pub disk_us: Vec<u64>,
    /// Loads over time.
    pub samples: Vec<Sample>,
    #[serde(skip)]
    handled: Vec<u64>,
    #[serde(skip)]
    decided: BTreeSet<JointId>,
}

impl Counts {
    pub(super) fn of(machines: usize, servers: usize) -> Counts {
        let of = |count: usize| vec![0; count];
        let (busy_us, disk_us, handled, by_machine) = (of(servers), of(servers), of(servers), of(machines));
        Counts { busy_us, disk_us, handled, by_machine, ..Counts::default() }
    }

    pub(super) fn operation(&mut self, machine: usize) {
        self.operations += 1;
        self.by_machine[machine] += 1;
    }

    /// The counts begin anew.
    pub fn begin_anew(&mut self) {
        *self = Counts::of(self.by_machine.len(), self.busy_us.len());
    }

    pub(super) fn handled(&mut self, server: usize, service_us: u64, took_us: u64) {
        self.handled[server] += 1;
        self.busy_us[server] += service_us;
        self.longest_us = self.longest_us.max(took_us);
    }

    pub(super) fn sample(&mut self, at_s: u64, active: Vec<u64>) {
        let next = vec![0; self.handled.len()];
        self.samples.push(Sample { at_s, active, handled: std::mem::replace(&mut self.handled, next) });
    }

    pub(super) fn goes_to_server(&mut self, message: &ToServer) {
        match message {
            ToServer::Ask { mode: AskMode::Ship, .. } => self.shipped += 1,
            ToServer::Ask { .. } => self.requests += 1,
            ToServer::Log { entries, .. } => {
                let updates = entries.iter().filter(|it| matches!(it, LogEntry::Update { .. })).count();
                self.batches += u64::from(updates > 0);
                self.updates += updates as u64;
            }
            _ => {}
        }
    }

    pub(super) fn goes_to_client(&mut self, message: &ToClient) {
        self.recalls += u64::from(matches!(message, ToClient::Recall { .. }));
    }

    /// Leases on one file were granted.
    pub(super) fn granted(&mut self, grant: &FileGrant, would_conflict: bool) {
        let leases = if grant.whole { 1 } else { grant.fields.len() as u64 };
        self.file_grants += 1;
        self.leases += leases;
        self.would_conflict += if would_conflict { leases } else { 0 };
    }

    pub(super) fn between(&mut self, kind: Between) {
        match kind {
            Between::HandOver => self.hand_over_messages += 1,
            Between::Joint => self.joint_messages += 1,
            Between::PathLease => self.path_messages += 1,
        }
    }

    pub(super) fn joint(&mut self, op: JointId, changes: bool) {
        if changes && self.decided.insert(op) {
            self.joint += 1;
        }
    }
}
