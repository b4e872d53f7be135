//! The authority that certifies machines, on a server. The first comes from the founder. Another
//! one follows when people ask for it, and whenever a machine ceases to be a server, since that
//! machine has had the key. Machines get certificates as they greet, which those that are up do at
//! once. Once a machine has shown its own certificate, earlier ones are refused.

use crate::error::AuthorityError;
use crate::server::Server;
use admin::{AuthorityReport, ControlProgress, ControlRefusal};
use directory::{CertificateAuthority, Input, MachineCredential};
use net::{Authority, AuthorityKeys, CertificateError, ShownCertificate, fingerprint};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use wire::{Certificates, MachineId, Welcome};

/// How long the directory may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often a server that has just begun checks whether there is an authority.
const LOOK: Duration = Duration::from_millis(10);

/// A machine has shown a certificate that was made with a stolen authority's key.
const FORGED: &str = "this certificate is for another key than the machine's own: whoever made it had the authority's key (leasehold authority renew)";
const OUTDATED: &str = "this certificate is of an authority that was renewed, and the machine has been given a later one: the data directory is an older copy, so have the machine join anew with another";

impl Server {
    /// Returns the authority that certifies machines now.
    pub(crate) fn authority(&self) -> Result<Authority, AuthorityError> {
        Ok(Authority::read(&keys_of(&self.latest_authority()?.1))?)
    }

