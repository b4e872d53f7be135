//! Forged logons by the hundred thousand, of somebody who does not know the password or changes an
//! exchange on its way. All are refused; a right one in between is not.
//!
//! More of them: `HOSTILE_ROUNDS=10000000`, as `.ci/soak` has it.

use super::{Client, FLAGS, KERBEROS, NONCE, NTLMSSP, TIME, negotiate, random};
use crate::auth::acceptor::{Acceptor, Stage, Step, Trust};
use crate::auth::refused::Refused;
use crate::auth::spnego::{NegState, client, parse_response, response};
use crate::chance::{Chance, rounds};
use crate::wire::utf16;
use crypto::smb::nt_hash;

/// A list of mechanisms, and the signature of it.
type Signed<'a> = (&'a [&'a [u8]], Option<&'a [u8]>);

fn hash_of(user: &str) -> Option<[u8; 16]> {
    match &user.to_lowercase()[..] {
        "anna" => Some(nt_hash("secret")),
        "bert" => Some(nt_hash("another secret")),
        _ => None,
    }
}

fn take(acceptor: &mut Acceptor, token: &[u8], nonce: [u8; 8]) -> Result<Step, Refused> {
    let trust = Trust { computer: "box", hash_of: Some(&hash_of), kerberos: None };
    acceptor.step(token, &random(nonce), TIME, &trust)
}

fn challenge_of(acceptor: &mut Acceptor, first: &[u8], nonce: [u8; 8]) -> Vec<u8> {
    match take(acceptor, first, nonce) {
        Ok(Step::More(challenge)) => challenge,
        other => panic!("{other:?}"),
    }
}

/// The AUTHENTICATE message of a client whose exchange is its own.
fn proof(client: &Client, nonce: [u8; 8]) -> Vec<u8> {
    let first = negotiate(FLAGS);
    let challenge = challenge_of(&mut Acceptor::default(), &first, nonce);
    client.authenticate(&first, &challenge).0
}

/// A server's answer to the message, which comes bare, or in SPNEGO with such a signature of the
/// list.
fn present(message: &[u8], nonce: [u8; 8], list: Option<Signed<'_>>) -> Result<Step, Refused> {
    let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS));
    let Some((list, mic)) = list else {
        challenge_of(&mut acceptor, &first, nonce);
        return take(&mut acceptor, message, nonce);
    };
    let mut step = take(&mut acceptor, &client::init(list, &first), nonce)?;
    if list[0] != NTLMSSP {
        step = take(&mut acceptor, &response(NegState::Incomplete, None, Some(&first), None), nonce)?;
    }
    assert!(matches!(step, Step::More(_)));
    take(&mut acceptor, &response(NegState::Incomplete, None, Some(message), mic), nonce)
}

/// The message of somebody without the password, with all else chosen by chance.
fn without_the_password(chance: &mut Chance) -> Vec<u8> {
    let av_flags = match chance.below(4) {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some(vec![chance.pick(&[0, 1, 2, 3, 0xff]), 0, 0, 0]),
        _ => {
            let length = chance.below(9);
            Some(chance.bytes(length))
        }
    };
    let flags = match chance.below(4) {
        0 => u32::from_le_bytes(chance.bytes(4).try_into().unwrap()),
        1 => FLAGS & !(1 << chance.below(32)),
        2 => FLAGS | 1 << chance.below(32),
        _ => FLAGS,
    };
    let client = Client {
        user: chance.pick(&["Anna", "anna", "ANNA", "bert", "nobody", "guest", "administrator", ""]),
        password: chance.pick(&["", "Secret", "secret ", "SECRET", "guest", "password"]),
        av_flags,
        has_mic_field: chance.one_in(2),
        wrong_mic: chance.one_in(4),
        flags,
        other_time: chance.one_in(8),
        other_computer: chance.one_in(8),
        key_size: chance.pick(&[0, 8, 15, 16]),
    };
    proof(&client, NONCE)
}

