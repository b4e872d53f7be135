//! How two machines begin to talk: versions first, in a form that never changes, then the purpose
//! of the connection.
//!
//! ```text
//! greeting   LEASEHOLD · oldest and newest version spoken (u16 LE each) · Purpose
//! answer     the version chosen (u16 LE; 0: none) · Welcome
//! ```

use crate::{MachineId, Version, Versions};
use ident::ServerId;
use lease::SessionId;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8] = b"LEASEHOLD";

/// The purpose of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To become a machine of the cluster. The only purpose that needs no certificate.
    Join {
        /// The secret of the token.
        secret: [u8; 16],
        /// The machine's name.
        name: String,
        /// Its public key (Ed25519).
        key: [u8; 32],
    },
    /// The client's session at a server of the directory: `ToServer` and `ToClient`.
    Session {
        /// That server.
        server: ServerId,
        /// This start of the machine.
        start: Start,
        /// The session to go on with.
        session: Option<SessionId>,
        /// The server's latest statement of how far it has that session's log, whichever session it
        /// was made in.
        receipt: Option<Receipt>,
    },
    /// Shares: `ShareRequest` and `ShareReply`.
    Content,
    /// Traffic within the server group, from its members and from machines about to become one.
    Peer,
    /// To become a server, as [`Welcome::Session`] has asked.
    Serve,
    /// The server is up, and may be made a member of the group.
    Ready {
        /// The server's number in the group.
        member: u64,
        /// The addresses that it listens on, `host:port`.
        addresses: Vec<String>,
    },
    /// An administrator's request: one request and its answers, as on the control socket. From
    /// other servers.
    Control {
        /// The request.
        request: String,
    },
    /// To leave the cluster: what the machine holds becomes free, and its certificate is refused
    /// from now on.
    Leave,
}

/// A start of a machine, as its data directory records it, and which of its greetings this is.
/// Copies of one directory count alike, but have drawn different random numbers since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Counts the machine's starts.
    pub incarnation: u64,
    /// The random number that this start has drawn.
    pub drawn: u64,
    /// The numbers that earlier starts have drawn, as far as the directory remembers.
    pub before: Vec<u64>,
    /// Counts the greetings of this start.
    pub greeting: u64,
}

impl Start {
    /// Which greeting of which start it is.
    pub fn number(&self) -> GreetingNumber {
        GreetingNumber { drawn: self.drawn, count: self.greeting }
    }
}

/// Which greeting of a start it is. A greeting may come after a later one of the same start: by
/// another way, or through a server that led for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GreetingNumber {
    /// The random number that the start has drawn.
    pub drawn: u64,
    /// Counts the start's greetings.
    pub count: u64,
}

impl GreetingNumber {
    /// Whether the start of `self` greeted in this way before `other`.
    pub fn is_before(&self, other: &GreetingNumber) -> bool {
        self.drawn == other.drawn && self.count < other.count
    }
}

/// How far a server has durably taken in the log of a session. A client that shows it to a server
/// that knows less proves that this server has forgotten something. Only servers can make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The session whose log this is about.
    pub session: SessionId,
    /// The last entry taken in.
    pub up_to: u64,
    /// The member of the server group that made the receipt, and the random number that it drew at
    /// its start.
    pub server: (u64, u64),
    /// Keyed checksum.
    pub seal: [u8; 16],
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAt {
    /// The machine.
    pub machine: MachineId,
    /// The addresses that it listens on, `host:port`.
    pub addresses: Vec<String>,
    /// Whether it votes in the server group.
    pub votes: bool,
    /// The part of the content that it keeps, in proportion to other hosts; 0: none.
    pub weight: u32,
}

/// A machine's certificate and its authority's (DER).
pub type Certificates = (Vec<u8>, Vec<u8>);

/// The answer to a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Welcome {
    /// Admits to the session.
    Session {
        /// The session.
        session: SessionId,
        /// All servers. The connection ends when this list changes.
        servers: Vec<ServerAt>,
        /// This machine is to become a server: see [`Purpose::Serve`].
        serve: bool,
    },
    /// Admits to the share server.
    Content,
    /// The machine is of the cluster now.
    Joined {
        /// Its number.
        machine: MachineId,
        /// Its certificate and the authority's (DER).
        certificates: Certificates,
    },
    /// Another server leads, and has the sessions.
    Elsewhere {
        /// The leader's addresses; empty while there is no leader.
        addresses: Vec<String>,
    },
    /// Admits to the server group.
    Peer,
    /// The machine can become a server.
    Serve {
        /// Its number in the group.
        member: u64,
        /// Its certificate as a server, and the authority's (DER).
        certificates: Certificates,
    },
    /// The request is done.
    Done,
    /// The answers follow, a frame each.
    Control,
    /// The greeting is refused, and asking again does not help.
    Refused {
        /// The reason, for people.
        why: String,
    },
    /// The machine has started more often than its data directory knows, so the directory is an
    /// older copy. The machine is to count from here, and to greet again.
    Started {
        /// Its latest start.
        incarnation: u64,
    },
    /// The machine has shown a certificate of an authority before the latest. It is to call again
    /// with another.
    Certified {
        /// Its certificate and the latest authority's (DER).
        certificates: Certificates,
    },
}

/// The bytes are no greeting, or no answer to one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The bytes are of another protocol.
    #[error("the other side does not speak Leasehold's protocol")]
    Foreign,
    /// No version that both speak.
    #[error("{}", too_old(*ours, *theirs))]
    Version {
        /// The versions that this machine knows.
        ours: Versions,
        /// The versions that the other machine knows.
        theirs: Versions,
    },
}

