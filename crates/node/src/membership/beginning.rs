//! The part with which a machine begins, as its data directory names it.

use super::Membership;
use super::serving::alone;
use crate::error::{MachineError, in_words};
use crate::upstream::Upstream;
use data_dir::{Cluster, Identity, lacks_server, missing};
use directory::Input;
use os::utc_secs;
use raft::FOUNDER;
use share_hosts::SharesError;
use std::sync::Arc;

impl Membership {
    /// Begins the part that the data directory names: a cluster of its own, a server among others,
    /// or a client only.
    pub(crate) fn begin(&self) -> Result<(), MachineError> {
        let changing = self.changing.lock();
        match self.cluster.known() {
            None => self.begin_alone(),
            Some(cluster) => {
                let (addresses, again) = self.begin_among_others(cluster)?;
                // From here on a change that the servers ask for is not in the way of this one.
                drop(changing);
                self.connect(addresses)?;
                if again {
                    self.change(Membership::serve_again);
                }
                Ok(())
            }
        }
    }

    fn begin_alone(&self) -> Result<(), MachineError> {
        if Identity::of(&self.dir)?.serves.is_some()
            && let Some(what) = lacks_server(&self.dir)
        {
            return Err(missing(&self.dir, &what).into());
        }
        let serving = self.serve(FOUNDER, None).map_err(alone)?;
        let standing = serving.server.group().standing();
        if self.settings.accepts_older && standing.alone {
            // This counts as a restored backup: machines that are still up know later states.
            serving.server.group().propose(Input::Restored { at: utc_secs() });
            Identity::change(&self.dir, |known| known.older = false)?;
        }
        if standing.alone {
            self.client_host.connect(Upstream::Here(Arc::downgrade(&serving.server)));
        }
        *self.serving.lock() = Some(serving);
        self.stands(&standing);
        Ok(())
    }

    /// Starts this machine's server, if it has one. Returns the addresses of servers, and whether
    /// the machine has lost its server's state.
    fn begin_among_others(&self, cluster: Cluster) -> Result<(Vec<String>, bool), MachineError> {
        let Cluster { addresses, mut member, mut again, listens, .. } = cluster;
        let serves = Identity::of(&self.dir)?.serves;
        let lacks = lacks_server(&self.dir);
        if let (None, false, Some(served), None) = (member, again, serves, &lacks) {
            // If the other servers have removed it, it retires as soon as it hears of that.
            tracing::warn!(
                "this machine has a server's state, and was noted to be no server: it serves again"
            );
            self.cluster.serves(served, listens)?;
            member = Some(served);
        }
        if let Some(what) = lacks.filter(|_| serves.is_some() && member == serves) {
            // The other servers have that state. The promises that this member made are lost.
            self.quarantine_server(&format!("{what} is missing, or empty"))?;
            (again, member) = (true, None);
        }
        if again && member.is_none() && self.dir.join("server").exists() {
            self.quarantine_server("it was found damaged, and the machine stopped before it was put aside")?;
        }
        if let (None, Some(content)) = (member, &self.settings.shares.content) {
            // The server that this machine may become later keeps its content there, however it is
            // started then.
            shares::remember(&self.dir.join("shares"), content).map_err(SharesError::from)?;
        }
        match member.map(|member| self.serve(member, listens)).transpose() {
            Err(error) if error.is_damage() => {
                self.quarantine_server(&in_words(&error))?;
                again = true;
            }
            serving => *self.serving.lock() = serving?,
        }
        Ok((addresses, again))
    }
}
