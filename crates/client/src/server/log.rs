//! The update log: one FIFO of updates decided here, for replay at the server, and of releases.

use ident::FileId;
use lease::{Field, Released, Time};
use namespace::{Error, Operation, operation};
use std::collections::VecDeque;
use wire::{LogEntry, ToServer, Version};

/// Entries of one message. The server decides each entry again, and a message must not hold up its
/// other clients for long.
const ENTRIES_PER_MESSAGE: usize = 1_000;
/// Approximate bytes of one message.
const BYTES_PER_MESSAGE: usize = 512 << 10;
/// Entries that may wait for acknowledgment before new updates have to wait. The server must be
/// able to apply them within seconds, or updates would be durable later than promised.
const ENTRIES_MAX: usize = 64_000;
/// Approximate bytes of these.
const BYTES_MAX: usize = 64 << 20;

/// If the front door does not forget a removed file within this many entries, the server learns
/// that the file lingers.
const FORGOTTEN_WITHIN: usize = 32;

/// The server's refusals of entries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals<'a> {
    /// Those that it remembers, by the number of the entry.
    pub of: &'a [(u64, Error)],
    /// Whether it refused other entries up to this one, it has forgotten.
    pub forgotten: u64,
}

impl Refusals<'_> {
    /// The refusal of an entry. One that may be refused counts as cut off.
    fn of_entry(&self, entry: u64) -> Option<Error> {
        let known = self.of.binary_search_by_key(&entry, |(refused, _)| *refused).ok();
        let known = known.and_then(|at| self.of.get(at)).map(|(_, error)| *error);
        known.or_else(|| (entry <= self.forgotten).then_some(Error::CutOff))
    }
}

/// The entries that the server has not acknowledged.
#[derive(Debug)]
pub(crate) struct OperationLog {
    /// Not yet acknowledged, in order, with their approximate sizes.
    entries: VecDeque<(LogEntry, usize)>,
    /// Releases in these entries that only answer a recall, of leases that are not held here: the
    /// entry's number, and the release.
    answers: Vec<(u64, Released)>,
    /// The sequence number of the first entry. Numbers begin at 1.
    first: u64,
    /// The number of entries sent.
    sent: usize,
    /// When the oldest unsent entry that has an age began to wait.
    unsent_since: Option<Time>,
    /// The last message asked for no acknowledgment of its own. It comes when another answer needs
    /// it, or with the server's next tick.
    unhurried: bool,
    /// An unsent entry is to be sent at once, without a question for it.
    hurries: bool,
    /// Approximate bytes not yet sent.
    unsent_bytes: usize,
    /// Approximate bytes of all.
    bytes: usize,
}

