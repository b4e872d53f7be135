//! Calls that could not be answered at once: what each waits for, and the next try.
//!
//! Each try starts from the beginning of the call. The client does nothing of a call before all of
//! it can be done, in one logical step. So leases may be recalled while a call waits, and no call
//! ever holds one back.

use crate::client::Client;
use crate::shipped::ShippedAnswer;
use crate::{Call, Now, Output, Ticket};
use ident::FileId;
use lease::{Lease, Time};
use namespace::{Cred, Error, LockChange, Operation};
use std::collections::BTreeMap;
use wire::{AskMode, FileGrant, ToServer};

/// The number of grants that are recalled before their call can use them. After these the server is
/// asked to do the operation itself.
const LOST_RACES_MAX: u8 = 2;
/// The time after which calls that wait for free space ask again, ms.
const FREED_MS: u64 = 250;

/// The reason why a call does not return yet, or its error.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The call is answered with an error.
    Error(Error),
    /// The call is to be tried again after something has happened.
    Need(Need),
}

/// The event that a call needs first.
#[derive(Debug)]
pub(crate) enum Need {
    /// The session is open (again).
    Session,
    /// Leases come, for the operation as a whole.
    Leases { operation: Box<Operation>, wants: Vec<Lease> },
    /// The page of a directory after position `after` comes.
    Page { dir: FileId, after: u64 },
    /// The server does the operation.
    Ship { operation: Box<Operation> },
    /// The effects of the operations that the server is doing for this client are known.
    Quiet,
    /// Integers of a directory come.
    Integers(FileId),
    /// Inode numbers come.
    Inodes,
    /// The allowance grows by these bytes and files. `replaces` if they are for content that
    /// replaces other content.
    Allowance { bytes: u64, files: u64, replaces: bool },
    /// The server reports how much space there is.
    Space,
    /// The space of replaced content is free, so that the allowance can grow.
    Freed,
    /// Extents or inline content come, from an offset on.
    Extents { file: FileId, from: u64 },
    /// Log entries up to this one are durable.
    Applied(u64),
    /// Content is published up to the barriers of its flush.
    Published(BTreeMap<FileId, u64>),
    /// There is less dirty content.
    Room,
    /// The conflicting locks are released, or the lease that shows them is recalled.
    Unlocked { file: FileId, change: LockChange },
    /// The content of a file is released, which another client waits for.
    Yielded(FileId),
    /// The server confirms this log entry of a write-through change.
    Heard(u64),
}

/// The event that a waiting call waits for: a [`Need`] whose request is under way.
#[derive(Debug)]
pub(crate) enum WaitingFor {
    Session,
    Number(u64),
    Answered,
    Quiet,
    Integers(FileId),
    Inodes,
    Allowance,
    Space,
    Freed { until: Time },
    Applied(u64),
    Published(BTreeMap<FileId, u64>),
    Room,
    Unlocked { file: FileId, change: LockChange },
    Yielded(FileId),
    Heard(u64),
}

/// A waiting call, for the machine's log. The client does not know which machine keeps it waiting,
/// and must not learn other machines' holdings (BlackBox §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// The call's ticket.
    pub ticket: Ticket,
    /// The name of the call.
    pub call: &'static str,
    /// How long the call has waited, ms.
    pub for_ms: u64,
    /// The event that the call waits for.
    pub what: &'static str,
}

