//! The keys by which machines and servers are known: the authorities that certify them, and each
//! machine's public key.
//!
//! A certificate proves something only as long as its authority's key is secret, and every server
//! has held that key. So the machine's own key counts, which it named when it joined. A former
//! server can make certificates for other machines, but lacks their keys. The authority's key
//! stands in the servers' rows and nowhere else.

use crate::io::Output;
use crate::rows::keys::Table;
use crate::rows::machines::{AUTHORITIES_MAX, CertificateAuthority, MachineCredential};
use crate::transaction::Transaction;
use wire::MachineId;

/// Bytes of a certificate or a key at most.
const BYTES_MAX: usize = 4096;

impl Transaction<'_> {
    /// Makes this authority the one that certifies, if it is the next one.
    pub fn authorize(&mut self, number: u64, authority: CertificateAuthority) {
        let fits = authority.certificate.len().max(authority.key.len()) <= BYTES_MAX;
        let done = fits && self.files.latest_authority().checked_add(1) == Some(number);
        if done {
            self.files.set_row(Table::Authority, &number.to_be_bytes(), Some(wire::encode(&authority)));
            self.forget_authorities();
            // Tokens name the authority by which the servers are known. The holder of an earlier
            // authority's key could deceive a newcomer, and with the secret join in its place.
            self.forget_all_invitations();
        }
        self.out.push(Output::Authorized { number, done });
    }

    /// Takes in that a machine has shown a certificate of that authority, with this key; or that it
    /// is a server and has that authority's key. A key other than the known one does not count,
    /// except from the leading machine, which names its own key (`itself`).
    pub fn known(&mut self, machine: MachineId, known: MachineCredential, itself: bool) {
        let Some(mut row) = self.files.machine(machine) else { return };
        if known.certified.max(known.holds) > self.files.latest_authority() || row.expelled.is_some() {
            return;
        }
        let before = row.known;
        if itself || before.key.is_none() {
            row.known.key = known.key.or(before.key);
        }
        if row.known.key == known.key {
            row.known.certified = before.certified.max(known.certified);
        }
        row.known.holds = before.holds.max(known.holds);
        if row.known != before {
            self.change_machine(machine, Some(row));
            self.forget_authorities();
        }
    }

    /// Forgets the authorities by which no machine knows its servers any more.
    pub fn forget_authorities(&mut self) {
        let latest = self.files.latest_authority();
        let machines = self.files.machines();
        let belong = machines.iter().filter(|(_, machine)| machine.expelled.is_none());
        let needed = belong.map(|(_, machine)| machine.known.certified).min().unwrap_or(latest);
        let oldest = needed.max((latest + 1).saturating_sub(AUTHORITIES_MAX as u64)).min(latest);
        for (number, _) in self.files.authorities().into_iter().take_while(|(number, _)| *number < oldest) {
            self.files.set_row(Table::Authority, &number.to_be_bytes(), None);
        }
    }
}
