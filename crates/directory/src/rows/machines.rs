//! The rows of the machines of the cluster, of the invitations to join it, and of the authorities
//! that certify machines.

use crate::rows::files::Files;
use crate::rows::keys::Table;
use crate::rows::record::{Record, exact};
use crate::{Corrupt, Store};
use lease::Time;
use serde::{Deserialize, Serialize};
use wire::{FOUNDER, MACHINE_NAME_BYTES_MAX, MachineId, Refusal, Rights};

/// Authorities that are remembered. A machine that has been away for more renewals joins anew.
pub(crate) const AUTHORITIES_MAX: usize = 16;

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

/// A row of [`Table::Machine`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineRow {
    pub name: String,
    pub rights: Rights,
    pub since: Time,
    pub expelled: Option<Time>,
    pub known: MachineCredential,
    /// Its latest start that has greeted the root server; 0 before the first.
    pub started: u64,
    /// The number of the last change of this row, among all changes of the registry.
    pub changed: u64,
}

/// A row of [`Table::Invitation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    pub rights: Rights,
    /// UTC seconds.
    pub until: u64,
    pub used: Option<Used>,
}

/// The machine that joined by an invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    pub machine: MachineId,
    /// Its public key.
    pub key: [u8; 32],
}

/// The numbers of rows: mostly they make a count unnecessary, and no row goes unseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Enrolment {
    pub machines: u64,
    pub invitations: u64,
    pub servers: u64,
}

/// Writes the founder, of this name, into a new store: the first change of the registry.
pub(crate) fn found(store: &mut dyn Store, name: String) {
    assert!(is_machine_name(&name), "{name:?} is no machine's name");
    let (since, known) = (Time::default(), MachineCredential::default());
    let machine =
        MachineRow { name, rights: Rights::FULL, since, expelled: None, known, started: 0, changed: 1 };
    write(store, &[(FOUNDER, machine)]);
}

/// Writes these machines into a new store.
pub(crate) fn write(store: &mut dyn Store, machines: &[(MachineId, MachineRow)]) {
    for (machine, row) in machines {
        store.put(&Table::Machine.key(&key_of(*machine)), wire::encode(row));
    }
}

impl Files<'_> {
    /// The machine of this number, expelled or not.
    pub fn machine(&self, machine: MachineId) -> Option<MachineRow> {
        let row = self.row(Table::Machine, &key_of(machine))?;
        self.parse(&Table::Machine.key(&key_of(machine)), &row)
    }

    /// All machines, by number.
    pub fn machines(&self) -> Vec<(MachineId, MachineRow)> {
        let rows = self.table(Table::Machine, None, usize::MAX);
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            let machine = self.parse_key(Table::Machine.number(&key))?;
            Some((MachineId(machine), self.parse(&key, &row)?))
        };
        rows.into_iter().filter_map(parse).collect()
    }

    /// The rights of a machine, if it may have a session.
    pub fn admit(&self, machine: MachineId) -> Result<Rights, Refusal> {
        match self.machine(machine) {
            None => Err(Refusal::Unknown(machine)),
            Some(MachineRow { expelled: Some(_), .. }) => Err(Refusal::Expelled(machine)),
            Some(MachineRow { rights, .. }) => Ok(rights),
        }
    }

    /// The latest start of a machine, as far as its row says.
    pub fn started(&self, machine: MachineId) -> u64 {
        self.machine(machine).map_or(0, |machine| machine.started)
    }

    /// Writes or removes the row of a machine as it is.
    pub fn set_machine(&mut self, machine: MachineId, row: Option<&MachineRow>) {
        self.set_row(Table::Machine, &key_of(machine), row.map(wire::encode));
    }

    /// The invitation with this hash of its secret.
    pub fn invitation(&self, token: &[u8; 32]) -> Option<Invitation> {
        let row = self.row(Table::Invitation, token)?;
        self.parse(&Table::Invitation.key(token), &row)
    }

    /// All invitations that are remembered, by the hash of their secret.
    pub fn invitations(&self) -> Vec<([u8; 32], Invitation)> {
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            let token = Table::Invitation.sub_key(&key).map(<[u8; 32]>::try_from);
            let token = token.and_then(|token| token.map_err(|_| Corrupt::at(&key, "invitation")));
            let token = self.parse_key(token)?;
            Some((token, self.parse(&key, &row)?))
        };
        self.table(Table::Invitation, None, usize::MAX).into_iter().filter_map(parse).collect()
    }

    /// Whether rights can begin at this file: a directory that has a name.
    pub fn can_be_root(&self, rights: &Rights) -> bool {
        let named = |record: &Record| !rights.are_of_subtree() || !record.links.is_empty();
        self.record(&rights.root).is_some_and(|record| record.is_directory() && named(&record))
    }

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

/// Whether a machine can be called so.
pub fn is_machine_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    // Commands take both names and numbers.
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    (1..=MACHINE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed) && !is_number
}

fn key_of(machine: MachineId) -> [u8; 8] {
    machine.0.to_be_bytes()
}

/// Reads a row of [`Table::Machine`]. Returns the number of its last change.
pub(crate) fn check_machine(key: &[u8], row: &[u8]) -> Result<u64, Corrupt> {
    Table::Machine.number(key)?;
    exact::<MachineRow>(row).map(|row| row.changed).ok_or_else(|| Corrupt::at(key, "machine"))
}

/// Reads a row of [`Table::Invitation`].
pub(crate) fn check_invitation(key: &[u8], row: &[u8]) -> Result<(), Corrupt> {
    exact::<Invitation>(row).map(|_| ()).ok_or_else(|| Corrupt::at(key, "invitation"))
}

/// Reads a row of [`Table::Authority`].
pub(crate) fn check_authority(key: &[u8], row: &[u8]) -> Result<(), Corrupt> {
    Table::Authority.number(key)?;
    exact::<CertificateAuthority>(row).map(|_| ()).ok_or_else(|| Corrupt::at(key, "authority"))
}
