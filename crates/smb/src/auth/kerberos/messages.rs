//! The messages that a service of Kerberos sees (RFC 4120 §5), and the one that the service sends.

use crate::auth::der::{element, number, number_of, take, take_optional};
use crate::auth::refused::Refused;
use crate::wire::Malformed;
use crypto::kerberos::{EncryptionKey, EncryptionType};

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BITS: u8 = 0x03;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const TIME: u8 = 0x18;
pub(super) const TEXT: u8 = 0x1b;
/// The version of the protocol.
pub(super) const VERSION: i64 = 5;
/// The most components of a principal's name.
const COMPONENTS_MAX: usize = 8;

pub(super) const fn application(number: u8) -> u8 {
    0x60 | number
}

pub(super) const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// The fields of a sequence, each with its number.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Opens a sequence.
    fn of(mut bytes: &'a [u8]) -> Result<Fields<'a>, Malformed> {
        take(&mut bytes, SEQUENCE).map(Fields)
    }

    /// Opens the sequence of a message, which fills the bytes.
    fn of_message(mut bytes: &'a [u8], tag: u8) -> Result<Fields<'a>, Malformed> {
        let content = take(&mut bytes, tag)?;
        if bytes.is_empty() { Fields::of(content) } else { Err(Malformed("there is more behind a message")) }
    }

    fn element(&mut self, field: u8) -> Result<&'a [u8], Malformed> {
        take(&mut self.0, context(field))
    }

    fn typed(&mut self, field: u8, tag: u8) -> Result<&'a [u8], Malformed> {
        take(&mut self.element(field)?, tag)
    }

    fn number(&mut self, field: u8) -> Result<i64, Malformed> {
        number_of(self.typed(field, INTEGER)?)
    }

    fn small(&mut self, field: u8) -> Result<i32, Malformed> {
        i32::try_from(self.number(field)?).map_err(|_| Malformed("a number in a token is too large"))
    }

    fn text(&mut self, field: u8) -> Result<String, Malformed> {
        text_of(self.typed(field, TEXT)?)
    }

    fn name(&mut self, field: u8) -> Result<Vec<String>, Malformed> {
        let mut fields = Fields::of(self.element(field)?)?;
        // The type of a name is a hint, and does not count when names are compared (§6.2).
        fields.number(0)?;
        let mut all = fields.typed(1, SEQUENCE)?;
        let mut components = Vec::new();
        while !all.is_empty() {
            if components.len() == COMPONENTS_MAX {
                return Err(Malformed("a principal has too many components"));
            }
            components.push(text_of(take(&mut all, TEXT)?)?);
        }
        Ok(components)
    }

    fn time(&mut self, field: u8) -> Result<i64, Malformed> {
        seconds(self.typed(field, TIME)?)
    }

    fn optional(&mut self, field: u8) -> Result<Option<&'a [u8]>, Malformed> {
        take_optional(&mut self.0, context(field))
    }

    fn skip(&mut self, field: u8) -> Result<(), Malformed> {
        self.optional(field).map(drop)
    }

    /// Nothing may follow that nobody has looked at.
    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("a message has an unknown field")) }
    }
}

fn text_of(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed("a name is not in UTF-8"))
}

/// Returns the seconds since 1970 of a time in its one form, `20261128051500Z` (§5.2.3).
pub(super) fn seconds(text: &[u8]) -> Result<i64, Malformed> {
    const BAD: Malformed = Malformed("a time has another form");
    let [digits @ .., b'Z'] = text else { return Err(BAD) };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BAD);
    }
    let number = |from: usize, to: usize| {
        digits[from..to].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return Err(BAD);
    }
    // Years begin with March here, so that the day that may be missing is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + day
        - 719_469;
    Ok(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Encrypted bytes, with what says by which key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed<'a> {
    /// The number of the encryption type.
    pub(super) kind: i32,
    /// The key's version.
    pub(super) version: Option<u32>,
    pub(super) cipher: &'a [u8],
}

impl<'a> Sealed<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Sealed<'a>, Malformed> {
        let mut fields = Fields::of(bytes)?;
        let kind = fields.small(0)?;
        let version = match fields.optional(1)? {
            // Some write the top bit as a sign.
            Some(mut field) => Some(number_of(take(&mut field, INTEGER)?)? as u32),
            None => None,
        };
        let cipher = fields.typed(2, OCTETS)?;
        fields.end()?;
        Ok(Sealed { kind, version, cipher })
    }
}

/// AP-REQ (§5.5.1), with its ticket (§5.3).
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// The ticket is encrypted by the session key of another: user to user.
    pub(super) is_user_to_user: bool,
    /// The realm of the service.
    pub(super) realm: String,
    /// The name of the service.
    pub(super) service: Vec<String>,
    pub(super) ticket: Sealed<'a>,
    pub(super) authenticator: Sealed<'a>,
}

impl<'a> Request<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut fields = Fields::of_message(bytes, application(14))?;
        if fields.number(0)? != VERSION || fields.number(1)? != 14 {
            return Err(Malformed("the message is another one than AP-REQ"));
        }
        let options = flags(fields.typed(2, BITS)?)?;
        let mut ticket = Fields::of_message(fields.element(3)?, application(1))?;
        if ticket.number(0)? != VERSION {
            return Err(Malformed("the ticket is of another version"));
        }
        let (realm, service) = (ticket.text(1)?, ticket.name(2)?);
        let sealed = Sealed::parse(ticket.element(3)?)?;
        ticket.end()?;
        let authenticator = Sealed::parse(fields.element(4)?)?;
        fields.end()?;
        let is_user_to_user = options & 0x4000_0000 != 0;
        Ok(Request { is_user_to_user, realm, service, ticket: sealed, authenticator })
    }
}

