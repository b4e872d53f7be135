//! The store above a real machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod bed;
mod front_doors;
mod leases;
mod links;
mod listings;
mod machines;
mod meant;
mod model;
mod names;
mod opens;
mod persisting;
mod read_only;
mod replacing;
mod security;
mod store_service;
mod streams;
