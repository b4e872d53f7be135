//! The orderly end of a machine whose server has not got everything (ARCHITECTURE, invariant 14).
//! The rest goes to the host's disk. When the machine starts again, it goes to the server in the
//! same session.
//!
//! Dirty content becomes publications first. The host seals the pieces that were to be uploaded,
//! keeps them, and reports them as stored. Then only a part of the log is left, and the shares that
//! it refers to.
//!
//! The next start sends both in the same session, if that still stands. The server knows the
//! entries by their numbers, so the start may be cut short and begin again.

use crate::calls::WaitingFor;
use crate::client::Client;
use crate::server::{OperationLog, Refusals, ServerId};
use crate::{Call, Lost};
use namespace::{ContentChange, Error, Operation, ShareId, operation};
use std::collections::BTreeSet;
use wire::{LogEntry, ToClient, ToServer};

impl Client {
    /// Begins the machine's end. From now on the client accepts the kernel's last writes even when
    /// the session's term has run out. They are kept in any case.
    pub fn begin_ending(&mut self) {
        self.ending = true;
        let has_session = self.has_session(ServerId::ROOT);
        for waiting in self.calls.iter_mut().filter(|waiting| has_session && is_write(&waiting.call)) {
            if let WaitingFor::Session(_) | WaitingFor::Allowance(_) | WaitingFor::Freed { .. } = waiting.on {
                waiting.on = WaitingFor::Answered;
            }
        }
    }

    /// Whether this call is one of the last writes. These are done whether leases count or not,
    /// since no other machine sees them.
    pub(crate) fn takes_last_write(&self, call: &Call) -> bool {
        self.ending && self.has_session(ServerId::ROOT) && is_write(call)
    }

    /// Whether messages reach this server, as far as the client knows.
    pub fn is_connected(&self, server: ServerId) -> bool {
        self.servers.get(server).is_connected()
    }

    /// Log entries that the server has, and bytes of uploads under way. The host watches these for
    /// progress.
    pub fn progress(&self) -> (u64, usize) {
        let entries = self.servers.iter().map(|(_, server)| server.log.applied()).sum();
        (entries, self.publishing.dirty_bytes())
    }

    /// Every change made here that the server may not have, for people to read.
    pub fn unapplied(&self) -> Vec<Lost> {
        let open = self.servers.iter().filter(|(_, server)| server.term.is_open());
        open.flat_map(|(server, _)| self.what_is_lost(server)).collect()
    }

    /// Whether the log for `server` has all of it, and no other log has a part.
    pub fn is_all_logged(&self, server: ServerId) -> bool {
        let mut others = self.servers.iter().filter(|(id, _)| *id != server);
        self.publishing.is_idle() && others.all(|(_, other)| other.log.is_all_applied())
    }

    /// The log entries that this server may not have, and the number of the first. The client must
    /// not be called after this.
    pub fn log_left(&mut self, server: ServerId) -> (u64, Vec<LogEntry>) {
        self.servers.get_mut(server).log.left()
    }
}

fn is_write(call: &Call) -> bool {
    matches!(call, Call::Write { .. })
}

/// The rest of an ended machine's session, on its way to the server in that same session. Pure, as
/// the client is.
#[derive(Debug)]
pub struct Continuation {
    log: OperationLog,
    refused: Vec<(Operation, Error)>,
}

/// The effect of a message from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The session goes on. The host stores [`Continuation::shares`], then sends
    /// [`Continuation::say`].
    GoesOn,
    /// Nothing yet.
    Nothing,
    /// The server has all of it.
    Done,
    /// The session is over, and the server will apply nothing more.
    Over,
}

impl Continuation {
    /// A continuation of a log that begins with this number.
    pub fn new(first: u64, entries: Vec<LogEntry>) -> Continuation {
        Continuation { log: OperationLog::of(first, entries), refused: Vec::new() }
    }

    /// Takes a message from the server, in answer to a greeting that named the session, or later.
    pub fn hear(&mut self, message: &ToClient) -> Heard {
        match message {
            // The server has forgotten entries that it had acknowledged. The rest of the log
            // depends on them.
            ToClient::Resumed { up_to, .. } if *up_to < self.log.applied() => Heard::Over,
            ToClient::Resumed { up_to, rejected, forgotten, .. } => {
                self.log.skip_sending();
                self.acknowledge(*up_to, Refusals { of: rejected, forgotten: *forgotten });
                self.log.rewind();
                if self.is_done() { Heard::Done } else { Heard::GoesOn }
            }
            ToClient::Applied { up_to, rejected, forgotten } => {
                self.acknowledge(*up_to, Refusals { of: rejected, forgotten: *forgotten });
                if self.is_done() { Heard::Done } else { Heard::Nothing }
            }
            ToClient::Opened { .. } | ToClient::Fenced => Heard::Over,
            _ => Heard::Nothing,
        }
    }

    fn acknowledge(&mut self, up_to: u64, refusals: Refusals<'_>) {
        let refused = self.log.acknowledge(up_to, refusals);
        self.refused.extend(refused.into_iter().filter(|refused| crate::salvage::is_loss(&refused)));
    }

    fn is_done(&self) -> bool {
        self.log.is_all_applied()
    }

