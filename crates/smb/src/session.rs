//! A session, its tree connects and its opens (MS-SMB2 §3.3.1.8 to §3.3.1.10).

use crate::handle::Handle;
use crate::keys::{ChannelKey, EncryptionKeys};
use crate::limits::{CHANNELS_MAX, OPENS_MAX, TREES_MAX};
use crate::negotiated::Negotiated;
use crate::report::SessionReport;
use crate::server::Server;
use crate::tree::{Tree, TreeKind};
use crate::wire::NtStatus;
use crate::wire::bodies::FileId;
use crate::wire::negotiate::Dialect;
use namespace::Cred;
use objects::Granted;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A session of a user who has logged on.
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) user: String,
    cred: Cred,
    /// The client has renewed the session as nobody.
    pub(crate) is_anonymous: AtomicBool,
    /// The key of its first channel, by which a further connection shows that it may be one, too.
    pub(crate) key: Arc<ChannelKey>,
    pub(crate) encryption: Option<EncryptionKeys>,
    /// The agreement of its first connection.
    pub(crate) negotiated: Negotiated,
    pub(crate) address: String,
    /// The client has encrypted a message.
    pub(crate) has_encrypted: AtomicBool,
    /// It has ended, perhaps from another connection.
    pub(crate) has_ended: AtomicBool,
    /// Session.ExpirationTime, a FILETIME; `u64::MAX` is never.
    expires: AtomicU64,
    /// The number of its connections. The session ends with the last.
    channels: Mutex<usize>,
    trees: Mutex<BTreeMap<u32, Arc<Tree>>>,
    opens: Mutex<BTreeMap<FileId, Arc<Handle>>>,
    next_tree: AtomicU32,
}

impl Session {
    /// Makes the session of a user, on its first connection.
    pub(crate) fn new(
        id: u64,
        (user, cred): (String, Cred),
        (key, encryption): (ChannelKey, Option<EncryptionKeys>),
        negotiated: Negotiated,
        address: String,
    ) -> Session {
        Session {
            id,
            user,
            cred,
            is_anonymous: AtomicBool::new(false),
            key: Arc::new(key),
            encryption,
            negotiated,
            address,
            has_encrypted: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            expires: AtomicU64::new(u64::MAX),
            channels: Mutex::new(1),
            trees: Mutex::default(),
            opens: Mutex::default(),
            next_tree: AtomicU32::new(1),
        }
    }

    /// Returns the user for an act that needs rights of his own, and not of an open. Nobody has
    /// none.
    pub(crate) fn cred(&self) -> Result<&Cred, NtStatus> {
        if self.is_anonymous.load(Relaxed) { Err(NtStatus::ACCESS_DENIED) } else { Ok(&self.cred) }
    }

    /// Notes until when the user's latest proof holds, a FILETIME; none: for ever.
    pub(crate) fn holds_until(&self, expires: Option<u64>) {
        self.expires.store(expires.unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns whether Session.State is Expired at `now`, a FILETIME. The session lives on, and its
    /// client can renew it.
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        self.expires.load(Relaxed) < now
    }

    /// Adds a connection.
    pub(crate) fn join(&self) -> Result<(), NtStatus> {
        let mut channels = self.channels.lock();
        match *channels {
            0 => Err(NtStatus::USER_SESSION_DELETED),
            CHANNELS_MAX => Err(NtStatus::INSUFFICIENT_RESOURCES),
            _ => {
                *channels += 1;
                Ok(())
            }
        }
    }

    /// Takes a connection away that is lost. Returns whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        let mut channels = self.channels.lock();
        *channels -= 1;
        *channels == 0
    }

    pub(crate) fn connect(&self, name: &str, kind: TreeKind) -> Result<Arc<Tree>, NtStatus> {
        let mut trees = self.trees.lock();
        if trees.len() >= TREES_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let tree = Arc::new(Tree { id: self.next_tree.fetch_add(1, Relaxed), name: name.to_owned(), kind });
        trees.insert(tree.id, tree.clone());
        Ok(tree)
    }

    pub(crate) fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        self.trees.lock().get(&id).cloned()
    }

    /// Ends a tree connect. Returns its opens, which the caller closes.
    pub(crate) fn disconnect(&self, id: u32) -> Option<Vec<Arc<Handle>>> {
        self.trees.lock().remove(&id)?;
        let mut opens = self.opens.lock();
        Some(opens.extract_if(.., |_, handle| handle.tree.id == id).map(|(_, handle)| handle).collect())
    }

    /// Takes opens out of the session. The caller closes them.
    pub(crate) fn take(&self, is_wanted: impl Fn(&Handle) -> bool) -> Vec<Arc<Handle>> {
        self.opens.lock().extract_if(.., |_, handle| is_wanted(handle)).map(|(_, handle)| handle).collect()
    }

    /// Ends the session. Returns its opens, which the caller closes.
    pub(crate) fn end(&self) -> Vec<Arc<Handle>> {
        self.has_ended.store(true, Relaxed);
        self.trees.lock().clear();
        std::mem::take(&mut *self.opens.lock()).into_values().collect()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.opens.lock().len() < OPENS_MAX
    }

    /// Adds an open, unless the session has ended meanwhile: then the open closes when it is
    /// dropped.
    pub(crate) fn add(&self, handle: Arc<Handle>) -> Result<(), NtStatus> {
        let mut opens = self.opens.lock();
        if self.has_ended.load(Relaxed) {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        opens.insert(handle.file, handle);
        Ok(())
    }

    pub(crate) fn handle(&self, file: FileId, tree: &Tree) -> Result<Arc<Handle>, NtStatus> {
        let found = self.opens.lock().get(&file).cloned();
        found.filter(|handle| handle.tree.id == tree.id).ok_or(NtStatus::FILE_CLOSED)
    }

    /// Returns an open, whatever its tree connect.
    pub(crate) fn opened(&self, file: FileId) -> Option<Arc<Handle>> {
        self.opens.lock().get(&file).cloned()
    }

    pub(crate) fn remove(&self, file: FileId) -> Option<Arc<Handle>> {
        self.opens.lock().remove(&file)
    }

    /// Notes what became of the lease of this key, or of the oplocks, of its persistent opens.
    pub(crate) async fn note_caching(&self, server: &Server, key: Option<[u8; 16]>) {
        let is_held = |handle: &&Arc<Handle>| match handle.object().map(|open| open.granted()) {
            Ok(Granted::Lease { key: held, .. }) => key == Some(held.bytes()),
            Ok(Granted::Oplock(_) | Granted::Nothing) => key.is_none(),
            Err(_) => false,
        };
        let opens = self.opens.lock().values().filter(is_held).cloned().collect::<Vec<Arc<Handle>>>();
        for handle in opens {
            handle.note_caching(server).await;
        }
    }

    pub(crate) fn report(&self) -> SessionReport {
        let number = self.negotiated.dialect as u16;
        let dialect = match self.negotiated.dialect {
            Dialect::V2_1 => "2.1".to_owned(),
            _ => format!("{}.{}.{}", number >> 8, number >> 4 & 15, number & 15),
        };
        SessionReport {
            user: self.user.clone(),
            address: self.address.clone(),
            dialect,
            encrypted: self.has_encrypted.load(Relaxed),
            shares: self.trees.lock().values().map(|tree| tree.name.clone()).collect(),
            opens: self.opens.lock().len(),
        }
    }
}