impl OperationLog {
    /// The number of unacknowledged entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn new() -> OperationLog {
        OperationLog {
            entries: VecDeque::new(),
            answers: Vec::new(),
            first: 1,
            sent: 0,
            unsent_since: None,
            unhurried: false,
            hurries: false,
            unsent_bytes: 0,
            bytes: 0,
        }
    }

    /// A log whose first entry has this number, with nothing sent.
    pub fn of(first: u64, entries: Vec<LogEntry>) -> OperationLog {
        let mut log = OperationLog { first, ..OperationLog::new() };
        for entry in entries {
            let bytes = entry_weight(&entry);
            log.push(entry, bytes);
        }
        log
    }

    /// All unacknowledged entries as the next connection needs them, and the number of the first.
    pub fn left(&mut self) -> (u64, Vec<LogEntry>) {
        self.rewind();
        (self.first, self.entries.iter().map(|(entry, _)| entry.clone()).collect())
    }

    /// Counts all entries as sent.
    pub fn skip_sending(&mut self) {
        (self.sent, self.unsent_bytes) = (self.entries.len(), 0);
    }

    /// Counts the age of the unsent entries from `since` on, unless an older one is among them.
    /// The caller has appended an entry, or is about to.
    pub fn age_from(&mut self, since: Time) {
        self.unsent_since = Some(self.unsent_since.map_or(since, |before| before.min(since)));
    }

    /// When the oldest unsent entry began to wait. Releases that only make room have no age.
    pub fn unsent_since(&self) -> Option<Time> {
        self.unsent_since
    }

    /// Appends an update decided by `version`. Returns its sequence number.
    pub fn push_update(&mut self, version: Version, operation: Operation) -> u64 {
        let bytes = weight(&operation);
        self.push(LogEntry::Update { version, operation }, bytes)
    }

    /// Appends an entry. Returns its sequence number.
    pub fn push(&mut self, entry: LogEntry, bytes: usize) -> u64 {
        self.entries.push_back((entry, bytes));
        self.unsent_bytes += bytes;
        self.bytes += bytes;
        self.last()
    }

    /// Appends a release. `answers` are its parts that release nothing.
    pub fn push_release(&mut self, released: Vec<Released>, answers: Vec<Released>) {
        let name = |field: &Field| match field {
            Field::Child(name) | Field::Xattr(name) => name.as_bytes().len(),
            _ => 0,
        };
        let bytes = released.iter().map(|released| 48 + name(&released.field)).sum();
        let sequence = self.push(LogEntry::Release(released), bytes);
        self.answers.extend(answers.into_iter().map(|answer| (sequence, answer)));
    }

    /// The sequence number of the last entry that was appended; 0 before the first.
    pub fn last(&self) -> u64 {
        self.first + self.entries.len() as u64 - 1
    }

    /// The sequence number of the last entry that is durable at the server.
    pub fn applied(&self) -> u64 {
        self.first - 1
    }

    /// The sequence number of the last entry that was sent.
    pub fn sent(&self) -> u64 {
        self.first + self.sent as u64 - 1
    }

    /// Whether an entry is unsent.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.entries.len()
    }

    /// Whether all entries are durable at the server.
    pub fn is_all_applied(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a message is full.
    pub fn is_due(&self) -> bool {
        self.entries.len() - self.sent >= ENTRIES_PER_MESSAGE || self.unsent_bytes >= BYTES_PER_MESSAGE
    }

    /// Has what is unsent go with the end of this input.
    pub fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Whether something is to be sent at once, though nobody waits for its acknowledgment.
    pub fn hurries(&self) -> bool {
        self.hurries && self.has_unsent()
    }

    /// Whether new updates have to wait for acknowledgments.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes >= BYTES_MAX
    }

    /// The next message, if an entry is unsent. Also an empty one, if `answer` asks for an
    /// acknowledgment at once and the server does not know that yet.
    pub fn next_message(&mut self, answer: bool) -> Option<ToServer> {
        let first = self.first + self.sent as u64;
        let mut bytes = 0;
        let mut count = 0;
        for (_, size) in self.entries.iter().skip(self.sent).take(ENTRIES_PER_MESSAGE) {
            if count > 0 && bytes + size > BYTES_PER_MESSAGE {
                break;
            }
            bytes += size;
            count += 1;
        }
        if count == 0 && !(answer && self.unhurried) {
            return None;
        }
        self.unhurried = !answer;
        let entries =
            self.entries.range(self.sent..self.sent + count).map(|(entry, _)| entry.clone()).collect();
        self.sent += count;
        self.unsent_bytes -= bytes;
        if self.sent == self.entries.len() {
            (self.unsent_since, self.hurries) = (None, false);
        }
        Some(ToServer::Log { first, entries, answer })
    }

    /// Counts no entry as sent, for a new connection.
    pub fn rewind(&mut self) {
        (self.sent, self.unsent_bytes, self.unhurried) = (0, self.bytes, false);
        // The server may have forgotten the flushes it requested over the last connection. It asks
        // again for those that it still needs, by numbers that may be the same.
        for (entry, _) in &mut self.entries {
            if let LogEntry::Flushed { .. } | LogEntry::WritesThrough { .. } = entry {
                *entry = LogEntry::Flushed { number: 0 };
            }
        }
        // The server may also have forgotten a recall. Then a release of a lease that is not held
        // is a misdeed. If the server still needs the lease, it recalls it again.
        for (sequence, answer) in std::mem::take(&mut self.answers) {
            let at = sequence.checked_sub(self.first).and_then(|at| self.entries.get_mut(at as usize));
            if let Some((LogEntry::Release(released), _)) = at {
                released.retain(|released| *released != answer);
            }
        }
    }

    /// Turns the removal of an open file into its death. The entry `removed` took the last name of
    /// `file`, which was to stay while open.
    ///
    /// Returns false if the server has been sent that entry, or if a later entry concerns the file.
    pub fn removes_at_once(&mut self, removed: u64, file: &FileId) -> bool {
        let Some(at) = removed.checked_sub(self.first).map(|at| at as usize) else { return false };
        let concerns = |(entry, _): &(LogEntry, usize)| match entry {
            LogEntry::Update { operation, .. } => operation.files().contains(&file),
            LogEntry::Release(released) => released.iter().any(|released| released.file == *file),
            LogEntry::Return { file: of, .. }
            | LogEntry::Wrote { file: of }
            | LogEntry::WritesThrough { file: of, .. } => of == file,
            LogEntry::Flushed { .. } => false,
        };
        if at < self.sent
            || self.entries.len() - at > FORGOTTEN_WITHIN
            || self.entries.range(at + 1..).any(concerns)
        {
            return false;
        }
        let operation = match self.entries.get_mut(at) {
            Some((LogEntry::Update { operation, .. }, _)) => operation,
            _ => return false,
        };
        match operation {
            Operation::Unlink(operation::Unlink { open, .. })
            | Operation::Rename(operation::Rename { open, .. }) => std::mem::take(open),
            _ => false,
        }
    }

    /// The unacknowledged updates, in order.
    pub fn updates(&self) -> impl Iterator<Item = &Operation> {
        self.entries.iter().filter_map(|(entry, _)| match entry {
            LogEntry::Update { operation, .. } => Some(operation),
            _ => None,
        })
    }

    /// Whether any unacknowledged release satisfies `such`.
    pub fn any_release(&self, such: impl Fn(Released) -> bool) -> bool {
        self.entries.iter().any(|(entry, _)| match entry {
            LogEntry::Release(released) => released.iter().cloned().any(&such),
            LogEntry::Return { file, fields, .. } => fields.iter().any(|(field, keep)| {
                such(Released { file: file.clone(), field: field.clone(), keep: *keep })
            }),
            _ => false,
        })
    }

    /// Drops all entries up to `through`, which the server has. Returns the updates that it
    /// refused, and those that it may have refused: nobody may take these for done.
    pub fn acknowledge(&mut self, up_to: u64, refusals: Refusals<'_>) -> Vec<(Operation, Error)> {
        let mut refused = Vec::new();
        while self.first <= up_to && self.sent > 0 {
            let Some((entry, bytes)) = self.entries.pop_front() else { break };
            self.bytes -= bytes;
            if let LogEntry::Update { operation, .. } = entry
                && let Some(error) = refusals.of_entry(self.first)
            {
                refused.push((operation, error));
            }
            self.first += 1;
            self.sent -= 1;
        }
        self.answers.retain(|(sequence, _)| *sequence >= self.first);
        refused
    }

    /// The charge for the unacknowledged updates: bytes and files.
    pub fn charged(&self) -> (u64, u64) {
        self.entries.iter().fold((0, 0), |(bytes, files), (entry, _)| match entry {
            LogEntry::Update { operation, .. } => {
                let cost = wire::cost(operation);
                (bytes + cost.0, files + cost.1)
            }
            _ => (bytes, files),
        })
    }
}

