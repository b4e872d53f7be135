//! The next try of calls whose event has happened.

use super::{Caller, Progress, Stop, WaitReason, WaitReport, Waiting, WaitingFor};
use crate::client::Client;
use crate::server::ServerId;
use crate::{Call, Now, Output, Ticket, call};
use lease::Time;

impl Client {
    /// Marks the request `number` as answered.
    pub(crate) fn granted(&mut self, server: ServerId, number: u64) {
        self.servers.get_mut(server).requests.answered(number);
        self.calls.answered(number, |_| {});
    }

    /// Tries the calls again whose event has happened, oldest first. Repeats that if a call has
    /// released a lock.
    pub(crate) fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        self.calls.unlocked = true;
        while std::mem::take(&mut self.calls.unlocked) {
            self.settle_once(now, out);
        }
    }

    fn settle_once(&mut self, now: Now, out: &mut Vec<Output>) {
        let ready = self.calls.iter().filter(|(_, waiting)| self.has_happened(now, &waiting.on));
        let ready: Vec<Ticket> = ready.map(|(ticket, _)| ticket).collect();
        for ticket in ready {
            if let Some(waiting) = self.calls.remove(ticket) {
                self.go_on(now, ticket, waiting, out);
            }
        }
    }

    /// Tries a call again, and answers it or lets it wait.
    pub(crate) fn go_on(&mut self, now: Now, ticket: Ticket, mut waiting: Waiting, out: &mut Vec<Output>) {
        let result = match &waiting.progress {
            Progress::Shipped(Err(error)) => Err(Stop::Error(*error)),
            // The operation itself is done, but the rest of the reply may have to come first.
            Progress::Shipped(Ok(shipped)) => {
                let shipped = shipped.clone();
                self.reply_to_shipped(now, &mut waiting, shipped, out)
            }
            _ => self.attempt_told(now, &mut waiting, out),
        };
        let result = match result {
            Ok(reply) => Ok(reply),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Need(need)) => return self.wait(now, ticket, waiting, need, out),
        };
        match &waiting.caller {
            Caller::Reopening(file) => self.reopened(now, file, &result, out),
            Caller::Client => {
                if let Call::Accessed(call::Accessed { file }) = &waiting.call {
                    self.access_told(file);
                }
            }
            Caller::FrontDoor => {
                let bound = self.bound_without_lease(&waiting);
                out.push(Output::Answer { ticket, result });
                out.extend(bound.map(Output::RevokeUncovered));
            }
        }
    }

    /// Makes a waiting call give way. It holds a lock in the kernel that keeps an invalidation
    /// there from going on.
    ///
    /// A lookup asks again for current values, for which no client has to release anything. A
    /// change of which nothing is done ends with [`namespace::Error::Interrupted`]: it is to be
    /// tried again from its beginning.
    pub fn give_way(&mut self, now: Now, ticket: Ticket, out: &mut Vec<Output>) {
        let Some(waiting) = self.calls.get_mut(ticket) else { return };
        match (&waiting.call, &waiting.on) {
            (Call::Lookup { .. }, WaitingFor::Number(_)) if waiting.lost_races > 0 => {
                (waiting.hurries, waiting.on) = (true, WaitingFor::Answered);
                self.settle(now, out);
            }
            (Call::Lookup { .. }, _) => {}
            (_, WaitingFor::Number(number)) if !waiting.is_shipped() => {
                let number = *number;
                if self.abandon(number) {
                    self.cancel(ticket, out);
                    self.settle(now, out);
                }
            }
            _ if !waiting.is_shipped() => _ = self.cancel(ticket, out),
            _ => {}
        }
    }

    /// The calls that have waited for at least `at_least_ms`, oldest first. Calls that were made to
    /// wait for a lock are left out.
    pub fn waits(&self, now: Time, at_least_ms: u64) -> Vec<WaitReport> {
        let report = |(ticket, waiting): (Ticket, &Waiting)| {
            let for_ms = now.ms_since(waiting.since);
            let reason = match &waiting.on {
                WaitingFor::Unlocked { .. } => return None,
                WaitingFor::Session(_) => WaitReason::Connection,
                _ if !self.is_connected(ServerId::ROOT) => WaitReason::Connection,
                WaitingFor::Revocation(_) => WaitReason::ContentRelease,
                WaitingFor::Applied(..)
                | WaitingFor::Published(_)
                | WaitingFor::Room
                | WaitingFor::Heard(..) => WaitReason::Storing,
                WaitingFor::Freed { .. } => WaitReason::Space,
                _ => WaitReason::Server,
            };
            let call = waiting.call.name();
            (for_ms >= at_least_ms).then_some(WaitReport { ticket, call, for_ms, reason })
        };
        self.calls.iter().filter_map(report).collect()
    }

    fn has_happened(&self, now: Now, on: &WaitingFor) -> bool {
        match on {
            WaitingFor::Session(server) => self.servers.get(*server).term.is_valid(now.time),
            WaitingFor::Number(_) => false,
            WaitingFor::Answered => true,
            WaitingFor::Quiet => !self.servers.any_shipped(),
            WaitingFor::Integers(dir) => self
                .files
                .get(dir)
                .and_then(|known| known.children.as_ref())
                .is_none_or(|children| children.integers.first().is_some()),
            WaitingFor::Inodes(server) => self.servers.get(*server).inodes.first().is_some(),
            WaitingFor::Allowance(server) => self.servers.get(*server).allowance.asking.is_none(),
            // The server's last report is better than an answer that may never come.
            WaitingFor::Space => {
                let server = self.servers.get(ServerId::ROOT);
                server.allowance.asking.is_none() || !server.is_connected()
            }
            WaitingFor::Freed { until } => now.time >= *until,
            WaitingFor::Applied(server, up_to) => self.servers.get(*server).log.applied() >= *up_to,
            // Files are published more or less in their order, so the last ones tell first. From
            // the first one on, each message would look at all that are out.
            WaitingFor::Published(barriers) => {
                barriers.iter().rev().all(|(file, barrier)| self.has_published(file, *barrier))
            }
            WaitingFor::Room => self.has_room(),
            WaitingFor::Heard(server, sequence) => self.servers.get(*server).unheard.is_past(*sequence),
            WaitingFor::Revocation(file) => !self.revocations.holds_up_writes(file),
            WaitingFor::Unlocked { file, change } => self.is_unlocked(file, change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, opened};
    use crate::{Outcome, Settings};
    use ident::FileId;
    use namespace::{Cred, LockChange, LockKind, LockRange, LockSpace};
    use wire::{AskMode, ToServer};

    /// For a report without a lease no client has to release anything.
    #[test]
    fn a_lookup_that_is_in_the_way_asks_for_no_lease() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), crate::Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), crate::Input::Message(ServerId::ROOT, opened()), &mut out);
        let label = lease::Label::new(b"README").unwrap();
        let call = Call::Lookup(call::Lookup { dir: FileId::root(), label });
        let Outcome::Waiting(ticket) = client.call(at(1), &Cred::default(), call, &mut out) else { panic!() };
        let asked = |out: &[Output]| {
            let modes = out.iter().filter_map(|output| match output {
                Output::Send(_, ToServer::Ask { mode, .. }) => Some(*mode),
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
        let called =
            client.call(at(0), &Cred::default(), Call::Stat(call::Stat { file: file.clone() }), &mut out);
        let Outcome::Waiting(ticket) = called else { panic!("{called:?}") };
        let report = |for_ms, reason| WaitReport { ticket, call: "stat", for_ms, reason };
        assert_eq!(client.waits(Time(4_999), 5_000), []);
        assert_eq!(client.waits(Time(5_000), 5_000), [report(5_000, WaitReason::Connection)]);
        client.handle(at(5_000), crate::Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(5_001), crate::Input::Message(ServerId::ROOT, opened()), &mut out);
        assert_eq!(client.waits(Time(6_000), 5_000), [report(6_000, WaitReason::Server)]);
        // A program that waits for a lock asked for the wait.
        let range = LockRange::WHOLE;
        let change =
            LockChange { owner: 1, pid: 1, space: LockSpace::Flock, range, kind: Some(LockKind::Write) };
        if let Some(waiting) = client.calls.get_mut(ticket) {
            waiting.on = WaitingFor::Unlocked { file, change };
        }
        assert_eq!(client.waits(Time(6_000), 5_000), []);
    }
}
