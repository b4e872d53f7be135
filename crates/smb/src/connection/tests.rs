//! Clients that have not logged on: whatever they send, they get no session, and the server goes
//! on.

mod answers;
mod copies;
mod early;
mod expired;
mod late;
mod persistent;
mod reconnects;
mod samples;
mod strangers;
mod tampered;
mod vanished;

use super::Connection;
use crate::mechanisms::Mechanisms;
use crate::outbox::{Outbox, Outgoing};
use crate::server::Server;
use crate::wire::bodies::{NegotiateRequest, NegotiateResponse, SessionSetupRequest};
use crate::wire::negotiate::{context, emit_context, numbers_data, preauth_data};
use crate::wire::{Command, Flags, Header, NtStatus, Writer};
use client::{Call, Ticket};
use file_service::{CacheHolder, FileService, Responder};
use ident::FileId;
use namespace::{Cred, Error};
use objects::Store;
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A machine without files.
pub(super) struct Nothing;

impl FileService for Nothing {
    fn call(&self, _: &Cred, _: Call, respond: Responder) -> Option<Ticket> {
        respond(Err(Error::NotFound));
        None
    }

    fn cancel(&self, _: Ticket) {}

    fn give_way(&self, _: Ticket) {}

    fn root(&self) -> FileId {
        FileId::root()
    }

    fn valid_for(&self) -> Duration {
        Duration::ZERO
    }

    fn forgotten(&self, _: Vec<FileId>) {}

    fn register_cache(&self, _: Arc<dyn CacheHolder>) {}
}

pub(super) fn server() -> Arc<Server> {
    Server::new(Store::new(Arc::new(Nothing)), "/nowhere".into(), "box", Mechanisms::default()).unwrap()
}

pub(super) fn connection(server: &Arc<Server>) -> (Arc<Connection>, Outgoing) {
    let (outbox, queue) = Outbox::new();
    (Arc::new(Connection::new(server.clone(), "a test".to_owned(), None, outbox)), queue)
}

pub(super) fn header(command: Command, message_id: u64) -> Vec<u8> {
    let header = Header {
        charge: 1,
        status: NtStatus::SUCCESS,
        command: command as u16,
        credits: 10,
        flags: Flags(0),
        next: 0,
        message_id,
        tree_or_async: 0,
        session_id: 0,
        signature: [0; 16],
    };
    let mut message = Vec::new();
    header.emit(&mut message);
    message
}

pub(super) fn negotiate(dialects: &[u16]) -> Vec<u8> {
    let mut message = header(Command::Negotiate, 0);
    let at = (100 + 2 * dialects.len()).next_multiple_of(8);
    let count = if dialects.contains(&0x311) { 3 } else { 0 };
    let fixed = NegotiateRequest {
        dialect_count: dialects.len() as u16,
        capabilities: 0x7f,
        context_offset: at as u32,
        context_count: count,
        ..NegotiateRequest::default()
    };
    fixed.emit(&mut message);
    dialects.iter().for_each(|dialect| message.u16(*dialect));
    if count > 0 {
        for (kind, data) in [
            (context::PREAUTH, preauth_data(&[5; 32])),
            (context::ENCRYPTION, numbers_data(&[2, 1])),
            (context::SIGNING, numbers_data(&[2, 1, 0])),
        ] {
            message.pad(0, 8);
            emit_context(&mut message, kind, &data);
        }
    }
    message
}

fn setup(message_id: u64, token: &[u8]) -> Vec<u8> {
    let mut message = header(Command::SessionSetup, message_id);
    let fixed = SessionSetupRequest {
        security_offset: 88,
        security_length: token.len() as u16,
        ..SessionSetupRequest::default()
    };
    fixed.emit(&mut message);
    message.put(token);
    message
}

#[test]
fn each_session_has_a_number_of_its_own_of_32_bits() {
    let server = server();
    let numbers = (0..1000).map(|_| server.next_session()).collect::<std::collections::BTreeSet<u64>>();
    assert_eq!(numbers.len(), 1000);
    assert!(numbers.iter().all(|number| (1..1 << 32).contains(number)));
}

async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The same with time that passes by itself when nobody has anything to do.
fn block_on_paused<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(future)
}

#[test]
fn the_newest_dialect_of_both_is_taken() {
    block_on(async {
        for (offer, want) in [
            (&[0x202][..], 0x202),
            (&[0x202, 0x210], 0x210),
            (&[0x300, 0x210], 0x300),
            (&[0x202, 0x302, 0x300], 0x302),
            (&[0x202, 0x210, 0x300, 0x302, 0x311], 0x311),
        ] {
            let (connection, mut queue) = connection(&server());
            connection.receive(negotiate(offer)).unwrap();
            settle().await;
            let answer = queue.try_recv().unwrap();
            assert_eq!(Header::parse(&answer).unwrap().status, NtStatus::SUCCESS);
            let body = NegotiateResponse::parse(&answer).unwrap();
            assert_eq!((body.dialect, body.security_mode), (want, 3));
        }
    });
}

#[test]
fn a_request_before_the_negotiation_or_without_a_session_gets_nowhere() {
    block_on(async {
        let server = server();
        let (first, mut queue) = connection(&server);
        first.receive(setup(0, b"token")).unwrap();
        settle().await;
        assert!(queue.try_recv().is_none());
        let (second, mut queue) = connection(&server);
        second.receive(negotiate(&[0x311])).unwrap();
        settle().await;
        queue.try_recv().unwrap();
        let mut message = header(Command::TreeConnect, 1);
        message.put(&[9, 0, 0, 0, 72, 0, 0, 0]);
        second.receive(message).unwrap();
        settle().await;
        let answer = Header::parse(&queue.try_recv().unwrap()).unwrap();
        assert_eq!(answer.status, NtStatus::USER_SESSION_DELETED);
        // A number that was used.
        assert!(second.receive(header(Command::Echo, 1)).is_err());
    });
}

static SERVER: LazyLock<Arc<Server>> = LazyLock::new(server);

proptest! {
    #[test]
    fn nobody_gets_a_session_by_chance(
        kind in 0..4, at in 0..400_usize, bytes in proptest::collection::vec(any::<u8>(), 0..200), command in 0..20_u16,
    ) {
        block_on(async {
            let (connection, _queue) = connection(&SERVER);
            let mut first = negotiate(&[0x202, 0x210, 0x300, 0x302, 0x311]);
            if kind == 0 {
                let at = at % first.len();
                for (place, byte) in first[at..].iter_mut().zip(&bytes) {
                    *place = *byte;
                }
            }
            let _ = connection.receive(first);
            settle().await;
            let second = match kind {
                1 => setup(1, &bytes),
                2 => {
                    let mut message = header(Command::Echo, 1);
                    message[12..14].copy_from_slice(&command.to_le_bytes());
                    message.put(&bytes);
                    message
                }
                _ => {
                    let mut message = setup(1, b"NTLMSSP\0\x01\0\0\0\x15\x82\x88\xe2");
                    let at = at % message.len();
                    for (place, byte) in message[at..].iter_mut().zip(&bytes) {
                        *place = *byte;
                    }
                    message
                }
            };
            let _ = connection.receive(second);
            settle().await;
            let _ = connection.receive(bytes);
            settle().await;
            assert!(!connection.has_logged_on());
            assert!(connection.state.lock().sessions.is_empty());
        });
    }
}
