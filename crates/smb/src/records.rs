//! Persistent opens as the data directory has them: what a client gets back from the server's next
//! process (MS-SMB2 §3.3.5.9.10).
//!
//! ```text
//! smb-opens/NUMBER            what the open is: durable before the client hears of it
//! smb-opens/NUMBER.version    the publication of the content that its lease is about
//! ```
//!
//! The version follows each change, and is not synced. One that a loss of power takes back differs
//! from the file's, and costs the client its lease, no more.

use crate::durable::Durable;
use crate::handle::{Handle, HandleKind};
use crate::server::Server;
use crate::tree::{Tree, TreeKind, root_of};
use crate::wire::NtStatus;
use crate::wire::bodies::FileId;
use data_dir::{DataError, read_file, remove_file, replace_file};
use objects::{
    AccessMask, ByteRange, Caching, CachingState, ClientGuid, CreateAction, CreateOptions, KeptOpen,
    LeaseKey, LeaseVersion, ObjectPath, Open, OpenId, Sharing, StoreError,
};
use os::private;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The directory of the records.
const OPENS: &str = "smb-opens";

/// A persistent open, as a file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersistentOpen {
    number: u64,
    /// The number of the file.
    file: u64,
    share: String,
    user: String,
    client: [u8; 16],
    /// The path by which it was opened.
    opened: String,
    /// The path that it has now.
    path: String,
    access: u32,
    sharing: u32,
    options: u32,
    is_posix: bool,
    caching: KeptCaching,
    /// Offset, length, and whether it is exclusive.
    locks: Vec<(u64, u64, bool)>,
    lock_sequences: Vec<Option<u8>>,
    timeout_ms: u64,
    is_resilient: bool,
    create_guid: Option<[u8; 16]>,
    app_instance: Option<[u8; 16]>,
    action: u8,
    mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum KeptCaching {
    Nothing,
    Oplock { state: u32 },
    Lease { key: [u8; 16], state: u32, v2: Option<(u16, Option<[u8; 16]>)> },
}

impl From<Caching> for KeptCaching {
    fn from(caching: Caching) -> KeptCaching {
        match caching {
            Caching::Nothing => KeptCaching::Nothing,
            Caching::Oplock(state) => KeptCaching::Oplock { state: state.bits() },
            Caching::Lease { key, state, version } => {
                let v2 = match version {
                    LeaseVersion::V1 => None,
                    LeaseVersion::V2 { epoch, parent } => Some((epoch, parent.map(LeaseKey::bytes))),
                };
                KeptCaching::Lease { key: key.bytes(), state: state.bits(), v2 }
            }
        }
    }
}

impl KeptCaching {
    fn caching(&self) -> Caching {
        match *self {
            KeptCaching::Nothing => Caching::Nothing,
            KeptCaching::Oplock { state } => Caching::Oplock(CachingState::from_bits(state)),
            KeptCaching::Lease { key, state, v2 } => {
                let Some(key) = LeaseKey::new(key) else { return Caching::Nothing };
                let version = v2.map_or(LeaseVersion::V1, |(epoch, parent)| LeaseVersion::V2 {
                    epoch,
                    parent: parent.and_then(LeaseKey::new),
                });
                Caching::Lease { key, state: CachingState::from_bits(state), version }
            }
        }
    }
}

/// The actions of a create, by their numbers in a record.
const ACTIONS: [CreateAction; 4] =
    [CreateAction::Superseded, CreateAction::Opened, CreateAction::Created, CreateAction::Overwritten];

impl PersistentOpen {
    fn of(handle: &Handle, durable: &Durable, open: &Open) -> PersistentOpen {
        let kept = open.kept();
        let action = ACTIONS.iter().position(|action| *action == handle.action).unwrap_or_default();
        PersistentOpen {
            number: handle.file.persistent,
            file: kept.number,
            share: handle.tree.name.clone(),
            user: durable.user.clone(),
            client: open.client().0,
            opened: handle.path.text(kept.is_posix),
            path: kept.path,
            access: kept.access.0,
            sharing: kept.sharing.0,
            options: kept.options.0,
            is_posix: kept.is_posix,
            caching: kept.caching.into(),
            locks: kept.locks.iter().map(|(range, is)| (range.offset, range.length, *is)).collect(),
            lock_sequences: handle.lock_sequences.lock().to_vec(),
            timeout_ms: u64::try_from(durable.timeout.as_millis()).unwrap_or(u64::MAX),
            is_resilient: durable.is_resilient,
            create_guid: durable.create_guid,
            app_instance: handle.app_instance,
            action: action as u8,
            mode: *handle.mode.lock(),
        }
    }