/// Returns flags. The first is the highest bit (§5.2.8).
fn flags(bits: &[u8]) -> Result<u32, Malformed> {
    let bits = bits.get(1..5).ok_or(Malformed("flags have less than 32 bits"))?;
    Ok(u32::from_be_bytes(bits.try_into().expect("four bytes")))
}

/// Parses a key. One of a weak type is refused.
fn key(bytes: &[u8]) -> Result<EncryptionKey, Refused> {
    let mut fields = Fields::of(bytes)?;
    let kind = EncryptionType::of(fields.small(0)?).ok_or(super::WEAK)?;
    EncryptionKey::new(kind, fields.typed(1, OCTETS)?).ok_or(Refused("a key has another length"))
}

/// The part of a ticket that the service alone reads (§5.3).
#[derive(Debug)]
pub(super) struct TicketPart {
    /// The ticket counts only once the realm has confirmed it.
    pub(super) is_invalid: bool,
    /// The session key.
    pub(super) key: EncryptionKey,
    pub(super) realm: String,
    pub(super) client: Vec<String>,
    /// Seconds since 1970.
    pub(super) starts: i64,
    /// Seconds since 1970.
    pub(super) ends: i64,
}

impl TicketPart {
    pub(super) fn parse(bytes: &[u8]) -> Result<TicketPart, Refused> {
        let mut fields = Fields::of_message(bytes, application(3))?;
        let flags = flags(fields.typed(0, BITS)?)?;
        let key = key(fields.element(1)?)?;
        let (realm, client) = (fields.text(2)?, fields.name(3)?);
        // Realms in between: there are none, since both ends are in one.
        fields.element(4)?;
        let authenticated = fields.time(5)?;
        let starts = match fields.optional(6)? {
            Some(mut field) => seconds(take(&mut field, TIME)?)?,
            None => authenticated,
        };
        // The rest, groups of Windows (PAC) among it, counts for nothing here.
        let ends = fields.time(7)?;
        Ok(TicketPart { is_invalid: flags & 0x0100_0000 != 0, key, realm, client, starts, ends })
    }
}

/// The client's proof that it knows the session key now (§5.5.1).
#[derive(Debug)]
pub(super) struct Authenticator<'a> {
    pub(super) realm: String,
    pub(super) client: Vec<String>,
    /// The type of the checksum, and what stands in its place.
    pub(super) checksum: Option<(i64, &'a [u8])>,
    /// Seconds since 1970.
    pub(super) time: i64,
    /// The fields of the time, microseconds and seconds, which the answer repeats.
    stamp: (&'a [u8], &'a [u8]),
    pub(super) subkey: Option<EncryptionKey>,
}

impl<'a> Authenticator<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Authenticator<'a>, Refused> {
        let mut fields = Fields::of_message(bytes, application(2))?;
        if fields.number(0)? != VERSION {
            return Err(Refused("the authenticator is of another version"));
        }
        let (realm, client) = (fields.text(1)?, fields.name(2)?);
        let checksum = match fields.optional(3)? {
            Some(field) => {
                let mut checksum = Fields::of(field)?;
                Some((checksum.number(0)?, checksum.typed(1, OCTETS)?))
            }
            None => None,
        };
        let micros = fields.typed(4, INTEGER)?;
        if !(0..1_000_000).contains(&number_of(micros)?) {
            return Err(Refused("the microseconds of the authenticator are too many"));
        }
        let text = fields.typed(5, TIME)?;
        let subkey = fields.optional(6)?.map(key).transpose()?;
        // The client's first sequence number. No message is numbered by it here.
        fields.skip(7)?;
        Ok(Authenticator { realm, client, checksum, time: seconds(text)?, stamp: (micros, text), subkey })
    }

    /// Returns the AP-REP's part that proves that the service has read the authenticator (§5.5.2).
    pub(super) fn reply_part(&self, subkey: &EncryptionKey, sequence: u32) -> Vec<u8> {
        let (micros, text) = self.stamp;
        let key =
            [field(0, INTEGER, &number(subkey.kind() as i64)), field(1, OCTETS, subkey.bytes())].concat();
        let fields = [
            field(0, TIME, text),
            field(1, INTEGER, micros),
            field(2, SEQUENCE, &key),
            field(3, INTEGER, &number(i64::from(sequence))),
        ];
        element(application(27), &element(SEQUENCE, &fields.concat()))
    }
}

/// Returns a field of a sequence.
pub(super) fn field(number: u8, tag: u8, content: &[u8]) -> Vec<u8> {
    element(context(number), &element(tag, content))
}

/// Returns AP-REP (§5.5.2).
pub(super) fn reply(kind: EncryptionType, cipher: &[u8]) -> Vec<u8> {
    let sealed = [field(0, INTEGER, &number(kind as i64)), field(2, OCTETS, cipher)].concat();
    let fields = [field(0, INTEGER, &number(VERSION)), field(1, INTEGER, &[15]), field(2, SEQUENCE, &sealed)];
    element(application(15), &element(SEQUENCE, &fields.concat()))
}
