//! The machines of the cluster, and the invitations to join it. They are replicated like everything
//! that decides what is granted (docs/internals/security.md, "Joining and leaving").
//!
//! A machine joins with a secret that was made for it, of which only the hash is here. From then on
//! its number identifies it: its certificate holds the number, and no number is given twice. A
//! machine that missed the answer shows the secret with the same key again, and is enrolled as the
//! same. So an expelled machine stays out, whatever it shows, while its name may be another's.

use crate::io::Output;
use crate::rows::files::Files;
use crate::rows::keys::Table;
use crate::rows::machines::{Invitation, MachineCredential, MachineRow, Used, is_machine_name};
use crate::transaction::Transaction;
use lease::Time;
use wire::{EnrolError, ExpelError, FOUNDER, InviteError, MachineId, RevokeError, Rights};

/// The name of the expelled row that stands for all machines that may have joined after a backup
/// that was restored.
const RESTORED_NAME: &str = "restored";
/// Machines that may belong to a cluster at a time.
pub const MACHINES_MAX: usize = 4096;
/// Expelled machines that are remembered by name. Of those forgotten it is only known that they do
/// not belong.
const EXPELLED_MAX: usize = 1024;
/// Invitations that may be open at a time; used ones count until they would have expired.
pub const INVITATIONS_MAX: u64 = 1024;

/// An enrolment that may be done.
pub(crate) struct Enrolling {
    invitation: Invitation,
    /// The machine that has joined by it before, and since when it belongs.
    before: Option<(MachineId, Time)>,
    /// The highest number that a machine has or had.
    highest: MachineId,
}

impl Files<'_> {
    /// Checks an enrolment. A server asks before it proposes one: strangers write nothing into the
    /// log.
    pub(crate) fn enrolling(
        &self,
        token: &[u8; 32],
        name: &str,
        key: &[u8; 32],
        at: u64,
    ) -> Result<Enrolling, EnrolError> {
        let invitation = self.invitation(token).ok_or(EnrolError::UnknownToken)?;
        let before = match &invitation.used {
            Some(used) => Some(self.joined_before(used, key).ok_or(EnrolError::UsedToken)?),
            None => None,
        };
        if invitation.until <= at {
            return Err(EnrolError::ExpiredToken);
        }
        if !is_machine_name(name) {
            return Err(EnrolError::BadName);
        }
        let machines = self.machines();
        let itself = before.as_ref().map(|(number, _)| *number);
        let mut belong =
            machines.iter().filter(|(number, machine)| machine.expelled.is_none() && Some(*number) != itself);
        // Compared as host names are.
        if belong.clone().any(|(_, machine)| machine.name.eq_ignore_ascii_case(name)) {
            return Err(EnrolError::NameTaken);
        }
        if belong.by_ref().count() >= MACHINES_MAX {
            return Err(EnrolError::TooMany);
        }
        if !self.can_be_root(&invitation.rights) {
            return Err(EnrolError::RootGone);
        }
        let highest = machines.last().map_or(FOUNDER, |(machine, _)| *machine);
        Ok(Enrolling { invitation, before, highest })
    }

    /// The machine that joined by a used invitation, and since when it belongs, if it has `key`.
    fn joined_before(&self, used: &Used, key: &[u8; 32]) -> Option<(MachineId, Time)> {
        let machine = self.machine(used.machine).filter(|machine| machine.expelled.is_none())?;
        (used.key == *key).then_some((used.machine, machine.since))
    }
}

