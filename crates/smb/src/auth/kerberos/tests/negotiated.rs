//! Kerberos in SPNEGO, beside NTLM and without it.

use super::kdc::{Client, NOW};
use super::{Machine, RANDOM};
use crate::auth::acceptor::{Acceptor, Authenticated, HashOf, Step, Trust};
use crate::auth::kerberos::Context;
use crate::auth::refused::Refused;
use crate::auth::spnego::{Mechanism, NegState, Side, client, hint, parse_init, parse_response, response};
use crate::auth::tests::{FLAGS, negotiate};
use crate::time::filetime;
use crypto::smb::nt_hash;
use namespace::Timestamp;

const KERBEROS: &[u8] = Mechanism::Kerberos.oid();
const OF_WINDOWS: &[u8] = Mechanism::KerberosOfWindows.oid();
const NTLM: &[u8] = Mechanism::Ntlm.oid();
/// NEGOEX, which Windows offers and this server has not.
const OTHER: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x1e];

/// A logon at a machine that has Kerberos, and NTLM if it is on.
struct Logon {
    machine: Machine,
    acceptor: Acceptor,
    has_ntlm: bool,
}

impl Logon {
    fn new(has_ntlm: bool) -> Logon {
        Logon { machine: Machine::new(), acceptor: Acceptor::default(), has_ntlm }
    }

    fn take(&mut self, token: &[u8]) -> Result<Step, Refused> {
        let (acceptor, has_ntlm) = (&mut self.acceptor, self.has_ntlm);
        let hash_of = |name: &str| (name == "anna").then(|| nt_hash("secret"));
        self.machine.serve(|service| {
            let hash_of: Option<HashOf<'_>> = if has_ntlm { Some(&hash_of) } else { None };
            let trust = Trust { computer: "box", hash_of, kerberos: Some(service) };
            acceptor.step(token, &RANDOM, filetime(Timestamp { secs: NOW, nanos: 0 }), &trust)
        })
    }

