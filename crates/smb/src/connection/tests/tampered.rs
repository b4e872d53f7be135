//! Somebody on the way who changes a byte of a negotiation or a logon of 3.1.1 (MS-SMB2 §3.3.5.4):
//! the server refuses the proof, or the client the signature of the last answer.

use super::{block_on_paused, connection, negotiate, setup};
use crate::auth::tests::{Client, FLAGS, negotiate as first_token};
use crate::connection::Connection;
use crate::connection::binding::tests::Bed;
use crate::keys::{ChannelKey, Secret};
use crate::outbox::Outgoing;
use crate::wire::bodies::SessionSetupResponse;
use crate::wire::negotiate::Dialect;
use crate::wire::{Header, NtStatus, Reader};
use crypto::smb::{PreauthHash, SigningAlgorithm};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The messages that are hashed: NEGOTIATE, its answer, SESSION_SETUP, its answer, and the one with
/// the proof.
const MESSAGES: usize = 5;

/// A client and the one on its way to the server.
struct Way {
    connection: Arc<Connection>,
    queue: Outgoing,
    /// The message to change, and its byte and bit.
    change: Option<(usize, usize, u8)>,
    /// The lengths of the messages so far.
    lengths: Vec<usize>,
    /// All that the client has said and heard.
    hash: PreauthHash,
}

impl Way {
    fn pass(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        if let Some((number, byte, bit)) = self.change
            && number == self.lengths.len()
        {
            message[byte] ^= 1 << bit;
        }
        self.lengths.push(message.len());
        message
    }

    /// Asks, and returns the server's answer as it was sent.
    async fn ask(&mut self, message: Vec<u8>) -> Option<Vec<u8>> {
        self.hash.update(&message);
        let message = self.pass(message);
        self.connection.receive(message).ok()?;
        let (queue, connection) = (&mut self.queue, &self.connection);
        let answer = async {
            tokio::select! {
                biased;
                answer = queue.recv() => answer,
                () = connection.ended() => None,
            }
        };
        timeout(Duration::from_secs(20), answer).await.ok()?
    }

    /// Takes an answer as it comes to the client.
    fn hear(&mut self, answer: Vec<u8>) -> Vec<u8> {
        let answer = self.pass(answer);
        self.hash.update(&answer);
        answer
    }

    /// Logs on. Returns something if the client believes that it has.
    async fn log_on(&mut self) -> Option<()> {
        let answer = self.ask(negotiate(&[0x311])).await?;
        self.hear(answer);
        let first = first_token(FLAGS);
        let answer = self.ask(setup(1, &first)).await?;
        let answer = self.hear(answer);
        let header = Header::parse(&answer).ok()?;
        let body = SessionSetupResponse::parse(&answer).ok()?;
        let (at, length) = (usize::from(body.security_offset), usize::from(body.security_length));
        let challenge = Reader::buffer(&answer, at, length).ok().filter(|challenge| challenge.len() > 56)?;
        let mut fields = Reader::at(challenge, 40);
        let (length, _, at) = (fields.u16().ok()?, fields.u16().ok()?, fields.u32().ok()?);
        Reader::buffer(challenge, at as usize, usize::from(length)).ok().filter(|pairs| pairs.len() > 4)?;
        let (proof, session_key) = Client::default().authenticate(&first, challenge);
        let mut message = setup(2, &proof);
        message[40..48].copy_from_slice(&header.session_id.to_le_bytes());
        let mut answer = self.ask(message).await?;
        let header = Header::parse(&answer).ok()?;
        let secret = Secret {
            session_key: &session_key,
            full_session_key: &session_key,
            dialect: Dialect::V3_1_1,
            hash: &self.hash,
        };
        let key = ChannelKey::new(secret, SigningAlgorithm::AesGmac);
        (header.status == NtStatus::SUCCESS && key.is_signed(&header, &mut answer)).then_some(())
    }
}

/// Returns whether the logon came about, and the lengths of its messages.
async fn logs_on(bed: &Bed, change: Option<(usize, usize, u8)>) -> (bool, Vec<usize>) {
    let (connection, queue) = connection(&bed.server);
    let mut way = Way { connection, queue, change, lengths: Vec::new(), hash: PreauthHash::START };
    let has = way.log_on().await.is_some();
    way.connection.close().await;
    (has, way.lengths)
}

#[test]
fn no_byte_of_a_negotiation_or_a_logon_may_change_on_its_way() {
    block_on_paused(async {
        let bed = Bed::new();
        let (has, lengths) = logs_on(&bed, None).await;
        assert!(has);
        assert_eq!(lengths.len(), MESSAGES);
        for (number, length) in lengths.into_iter().enumerate() {
            for byte in 0..length {
                let bit = (byte % 8) as u8;
                let (has, _) = logs_on(&bed, Some((number, byte, bit))).await;
                assert!(!has, "byte {byte} of message {number}");
            }
        }
        assert!(logs_on(&bed, None).await.0);
    });
}
