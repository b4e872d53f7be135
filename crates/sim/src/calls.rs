//! Calls that several workloads make.

use client::{Call, call};
use ident::FileId;
use lease::{Label, OpenModes};
use namespace::{FileKind, FileSpec};

/// Makes a file that everybody may read and only its owner may write.
pub(crate) fn create(dir: FileId, label: Label, kind: FileKind, open: Option<OpenModes>) -> Call {
    let spec = FileSpec::new(kind, 0o755, 0o022);
    Call::Create(call::Create { dir, label, spec, open })
}
