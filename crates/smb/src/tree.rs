//! A tree connect of a session (MS-SMB2 §3.3.1.9).

use crate::accounts::Share;
use objects::Root;

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

impl Tree {
    pub(crate) fn encrypts(&self) -> bool {
        matches!(&self.kind, TreeKind::Disk { share, .. } if share.encrypt)
    }

    /// Returns whether opens of the share may be persistent (TreeConnect.Share.IsCA).
    pub(crate) fn is_continuous(&self) -> bool {
        matches!(&self.kind, TreeKind::Disk { share, .. } if share.continuous)
    }
}
