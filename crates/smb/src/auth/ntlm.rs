//! The messages of NTLM (MS-NLMP §2.2.1), and the check of a client's proof (§3.3.2).

use super::refused::Refused;
use super::spnego::Side;
use crate::wire::{Reader, Writer, utf16};
use crypto::smb::{are_equal, hmac_md5, hmac_md5_is, md5, rc4};

const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
/// The bytes of AUTHENTICATE before its payload, if it has a MIC.
const MIC_AT: usize = 72;
const MIC_END: usize = 88;
/// The bytes of an NTLMv2 response before its pairs: proof and the fixed part of the client's
/// challenge (§2.2.2.7).
const PROOF: usize = 16;
const BEFORE_PAIRS: usize = PROOF + 28;
/// The longest message that is looked at.
const BYTES_MAX: usize = 16 << 10;
/// The longest NEGOTIATE message, which is kept until the proof comes. It has two names at most.
const NEGOTIATE_BYTES_MAX: usize = 1 << 10;

pub(super) const ANONYMOUS: Refused = Refused("the logon is anonymous");

/// NegotiateFlags (§2.2.2.5).
mod flag {
    pub const UNICODE: u32 = 0x1;
    pub const REQUEST_TARGET: u32 = 0x4;
    pub const SIGN: u32 = 0x10;
    pub const SEAL: u32 = 0x20;
    pub const NTLM: u32 = 0x200;
    pub const ANONYMOUS: u32 = 0x800;
    pub const ALWAYS_SIGN: u32 = 0x8000;
    pub const TARGET_SERVER: u32 = 0x2_0000;
    pub const EXTENDED_SECURITY: u32 = 0x8_0000;
    pub const TARGET_INFO: u32 = 0x80_0000;
    pub const VERSION: u32 = 0x200_0000;
    pub const KEY_128: u32 = 0x2000_0000;
    pub const KEY_EXCHANGE: u32 = 0x4000_0000;
    pub const KEY_56: u32 = 0x8000_0000;
}

/// The attribute-value pairs (§2.2.2.1) that count here.
mod pair {
    pub const END: u16 = 0;
    pub const COMPUTER: u16 = 1;
    pub const DOMAIN: u16 = 2;
    pub const DNS_COMPUTER: u16 = 3;
    pub const DNS_DOMAIN: u16 = 4;
    pub const FLAGS: u16 = 6;
    pub const TIMESTAMP: u16 = 7;
    /// The bit of FLAGS: there is a MIC.
    pub const HAS_MIC: u32 = 2;
}

/// A challenge that was sent.
#[derive(Clone, Debug)]
pub struct Challenge {
    negotiate: Vec<u8>,
    message: Vec<u8>,
    nonce: [u8; 8],
    timestamp: u64,
    computer: Vec<u8>,
    flags: u32,
}

/// A proof that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// ExportedSessionKey.
    pub session_key: [u8; 16],
    /// Messages of the mechanism may be signed with 128 bits: mechListMIC can be.
    pub can_sign: bool,
    seals_mic: bool,
}

fn begin(message: &[u8], kind: u32) -> Result<Reader<'_>, Refused> {
    if message.len() > BYTES_MAX {
        return Err(Refused("the message is too long"));
    }
    let mut reader = Reader::new(message);
    if reader.take(8)? != SIGNATURE || reader.u32()? != kind {
        return Err(Refused("the message is another one"));
    }
    Ok(reader)
}

/// Reads the fields of a buffer, and returns it.
fn buffer<'a>(message: &'a [u8], reader: &mut Reader<'_>) -> Result<&'a [u8], Refused> {
    let (length, _, offset) = (reader.u16()?, reader.u16()?, reader.u32()?);
    Ok(Reader::buffer(message, offset as usize, usize::from(length))?)
}

/// Returns whether a token is a bare message of NTLM, without SPNEGO.
pub fn is_bare(token: &[u8]) -> bool {
    token.starts_with(SIGNATURE)
}

