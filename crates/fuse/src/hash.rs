//! A fast hash, the same in every run.

use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

pub(crate) fn hash(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}
