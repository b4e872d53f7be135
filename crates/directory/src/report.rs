//! Reports on machines and leases, for people. They need no Raft log entry and recall nothing.

use crate::TERM_MS;
use crate::rows::files::Files;
use crate::rows::machines::{Invitation, MachineRow};
use crate::state::DirectoryState;
use crate::transaction::SERVER;
use ident::FileId;
use lease::{Field, Kind, Label, SessionId, Time};
use namespace::{Operation, operation};
use std::collections::BTreeMap;
use wire::{MachineId, Rights};

/// A machine, as `leasehold machines` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineReport {
    /// Its number.
    pub machine: MachineId,
    /// Its name. The name of an expelled machine may be another's by now.
    pub name: String,
    /// Its rights.
    pub rights: Rights,
    /// When it joined, on the clock of the server's log.
    pub since: Time,
    /// When it was expelled.
    pub expelled: Option<Time>,
    /// The state of its session, if it has one.
    pub session: Option<SessionReport>,
}

/// An invitation that no machine has joined by, as `leasehold invitations list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationReport {
    /// BLAKE3 of its secret.
    pub token: [u8; 32],
    /// The rights of a machine that joins by it.
    pub rights: Rights,
    /// The time at which it expires, UTC seconds.
    pub until: u64,
}

/// The state of a machine's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// The time since it was last heard of, ms.
    pub heard_ms: u64,
    /// Whether that is longer than its term: the session ends as soon as a request needs what it
    /// holds.
    pub lapsed: bool,
    /// The age of the oldest recall that it has not answered, ms.
    pub unanswered_ms: Option<u64>,
}

/// A machine's relation to one field of a file, as `leasehold leases` shows it.
///
/// Of a black box it shows the holders of the two leases, and never a client's own value (BlackBox
/// §3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The field.
    pub field: Field,
    /// The machine.
    pub machine: MachineId,
    /// Its name.
    pub name: String,
    /// Its relation to the field.
    pub standing: Standing,
    /// The duration of the last recall of this field, ms, as far as it is remembered. It is
    /// remembered for at least ten seconds, unless very many fields are recalled.
    pub last_recall_ms: Option<u64>,
}

/// The relation of a machine to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The machine holds a lease on the field.
    Holds {
        /// The kind of lease.
        kind: Kind,
        /// The least time that the lease will last without a renewal, ms: the rest of the session's
        /// term. Renewals come all along. After that time the lease lasts until a request needs the
        /// field.
        left_ms: u64,
    },
    /// The lease was recalled, and the machine has not answered.
    Recalled {
        /// The kind of lease that it may keep.
        keep: Option<Kind>,
        /// The age of the recall, ms.
        for_ms: u64,
    },
    /// The machine waits for a lease.
    Waits {
        /// The kind of lease.
        kind: Kind,
        /// The time it has waited, ms.
        for_ms: u64,
    },
    /// The machine holds all labels (or attributes) but this one.
    Excluded,
}

/// A waiting request, and the machines that it waits for. For people at the server only: the asker
/// does not learn the holders (BlackBox §3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// Its place in the order of arrival, which is unique.
    pub arrival: u64,
    /// The name of the machine that asks; none if the server itself asks.
    pub by: Option<String>,
    /// The operation's name.
    pub operation: &'static str,
    /// The path of its file from the root; the identifier of a file that has none.
    pub path: String,
    /// The time it has waited, ms.
    pub for_ms: u64,
    /// Names of machines that have not answered a recall or a flush, and for how long, ms.
    pub unanswered: Vec<(String, u64)>,
}

/// The most labels that a path is searched for.
const DEPTH_MAX: usize = 4096;

pub(crate) fn machines(state: &DirectoryState, now: Time, files: &Files<'_>) -> Vec<MachineReport> {
    let unanswered = state.region.pending.queue.recalls.owed_since();
    let mut sessions: BTreeMap<MachineId, SessionReport> = BTreeMap::new();
    for (id, session) in &state.server.sessions.all {
        let heard_ms = now.ms_since(session.renewed);
        let unanswered_ms = unanswered.get(id).map(|since| now.ms_since(*since));
        let report = SessionReport { heard_ms, lapsed: session.lapsed(now, TERM_MS), unanswered_ms };
        sessions.insert(session.machine, report);
    }
    let report = |(machine, row): (MachineId, MachineRow)| {
        let MachineRow { name, rights, since, expelled, .. } = row;
        MachineReport { machine, name, rights, since, expelled, session: sessions.get(&machine).copied() }
    };
    files.machines().into_iter().map(report).collect()
}

