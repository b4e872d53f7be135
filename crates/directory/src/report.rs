//! What people can be told about machines and leases: questions that no log entry is needed for and
//! that nobody is recalled for.

use crate::TERM_MS;
use crate::files::Files;
use crate::transaction::{DirectoryState, SERVER};
use ident::FileId;
use lease::{Field, Kind, Label, SessionId, Time};
use namespace::Operation;
use std::collections::BTreeMap;
use wire::{MachineId, Rights};

/// A machine, as `leasehold machines` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineReport {
    /// Its number.
    pub machine: MachineId,
    /// Its name. An expelled machine's may be another's by now.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
    /// When it joined, on the clock of the server's log.
    pub since: Time,
    /// When it was expelled.
    pub expelled: Option<Time>,
    /// How its session stands, if it has one.
    pub session: Option<SessionReport>,
}

/// An invitation that nobody has joined by, as `leasehold invitations list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationReport {
    /// BLAKE3 of its secret.
    pub token: [u8; 32],
    /// What a machine that joins by it may do.
    pub rights: Rights,
    /// Until when, UTC seconds.
    pub until: u64,
}

/// How a machine's session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// How long ago it was heard of, ms.
    pub heard_ms: u64,
    /// Whether that is longer than its term: it is over as soon as anybody needs what it holds.
    pub lapsed: bool,
    /// For how long the oldest of the recalls that it has not answered has waited, ms.
    pub unanswered_ms: Option<u64>,
}

/// Something that a machine has to do with one field of a file, as `leasehold leases` shows it.
///
/// Of a black box it says who holds which of its two leases, and never what anybody's own value is
/// (BlackBox §3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The field.
    pub field: Field,
    /// The machine.
    pub machine: MachineId,
    /// Its name.
    pub name: String,
    /// What it has to do with it.
    pub standing: Standing,
    /// How long the last recall of this field took, ms: as far as it is remembered, which is at
    /// least for ten seconds unless very many fields are recalled.
    pub last_recall_ms: Option<u64>,
}

/// What a machine has to do with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds a lease on it.
    Holds {
        /// What lease.
        kind: Kind,
        /// For how long at least, in ms, unless it is renewed, which it is all along: what is left
        /// of its session's term. After that, until somebody needs the field.
        left_ms: u64,
    },
    /// It was asked to let go, and has not answered.
    Recalled {
        /// What it may keep.
        keep: Option<Kind>,
        /// For how long it was, ms.
        for_ms: u64,
    },
    /// It waits for a lease.
    Waits {
        /// What lease.
        kind: Kind,
        /// For how long it has, ms.
        for_ms: u64,
    },
    /// It holds all labels (or attributes), but not this one.
    Excluded,
}

/// A request that waits, and for whom. For people at the server only: whoever asks is not told who
/// holds what (BlackBox §3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// Its place in the order of arrival, which no other has.
    pub arrival: u64,
    /// The name of the machine that asks; none where the server wants it itself.
    pub by: Option<String>,
    /// What it is to do.
    pub operation: &'static str,
    /// To what, by its path from the root; by its identifier where it has none.
    pub path: String,
    /// For how long it has waited, ms.
    pub for_ms: u64,
    /// Names of machines that were told to let go, or to flush, and have not answered; for how
    /// long, ms.
    pub unanswered: Vec<(String, u64)>,
}

/// Labels of a path that are looked for.
const DEPTH_MAX: usize = 4096;

pub(crate) fn machines(state: &DirectoryState, now: Time, files: &Files<'_>) -> Vec<MachineReport> {
    let unanswered = state.pending.queue.recalls.owed_since();
    let mut sessions: BTreeMap<MachineId, SessionReport> = BTreeMap::new();
    for (id, session) in &state.sessions.all {
        let heard_ms = now.ms_since(session.renewed);
        let unanswered_ms = unanswered.get(id).map(|since| now.ms_since(*since));
        let report = SessionReport { heard_ms, lapsed: session.lapsed(now, TERM_MS), unanswered_ms };
        sessions.insert(session.machine, report);
    }
    let report = |(machine, row): (MachineId, crate::enrolment::MachineRow)| {
        let crate::enrolment::MachineRow { name, rights, since, expelled, .. } = row;
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
            state.sessions.all.get(&session).map_or(TERM_MS, |session| now.ms_since(session.renewed));
        let left_ms = TERM_MS.saturating_sub(heard_ms);
        let holds = held.iter().map(|(field, kind)| (field, session, Standing::Holds { kind, left_ms }));
        standings.extend(holds);
        let excluded = held.excluded().cloned().map(Field::Child);
        let excluded = excluded.chain(held.excluded_xattrs().cloned().map(Field::Xattr));
        standings.extend(excluded.map(|field| (field, session, Standing::Excluded)));
    }
    for (session, field, keep, since) in state.pending.queue.recalls.unanswered_of(file) {
        let for_ms = now.ms_since(since);
        standings.push((field.clone(), session, Standing::Recalled { keep, for_ms }));
    }
    // Within a field in the order of arrival: the sort keeps it.
    for (session, field, kind, since) in state.pending.waits_on(file) {
        let for_ms = now.ms_since(since);
        standings.push((field, session, Standing::Waits { kind, for_ms }));
    }
    standings.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let report = |(field, session, standing): (Field, SessionId, Standing)| {
        // What the server wants for itself is nobody's.
        let machine = state.sessions.all.get(&session).filter(|_| session != SERVER)?.machine;
        let name = files.machine(machine).map(|row| row.name).unwrap_or_default();
        let last_recall_ms = state.pending.last_recall_ms(file, &field);
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
        let machine = state.sessions.all.get(&session)?.machine;
        Some(files.machine(machine).map(|row| row.name).unwrap_or_default())
    };
    let long = state.pending.waiting().filter(|(_, asked)| now.ms_since(asked.since) >= at_least_ms);
    let report = |(arrival, asked): (lease::Arrival, &crate::pending::Asked)| {
        let awaited = state.pending.awaited_by(arrival).into_iter();
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

/// What an operation is about, as people call it.
fn path(files: &Files<'_>, operation: &Operation) -> String {
    let (file, label) = match operation {
        Operation::Lookup { dir, label, .. }
        | Operation::Create { dir, label, .. }
        | Operation::Link { dir, label, .. }
        | Operation::Unlink { dir, label, .. }
        | Operation::Rename { from_dir: dir, from: label, .. } => (dir.clone(), Some(label)),
        other => (other.files().first().map_or(FileId::root(), |file| (*file).clone()), None),
    };
    path_of(files, file, label)
}

/// The path of a file from the root, or of what `label` is in it; from its identifier, where it has
/// none.
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