    /// Returns the latest authority and its number. Waits for a server that has just begun.
    pub(crate) fn latest_authority(&self) -> Result<(u64, CertificateAuthority), AuthorityError> {
        let begun = Instant::now();
        loop {
            if let Some(latest) = self.authorities().pop() {
                return Ok(latest);
            }
            if begun.elapsed() > TIMEOUT || self.is_stopping() {
                return Err(AuthorityError::JustBegun);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn authorities(&self) -> Vec<(u64, CertificateAuthority)> {
        self.group().query(|directory, store| directory.authorities(store))
    }

    /// Makes a certificate for `machine`, whose public key is `key`. It is a server's certificate
    /// if the machine `serves`. The authority's certificate comes with it.
    pub(crate) fn certify(
        &self,
        machine: MachineId,
        key: [u8; 32],
        serves: bool,
    ) -> Result<Certificates, AuthorityError> {
        Ok(self.authority()?.certify(machine, key, serves)?)
    }

    /// Returns the answer to a machine that shows this certificate, if it needs another one or is
    /// refused. It is refused only if `may_refuse`: the leader knows everything that other servers
    /// know.
    pub(crate) fn identify(&self, shown: &ShownCertificate, may_refuse: bool) -> Option<Welcome> {
        let machine = shown.machine;
        let (latest, known, admitted) = self.group().query(|directory, store| {
            let latest = directory.authorities(store).last().map(|(number, _)| *number);
            (latest, directory.known(machine, store), directory.admits(machine, store).is_ok())
        });
        // Other servers decide about an unknown machine.
        let (latest, known) = latest.zip(known)?;
        let number = shown.authority.unwrap_or(latest);
        let refused = if known.key != Some(shown.key) {
            Some(FORGED)
        } else {
            (number < known.certified).then_some(OUTDATED)
        };
        if let Some(why) = refused {
            return may_refuse.then(|| Welcome::Refused { why: why.to_owned() });
        }
        if number < latest && admitted {
            let serves = self.member_on(machine).is_some() || self.chosen().lock().contains_key(&machine);
            return match self.certify(machine, shown.key, serves) {
                Ok(certificates) => Some(Welcome::Certified { certificates }),
                Err(error) => {
                    tracing::warn!(why = %error, machine = machine.0, "a machine cannot be certified");
                    None
                }
            };
        }
        if number == latest && known.certified < latest && self.group().leads() {
            let known = MachineCredential { certified: latest, ..known };
            self.group().propose(Input::Known { machine, known, itself: false });
        }
        None
    }

    /// Makes another authority, which certifies machines from now on.
    pub(crate) fn renew_authority(
        &self,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<AuthorityReport, ControlRefusal> {
        let (latest, row) = self.latest_authority()?;
        let number = latest + 1;
        let (tell, told) = sync_channel(1);
        self.waiting().lock().authorized.insert(number, tell);
        self.propose_authority(number, row.cluster).map_err(AuthorityError::from)?;
        let done = told.recv_timeout(TIMEOUT).map_err(|_| ControlRefusal::AuthorityUnanswered)?;
        if !done {
            return Err(ControlRefusal::RenewedMeanwhile);
        }
        progress(&ControlProgress::AuthorityRenewed);
        progress(&ControlProgress::AuthorityReplaced);
        Ok(AuthorityReport { authority: number })
    }

    fn propose_authority(&self, number: u64, cluster: [u8; 32]) -> Result<(), CertificateError> {
        let authority = row_of(&Authority::generate()?, Some(cluster));
        self.group().propose(Input::Authorize { number, authority });
        Ok(())
    }

    /// Makes this server take calls by the authorities that there are. While it leads, it also
    /// makes sure that there is one, and that this machine is known.
    pub(crate) fn tend_certificates(&self) {
        if let Err(error) = self.try_to_tend_certificates() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "this server's certificates cannot be renewed yet; it is tried again"
            );
        }
    }

    fn try_to_tend_certificates(&self) -> Result<(), CertificateError> {
        let me = self.share_host().peers().me();
        let authorities = self.authorities();
        let keys: Vec<_> = authorities.iter().map(|(number, row)| (*number, keys_of(row))).collect();
        self.credentials().serve(me, &keys)?;
        let latest = authorities.last();
        if let Some((_, authority)) = keys.last() {
            let authority = Authority::read(authority)?;
            self.all_hosted().iter().for_each(|hosted| hosted.receipts().are_by(authority.secret()));
            Authority::forget(self.dir())?;
        }
        if !self.group().leads() {
            return Ok(());
        }
        let Some((latest, row)) = latest else {
            let authority = row_of(&Authority::open(self.dir())?, None);
            self.group().propose(Input::Authorize { number: 1, authority });
            return Ok(());
        };
        let before = self.group().query(|directory, store| directory.known(me, store));
        let before = before.unwrap_or_default();
        let known =
            MachineCredential { key: Some(self.credentials().public_key()), certified: *latest, ..before };
        if before != known {
            self.group().propose(Input::Known { machine: me, known, itself: true });
        }
        self.tend_holders(*latest, row.cluster)
    }

    /// Notes which machines have the latest authority's key: the servers. If a machine that is no
    /// server has it, another authority takes its place.
    fn tend_holders(&self, latest: u64, cluster: [u8; 32]) -> Result<(), CertificateError> {
        let mut servers: Vec<MachineId> = self.chosen().lock().keys().copied().collect();
        let members = self.group().standing().members;
        servers.extend(members.iter().map(|member| MachineId(member.host.machine)));
        servers.sort_unstable();
        let now = (servers, latest);
        if members.is_empty() || *self.holders().lock() == now {
            return Ok(());
        }
        let known = self.group().query(|directory, store| directory.all_known(store));
        let is_server = |machine: &MachineId| now.0.contains(machine);
        let unnoted = known.iter().filter(|(machine, known)| is_server(machine) && known.holds < latest);
        let mut settled = true;
        for (machine, known) in unnoted {
            let (machine, known) = (*machine, MachineCredential { holds: latest, ..*known });
            self.group().propose(Input::Known { machine, known, itself: false });
            settled = false;
        }
        if known.iter().any(|(machine, known)| !is_server(machine) && known.holds == latest) {
            settled = false;
            tracing::info!("a machine that is no server any more has had the authority's key: it is renewed");
            self.propose_authority(latest + 1, cluster)?;
        }
        if settled {
            *self.holders().lock() = now;
        }
        Ok(())
    }
}

/// The authority's keys, out of its row.
fn keys_of(row: &CertificateAuthority) -> AuthorityKeys {
    AuthorityKeys { certificate: row.certificate.clone(), key: row.key.clone() }
}

/// The authority's row in the cluster named by `cluster`. The first authority names the cluster
/// itself.
fn row_of(authority: &Authority, cluster: Option<[u8; 32]>) -> CertificateAuthority {
    let AuthorityKeys { certificate, key } = authority.keys();
    let cluster = cluster.unwrap_or_else(|| fingerprint(authority.certificate()));
    CertificateAuthority { certificate, key, cluster }
}
