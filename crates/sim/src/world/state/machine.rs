//! A machine, and what an orderly end leaves on its disk.

use crate::host::connection::Connection;
use crate::kernel::Kernel;
use crate::world::history::Life;
use client::{Client, Continuation, Ticket, Upload};
use namespace::ShareId;
use std::collections::{BTreeMap, BTreeSet};
use wire::{LogEntry, MachineId, Version};

/// A machine and its state.
pub(crate) struct Machine {
    pub id: MachineId,
    pub incarnation: u64,
    /// The newest version that its program knows.
    pub speaks: Version,
    pub client: Client,
    pub connection: Connection,
    /// The server of the connection, or of the next one.
    pub server: usize,
    /// The machine's present life, as far as it knows: updates of one life are lost together.
    pub life: Life,
    /// The time until which the machine is frozen.
    pub frozen: Option<u64>,
    /// The rate of its clock, in millionths, and the clock's start.
    pub rate_ppm: u64,
    pub offset: u64,
    pub kernel: Kernel,
    /// Uploads that are not stored yet, by number.
    pub unstored: BTreeMap<u64, Upload>,
    /// The rest of an orderly end, until the server has it.
    pub left: Option<Left>,
    /// The time since which its connection is up, ms; and the time until which, at least, other
    /// faults delay its messages.
    pub steady: Option<u64>,
    pub rough_until: u64,
    /// Waiting calls: each with its number in the history and its program.
    pub calls: BTreeMap<Ticket, (usize, usize)>,
    /// Programs whose call gave way and was made again.
    pub gave_way: BTreeSet<usize>,
}

/// The log and shares on the disk of a machine that has ended, and how far its next start has sent
/// them.
pub(crate) struct Left {
    pub life: Life,
    pub first: u64,
    pub entries: Vec<LogEntry>,
    pub shares: BTreeMap<ShareId, Vec<u8>>,
    pub continuation: Continuation,
}
