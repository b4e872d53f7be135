//! The directory server's state machine.

mod seam;

pub use seam::{Input, Output, ShareWork, Store};
