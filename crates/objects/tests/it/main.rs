//! The store above a real machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod bed;
mod door;
mod doors;
mod leases;
mod listings;
mod machines;
mod model;
mod names;
mod opens;
mod security;
