//! Messages between clients and servers, their versions and their bytes.

#![allow(missing_docs, reason = "fields of messages are documented on the messages")]

mod message;

pub use message::{
    AskMode, FileGrant, LogEntry, MachineId, Space, ToClient, ToServer, Values,
};
