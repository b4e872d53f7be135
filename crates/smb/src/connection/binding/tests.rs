//! A client with two connections, which knows its keys.

use super::BINDING;
use crate::accounts::{Share, User, add_share, add_user};
use crate::auth::tests::{Client, FLAGS, negotiate as first_token};
use crate::connection::Connection;
use crate::connection::tests::{Nothing, block_on, connection, header, negotiate};
use crate::keys::{ChannelKey, Secret};
use crate::mechanisms::Mechanisms;
use crate::outbox::Outgoing;
use crate::server::Server;
use crate::wire::bodies::{Empty, SessionSetupRequest, SessionSetupResponse};
use crate::wire::negotiate::Dialect;
use crate::wire::{Command, Header, NtStatus, Reader, Writer};
use crypto::smb::{PreauthHash, SigningAlgorithm};
use objects::Store;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A server with users, in a directory of its own.
pub(in crate::connection) struct Bed {
    pub(in crate::connection) server: Arc<Server>,
    pub(in crate::connection) data: PathBuf,
}

impl Bed {
    pub(in crate::connection) fn new() -> Bed {
        Bed::above(Store::new(Arc::new(Nothing)))
    }

    pub(in crate::connection) fn above(store: Arc<Store>) -> Bed {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lh-smb-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let data = std::env::temp_dir().join(name);
        std::fs::create_dir(&data).unwrap();
        for user in ["anna", "bert"] {
            add_user(&data, User::new(user, Some("secret"), 1000, 1000, Vec::new())).unwrap();
        }
        let server = Server::new(store, data.clone(), "box", Mechanisms::default()).unwrap();
        Bed { server, data }
    }

    /// A server whose share `share` is all of `store`, and whose user root may all.
    pub(in crate::connection) fn sharing(store: Arc<Store>, continuous: bool) -> Bed {
        let bed = Bed::above(store);
        add_user(&bed.data, User::new("root", Some("secret"), 0, 0, Vec::new())).unwrap();
        let share = Share { continuous, ..Share::new("share", "/") };
        add_share(&bed.data, share).unwrap();
        bed
    }

    /// Connects, and negotiates 3.1.1 with AES-GMAC, or what `change` makes of the request.
    pub(in crate::connection) async fn connect(
        &self,
        dialects: &[u16],
        change: impl Fn(&mut Vec<u8>),
    ) -> Peer {
        let (connection, queue) = connection(&self.server);
        let (hash, asked) = (PreauthHash::START, PreauthHash::START);
        let mut peer = Peer { connection, queue, next: 0, hash, asked };
        let mut message = negotiate(dialects);
        change(&mut message);
        peer.ask(message).await;
        peer
    }

    async fn log_on(&self) -> (Peer, u64, ChannelKey) {
        let mut peer = self.connect(&[0x311], |_| {}).await;
        let (answer, key) = peer.log_on((0, 0), &Client::default(), None).await;
        assert_eq!(answer.status, NtStatus::SUCCESS);
        (peer, answer.session_id, key)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.data).unwrap();
    }
}

/// The client's end of a connection.
pub(in crate::connection) struct Peer {
    pub(in crate::connection) connection: Arc<Connection>,
    pub(in crate::connection) queue: Outgoing,
    pub(in crate::connection) next: u64,
    /// The hash of all that was said, and that of all but the last answer.
    hash: PreauthHash,
    asked: PreauthHash,
}

impl Peer {
    /// Sends a message, and returns the answer.
    async fn ask(&mut self, message: Vec<u8>) -> (Header, Vec<u8>) {
        self.hash.update(&message);
        self.asked = self.hash;
        self.next += 1;
        self.connection.receive(message).unwrap();
        let answer = self.queue.recv().await.unwrap();
        self.hash.update(&answer);
        (Header::parse(&answer).unwrap(), answer)
    }

    fn header(&self, command: Command, session: u64) -> Vec<u8> {
        let mut message = header(command, self.next);
        message[40..48].copy_from_slice(&session.to_le_bytes());
        message
    }