/// Replaces one of the two responses, or another buffer: that of NTLMv1 or LM, an empty one, one
/// that overlaps others or lies outside of the message, or out of the order that clients keep to.
fn with_other_buffers(chance: &mut Chance, mut message: Vec<u8>) -> Vec<u8> {
    for _ in 0..=chance.below(3) {
        let field = 12 + 8 * chance.below(6);
        let length = message.len();
        let size = chance.pick(&[0, 1, 16, 24, 44, 48, 0xffff, length]) as u16;
        let at = chance.pick(&[0, 12, 64, 72, 88, length - 24, length, usize::MAX]) as u32;
        match chance.below(4) {
            0 => message[field..field + 2].copy_from_slice(&size.to_le_bytes()),
            1 => message[field + 4..field + 8].copy_from_slice(&at.to_le_bytes()),
            2 => {
                // LM's buffer in the place of NTLM's, and others: the order is another.
                let other = 12 + 8 * chance.below(6);
                for i in 0..8 {
                    message.swap(field + i, other + i);
                }
            }
            _ => message[60..64]
                .copy_from_slice(&chance.pick(&[0_u32, 0x800, 0x200, FLAGS | 0x800]).to_le_bytes()),
        }
    }
    message
}

/// A forged message, and the nonce of the challenge that it is for.
fn forged(chance: &mut Chance, right: &[u8], berts: &[u8]) -> (Vec<u8>, [u8; 8]) {
    let mut message = right.to_vec();
    match chance.below(8) {
        0 | 1 => message = without_the_password(chance),
        // Bert's proof in Anna's name: both have as many letters.
        2 => {
            message = berts.to_vec();
            let name = utf16("bert");
            let at = message.windows(8).position(|window| window == name).unwrap();
            message[at..at + 8].copy_from_slice(&utf16("Anna"));
        }
        // A right one again, for another challenge.
        3 => {
            let mut nonce = NONCE;
            nonce[chance.below(8)] ^= 1 << chance.below(8);
            return (message, nonce);
        }
        4 => message.truncate(chance.below(right.len())),
        5 => chance.damage(&mut message, 0),
        6 => message = with_other_buffers(chance, message),
        _ => {
            let at = chance.below(right.len().min(berts.len()));
            message.truncate(at);
            message.extend_from_slice(&berts[at..]);
        }
    }
    (message, NONCE)
}

#[test]
fn no_forged_logon_is_accepted() {
    let mut chance = Chance::new(1);
    let right = proof(&Client::default(), NONCE);
    let berts = proof(&Client::of("bert", "another secret"), NONCE);
    let mut tried = 0;
    for round in 0..rounds(100_000) {
        if round % 1000 == 0 {
            let done = present(&right, NONCE, [None, Some((&[NTLMSSP][..], None))][round / 1000 % 2]);
            assert!(
                matches!(done, Ok(Step::Done(user)) if user.user.as_deref() == Some("Anna")),
                "round {round}"
            );
        }
        let (message, nonce) = forged(&mut chance, &right, &berts);
        if [&right, &berts].contains(&&message) && nonce == NONCE {
            continue;
        }
        let mic = chance.bytes(16);
        let list: Option<(&[&[u8]], _)> = match chance.below(4) {
            0 => Some((&[NTLMSSP], None)),
            1 => Some((&[NTLMSSP, KERBEROS], Some(&mic[..]))),
            2 => Some((&[KERBEROS, NTLMSSP], None)),
            _ => None,
        };
        let step = present(&message, nonce, list);
        assert!(step.is_err(), "round {round}: {step:?} for {message:02x?}");
        tried += 1;
    }
    assert!(tried > rounds(100_000) * 9 / 10, "only {tried} were forged");
}

