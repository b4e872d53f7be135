//! A running server of a machine: how it starts, listens and ends.

use super::Membership;
use crate::callers::listen;
use crate::cluster::reachable_at;
use crate::error::{MachineError, failed, in_words, thread};
use crate::members::MemberNet;
use crate::routes::LocalClient;
use crate::server::Server;
use crate::settings::Listen;
use admin::{ControlRefusal, RequestWork};
use data_dir::{DataError, Identity, MARK, Placed, io, missing};
use net::{Authority, CredentialStore, Listener};
use os::{STOP_LOOK, private};
use raft::{FOUNDER, GroupFiles, Host, Keeping, MemberPlace, Standing};
use share_hosts::{ReferenceIndex, ShareHost, wall_clock};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The address at which a machine listens that is asked to serve and has no address set.
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// A running server, with its listener and its threads.
pub(super) struct Serving {
    pub(super) member: u64,
    pub(super) server: Arc<Server>,
    pub(super) listener: Option<Arc<Listener>>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Membership {
    /// Starts to listen for other machines if this server does not yet, and returns the listener. A
    /// server that is alone needs none until a machine is invited.
    pub(crate) fn begin_to_listen(&self) -> Result<Arc<Listener>, ControlRefusal> {
        let failed = |error: &dyn std::error::Error| failed(RequestWork::Listening, error);
        let credentials = self.credentials().map_err(|error| failed(&error))?;
        let mut serving = self.serving.lock();
        let serving = serving.as_mut().ok_or(ControlRefusal::ServerGone)?;
        if serving.listener.is_none() {
            let listener = self.listen(serving, None, credentials).map_err(|error| failed(&error))?;
            if let Some(listener) = &listener {
                serving.server.listens_at(reachable_at(listener.address()));
            }
            serving.listener = listener;
        }
        let listens = serving.listener.clone();
        listens.ok_or(ControlRefusal::NotListening)
    }

    /// Starts the server `member`, which listened at `listened` before.
    ///
    /// # Errors
    /// If any part of it does not start. Then nothing holds the shares' lock any more, so the next
    /// attempt fails for its own reason.
    pub(super) fn serve(&self, member: u64, listened: Option<SocketAddr>) -> Result<Serving, MachineError> {
        self.start_server(member, listened).inspect_err(|_| self.client_host.copies().set_here(None))
    }

    fn start_server(&self, member: u64, listened: Option<SocketAddr>) -> Result<Serving, MachineError> {
        let identity = Identity::of(&self.dir)?;
        if !identity.made {
            Authority::found(&self.dir)?.credentials(&self.dir, self.machine)?;
        }
        // Missing parts are found before any are made.
        let credentials = self.credentials()?;
        if identity.older && !self.settings.accepts_older {
            return Err(MachineError::Older(
                "this server was found to have forgotten what it had acknowledged".to_owned(),
            ));
        }
        // People may accept an older state. Other hosts have copies, and this host makes its own
        // anew.
        if !self.settings.accepts_older {
            has_shares(&self.dir, identity)?;
        }
        let placed = self.placed()?;
        let wires =
            Arc::new(MemberNet::new(credentials.caller(), self.places.clone(), self.round_trips().clone()));
        self.peers.know(credentials.caller());
        if member == FOUNDER {
            // This holds unless the group lists other hosts.
            self.peers.hosts().set(
                vec![share_hosts::ListedHost { machine: self.machine, addresses: Vec::new(), weight: 1 }],
                1,
            );
        }
        let shares = self.dir.join("shares");
        let settings = self.settings.shares.clone();
        let (share_host, chores) = ShareHost::open(&shares, settings, wall_clock(), self.peers.clone())?;
        self.client_host.copies().set_here(Some(share_host.clone()));
        let membership = self.me.clone();
        let standing = Box::new(move |standing: &Standing| {
            if let Some(membership) = membership.upgrade() {
                membership.stands(standing);
            }
        });
        let membership = self.me.clone();
        let damaged = Box::new(move |why: String| {
            if let Some(membership) = membership.upgrade() {
                membership.change(move |membership| membership.lose(&why));
            }
        });
        let chooses = (self.settings.raises, self.settings.balance);
        let with = (self.settings.accepts_older, credentials.clone());
        let server = Server::new(&self.dir, share_host.clone(), chooses, with, standing, damaged);
        let (machine, name) = (self.machine.0, self.settings.name.clone());
        let host = Host { machine, name, keeping: Keeping::Keeps, addresses: Vec::new() };
        let moved = identity.serves == Some(member) && identity.placed != Some(placed);
        let place = MemberPlace { member, host, founds: member == FOUNDER, knows: self.settings.knows };
        let files = GroupFiles {
            dir: self.dir.join("server"),
            mark: Some(self.dir.join(MARK)),
            moved: moved && !self.settings.accepts_older,
        };
        let here: Arc<dyn LocalClient> = self.client_host.clone();
        server.serve(Arc::downgrade(&here), self.settings.group, files, place, wires)?;
        let elsewhere = share_host.shares().server().disk().is_none();
        let known = Identity::change(&self.dir, |known| {
            (known.made, known.serves) = (true, Some(member));
            (known.shares, known.elsewhere) = (true, elsewhere);
        });
        if let Err(error) = known {
            server.end();
            return Err(error.into());
        }
        server.tend_certificates();
        let references: Arc<dyn ReferenceIndex> = server.clone();
        let (ticker, surveyor, scrub) = (server.clone(), server.clone(), server.clone());
        let balancer = server.clone();
        let (dir, settling) = (self.dir.clone(), server.clone());
        let threads = vec![
            thread("place", move || settle(&dir, placed, &settling))?,
            thread("shares", move || share_host.run(&chores, &references))?,
            thread("server-tick", move || ticker.tick())?,
            thread("survey", move || surveyor.survey())?,
            thread("scrub", move || scrub.run_scrub())?,
            thread("balance", move || balancer.run_balance())?,
        ];
        let mut serving = Serving { member, server, listener: None, threads };
        // No machine calls one that is alone and has no open invitation.
        let nobody = member == FOUNDER
            && !matches!(self.settings.listen, Listen::At(_))
            && serving.server.awaits_nobody();
        let listener = if nobody { Ok(None) } else { self.listen(&serving, listened, credentials) };
        match listener {
            Ok(listener) => {
                serving.listener = listener;
                if let Some(listener) = &serving.listener {
                    serving.server.listens_at(reachable_at(listener.address()));
                }
            }
            Err(error) if member == FOUNDER && !matches!(self.settings.listen, Listen::At(_)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "other machines cannot join or reach this one"
                )
            }
            Err(error) => {
                serving.end();
                return Err(error);
            }
        }
        Ok(serving)
    }

