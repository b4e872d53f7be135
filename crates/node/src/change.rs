//! A change that could not be applied, as it is reported to people and programs.

use admin::{Change, Existing, SalvagedChange};
use client::KnownPath;
use lease::Label;
use namespace::{AttributeChange, FileKind, FileSpec, Operation, RenameMode, SetTime, Timestamp, operation};

/// Describes `operation`, which was not applied because of `why`. It names the path `from` beside
/// that of its file.
pub(crate) fn salvaged(
    operation: &Operation,
    from: Option<&KnownPath>,
    why: namespace::Error,
) -> SalvagedChange {
    SalvagedChange {
        what: change(operation, from.map(path)),
        when: operation.time().map(|time| time.secs),
        user: operation.cred().map(|cred| cred.uid),
        why,
        operation: digest(operation),
    }
}

/// The hash that identifies an operation.
pub(crate) fn digest(operation: &Operation) -> String {
    crypto::hash(&wire::encode(operation)).to_hex().to_string()
}

fn change(operation: &Operation, from: Option<String>) -> Change {
    match operation {
        Operation::Create(operation::Create { new, .. }) => create(&new.spec),
        Operation::Link { .. } => Change::Link { from },
        Operation::Unlink(operation::Unlink { directory, .. }) => Change::Unlink { directory: *directory },
        Operation::Rename(operation::Rename { mode, .. }) => {
            let existing = match mode {
                RenameMode::Replace => Existing::Replaced,
                RenameMode::NoReplace => Existing::Kept,
                RenameMode::Exchange => Existing::Exchanged,
            };
            Change::Rename { from, existing }
        }
        Operation::SetAttributes(operation::SetAttributes { change, time, .. }) => {
            set_attributes(change, *time)
        }
        Operation::SetXattr(operation::SetXattr { name, value, .. }) => {
            Change::SetXattr { attribute: attribute(name), bytes: value.len() as u64 }
        }
        Operation::RemoveXattr(operation::RemoveXattr { name, .. }) => {
            Change::RemoveXattr { attribute: attribute(name) }
        }
        Operation::Publish(operation::Publish { size, .. }) => Change::Write { size: *size },
        Operation::SetDisposition(operation::SetDisposition { link, .. }) => {
            Change::DeleteOnClose { delete: link.is_some() }
        }
        Operation::Dispose { .. } => Change::LastClose,
        Operation::Accessed { .. } => Change::Read,
        Operation::Lock { .. } => Change::Lock,
        Operation::Lookup { .. }
        | Operation::Find { .. }
        | Operation::Stat { .. }
        | Operation::Access { .. }
        | Operation::Open { .. }
        | Operation::ReadLink { .. }
        | Operation::List { .. }
        | Operation::GetXattr { .. }
        | Operation::ListXattrs { .. }
        | Operation::GetLock { .. } => unreachable!("a question is never logged, and so never lost"),
    }
}

fn create(spec: &FileSpec) -> Change {
    let (major, minor) = (spec.rdev >> 8 & 0xfff, spec.rdev & 0xff | spec.rdev >> 12 & 0xf_ff00);
    let is_device = matches!(spec.kind, FileKind::CharDevice | FileKind::BlockDevice);
    let target = String::from_utf8_lossy(&spec.target).into_owned();
    Change::Create {
        kind: spec.kind,
        mode: octal(spec.mode & !spec.umask),
        target: (spec.kind == FileKind::Symlink).then_some(target),
        device: is_device.then(|| format!("{major}:{minor}")),
    }
}

fn set_attributes(change: &AttributeChange, now: Timestamp) -> Change {
    let seconds = |time: SetTime| match time {
        SetTime::Now => now.secs,
        SetTime::At(time) => time.secs,
    };
    Change::SetAttributes {
        mode: change.mode.map(octal),
        owner: change.uid,
        group: change.gid,
        accessed: change.atime.map(seconds),
        modified: change.mtime.map(seconds),
    }
}

fn attribute(name: &Label) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

fn octal(mode: u16) -> String {
    format!("{mode:04o}")
}