#[test]
fn no_bit_of_an_exchange_may_change_on_its_way() {
    let (first, client) = (negotiate(FLAGS), Client::default());
    let flipped = |message: &[u8], bit: usize| {
        let mut message = message.to_vec();
        message[bit / 8] ^= 1 << (bit % 8);
        message
    };
    // The client's first message.
    for bit in 0..8 * first.len() {
        let mut acceptor = Acceptor::default();
        if let Ok(Step::More(challenge)) = take(&mut acceptor, &flipped(&first, bit), NONCE) {
            let (message, _) = client.authenticate(&first, &challenge);
            assert!(take(&mut acceptor, &message, NONCE).is_err(), "bit {bit} of NEGOTIATE");
        }
    }
    let challenge = challenge_of(&mut Acceptor::default(), &first, NONCE);
    for bit in 0..8 * challenge.len() {
        // This client trusts the place of the pairs.
        if (40..48).contains(&(bit / 8)) {
            continue;
        }
        let (message, _) = client.authenticate(&first, &flipped(&challenge, bit));
        assert!(present(&message, NONCE, None).is_err(), "bit {bit} of CHALLENGE");
    }
    let message = proof(&client, NONCE);
    assert!(present(&message, NONCE, None).is_ok());
    for bit in 0..8 * message.len() {
        assert!(present(&flipped(&message, bit), NONCE, None).is_err(), "bit {bit} of AUTHENTICATE");
    }
}

/// SPNEGO's own bytes are signed only if the list is. Any other bytes leave the user who has proven
/// to be one, with the key.
#[test]
fn bits_of_the_wrapping_change_nobody() {
    let message = proof(&Client::default(), NONCE);
    let token = response(NegState::Incomplete, None, Some(&message), None);
    let mut accepted = 0;
    for bit in 0..8 * token.len() {
        let mut changed = token.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let mut acceptor = Acceptor::default();
        take(&mut acceptor, &client::init(&[NTLMSSP], &negotiate(FLAGS)), NONCE).unwrap();
        if let Ok(Step::Done(done)) = take(&mut acceptor, &changed, NONCE) {
            assert_eq!((done.user.as_deref(), done.session_key), (Some("Anna"), [0x55; 16]), "bit {bit}");
            assert_eq!(parse_response(&changed).unwrap().token.as_ref(), Some(&message));
            accepted += 1;
        }
    }
    assert!(accepted < 100, "{accepted} bits of the wrapping are free");
}

#[test]
fn a_logon_keeps_little_until_its_proof() {
    let long = [&negotiate(FLAGS)[..], &[0; 1024]].concat();
    assert!(take(&mut Acceptor::default(), &long, NONCE).is_err());
    assert!(take(&mut Acceptor::default(), &client::init(&[NTLMSSP], &long), NONCE).is_err());
    let list = vec![KERBEROS; 200];
    assert!(take(&mut Acceptor::default(), &client::init(&list, b""), NONCE).is_err());
    // A long ticket of Kerberos is looked at, and not kept.
    let mut acceptor = Acceptor::default();
    assert!(take(&mut acceptor, &client::init(&[KERBEROS, NTLMSSP], &[7; 50_000]), NONCE).is_ok());
    let Stage::ExpectFirst(agreed) = &acceptor.stage else { panic!("{acceptor:?}") };
    assert_eq!(agreed.list.len(), 25);
}

/// A client that is not shown the time sends no MIC. So somebody on the way takes the time out of
/// the challenge, or ends the pairs before it, and then changes whatever the MIC would cover.
#[test]
fn nobody_on_the_way_talks_a_client_out_of_the_mic() {
    let first = negotiate(FLAGS);
    let challenge = challenge_of(&mut Acceptor::default(), &first, NONCE);
    let length = challenge.len();
    assert_eq!(challenge[length - 16..length - 12], [7, 0, 8, 0]);
    let mut timeless = challenge.clone();
    drop(timeless.drain(length - 16..length - 4));
    timeless[40] -= 12;
    let mut ended = challenge.clone();
    ended[length - 16] = 0;
    let mut more = challenge.clone();
    more.extend([0; 4]);
    more[40] += 4;
    let old = Client { av_flags: None, has_mic_field: false, ..Client::default() };
    for (challenge, client, why) in [
        (&timeless, &old, "the time of the challenge is missing"),
        (&ended, &old, "the time of the challenge is missing"),
        // A client that puts its flags behind an end which it has not looked for.
        (&more, &Client { wrong_mic: true, ..Client::default() }, "there is more behind the pairs"),
    ] {
        let (message, _) = client.authenticate(&first, challenge);
        assert_eq!(present(&message, NONCE, None).unwrap_err().0, why);
    }
}
