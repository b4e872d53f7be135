//! What a black box makes of its clients' values (BlackBox §4.2).

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;

/// How the clients' self values become what each of them sees of the others: a commutative monoid.
pub trait Aggregate {
    /// A self value, and what several of them come to.
    type Value: Copy + Ord + Hash + Debug + Serialize + DeserializeOwned;

    /// The value that changes nothing: clients join with it, and leave with it.
    const IDENTITY: Self::Value;

    /// The value that nothing changes, if there is one (there cannot be two). A client stuck at it
    /// is a *shield* (BlackBox §4.7): whoever sees it sees nothing of anybody else.
    const ABSORBING: Option<Self::Value>;

    /// Two values in one: commutative and associative.
    fn combine(a: Self::Value, b: Self::Value) -> Self::Value;

    /// Whether there is such a value. What others send is not trusted.
    fn admits(_value: Self::Value) -> bool {
        true
    }

    /// `value`, so many times: in as many steps as `count` has digits.
    fn repeat(value: Self::Value, mut count: u32) -> Self::Value {
        let (mut all, mut power) = (Self::IDENTITY, value);
        while count > 0 {
            if count & 1 == 1 {
                all = Self::combine(all, power);
            }
            power = Self::combine(power, power);
            count >>= 1;
        }
        all
    }
}

/// Whether anybody else says true: what the file system uses, for handles and the six modes
/// (BlackBox §4.3, §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Or {}

impl Aggregate for Or {
    type Value = bool;
    const IDENTITY: bool = false;
    const ABSORBING: Option<bool> = Some(true);

    fn combine(a: bool, b: bool) -> bool {
        a || b
    }

    fn repeat(value: bool, count: u32) -> bool {
        value && count > 0
    }
}

/// The greatest of the others' values, of 0 to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundedMax<const MAX: u8> {}

impl<const MAX: u8> Aggregate for BoundedMax<MAX> {
    type Value = u8;
    const IDENTITY: u8 = 0;
    const ABSORBING: Option<u8> = Some(MAX);

    fn combine(a: u8, b: u8) -> u8 {
        a.max(b)
    }

    fn admits(value: u8) -> bool {
        value <= MAX
    }

    fn repeat(value: u8, count: u32) -> u8 {
        if count > 0 { value } else { 0 }
    }
}

/// What the others' values add up to; from `MAX` on all sums are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaturatingCount<const MAX: u32> {}

impl<const MAX: u32> Aggregate for SaturatingCount<MAX> {
    type Value = u32;
    const IDENTITY: u32 = 0;
    const ABSORBING: Option<u32> = Some(MAX);

    fn combine(a: u32, b: u32) -> u32 {
        a.saturating_add(b).min(MAX)
    }

    fn admits(value: u32) -> bool {
        value <= MAX
    }

    fn repeat(value: u32, count: u32) -> u32 {
        value.saturating_mul(count).min(MAX)
    }
}
