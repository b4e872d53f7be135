//! Which authority certifies machines, on a server: the first comes from the founder, the others when people ask for one and whenever a server is removed, since that has had the key.

use crate::net::Authority;
use crate::server::Server;
use directory::{Input, Known};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use wire::MachineId;

/// How long the directory may take to do what it is asked.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Server {
    /// Has another authority certify machines from now on. Machines are given certificates as they greet, which those that are up do at once; when one has shown its own, earlier ones count for
    /// nothing.
    pub(crate) fn renew_authority(&self, progress: &mut dyn FnMut(&str)) -> Result<(), String> {
        let authority = Authority::generate().map_err(|error| error.to_string())?.to_row();
        let (latest, _) = self.known(self.keeper().peers().me());
        if latest == 0 {
            return Err("this server has only just begun; try again".to_owned());
        }
        let number = latest + 1;
        let (tell, told) = sync_channel(1);
        self.waiting().lock().authorized.insert(number, tell);
        self.group().propose(Input::Authorize { number, authority });
        let done = told.recv_timeout(TIMEOUT).map_err(|_| "the directory does not answer")?;
        if !done {
            return Err("somebody else has renewed the authority at the same time".to_owned());
        }
        progress("another authority certifies machines; backups from before have the earlier one");
        Ok(())
    }

    /// Sees to it that this server takes calls by the authorities that there are, and on the leader that there is one, and that this machine is known.
    pub(crate) fn tend_identity(&self) {
        if let Err(error) = self.try_to_tend_identity() {
            tracing::warn!(error = &error as &dyn std::error::Error, "this server cannot be certified");
        }
    }

    fn try_to_tend_identity(&self) -> Result<(), crate::net::CertificateError> {
        let (dir, me) = (self.dir(), self.keeper().peers().me());
        let authorities = self.authorities();
        self.identity().serve(&authorities)?;
        let latest = authorities.last().map(|(number, _)| *number);
        if latest.is_some() {
            Authority::forget(dir)?;
        }
        if !self.group().leads() {
            return Ok(());
        }
        let Some(certified) = latest else {
            let authority = Authority::open(dir)?.to_row();
            self.group().propose(Input::Authorize { number: 1, authority });
            return Ok(());
        };
        let before = self.known(me).1.unwrap_or_default();
        let known = Known { key: Some(self.identity().public_key()?), certified, ..before };
        if before != known {
            self.group().propose(Input::Known { machine: me, known, itself: true });
        }
        self.tend_holders(certified);
        Ok(())
    }

    /// Notes who has the latest authority's key, which servers have. Another authority takes its place if a machine has it that is no server any more, however that came about.
    fn tend_holders(&self, latest: u64) {
        let mut servers: Vec<MachineId> = self.chosen().lock().keys().copied().collect();
        let members = self.group().standing().members;
        servers.extend(members.iter().map(|member| MachineId(member.host.machine)));
        servers.sort_unstable();
        let now = (servers, latest);
        if members.is_empty() || *self.holders().lock() == now {
            return;
        }
        let known = self.group().query(|directory, store| directory.all_known(store));
        let is_server = |machine: &MachineId| now.0.contains(machine);
        let unnoted = known.iter().filter(|(machine, known)| is_server(machine) && known.holds < latest);
        let mut settled = true;
        for (machine, known) in unnoted {
            let (machine, known) = (*machine, Known { holds: latest, ..*known });
            self.group().propose(Input::Known { machine, known, itself: false });
            settled = false;
        }
        if known.iter().any(|(machine, known)| !is_server(machine) && known.holds == latest) {
            settled = false;
            tracing::warn!("a machine that is no server any more has had the authority's key: it is renewed");
            if let Err(why) = self.renew_authority(&mut |_| {}) {
                tracing::warn!(why, "the authority cannot be renewed yet; it is tried again");
            }
        }
        if settled {
            *self.holders().lock() = now;
        }
    }
}