/// The approximate bytes of an entry in a message.
fn entry_weight(entry: &LogEntry) -> usize {
    match entry {
        LogEntry::Update { operation, .. } => weight(operation),
        LogEntry::Release(released) => 48 * released.len().max(1),
        LogEntry::Return { fields, .. } => 48 + 4 * fields.len(),
        LogEntry::Flushed { .. } | LogEntry::WritesThrough { .. } | LogEntry::Wrote { .. } => 16,
    }
}

/// The approximate bytes of an operation in a message, and never far too few.
fn weight(operation: &Operation) -> usize {
    use namespace::{ContentChange, Place};
    // A user may be in tens of thousands of groups.
    let groups = operation.cred().map_or(0, |cred| 5 * cred.groups.len());
    groups
        + match operation {
            Operation::Publish(operation::Publish {
                change: ContentChange::Inline { sealed, .. }, ..
            }) => 64 + sealed.len(),
            Operation::Publish(operation::Publish {
                change: ContentChange::Extents { put, punch, .. },
                ..
            }) => {
                let piece = |place: &Place| if let Place::Inline(b) = place { b.len() } else { 0 };
                let put = put.iter().map(|extent| 96 + piece(&extent.piece.place)).sum::<usize>();
                64 + put + 20 * punch.len()
            }
            Operation::SetXattr(operation::SetXattr { value, .. }) => 128 + value.len(),
            Operation::Create(operation::Create { new, .. }) => 128 + new.spec.target.len(),
            _ => 128,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_refused_counts_as_refused() {
        let mut log = OperationLog::new();
        let operation = || {
            let (file, time) = (FileId::root(), namespace::Timestamp::default());
            Operation::Accessed(operation::Accessed { file, time })
        };
        (0..4).for_each(|_| _ = log.push_update(Version::NEWEST, operation()));
        log.push_release(Vec::new(), Vec::new());
        log.push_update(Version::NEWEST, operation());
        log.next_message(true);
        let known = [(2, Error::NotFound), (6, Error::Stale)];
        let refused = log.acknowledge(6, Refusals { of: &known, forgotten: 3 });
        let errors: Vec<Error> = refused.into_iter().map(|(_, error)| error).collect();
        assert_eq!(errors, [Error::CutOff, Error::NotFound, Error::CutOff, Error::Stale]);
    }

    /// A server that crashed may have forgotten its request, and use the number again for another
    /// one.
    #[test]
    fn an_answer_to_a_flush_counts_over_its_own_connection_only() {
        let mut log = OperationLog::new();
        log.push(LogEntry::Flushed { number: 7 }, 16);
        let sent = |number| vec![LogEntry::Flushed { number }];
        assert_eq!(
            log.next_message(false),
            Some(ToServer::Log { first: 1, entries: sent(7), answer: false })
        );
        log.rewind();
        assert_eq!(log.next_message(true), Some(ToServer::Log { first: 1, entries: sent(0), answer: true }));
    }

    /// A server that crashed may have forgotten the recall.
    #[test]
    fn an_answer_that_lets_go_of_nothing_counts_over_its_own_connection_only() {
        let mut log = OperationLog::new();
        let released = |field| Released { file: FileId::root(), field, keep: None };
        let (held, other) = (released(Field::Children), released(Field::Times));
        log.push_release(vec![held.clone(), other.clone()], vec![other.clone()]);
        log.push_release(vec![other.clone()], vec![other.clone()]);
        let sent = |log: &mut OperationLog| match log.next_message(false) {
            Some(ToServer::Log { entries, .. }) => entries,
            _ => Vec::new(),
        };
        let (both, one) = (vec![held.clone(), other.clone()], vec![other.clone()]);
        assert_eq!(sent(&mut log), [LogEntry::Release(both), LogEntry::Release(one)]);
        log.acknowledge(0, Refusals::default());
        log.rewind();
        assert!(
            !log.any_release(|released| released == other),
            "it is answered again when it is recalled again"
        );
        assert_eq!(sent(&mut log), [LogEntry::Release(vec![held]), LogEntry::Release(Vec::new())]);
    }

    #[test]
    fn the_age_of_the_log_is_that_of_its_oldest_unsent_entry() {
        let mut log = OperationLog::new();
        log.push(LogEntry::Release(Vec::new()), 16);
        assert_eq!(log.unsent_since(), None);
        for (since, oldest) in [(5, 5), (3, 3), (4, 3)] {
            log.age_from(Time(since));
            log.push(LogEntry::Release(Vec::new()), BYTES_PER_MESSAGE - 16);
            assert_eq!(log.unsent_since(), Some(Time(oldest)));
        }
        for left in [true, true, false] {
            assert!(log.next_message(false).is_some());
            assert_eq!((log.has_unsent(), log.unsent_since().is_some()), (left, left));
        }
    }

    #[test]
    fn what_was_sent_without_hurry_is_asked_for_when_somebody_waits() {
        let mut log = OperationLog::new();
        log.push(LogEntry::Release(Vec::new()), 16);
        assert!(log.next_message(false).is_some());
        assert_eq!(log.next_message(false), None);
        assert_eq!(
            log.next_message(true),
            Some(ToServer::Log { first: 2, entries: Vec::new(), answer: true })
        );
        assert_eq!(log.next_message(true), None, "once");
    }
}