    fn kept(&self) -> KeptOpen {
        let range =
            |(offset, length, is): &(u64, u64, bool)| (ByteRange { offset: *offset, length: *length }, *is);
        KeptOpen {
            id: OpenId(self.number),
            number: self.file,
            path: self.path.clone(),
            access: AccessMask(self.access),
            sharing: Sharing(self.sharing),
            options: CreateOptions(self.options),
            is_posix: self.is_posix,
            caching: self.caching.caching(),
            locks: self.locks.iter().map(range).collect(),
        }
    }

    fn durable(&self) -> Durable {
        Durable {
            timeout: Duration::from_millis(self.timeout_ms),
            create_guid: self.create_guid,
            user: self.user.clone(),
            is_resilient: self.is_resilient,
            is_persistent: true,
        }
    }
}

/// The record of an open, as it was last written.
#[derive(Default)]
pub(crate) enum KeptRecord {
    /// There is none.
    #[default]
    None,
    /// It is this one, and the lease is about this version of the content.
    Written { records: Arc<Records>, record: Box<PersistentOpen>, version: Option<u64> },
    /// The open has ended. Nothing is written any more.
    Over,
}

impl Handle {
    /// Returns what makes the open persistent, if it is.
    fn persistence(&self) -> Option<Durable> {
        // Most writes are through opens that are not.
        self.durable.lock().as_ref().filter(|durable| durable.is_persistent).cloned()
    }

    /// Makes what was done through a persistent open durable, with the open itself. Its client
    /// hears of neither before.
    pub(crate) async fn persist(&self, server: &Server) -> Result<(), NtStatus> {
        if self.persistence().is_none() {
            return Ok(());
        }
        let version = self.object()?.persist().await?;
        self.write_record(server, version).await
    }

    /// Notes what became of the lease or oplock of a persistent open.
    pub(crate) async fn note_caching(&self, server: &Server) {
        if self.persistence().is_some()
            && let Err(status) = self.write_record(server, None).await
        {
            tracing::error!(%status, "the lease of a persistent open cannot be kept");
        }
    }

    async fn write_record(&self, server: &Server, version: Option<u64>) -> Result<(), NtStatus> {
        let Some(durable) = self.persistence() else { return Ok(()) };
        let mut kept = self.record.lock().await;
        let record = Box::new(PersistentOpen::of(self, &durable, self.object()?));
        let (is_new, before) = match &*kept {
            KeptRecord::Over => return Ok(()),
            KeptRecord::None => (true, None),
            KeptRecord::Written { record: before, version, .. } => (*before != record, *version),
        };
        // Requests of one open end in any order.
        let version = version.max(before);
        let records = server.records.clone();
        let written = tokio::task::spawn_blocking({
            let (records, record) = (records.clone(), record.clone());
            move || {
                if version != before {
                    records.write_version(record.number, version)?;
                }
                if is_new { records.write(&record) } else { Ok(()) }
            }
        });
        match written.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "a persistent open cannot be kept");
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            Err(_) => return Err(NtStatus::INTERNAL_ERROR),
        }
        *kept = KeptRecord::Written { records, record, version };
        if is_new {
            self.object()?.outlives_process();
        }
        Ok(())
    }

    /// Forgets an open that has ended.
    pub(crate) async fn forget(&self) {
        let before = std::mem::replace(&mut *self.record.lock().await, KeptRecord::Over);
        if let KeptRecord::Written { records, record, .. } = before {
            let removed = tokio::task::spawn_blocking(move || records.remove(record.number)).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "what is kept of a closed open cannot be removed");
            }
        }
    }
}

/// The records of a data directory.
pub(crate) struct Records(PathBuf);

impl Records {
    /// Returns those of a data directory.
    pub(crate) fn new(data: &Path) -> Records {
        Records(data.join(OPENS))
    }

    fn write(&self, record: &PersistentOpen) -> Result<(), DataError> {
        private::make_dir(&self.0).map_err(|source| self.failed("make", source))?;
        let bytes = serde_json::to_vec(record).map_err(|error| self.failed("write", error.into()))?;
        replace_file(&self.0, &name(record.number), &bytes)
    }

    fn failed(&self, verb: &'static str, source: io::Error) -> DataError {
        DataError::Io { verb, file: self.0.clone(), source }
    }

    fn version_file(&self, number: u64) -> PathBuf {
        self.0.join(format!("{}.version", name(number)))
    }