impl Challenge {
    /// Answers a NEGOTIATE message. `timestamp` is a FILETIME; `computer` is this machine's name.
    pub fn answer(
        negotiate: &[u8],
        nonce: [u8; 8],
        timestamp: u64,
        computer: &str,
    ) -> Result<Challenge, Refused> {
        let wanted = begin(negotiate, 1)?.u32()?;
        if negotiate.len() > NEGOTIATE_BYTES_MAX {
            return Err(Refused("the message is too long"));
        }
        if wanted & flag::UNICODE == 0 || wanted & flag::EXTENDED_SECURITY == 0 {
            return Err(Refused("the client offers NTLMv1 alone"));
        }
        let optional = flag::SIGN
            | flag::SEAL
            | flag::ALWAYS_SIGN
            | flag::VERSION
            | flag::KEY_128
            | flag::KEY_EXCHANGE
            | flag::KEY_56;
        let flags = (wanted & optional)
            | flag::UNICODE
            | flag::REQUEST_TARGET
            | flag::NTLM
            | flag::EXTENDED_SECURITY
            | flag::TARGET_SERVER
            | flag::TARGET_INFO;
        let computer = utf16(&computer.to_uppercase());
        let dns = utf16(&String::from_utf16_lossy(&crate::wire::units(&computer)?).to_lowercase());
        let mut info = Vec::new();
        for (id, value) in [
            (pair::DOMAIN, &computer),
            (pair::COMPUTER, &computer),
            (pair::DNS_DOMAIN, &dns),
            (pair::DNS_COMPUTER, &dns),
            (pair::TIMESTAMP, &timestamp.to_le_bytes().to_vec()),
            (pair::END, &Vec::new()),
        ] {
            info.u16(id);
            info.u16(value.len() as u16);
            info.put(value);
        }
        let mut message = SIGNATURE.to_vec();
        message.u32(2);
        let field = |message: &mut Vec<u8>, length: usize, at: usize| {
            message.u16(length as u16);
            message.u16(length as u16);
            message.u32(at as u32);
        };
        field(&mut message, computer.len(), 56);
        message.u32(flags);
        message.put(&nonce);
        message.u64(0);
        field(&mut message, info.len(), 56 + computer.len());
        // Version 6.1 build 7600, NTLM revision 15.
        message.put(&[6, 1, 0xb0, 0x1d, 0, 0, 0, 15]);
        message.put(&computer);
        message.put(&info);
        Ok(Challenge { negotiate: negotiate.to_vec(), message, nonce, timestamp, computer, flags })
    }

    /// Returns the CHALLENGE message.
    pub fn message(&self) -> &[u8] {
        &self.message
    }
}

/// An AUTHENTICATE message, not yet checked.
#[derive(Clone, Debug)]
pub struct Authenticate<'a> {
    message: &'a [u8],
    response: &'a [u8],
    /// The user's name, as it came.
    pub user: String,
    domain: Vec<u8>,
    exchanged: &'a [u8],
    flags: u32,
}

