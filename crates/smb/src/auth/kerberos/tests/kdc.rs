//! A realm for tests: its tickets, its keytab, and a client's half of the exchange. Each field is
//! at choice; the default is that of a client that keeps to the protocol.

use crate::auth::der::{element, number, take};
use crate::auth::kerberos::messages::{
    BITS, INTEGER, OCTETS, SEQUENCE, TEXT, TIME as TIME_TAG, application, context, field,
};
use crate::auth::kerberos::usage;
use crate::auth::spnego::Mechanism;
use crypto::kerberos::{EncryptionKey, EncryptionType};

pub(super) const REALM: &str = "EXAMPLE.ORG";
pub(super) const HOST: &str = "files.example.org";
/// The time of all tests, seconds since 1970: 28 November 2026.
pub(super) const NOW: i64 = 1_795_842_900;
pub(super) const MUTUAL: u32 = 2;

pub(super) fn key(number: i32, fill: u8) -> EncryptionKey {
    let kind = EncryptionType::of(number).unwrap();
    EncryptionKey::new(kind, &vec![fill; kind.key_bytes()]).unwrap()
}

/// The key of the service.
pub(super) fn service_key() -> EncryptionKey {
    key(18, 0x5e)
}

/// A client with a ticket.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) options: u32,
    pub(super) ticket_realm: &'static str,
    pub(super) service: &'static [&'static str],
    /// The encryption type and the version that the ticket says.
    pub(super) ticket_kind: i32,
    pub(super) version: Option<u32>,
    pub(super) service_key: EncryptionKey,
    pub(super) flags: u32,
    pub(super) session_kind: i32,
    pub(super) session_key: EncryptionKey,
    pub(super) realm: &'static str,
    pub(super) name: &'static [&'static str],
    pub(super) authenticated: i64,
    pub(super) starts: Option<i64>,
    pub(super) ends: i64,
    pub(super) authenticator_realm: &'static str,
    pub(super) authenticator_name: &'static [&'static str],
    pub(super) authenticator_key: EncryptionKey,
    pub(super) checksum: Option<(i64, Vec<u8>)>,
    pub(super) time: i64,
    pub(super) micros: i64,
    /// The type that the subkey says, and the subkey.
    pub(super) subkey: Option<(i32, EncryptionKey)>,
    pub(super) confounder: [u8; 16],
}

/// The checksum that has the flags of a context.
pub(super) fn checksum(flags: u32) -> Vec<u8> {
    [&16_u32.to_le_bytes()[..], &[0; 16], &flags.to_le_bytes()].concat()
}

impl Default for Client {
    fn default() -> Client {
        Client {
            options: 0x2000_0000,
            ticket_realm: REALM,
            service: &["cifs", HOST],
            ticket_kind: 18,
            version: Some(3),
            service_key: service_key(),
            flags: 0x4000_0000,
            session_kind: 18,
            session_key: key(18, 0x11),
            realm: REALM,
            name: &["anna"],
            authenticated: NOW - 3600,
            starts: None,
            ends: NOW + 3600,
            authenticator_realm: REALM,
            authenticator_name: &["anna"],
            authenticator_key: key(18, 0x11),
            checksum: Some((0x8003, checksum(MUTUAL | 0x3c))),
            time: NOW,
            micros: 4711,
            subkey: Some((18, key(18, 0x22))),
            confounder: [9; 16],
        }
    }
}

