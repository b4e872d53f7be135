//! Everything that is read after a logon, by a store above a real machine. Each request is answered
//! as its command is, by no more than it has paid for, or its connection ends; and the server goes
//! on.

use super::answers::read_answers;
use super::early::compound;
use super::samples::{Files, create, sample, tree_connect};
use super::{block_on, header};
use crate::auth::tests::Client;
use crate::chance::{Chance, rounds};
use crate::connection::binding::tests::{Bed, Peer};
use crate::keeping::give_up;
use crate::keys::ChannelKey;
use crate::wire::bodies::{CreateResponse, FileId};
use crate::wire::{Command, HEADER_BYTES, Header, NtStatus, Writer};
use node::{Machine, MachineSettings};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes beyond the payload: the header, the fixed part, and the padding of a compound.
const BESIDE: usize = 1 << 10;
const CREDIT_BYTES: usize = 64 << 10;
/// Requests of one connection.
const REQUESTS: usize = 40;

/// A session, with its opens.
pub(super) struct Session {
    pub(super) peer: Peer,
    pub(super) id: u64,
    pub(super) key: ChannelKey,
    pub(super) tree: u32,
    pipes: u32,
}

impl Session {
    fn message(&mut self, command: Command, tree: u32, body: &[u8]) -> Vec<u8> {
        let mut message = header(command, self.peer.next);
        self.peer.next += 1;
        message[36..40].copy_from_slice(&tree.to_le_bytes());
        message[40..48].copy_from_slice(&self.id.to_le_bytes());
        message.put(body);
        message
    }

    /// Sends a frame, and waits until each of the requests is answered, if only by the word that it
    /// waits. Returns the answers, unless the connection ends. A server that has panicked answers
    /// nothing.
    async fn ask(&mut self, frame: Vec<u8>, requests: &BTreeSet<u64>) -> Option<Vec<(Header, Vec<u8>)>> {
        let (mut answers, mut left) = (Vec::new(), requests.clone());
        self.peer.connection.receive(frame.clone()).ok()?;
        while !left.is_empty() {
            let (queue, connection) = (&mut self.peer.queue, &self.peer.connection);
            let answer = async {
                tokio::select! {
                    biased;
                    answer = queue.recv() => answer,
                    () = connection.ended() => None,
                }
            };
            let answer = timeout(Duration::from_secs(60), answer).await;
            let answer = answer.unwrap_or_else(|_| panic!("nothing answers {left:?} of {frame:02x?}"))?;
            for (header, mut message) in read_answers(&answer) {
                assert!(message.len() <= CREDIT_BYTES + BESIDE, "{header:?}: {} bytes", message.len());
                let is_break = header.message_id == u64::MAX;
                let is_signed = header.flags.has(crate::wire::Flags::SIGNED);
                let is_true = !is_signed || self.key.is_signed(&header, &mut message);
                let is_lost = header.status == NtStatus::USER_SESSION_DELETED;
                assert!(is_break || is_lost || is_true, "{header:?} has another's signature");
                left.remove(&header.message_id);
                answers.push((header, message));
            }
        }
        Some(answers)
    }

    /// Sends a request that must be done.
    pub(super) async fn does(&mut self, command: Command, tree: u32, body: &[u8]) -> (Header, Vec<u8>) {
        let (header, answer) = self.asks(command, tree, body).await;
        assert!(!header.status.is_error(), "{command:?}: {header:?}");
        (header, answer)
    }

    /// Sends a request that may be refused.
    pub(super) async fn asks(&mut self, command: Command, tree: u32, body: &[u8]) -> (Header, Vec<u8>) {
        let mut message = self.message(command, tree, body);
        self.key.sign(&mut message);
        let requests = BTreeSet::from([self.peer.next - 1]);
        let answers = self.ask(message, &requests).await.expect("the connection goes on");
        let (header, answer) = answers.into_iter().next_back().unwrap();
        if header.status != NtStatus::PENDING {
            return (header, answer);
        }
        let answer = timeout(Duration::from_secs(60), self.peer.queue.recv()).await.unwrap().unwrap();
        read_answers(&answer).pop().unwrap()
    }

    /// Sends a request, and waits for nothing.
    pub(super) fn sends(&mut self, command: Command, tree: u32, body: &[u8]) {
        let mut message = self.message(command, tree, body);
        self.key.sign(&mut message);
        self.peer.connection.receive(message).unwrap();
    }

