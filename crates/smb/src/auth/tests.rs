//! Exchanges of a client that knows the protocol, and of many that do not keep to it.

mod forged;

use super::acceptor::{Acceptor, RANDOM_BYTES, Step, Trust};
use super::refused::Refused;
use super::spnego::{Mechanism, client, response};
use super::{ntlm, spnego};
use crate::wire::{Reader, Writer, utf16};
use crypto::smb::{hmac_md5, md5, nt_hash, rc4};
use proptest::prelude::*;

const TIME: u64 = 0x01d9_0000_0000_0000;
const NONCE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
pub(crate) const FLAGS: u32 = 0xe288_8215;
pub(crate) const NTLMSSP: &[u8] = Mechanism::Ntlm.oid();
pub(crate) const KERBEROS: &[u8] = Mechanism::Kerberos.oid();

fn hash_of(user: &str) -> Option<[u8; 16]> {
    (user.to_lowercase() == "anna").then(|| nt_hash("secret"))
}

fn random(nonce: [u8; 8]) -> [u8; RANDOM_BYTES] {
    let mut random = [0x77; RANDOM_BYTES];
    random[..8].copy_from_slice(&nonce);
    random
}

fn take(acceptor: &mut Acceptor, token: &[u8], nonce: [u8; 8]) -> Result<Step, Refused> {
    let trust = Trust { computer: "box", hash_of: Some(&hash_of), kerberos: None };
    acceptor.step(token, &random(nonce), TIME, &trust)
}

/// A client's choices. The default is that of a client that keeps to the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    user: &'static str,
    password: &'static str,
    /// The value of MsvAvFlags, if there is the pair.
    av_flags: Option<Vec<u8>>,
    has_mic_field: bool,
    wrong_mic: bool,
    flags: u32,
    /// Damage to the challenge's time that the client signs.
    other_time: bool,
    other_computer: bool,
    key_size: usize,
}

impl Default for Client {
    fn default() -> Client {
        Client {
            user: "Anna",
            password: "secret",
            av_flags: Some(vec![2, 0, 0, 0]),
            has_mic_field: true,
            wrong_mic: false,
            flags: FLAGS,
            other_time: false,
            other_computer: false,
            key_size: 16,
        }
    }
}

pub(crate) fn negotiate(flags: u32) -> Vec<u8> {
    let mut message = b"NTLMSSP\0".to_vec();
    message.u32(1);
    message.u32(flags);
    message.put(&[0; 16]);
    message
}

impl Client {
    pub(crate) fn of(user: &'static str, password: &'static str) -> Client {
        Client { user, password, ..Client::default() }
    }

    /// The AUTHENTICATE message, and the session key.
    pub(crate) fn authenticate(&self, first: &[u8], challenge: &[u8]) -> (Vec<u8>, [u8; 16]) {
        let mut reader = Reader::at(challenge, 40);
        let (length, _, at) = (reader.u16().unwrap(), reader.u16().unwrap(), reader.u32().unwrap());
        let mut info = Reader::buffer(challenge, at as usize, usize::from(length)).unwrap().to_vec();
        info.truncate(info.len() - 4);
        if self.other_time {
            *info.last_mut().unwrap() ^= 1;
        }
        if self.other_computer {
            info[4] ^= 1;
            let second = 4 + usize::from(u16::from_le_bytes([info[2], info[3]]));
            info[second + 4] ^= 1;
        }
        if let Some(flags) = &self.av_flags {
            info.u16(6);
            info.u16(flags.len() as u16);
            info.put(flags);
        }
        info.u32(0);
        let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
        temp.u64(TIME);
        temp.put(&[0xaa; 8]);
        temp.u32(0);
        temp.put(&info);
        temp.u32(0);
        let name = utf16(&self.user.to_uppercase());
        let key = hmac_md5(&nt_hash(self.password), &[&name, &utf16("DOM")]);
        let proof = hmac_md5(&key, &[&challenge[24..32], &temp]);
        let base = hmac_md5(&key, &[&proof]);
        let session = [0x55; 16];
        let nt = [&proof[..], &temp].concat();
        let exchanged = rc4(&base, session)[..self.key_size].to_vec();
        let payload_at = if self.has_mic_field { 88 } else { 64 };
        let mut payload = Vec::new();
        let mut message = b"NTLMSSP\0".to_vec();
        message.u32(3);
        for part in [&[0; 24][..], &nt, &utf16("DOM"), &utf16(self.user), &[], &exchanged] {
            message.u16(part.len() as u16);
            message.u16(part.len() as u16);
            message.u32((payload_at + payload.len()) as u32);
            payload.put(part);
        }
        message.u32(self.flags);
        if self.has_mic_field {
            message.put(&[0; 24]);
        }
        message.put(&payload);
        if self.has_mic_field {
            let mut mic = hmac_md5(&session, &[first, challenge, &message]);
            mic[0] ^= u8::from(self.wrong_mic);
            message[72..88].copy_from_slice(&mic);
        }
        (message, session)
    }

