//! The client's state machine: a machine's single holder of leases.

mod call;

pub use call::{Allocate, Call, Listed, ReadPart, ReadPlan, Reply};
