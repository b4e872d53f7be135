//! The names of shares, which also say how a share is spread over hosts.
//!
//! The name of a share and the list of hosts determine the place of each copy or fragment, without
//! any request.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The maximum number of copies, data fragments, or parity fragments. Each count takes four bits of
/// a name.
const COUNT_MAX: u8 = 15;
/// The mark of a name that says how its share is spread. It follows the random bytes. By chance one
/// other name in 2^48 has it.
const MARK: &[u8; 6] = b"spread";
const SPREAD: usize = 14;
const FRAGMENT: usize = 15;

/// Name of a share: 128 random bits.
///
/// A name with an unusual policy has 64 random bits, a mark, a byte for the spread, and a byte for
/// the fragment's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShareId(pub [u8; 16]);

/// 32 hexadecimal digits.
impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl ShareId {
    /// A name with the same random bits for this spread. The name must be new, without a stored
    /// share. A name without a mark is spread as usual.
    pub fn spread_as(mut self, spread: Spread) -> ShareId {
        if spread != Spread::Usual {
            self.0[SPREAD - MARK.len()..SPREAD].copy_from_slice(MARK);
            self.0[SPREAD] = spread.byte();
            self.0[FRAGMENT] = 0;
        }
        self
    }

    /// The spread of the share.
    pub fn spread(&self) -> Spread {
        if self.0[..SPREAD].ends_with(MARK) { Spread::of_byte(self.0[SPREAD]) } else { Spread::Usual }
    }

    /// The names under which hosts keep the share: its own, or those of its fragments.
    pub fn kept_as(&self) -> impl Iterator<Item = ShareId> + use<> {
        let share = *self;
        let fragments = match self.spread() {
            Spread::Code { data, parity } => data + parity,
            Spread::Usual | Spread::Copies(_) => 0,
        };
        let whole = (fragments == 0).then_some(share);
        whole.into_iter().chain((0..fragments).map(move |number| share.fragment(number)))
    }

    /// The name of one of its fragments.
    pub fn fragment(mut self, number: u8) -> ShareId {
        self.0[FRAGMENT] = number.saturating_add(1);
        self
    }

    /// The number of the fragment that the name stands for, if it stands for one.
    pub fn number(&self) -> Option<u8> {
        matches!(self.spread(), Spread::Code { .. }).then(|| self.0[FRAGMENT].checked_sub(1)).flatten()
    }

    /// The whole share of this name.
    pub fn whole(mut self) -> ShareId {
        if self.number().is_some() {
            self.0[FRAGMENT] = 0;
        }
        self
    }
}

/// The spread of content over hosts, as set by `leasehold policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spread {
    /// The usual number of copies.
    #[default]
    Usual,
    /// This number of copies, each on a host of its own.
    Copies(u8),
    /// Fragments, each on a host of its own. Any `data` of them give the whole.
    Code {
        /// Fragments of the content itself.
        data: u8,
        /// Additional fragments, computed from these.
        parity: u8,
    },
}

/// The error of a text that is no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPolicy;

impl fmt::Display for NoPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a policy is copies=N with N from 1 to {COUNT_MAX}, or code=K+M with K from 2 and M from 1 to {COUNT_MAX}, or usual"
        )
    }
}

impl std::error::Error for NoPolicy {}

impl Spread {
    /// The spread of a file's policy, if it has one ([`crate::POLICY_LABEL`]).
    pub fn of_policy(policy: Option<&[u8]>) -> Spread {
        let text = policy.and_then(|policy| std::str::from_utf8(policy).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// The spread of this byte. Every byte stands for one.
    fn of_byte(byte: u8) -> Spread {
        match (byte >> 4, byte & COUNT_MAX) {
            (0, 0) => Spread::Usual,
            (0, copies) => Spread::Copies(copies),
            (data, parity) => Spread::Code { data, parity },
        }
    }

    fn byte(self) -> u8 {
        match self {
            Spread::Usual => 0,
            Spread::Copies(copies) => copies.min(COUNT_MAX),
            Spread::Code { data, parity } => data.min(COUNT_MAX) << 4 | parity.min(COUNT_MAX),
        }
    }
}

impl FromStr for Spread {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Spread, NoPolicy> {
        let count = |text: &str, least: u8| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|number| plain && (least..=COUNT_MAX).contains(number));
            number.ok_or(NoPolicy)
        };
        if let Some(copies) = text.strip_prefix("copies=") {
            return count(copies, 1).map(Spread::Copies);
        }
        let (data, parity) =
            text.strip_prefix("code=").and_then(|code| code.split_once('+')).ok_or(NoPolicy)?;
        Ok(Spread::Code { data: count(data, 2)?, parity: count(parity, 1)? })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spread::Usual => f.write_str("usual"),
            Spread::Copies(copies) => write!(f, "copies={copies}"),
            Spread::Code { data, parity } => write!(f, "code={data}+{parity}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_how_the_share_is_spread_and_which_fragment_it_is() {
        let usual = ShareId([7; 16]);
        assert_eq!((usual.spread(), usual.number(), usual.whole()), (Spread::Usual, None, usual));
        assert_eq!(
            (usual.kept_as().collect::<Vec<_>>(), usual.spread_as(Spread::Usual)),
            (vec![usual], usual)
        );
        for byte in 1..=u8::MAX {
            let share = usual.spread_as(Spread::of_byte(byte));
            assert_eq!((share.spread(), share.spread().byte()), (Spread::of_byte(byte), byte));
            let kept: Vec<ShareId> = share.kept_as().collect();
            assert!(
                !kept.is_empty()
                    && kept.iter().all(|kept| kept.whole() == share && kept.spread() == share.spread())
            );
            if let Spread::Code { data, parity } = share.spread() {
                let numbers: Vec<Option<u8>> = kept.iter().map(ShareId::number).collect();
                assert_eq!(numbers, (0..data + parity).map(Some).collect::<Vec<_>>());
                assert_eq!(share.number(), None);
            } else {
                assert_eq!(kept, [share]);
            }
        }
    }

    #[test]
    fn policies_are_written_as_they_are_read() {
        for text in ["copies=1", "copies=15", "code=2+1", "code=4+2", "code=15+15"] {
            assert_eq!(text.parse::<Spread>().map(|spread| spread.to_string()).as_deref(), Ok(text));
            let spread = text.parse::<Spread>().unwrap();
            assert_eq!(Spread::of_byte(spread.byte()), spread);
        }
        for text in [
            "",
            "copies",
            "copies=",
            "copies=0",
            "copies=16",
            "copies=+2",
            "code=1+1",
            "code=2+0",
            "code=2",
            "code=4+16",
            "code=4+2 ",
            "usual",
        ] {
            assert_eq!(text.parse::<Spread>(), Err(NoPolicy), "{text}");
        }
    }
}