    async fn set_up(
        &mut self,
        (session, flags): (u64, u8),
        token: &[u8],
        key: Option<&ChannelKey>,
    ) -> (Header, Vec<u8>) {
        let mut message = self.header(Command::SessionSetup, session);
        let fixed = SessionSetupRequest {
            flags,
            security_offset: 88,
            security_length: token.len() as u16,
            ..SessionSetupRequest::default()
        };
        fixed.emit(&mut message);
        message.put(token);
        if let Some(key) = key {
            key.sign(&mut message);
        }
        self.ask(message).await
    }

    /// Logs on. Returns the last answer, and the key that signs here then.
    pub(in crate::connection) async fn log_on(
        &mut self,
        (session, flags): (u64, u8),
        user: &Client,
        key: Option<&ChannelKey>,
    ) -> (Header, ChannelKey) {
        let before = self.hash;
        let first = first_token(FLAGS);
        let (mut last, answer) = self.set_up((session, flags), &first, key).await;
        let mut session_key = [0; 16];
        if last.status == NtStatus::MORE_PROCESSING_REQUIRED {
            let fixed = SessionSetupResponse::parse(&answer).unwrap();
            let (at, length) = (usize::from(fixed.security_offset), usize::from(fixed.security_length));
            let challenge = Reader::buffer(&answer, at, length).unwrap();
            let (token, secret) = user.authenticate(&first, challenge);
            session_key = secret;
            let (header, mut answer) = self.set_up((last.session_id, flags), &token, key).await;
            last = header;
            let key = ChannelKey::new(secret_of(&session_key, &self.asked), SigningAlgorithm::AesGmac);
            // The last answer of a logon is signed by the key that it has made.
            let is_new = flags == BINDING || session == 0;
            assert!(last.status != NtStatus::SUCCESS || !is_new || key.is_signed(&header, &mut answer));
        }
        let key = ChannelKey::new(secret_of(&session_key, &self.asked), SigningAlgorithm::AesGmac);
        self.hash = before;
        (last, key)
    }

    /// Returns the status of an ECHO.
    async fn echo(&mut self, session: u64, key: &ChannelKey) -> NtStatus {
        let mut message = self.header(Command::Echo, session);
        message.put(&Empty::default().to_bytes());
        key.sign(&mut message);
        // Only negotiation and logons are hashed (MS-SMB2 §3.2.5.2).
        let before = self.hash;
        let (answer, _) = self.ask(message).await;
        self.hash = before;
        answer.status
    }
}

fn secret_of<'a>(session_key: &'a [u8; 16], hash: &'a PreauthHash) -> Secret<'a> {
    Secret { session_key, full_session_key: session_key, dialect: Dialect::V3_1_1, hash }
}

/// Changes the algorithms that a negotiation offers for signing, or for encryption.
fn offers(kind: u16, number: u16) -> impl Fn(&mut Vec<u8>) {
    move |message| {
        let head = kind.to_le_bytes();
        let at = (100..message.len() - 11).step_by(4).find(|at| {
            message[*at..*at + 2] == head && message[*at + 4..*at + 8] == [0; 4] && message[*at + 3] == 0
        });
        let at = at.unwrap();
        message[at + 8..at + 10].copy_from_slice(&1_u16.to_le_bytes());
        message[at + 10..at + 12].copy_from_slice(&number.to_le_bytes());
    }
}

#[test]
fn a_session_has_two_channels_each_with_its_key_and_ends_with_the_last() {
    block_on(async {
        let bed = Bed::new();
        let (mut first, id, key) = bed.log_on().await;
        assert_eq!(first.echo(id, &key).await, NtStatus::SUCCESS);
        let mut second = bed.connect(&[0x311], |_| {}).await;
        assert_eq!(second.echo(id, &key).await, NtStatus::USER_SESSION_DELETED);
        let (answer, other) = second.log_on((id, BINDING), &Client::default(), Some(&key)).await;
        assert_eq!((answer.status, answer.session_id), (NtStatus::SUCCESS, id));
        assert_eq!(second.echo(id, &other).await, NtStatus::SUCCESS);
        // Neither channel's key signs on the other.
        assert_eq!(second.echo(id, &key).await, NtStatus::ACCESS_DENIED);
        assert_eq!(first.echo(id, &other).await, NtStatus::ACCESS_DENIED);
        // It is bound once.
        let (answer, _) = second.log_on((id, BINDING), &Client::default(), Some(&other)).await;
        assert_eq!(answer.status, NtStatus::REQUEST_NOT_ACCEPTED);
        first.connection.close().await;
        assert_eq!(second.echo(id, &other).await, NtStatus::SUCCESS);
        second.connection.close().await;
        assert!(bed.server.session(id).is_none());
    });
}

