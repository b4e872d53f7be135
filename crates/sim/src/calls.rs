//! Calls that several workloads make.

use client::Call;
use ident::FileId;
use lease::{Label, Open};
use namespace::FileKind;

/// Makes a file that everybody may read and only its owner may write.
pub(crate) fn create(dir: FileId, label: Label, kind: FileKind, open: Option<Open>) -> Call {
    let (mode, umask, rdev, target) = (0o755, 0o022, 0, Vec::new());
    Call::Create { dir, label, kind, mode, umask, rdev, target, open }
}
