//! Tokens of SPNEGO (RFC 4178, MS-SPNG §2.2).

use super::der::{element, take, take_any, take_optional};
use crate::wire::Malformed;

const APPLICATION: u8 = 0x60;
const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const SPNEGO: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x02];

/// The longest list of mechanisms, which is kept until it is signed.
const MECHANISMS_BYTES_MAX: usize = 1 << 10;

/// A mechanism of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Kerberos, by the number that Windows has for it, 1.2.840.48018.1.2.2: a slip that has stayed
    /// (MS-SPNG §3.2.5.2). Clients that ask so are answered so.
    KerberosOfWindows,
    /// Kerberos, 1.2.840.113554.1.2.2 (RFC 4121).
    Kerberos,
    /// NTLMSSP, 1.3.6.1.4.1.311.2.2.10.
    Ntlm,
}

impl Mechanism {
    /// All, in the order of preference.
    pub const ALL: [Mechanism; 3] = [Mechanism::KerberosOfWindows, Mechanism::Kerberos, Mechanism::Ntlm];

    /// Returns the content of the object identifier.
    pub const fn oid(self) -> &'static [u8] {
        match self {
            Mechanism::KerberosOfWindows => &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 0x01, 0x02, 0x02],
            Mechanism::Kerberos => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02],
            Mechanism::Ntlm => &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x0a],
        }
    }
}

/// The side that signs a list of mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// The first token of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// The list of mechanisms in DER, which mechListMIC signs.
    pub mechanisms: Vec<u8>,
    /// The same list, as far as the mechanisms are known.
    pub offered: Vec<Option<Mechanism>>,
    /// The first token of the mechanism that the client prefers.
    pub token: Option<Vec<u8>>,
}

/// A later token of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The mechanism's token.
    pub token: Option<Vec<u8>>,
    /// mechListMIC.
    pub mic: Option<Vec<u8>>,
}

/// The state of the negotiation, in the server's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NegState {
    /// accept-completed.
    Completed = 0,
    /// accept-incomplete.
    Incomplete = 1,
    /// request-mic.
    RequestMic = 3,
}

/// Parses NegTokenInit in the frame of GSS (RFC 2743 §3.1).
pub fn parse_init(mut bytes: &[u8]) -> Result<Init, Malformed> {
    let mut inner = take(&mut bytes, APPLICATION)?;
    if take(&mut inner, OID)? != SPNEGO {
        return Err(Malformed("the token is not of SPNEGO"));
    }
    let mut choice = take(&mut inner, context(0))?;
    let mut fields = take(&mut choice, SEQUENCE)?;
    let list = take(&mut fields, context(0))?;
    if list.len() > MECHANISMS_BYTES_MAX {
        return Err(Malformed("the list of mechanisms is too long"));
    }
    let mut mechanisms = take(&mut &*list, SEQUENCE)?;
    let mut offered = Vec::new();
    while !mechanisms.is_empty() {
        let oid = take(&mut mechanisms, OID)?;
        offered.push(Mechanism::ALL.into_iter().find(|mechanism| mechanism.oid() == oid));
    }
    take_optional(&mut fields, context(1))?;
    let token = match take_optional(&mut fields, context(2))? {
        Some(mut field) => Some(take(&mut field, OCTETS)?.to_vec()),
        None => None,
    };
    Ok(Init { mechanisms: list.to_vec(), offered, token })
}

impl Init {
    /// Returns the first mechanism that the server has, too, and whether the client prefers it to
    /// all others.
    pub fn choose(&self, has: impl Fn(Mechanism) -> bool) -> Option<(Mechanism, bool)> {
        let found = self
            .offered
            .iter()
            .enumerate()
            .find_map(|(at, offered)| Some((at, (*offered)?)).filter(|(_, mechanism)| has(*mechanism)));
        found.map(|(at, mechanism)| (mechanism, at == 0))
    }
}

/// Parses NegTokenResp.
pub fn parse_response(mut bytes: &[u8]) -> Result<Response, Malformed> {
    let mut choice = take(&mut bytes, context(1))?;
    let mut fields = take(&mut choice, SEQUENCE)?;
    let mut response = Response::default();
    while !fields.is_empty() {
        match take_any(&mut fields)? {
            (tag, mut field) if tag == context(2) => {
                response.token = Some(take(&mut field, OCTETS)?.to_vec())
            }
            (tag, mut field) if tag == context(3) => response.mic = Some(take(&mut field, OCTETS)?.to_vec()),
            _ => {}
        }
    }
    Ok(response)
}

/// Returns the NegTokenInit2 of NEGOTIATE's answer (MS-SPNG §2.2.1), with the server's mechanisms.
pub fn hint(has: impl Fn(Mechanism) -> bool) -> Vec<u8> {
    let ours = Mechanism::ALL.into_iter().filter(|mechanism| has(*mechanism));
    let list = ours.flat_map(|mechanism| element(OID, mechanism.oid())).collect::<Vec<u8>>();
    let list = element(context(0), &element(SEQUENCE, &list));
    // negHints.hintName, a constant that clients ignore.
    let name = element(context(0), &element(0x1b, b"not_defined_in_RFC4178@please_ignore"));
    let hints = element(context(3), &element(SEQUENCE, &name));
    let fields = element(SEQUENCE, &[list, hints].concat());
    element(APPLICATION, &[element(OID, SPNEGO), element(context(0), &fields)].concat())
}

/// Returns NegTokenResp.
pub fn response(
    state: NegState,
    chosen: Option<Mechanism>,
    token: Option<&[u8]>,
    mic: Option<&[u8]>,
) -> Vec<u8> {
    let mut fields = element(context(0), &element(ENUMERATED, &[state as u8]));
    if let Some(mechanism) = chosen {
        fields.extend(element(context(1), &element(OID, mechanism.oid())));
    }
    for (number, octets) in [(2, token), (3, mic)] {
        if let Some(octets) = octets {
            fields.extend(element(context(number), &element(OCTETS, octets)));
        }
    }
    element(context(1), &element(SEQUENCE, &fields))
}

/// Returns the tokens of a client, for tests.
#[cfg(test)]
pub mod client {
    use crate::auth::spnego::*;

    /// Returns a list of mechanisms.
    pub fn mechanisms(list: &[&[u8]]) -> Vec<u8> {
        element(SEQUENCE, &list.iter().flat_map(|oid| element(OID, oid)).collect::<Vec<u8>>())
    }

    /// Returns NegTokenInit without a token.
    pub fn bare_init(list: &[&[u8]]) -> Vec<u8> {
        wrapped(&element(context(0), &mechanisms(list)))
    }

    /// Returns NegTokenInit.
    pub fn init(list: &[&[u8]], token: &[u8]) -> Vec<u8> {
        let token = element(context(2), &element(OCTETS, token));
        wrapped(&[element(context(0), &mechanisms(list)), token].concat())
    }

    fn wrapped(fields: &[u8]) -> Vec<u8> {
        let choice = element(context(0), &element(SEQUENCE, fields));
        element(APPLICATION, &[element(OID, SPNEGO), choice].concat())
    }
}
