//! Leases, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod blackbox;
mod caching;
mod granularity;
mod held;
mod holdings;
mod queue;
