//! Everything that is read before a logon, from clients that know the protocol and do not keep to
//! it: each request is answered, or its connection ends. Nothing is made, and little is granted.

use super::answers::read_answers;
use super::{SERVER, block_on_paused, connection, header, negotiate, settle, setup};
use crate::auth::spnego::{NegState, client, response};
use crate::auth::tests::{Client, FLAGS, KERBEROS, NTLMSSP, negotiate as first_token};
use crate::chance::{Chance, rounds};
use crate::connection::Connection;
use crate::connection::binding::tests::Bed;
use crate::limits::{EARLY_CREDITS_MAX, EARLY_LOGONS_MAX, FAILED_LOGON_DELAY, FAILED_LOGONS_MAX};
use crate::outbox::Outgoing;
use crate::wire::bodies::{Empty, SessionSetupResponse};
use crate::wire::{Command, Flags, HEADER_BYTES, Header, NtStatus, Reader, TransformHeader, Writer};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The longest message that is answered before a logon.
const ANSWER_BYTES_MAX: usize = 1 << 10;

/// The messages with which clients begin.
fn beginnings() -> Vec<Vec<u8>> {
    let smb1 = |name: &[u8]| [&b"\xffSMB\x72"[..], &[0; 27], &[0, 34, 0], b"\x02NT LM 0.12\0", name].concat();
    let all: [&[u16]; 5] =
        [&[0x202], &[0x210, 0x202], &[0x300, 0x302], &[0x311], &[0x202, 0x210, 0x300, 0x302, 0x311]];
    let mut messages = all.map(negotiate).to_vec();
    messages.extend([smb1(b"\x02SMB 2.002\0"), smb1(b"\x02SMB 2.???\0")]);
    messages
}

/// The messages that follow, for a session whose logon is under way.
fn followings(message_id: u64, session: u64, proof: &[u8]) -> Vec<Vec<u8>> {
    let ntlm = first_token(FLAGS);
    let tokens = [
        ntlm.clone(),
        client::init(&[NTLMSSP], &ntlm),
        client::init(&[KERBEROS, NTLMSSP], b"a ticket"),
        response(NegState::Incomplete, None, Some(&ntlm), None),
        response(NegState::Incomplete, None, Some(proof), Some(&[1; 16])),
        proof.to_vec(),
    ];
    let mut messages = tokens.map(|token| setup(message_id, &token)).to_vec();
    for command in Command::ALL {
        let mut message = header(command, message_id);
        message.put(&Empty::default().to_bytes());
        messages.push(message);
    }
    for message in &mut messages {
        message[40..48].copy_from_slice(&session.to_le_bytes());
    }
    let sealed = TransformHeader { tag: [1; 16], nonce: [2; 16], size: 64, session_id: session };
    let mut transformed = Vec::new();
    sealed.emit(&mut transformed);
    transformed.put(&messages[0][..HEADER_BYTES]);
    messages.push(transformed);
    messages
}

/// Joins messages to a compound.
pub(super) fn compound(mut messages: Vec<Vec<u8>>, related: bool) -> Vec<u8> {
    let count = messages.len();
    for (i, message) in messages.iter_mut().enumerate() {
        if i + 1 < count {
            message.pad(0, 8);
            let length = message.len() as u32;
            message.set_u32(20, length);
        }
        if i > 0 && related {
            message[16] |= Flags::RELATED as u8;
        }
    }
    messages.concat()
}

/// Sends a frame. Returns the first message that answers, unless the connection ends. A request
/// whose task has panicked is never answered.
async fn ask(connection: &Arc<Connection>, queue: &mut Outgoing, frame: Vec<u8>) -> Option<Vec<u8>> {
    let is_cancel = Header::parse(&frame)
        .is_ok_and(|header| header.command == Command::Cancel as u16 && header.next == 0);
    connection.receive(frame.clone()).ok()?;
    let answered = timeout(Duration::from_secs(20), async {
        tokio::select! {
            biased;
            answer = queue.recv() => answer,
            () = connection.ended() => None,
        }
    });
    match answered.await {
        Ok(answer) => answer,
        Err(_) if is_cancel => Some(Vec::new()),
        Err(_) => panic!("nothing answers {frame:02x?}"),
    }
}

