//! The client's state machine: a machine's single holder of leases.

mod call;
mod seam;

pub use call::{Allocate, Call, Listed, ReadPart, ReadPlan, Reply};
pub use seam::{Input, Invalidation, Now, Outcome, Output, Ticket, Upload};
