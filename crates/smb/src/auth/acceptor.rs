//! The server's side of a logon, step by step.

use super::kerberos::{self, Context};
use super::ntlm::{ANONYMOUS, Authenticate, Challenge, is_bare};
use super::refused::Refused;
use super::spnego::{self, Init, Mechanism, NegState, Side};
use crypto::smb::are_equal;

/// The random bytes that a step may use.
pub const RANDOM_BYTES: usize = kerberos::RANDOM_BYTES;

/// Returns the NT hash of a user, if there is such a user with a password.
pub type HashOf<'a> = &'a dyn Fn(&str) -> Option<[u8; 16]>;

/// The knowledge by which a machine tells users from others. A mechanism that is switched off is
/// not there.
pub struct Trust<'a> {
    /// The machine's name.
    pub computer: &'a str,
    /// The passwords, for NTLM.
    pub hash_of: Option<HashOf<'a>>,
    /// The service of Kerberos that the machine is.
    pub kerberos: Option<kerberos::Service<'a>>,
}

impl Trust<'_> {
    fn has(&self, mechanism: Mechanism) -> bool {
        match mechanism {
            Mechanism::KerberosOfWindows | Mechanism::Kerberos => self.kerberos.is_some(),
            Mechanism::Ntlm => self.hash_of.is_some(),
        }
    }
}

/// A logon under way.
#[derive(Debug, Default)]
pub struct Acceptor {
    pub(super) stage: Stage,
    /// A client that has proven who it is may prove that it is nobody.
    admits_anonymous: bool,
}

#[derive(Debug, Default)]
pub(super) enum Stage {
    /// Nothing has come yet.
    #[default]
    ExpectNegotiate,
    /// SPNEGO was opened without a first token for the mechanism that was chosen; that comes next.
    ExpectFirst(Agreed),
    /// NTLM's challenge is out. Without SPNEGO nothing was agreed.
    ExpectProof(Box<Challenge>, Option<Agreed>),
    /// The ticket is good, and the client owes its signature of the list of mechanisms.
    ExpectSignature(Box<(Context, Authenticated)>, Agreed),
    /// The logon is at its end.
    Ended,
}

/// The choice of a mechanism.
#[derive(Debug)]
pub(super) struct Agreed {
    mechanism: Mechanism,
    /// The client prefers it. Otherwise both sign the list: somebody on the way may have shortened
    /// it (RFC 4178 §5).
    is_preferred: bool,
    /// The client's list in DER.
    pub(super) list: Vec<u8>,
}

/// The result of a step.
#[derive(Debug)]
pub enum Step {
    /// The token for MORE_PROCESSING_REQUIRED.
    More(Vec<u8>),
    /// The client has proven to be the user.
    Done(Authenticated),
}

/// A user who has logged on.
#[derive(Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// The name, as the client wrote it; none if the client renews its session as nobody.
    pub user: Option<String>,
    /// Session.SessionKey (MS-SMB2 §3.3.1.8). Anybody knows that of nobody.
    pub session_key: [u8; 16],
    /// Session.FullSessionKey: all bytes of the mechanism's key.
    pub full_session_key: Vec<u8>,
    /// The last token for the client.
    pub token: Vec<u8>,
    /// When the proof ends, a FILETIME: a ticket's end. A password has none.
    pub expires: Option<u64>,
}

impl std::fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authenticated({:?}, ..)", self.user)
    }
}

impl Acceptor {
    /// Begins the logon of a client that has a session. It may become nobody (MS-NLMP §3.2.5.1.2).
    pub fn renewing() -> Acceptor {
        Acceptor { admits_anonymous: true, ..Acceptor::default() }
    }