#[test]
fn every_request_before_a_logon_is_answered_or_ends_its_connection() {
    let mut chance = Chance::new(2);
    let (mut ended, mut answered) = (0, 0);
    for _ in 0..rounds(6_000) {
        block_on_paused(async {
            let (connection, mut queue) = connection(&SERVER);
            let mut beginning = chance.pick(&beginnings().iter().collect::<Vec<_>>()).clone();
            if chance.one_in(3) {
                chance.damage(&mut beginning, 0);
            }
            let mut granted = 1;
            let mut next = Some(beginning);
            let (mut message_id, mut session, mut proof) = (0, 0, b"NTLMSSP\0\x03".to_vec());
            while let Some(frame) = next {
                let Some(message) = ask(&connection, &mut queue, frame).await else {
                    ended += 1;
                    break;
                };
                settle().await;
                let more = std::iter::from_fn(|| queue.try_recv()).collect::<Vec<_>>();
                for message in [message].into_iter().chain(more).filter(|message| !message.is_empty()) {
                    for (header, answer) in read_answers(&message) {
                        assert!(answer.len() <= ANSWER_BYTES_MAX, "{header:?}");
                        granted += u64::from(header.credits);
                        answered += 1;
                        if header.status == NtStatus::MORE_PROCESSING_REQUIRED {
                            session = header.session_id;
                            let body = SessionSetupResponse::parse(&answer).unwrap();
                            let (at, length) =
                                (usize::from(body.security_offset), usize::from(body.security_length));
                            let token = Reader::buffer(&answer, at, length).unwrap();
                            if let Some(at) = token.windows(8).position(|window| window == b"NTLMSSP\0") {
                                let wrong = Client::of("anna", "a guess");
                                proof = wrong.authenticate(&first_token(FLAGS), &token[at..]).0;
                            }
                        }
                    }
                }
                message_id += 1;
                assert!(granted <= EARLY_CREDITS_MAX + message_id + 64, "{granted} credits");
                let state = connection.state.lock();
                assert!(state.sessions.is_empty() && state.logons.len() <= EARLY_LOGONS_MAX);
                drop(state);
                next = (message_id < 8 && !chance.one_in(8)).then(|| {
                    let session = if chance.one_in(4) { 0 } else { session };
                    let all = followings(message_id, session, &proof);
                    let mut frame = chance.pick(&all.iter().collect::<Vec<_>>()).clone();
                    let from = chance.pick(&[0, HEADER_BYTES, HEADER_BYTES]);
                    if chance.one_in(2) {
                        chance.damage(&mut frame, from);
                    }
                    if chance.one_in(6) && message_id < granted && frame.len() > HEADER_BYTES {
                        let second = followings(message_id + 1, session, &proof);
                        let second = chance.pick(&second.iter().collect::<Vec<_>>()).clone();
                        message_id += 1;
                        frame = compound(vec![frame, second], chance.one_in(2));
                    }
                    frame
                });
            }
            assert!(!connection.has_logged_on());
            connection.close().await;
        });
    }
    assert!(ended > 100 && answered > 1000, "{ended} ended, {answered} were answered");
}

#[test]
fn a_failed_logon_is_answered_after_a_delay_whatever_is_wrong() {
    block_on_paused(async {
        let bed = Bed::new();
        let mut peer = bed.connect(&[0x311], |_| {}).await;
        for wrong in [Client::of("anna", "a guess"), Client::of("nobody", "secret")] {
            let began = Instant::now();
            let (answer, _) = peer.log_on((0, 0), &wrong, None).await;
            assert_eq!(answer.status, NtStatus::LOGON_FAILURE);
            assert!((FAILED_LOGON_DELAY..2 * FAILED_LOGON_DELAY).contains(&began.elapsed()));
        }
        let began = Instant::now();
        let (answer, _) = peer.log_on((0, 0), &Client::default(), None).await;
        assert_eq!(answer.status, NtStatus::SUCCESS);
        assert!(began.elapsed() < FAILED_LOGON_DELAY);
    });
}

/// A client that makes all its tries at once gains nothing by that.
#[test]
fn tries_at_once_are_as_few_as_tries_in_a_row() {
    block_on_paused(async {
        let bed = Bed::new();
        let (connection, mut queue) = connection(&bed.server);
        ask(&connection, &mut queue, negotiate(&[0x311])).await.unwrap();
        let first = first_token(FLAGS);
        let mut proofs = Vec::new();
        for message_id in 1..=EARLY_LOGONS_MAX as u64 + 1 {
            let answer = ask(&connection, &mut queue, setup(message_id, &first)).await.unwrap();
            let header = Header::parse(&answer).unwrap();
            if message_id > EARLY_LOGONS_MAX as u64 {
                assert_eq!(header.status, NtStatus::INSUFFICIENT_RESOURCES);
                continue;
            }
            let at = answer.windows(8).position(|window| window == b"NTLMSSP\0").unwrap();
            let (proof, _) = Client::of("anna", "a guess").authenticate(&first, &answer[at..]);
            proofs.push((header.session_id, proof));
        }
        let began = Instant::now();
        for (message_id, (session, proof)) in (20..).zip(&proofs) {
            let mut message = setup(message_id, proof);
            message[40..48].copy_from_slice(&session.to_le_bytes());
            connection.receive(message).unwrap();
        }
        connection.ended().await;
        // Each waits for the answer to the one before.
        assert!(began.elapsed() >= FAILED_LOGON_DELAY * FAILED_LOGONS_MAX, "{:?}", began.elapsed());
        tokio::time::sleep(2 * FAILED_LOGON_DELAY).await;
        let failed = std::iter::from_fn(|| queue.try_recv()).count();
        assert!(failed < FAILED_LOGONS_MAX as usize, "{failed} tries were answered");
    });
}