impl Transaction<'_> {
    /// Records an invitation.
    pub fn invite(&mut self, token: [u8; 32], rights: Rights, at: u64, until: u64) {
        let result = self.invited(&token, &rights, at);
        if result.is_ok() {
            let row = wire::encode(&Invitation { rights, until, used: None });
            self.files.set_row(Table::Invitation, &token, Some(row));
            self.state.cluster.enrolment.invitations += 1;
        }
        self.out.push(Output::Invited { token, result });
    }

    fn invited(&mut self, token: &[u8; 32], rights: &Rights, at: u64) -> Result<(), InviteError> {
        if self.files.invitation(token).is_some() {
            return Err(InviteError::TokenTaken);
        }
        if !self.files.can_be_root(rights) {
            return Err(InviteError::NotADirectory);
        }
        if self.state.cluster.enrolment.invitations >= INVITATIONS_MAX {
            self.forget_invitations(at);
        }
        match self.state.cluster.enrolment.invitations {
            INVITATIONS_MAX.. => Err(InviteError::TooMany),
            _ => Ok(()),
        }
    }

    /// Forgets the invitations that have expired, once there are many.
    fn forget_invitations(&mut self, at: u64) {
        for (token, _) in self.files.invitations().iter().filter(|(_, known)| known.until <= at) {
            self.files.set_row(Table::Invitation, token, None);
            self.state.cluster.enrolment.invitations -= 1;
        }
    }

    /// Revokes an invitation: no machine joins by it any more.
    pub fn revoke(&mut self, token: [u8; 32]) {
        let result = match self.files.invitation(&token) {
            None => Err(RevokeError::Unknown),
            Some(Invitation { used: Some(used), .. }) => Err(RevokeError::Used(used.machine)),
            Some(Invitation { used: None, .. }) => {
                self.files.set_row(Table::Invitation, &token, None);
                self.state.cluster.enrolment.invitations -= 1;
                Ok(())
            }
        };
        self.out.push(Output::Revoked { token, result });
    }

    /// Forgets all invitations: no machine joins by them any more.
    pub fn forget_all_invitations(&mut self) {
        for (key, _) in self.files.table(Table::Invitation, None, usize::MAX) {
            self.files.set(&key, None);
        }
        self.state.cluster.enrolment.invitations = 0;
    }

    /// Gives machines that join from now on numbers beyond `highest`, which itself is never given.
    pub fn reserve_machines(&mut self, highest: MachineId) {
        if self.files.machines().last().is_some_and(|(machine, _)| *machine >= highest) {
            return;
        }
        let (since, expelled) = (self.now, Some(self.now));
        let (name, rights, known) = (RESTORED_NAME.to_owned(), Rights::FULL, MachineCredential::default());
        let nobody = MachineRow { name, rights, since, expelled, known, started: 0, changed: 0 };
        self.change_machine(highest, Some(nobody));
    }

    /// Enrols a machine.
    pub fn enrol(&mut self, token: &[u8; 32], name: String, key: [u8; 32], at: u64, connection: u64) {
        let result = self.enrolled(token, name, key, at);
        self.out.push(Output::Enrolled { connection, result });
    }

    fn enrolled(
        &mut self,
        token: &[u8; 32],
        name: String,
        key: [u8; 32],
        at: u64,
    ) -> Result<(MachineId, Rights), EnrolError> {
        let Enrolling { invitation, before, highest } = self.files.enrolling(token, &name, &key, at)?;
        let rights = invitation.rights.clone();
        // The highest number is never forgotten, so none is given twice.
        let (number, since) = before.unwrap_or((MachineId(highest.0.saturating_add(1)), self.now));
        let before = self.files.machine(number);
        let (holds, started) = before.map_or((0, 0), |before| (before.known.holds, before.started));
        let known = MachineCredential { key: Some(key), certified: self.files.latest_authority(), holds };
        let rights_of = rights.clone();
        let machine =
            MachineRow { name, rights: rights_of, since, expelled: None, known, started, changed: 0 };
        self.change_machine(number, Some(machine));
        let used = Some(Used { machine: number, key });
        let used = wire::encode(&Invitation { used, ..invitation });
        self.files.set_row(Table::Invitation, token, Some(used));
        Ok((number, rights))
    }

    /// Expels a machine: its leases are free at once, and its unsent changes are refused.
    pub fn expel(&mut self, machine: MachineId) {
        let result = self.expelled(machine);
        self.out.push(Output::Expelled { machine, result });
        if result.is_ok() {
            self.end_sessions_of(machine);
        }
    }

    fn expelled(&mut self, machine: MachineId) -> Result<(), ExpelError> {
        let row = self.files.machine(machine).ok_or(ExpelError::Unknown)?;
        if row.expelled.is_some() {
            return Err(ExpelError::Expelled);
        }
        self.change_machine(machine, Some(MachineRow { expelled: Some(self.now), ..row }));
        self.speaks_no_more(machine);
        self.forget_expelled();
        self.forget_authorities();
        Ok(())
    }

    /// Forgets the machines that were expelled the longest ago, once there are very many.
    fn forget_expelled(&mut self) {
        let machines = self.files.machines();
        let highest = machines.last().map(|(machine, _)| *machine);
        let mut expelled: Vec<(Time, MachineId)> =
            machines.iter().filter_map(|(machine, row)| Some((row.expelled?, *machine))).collect();
        expelled.sort();
        let too_many = expelled.len().saturating_sub(EXPELLED_MAX);
        for (_, machine) in expelled.into_iter().take(too_many).filter(|(_, it)| Some(*it) != highest) {
            self.change_machine(machine, None);
        }
    }
}
