//! The parts of a world, each with its data. The files beside this folder have the events that
//! change them.

pub(super) mod agreed_log;
pub(super) mod group;
pub(super) mod host;
pub(super) mod known;
pub(super) mod leader;
pub(super) mod limits;
pub(super) mod link;
pub(super) mod lone;
pub(super) mod machine;
pub(super) mod members;
pub(super) mod paths;
