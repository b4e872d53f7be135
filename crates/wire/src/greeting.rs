//! How two machines begin to talk: versions first, in a form that never changes, then what the connection is for.
//!
//! ```text
//! greeting   LEASEHOLD · oldest and newest version spoken (u16 LE each) · Purpose
//! answer     the version chosen (u16 LE; 0: none) · Welcome
//! ```

use crate::MachineId;
use lease::SessionId;
use serde::{Deserialize, Serialize};

/// The versions of messages that this program speaks, oldest and newest. A change of any message is a new version.
pub const VERSIONS: (u16, u16) = (3, 3);

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
        /// Counts the machine's starts.
        incarnation: u64,
        /// The session to go on with.
        session: Option<SessionId>,
    },
    /// Shares: `ShareRequest` and `ShareReply`.
    Content,
}

/// What is said to a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Welcome {
    /// To the session, which is this one.
    Session(SessionId),
    /// To the share server.
    Content,
    /// It is a machine of the cluster now.
    Joined {
        /// Its number.
        machine: MachineId,
        /// Its certificate and the authority's (DER).
        certificates: (Vec<u8>, Vec<u8>),
    },
    /// No, and asking again does not help.
    Refused {
        /// What to tell people.
        why: String,
    },
}

/// What came is no greeting, or the answer to one is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// Somebody else's protocol.
    #[error("the other side does not speak Leasehold's protocol")]
    Foreign,
    /// No version that both speak.
    #[error(
        "the other machine speaks versions {theirs:?} of the protocol and this one {VERSIONS:?}: use the same leasehold on both"
    )]
    Version {
        /// Oldest and newest, as far as known.
        theirs: (u16, u16),
    },
}

/// A greeting's bytes.
pub fn greeting(purpose: &Purpose) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSIONS.0.to_le_bytes());
    bytes.extend(VERSIONS.1.to_le_bytes());
    bytes.extend(postcard::to_allocvec(purpose).unwrap_or_default());
    bytes
}

/// Reads a greeting: the version to speak, and what for.
pub fn read_greeting(bytes: &[u8]) -> Result<(u16, Purpose), GreetingError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(GreetingError::Foreign)?;
    let (oldest, rest) = u16_of(rest)?;
    let (newest, rest) = u16_of(rest)?;
    let version = newest.min(VERSIONS.1);
    if oldest > newest || version < oldest.max(VERSIONS.0) {
        return Err(GreetingError::Version { theirs: (oldest, newest) });
    }
    let purpose = postcard::from_bytes(rest).map_err(|_| GreetingError::Foreign)?;
    Ok((version, purpose))
}

/// An answer's bytes.
pub fn answer(version: u16, welcome: &Welcome) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(postcard::to_allocvec(welcome).unwrap_or_default());
    bytes
}

/// The answer to who speaks no version that we do: ours, so that it can say so.
pub fn answer_other_version() -> Vec<u8> {
    let mut bytes = 0u16.to_le_bytes().to_vec();
    bytes.extend(VERSIONS.0.to_le_bytes());
    bytes.extend(VERSIONS.1.to_le_bytes());
    bytes
}

/// Reads an answer.
pub fn read_answer(bytes: &[u8]) -> Result<(u16, Welcome), GreetingError> {
    let (version, rest) = u16_of(bytes)?;
    if version == 0 {
        let (oldest, rest) = u16_of(rest)?;
        let (newest, _) = u16_of(rest)?;
        return Err(GreetingError::Version { theirs: (oldest, newest) });
    }
    let welcome = postcard::from_bytes(rest).map_err(|_| GreetingError::Foreign)?;
    Ok((version, welcome))
}

fn u16_of(bytes: &[u8]) -> Result<(u16, &[u8]), GreetingError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(GreetingError::Foreign)?;
    Ok((u16::from_le_bytes(*first), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_a_version() {
        let purpose = Purpose::Session { incarnation: 3, session: Some(SessionId(7)) };
        assert_eq!(read_greeting(&greeting(&purpose)), Ok((VERSIONS.1, purpose)));
        let welcome = Welcome::Refused { why: "no".into() };
        assert_eq!(read_answer(&answer(1, &welcome)), Ok((1, welcome)));
    }

    #[test]
    fn another_version_is_told_which_there_are() {
        let mut later = greeting(&Purpose::Content);
        later[9..13].copy_from_slice(&[9, 0, 12, 0]);
        assert_eq!(read_greeting(&later), Err(GreetingError::Version { theirs: (9, 12) }));
        let answer = read_answer(&answer_other_version());
        assert_eq!(answer, Err(GreetingError::Version { theirs: VERSIONS }));
        assert_eq!(answer_other_version(), [0, 0, 3, 0, 3, 0]);
        // A newer one that still speaks ours is spoken to in ours.
        later[9..13].copy_from_slice(&[3, 0, 12, 0]);
        assert_eq!(read_greeting(&later), Ok((VERSIONS.1, Purpose::Content)));
    }
}