    pub(super) async fn opens(&mut self, tree: u32, name: &str, disposition: u32, options: u32) -> FileId {
        let (_, answer) = self.does(Command::Create, tree, &create(name, disposition, options, &[])).await;
        CreateResponse::parse(&answer).unwrap().file
    }

    pub(super) async fn begin(bed: &Bed, name: &str) -> (Session, Files) {
        let mut peer = bed.connect(&[0x311], |_| {}).await;
        let (header, key) = peer.log_on((0, 0), &Client::of("root", "secret"), None).await;
        assert_eq!(header.status, NtStatus::SUCCESS);
        let mut session = Session { peer, id: header.session_id, key, tree: 0, pipes: 0 };
        session.tree = session.does(Command::TreeConnect, 0, &tree_connect("share")).await.0.tree_id();
        session.pipes = session.does(Command::TreeConnect, 0, &tree_connect("IPC$")).await.0.tree_id();
        let (tree, pipes) = (session.tree, session.pipes);
        let files = Files {
            file: session.opens(tree, name, 3, 0x40).await,
            dir: session.opens(tree, "", 1, 1).await,
            pipe: session.opens(pipes, "srvsvc", 1, 0).await,
        };
        (session, files)
    }
}

#[test]
fn every_request_of_a_session_is_answered_or_ends_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    let mut chance = Chance::new(3);
    let (mut ended, mut done, mut refused) = (0, BTreeSet::new(), 0);
    block_on(async {
        let bed = Bed::sharing(machine.store().clone(), false);
        let (server, unheard_of) = (bed.server.clone(), bed.server.unheard_of.lock().take());
        let gives_up = tokio::spawn(async move {
            let mut unheard_of = unheard_of.unwrap();
            while let Some(holder) = unheard_of.recv().await {
                give_up(&server, holder).await;
            }
        });
        for round in 0..rounds(800) / REQUESTS {
            // Opens that wait for a client that does not come back may have the last one.
            let (mut session, files) = Session::begin(&bed, &format!("own {round}")).await;
            for _ in 0..REQUESTS {
                let (mut messages, mut requests) = (Vec::new(), BTreeSet::new());
                let from = if chance.one_in(20) { 0 } else { HEADER_BYTES };
                for _ in 0..if chance.one_in(5) { 1 + chance.below(3) } else { 1 } {
                    let (command, body) = sample(&mut chance, &files);
                    let is_pipe = body.windows(16).any(|at| at[..8] == files.pipe.persistent.to_le_bytes());
                    let tree = if is_pipe { session.pipes } else { session.tree };
                    let mut message = session.message(command, tree, &body);
                    if chance.one_in(3) || from == 0 {
                        chance.damage(&mut message, from);
                    }
                    if command != Command::Cancel {
                        requests.insert(session.peer.next - 1);
                    }
                    messages.push(message);
                }
                let mut frame = match &mut messages[..] {
                    [_, _, ..] if from > 0 => compound(std::mem::take(&mut messages), chance.one_in(2)),
                    _ => messages.swap_remove(0),
                };
                if from == 0 {
                    requests = BTreeSet::new();
                }
                sign_all(&session.key, &mut frame);
                let Some(answers) = session.ask(frame, &requests).await else {
                    ended += 1;
                    break;
                };
                for (header, _) in &answers {
                    if header.status.is_error() {
                        refused += 1;
                    } else {
                        done.insert(header.command);
                    }
                }
                if from == 0 {
                    // Its numbers are not known any more.
                    break;
                }
            }
            session.peer.connection.close().await;
        }
        gives_up.abort();
    });
    machine.stop().unwrap();
    assert!(done.len() >= 12 && refused > 80, "{done:?} were done, {refused} refused, {ended} ended");
}

/// Signs each message of a compound.
fn sign_all(key: &ChannelKey, frame: &mut [u8]) {
    let mut at = 0;
    while let Ok(header) = Header::parse(&frame[at..]) {
        let next = header.next as usize;
        let end = if next < HEADER_BYTES || at + next > frame.len() { frame.len() } else { at + next };
        key.sign(&mut frame[at..end]);
        if end == frame.len() {
            return;
        }
        at = end;
    }
}
