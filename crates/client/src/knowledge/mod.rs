//! Knowledge of files under leases: how it grows, and how it is forgotten.

mod accesses;
mod evict;
mod known;
mod learn;
mod merge;
mod number_blocks;

pub(crate) use accesses::Accesses;
pub(crate) use evict::EvictionClock;
pub(crate) use known::{Children, Files, KnownContent, KnownFile};
pub(crate) use number_blocks::NumberBlocks;
