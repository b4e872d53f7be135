//! The server, from outside: inputs and outputs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod acknowledgment;
mod background;
mod certification;
mod content;
mod enrolment;
mod feeds;
mod grants;
mod hand_over;
mod handles;
mod joint;
mod joint_cases;
mod leaving;
mod locks;
mod messages;
mod path_leases;
mod path_model;
mod placement;
mod recalls;
mod regions;
mod registry;
mod replay;
mod resumption;
mod rights;
mod rows;
mod servers;
mod sessions;
mod size;
mod support;
mod versions;
mod walks;
mod write_through;
mod writes;
