//! Hosts the state machines: data directory, Raft, metadata store, threads, clocks.

mod door;

pub use door::{Answer, Door, Told};
