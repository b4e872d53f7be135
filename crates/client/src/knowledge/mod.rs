//! Knowledge of files under leases: how it grows, and how it is forgotten.

pub(crate) mod accesses;
mod covered;
mod evict;
mod eviction_clock;
mod handles;
mod known;
mod learn;
mod locks;
mod looked_up;
mod merge;
mod number_blocks;

pub(crate) use accesses::Accesses;
pub(crate) use covered::CoveredFiles;
pub(crate) use eviction_clock::EvictionClock;
pub(crate) use handles::{Handles, ReopenState, Reopening};
pub(crate) use known::{Children, Files, KnownContent, KnownFile, Writes};
pub(crate) use locks::KnownLocks;
pub(crate) use looked_up::{LOOKED_UP_MS, LookedUp};
pub(crate) use number_blocks::NumberBlocks;
