//! Tokens of SPNEGO (RFC 4178, MS-SPNG §2.2).

use super::der::{element, take, take_any, take_optional};
use crate::wire::Malformed;

const APPLICATION: u8 = 0x60;
const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const SPNEGO: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x02];
/// The mechanism NTLMSSP, 1.3.6.1.4.1.311.2.2.10.
pub const NTLMSSP: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x0a];

/// The longest list of mechanisms, which is kept until it is signed.
const MECHANISMS_BYTES_MAX: usize = 1 << 10;

const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// The first token of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// The list of mechanisms in DER, which mechListMIC signs.
    pub mechanisms: Vec<u8>,
    /// NTLMSSP is in the list.
    pub has_ntlm: bool,
    /// NTLMSSP is the first of the list.
    pub prefers_ntlm: bool,
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
    let (mut has_ntlm, mut prefers_ntlm, mut count) = (false, false, 0);
    while !mechanisms.is_empty() {
        let is_ntlm = take(&mut mechanisms, OID)? == NTLMSSP;
        prefers_ntlm |= is_ntlm && count == 0;
        has_ntlm |= is_ntlm;
        count += 1;
    }
    take_optional(&mut fields, context(1))?;
    let token = match take_optional(&mut fields, context(2))? {
        Some(mut field) => Some(take(&mut field, OCTETS)?.to_vec()),
        None => None,
    };
    Ok(Init { mechanisms: list.to_vec(), has_ntlm, prefers_ntlm, token })
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

/// Returns the NegTokenInit2 of NEGOTIATE's answer (MS-SPNG §2.2.1): NTLMSSP is the mechanism.
pub fn hint() -> Vec<u8> {
    let list = element(context(0), &element(SEQUENCE, &element(OID, NTLMSSP)));
    // negHints.hintName, a constant that clients ignore.
    let name = element(context(0), &element(0x1b, b"not_defined_in_RFC4178@please_ignore"));
    let hints = element(context(3), &element(SEQUENCE, &name));
    let fields = element(SEQUENCE, &[list, hints].concat());
    element(APPLICATION, &[element(OID, SPNEGO), element(context(0), &fields)].concat())
}

/// Returns NegTokenResp.
pub fn response(state: NegState, names_ntlm: bool, token: Option<&[u8]>, mic: Option<&[u8]>) -> Vec<u8> {
    let mut fields = element(context(0), &element(ENUMERATED, &[state as u8]));
    if names_ntlm {
        fields.extend(element(context(1), &element(OID, NTLMSSP)));
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
    use super::*;

    /// Returns a list of mechanisms.
    pub fn mechanisms(list: &[&[u8]]) -> Vec<u8> {
        element(SEQUENCE, &list.iter().flat_map(|oid| element(OID, oid)).collect::<Vec<u8>>())
    }

    /// Returns NegTokenInit.
    pub fn init(list: &[&[u8]], token: &[u8]) -> Vec<u8> {
        let fields =
            [element(context(0), &mechanisms(list)), element(context(2), &element(OCTETS, token))].concat();
        let choice = element(context(0), &element(SEQUENCE, &fields));
        element(APPLICATION, &[element(OID, SPNEGO), choice].concat())
    }
}
