//! The server of a machine: what its connections share.

use crate::accounts::Accounts;
use crate::auth::kerberos::Replays;
use crate::client::Client;
use crate::handle::Handle;
use crate::limits::EARLY_CONNECTIONS;
use crate::mechanisms::Mechanisms;
use crate::records::Records;
use crate::replay::Creates;
use crate::report::ServerReport;
use crate::session::Session;
use objects::{ClientGuid, LeaseHolder, Store};
use os::Strangers;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc;

/// The front door of a machine.
pub struct Server {
    pub(crate) store: Arc<Store>,
    pub(crate) accounts: Accounts,
    pub(crate) mechanisms: Mechanisms,
    pub(crate) replays: Replays,
    /// The machine's name.
    pub(crate) computer: String,
    /// ServerGuid.
    pub(crate) guid: [u8; 16],
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    clients: Mutex<BTreeMap<ClientGuid, Arc<Client>>>,
    /// Opens that wait for their clients, by number.
    pub(crate) durables: Mutex<BTreeMap<u64, Arc<Handle>>>,
    pub(crate) creates: Arc<Creates>,
    /// The records of persistent opens.
    pub(crate) records: Arc<Records>,
    unheard: mpsc::UnboundedSender<LeaseHolder>,
    /// Breaks that no connection could be told of. The thread that takes it closes the opens.
    pub(crate) unheard_of: Mutex<Option<mpsc::UnboundedReceiver<LeaseHolder>>>,
    next: AtomicU64,
    next_session: AtomicU32,
    pub(crate) connections: AtomicUsize,
    /// The connections without a session.
    pub(crate) strangers: Strangers,
}

impl Server {
    /// Makes the server of the machine `computer`, whose users and shares are in the data
    /// directory.
    pub fn new(
        store: Arc<Store>,
        data: PathBuf,
        computer: &str,
        mechanisms: Mechanisms,
    ) -> std::io::Result<Arc<Server>> {
        let (unheard, unheard_of) = mpsc::unbounded_channel();
        let mut guid = [0; 16];
        os::fill_random(&mut guid)?;
        let mut first = [0; 8];
        os::fill_random(&mut first)?;
        Ok(Arc::new(Server {
            store,
            records: Arc::new(Records::new(&data)),
            accounts: Accounts::new(data),
            mechanisms,
            replays: Replays::default(),
            computer: computer.chars().take(15).collect(),
            guid,
            sessions: Mutex::default(),
            clients: Mutex::default(),
            durables: Mutex::default(),
            creates: Arc::default(),
            unheard,
            unheard_of: Mutex::new(Some(unheard_of)),
            // Half of the numbers, and never 0 or all ones.
            next: AtomicU64::new(u64::from_le_bytes(first) >> 1 | 1),
            next_session: AtomicU32::new(u64::from_le_bytes(first) as u32),
            connections: AtomicUsize::new(0),
            strangers: Strangers::new(EARLY_CONNECTIONS),
        }))
    }

    /// Returns a number that nothing else of this server has.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Returns the number of a new session. It has 32 bits: there are clients that keep no more of
    /// it, smbtorture among them.
    pub(crate) fn next_session(&self) -> u64 {
        let sessions = self.sessions.lock();
        loop {
            let number = u64::from(self.next_session.fetch_add(1, Relaxed));
            if number != 0 && !sessions.contains_key(&number) {
                return number;
            }
        }
    }

    pub(crate) fn add_session(&self, session: &Arc<Session>) {
        self.sessions.lock().insert(session.id, session.clone());
    }

    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).cloned()
    }

    pub(crate) fn remove_session(&self, id: u64) {
        self.sessions.lock().remove(&id);
    }

    /// Returns the client, which its connections share, and makes it known to the store.
    pub(crate) fn client(&self, guid: ClientGuid) -> Arc<Client> {
        let mut clients = self.clients.lock();
        let client = clients.entry(guid).or_insert_with(|| {
            let client = Arc::new(Client::new(self.unheard.clone()));
            self.store.connect(guid, client.clone());
            client
        });
        client.clone()
    }

    /// Returns whether a client could be asked for anything now.
    pub(crate) fn reaches(&self, guid: ClientGuid) -> bool {
        self.clients.lock().get(&guid).is_some_and(|client| client.is_reached())
    }

    /// Forgets a client whose last connection is gone, and that no open waits for.
    pub(crate) fn leave(&self, guid: ClientGuid) {
        let is_awaited = |handle: &Handle| handle.object().is_ok_and(|open| open.client() == guid);
        if self.durables.lock().values().any(|handle| is_awaited(handle)) {
            return;
        }
        let mut clients = self.clients.lock();
        if clients.get(&guid).is_some_and(|client| client.is_gone()) {
            clients.remove(&guid);
            self.store.disconnect(guid);
        }
    }

    /// Takes opens of a user out of the sessions, and of those that wait. The caller closes them.
    pub(crate) fn take_opens(&self, user: &str, is_wanted: impl Fn(&Handle) -> bool) -> Vec<Arc<Handle>> {
        let sessions = self.sessions.lock().values().cloned().collect::<Vec<Arc<Session>>>();
        let ours = sessions.iter().filter(|session| session.user == user);
        let mut taken = ours.flat_map(|session| session.take(&is_wanted)).collect::<Vec<_>>();
        let is_waiting = |handle: &Handle| {
            let durable = handle.durable.lock();
            durable.as_ref().is_some_and(|durable| durable.user == user) && is_wanted(handle)
        };
        taken.extend(
            self.durables.lock().extract_if(.., |_, handle| is_waiting(handle)).map(|(_, handle)| handle),
        );
        taken
    }

    /// Reports sessions and counts.
    pub fn report(&self) -> ServerReport {
        let (opens, leases, breaks) = self.store.counts();
        let sessions = self.sessions.lock().values().map(|session| session.report()).collect();
        ServerReport { connections: self.connections.load(Relaxed), sessions, opens, leases, breaks }
    }
}
