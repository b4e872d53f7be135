//! The server's side of a logon, step by step.

use super::ntlm::{ANONYMOUS, Authenticate, Challenge, Refused, Side, is_bare};
use super::spnego::{self, Init, NegState};
use crypto::smb::are_equal;

/// The end of a logon that was refused.
pub type LogonFailed = Refused;

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
    /// SPNEGO was opened for another mechanism; NTLM's first message comes next.
    ExpectNtlm(Init),
    /// The challenge is out. Without SPNEGO there is no list.
    ExpectProof(Box<Challenge>, Option<Init>),
    /// The logon is at its end.
    Ended,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The name, as the client wrote it; none if the client renews its session as nobody.
    pub user: Option<String>,
    /// The session key. Anybody knows that of nobody.
    pub session_key: [u8; 16],
    /// The last token for the client.
    pub token: Vec<u8>,
}

impl Acceptor {
    /// Begins the logon of a client that has a session. It may become nobody (MS-NLMP §3.2.5.1.2).
    pub fn renewing() -> Acceptor {
        Acceptor { admits_anonymous: true, ..Acceptor::default() }
    }

    /// Takes the client's next token. `nonce` is random; `hash_of` returns the NT hash of a user.
    /// After a refusal nothing is accepted any more.
    pub fn step(
        &mut self,
        token: &[u8],
        nonce: [u8; 8],
        time: u64,
        computer: &str,
        hash_of: &dyn Fn(&str) -> Option<[u8; 16]>,
    ) -> Result<Step, LogonFailed> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::ExpectNegotiate if is_bare(token) => {
                let challenge = Challenge::answer(token, nonce, time, computer)?;
                let answer = challenge.message().to_vec();
                self.stage = Stage::ExpectProof(Box::new(challenge), None);
                Ok(Step::More(answer))
            }
            Stage::ExpectNegotiate => {
                let mut init = spnego::parse_init(token)?;
                // Nobody needs it longer: a ticket of Kerberos is long.
                let first = init.token.take();
                if !init.has_ntlm {
                    return Err(Refused("the client does not offer NTLM"));
                }
                match first {
                    Some(first) if init.prefers_ntlm => {
                        let challenge = Challenge::answer(&first, nonce, time, computer)?;
                        Ok(self.challenge(challenge, init))
                    }
                    _ => {
                        let state =
                            if init.prefers_ntlm { NegState::Incomplete } else { NegState::RequestMic };
                        self.stage = Stage::ExpectNtlm(init);
                        Ok(Step::More(spnego::response(state, true, None, None)))
                    }
                }
            }
            Stage::ExpectNtlm(init) => {
                let first = spnego::parse_response(token)?.token.ok_or(Refused("the token is empty"))?;
                let challenge = Challenge::answer(&first, nonce, time, computer)?;
                Ok(self.challenge(challenge, init))
            }
            Stage::ExpectProof(challenge, None) => self.prove(token, &challenge, hash_of, None),
            Stage::ExpectProof(challenge, Some(init)) => {
                let response = spnego::parse_response(token)?;
                let proof = response.token.ok_or(Refused("the token is empty"))?;
                self.prove(&proof, &challenge, hash_of, Some((&init, response.mic.as_deref())))
            }
            Stage::Ended => Err(Refused("the logon has ended")),
        }
    }

    fn challenge(&mut self, challenge: Challenge, init: Init) -> Step {
        let answer = spnego::response(NegState::Incomplete, true, Some(challenge.message()), None);
        self.stage = Stage::ExpectProof(Box::new(challenge), Some(init));
        Step::More(answer)
    }

    /// Checks the proof, and the signature of the list of mechanisms. A client that prefers another
    /// mechanism must sign the list: otherwise somebody on the way may have shortened it (RFC 4178
    /// §5).
    fn prove(
        &self,
        message: &[u8],
        challenge: &Challenge,
        hash_of: &dyn Fn(&str) -> Option<[u8; 16]>,
        list: Option<(&Init, Option<&[u8]>)>,
    ) -> Result<Step, LogonFailed> {
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
            Some((init, Some(mic))) => {
                if !proven.can_sign || !are_equal(mic, &proven.mic(Side::Client, &init.mechanisms)) {
                    return Err(Refused("the list of mechanisms is not the client's"));
                }
                let own = proven.mic(Side::Server, &init.mechanisms);
                spnego::response(NegState::Completed, false, None, Some(&own))
            }
            Some((init, None)) if init.prefers_ntlm => {
                spnego::response(NegState::Completed, false, None, None)
            }
            Some((_, None)) => return Err(Refused("the list of mechanisms is not signed")),
        };
        Ok(Step::Done(Authenticated { user, session_key: proven.session_key, token }))
    }
}