impl<'a> Authenticate<'a> {
    /// Parses the message, and refuses what is neither an NTLMv2 response of a named user nor
    /// nobody's.
    pub fn parse(message: &'a [u8]) -> Result<Authenticate<'a>, Refused> {
        let mut reader = begin(message, 3)?;
        let _lm = buffer(message, &mut reader)?;
        let response = buffer(message, &mut reader)?;
        let domain = buffer(message, &mut reader)?.to_vec();
        let user = crate::wire::text_of(buffer(message, &mut reader)?)?;
        let _workstation = buffer(message, &mut reader)?;
        let exchanged = buffer(message, &mut reader)?;
        let flags = reader.u32()?;
        let authenticate = Authenticate { message, response, user, domain, exchanged, flags };
        if authenticate.is_anonymous() {
            return Ok(authenticate);
        }
        if flags & flag::UNICODE == 0 || flags & flag::EXTENDED_SECURITY == 0 {
            return Err(Refused("the client goes back to NTLMv1"));
        }
        if authenticate.user.is_empty() || response.is_empty() || flags & flag::ANONYMOUS != 0 {
            return Err(ANONYMOUS);
        }
        if response.len() < BEFORE_PAIRS + 4 {
            return Err(Refused("the response is not of NTLMv2"));
        }
        Ok(authenticate)
    }

    /// Returns whether the message is nobody's: without a user and without a response.
    pub fn is_anonymous(&self) -> bool {
        self.user.is_empty() && self.response.is_empty()
    }

    /// Takes the message of nobody, who proves nothing: his key is zeros (MS-NLMP §3.3.2).
    pub fn check_anonymous(&self, challenge: &Challenge) -> Result<Proven, Refused> {
        self.check_flags(challenge)?;
        self.prove(challenge, [0; 16])
    }

    /// Takes the key that the client has sent under the key of its response.
    fn prove(&self, challenge: &Challenge, base: [u8; 16]) -> Result<Proven, Refused> {
        let exchanges = self.flags & flag::KEY_EXCHANGE != 0;
        let session_key = match exchanges {
            true if challenge.flags & flag::KEY_EXCHANGE == 0 => {
                return Err(Refused("the client exchanges a key that was not negotiated"));
            }
            true => {
                let sent =
                    self.exchanged.try_into().map_err(|_| Refused("the exchanged key has another size"))?;
                rc4(&base, sent)
            }
            false => base,
        };
        Ok(Proven { session_key, can_sign: self.flags & flag::KEY_128 != 0, seals_mic: exchanges })
    }

    /// Checks the proof with the user's NT hash. A user who is not known has a hash, too, which
    /// nothing fits: so both take the same time.
    pub fn check(&self, challenge: &Challenge, nt_hash: &[u8; 16]) -> Result<Proven, Refused> {
        let upper = utf16(&self.user.chars().map(upper).collect::<String>());
        let key = hmac_md5(nt_hash, &[&upper, &self.domain]);
        let (proof, temp) = self.response.split_at_checked(PROOF).ok_or(ANONYMOUS)?;
        let proof = <&[u8; PROOF]>::try_from(proof).expect("split there");
        if !hmac_md5_is(&key, &[&challenge.nonce, temp], proof) {
            return Err(Refused("the proof is another's"));
        }
        // The client has proven its password. It has signed all that follows, too.
        let pairs = Pairs::parse(temp)?;
        pairs.check(challenge)?;
        let proven = self.prove(challenge, hmac_md5(&key, &[proof]))?;
        self.check_flags(challenge)?;
        if pairs.has_mic {
            self.check_mic(challenge, &proven.session_key)?;
        }
        Ok(proven)
    }

    /// The client may not take what the challenge did not offer.
    fn check_flags(&self, challenge: &Challenge) -> Result<(), Refused> {
        let strength = flag::KEY_128 | flag::SIGN | flag::SEAL;
        if self.flags & strength & !challenge.flags != 0 {
            return Err(Refused("the client takes flags that were not offered"));
        }
        Ok(())
    }

    /// The MIC covers all three messages, so that none was changed on the way (§3.1.5.1.2).
    fn check_mic(&self, challenge: &Challenge, session_key: &[u8; 16]) -> Result<(), Refused> {
        let mic = self.message.get(MIC_AT..MIC_END).ok_or(Refused("there is no MIC, which was announced"))?;
        let mic = <&[u8; 16]>::try_from(mic).expect("16 bytes");
        let parts = [
            &challenge.negotiate[..],
            &challenge.message,
            &self.message[..MIC_AT],
            &[0; 16],
            &self.message[MIC_END..],
        ];
        if hmac_md5_is(session_key, &parts, mic) { Ok(()) } else { Err(Refused("the MIC is wrong")) }
    }
}

fn upper(c: char) -> char {
    let mut all = c.to_uppercase();
    match (all.next(), all.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// The pairs that a client signed.
#[derive(Debug, Default)]
struct Pairs<'a> {
    has_mic: bool,
    timestamp: Option<u64>,
    computer: Option<&'a [u8]>,
}

impl<'a> Pairs<'a> {
    fn parse(temp: &'a [u8]) -> Result<Pairs<'a>, Refused> {
        let mut reader = Reader::new(temp);
        if reader.u16()? != 0x0101 {
            return Err(Refused("the response is of another version"));
        }
        reader.take(BEFORE_PAIRS - PROOF - 2)?;
        let (mut pairs, mut seen) = (Pairs::default(), 0_u64);
        loop {
            let (id, length) = (reader.u16()?, reader.u16()?);
            let value = reader.take(usize::from(length))?;
            let bit = 1_u64.checked_shl(u32::from(id)).unwrap_or(0);
            if seen & bit != 0 {
                return Err(Refused("a pair is there twice"));
            }
            seen |= bit;
            match id {
                // Behind an end that somebody on the way has put into the challenge there would be
                // the client's word that it has sent a MIC.
                pair::END if reader.rest().iter().any(|byte| *byte != 0) => {
                    return Err(Refused("there is more behind the pairs"));
                }
                pair::END => return Ok(pairs),
                pair::FLAGS => {
                    let bits =
                        value.try_into().map_err(|_| Refused("the pair MsvAvFlags has another size"))?;
                    pairs.has_mic = u32::from_le_bytes(bits) & pair::HAS_MIC != 0;
                }
                pair::TIMESTAMP => {
                    let time =
                        value.try_into().map_err(|_| Refused("the pair of the time has another size"))?;
                    pairs.timestamp = Some(u64::from_le_bytes(time));
                }
                pair::COMPUTER => pairs.computer = Some(value),
                _ => {}
            }
        }
    }

    /// The client has answered this machine's challenge, not one that another machine relays.
    fn check(&self, challenge: &Challenge) -> Result<(), Refused> {
        if self.computer.is_none_or(|computer| !are_equal(computer, &challenge.computer)) {
            return Err(Refused("the client talks to another machine"));
        }
        match self.timestamp {
            Some(time) if time == challenge.timestamp => Ok(()),
            Some(_) => Err(Refused("the time is not that of the challenge")),
            // All clients send back what they are sent. Without the time, those that know the MIC
            // would not announce one.
            None => Err(Refused("the time of the challenge is missing")),
        }
    }
}

impl Proven {
    /// Returns the first signature of a side over `message` (§3.4.4.2): mechListMIC.
    pub fn mic(&self, side: Side, message: &[u8]) -> [u8; 16] {
        let magic = |purpose: &str| {
            let direction = if side == Side::Client { "client-to-server" } else { "server-to-client" };
            let text = format!("session key to {direction} {purpose} key magic constant\0");
            md5(&[&self.session_key, text.as_bytes()])
        };
        let digest = hmac_md5(&magic("signing"), &[&0_u32.to_le_bytes(), message]);
        let mut checksum = [0; 16];
        checksum[..8].copy_from_slice(&digest[..8]);
        if self.seals_mic {
            checksum = rc4(&magic("sealing"), checksum);
        }
        let mut mic = [0; 16];
        mic[..4].copy_from_slice(&1_u32.to_le_bytes());
        mic[4..12].copy_from_slice(&checksum[..8]);
        mic
    }
}