    fn log_on(&self) -> Result<Step, Refused> {
        let (mut acceptor, first) = (Acceptor::default(), negotiate(self.flags));
        let Step::More(challenge) = take(&mut acceptor, &first, NONCE)? else { unreachable!() };
        let (message, _) = self.authenticate(&first, &challenge);
        take(&mut acceptor, &message, NONCE)
    }

    fn is_refused(&self, why: &str) {
        let refused = self.log_on().expect_err("it is refused");
        assert_eq!(refused.0, why);
    }
}

#[test]
fn the_right_password_opens_and_both_sides_have_the_key() {
    let Ok(Step::Done(done)) = Client::default().log_on() else { panic!("refused") };
    assert_eq!((done.session_key, done.user.as_deref()), ([0x55; 16], Some("Anna")));
}

#[test]
fn a_client_that_does_not_know_the_mic_may_log_on_without() {
    let client = Client { av_flags: None, has_mic_field: false, ..Client::default() };
    assert!(client.log_on().is_ok());
}

#[test]
fn no_mic_and_a_wrong_password() {
    let wrong = Client { password: "Secret", av_flags: None, has_mic_field: false, ..Client::default() };
    wrong.is_refused("the proof is another's");
    Client { has_mic_field: true, ..wrong.clone() }.is_refused("the proof is another's");
    Client { av_flags: Some(vec![0; 4]), ..wrong }.is_refused("the proof is another's");
}

#[test]
fn an_empty_msv_av_flags_pair() {
    let client = Client { av_flags: Some(Vec::new()), ..Client::default() };
    client.is_refused("the pair MsvAvFlags has another size");
    Client { has_mic_field: false, ..client }.is_refused("the pair MsvAvFlags has another size");
}

#[test]
fn a_mic_that_was_announced_and_is_not_there() {
    // Where it would stand is the payload.
    Client { has_mic_field: false, ..Client::default() }.is_refused("the MIC is wrong");
    Client { wrong_mic: true, ..Client::default() }.is_refused("the MIC is wrong");
}

#[test]
fn anothers_proof_does_not_open() {
    Client { user: "berta", ..Client::default() }.is_refused("the user is unknown");
    Client { password: "", ..Client::default() }.is_refused("the proof is another's");
}

#[test]
fn a_guest_with_a_password_is_nobody() {
    Client { user: "guest", password: "guest", ..Client::default() }.is_refused("the user is unknown");
    Client { user: "", password: "", ..Client::default() }.is_refused("the logon is anonymous");
    Client { flags: FLAGS | 0x800, ..Client::default() }.is_refused("the logon is anonymous");
}

/// The message of a client that is nobody, with this key exchanged.
fn nobody(session: [u8; 16]) -> Vec<u8> {
    let exchanged = rc4(&[0; 16], session);
    let mut message = b"NTLMSSP\0".to_vec();
    message.u32(3);
    let mut at = 64;
    for length in [1, 0, 0, 0, 0, exchanged.len()] {
        message.u16(length as u16);
        message.u16(length as u16);
        message.u32(at);
        at += length as u32;
    }
    message.u32(FLAGS | 0x800);
    message.u8(0);
    message.put(&exchanged);
    message
}