    fn more(&mut self, token: &[u8]) -> Vec<u8> {
        match self.take(token) {
            Ok(Step::More(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&mut self, token: &[u8]) -> Authenticated {
        match self.take(token) {
            Ok(Step::Done(done)) => done,
            other => panic!("{other:?}"),
        }
    }
}

/// The state in a NegTokenResp.
fn state(answer: &[u8]) -> u8 {
    let at = answer.windows(2).position(|window| window == [0x0a, 1]).unwrap();
    answer[at + 2]
}

fn next(token: Option<&[u8]>, mic: Option<&[u8]>) -> Vec<u8> {
    response(NegState::Incomplete, None, token, mic)
}

#[test]
fn the_first_token_of_kerberos_logs_on() {
    let kerberos = Client::default();
    for list in [&[KERBEROS][..], &[OF_WINDOWS, KERBEROS, OTHER, NTLM], &[KERBEROS, NTLM]] {
        for has_ntlm in [true, false] {
            let done = Logon::new(has_ntlm).is_done(&client::init(list, &kerberos.token()));
            assert_eq!((done.user.as_deref(), done.session_key), (Some("anna"), [0x33; 16]));
            assert_eq!(done.full_session_key, [0x33; 32]);
            assert_eq!(state(&done.token), NegState::Completed as u8);
            // The answer calls the mechanism as the client has.
            assert!(done.token.windows(list[0].len()).any(|window| window == list[0]));
            let answer = parse_response(&done.token).unwrap();
            assert_eq!(kerberos.subkey_of(&answer.token.unwrap()).bytes(), [0x33; 32]);
            assert!(!format!("{done:?}").contains("51"), "the key is in what may be logged");
        }
    }
}

#[test]
fn a_ticket_may_come_after_the_list() {
    let mut logon = Logon::new(false);
    let answer = logon.more(&client::bare_init(&[KERBEROS, NTLM]));
    assert_eq!((state(&answer), parse_response(&answer).unwrap().mic), (NegState::Incomplete as u8, None));
    logon.is_done(&next(Some(&Client::default().token()), None));
}

/// The client's half: its signature with the service's subkey.
fn signed(list: &[&[u8]], of: Side) -> Vec<u8> {
    let key = super::key(18, 0x33);
    Context { key, is_acceptors: true, sequence: 5 }.mic(of, &client::mechanisms(list))
}

#[test]
fn the_list_is_signed_if_kerberos_is_not_its_first() {
    let list = &[OTHER, KERBEROS, NTLM][..];
    let begin = || {
        let mut logon = Logon::new(true);
        let answer = logon.more(&client::init(list, b"of the other"));
        assert_eq!(state(&answer), NegState::RequestMic as u8);
        let answer = logon.more(&next(Some(&Client::default().token()), None));
        assert_eq!(state(&answer), NegState::Incomplete as u8);
        let own = parse_response(&answer).unwrap().mic.unwrap();
        let context = Context { key: super::key(18, 0x33), is_acceptors: true, sequence: 0x0ccc_cccc };
        assert_eq!(own, context.mic(Side::Server, &client::mechanisms(list)));
        logon
    };
    let right = signed(list, Side::Client);
    let done = begin().is_done(&next(None, Some(&right)));
    assert_eq!((done.user.as_deref(), state(&done.token)), (Some("anna"), NegState::Completed as u8));
    for wrong in [
        None,
        Some(&[][..]),
        Some(&right[1..]),
        Some(&signed(&[KERBEROS, NTLM], Side::Client)),
        Some(&signed(list, Side::Server)),
    ] {
        let mut logon = begin();
        assert!(logon.take(&next(None, wrong)).is_err(), "{wrong:?}");
        assert!(logon.take(&next(None, Some(&right))).is_err(), "after a refusal");
    }
    for bit in 0..8 * right.len() {
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(begin().take(&next(None, Some(&wrong))).is_err(), "bit {bit}");
    }
}

#[test]
fn a_client_is_not_talked_down_to_ntlm() {
    let first = negotiate(FLAGS);
    let why = |logon: &mut Logon, token: &[u8]| logon.take(token).expect_err("it is refused").0;
    for token in [&first[..], &client::init(&[NTLM], &first), &client::init(&[OTHER, NTLM], b"x")] {
        assert_eq!(why(&mut Logon::new(false), token), "NTLM is switched off");
        assert!(matches!(Logon::new(true).take(token), Ok(Step::More(_))));
    }
    // NTLM comes where a ticket was agreed on.
    assert!(Logon::new(false).take(&client::init(&[KERBEROS, NTLM], &first)).is_err());
    let mut logon = Logon::new(true);
    logon.more(&client::bare_init(&[KERBEROS, NTLM]));
    assert!(logon.take(&next(Some(&first), None)).is_err());
    // NTLM is the client's first choice and is off: Kerberos, and both sign the list.
    let mut logon = Logon::new(false);
    assert_eq!(state(&logon.more(&client::init(&[NTLM, KERBEROS], &first))), NegState::RequestMic as u8);
    logon.more(&next(Some(&Client::default().token()), None));
    assert_eq!(why(&mut logon, &next(None, None)), "the list of mechanisms is not signed");
    assert_eq!(
        why(&mut Logon::new(true), &client::init(&[OTHER], b"")),
        "the client offers no mechanism that is served here"
    );
}

#[test]
fn a_refused_ticket_ends_the_logon() {
    let late = Client { ends: NOW - 1000, ..Client::default() };
    let mut logon = Logon::new(true);
    assert!(logon.take(&client::init(&[KERBEROS, NTLM], &late.token())).is_err());
    for token in [client::init(&[KERBEROS], &Client::default().token()), negotiate(FLAGS)] {
        assert_eq!(logon.take(&token).expect_err("it is refused").0, "the logon has ended");
    }
}

#[test]
fn the_server_offers_what_it_has() {
    for (has_kerberos, has_ntlm, count) in [(true, true, 3), (true, false, 2), (false, true, 1)] {
        let has = |mechanism| if mechanism == Mechanism::Ntlm { has_ntlm } else { has_kerberos };
        let offered = parse_init(&hint(has)).unwrap().offered;
        let wanted = Mechanism::ALL.into_iter().filter(|mechanism| has(*mechanism)).map(Some);
        assert_eq!((offered.len(), offered), (count, wanted.collect()));
    }
}
