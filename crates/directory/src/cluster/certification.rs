//! The keys by which machines and servers are known: the authorities that certify them, and each
//! machine's public key.
//!
//! A certificate proves something only as long as its authority's key is secret, and every server
//! has held that key. So the machine's own key counts, which it named when it joined. A former
//! server can make certificates for other machines, but lacks their keys. The authority's key
//! stands in the servers' rows and nowhere else.

use crate::Corrupt;
use crate::io::Output;
use crate::rows::files::Files;
use crate::rows::keys::Table;
use crate::rows::record::exact;
use crate::transaction::Transaction;
use serde::{Deserialize, Serialize};
use wire::MachineId;

/// Authorities that are remembered. A machine that has been away for more renewals joins anew.
const AUTHORITIES_MAX: usize = 16;
/// Bytes of a certificate or a key at most.
const BYTES_MAX: usize = 4096;

/// An authority that certifies machines and servers. A row of `Table::Authority`, by its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateAuthority {
    /// Its certificate (DER).
    pub certificate: Vec<u8>,
    /// Its key (PKCS #8).
    pub key: Vec<u8>,
    /// The cluster's lasting identity, whatever becomes of its authorities: the first one's
    /// fingerprint.
    pub cluster: [u8; 32],
}

/// The key and the authorities by which a machine is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCredential {
    /// Its public key. The founder has none here until it leads for the first time.
    pub key: Option<[u8; 32]>,
    /// The latest authority of which it has shown a certificate. Certificates of earlier ones no
    /// longer count.
    pub certified: u64,
    /// The latest authority whose key it has held, as servers do.
    pub holds: u64,
}

impl Files<'_> {
    /// All authorities by number, the latest last.
    pub fn authorities(&self) -> Vec<(u64, CertificateAuthority)> {
        let rows = self.table(Table::Authority, None, AUTHORITIES_MAX + 1);
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            let number = self.parse_key(Table::Authority.number(&key))?;
            Some((number, self.parse(&key, &row)?))
        };
        rows.into_iter().filter_map(parse).collect()
    }

    /// The number of the latest authority; 0 if there is none yet.
    pub fn latest_authority(&self) -> u64 {
        let rows = self.table(Table::Authority, None, AUTHORITIES_MAX + 1);
        rows.last().and_then(|(key, _)| self.parse_key(Table::Authority.number(key))).unwrap_or_default()
    }
}

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
            self.files.set_machine(machine, Some(&row));
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

/// Reads a row of [`Table::Authority`].
pub(crate) fn check_row(key: &[u8], row: &[u8]) -> Result<(), Corrupt> {
    Table::Authority.number(key)?;
    exact::<CertificateAuthority>(row).map(|_| ()).ok_or_else(|| Corrupt::at(key, "authority"))
}