#[test]
fn nobody_renews_a_session_and_begins_none() {
    let first = negotiate(FLAGS);
    for (mut acceptor, is_admitted) in [(Acceptor::renewing(), true), (Acceptor::default(), false)] {
        take(&mut acceptor, &first, NONCE).unwrap();
        match take(&mut acceptor, &nobody([7; 16]), NONCE) {
            Ok(Step::Done(done)) if is_admitted => {
                assert_eq!((done.user, done.session_key), (None, [7; 16]));
            }
            refused => assert_eq!((refused.unwrap_err().0, is_admitted), ("the logon is anonymous", false)),
        }
    }
    // A name without a proof is not nobody's, whatever the aim.
    let mut acceptor = Acceptor::renewing();
    let Ok(Step::More(challenge)) = take(&mut acceptor, &first, NONCE) else { panic!() };
    let (mut message, _) = Client::default().authenticate(&first, &challenge);
    message[20..22].fill(0);
    assert!(take(&mut acceptor, &message, NONCE).is_err());
}

#[test]
fn a_replayed_proof_does_not_open() {
    let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS));
    let Ok(Step::More(challenge)) = take(&mut acceptor, &first, NONCE) else { panic!() };
    let (message, _) = Client::default().authenticate(&first, &challenge);
    assert!(take(&mut acceptor, &message, NONCE).is_ok());
    // On the same exchange, which has ended.
    assert!(take(&mut acceptor, &message, NONCE).is_err());
    // On another, whose challenge is another.
    let mut other = Acceptor::default();
    take(&mut other, &first, [9; 8]).unwrap();
    assert_eq!(take(&mut other, &message, NONCE).unwrap_err().0, "the proof is another's");
    // Without any.
    assert!(take(&mut Acceptor::default(), &message, NONCE).is_err());
}

#[test]
fn a_truncated_exchange_does_not_open() {
    let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS));
    let Ok(Step::More(challenge)) = take(&mut acceptor, &first, NONCE) else { panic!() };
    let (message, _) = Client::default().authenticate(&first, &challenge);
    for length in 0..message.len() {
        let mut acceptor = Acceptor::default();
        take(&mut acceptor, &first, NONCE).unwrap();
        assert!(take(&mut acceptor, &message[..length], NONCE).is_err(), "{length}");
    }
}

#[test]
fn a_downgraded_exchange_does_not_open() {
    assert!(take(&mut Acceptor::default(), &negotiate(FLAGS & !0x8_0000), NONCE).is_err());
    // The client takes a flag back that it had offered: the MIC would be right, since it signs
    // that.
    let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS & !0x2000_0000));
    let Ok(Step::More(challenge)) = take(&mut acceptor, &first, NONCE) else { panic!() };
    let (message, _) = Client::default().authenticate(&first, &challenge);
    assert!(take(&mut acceptor, &message, NONCE).is_err());
    Client { other_time: true, ..Client::default() }.is_refused("the time is not that of the challenge");
    Client { other_computer: true, ..Client::default() }.is_refused("the client talks to another machine");
    // An NTLMv1 response.
    let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS));
    let Ok(Step::More(challenge)) = take(&mut acceptor, &first, NONCE) else { panic!() };
    let (mut message, _) = Client::default().authenticate(&first, &challenge);
    message[20..24].copy_from_slice(&[24, 0, 24, 0]);
    assert_eq!(take(&mut acceptor, &message, NONCE).unwrap_err().0, "the response is not of NTLMv2");
}

