//! The aggregates of black boxes (BlackBox §4.2).

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;

/// The rule that combines the clients' self values into what each of them sees of the others: a
/// commutative monoid.
pub trait Aggregate {
    /// A self value, and the aggregate of several.
    type Value: Copy + Ord + Hash + Debug + Serialize + DeserializeOwned;

    /// The value that changes no other: clients join and leave with it.
    const IDENTITY: Self::Value;

    /// The value that no other changes, if there is one (there cannot be two). A client stuck at it
    /// is a *shield* (BlackBox §4.7): a client that sees the shield sees nothing of any other
    /// client.
    const ABSORBING: Option<Self::Value>;

    /// Combines two values; commutative and associative.
    fn combine(a: Self::Value, b: Self::Value) -> Self::Value;

    /// Returns whether the value exists. Values from clients are not trusted.
    fn admits(_value: Self::Value) -> bool {
        true
    }

    /// Combines `value` with itself `count` times, in as many steps as `count` has binary digits.
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

/// Whether any other client says true. The file system uses it for handles and the six modes
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

/// The sum of the others' values. From `MAX` on all sums are the same.
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