    fn write_version(&self, number: u64, version: Option<u64>) -> Result<(), DataError> {
        let write = || {
            private::make_dir(&self.0)?;
            let file = private::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(self.version_file(number))?;
            file.write_all_at(&version.unwrap_or(u64::MAX).to_le_bytes(), 0)
        };
        write().map_err(|source| self.failed("write", source))
    }

    fn version(&self, number: u64) -> Option<u64> {
        let bytes = std::fs::read(self.version_file(number)).ok()?;
        let version = u64::from_le_bytes(bytes.try_into().ok()?);
        (version != u64::MAX).then_some(version)
    }

    fn remove(&self, number: u64) -> Result<(), DataError> {
        // Nothing is lost if there is no version.
        let _ = std::fs::remove_file(self.version_file(number));
        remove_file(&self.0, &name(number))
    }

    /// Returns all records, those of the newest opens first: no number is given out by then that an
    /// older one has. Damaged ones are left out.
    fn all(&self) -> Vec<PersistentOpen> {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let numbers = names.filter_map(|name| u64::from_str_radix(&name, 16).ok());
        let mut numbers = numbers.collect::<Vec<u64>>();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        let read = |number: u64| {
            let bytes = read_file(&self.0, &name(number)).ok()??;
            let record = serde_json::from_slice::<PersistentOpen>(&bytes).ok()?;
            (record.number == number).then_some(record)
        };
        let found = numbers.into_iter().map(|number| {
            let record = read(number);
            if record.is_none() {
                tracing::warn!(number, "what is kept of a persistent open is damaged; it is lost");
            }
            record
        });
        found.flatten().collect()
    }
}

fn name(number: u64) -> String {
    format!("{number:016x}")
}

/// The reason why an open does not come back.
#[derive(Debug, thiserror::Error)]
enum NotRestored {
    #[error("its share is gone, or is not continuously available any more")]
    Share,
    #[error("its user is gone")]
    User,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens again what the server had open persistently before its process ended, and waits for the
/// clients. Nobody counts their time yet.
pub(crate) async fn restore(server: &Arc<Server>) {
    let records = server.records.clone();
    let all = tokio::task::spawn_blocking(move || records.all()).await.unwrap_or_default();
    for record in all {
        let (number, client) = (record.number, ClientGuid(record.client));
        if let Err(error) = restore_one(server, record).await {
            tracing::warn!(number, %error, "a persistent open of before the restart is lost");
            server.leave(client);
            if let Err(error) = server.records.remove(number) {
                tracing::warn!(%error, "what is kept of a lost open cannot be removed");
            }
        }
    }
}

async fn restore_one(server: &Arc<Server>, record: PersistentOpen) -> Result<(), NotRestored> {
    let share = server.accounts.shares().into_iter().find(|share| share.name == record.share);
    let share = share.filter(|share| share.continuous).ok_or(NotRestored::Share)?;
    let user = server.accounts.user(&record.user).ok_or(NotRestored::User)?;
    let root = root_of(&share, &server.store).await?;
    let client = ClientGuid(record.client);
    // Breaks go to the client once it is back.
    server.client(client);
    let version = server.records.version(record.number);
    let kept = record.kept();
    let open = server.store.restore(client, &user.cred(), &root, (&kept, version)).await?;
    let name = share.name.clone();
    let tree = Arc::new(Tree { id: 0, name, kind: TreeKind::Disk { root, share } });
    let file = FileId { persistent: record.number, volatile: record.number };
    let mut handle = Handle::new(file, tree, HandleKind::Object(open));
    handle.path = ObjectPath::parse(&record.opened, record.is_posix)?;
    handle.action = ACTIONS.get(usize::from(record.action)).copied().unwrap_or(CreateAction::Opened);
    handle.app_instance = record.app_instance;
    handle.durable = Mutex::new(Some(record.durable()));
    *handle.mode.lock() = record.mode;
    for (kept, number) in handle.lock_sequences.lock().iter_mut().zip(&record.lock_sequences) {
        *kept = *number;
    }
    if let Some(guid) = record.create_guid {
        *handle.create.lock() =
            server.creates.begin((client, guid), false).ok().and_then(|begun| begun.into_new());
    }
    handle.is_used.store(false, Relaxed);
    let (records, record) = (server.records.clone(), Box::new(record));
    handle.record = tokio::sync::Mutex::new(KeptRecord::Written { records, record, version });
    let handle = Arc::new(handle);
    crate::replay::KnownCreate::note(&handle);
    // Its lease may be less than it was.
    handle.note_caching(server).await;
    server.durables.lock().insert(file.persistent, handle);
    Ok(())
}