/// A call under way, from its first try to its answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub cred: Cred,
    pub call: Call,
    /// When the call came.
    pub since: Time,
    /// The client opens this file again. There is no caller.
    pub reopens: Option<FileId>,
    /// The call is the client's own, such as the close of a file that lingers no more.
    pub is_own: bool,
    pub on: WaitingFor,
    lost_races: u8,
    /// The next request is for current values without a lease.
    hurries: bool,
    /// Values that the server reported without a lease, for the next try.
    pub told: Vec<FileGrant>,
    /// The server's answer to the shipped operation.
    pub shipped: Option<Result<ShippedAnswer, Error>>,
    /// The allowance at the call's last request for more: bytes and files.
    pub asked_allowance: Option<(u64, u64)>,
    /// The progress of a sync: content is flushed up to these barriers, the log up to `through`.
    pub flushed: Option<BTreeMap<FileId, u64>>,
    /// Content that must be in the log before the server does the operation.
    published: Option<BTreeMap<FileId, u64>>,
    pub through: Option<u64>,
    /// The number of bytes written in write-through mode.
    pub written: Option<u32>,
}

impl Waiting {
    pub fn new(now: Now, cred: Cred, call: Call) -> Waiting {
        Waiting {
            cred,
            call,
            since: now.time,
            reopens: None,
            is_own: false,
            on: WaitingFor::Answered,
            lost_races: 0,
            hurries: false,
            told: Vec::new(),
            shipped: None,
            asked_allowance: None,
            flushed: None,
            published: None,
            through: None,
            written: None,
        }
    }

    /// Whether the call's grants were recalled too often before it could use them.
    pub fn keeps_losing(&self) -> bool {
        self.lost_races >= LOST_RACES_MAX
    }
}

impl Waiting {
    /// Whether the server may do the operation instead of granting leases.
    ///
    /// That is so once for each call, and only if the operation is the call's own update. Content,
    /// handles and locks go by their leases only, since a lock may have to wait. Questions also go
    /// by leases only: front doors cache the answers, and nothing would be recalled for that.
    fn may_ship(&self, operation: &Operation) -> bool {
        let is_it = operation.is_update()
            && !matches!(
                operation,
                Operation::Publish { .. }
                    | Operation::Dispose { .. }
                    | Operation::Lock { .. }
                    | Operation::Accessed { .. }
            );
        is_it && self.shipped.is_none()
    }
}

impl Client {
    /// Adds a call to the waiting ones, and requests what it needs.
    pub(crate) fn wait(
        &mut self,
        now: Now,
        ticket: Ticket,
        mut waiting: Waiting,
        need: Need,
        out: &mut Vec<Output>,
    ) {
        waiting.on = match need {
            Need::Session => WaitingFor::Session,
            Need::Heard(sequence) => WaitingFor::Heard(sequence),
            Need::Leases { wants, .. } if let Some(sequence) = self.unheard_of(&wants) => {
                WaitingFor::Heard(sequence)
            }
            Need::Leases { operation, wants } => {
                let only_server = wants.iter().any(|want| want.field == lease::Field::Path);
                let mode = if only_server || (waiting.keeps_losing() && waiting.may_ship(&operation)) {
                    AskMode::Ship
                } else if std::mem::take(&mut waiting.hurries) {
                    AskMode::Report
                } else if waiting.keeps_losing() && waiting.call.is_question() {
                    AskMode::Values
                } else if waiting.call.takes_report() {
                    AskMode::LeaseOrReport
                } else {
                    AskMode::Lease
                };
                waiting.lost_races = waiting.lost_races.saturating_add(1);
                // An operation that needs the server's view of paths moves a directory, which has
                // no content.
                let by_name = mode == AskMode::Ship && !only_server;
                match self.publishes_first(now, &mut waiting, operation.as_ref(), by_name, out) {
                    Some(barriers) => WaitingFor::Published(barriers),
                    None => self.ask(*operation, wants, mode, out),
                }
            }
            Need::Page { dir, after } => {
                let wants = vec![Lease::new(dir.clone(), lease::Field::Children, lease::Kind::Read)];
                self.ask(Operation::List { dir }, wants, AskMode::Page { after }, out)
            }
            Need::Ship { operation } => self.ask(*operation, Vec::new(), AskMode::Ship, out),
            Need::Quiet => WaitingFor::Quiet,
            Need::Integers(dir) => {
                self.reserve(&dir, out);
                WaitingFor::Integers(dir)
            }
            Need::Inodes => {
                self.reserve_inodes(out);
                WaitingFor::Inodes
            }
            Need::Allowance { bytes, files, replaces } => {
                // A call that joins a request under way makes its own request after it.
                let has = (self.allowance.bytes, self.allowance.files);
                waiting.asked_allowance = self.allowance.asking.is_none().then_some(has);
                let lacks = if replaces { bytes.saturating_sub(self.allowance.bytes) } else { 0 };
                self.ask_allowance(bytes, files, lacks, out);
                WaitingFor::Allowance
            }
            Need::Space => {
                waiting.asked_allowance = Some((self.allowance.bytes, self.allowance.files));
                self.ask_allowance(0, 0, 0, out);
                WaitingFor::Space
            }
            Need::Freed => {
                // The replaced content is free only once its successor is published.
                self.publish_all(now, out);
                waiting.asked_allowance = None;
                WaitingFor::Freed { until: now.time.after_ms(FREED_MS) }
            }
            Need::Extents { file, from } => {
                let number = self.number();
                self.request(number, ToServer::Extents { number, file, from }, out);
                WaitingFor::Number(number)
            }
            Need::Applied(through) => {
                self.flush_log(out);
                WaitingFor::Applied(through)
            }
            Need::Published(barriers) => WaitingFor::Published(barriers),
            Need::Room => WaitingFor::Room,
            Need::Yielded(file) => WaitingFor::Yielded(file),
            Need::Unlocked { file, change } => WaitingFor::Unlocked { file, change },
        };
        self.waiting.insert(ticket, waiting);
    }