pub(crate) fn leases(
    state: &DirectoryState,
    now: Time,
    files: &Files<'_>,
    file: &FileId,
) -> Vec<LeaseReport> {
    let mut standings: Vec<(Field, SessionId, Standing)> = Vec::new();
    for (session, held) in files.holdings(file).iter() {
        let heard_ms =
            state.server.sessions.all.get(&session).map_or(TERM_MS, |session| now.ms_since(session.renewed));
        let left_ms = TERM_MS.saturating_sub(heard_ms);
        let holds = held.iter().map(|(field, kind)| (field, session, Standing::Holds { kind, left_ms }));
        standings.extend(holds);
        let excluded = held.excluded().cloned().map(Field::Child);
        let excluded = excluded.chain(held.excluded_xattrs().cloned().map(Field::Xattr));
        standings.extend(excluded.map(|field| (field, session, Standing::Excluded)));
    }
    for (session, field, keep, since) in state.region.pending.queue.recalls.unanswered_of(file) {
        let for_ms = now.ms_since(since);
        standings.push((field.clone(), session, Standing::Recalled { keep, for_ms }));
    }
    // Within a field in the order of arrival: the sort is stable.
    for (session, field, kind, since) in state.region.pending.waits_on(file) {
        let for_ms = now.ms_since(since);
        standings.push((field, session, Standing::Waits { kind, for_ms }));
    }
    standings.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let report = |(field, session, standing): (Field, SessionId, Standing)| {
        // The server's own requests belong to no machine.
        let machine = state.server.sessions.all.get(&session).filter(|_| session != SERVER)?.machine;
        let name = files.machine(machine).map(|row| row.name).unwrap_or_default();
        let last_recall_ms = state.region.contention.last_recall_ms(file, &field);
        Some(LeaseReport { field, machine, name, standing, last_recall_ms })
    };
    standings.into_iter().filter_map(report).collect()
}

pub(crate) fn waits(
    state: &DirectoryState,
    now: Time,
    files: &Files<'_>,
    at_least_ms: u64,
) -> Vec<WaitReport> {
    let name = |session: SessionId| {
        let machine = state.server.sessions.all.get(&session)?.machine;
        Some(files.machine(machine).map(|row| row.name).unwrap_or_default())
    };
    let long = state.region.pending.waiting().filter(|(_, asked)| now.ms_since(asked.since) >= at_least_ms);
    let report = |(arrival, asked): (lease::Arrival, &crate::requests::pending::Asked)| {
        let awaited = state.region.pending.awaited_by(arrival).into_iter();
        let unanswered = awaited.filter_map(|(holder, since)| Some((name(holder)?, now.ms_since(since))));
        WaitReport {
            arrival: arrival.0,
            by: name(asked.session),
            operation: asked.operation.name(),
            path: path(files, &asked.operation),
            for_ms: now.ms_since(asked.since),
            unanswered: unanswered.collect(),
        }
    };
    long.map(report).collect()
}

/// The path of an operation's file, for people.
fn path(files: &Files<'_>, operation: &Operation) -> String {
    let (file, label) = match operation {
        Operation::Lookup(operation::Lookup { dir, label, .. })
        | Operation::Find(operation::Find { dir, label, .. })
        | Operation::Create(operation::Create { dir, label, .. })
        | Operation::Link(operation::Link { dir, label, .. })
        | Operation::Unlink(operation::Unlink { dir, label, .. })
        | Operation::Rename(operation::Rename { from_dir: dir, from: label, .. }) => {
            (dir.clone(), Some(label))
        }
        other => (other.files().first().map_or(FileId::root(), |file| (*file).clone()), None),
    };
    path_of(files, file, label)
}

/// The path of a file from the root, or of `label` in it. It begins at the identifier if the file
/// has no path.
pub(crate) fn path_of(files: &Files<'_>, file: FileId, label: Option<&Label>) -> String {
    let mut labels: Vec<Label> = label.into_iter().cloned().collect();
    let mut at = file;
    while at != FileId::root() {
        let link = files.record(&at).and_then(|record| record.links.first().cloned());
        let Some(link) = link.filter(|_| labels.len() < DEPTH_MAX) else { break };
        labels.push(link.label);
        at = link.dir;
    }
    let from = if at == FileId::root() { String::new() } else { at.to_string() };
    if labels.is_empty() && from.is_empty() {
        return "/".to_owned();
    }
    labels.iter().rev().fold(from, |path, label| path + "/" + &String::from_utf8_lossy(label.as_bytes()))
}

pub(crate) fn resolve(files: &Files<'_>, path: &[u8]) -> Option<FileId> {
    let mut at = FileId::root();
    for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        at = match name {
            b".." => {
                let dir = files.record(&at).filter(|record| record.is_directory())?;
                dir.links.first().map_or_else(FileId::root, |link| link.dir.clone())
            }
            name => files.child(&at, &Label::new(name).ok()?)?.file,
        };
    }
    Some(at).filter(|file| files.record(file).is_some())
}

/// The invitations that no machine has joined by.
pub(crate) fn open_invitations(files: &Files<'_>) -> Vec<InvitationReport> {
    let open = files.invitations().into_iter().filter(|(_, invitation)| invitation.used.is_none());
    open.map(|(token, Invitation { rights, until, .. })| InvitationReport { token, rights, until }).collect()
}