/// Writes a path as people do. A path that is not known from the root on begins with the file's
/// identifier.
pub(crate) fn path(path: &KnownPath) -> String {
    let from = if path.from == ident::FileId::root() { String::new() } else { format!("[{}]", path.from) };
    path.labels.iter().fold(from, |text, label| text + "/" + &String::from_utf8_lossy(label.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ident::FileId;
    use namespace::{ContentChange, Cred, Error, NewFile, XattrMode};

    const NOON: Timestamp = Timestamp { secs: 1_795_608_000, nanos: 0 };

    fn label(name: &str) -> Label {
        Label::new(name.as_bytes()).unwrap()
    }

    fn cred() -> Cred {
        Cred { uid: 1000, ..Cred::default() }
    }

    fn create(kind: FileKind, rdev: u32, target: &str) -> Operation {
        let (dir, file, ino) = (FileId::root(), FileId::root().child(9), 9);
        let target = target.as_bytes().to_vec();
        let new = NewFile { file, ino, spec: FileSpec { kind, mode: 0o666, umask: 0o022, rdev, target } };
        Operation::Create(operation::Create {
            dir,
            label: label("a"),
            position: 1,
            new,
            cred: cred(),
            time: NOON,
        })
    }

    fn set(change: AttributeChange) -> Operation {
        Operation::SetAttributes(operation::SetAttributes {
            file: FileId::root().child(9),
            change,
            cred: cred(),
            time: NOON,
        })
    }

    fn rename(mode: RenameMode) -> Operation {
        let dir = FileId::root();
        Operation::Rename(operation::Rename {
            from_dir: dir.clone(),
            from: label("b"),
            to_dir: dir,
            to: label("a"),
            mode,
            position: 1,
            whiteout: None,
            open: false,
            cred: cred(),
            time: NOON,
            source: None,
            replaced: None,
        })
    }

    fn made(kind: FileKind, target: Option<&str>, device: Option<&str>) -> Change {
        let (target, device) = (target.map(str::to_owned), device.map(str::to_owned));
        Change::Create { kind, mode: "0644".to_owned(), target, device }
    }

    fn renamed(existing: Existing) -> Change {
        Change::Rename { from: Some("/b".to_owned()), existing }
    }

    /// Each kind of operation, with the change that it is.
    fn changes() -> Vec<(Operation, Change)> {
        [changes_of_names(), changes_of_files()].concat()
    }

    fn changes_of_names() -> Vec<(Operation, Change)> {
        let (dir, file) = (FileId::root(), FileId::root().child(9));
        vec![
            (create(FileKind::Regular, 0, ""), made(FileKind::Regular, None, None)),
            (create(FileKind::Directory, 0, ""), made(FileKind::Directory, None, None)),
            (create(FileKind::Symlink, 0, "../b"), made(FileKind::Symlink, Some("../b"), None)),
            (create(FileKind::CharDevice, 0x103, ""), made(FileKind::CharDevice, None, Some("1:3"))),
            (
                Operation::Link(operation::Link {
                    file,
                    dir: dir.clone(),
                    label: label("a"),
                    position: 1,
                    cred: cred(),
                    time: NOON,
                    replaced: None,
                    open: false,
                }),
                Change::Link { from: Some("/b".to_owned()) },
            ),
            (
                Operation::Unlink(operation::Unlink {
                    dir,
                    label: label("a"),
                    directory: true,
                    open: false,
                    cred: cred(),
                    time: NOON,
                    pending: None,
                }),
                Change::Unlink { directory: true },
            ),
            (rename(RenameMode::Replace), renamed(Existing::Replaced)),
            (rename(RenameMode::NoReplace), renamed(Existing::Kept)),
            (rename(RenameMode::Exchange), renamed(Existing::Exchanged)),
        ]
    }

    fn changes_of_files() -> Vec<(Operation, Change)> {
        let file = || FileId::root().child(9);
        let attribute = || Label::attribute(b"user.x").unwrap();
        let publish = ContentChange::None;
        let chosen = AttributeChange {
            mode: Some(0o4755),
            uid: Some(0),
            gid: Some(100),
            atime: Some(SetTime::At(Timestamp { secs: -1, nanos: 0 })),
            mtime: Some(SetTime::Now),
            keeps_owner: false,
        };
        vec![
            (
                set(chosen),
                Change::SetAttributes {
                    mode: Some("4755".to_owned()),
                    owner: Some(0),
                    group: Some(100),
                    accessed: Some(-1),
                    modified: Some(NOON.secs),
                },
            ),
            (
                set(AttributeChange { keeps_owner: true, ..AttributeChange::default() }),
                Change::SetAttributes {
                    mode: None,
                    owner: None,
                    group: None,
                    accessed: None,
                    modified: None,
                },
            ),
            (
                Operation::SetXattr(operation::SetXattr {
                    file: file(),
                    name: attribute(),
                    value: vec![0; 2048],
                    mode: XattrMode::Set,
                    cred: cred(),
                    time: NOON,
                }),
                Change::SetXattr { attribute: "user.x".to_owned(), bytes: 2048 },
            ),
            (
                Operation::RemoveXattr(operation::RemoveXattr {
                    file: file(),
                    name: attribute(),
                    cred: cred(),
                    time: NOON,
                }),
                Change::RemoveXattr { attribute: "user.x".to_owned() },
            ),
            (
                Operation::Publish(operation::Publish {
                    file: file(),
                    version: 1,
                    size: 3 << 20,
                    mtime: NOON,
                    ctime: NOON,
                    change: publish,
                }),
                Change::Write { size: 3 << 20 },
            ),
            (
                Operation::SetDisposition(operation::SetDisposition {
                    file: file(),
                    link: None,
                    own: lease::OpenModes::default(),
                    cred: cred(),
                    time: NOON,
                }),
                Change::DeleteOnClose { delete: false },
            ),
            (Operation::Dispose(operation::Dispose { file: file(), time: NOON }), Change::LastClose),
            (Operation::Accessed(operation::Accessed { file: file(), time: NOON }), Change::Read),
        ]
    }

    #[test]
    fn each_operation_is_kept_as_a_change() {
        let from = KnownPath { from: FileId::root(), labels: vec![label("b")] };
        for (operation, what) in changes() {
            let user = operation.cred().map(|_| 1000);
            let (when, why, named) = (Some(NOON.secs), Error::NoSpace, digest(&operation));
            let change = SalvagedChange { what, when, user, why, operation: named };
            assert_eq!(salvaged(&operation, Some(&from), Error::NoSpace), change);
        }
    }

    /// Programs get each change under the name that `leasehold top` and the metrics use.
    #[test]
    fn each_change_is_kept_as_json_by_the_name_of_its_call() {
        for (operation, _) in changes() {
            let change = salvaged(&operation, None, Error::CutOff);
            let json = serde_json::to_value(&change).unwrap();
            assert_eq!(json["call"], operation.name());
            assert_eq!(serde_json::from_value::<SalvagedChange>(json).unwrap(), change);
        }
    }
}