fn too_old(ours: Versions, theirs: Versions) -> String {
    if theirs.newest < ours.oldest {
        format!(
            "the other machine's leasehold is too old: it knows {theirs}, this one's {ours}; install a newer one there"
        )
    } else {
        format!(
            "this machine's leasehold is too old: it knows {ours}, the other machine's {theirs}; install a newer one here"
        )
    }
}

/// Encodes the greeting of a machine that knows `ours`.
pub fn greeting(ours: Versions, purpose: &Purpose) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(versions(ours));
    bytes.extend(crate::encode(purpose));
    bytes
}

/// Reads a greeting: the version to speak, and the purpose.
pub fn read_greeting(ours: Versions, bytes: &[u8]) -> Result<(Version, Purpose), GreetingError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(GreetingError::Foreign)?;
    let (theirs, rest) = versions_of(rest)?;
    let version = ours.shared_with(theirs).ok_or(GreetingError::Version { ours, theirs })?;
    let purpose = postcard::from_bytes(rest).map_err(|_| GreetingError::Foreign)?;
    Ok((version, purpose))
}

/// Encodes an answer to a machine with which `version` is spoken.
pub fn answer(version: Version, welcome: &Welcome) -> Vec<u8> {
    let mut bytes = version.0.to_le_bytes().to_vec();
    bytes.extend(crate::encode(welcome));
    bytes
}

/// Encodes the answer to a machine that shares no version with us: it names ours, so that the
/// machine can report them.
pub fn answer_other_version(ours: Versions) -> Vec<u8> {
    let mut bytes = 0u16.to_le_bytes().to_vec();
    bytes.extend(versions(ours));
    bytes
}

/// Reads an answer for a machine that knows `ours`: the version to speak, and the welcome.
pub fn read_answer(ours: Versions, bytes: &[u8]) -> Result<(Version, Welcome), GreetingError> {
    let (version, rest) = u16_of(bytes)?;
    if version == 0 {
        return Err(GreetingError::Version { ours, theirs: versions_of(rest)?.0 });
    }
    if !ours.know(Version(version)) {
        return Err(GreetingError::Foreign);
    }
    let welcome = postcard::from_bytes(rest).map_err(|_| GreetingError::Foreign)?;
    Ok((Version(version), welcome))
}

fn versions(ours: Versions) -> impl Iterator<Item = u8> {
    [ours.oldest, ours.newest].into_iter().flat_map(|version| version.0.to_le_bytes())
}

fn versions_of(bytes: &[u8]) -> Result<(Versions, &[u8]), GreetingError> {
    let (oldest, rest) = u16_of(bytes)?;
    let (newest, rest) = u16_of(rest)?;
    Ok((Versions { oldest: Version(oldest), newest: Version(newest) }, rest))
}

fn u16_of(bytes: &[u8]) -> Result<(u16, &[u8]), GreetingError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(GreetingError::Foreign)?;
    Ok((u16::from_le_bytes(*first), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Versions = Versions::KNOWN;

    fn versions(oldest: u16, newest: u16) -> Versions {
        Versions { oldest: Version(oldest), newest: Version(newest) }
    }

    #[test]
    fn both_sides_agree_on_a_version() {
        let start = Start { incarnation: 3, drawn: 5, before: vec![4], greeting: 6 };
        let (server, session) = (ServerId(2), Some(SessionId(7)));
        let purpose = Purpose::Session { server, start, session, receipt: None };
        let read =
            |ours, theirs| read_greeting(ours, &greeting(theirs, &purpose)).map(|(version, _)| version);
        assert_eq!(read_greeting(KNOWN, &greeting(KNOWN, &purpose)), Ok((KNOWN.newest, purpose.clone())));
        // During an upgrade, whichever side is upgraded first.
        assert_eq!(read(KNOWN, Versions::WITH_NEXT), Ok(KNOWN.newest));
        assert_eq!(read(Versions::WITH_NEXT, KNOWN), Ok(KNOWN.newest));
        assert_eq!(read(Versions::WITH_NEXT, Versions::WITH_NEXT), Ok(KNOWN.newest.next()));
        // A newer program that still speaks our version is spoken to in ours.
        assert_eq!(read(KNOWN, versions(1, 12)), Ok(KNOWN.newest));
        let welcome = Welcome::Refused { why: "no".into() };
        assert_eq!(
            read_answer(Versions::WITH_NEXT, &answer(KNOWN.newest, &welcome)),
            Ok((KNOWN.newest, welcome.clone()))
        );
        // An answer in a version that was not offered is foreign.
        assert_eq!(read_answer(KNOWN, &answer(KNOWN.newest.next(), &welcome)), Err(GreetingError::Foreign));
    }

    #[test]
    fn who_is_too_old_is_told_so_on_both_sides() {
        let (old, new) = (versions(1, 2), versions(9, 12));
        let here = read_greeting(new, &greeting(old, &Purpose::Content)).unwrap_err();
        assert_eq!(
            here.to_string(),
            "the other machine's leasehold is too old: it knows versions 1 to 2, this one's versions 9 to 12; install a newer one there"
        );
        assert_eq!(answer_other_version(new), [0, 0, 9, 0, 12, 0]);
        let there = read_answer(old, &answer_other_version(new)).unwrap_err();
        assert_eq!(
            there.to_string(),
            "this machine's leasehold is too old: it knows versions 1 to 2, the other machine's versions 9 to 12; install a newer one here"
        );
    }
}
