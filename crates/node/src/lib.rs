//! Hosts the state machines: data directory, Raft, metadata store, threads, clocks.
