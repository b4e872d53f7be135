//! A machine, its store, and clients.

use admin::Invitation;
use lease::caching::{AccessMask, Break, CachingState, ClientGuid, LeaseKey, LeaseVersion, Sharing};
use namespace::Cred;
use node::{Listen, Machine, MachineSettings};
use objects::{
    BreakSink, Caching, CreateDisposition, CreateOptions, Granted, ObjectPath, Open, OpenRequest, Opened,
    Root, Store, StoreError,
};
use parking_lot::Mutex;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub const READ: u32 = 0x12_0089;
pub const WRITE: u32 = 0x12_0116;
pub const ALL: u32 = 0x1F_01FF;
pub const DELETE: u32 = 0x1_0000;

pub struct Bed {
    pub machine: Option<Machine>,
    pub store: Arc<Store>,
    pub root: Root,
    pub who: Cred,
    dir: TempDir,
}

/// The breaks that a client was sent.
#[derive(Default)]
pub struct Sink(pub Mutex<Vec<Break>>);

impl BreakSink for Sink {
    fn broken(&self, broken: &Break) -> bool {
        self.0.lock().push(*broken);
        true
    }
}

impl Sink {
    /// The breaks so far: from, to, and whether they are to be acknowledged.
    pub fn take(&self) -> Vec<(CachingState, CachingState, bool)> {
        self.0.lock().drain(..).map(|it| (it.from, it.to, it.acknowledge)).collect()
    }
}

impl Bed {
    pub async fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        Bed::at(dir).await
    }

    async fn at(dir: TempDir) -> Bed {
        let any_port = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let settings = MachineSettings { listen: Listen::At(any_port), ..MachineSettings::default() };
        let machine = Machine::start(dir.path(), "a test", settings).unwrap();
        let store = Arc::clone(machine.store());
        let root = store.root(b"/").await.unwrap();
        Bed { machine: Some(machine), store, root, who: Cred::default(), dir }
    }

    /// Another machine of the same cluster. It ends before this one.
    pub async fn another(&self) -> Bed {
        let invitation = Invitation {
            path: "/".into(),
            read_only: false,
            squash: None,
            good_for_s: 60,
            addresses: vec![self.machine.as_ref().unwrap().listens().unwrap().to_string()],
        };
        let token = admin::invite(self.dir.path(), invitation).unwrap().token.parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        node::join(dir.path(), &token, "another").unwrap();
        Bed::at(dir).await
    }

    /// Connects a client.
    pub fn client(&self, number: u8) -> Arc<Sink> {
        let sink = Arc::new(Sink::default());
        self.store.connect(ClientGuid([number; 16]), sink.clone());
        sink
    }

    pub async fn open(&self, path: &str, request: OpenRequest) -> Result<Opened, StoreError> {
        let path = ObjectPath::parse(path, request.is_posix)?;
        self.store.open(&self.who, &self.root, &path, request).await
    }

    /// Begins to open, and returns the task.
    pub fn opens(
        &self,
        path: &str,
        request: OpenRequest,
    ) -> tokio::task::JoinHandle<Result<Opened, StoreError>> {
        let path = ObjectPath::parse(path, request.is_posix).unwrap();
        let (store, who, root) = (Arc::clone(&self.store), self.who.clone(), self.root.clone());
        tokio::spawn(async move { store.open(&who, &root, &path, request).await })
    }

    /// Makes a file with this content.
    pub async fn file(&self, path: &str, content: &[u8]) -> Arc<Open> {
        let opened = self.open(path, open_if()).await.unwrap();
        if !content.is_empty() {
            opened.open.write(0, content.to_vec().into(), false).await.unwrap();
        }
        opened.open
    }

    pub async fn directory(&self, path: &str) -> Arc<Open> {
        let request = OpenRequest {
            options: CreateOptions(CreateOptions::DIRECTORY),
            access: AccessMask(READ | DELETE),
            ..open_if()
        };
        self.open(path, request).await.unwrap().open
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(machine) = self.machine.take() {
            machine.stop().unwrap();
        }
    }
}

/// An open with all rights that shares everything, and makes the file if need be.
pub fn open_if() -> OpenRequest {
    OpenRequest {
        client: ClientGuid([0; 16]),
        access: AccessMask(ALL),
        sharing: Sharing::ALL,
        disposition: CreateDisposition::OpenIf,
        options: CreateOptions(0),
        attributes: Default::default(),
        allocation: 0,
        eas: Vec::new(),
        security: None,
        caching: Caching::Nothing,
        mode: None,
        leases_directories: true,
        is_posix: false,
    }
}

pub fn request(access: u32, sharing: Sharing) -> OpenRequest {
    OpenRequest { access: AccessMask(access), sharing, disposition: CreateDisposition::Open, ..open_if() }
}

pub fn key(number: u8) -> LeaseKey {
    LeaseKey::new([number; 16]).unwrap()
}

/// The request with a lease: the client and the key have the same number.
pub fn leased(number: u8, state: CachingState, request: OpenRequest) -> OpenRequest {
    let version = LeaseVersion::V2 { epoch: 0, parent: None };
    OpenRequest {
        client: ClientGuid([number; 16]),
        caching: Caching::Lease { key: key(number), state, version },
        ..request
    }
}

pub fn state(granted: Granted) -> CachingState {
    match granted {
        Granted::Nothing => CachingState::NONE,
        Granted::Oplock(state) | Granted::Lease { state, .. } => state,
    }
}

/// Lets everything go on for a moment.
pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(60)).await;
}

pub async fn content(open: &Open) -> Vec<u8> {
    match open.read(0, 1 << 20).await {
        Ok(parts) => parts.concat(),
        Err(StoreError::EndOfFile) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}
