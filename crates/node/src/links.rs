//! The machine's links to the servers of the directory: one to each server with which its client
//! has to do. All go to the same machines, whichever of them leads.

use ident::ServerId;
use net::{Caller, CertificateError, NetThread, Places, RoundTrips, ServerLink, SessionClient};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use wire::ToServer;

/// The links of a machine.
pub(crate) struct ServerLinks {
    root: Arc<ServerLink>,
    beside: RwLock<BTreeMap<ServerId, Arc<ServerLink>>>,
    /// The threads of the links beside; none any more once the machine ends.
    threads: Mutex<Option<Vec<NetThread>>>,
    places: Arc<Places>,
    round_trips: Arc<RoundTrips>,
    config: Caller,
    client: Weak<dyn SessionClient>,
}

impl ServerLinks {
    /// Makes the links of a machine that has the link `root` to the root server. The others are to
    /// the same machines, and for the same client.
    pub(crate) fn new(
        root: Arc<ServerLink>,
        (places, round_trips): (Arc<Places>, Arc<RoundTrips>),
        config: Caller,
        client: Weak<dyn SessionClient>,
    ) -> ServerLinks {
        let (beside, threads) = (RwLock::default(), Mutex::new(Some(Vec::new())));
        ServerLinks { root, beside, threads, places, round_trips, config, client }
    }

    /// The link to the root server.
    pub(crate) fn root(&self) -> &ServerLink {
        &self.root
    }

    /// Makes the link to `server`, or has it open another session if there is one.
    ///
    /// # Errors
    /// If this machine's certificate cannot be used, or no thread can be started.
    pub(crate) fn open(&self, server: ServerId) -> Result<(), CertificateError> {
        if let Some(link) = self.to(server) {
            link.begin_again();
            return Ok(());
        }
        let mut threads = self.threads.lock();
        let Some(threads) = threads.as_mut() else { return Ok(()) };
        let nothing = Box::new(|_, _| ());
        // The root server alone counts the machine's starts.
        let later = Box::new(|_| false);
        let (link, thread) = ServerLink::start(
            (server, self.root.addresses()),
            (Vec::new(), self.places.clone()),
            self.round_trips.clone(),
            self.config.clone(),
            self.client.clone(),
            (nothing, later),
        )?;
        self.beside.write().insert(server, link.clone());
        threads.push(thread);
        link.begin();
        Ok(())
    }

    /// Ends the links to servers beside the root server.
    pub(crate) fn end(&self) {
        let threads = self.threads.lock().take();
        self.beside.write().clear();
        drop(threads);
    }

    fn to(&self, server: ServerId) -> Option<Arc<ServerLink>> {
        if server == ServerId::ROOT {
            return Some(self.root.clone());
        }
        self.beside.read().get(&server).cloned()
    }

    /// Queues a message to `server` for the next [`ServerLinks::push`], if there is a connection.
    pub(crate) fn send(&self, server: ServerId, message: ToServer) {
        if server == ServerId::ROOT {
            return self.root.send(message);
        }
        if let Some(link) = self.to(server) {
            link.send(message);
        }
    }

    /// Sends the queued messages to all servers, on this thread.
    pub(crate) fn push(&self) {
        self.root.push();
        self.beside.read().values().for_each(|link| link.push());
    }

    /// Takes in what servers have sent, on this thread.
    pub(crate) fn look(&self, client: &dyn SessionClient) {
        self.root.look(client);
        // A message may bring the client to make another link.
        let beside: Vec<Arc<ServerLink>> = self.beside.read().values().cloned().collect();
        beside.iter().for_each(|link| link.look(client));
    }
}