    /// Takes the client's next token. `time` is a FILETIME, and `random` is used for this step
    /// alone. After a refusal nothing is accepted any more.
    pub fn step(
        &mut self,
        token: &[u8],
        random: &[u8; RANDOM_BYTES],
        time: u64,
        trust: &Trust<'_>,
    ) -> Result<Step, Refused> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::ExpectNegotiate if is_bare(token) => self.challenge(token, random, time, trust, None),
            Stage::ExpectNegotiate => {
                let mut init = spnego::parse_init(token)?;
                // Nobody needs it longer: a ticket of Kerberos is long.
                let first = init.token.take();
                let agreed = agree(init, trust)?;
                match first {
                    Some(first) if agreed.is_preferred => self.begin(&first, random, time, trust, agreed),
                    _ => {
                        let state =
                            if agreed.is_preferred { NegState::Incomplete } else { NegState::RequestMic };
                        let answer = spnego::response(state, Some(agreed.mechanism), None, None);
                        self.stage = Stage::ExpectFirst(agreed);
                        Ok(Step::More(answer))
                    }
                }
            }
            Stage::ExpectFirst(agreed) => {
                let first = spnego::parse_response(token)?.token.ok_or(Refused("the token is empty"))?;
                self.begin(&first, random, time, trust, agreed)
            }
            Stage::ExpectProof(challenge, None) => self.prove(token, &challenge, trust, None),
            Stage::ExpectProof(challenge, Some(agreed)) => {
                let response = spnego::parse_response(token)?;
                let proof = response.token.ok_or(Refused("the token is empty"))?;
                self.prove(&proof, &challenge, trust, Some((&agreed, response.mic.as_deref())))
            }
            Stage::ExpectSignature(done, agreed) => {
                let (context, mut done) = *done;
                let mic = spnego::parse_response(token)?.mic;
                let mic = mic.ok_or(Refused("the list of mechanisms is not signed"))?;
                if !context.has_signed(&mic, &agreed.list) {
                    return Err(Refused("the list of mechanisms is not the client's"));
                }
                done.token = spnego::response(NegState::Completed, None, None, None);
                Ok(Step::Done(done))
            }
            Stage::Ended => Err(Refused("the logon has ended")),
        }
    }

    /// Takes the first token of the mechanism.
    fn begin(
        &mut self,
        first: &[u8],
        random: &[u8; RANDOM_BYTES],
        time: u64,
        trust: &Trust<'_>,
        agreed: Agreed,
    ) -> Result<Step, Refused> {
        match agreed.mechanism {
            Mechanism::Ntlm => self.challenge(first, random, time, trust, Some(agreed)),
            Mechanism::Kerberos | Mechanism::KerberosOfWindows => {
                let service = trust.kerberos.as_ref().ok_or(Refused("there is no keytab any more"))?;
                let accepted = service.accept(first, time, random)?;
                let mut done = Authenticated {
                    user: Some(accepted.user),
                    session_key: accepted.context.session_key(),
                    full_session_key: accepted.context.full_session_key().to_vec(),
                    token: Vec::new(),
                    expires: Some(accepted.expires),
                };
                let (chosen, reply) = (Some(agreed.mechanism), accepted.reply.as_deref());
                if agreed.is_preferred {
                    done.token = spnego::response(NegState::Completed, chosen, reply, None);
                    return Ok(Step::Done(done));
                }
                let own = accepted.context.mic(Side::Server, &agreed.list);
                let answer = spnego::response(NegState::Incomplete, chosen, reply, Some(&own));
                self.stage = Stage::ExpectSignature(Box::new((accepted.context, done)), agreed);
                Ok(Step::More(answer))
            }
        }
    }

    /// Answers NTLM's NEGOTIATE, which comes bare or in SPNEGO.
    fn challenge(
        &mut self,
        first: &[u8],
        random: &[u8; RANDOM_BYTES],
        time: u64,
        trust: &Trust<'_>,
        agreed: Option<Agreed>,
    ) -> Result<Step, Refused> {
        if trust.hash_of.is_none() {
            return Err(NTLM_IS_OFF);
        }
        let nonce = *random.first_chunk().expect("there are more random bytes");
        let challenge = Challenge::answer(first, nonce, time, trust.computer)?;
        let answer = match &agreed {
            None => challenge.message().to_vec(),
            Some(agreed) => spnego::response(
                NegState::Incomplete,
                Some(agreed.mechanism),
                Some(challenge.message()),
                None,
            ),
        };
        self.stage = Stage::ExpectProof(Box::new(challenge), agreed);
        Ok(Step::More(answer))
    }

    /// Checks NTLM's proof, and the signature of the list of mechanisms.
    fn prove(
        &self,
        message: &[u8],
        challenge: &Challenge,
        trust: &Trust<'_>,
        list: Option<(&Agreed, Option<&[u8]>)>,
    ) -> Result<Step, Refused> {
        let hash_of = trust.hash_of.ok_or(NTLM_IS_OFF)?;
        let authenticate = Authenticate::parse(message)?;
        let (proven, user) = if authenticate.is_anonymous() {
            if !self.admits_anonymous {
                return Err(ANONYMOUS);
            }
            (authenticate.check_anonymous(challenge)?, None)
        } else {
            let known = hash_of(&authenticate.user);
            let proven = authenticate.check(challenge, &known.unwrap_or([0; 16]));
            // An unknown user's hash is in nobody's hand, but it is no secret either.
            let proven = if known.is_some() { proven? } else { return Err(Refused("the user is unknown")) };
            (proven, Some(authenticate.user))
        };
        let token = match list {
            None => Vec::new(),
            Some((agreed, Some(mic))) => {
                if !proven.can_sign || !are_equal(mic, &proven.mic(Side::Client, &agreed.list)) {
                    return Err(Refused("the list of mechanisms is not the client's"));
                }
                let own = proven.mic(Side::Server, &agreed.list);
                spnego::response(NegState::Completed, None, None, Some(&own))
            }
            Some((agreed, None)) if agreed.is_preferred => {
                spnego::response(NegState::Completed, None, None, None)
            }
            Some((_, None)) => return Err(Refused("the list of mechanisms is not signed")),
        };
        let (session_key, full_session_key) = (proven.session_key, proven.session_key.to_vec());
        Ok(Step::Done(Authenticated { user, session_key, full_session_key, token, expires: None }))
    }
}

const NTLM_IS_OFF: Refused = Refused("NTLM is switched off");

/// Chooses a mechanism of the client's.
fn agree(init: Init, trust: &Trust<'_>) -> Result<Agreed, Refused> {
    match init.choose(|mechanism| trust.has(mechanism)) {
        Some((mechanism, is_preferred)) => Ok(Agreed { mechanism, is_preferred, list: init.mechanisms }),
        None if init.offered.contains(&Some(Mechanism::Ntlm)) => Err(NTLM_IS_OFF),
        None => Err(Refused("the client offers no mechanism that is served here")),
    }
}
