//! Calls that could not be answered at once: what each waits for, and trying again.
//!
//! A call is tried from its beginning each time: nothing of it is done before all of it can be, in
//! one logical step. So leases may be recalled while it waits, and no call ever holds one back.

use crate::client::Client;
use crate::shipped::Shipped;
use crate::{Call, Now, Output, Ticket};
use ident::FileId;
use lease::{Lease, Time};
use namespace::{Cred, Error, LockChange, Operation};
use std::collections::BTreeMap;
use wire::{AskMode, FileGrant, ToServer};

/// Grants that came and were gone again before the call could use them, until the server is asked
/// to do the operation itself.
const LOST_RACES_MAX: u8 = 2;
/// How soon those ask again for space that wait until some is free, ms.
const FREED_MS: u64 = 250;

/// Why a call does not return yet, or what it returns instead.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Answered, with a refusal.
    Error(Error),
    /// To be tried again after something has happened.
    Need(Need),
}

/// What has to happen first.
#[derive(Debug)]
pub(crate) enum Need {
    /// The session to be open (again).
    Session,
    /// Leases, for the operation as a whole.
    Leases { operation: Box<Operation>, wants: Vec<Lease> },
    /// The page of a directory that follows position `after`.
    Page { dir: FileId, after: u64 },
    /// The server to do it.
    Ship { operation: Box<Operation> },
    /// The updates that the server is doing for this client to be known.
    Quiet,
    /// Integers of a directory.
    Integers(FileId),
    /// Inode numbers.
    Inodes,
    /// So many bytes and files more to be set aside; `replaces` if for content that replaces other.
    Allowance { bytes: u64, files: u64, replaces: bool },
    /// The server to say how much room there is.
    Space,
    /// The room of replaced content to be free: then more can be set aside.
    Freed,
    /// Extents or inline content from an offset on.
    Extents { file: FileId, from: u64 },
    /// Log entries up to this one to be durable.
    Applied(u64),
    /// Content to be published, as far as it was flushed.
    Published(BTreeMap<FileId, u64>),
    /// Dirty content to become less.
    Room,
    /// What is in the way of this change to be unlocked, or what is known of that to be recalled.
    Unlocked { file: FileId, change: LockChange },
    /// The content of a file to be let go, which somebody else waits for.
    Yielded(FileId),
    /// The server to have heard of this log entry, of what was written through.
    Heard(u64),
}

/// What a waiting call waits for: a [`Need`] that has been asked for.
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

/// A call that waits, as the machine's log tells of it. Which machine keeps it waiting is not known
/// here: who holds what is nobody's business (BlackBox §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// Which.
    pub ticket: Ticket,
    /// What was called.
    pub call: &'static str,
    /// For how long it has waited, ms.
    pub for_ms: u64,
    /// What it waits for.
    pub what: &'static str,
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub cred: Cred,
    pub call: Call,
    /// When it was called.
    pub since: Time,
    /// It is no call at all, but this client opening the file anew.
    pub reopens: Option<FileId>,
    /// Nobody called: this client closes what lingers no more.
    pub is_own: bool,
    pub on: WaitingFor,
    lost_races: u8,
    /// The next question is for what is so now, and for no lease.
    hurries: bool,
    /// What the server told without a lease, for the next try.
    pub told: Vec<FileGrant>,
    /// What the server said of the operation that was shipped.
    pub shipped: Option<Result<Shipped, Error>>,
    /// More space was asked for, and so much there was: bytes and files.
    pub asked_allowance: Option<(u64, u64)>,
    /// How far a sync has got: content flushed up to these barriers, the log up to this entry.
    pub flushed: Option<BTreeMap<FileId, u64>>,
    /// Content that is to be in the log before the server does the operation.
    published: Option<BTreeMap<FileId, u64>>,
    pub through: Option<u64>,
    /// So many bytes it has written through.
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

    /// Whether what it asked for came and was gone again too often.
    pub fn keeps_losing(&self) -> bool {
        self.lost_races >= LOST_RACES_MAX
    }
}

impl Waiting {
    /// Whether the server may do the operation instead of giving this client anything to hold:
    /// once, and only if the operation is the call itself and not a question on its way. Content,
    /// handles and locks (who may have to wait) go by their leases only, and so does every
    /// question: front doors keep what they are told, and nothing would be recalled for that.
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
    /// Puts a call among the waiting and asks for what it needs.
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
                // What only the server can move is a directory, and has no content.
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
                // Whoever joins a request under way asks again in its own right after it.
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

    /// A call keeps something locked below while it waits, and that is in the way of what is to be
    /// taken back there. A lookup is asked again for what is so now, for which nobody has to let go
    /// of anything. A change of which nothing is done ends with [`Error::Interrupted`]: it is to be
    /// tried again from its beginning.
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

    /// What has to be in the log before the server does `operation`, as before one that is done
    /// here: content of what replaces a file. Which file has the name is not known here, so all
    /// that is dirty, once.
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
        // The server finds what is needed on its state, so that must have everything that was
        // decided here.
        self.send_log_first(out);
        self.request(number, ToServer::Ask { number, operation, wants, mode }, out);
        WaitingFor::Number(number)
    }

    /// The request `number` was answered.
    pub(crate) fn granted(&mut self, number: u64) {
        self.requests.answered(number);
        for waiting in self.waiting.values_mut() {
            if matches!(waiting.on, WaitingFor::Number(n) if n == number) {
                waiting.on = WaitingFor::Answered;
            }
        }
    }

    /// Tries the calls again that have what they waited for, the oldest first; and once more if
    /// that unlocked something.
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
            // What the reply takes beyond the answer may have to come first; the operation itself
            // is done.
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

    /// The calls that have waited for so long, oldest first; but not those that were called to
    /// wait, for a lock.
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

    /// When the first of those asks again that wait until space is free.
    pub(crate) fn freed_deadline(&self) -> Option<Time> {
        let until = |waiting: &Waiting| match waiting.on {
            WaitingFor::Freed { until } => Some(until),
            _ => None,
        };
        self.waiting.values().filter_map(until).min()
    }

    /// Changes of locks that calls wait to be able to make.
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
            // The last word is better than an answer that may not come.
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

    /// Whoever may be told without a lease has nobody let go of anything.
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
        // Who waits for a lock has called to wait.
        let range = LockRange::WHOLE;
        let change =
            LockChange { owner: 1, pid: 1, space: LockSpace::Flock, range, kind: Some(LockKind::Write) };
        if let Some(waiting) = client.waiting.get_mut(&ticket) {
            waiting.on = WaitingFor::Unlocked { file, change };
        }
        assert_eq!(client.waits(Time(6_000), 5_000), []);
    }
}
