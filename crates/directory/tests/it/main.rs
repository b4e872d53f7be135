//! The server, from outside: inputs and outputs.

mod background;
mod content;
mod grants;
mod recalls;
mod replay;
mod rows;
mod sessions;
mod size;
mod support;
