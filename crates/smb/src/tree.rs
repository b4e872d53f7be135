//! A tree connect of a session (MS-SMB2 §3.3.1.9).

use crate::accounts::Share;
use objects::{Root, Store, StoreError};

/// A share that a session is connected to.
pub(crate) struct Tree {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) kind: TreeKind,
}

/// The kinds of a share.
pub(crate) enum TreeKind {
    /// IPC$, with named pipes.
    Pipes,
    /// A directory.
    Disk {
        /// The directory.
        root: Root,
        /// Its settings.
        share: Share,
    },
}

/// Finds the root of a share, with what the share's settings say of all that is opened below.
pub(crate) async fn root_of(share: &Share, store: &Store) -> Result<Root, StoreError> {
    let (read_only, hides_unreadable) = (share.read_only, share.hide_unreadable);
    Ok(Root { read_only, hides_unreadable, ..store.root(share.path.as_bytes()).await? })
}

impl Tree {
    pub(crate) fn encrypts(&self) -> bool {
        matches!(&self.kind, TreeKind::Disk { share, .. } if share.encrypt)
    }

    /// Returns whether opens of the share may be persistent (TreeConnect.Share.IsCA).
    pub(crate) fn is_continuous(&self) -> bool {
        matches!(&self.kind, TreeKind::Disk { share, .. } if share.continuous)
    }
}
