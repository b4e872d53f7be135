//! The wires between a machine and a server. Both directions keep their order.

use crate::host::connection::Connection;
use directory::Input;
use std::collections::VecDeque;
use wire::ToClient;

#[derive(Default)]
pub(super) struct Wire {
    pub connection: Connection,
    /// Number of connections so far.
    pub connections: u64,
    pub to_server: VecDeque<Input>,
    pub to_client: VecDeque<ToClient>,
}

impl Wire {
    /// A new connection in the place of an earlier one, whose messages to the machine are lost.
    pub fn dial(&mut self) {
        self.connections += 1;
        self.connection.dial(self.connections);
        self.to_client.clear();
    }
}