    /// Makes a waiting call give way. It holds a lock in the kernel that keeps an invalidation
    /// there from going on.
    ///
    /// A lookup asks again for current values, for which no client has to release anything. A
    /// change of which nothing is done ends with [`Error::Interrupted`]: it is to be tried again
    /// from its beginning.
    pub fn give_way(&mut self, now: Now, ticket: Ticket, out: &mut Vec<Output>) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        match (&waiting.call, &waiting.on) {
            (Call::Lookup { .. }, WaitingFor::Number(_)) if waiting.lost_races > 0 => {
                (waiting.hurries, waiting.on) = (true, WaitingFor::Answered);
                self.settle(now, out);
            }
            (Call::Lookup { .. }, _) => {}
            (_, WaitingFor::Number(number)) if waiting.shipped.is_none() => {
                let number = *number;
                if self.abandon(number) {
                    self.cancel(ticket, out);
                    self.settle(now, out);
                }
            }
            _ if waiting.shipped.is_none() => _ = self.cancel(ticket, out),
            _ => {}
        }
    }

    /// Publishes content that must be in the log before the server does `operation`: the content of
    /// a file that replaces another. The client does not know which file has the name. So it
    /// publishes all dirty content, once.
    fn publishes_first(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        operation: &Operation,
        by_name: bool,
        out: &mut Vec<Output>,
    ) -> Option<BTreeMap<FileId, u64>> {
        if !by_name || !matches!(operation, Operation::Rename { .. }) {
            return None;
        }
        let barriers = match &waiting.published {
            Some(barriers) => barriers.clone(),
            None => waiting.published.insert(self.publish_all(now, out)).clone(),
        };
        let is_out = |(file, barrier): (&FileId, &u64)| self.has_published(file, *barrier);
        (!barriers.iter().all(is_out)).then_some(barriers)
    }

    fn ask(
        &mut self,
        operation: Operation,
        wants: Vec<Lease>,
        mode: AskMode,
        out: &mut Vec<Output>,
    ) -> WaitingFor {
        if mode == AskMode::Ship {
            return self.ship(operation, out);
        }
        let number = self.number();
        // The server looks for missing leases in its own state, which must have everything that was
        // decided here.
        self.send_log_first(out);
        self.request(number, ToServer::Ask { number, operation, wants, mode }, out);
        WaitingFor::Number(number)
    }

    /// Marks the request `number` as answered.
    pub(crate) fn granted(&mut self, number: u64) {
        self.requests.answered(number);
        for waiting in self.waiting.values_mut() {
            if matches!(waiting.on, WaitingFor::Number(n) if n == number) {
                waiting.on = WaitingFor::Answered;
            }
        }
    }

    /// Tries the calls again whose event has happened, oldest first. Repeats that if a call has
    /// released a lock.
    pub(crate) fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        self.unlocked = true;
        while std::mem::take(&mut self.unlocked) {
            self.settle_once(now, out);
        }
    }

    fn settle_once(&mut self, now: Now, out: &mut Vec<Output>) {
        let this = &*self;
        let ready: Vec<Ticket> = this
            .waiting
            .iter()
            .filter(|(_, w)| this.has_happened(now, &w.on))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in ready {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                self.go_on(now, ticket, waiting, out);
            }
        }
    }

    /// Tries a call again, and answers it or lets it wait.
    pub(crate) fn go_on(&mut self, now: Now, ticket: Ticket, mut waiting: Waiting, out: &mut Vec<Output>) {
        let result = match waiting.shipped.clone() {
            Some(Err(error)) => Err(Stop::Error(error)),
            // The operation itself is done, but the rest of the reply may have to come first.
            Some(Ok(shipped)) => self.reply_to_shipped(now, &mut waiting, shipped, out),
            None => self.attempt_told(now, &mut waiting, out),
        };
        let result = match result {
            Ok(reply) => Ok(reply),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Need(need)) => return self.wait(now, ticket, waiting, need, out),
        };
        match waiting.reopens {
            Some(file) => self.reopened(now, &file, &result, out),
            None if waiting.is_own => {
                if let Call::Accessed { file } = &waiting.call {
                    self.access_told(file);
                }
            }
            None => {
                let bound = self.bound_without_lease(&waiting);
                out.push(Output::Answer { ticket, result });
                out.extend(bound.map(Output::Invalidate));
            }
        }
    }

    /// The calls that have waited for at least `at_least_ms`, oldest first. Calls that were made to
    /// wait for a lock are left out.
    pub fn waits(&self, now: Time, at_least_ms: u64) -> Vec<WaitReport> {
        let report = |(ticket, waiting): (&Ticket, &Waiting)| {
            let for_ms = now.ms_since(waiting.since);
            let what = match &waiting.on {
                WaitingFor::Unlocked { .. } => return None,
                WaitingFor::Session => "the connection to the server",
                _ if !self.session.is_connected() => "the connection to the server",
                WaitingFor::Yielded(_) => "content to be let go, which another machine waits for",
                WaitingFor::Applied(_)
                | WaitingFor::Published(_)
                | WaitingFor::Room
                | WaitingFor::Heard(_) => "what was done here to be stored",
                WaitingFor::Freed { .. } => "space, on a full disk",
                _ => "the server, or another machine that has to let go first",
            };
            let call = waiting.call.name();
            (for_ms >= at_least_ms).then_some(WaitReport { ticket: *ticket, call, for_ms, what })
        };
        self.waiting.iter().filter_map(report).collect()
    }

    /// When the first call that waits for free space asks again.
    pub(crate) fn freed_deadline(&self) -> Option<Time> {
        let until = |waiting: &Waiting| match waiting.on {
            WaitingFor::Freed { until } => Some(until),
            _ => None,
        };
        self.waiting.values().filter_map(until).min()
    }

    /// The lock changes that calls wait for.
    pub(crate) fn lock_waits(&self) -> impl Iterator<Item = (&FileId, &LockChange)> {
        self.waiting.values().filter_map(|waiting| match &waiting.on {
            WaitingFor::Unlocked { file, change } => Some((file, change)),
            _ => None,
        })
    }

    fn has_happened(&self, now: Now, on: &WaitingFor) -> bool {
        match on {
            WaitingFor::Session => self.require_session(now).is_ok(),
            WaitingFor::Number(_) => false,
            WaitingFor::Answered => true,
            WaitingFor::Quiet => !self.requests.any_shipped(),
            WaitingFor::Integers(dir) => self
                .files
                .get(dir)
                .and_then(|known| known.children.as_ref())
                .is_none_or(|children| children.next_integer().is_some()),
            WaitingFor::Inodes => self.inodes.0 < self.inodes.1,
            WaitingFor::Allowance => self.allowance.asking.is_none(),
            // The server's last report is better than an answer that may never come.
            WaitingFor::Space => self.allowance.asking.is_none() || !self.session.is_connected(),
            WaitingFor::Freed { until } => now.time >= *until,
            WaitingFor::Applied(through) => self.log.applied() >= *through,
            WaitingFor::Published(barriers) => {
                barriers.iter().all(|(file, barrier)| self.has_published(file, *barrier))
            }
            WaitingFor::Room => self.has_room(),
            WaitingFor::Heard(sequence) => self.is_heard(*sequence),
            WaitingFor::Yielded(file) => !self.yields.holds_up_writes(file),
            WaitingFor::Unlocked { file, change } => self.is_unlocked(file, change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, opened};
    use crate::{Outcome, Settings};
    use namespace::{LockKind, LockRange, LockSpace};

    /// For a report without a lease no client has to release anything.
    #[test]
    fn a_lookup_that_is_in_the_way_asks_for_no_lease() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), crate::Input::Greeting, &mut out);
        client.handle(at(0), crate::Input::Message(opened()), &mut out);
        let label = lease::Label::new(b"README").unwrap();
        let call = Call::Lookup { dir: FileId::root(), label };
        let Outcome::Waiting(ticket) = client.call(at(1), &Cred::default(), call, &mut out) else { panic!() };
        let asked = |out: &[Output]| {
            let modes = out.iter().filter_map(|output| match output {
                Output::Send(ToServer::Ask { mode, .. }) => Some(*mode),
                _ => None,
            });
            modes.collect::<Vec<_>>()
        };
        assert_eq!(asked(&out), [AskMode::LeaseOrReport]);
        out.clear();
        client.give_way(at(2), ticket, &mut out);
        assert_eq!(asked(&out), [AskMode::Report]);
        assert!(!out.iter().any(|output| matches!(output, Output::Answer { .. })), "{out:?}");
    }

    #[test]
    fn a_call_that_waits_says_for_what() {
        let mut client = Client::new(Settings::new([0; 32]));
        let (mut out, file) = (Vec::new(), FileId::root());
        let called = client.call(at(0), &Cred::default(), Call::Stat { file: file.clone() }, &mut out);
        let Outcome::Waiting(ticket) = called else { panic!("{called:?}") };
        let report = |for_ms, what| WaitReport { ticket, call: "stat", for_ms, what };
        assert_eq!(client.waits(Time(4_999), 5_000), []);
        assert_eq!(client.waits(Time(5_000), 5_000), [report(5_000, "the connection to the server")]);
        client.handle(at(5_000), crate::Input::Greeting, &mut out);
        client.handle(at(5_001), crate::Input::Message(opened()), &mut out);
        let what = "the server, or another machine that has to let go first";
        assert_eq!(client.waits(Time(6_000), 5_000), [report(6_000, what)]);
        // A program that waits for a lock asked for the wait.
        let range = LockRange::WHOLE;
        let change =
            LockChange { owner: 1, pid: 1, space: LockSpace::Flock, range, kind: Some(LockKind::Write) };
        if let Some(waiting) = client.waiting.get_mut(&ticket) {
            waiting.on = WaitingFor::Unlocked { file, change };
        }
        assert_eq!(client.waits(Time(6_000), 5_000), []);
    }
}
