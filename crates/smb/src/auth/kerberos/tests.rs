//! A service before clients that have a ticket, and clients that ought to have another one.

mod kdc;
mod keytabs;
mod negotiated;

use super::messages::seconds;
use super::{Accepted, Keytab, RANDOM_BYTES, REPLAYS_MAX, Replays, Service};
use crate::auth::refused::Refused;
use crate::time::filetime;
use kdc::{Client, Entry, HOST, MUTUAL, NOW, REALM, checksum, key, service_key, text_of};
use namespace::Timestamp;
use proptest::prelude::*;

const RANDOM: [u8; RANDOM_BYTES] = [0x33; RANDOM_BYTES];

/// A machine whose user is anna.
pub(super) struct Machine {
    keytab: Keytab,
    replays: Replays,
}

impl Machine {
    /// The keys of one service, of each type, of version 3, and those of two others.
    pub(super) fn new() -> Machine {
        let (keys, host) = ([17, 18, 19, 20].map(|kind| key(kind, 0x5e)), ["host", HOST]);
        let entry = |kind: usize, components, whole| Entry {
            realm: REALM,
            components,
            byte: 3,
            kind: kind as u16 + 17,
            key: keys[kind].bytes(),
            whole: Some(whole),
        };
        let mut entries = (0..4).map(|kind| entry(kind, &["cifs", HOST], 3)).collect::<Vec<_>>();
        entries.push(entry(1, &host, 3));
        entries.push(entry(1, &["cifs", "old.example.org"], 0x103));
        Machine { keytab: Keytab::parse(&kdc::keytab(&entries)).unwrap(), replays: Replays::default() }
    }

    /// Gives the service that the machine is.
    pub(super) fn serve<T>(&self, act: impl FnOnce(Service<'_>) -> T) -> T {
        let keytab = || Some(self.keytab.clone());
        let is_user = |name: &str| name.to_lowercase() == "anna";
        act(Service { keytab: &keytab, replays: &self.replays, is_user: &is_user })
    }

    fn accept_at(&self, token: &[u8], now: i64) -> Result<Accepted, Refused> {
        self.serve(|service| service.accept(token, filetime(Timestamp { secs: now, nanos: 0 }), &RANDOM))
    }

    fn accept(&self, token: &[u8]) -> Result<Accepted, Refused> {
        self.accept_at(token, NOW)
    }
}

impl Client {
    fn is_accepted(&self) -> Accepted {
        Machine::new().accept(&self.token()).unwrap_or_else(|refused| panic!("{refused}: {self:?}"))
    }