#[test]
fn a_session_is_bound_by_nobody_but_its_user() {
    block_on(async {
        let bed = Bed::new();
        let (mut first, id, key) = bed.log_on().await;
        let (_, _, strange) = bed.log_on().await;
        let bert = Client::of("bert", "secret");
        let wrong = Client::of("anna", "Secret");
        for (user, signed_by, status) in [
            (&Client::default(), None, NtStatus::INVALID_PARAMETER),
            (&Client::default(), Some(&strange), NtStatus::ACCESS_DENIED),
            (&bert, Some(&key), NtStatus::ACCESS_DENIED),
            (&wrong, Some(&key), NtStatus::LOGON_FAILURE),
        ] {
            let mut second = bed.connect(&[0x311], |_| {}).await;
            let (answer, other) = second.log_on((id, BINDING), user, signed_by).await;
            assert_eq!(answer.status, status);
            assert!(!second.connection.has_logged_on());
            assert_eq!(second.echo(id, &other).await, NtStatus::USER_SESSION_DELETED);
        }
        assert_eq!(first.echo(id, &key).await, NtStatus::SUCCESS);
    });
}

#[test]
fn both_connections_have_agreed_on_the_same() {
    block_on(async {
        let bed = Bed::new();
        let (_first, id, key) = bed.log_on().await;
        for (dialects, kind, number, status) in [
            (&[0x302][..], 0, 0, NtStatus::REQUEST_OUT_OF_SEQUENCE),
            (&[0x210][..], 0, 0, NtStatus::REQUEST_OUT_OF_SEQUENCE),
            // AES-128-CCM in place of GCM; AES-CMAC in place of GMAC.
            (&[0x311][..], 2, 1, NtStatus::INVALID_PARAMETER),
            (&[0x311][..], 8, 1, NtStatus::REQUEST_OUT_OF_SEQUENCE),
        ] {
            let mut second = bed.connect(dialects, |_| {}).await;
            if kind != 0 {
                second = bed.connect(dialects, offers(kind, number)).await;
            }
            let (answer, _) = second.log_on((id, BINDING), &Client::default(), Some(&key)).await;
            assert_eq!(answer.status, status);
        }
    });
}

#[test]
fn a_session_has_so_many_channels_and_no_more() {
    block_on(async {
        let bed = Bed::new();
        let (_first, id, key) = bed.log_on().await;
        let mut peers = Vec::new();
        for count in 2..=crate::limits::CHANNELS_MAX + 1 {
            let mut peer = bed.connect(&[0x311], |_| {}).await;
            let (answer, _) = peer.log_on((id, BINDING), &Client::default(), Some(&key)).await;
            let fits = count <= crate::limits::CHANNELS_MAX;
            assert_eq!(answer.status == NtStatus::SUCCESS, fits, "{count}");
            peers.push(peer);
        }
    });
}

#[test]
fn a_session_that_is_renewed_with_a_wrong_password_ends() {
    block_on(async {
        let bed = Bed::new();
        let (mut peer, id, key) = bed.log_on().await;
        // Somebody on the way cannot end it.
        let (answer, _) = peer.log_on((id, 0), &Client::default(), None).await;
        assert_eq!(answer.status, NtStatus::ACCESS_DENIED);
        let (answer, _) = peer.log_on((id, 0), &Client::default(), Some(&key)).await;
        assert_eq!(answer.status, NtStatus::SUCCESS);
        assert_eq!(peer.echo(id, &key).await, NtStatus::SUCCESS);
        let wrong = Client::of("anna", "Secret");
        let (answer, _) = peer.log_on((id, 0), &wrong, Some(&key)).await;
        assert_eq!(answer.status, NtStatus::LOGON_FAILURE);
        assert_eq!(peer.echo(id, &key).await, NtStatus::USER_SESSION_DELETED);
    });
}