#[test]
fn the_list_of_mechanisms_must_be_signed_if_ntlm_is_not_its_first() {
    let run = |list: &[&[u8]], sign: Option<&[&[u8]]>| {
        let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS));
        let prefers_ntlm = list[0] == NTLMSSP;
        let token = client::init(list, if prefers_ntlm { &first } else { b"ticket" });
        let mut step = take(&mut acceptor, &token, NONCE)?;
        if !prefers_ntlm {
            let token = response(spnego::NegState::Incomplete, None, Some(&first), None);
            step = take(&mut acceptor, &token, NONCE)?;
        }
        let Step::More(challenge) = step else { unreachable!() };
        let challenge = spnego::parse_response(&challenge)?.token.unwrap();
        let (message, key) = Client::default().authenticate(&first, &challenge);
        let mic = sign.map(|list| {
            let magic = |text: &str| md5(&[&key, text.as_bytes()]);
            let signing = magic("session key to client-to-server signing key magic constant\0");
            let sealing = magic("session key to client-to-server sealing key magic constant\0");
            let digest = hmac_md5(&signing, &[&[0; 4], &client::mechanisms(list)]);
            let sealed = rc4(&sealing, digest);
            [&[1, 0, 0, 0], &sealed[..8], &[0; 4]].concat()
        });
        let token = response(spnego::NegState::Incomplete, None, Some(&message), mic.as_deref());
        take(&mut acceptor, &token, NONCE)
    };
    assert!(run(&[NTLMSSP], None).is_ok());
    assert!(run(&[NTLMSSP, KERBEROS], Some(&[NTLMSSP, KERBEROS])).is_ok());
    assert!(run(&[KERBEROS, NTLMSSP], Some(&[KERBEROS, NTLMSSP])).is_ok());
    assert!(run(&[KERBEROS, NTLMSSP], None).is_err());
    assert!(run(&[NTLMSSP], Some(&[KERBEROS, NTLMSSP])).is_err());
    assert!(run(&[KERBEROS], None).is_err());
}

/// MS-NLMP §4.2.4: the example of NTLMv2, without MIC and time, as it stands there.
#[test]
fn the_example_of_ms_nlmp_has_this_proof() {
    let key = hmac_md5(&nt_hash("Password"), &[&utf16("USERDomain")]);
    let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
    temp.u64(0);
    temp.put(&[0xaa; 8]);
    temp.u32(0);
    for (id, text) in [(2, "Domain"), (1, "Server")] {
        temp.u16(id);
        temp.u16(12);
        temp.put(&utf16(text));
    }
    temp.u64(0);
    let proof = hmac_md5(&key, &[&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef], &temp]);
    assert_eq!(proof, *b"\x68\xcd\x0a\xb8\x51\xe5\x1c\x96\xaa\xbc\x92\x7b\xeb\xef\x6a\x1c");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// A client without the password does not get in, by no message.
    #[test]
    fn forged_exchanges_are_refused(
        password in "[a-z]{0,8}", at in 0..2000_usize, byte: u8, damage: bool, flags: u32, keeps_flags: bool,
        av_flags in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..6)), mic: bool,
        key_size in 0..17_usize, garbage in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assume!(password != "secret");
        let password: &'static str = Box::leak(password.into_boxed_str());
        let flags = if keeps_flags { FLAGS } else { flags };
        let client = Client { password, av_flags, has_mic_field: mic, flags, key_size, ..Client::default() };
        let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS));
        let Ok(Step::More(challenge)) = take(&mut acceptor, &first, NONCE) else { panic!() };
        let (mut message, _) = client.authenticate(&first, &challenge);
        if damage {
            let at = at % message.len();
            message[at] = byte;
        }
        prop_assert!(take(&mut acceptor, &message, NONCE).is_err());
        for token in [&garbage[..], &client::init(&[NTLMSSP], &garbage)] {
            let mut acceptor = Acceptor::default();
            prop_assert!(!matches!(take(&mut acceptor, token, NONCE), Ok(Step::Done(_))));
        }
        let _ = ntlm::Authenticate::parse(&garbage);
    }

    /// A right exchange that is changed on the way is refused, wherever the MIC looks.
    #[test]
    fn changed_exchanges_are_refused(at in 0..2000_usize, bit in 0..8_u32) {
        let (mut acceptor, first) = (Acceptor::default(), negotiate(FLAGS));
        let Ok(Step::More(challenge)) = take(&mut acceptor, &first, NONCE) else { panic!() };
        let (mut message, _) = Client::default().authenticate(&first, &challenge);
        let at = at % message.len();
        message[at] ^= 1_u8 << bit;
        prop_assert!(take(&mut acceptor, &message, NONCE).is_err());
    }
}