/// Returns a time as messages have it.
pub(super) fn text_of(seconds: i64) -> Vec<u8> {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (mut year, mut day) = (1970, days);
    while day >= 365 + i64::from(is_leap(year)) {
        day -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{:02}{:02}{hour:02}{minute:02}{second:02}Z", month + 1, day + 1).into_bytes()
}

fn name(components: &[&str]) -> Vec<u8> {
    let all = components.iter().flat_map(|one| element(TEXT, one.as_bytes())).collect::<Vec<u8>>();
    [field(0, INTEGER, &number(1)), field(1, SEQUENCE, &all)].concat()
}

fn keyed(kind: i32, key: &EncryptionKey) -> Vec<u8> {
    [field(0, INTEGER, &number(i64::from(kind))), field(1, OCTETS, key.bytes())].concat()
}

fn flags(flags: u32) -> Vec<u8> {
    [&[0][..], &flags.to_be_bytes()].concat()
}

fn sealed(kind: i32, version: Option<u32>, cipher: &[u8]) -> Vec<u8> {
    let mut fields = field(0, INTEGER, &number(i64::from(kind)));
    if let Some(version) = version {
        fields.extend(field(1, INTEGER, &number(i64::from(version))));
    }
    fields.extend(field(2, OCTETS, cipher));
    fields
}

impl Client {
    fn ticket(&self) -> Vec<u8> {
        let transited = [field(0, INTEGER, &[1]), field(1, OCTETS, &[])].concat();
        let mut part = [
            field(0, BITS, &flags(self.flags)),
            field(1, SEQUENCE, &keyed(self.session_kind, &self.session_key)),
            field(2, TEXT, self.realm.as_bytes()),
            field(3, SEQUENCE, &name(self.name)),
            field(4, SEQUENCE, &transited),
            field(5, TIME_TAG, &text_of(self.authenticated)),
        ]
        .concat();
        if let Some(starts) = self.starts {
            part.extend(field(6, TIME_TAG, &text_of(starts)));
        }
        part.extend(field(7, TIME_TAG, &text_of(self.ends)));
        // Authorization data, which count for nothing.
        part.extend(element(context(10), &element(SEQUENCE, &[])));
        let part = element(application(3), &element(SEQUENCE, &part));
        let cipher = self.service_key.encrypt(usage::TICKET, self.confounder, &part);
        let fields = [
            field(0, INTEGER, &[5]),
            field(1, TEXT, self.ticket_realm.as_bytes()),
            field(2, SEQUENCE, &name(self.service)),
            field(3, SEQUENCE, &sealed(self.ticket_kind, self.version, &cipher)),
        ];
        element(application(1), &element(SEQUENCE, &fields.concat()))
    }

    fn authenticator(&self) -> Vec<u8> {
        let mut fields = [
            field(0, INTEGER, &[5]),
            field(1, TEXT, self.authenticator_realm.as_bytes()),
            field(2, SEQUENCE, &name(self.authenticator_name)),
        ]
        .concat();
        if let Some((kind, checksum)) = &self.checksum {
            let checksum = [field(0, INTEGER, &number(*kind)), field(1, OCTETS, checksum)].concat();
            fields.extend(field(3, SEQUENCE, &checksum));
        }
        fields.extend(field(4, INTEGER, &number(self.micros)));
        fields.extend(field(5, TIME_TAG, &text_of(self.time)));
        if let Some((kind, subkey)) = &self.subkey {
            fields.extend(field(6, SEQUENCE, &keyed(*kind, subkey)));
        }
        fields.extend(field(7, INTEGER, &number(0x7fff_ffff)));
        element(application(2), &element(SEQUENCE, &fields))
    }

    /// The token of GSS with AP-REQ.
    pub(super) fn token(&self) -> Vec<u8> {
        let key = &self.authenticator_key;
        let cipher = key.encrypt(usage::AUTHENTICATOR, self.confounder, &self.authenticator());
        let fields = [
            field(0, INTEGER, &[5]),
            field(1, INTEGER, &[14]),
            field(2, BITS, &flags(self.options)),
            element(context(3), &self.ticket()),
            field(4, SEQUENCE, &sealed(key.kind() as i32, None, &cipher)),
        ];
        let request = element(application(14), &element(SEQUENCE, &fields.concat()));
        let oid = element(0x06, Mechanism::Kerberos.oid());
        element(application(0), &[&oid, &[1, 0][..], &request].concat())
    }

    /// Reads the service's answer, which repeats the time. Returns the subkey of the service.
    pub(super) fn subkey_of(&self, reply: &[u8]) -> EncryptionKey {
        let mut frame = take(&mut &*reply, application(0)).unwrap();
        assert_eq!(take(&mut frame, 0x06).unwrap(), Mechanism::Kerberos.oid());
        let mut message = frame.strip_prefix(&[2, 0]).unwrap();
        let mut message = take(&mut message, application(15)).unwrap();
        let mut fields = take(&mut message, SEQUENCE).unwrap();
        assert_eq!(take(&mut fields, context(0)).unwrap(), element(INTEGER, &[5]));
        assert_eq!(take(&mut fields, context(1)).unwrap(), element(INTEGER, &[15]));
        let mut part = take(&mut take(&mut fields, context(2)).unwrap(), SEQUENCE).unwrap();
        assert_eq!(take(&mut part, context(0)).unwrap(), element(INTEGER, &[self.session_key.kind() as u8]));
        let cipher = take(&mut take(&mut part, context(2)).unwrap(), OCTETS).unwrap();
        let plain = self.session_key.decrypt(usage::REPLY, cipher).unwrap();
        let mut part = take(&mut &*plain, application(27)).unwrap();
        let mut fields = take(&mut part, SEQUENCE).unwrap();
        assert_eq!(take(&mut fields, context(0)).unwrap(), element(TIME_TAG, &text_of(self.time)));
        assert_eq!(take(&mut fields, context(1)).unwrap(), element(INTEGER, &number(self.micros)));
        let mut key = take(&mut take(&mut fields, context(2)).unwrap(), SEQUENCE).unwrap();
        let kind = take(&mut take(&mut key, context(0)).unwrap(), INTEGER).unwrap()[0];
        let bytes = take(&mut take(&mut key, context(1)).unwrap(), OCTETS).unwrap();
        take(&mut fields, context(3)).unwrap();
        EncryptionKey::new(EncryptionType::of(i32::from(kind)).unwrap(), bytes).unwrap()
    }
}

/// An entry of a keytab file.
pub(super) struct Entry<'a> {
    pub(super) realm: &'a str,
    pub(super) components: &'a [&'a str],
    pub(super) byte: u8,
    pub(super) kind: u16,
    pub(super) key: &'a [u8],
    pub(super) whole: Option<u32>,
}

impl Entry<'_> {
    fn bytes(&self) -> Vec<u8> {
        let counted = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
        let mut out = (self.components.len() as u16).to_be_bytes().to_vec();
        out.extend(counted(self.realm.as_bytes()));
        self.components.iter().for_each(|one| out.extend(counted(one.as_bytes())));
        out.extend([0, 0, 0, 1, 1, 2, 3, 4, self.byte]);
        out.extend(self.kind.to_be_bytes());
        out.extend(counted(self.key));
        out.extend(self.whole.iter().flat_map(|whole| whole.to_be_bytes()));
        [&(out.len() as i32).to_be_bytes()[..], &out].concat()
    }
}

/// The bytes of a keytab.
pub(super) fn keytab(entries: &[Entry<'_>]) -> Vec<u8> {
    [5, 2].into_iter().chain(entries.iter().flat_map(Entry::bytes)).collect()
}