    fn is_refused(&self, why: &str) {
        let refused = Machine::new().accept(&self.token()).expect_err("it is refused");
        assert_eq!(refused.0, why, "{self:?}");
    }
}

#[test]
fn a_ticket_opens_and_both_sides_have_the_key() {
    for number in 17..21 {
        for subkey in [None, Some(17), Some(20)] {
            let client = Client {
                ticket_kind: number,
                service_key: key(number, 0x5e),
                session_kind: number,
                session_key: key(number, 0x11),
                authenticator_key: key(number, 0x11),
                subkey: subkey.map(|kind| (kind, key(kind, 0x22))),
                ..Client::default()
            };
            let accepted = client.is_accepted();
            assert_eq!(accepted.user, "anna");
            let both = client.subkey_of(&accepted.reply.unwrap());
            assert_eq!(both, key(subkey.unwrap_or(number), 0x33));
            assert_eq!(accepted.context.session_key(), [0x33; 16]);
            assert_eq!(accepted.context.full_session_key(), both.bytes());
        }
    }
}

/// The kernel's cifs wants no proof of the service.
#[test]
fn without_a_reply_the_key_is_the_clients() {
    let client = Client { options: 0, checksum: Some((0x8003, checksum(0))), ..Client::default() };
    let accepted = client.is_accepted();
    assert_eq!((accepted.reply, accepted.context.full_session_key()), (None, &[0x22; 32][..]));
    let accepted = Client { subkey: None, ..client }.is_accepted();
    assert_eq!(accepted.context.full_session_key(), &[0x11; 32][..]);
}

#[test]
fn an_expired_ticket() {
    let accepted = Client { ends: NOW - 300, ..Client::default() }.is_accepted();
    assert_eq!(accepted.expires, filetime(Timestamp { secs: NOW - 300, nanos: 0 }));
    Client { ends: NOW - 301, ..Client::default() }.is_refused("the ticket has expired");
}

#[test]
fn a_ticket_that_is_not_valid_yet() {
    let later = Client { authenticated: NOW + 301, ends: NOW + 7200, ..Client::default() };
    later.is_refused("the ticket is not valid yet");
    Client { authenticated: NOW + 300, ..later.clone() }.is_accepted();
    // The start counts, where there is one.
    Client { starts: Some(NOW), ..later.clone() }.is_accepted();
    Client { starts: Some(NOW + 301), authenticated: NOW, ..later }.is_refused("the ticket is not valid yet");
    Client { flags: 0x0100_0000, ..Client::default() }.is_refused("the ticket is not valid yet");
}

#[test]
fn a_ticket_for_another_service() {
    for service in [&["cifs", "other.example.org"][..], &["host", HOST], &["http", HOST], &["cifsx", HOST]] {
        Client { service, ..Client::default() }.is_refused("the ticket is for another service");
    }
    for service in [&[][..], &["cifs"], &[HOST], &["cifs", HOST, ""], &["cifs", HOST, REALM]] {
        Client { service, ..Client::default() }
            .is_refused("the ticket is for a principal that is no service");
    }
    // The name is right, and the key is another service's.
    Client { service_key: key(18, 0x5f), ..Client::default() }
        .is_refused("the ticket is encrypted with another key than the keytab's");
    // Windows writes the name as its user does.
    Client { service: &["CIFS", "Files.Example.ORG"], ..Client::default() }.is_accepted();
}

#[test]
fn another_realm() {
    let other = "EXAMPLE.COM";
    Client { ticket_realm: other, ..Client::default() }.is_refused("the ticket is of another realm");
    Client { ticket_realm: "example.org", ..Client::default() }.is_refused("the ticket is of another realm");
    Client { realm: other, authenticator_realm: other, ..Client::default() }
        .is_refused("the client is of another realm");
}

#[test]
fn another_version_of_the_key() {
    for version in [0, 2, 4, 0x103, u32::MAX] {
        Client { version: Some(version), ..Client::default() }
            .is_refused("the keytab has no key of the ticket's version");
    }
    Client { version: None, ..Client::default() }.is_accepted();
    let old = Client { service: &["cifs", "old.example.org"], ..Client::default() };
    old.is_refused("the keytab has no key of the ticket's version");
    Client { version: Some(0x103), ..old }.is_accepted();
}

#[test]
fn a_weak_encryption_type() {
    // DES, triple DES, RC4, and none that anybody knows.
    for kind in [1, 3, 16, 23, 24, 0, -135, 99] {
        let why = "the encryption type is weak or unknown";
        Client { ticket_kind: kind, ..Client::default() }.is_refused(why);
        Client { session_kind: kind, ..Client::default() }.is_refused(why);
        Client { subkey: Some((kind, key(17, 1))), ..Client::default() }.is_refused(why);
    }
    Client { session_kind: 17, ..Client::default() }.is_refused("a key has another length");
    Client { authenticator_key: key(17, 0x11), ..Client::default() }
        .is_refused("the authenticator has another encryption type than the session key");
}

#[test]
fn anothers_authenticator() {
    let why = "the authenticator is another client's";
    Client { authenticator_name: &["bert"], ..Client::default() }.is_refused(why);
    Client { name: &["bert"], ..Client::default() }.is_refused(why);
    Client { authenticator_name: &["Anna"], ..Client::default() }.is_refused(why);
    Client { authenticator_realm: "EXAMPLE.COM", ..Client::default() }.is_refused(why);
    Client { authenticator_key: key(18, 0x12), ..Client::default() }
        .is_refused("the authenticator is encrypted with another key than the session's");
}

#[test]
fn a_clock_that_is_off() {
    for time in [NOW - 300, NOW + 300] {
        Client { time, ..Client::default() }.is_accepted();
    }
    for time in [NOW - 301, NOW + 301, 0] {
        Client { time, ..Client::default() }.is_refused("the client's clock is more than 5 minutes off");
    }
    Client { micros: 1_000_000, ..Client::default() }
        .is_refused("the microseconds of the authenticator are too many");
}

#[test]
fn another_checksum() {
    let right = checksum(MUTUAL);
    for kind in [0, 7, 15, 16, 0x8002, 0x8004, -32765] {
        Client { checksum: Some((kind, right.clone())), ..Client::default() }
            .is_refused("the authenticator's checksum is not of GSS");
    }
    for length in 0..right.len() {
        Client { checksum: Some((0x8003, right[..length].to_vec())), ..Client::default() }
            .is_refused("the authenticator's checksum is malformed");
    }
    let other = [&[15], &right[1..]].concat();
    Client { checksum: Some((0x8003, other)), ..Client::default() }
        .is_refused("the authenticator's checksum is malformed");
    Client { checksum: None, ..Client::default() }.is_refused("the authenticator has no checksum");
    Client { checksum: Some((0x8003, checksum(MUTUAL | 0x1000))), ..Client::default() }
        .is_refused("the client wants the third message of DCE");
    // Delegated credentials behind it are left alone.
    let more = [&right[..], &[1, 0, 2, 0, 7, 7]].concat();
    Client { checksum: Some((0x8003, more)), ..Client::default() }.is_accepted();
}

#[test]
fn principals_that_are_no_users() {
    for name in [&["anna", "admin"][..], &["host", HOST], &["WELLKNOWN", "ANONYMOUS"], &[]] {
        Client { name, authenticator_name: name, ..Client::default() }
            .is_refused("the client is no user's principal");
    }
    for name in [&["bert"][..], &[""], &["anna@EXAMPLE.ORG"], &["FILES$"]] {
        Client { name, authenticator_name: name, ..Client::default() }.is_refused("the user is unknown");
    }
    Client { options: 0x4000_0000, ..Client::default() }.is_refused("the ticket is from user to user");
}

#[test]
fn a_replayed_authenticator() {
    let (machine, token) = (Machine::new(), Client::default().token());
    assert!(machine.accept(&token).is_ok());
    let again = |now| machine.accept_at(&token, now).expect_err("it is refused").0;
    assert_eq!(again(NOW), "the authenticator was used before");
    assert_eq!(again(NOW + 300), "the authenticator was used before");
    assert_eq!(again(NOW - 300), "the authenticator was used before");
    // Once it is forgotten, its time is over.
    assert_eq!(again(NOW + 301), "the client's clock is more than 5 minutes off");
    // Another one with the same ticket at the same time.
    assert!(machine.accept(&Client { confounder: [8; 16], ..Client::default() }.token()).is_ok());
}

#[test]
fn the_memory_of_authenticators_has_a_bound() {
    let replays = Replays::default();
    for number in 0..REPLAYS_MAX {
        replays.admit("anna", &number.to_le_bytes(), NOW + 300, NOW).unwrap();
    }
    let more = |user, now| replays.admit(user, b"one more", now + 300, now).map_err(|refused| refused.0);
    assert_eq!(more("Anna", NOW + 300), Err("the user logs on too often"));
    assert_eq!(more("bert", NOW), Ok(()));
    assert_eq!(more("anna", NOW + 301), Ok(()));
}

#[test]
fn a_truncated_token() {
    let token = Client::default().token();
    for length in 0..token.len() {
        assert!(Machine::new().accept(&token[..length]).is_err(), "{length} bytes");
    }
    assert!(Machine::new().accept(&[&token[..], &[0]].concat()).is_err());
}

/// The flags of AP-REQ, and the type of the service's name, are in nobody's signature. They change
/// nothing; all else is refused.
#[test]
fn every_bit_of_the_request() {
    let (client, mut free) = (Client::default(), 0);
    let token = client.token();
    for bit in 0..8 * token.len() {
        let mut changed = token.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(accepted) = Machine::new().accept(&changed) {
            assert_eq!((&accepted.user[..], accepted.context.session_key()), ("anna", [0x33; 16]));
            assert_eq!(client.subkey_of(&accepted.reply.unwrap()), key(18, 0x33));
            free += 1;
        }
    }
    // 31 flags and 8 bits unused, 8 bits of the type, and letters of two names without their case.
    let letters = "cifs".len() + HOST.bytes().filter(u8::is_ascii_alphabetic).count();
    assert_eq!(free, 31 + 8 + 8 + letters);
}

#[test]
fn times_have_one_form() {
    assert_eq!(seconds(b"20261128051500Z"), Ok(NOW));
    assert_eq!(seconds(b"19700101000000Z"), Ok(0));
    for bad in [&b""[..], b"Z", b"20261128051500", b"20261128051500z", b"202611280515Z", b"20261328051500Z"] {
        assert!(seconds(bad).is_err());
    }
    for bad in [&b"20260028051500Z"[..], b"20261128241500Z", b"2026112805+500Z", b"20261128051500.0Z"] {
        assert!(seconds(bad).is_err());
    }
}

proptest! {
    #[test]
    fn times_are_read_as_they_are_written(time in 0..253_402_300_800_i64) {
        prop_assert_eq!(seconds(&text_of(time)), Ok(time));
    }

    /// Somebody without the keys does not get in, by no token.
    #[test]
    fn forged_tokens_are_refused(
        garbage in proptest::collection::vec(any::<u8>(), 0..300), fill: u8, cut: proptest::sample::Index,
        with in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        prop_assume!(fill != 0x5e);
        prop_assert!(Machine::new().accept(&garbage).is_err());
        let forged = Client { service_key: key(18, fill), ..Client::default() }.token();
        prop_assert!(Machine::new().accept(&forged).is_err());
        // Bytes put in anywhere, whatever they are.
        let mut token = Client::default().token();
        let at = cut.index(token.len());
        token.splice(at..at, with.iter().copied());
        let is_changed = token != Client::default().token();
        prop_assert!(!is_changed || Machine::new().accept(&token).is_err());
    }
}

#[test]
fn the_key_of_the_service_is_not_in_what_is_logged() {
    let machine = Machine::new();
    let text = format!("{:?}", machine.keytab);
    assert!(text.contains("EncryptionKey(Aes256Sha1, ..)"), "{text}");
    let secret = service_key().bytes()[..2].iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    assert!(!text.contains(&secret), "{text}");
}
