//! The wires between a machine and a server. Both directions keep their order.

use crate::host::connection::Connection;
use directory::Input;
use std::collections::VecDeque;
use wire::{MachineId, ToClient};

/// The place of the machine in the number of a connection.
const MACHINE_SHIFT: u32 = 32;

#[derive(Default)]
pub(super) struct Wire {
    pub connection: Connection,
    /// Number of connections so far, of all starts of the machine.
    connections: u64,
    /// Whether this start of the machine has dialed.
    pub is_in_use: bool,
    pub to_server: VecDeque<Input>,
    pub to_client: VecDeque<ToClient>,
}

impl Wire {
    /// The wire of the machine's next start. Of the messages on their way as many arrive.
    pub fn begin_anew(self, arrive: usize) -> Wire {
        let mut to_server = self.to_server;
        to_server.truncate(arrive);
        Wire { connections: self.connections, to_server, ..Wire::default() }
    }

    /// A new connection of `machine` in the place of an earlier one, whose messages to the machine
    /// are lost. Returns its number, which no other connection to the server has.
    pub fn dial(&mut self, machine: MachineId) -> u64 {
        self.connections += 1;
        self.is_in_use = true;
        let number = machine.0 << MACHINE_SHIFT | self.connections;
        self.connection.dial(number);
        self.to_client.clear();
        number
    }

    /// The connection has ended. Returns whether it was the last one.
    pub fn hang_up(&mut self, number: u64) -> bool {
        let was_last = self.connection.number == Some(number);
        if was_last {
            self.connection.hang_up();
        }
        was_last
    }
}

/// The machine that dialed the connection of this number.
pub(super) fn machine_of(number: u64) -> MachineId {
    MachineId(number >> MACHINE_SHIFT)
}
