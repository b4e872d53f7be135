//! Changes of a machine's part: it becomes a server, stops being one, or is added anew after a
//! loss.

use super::Membership;
use crate::error::{MachineError, in_words};
use data_dir::{DataError, Identity, quarantine, remove_server};
use net::{CertificateError, LeaderError, ask_to_serve, tell_ready};
use raft::stop;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The number of attempts of a machine that is to serve.
const ATTEMPTS: u32 = 5;
/// The time between two of these attempts.
const ATTEMPT_EVERY: Duration = Duration::from_secs(1);

/// Why this machine does not serve yet.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Leader(#[from] LeaderError),
    #[error(transparent)]
    Machine(Box<MachineError>),
}

impl Membership {
    /// Becomes a server.
    pub(super) fn begin_to_serve(&self) {
        for attempt in 1..=ATTEMPTS {
            match self.try_to_serve() {
                Ok(()) => return self.announce(),
                Err(error) if attempt < ATTEMPTS && !self.stopping.load(SeqCst) => {
                    tracing::info!(error = &error as &dyn std::error::Error, "this machine cannot serve yet");
                    std::thread::sleep(ATTEMPT_EVERY);
                }
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "this machine cannot serve");
                    return;
                }
            }
        }
    }

    fn try_to_serve(&self) -> Result<(), ServeError> {
        if self.serving.lock().is_some() {
            return Ok(());
        }
        let credentials = self.credentials()?;
        let (member, (certificate, authority)) = ask_to_serve(&self.leader(), &credentials.caller())?;
        // The state of an earlier member on this machine does not belong to the new one.
        discard(&self.dir)?;
        credentials.take(certificate, authority)?;
        let served = self.serve_as(member);
        if served.is_err() {
            // The next attempt gets another number, and the state of this one is worth nothing.
            discard(&self.dir)?;
        }
        served
    }

    fn serve_as(&self, member: u64) -> Result<(), ServeError> {
        let listened = self.cluster.known().and_then(|cluster| cluster.listens);
        let serving = self.serve(member, listened);
        let mut serving = serving.map_err(|error| ServeError::Machine(Box::new(error)))?;
        let listens = serving.listener.as_ref().map(|listener| listener.address());
        // A machine that ends notes nothing any more.
        if let Err(error) = self.cluster.serves(member, listens) {
            self.client_host.copies().set_here(None);
            serving.end();
            return Err(error.into());
        }
        *self.serving.lock() = Some(serving);
        Ok(())
    }

    /// Reports the addresses of this machine's server to the leader.
    pub(super) fn announce(&self) {
        for _ in 0..ATTEMPTS {
            match self.tell_leader() {
                Ok(()) => return,
                Err(error) => {
                    tracing::info!(error = &error as &dyn std::error::Error, "the leader cannot be told yet");
                    std::thread::sleep(ATTEMPT_EVERY);
                }
            }
            if self.stopping.load(SeqCst) {
                return;
            }
        }
    }

    fn tell_leader(&self) -> Result<(), ServeError> {
        let Some(member) = self.serving.lock().as_ref().map(|serving| serving.member) else { return Ok(()) };
        let Some(addresses) = self.addresses() else { return Ok(()) };
        Ok(tell_ready(&self.leader(), &self.credentials()?.caller(), member, addresses)?)
    }

    /// Stops being a server: the other servers have removed this one.
    pub(super) fn retire(&self) {
        if self.stopping.load(SeqCst) {
            // The next start hears of it again.
            return;
        }
        let Some(mut serving) = self.serving.lock().take() else { return };
        tracing::warn!("this machine is no server any more");
        self.client_host.copies().set_here(None);
        serving.end();
        let addresses =
            self.link.lock().as_ref().map(|(links, _)| links.root().addresses()).unwrap_or_default();
        let kept = self.cluster.retired(addresses).and_then(|()| discard(&self.dir));
        let kept = kept.map_err(CertificateError::from);
        let kept = kept.and_then(|()| self.credentials().and_then(|credentials| credentials.retire()));
        if let Err(error) = kept {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "what the server had could not be put away"
            );
        }
    }

    /// Handles the loss of this server's state. One server among several becomes a server anew,
    /// with another number.
    pub(super) fn lose(&self, why: &str) {
        let Some(mut serving) = self.serving.lock().take() else { return };
        let members = serving.server.group().standing().members;
        if members.iter().filter(|member| member.votes).all(|member| member.id == serving.member) {
            stop(&MachineError::Alone(why.to_owned()));
        }
        self.client_host.copies().set_here(None);
        serving.end();
        drop(serving);
        match self.quarantine_server(why) {
            Ok(()) => self.serve_again(),
            // The next start finds the same.
            Err(DataError::Ends { .. }) => {}
            Err(error) => stop(&error),
        }
    }

    /// Becomes a server again: the others list this one, which has no state and does not know of a
    /// loss.
    pub(super) fn serve_anew(&self) {
        if self.serving.lock().is_some() || self.stopping.load(SeqCst) {
            return;
        }
        match self.quarantine_server("the other servers list this machine as one, and it did not serve") {
            Ok(()) => self.serve_again(),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "this machine cannot become the server that the others list"
            ),
        }
    }

    /// Stops the only server because its state is older than it once was; `why` is the proof. It
    /// neither continues nor starts again unless people accept that.
    pub(crate) fn is_older(&self, why: String) {
        self.change(move |membership| {
            if let Err(error) = Identity::change(&membership.dir, |known| known.older = true) {
                stop(&error);
            }
            stop(&MachineError::Older(why));
        });
    }

    /// Moves this server's state into quarantine, for people to look at, and notes that the machine
    /// is to become a server again.
    pub(super) fn quarantine_server(&self, why: &str) -> Result<(), DataError> {
        let addresses =
            self.link.lock().as_ref().map(|(links, _)| links.root().addresses()).unwrap_or_default();
        // This comes first: without its state the machine must not act as the former member.
        self.cluster.lost(addresses)?;
        Identity::change(&self.dir, |known| known.serves = None)?;
        let quarantine = quarantine::put(&self.dir, why)?;
        tracing::error!(
            why,
            kept = %quarantine.display(),
            "this server has lost what it had and is added anew, as soon as the other servers can do that"
        );
        Ok(())
    }

    /// Becomes a server again, once the others can add one. The quarantine is not needed for that,
    /// and nothing of it is removed.
    pub(super) fn serve_again(&self) {
        let mut said = String::new();
        while !self.stopping.load(SeqCst) {
            match self.try_to_serve_again() {
                Ok(()) => {
                    return tracing::warn!("this machine is a server again, and learns what the others have");
                }
                Err(error) => {
                    let why = in_words(&error);
                    if why != said {
                        tracing::warn!(
                            why,
                            "this machine cannot be a server again yet; it is tried until it can"
                        );
                        said = why;
                    }
                }
            }
            std::thread::sleep(ATTEMPT_EVERY);
        }
    }

    fn try_to_serve_again(&self) -> Result<(), ServeError> {
        self.try_to_serve()?;
        let told = self.tell_leader();
        match &told {
            Ok(()) => self.cluster.recovered()?,
            // The member's new number may be void already: another server leads now, and has not
            // heard of it.
            Err(_) => {
                let begun = self.serving.lock().take();
                self.client_host.copies().set_here(None);
                begun.into_iter().for_each(|mut serving| serving.end());
                discard(&self.dir)?;
            }
        }
        told
    }
}

/// Removes the state of a member of the group. The share server stays: its shares may be on no
/// other machine.
fn discard(dir: &Path) -> Result<(), DataError> {
    Identity::change(dir, |known| known.serves = None)?;
    remove_server(dir)
}