    /// The identity of the server's files. This makes their directory if there is none.
    fn placed(&self) -> Result<Placed, DataError> {
        let server = self.dir.join("server");
        private::make_dir(&server).map_err(io("make", &server))?;
        Placed::of(&self.dir)
    }

    /// Listens at the address set, or at the former one. One server among several must listen; the
    /// only server may do without.
    fn listen(
        &self,
        serving: &Serving,
        listened: Option<SocketAddr>,
        credentials: Arc<CredentialStore>,
    ) -> Result<Option<Arc<Listener>>, MachineError> {
        let only = serving.member == FOUNDER;
        let places = match self.settings.listen {
            Listen::Nowhere if only => return Ok(None),
            Listen::At(address) => vec![address],
            Listen::IfFree(address) if only => vec![address],
            Listen::IfFree(address) => listened.into_iter().chain([address, ANYWHERE]).collect(),
            Listen::Nowhere => listened.into_iter().chain([ANYWHERE]).collect(),
        };
        let mut last = Ok(None);
        for place in places {
            match listen(self.me.clone(), serving.server.clone(), credentials.clone(), place) {
                Ok(listener) => return Ok(Some(Arc::new(listener))),
                Err(error) => last = Err(error.into()),
            }
        }
        last
    }
}

impl Serving {
    pub(super) fn end(&mut self) {
        self.server.stop();
        self.listener = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.server.end();
    }
}

/// Keeps the identity of the server's files, once the other members recognise this one as the
/// member it was.
fn settle(dir: &Path, placed: Placed, server: &Server) {
    while !server.group().is_trusted() {
        if server.is_stopping() {
            return;
        }
        std::thread::sleep(STOP_LOOK);
    }
    if let Err(error) = Identity::change(dir, |known| known.placed = Some(placed)) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "which files the server has could not be noted"
        );
    }
}

/// Checks that the share server in `dir` is there if the machine has had one. A missing part is an
/// error.
fn has_shares(dir: &Path, identity: Identity) -> Result<(), DataError> {
    let lacks = shares::lacks(&dir.join("shares"), identity.elsewhere).filter(|_| identity.shares);
    lacks.map_or(Ok(()), |what| Err(missing(dir, &format!("shares/{what}"))))
}

/// Turns damage of the only server into an error that names the way out.
pub(super) fn alone(error: MachineError) -> MachineError {
    if error.is_damage() { MachineError::Alone(in_words(&error)) } else { error }
}
