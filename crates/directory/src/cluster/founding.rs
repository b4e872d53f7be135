//! The servers that the cluster has beside the root server, which numbers them.
//!
//! A row names the member of the server group that makes the new server's first state. All other
//! members receive it from that one, so it is made once. No server goes again, and no number is
//! given twice.

use crate::io::{FoundError, Output, SERVERS_MAX};
use crate::transaction::Transaction;
use ident::ServerId;

impl Transaction<'_> {
    /// Founds a server. `number` is the host's name for the command.
    pub fn found_server(&mut self, number: u64, founder: u64) {
        let result = self.founded(founder);
        self.out.push(Output::Founded { number, result });
    }

    fn founded(&mut self, founder: u64) -> Result<ServerId, FoundError> {
        let servers = &mut self.state.cluster.enrolment.servers;
        let next = u16::try_from(*servers + 1).ok().filter(|next| *next <= SERVERS_MAX);
        let server = next.map(ServerId).ok_or(FoundError::TooMany)?;
        *servers += 1;
        self.files.set_server(server, founder);
        Ok(server)
    }
}
