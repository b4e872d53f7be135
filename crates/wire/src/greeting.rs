//! How two machines begin to talk: versions first, in a form that never changes, then what the
//! connection is for.
//!
//! ```text
//! greeting   LEASEHOLD · oldest and newest version spoken (u16 LE each) · Purpose
//! answer     the version chosen (u16 LE; 0: none) · Welcome
//! ```

use crate::{MachineId, Version, Versions};
use lease::SessionId;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8] = b"LEASEHOLD";

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To become a machine of the cluster. The only one that needs no certificate.
    Join {
        /// The secret of the token.
        secret: [u8; 16],
        /// What the machine is to be called.
        name: String,
        /// Its public key (Ed25519).
        key: [u8; 32],
    },
    /// The client's session: `ToServer` and `ToClient`.
    Session {
        /// This start of the machine.
        start: Start,
        /// The session to go on with.
        session: Option<SessionId>,
        /// What the server has said last of how far it has that session's log, in whichever session
        /// it said that.
        receipt: Option<Receipt>,
    },
    /// Shares: `ShareRequest` and `ShareReply`.
    Content,
    /// The server group's own talk. From members of the group, or who is about to be one.
    Peer,
    /// To become a server, as [`Welcome::Session`] has said.
    Serve,
    /// The server is up, and may be made a member of the group.
    Ready {
        /// Its number in the group.
        member: u64,
        /// Where it listens, `host:port`.
        addresses: Vec<String>,
    },
    /// What people ask: one request and its answers, as on the control socket. From other servers.
    Control {
        /// The request.
        request: String,
    },
    /// To be a machine of the cluster no more: what it holds is free, and its certificate is
    /// refused from now on.
    Leave,
}

/// A start of a machine, as its data directory has it. Copies of one directory count alike, and
/// have drawn different things since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Counts the machine's starts.
    pub incarnation: u64,
    /// What it has drawn.
    pub drawn: u64,
    /// What the starts before it have drawn, as far as the directory remembers.
    pub before: Vec<u64>,
}

/// How far a server has durably taken in the log of a session: who shows it to a server that knows
/// less proves that this one has forgotten something. Only servers can make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Whose log.
    pub session: SessionId,
    /// Its entries up to this one.
    pub through: u64,
    /// Which member of the server group says so, and what that has drawn at its start.
    pub server: (u64, u64),
    /// Keyed checksum.
    pub seal: [u8; 16],
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAt {
    /// The machine.
    pub machine: MachineId,
    /// Where it listens, `host:port`.
    pub addresses: Vec<String>,
    /// Whether it votes in the server group.
    pub votes: bool,
    /// What content it keeps, in proportion to what others do: 0, none.
    pub weight: u32,
}

/// A machine's certificate and its authority's (DER).
pub type Certificates = (Vec<u8>, Vec<u8>);

/// What is said to a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Welcome {
    /// To the session.
    Session {
        /// Which one.
        session: SessionId,
        /// All servers. The connection ends when that changes.
        servers: Vec<ServerAt>,
        /// This machine is to become a server: see [`Purpose::Serve`].
        serve: bool,
    },
    /// To the share server.
    Content,
    /// It is a machine of the cluster now.
    Joined {
        /// Its number.
        machine: MachineId,
        /// Its certificate and the authority's (DER).
        certificates: Certificates,
    },
    /// Another server leads, and has the sessions.
    Elsewhere {
        /// Where it is; empty while nobody leads.
        addresses: Vec<String>,
    },
    /// To the server group.
    Peer,
    /// It can be a server.
    Serve {
        /// Its number in the group.
        member: u64,
        /// Its certificate as a server, and the authority's (DER).
        certificates: Certificates,
    },
    /// It is done.
    Done,
    /// The answers follow, a frame each.
    Control,
    /// No, and asking again does not help.
    Refused {
        /// What to tell people.
        why: String,
    },
    /// The machine has started more often than its data directory knows, which is an older copy: it
    /// is to count from here, and to greet again.
    Started {
        /// Its latest start.
        incarnation: u64,
    },
    /// The machine has shown a certificate of an authority before the latest: it is to call again
    /// with another.
    Certified {
        /// Its certificate and the latest authority's (DER).
        certificates: Certificates,
    },
}

/// What came is no greeting, or the answer to one is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// Somebody else's protocol.
    #[error("the other side does not speak Leasehold's protocol")]
    Foreign,
    /// No version that both speak.
    #[error("{}", too_old(*ours, *theirs))]
    Version {
        /// What this machine knows.
        ours: Versions,
        /// What the other knows.
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

/// The greeting's bytes of who knows `ours`.
pub fn greeting(ours: Versions, purpose: &Purpose) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(versions(ours));
    bytes.extend(postcard::to_allocvec(purpose).unwrap_or_default());
    bytes
}

/// Reads a greeting: the version to speak, and what for.
pub fn read_greeting(ours: Versions, bytes: &[u8]) -> Result<(Version, Purpose), GreetingError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(GreetingError::Foreign)?;
    let (theirs, rest) = versions_of(rest)?;
    let version = ours.shared_with(theirs).ok_or(GreetingError::Version { ours, theirs })?;
    let purpose = postcard::from_bytes(rest).map_err(|_| GreetingError::Foreign)?;
    Ok((version, purpose))
}

/// An answer's bytes, for who was found to speak `version`.
pub fn answer(version: Version, welcome: &Welcome) -> Vec<u8> {
    let mut bytes = version.0.to_le_bytes().to_vec();
    bytes.extend(postcard::to_allocvec(welcome).unwrap_or_default());
    bytes
}

/// The answer to who speaks no version that we do: ours, so that it can say so.
pub fn answer_other_version(ours: Versions) -> Vec<u8> {
    let mut bytes = 0u16.to_le_bytes().to_vec();
    bytes.extend(versions(ours));
    bytes
}

/// Reads an answer to who knows `ours`: the version to speak, and what was said.
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
        let start = Start { incarnation: 3, drawn: 5, before: vec![4] };
        let purpose = Purpose::Session { start, session: Some(SessionId(7)), receipt: None };
        let read =
            |ours, theirs| read_greeting(ours, &greeting(theirs, &purpose)).map(|(version, _)| version);
        assert_eq!(read_greeting(KNOWN, &greeting(KNOWN, &purpose)), Ok((KNOWN.newest, purpose.clone())));
        // Of an upgrade, whichever side is first.
        assert_eq!(read(KNOWN, Versions::WITH_NEXT), Ok(KNOWN.newest));
        assert_eq!(read(Versions::WITH_NEXT, KNOWN), Ok(KNOWN.newest));
        assert_eq!(read(Versions::WITH_NEXT, Versions::WITH_NEXT), Ok(KNOWN.newest.next()));
        // A newer one that still speaks ours is spoken to in ours.
        assert_eq!(read(KNOWN, versions(1, 12)), Ok(KNOWN.newest));
        let welcome = Welcome::Refused { why: "no".into() };
        assert_eq!(
            read_answer(Versions::WITH_NEXT, &answer(KNOWN.newest, &welcome)),
            Ok((KNOWN.newest, welcome.clone()))
        );
        // Nobody answers in what was not offered.
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
