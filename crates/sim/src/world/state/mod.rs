//! The parts of a world: what each holds. What happens to them stands in the files of the world
//! that are named for it.

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