    /// The shares that the rest of the log refers to. Other shares that the machine kept are at the
    /// servers, and perhaps not needed any more.
    pub fn shares(&self) -> BTreeSet<ShareId> {
        let put = self.log.updates().filter_map(|operation| match operation {
            Operation::Publish(operation::Publish { change: ContentChange::Extents { put, .. }, .. }) => {
                Some(put)
            }
            _ => None,
        });
        put.flatten().filter_map(|extent| extent.piece.place.share()).collect()
    }

    /// The messages to send.
    pub fn say(&mut self) -> Vec<ToServer> {
        std::iter::from_fn(|| self.log.next_message(true)).collect()
    }

    /// Updates that the server has refused, and whose loss matters.
    pub fn refused(&self) -> &[(Operation, Error)] {
        &self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, opened};
    use crate::{Input, Output, call};
    use bytes::Bytes;
    use ident::FileId;
    use namespace::Cred;
    use wire::{Space, Version};

    /// A client that has written `bytes` bytes to a file and sent nothing.
    fn writer(bytes: usize) -> (Client, FileId) {
        let (mut client, file) = crate::tests::writer(1 << 30);
        let data = Bytes::from(vec![1; bytes]);
        let write = Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false });
        client.call(at(2), &Cred::default(), write, &mut Vec::new());
        (client, file)
    }

    /// Ends without a server. Returns the rest of the log, and the shares that were to be uploaded.
    fn ends(client: &mut Client) -> (u64, Vec<LogEntry>, BTreeSet<ShareId>) {
        let (mut out, mut shares) = (Vec::new(), BTreeSet::new());
        client.handle(at(3), Input::Greeting(ServerId::ROOT), &mut out);
        assert!(!client.close(at(4), &mut out), "nobody has acknowledged anything");
        while let Some(upload) = out.iter().find_map(|output| match output {
            Output::Store(upload) => Some(upload.clone()),
            _ => None,
        }) {
            out.retain(|output| !matches!(output, Output::Store(other) if other.upload == upload.upload));
            let (_, hashes) =
                content::seal_share(&upload.key, upload.pieces.iter().map(|(nonce, plain)| (*nonce, plain)));
            shares.insert(upload.share);
            client.handle(at(5), Input::Stored { upload: upload.upload, result: Ok(hashes) }, &mut out);
        }
        assert!(client.is_all_logged(ServerId::ROOT));
        let (first, entries) = client.log_left(ServerId::ROOT);
        (first, entries, shares)
    }

    fn resumed(up_to: u64) -> ToClient {
        let (rejected, space, version) = (Vec::new(), Space::default(), Version::NEWEST);
        ToClient::Resumed { up_to, rejected, forgotten: 0, space, term_ms: 30_000, version }
    }

    #[test]
    fn what_is_left_is_all_that_was_done() {
        for bytes in [10, 1 << 20] {
            let (mut client, file) = writer(bytes);
            let lost = client.unapplied();
            assert!(lost.iter().any(|lost| lost.file == file), "{lost:?}");
            let (first, entries, shares) = ends(&mut client);
            let published = entries.iter().any(|entry| match entry {
                LogEntry::Update {
                    operation: Operation::Publish(operation::Publish { file: of, size, .. }),
                    ..
                } => *of == file && *size == bytes as u64,
                _ => false,
            });
            assert!(published, "{bytes} bytes: {entries:?}");
            let mut continuation = Continuation::new(first, entries);
            assert_eq!(continuation.shares(), shares, "{bytes} bytes");
            // The start is cut short once, and begins again.
            for _ in 0..2 {
                assert_eq!(continuation.hear(&resumed(first - 1)), Heard::GoesOn);
                let [ToServer::Log { first: said, entries, .. }] = &continuation.say()[..] else {
                    panic!("one message")
                };
                assert_eq!((*said, entries.len() as u64), (first, continuation.log.last() - first + 1));
            }
            let up_to = continuation.log.last();
            let applied = ToClient::Applied { up_to, rejected: vec![(up_to, Error::Invalid)], forgotten: 0 };
            assert_eq!(continuation.hear(&applied), Heard::Done);
        }
    }

    #[test]
    fn what_the_server_has_already_is_not_said_again() {
        let (mut client, _) = writer(10);
        let (first, entries, _) = ends(&mut client);
        let last = first + entries.len() as u64 - 1;
        let mut continuation = Continuation::new(first, entries);
        assert_eq!(continuation.hear(&resumed(last)), Heard::Done);
        assert!(continuation.say().is_empty() && continuation.refused().is_empty());
    }

    #[test]
    fn another_session_applies_nothing_of_it() {
        let (mut client, _) = writer(10);
        let (first, entries, _) = ends(&mut client);
        for message in [opened(), ToClient::Fenced] {
            assert_eq!(Continuation::new(first, entries.clone()).hear(&message), Heard::Over);
        }
    }

    /// A program's last pages come when its mount ends, and the term may be over by then.
    #[test]
    fn the_last_writes_are_taken_without_a_term() {
        let (mut client, file) = writer(10);
        let mut out = Vec::new();
        let write = Call::Write(call::Write { file, offset: 10, data: "late".into(), append: false });
        let late = at(100_000);
        let called = client.call(late, &Cred::default(), write.clone(), &mut out);
        assert!(matches!(called, crate::Outcome::Waiting(_)), "{called:?}");
        client.begin_ending();
        let called = client.call(late, &Cred::default(), write, &mut out);
        assert!(matches!(called, crate::Outcome::Done(Ok(_))), "{called:?}");
    }
}
