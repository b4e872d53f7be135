//! By what machines and servers are known: the authorities that certify them, the latest and those before it as long as a machine has nothing later, and each machine's public key.
//!
//! A certificate says who a machine is only as far as the authority's key has been nobody's but the servers'. So it is the machine's own key that counts, as it was when it joined: who was a
//! server, and has a copy of an authority's key, can make certificates for other machines, but not with their keys. The latest authority's key stands here, and nowhere else: in the
//! rows of the servers.

use crate::files::Files;
use crate::keys::Global;
use crate::record::exact;
use crate::seam::Output;
use crate::turn::Turn;
use crate::Corrupt;
use serde::{Deserialize, Serialize};
use wire::MachineId;

/// Authorities that are remembered at most. A machine that has been away for longer than so many renewals joins anew.
const AUTHORITIES_MAX: usize = 16;
/// Bytes of a certificate or a key at most.
const BYTES_MAX: usize = 4096;

/// Who certifies machines and servers. A row of [`Global::Authority`], by its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate (DER).
    pub certificate: Vec<u8>,
    /// Its key (PKCS #8).
    pub key: Vec<u8>,
}

/// As what a machine is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its public key; none of one that has not said it yet, which only the founder has not when it begins.
    pub key: Option<[u8; 32]>,
    /// The latest authority of which it has shown a certificate. Earlier ones count for nothing any more.
    pub certified: u64,
    /// The latest authority whose key it has had, as servers have.
    pub holds: u64,
}

impl Files<'_> {
    /// All authorities by number, the latest last.
    pub fn authorities(&self) -> Vec<(u64, Authority)> {
        let rows = self.globals(Global::Authority, None, AUTHORITIES_MAX + 1);
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            let number = self.parse_key(number_of(&key))?;
            Some((number, self.parse(&key, &row)?))
        };
        rows.into_iter().filter_map(parse).collect()
    }

    /// The number of the latest authority; 0 if there is none yet.
    pub fn latest_authority(&self) -> u64 {
        let rows = self.globals(Global::Authority, None, AUTHORITIES_MAX + 1);
        rows.last().and_then(|(key, _)| self.parse_key(number_of(key))).unwrap_or_default()
    }
}

impl Turn<'_> {
    /// From now on this authority certifies, if it is the next one.
    pub fn authorize(&mut self, number: u64, authority: Authority) {
        let fits = authority.certificate.len().max(authority.key.len()) <= BYTES_MAX;
        let done = fits && self.files.latest_authority().checked_add(1) == Some(number);
        if done {
            self.files.set_global(Global::Authority, &number.to_be_bytes(), Some(to_bytes(&authority)));
            self.forget_authorities();
        }
        self.out.push(Output::Authorized { number, done });
    }

    /// A machine has shown a certificate of that authority, with this key. Of one whose key is known another counts for nothing, but of the machine that leads: it says so `itself`. Or it is a server, and
    /// has that authority's key.
    pub fn known(&mut self, machine: MachineId, known: Known, itself: bool) {
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

    /// Forgets the authorities before the latest of which no machine needs a server's certificate any more.
    pub fn forget_authorities(&mut self) {
        let latest = self.files.latest_authority();
        let machines = self.files.machines();
        let belong = machines.iter().filter(|(_, machine)| machine.expelled.is_none());
        let needed = belong.map(|(_, machine)| machine.known.certified).min().unwrap_or(latest);
        let oldest = needed.max((latest + 1).saturating_sub(AUTHORITIES_MAX as u64)).min(latest);
        for (number, _) in self.files.authorities().into_iter().take_while(|(number, _)| *number < oldest) {
            self.files.set_global(Global::Authority, &number.to_be_bytes(), None);
        }
    }
}

/// Reads a row of [`Global::Authority`].
pub(crate) fn check_row(key: &[u8], row: &[u8]) -> Result<(), Corrupt> {
    number_of(key)?;
    exact::<Authority>(row).map(|_| ()).ok_or_else(|| Corrupt::at(key, "authority"))
}

fn number_of(key: &[u8]) -> Result<u64, Corrupt> {
    let bytes = key.get(1..).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_be_bytes).ok_or_else(|| Corrupt::at(key, "authority"))
}

fn to_bytes(row: &Authority) -> Vec<u8> {
    postcard::to_allocvec(row).unwrap_or_default()
}
