//! A change that could not be applied, as it is reported to people and programs.

use crate::salvaged::path;
use client::KnownPath;
use figures::{date, size};
use lease::Label;
use namespace::{AttributeChange, FileKind, FileSpec, Operation, RenameMode, SetTime, Timestamp, operation};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A change that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedChange {
    /// The change.
    #[serde(flatten)]
    pub what: Change,
    /// The time at which it was made here, seconds since 1970 UTC. Some changes have no time of
    /// their own.
    pub when: Option<i64>,
    /// The number of the user who made it, where that counts.
    pub user: Option<u32>,
    /// The reason why it could not be applied.
    pub why: String,
    /// BLAKE3 of the operation, which identifies it.
    pub operation: String,
}

/// A change to the file at a path. Other paths are as the machine last knew them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call")]
pub enum Change {
    /// Make the file.
    #[serde(rename = "create")]
    Create {
        /// The kind of file.
        kind: String,
        /// Permission bits, octal.
        mode: String,
        /// The target of a symbolic link.
        target: Option<String>,
        /// A device's numbers, `MAJOR:MINOR`.
        device: Option<String>,
    },
    /// Make the path one more name of a file.
    #[serde(rename = "link")]
    Link {
        /// Another name of that file.
        from: Option<String>,
    },
    /// Remove the file.
    #[serde(rename = "unlink")]
    Unlink {
        /// The file is a directory.
        directory: bool,
    },
    /// Rename another path to this one.
    #[serde(rename = "rename")]
    Rename {
        /// The other path.
        from: Option<String>,
        /// The treatment of a file that has the new name already.
        existing: Existing,
    },
    /// Set attributes; absent ones stay.
    #[serde(rename = "setattr")]
    SetAttributes {
        /// Permission bits, octal.
        mode: Option<String>,
        /// The owner's number.
        owner: Option<u32>,
        /// The group's number.
        group: Option<u32>,
        /// Access time, seconds since 1970 UTC.
        accessed: Option<i64>,
        /// Modification time, seconds since 1970 UTC.
        modified: Option<i64>,
    },
    /// Set an extended attribute.
    #[serde(rename = "setxattr")]
    SetXattr {
        /// Its name.
        attribute: String,
        /// The length of its value, bytes.
        bytes: u64,
    },
    /// Remove an extended attribute.
    #[serde(rename = "removexattr")]
    RemoveXattr {
        /// Its name.
        attribute: String,
    },
    /// Write content, of which nothing is left here.
    #[serde(rename = "write")]
    Write {
        /// The file's size after the write.
        size: u64,
    },
    /// Set whether the file goes at its last close.
    #[serde(rename = "delete on close")]
    DeleteOnClose {
        /// The file was to go.
        delete: bool,
    },
    /// Remove the file at its last close.
    #[serde(rename = "last close")]
    LastClose,
    /// Note that the file was read.
    #[serde(rename = "read")]
    Read,
    /// Lock or unlock the file.
    #[serde(rename = "lock")]
    Lock,
}

/// The treatment of a file that has a rename's new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// The file is removed.
    Replaced,
    /// The file stays, and nothing is renamed.
    Kept,
    /// Both files change places.
    Exchanged,
}

impl SalvagedChange {
    /// Describes `operation`, which was not applied because of `why`. It names the path `from`
    /// beside that of its file.
    pub(crate) fn of(operation: &Operation, from: Option<&KnownPath>, why: namespace::Error) -> Self {
        SalvagedChange {
            what: Change::of(operation, from.map(path)),
            when: operation.time().map(|time| time.secs),
            user: operation.cred().map(|cred| cred.uid),
            why: why.to_string(),
            operation: digest(operation),
        }
    }
}

/// The hash that identifies an operation.
pub(crate) fn digest(operation: &Operation) -> String {
    crypto::hash(&wire::encode(operation)).to_hex().to_string()
}

impl Change {
    fn of(operation: &Operation, from: Option<String>) -> Change {
        match operation {
            Operation::Create(operation::Create { new, .. }) => Change::create(&new.spec),
            Operation::Link { .. } => Change::Link { from },
            Operation::Unlink(operation::Unlink { directory, .. }) => {
                Change::Unlink { directory: *directory }
            }
            Operation::Rename(operation::Rename { mode, .. }) => {
                let existing = match mode {
                    RenameMode::Replace => Existing::Replaced,
                    RenameMode::NoReplace => Existing::Kept,
                    RenameMode::Exchange => Existing::Exchanged,
                };
                Change::Rename { from, existing }
            }
            Operation::SetAttributes(operation::SetAttributes { change, time, .. }) => {
                Change::set_attributes(change, *time)
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
        let kind = match spec.kind {
            FileKind::Directory => "directory",
            FileKind::Regular => "file",
            FileKind::Symlink => "symbolic link",
            FileKind::Fifo => "named pipe",
            FileKind::Socket => "socket",
            FileKind::CharDevice => "character device",
            FileKind::BlockDevice => "block device",
        };
        Change::Create {
            kind: kind.to_owned(),
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
}

fn attribute(name: &Label) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

fn octal(mode: u16) -> String {
    format!("{mode:04o}")
}

/// Prints a file's time as a calendar date.
fn day(seconds: i64) -> String {
    u64::try_from(seconds).map_or_else(|_| format!("{} s before 1970", seconds.unsigned_abs()), date)
}

impl fmt::Display for SalvagedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        let user = self.user.map(|user| format!("user {user}"));
        let done: Vec<String> = user.into_iter().chain(self.when.map(day)).collect();
        if !done.is_empty() {
            write!(f, " ({})", done.join(", "))?;
        }
        write!(f, ": {}", self.why)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = |from: &Option<String>| from.clone().unwrap_or_else(|| "a file".to_owned());
        match self {
            Change::Create { kind, target: Some(target), .. } => write!(f, "make a {kind} to {target}"),
            Change::Create { kind, mode, device, .. } => {
                write!(f, "make a {kind}")?;
                device.iter().try_for_each(|device| write!(f, " {device}"))?;
                write!(f, ", mode {mode}")
            }
            Change::Link { from } => write!(f, "make it another name of {}", other(from)),
            Change::Unlink { directory: true } => f.write_str("remove the directory"),
            Change::Unlink { directory: false } => f.write_str("remove it"),
            Change::Rename { from, existing } => match existing {
                Existing::Replaced => write!(f, "rename {} to it", other(from)),
                Existing::Kept => write!(f, "rename {} to it, unless it is there", other(from)),
                Existing::Exchanged => write!(f, "exchange it with {}", other(from)),
            },
            Change::SetAttributes { mode, owner, group, accessed, modified } => {
                let set = [
                    mode.as_ref().map(|mode| format!("mode {mode}")),
                    owner.map(|owner| format!("owner {owner}")),
                    group.map(|group| format!("group {group}")),
                    accessed.map(|time| format!("access time {}", day(time))),
                    modified.map(|time| format!("modification time {}", day(time))),
                ];
                let set: Vec<String> = set.into_iter().flatten().collect();
                // This is a chown that names neither user nor group.
                let set = if set.is_empty() { "the owner that it has".to_owned() } else { set.join(", ") };
                write!(f, "set {set}")
            }
            Change::SetXattr { attribute, bytes } => {
                write!(f, "set the attribute {attribute}, {}", size(*bytes))
            }
            Change::RemoveXattr { attribute } => write!(f, "remove the attribute {attribute}"),
            Change::Write { size: bytes } => write!(f, "write a file of {}", size(*bytes)),
            Change::DeleteOnClose { delete: true } => f.write_str("remove it at its last close"),
            Change::DeleteOnClose { delete: false } => f.write_str("leave it at its last close"),
            Change::LastClose => f.write_str("remove it, since it was closed for the last time"),
            Change::Read => f.write_str("note when it was read"),
            Change::Lock => f.write_str("lock or unlock it"),
        }
    }
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
        })
    }

    /// Each kind of change, with its text for people.
    fn changes() -> Vec<(Operation, &'static str)> {
        let file = || FileId::root().child(9);
        let attribute = || Label::attribute(b"user.x").unwrap();
        let (dir, publish) = (FileId::root(), ContentChange::None);
        let chosen = AttributeChange {
            mode: Some(0o4755),
            uid: Some(0),
            gid: Some(100),
            atime: Some(SetTime::At(Timestamp { secs: -1, nanos: 0 })),
            mtime: Some(SetTime::Now),
            keeps_owner: false,
        };
        vec![
            (create(FileKind::Regular, 0, ""), "make a file, mode 0644"),
            (create(FileKind::Directory, 0, ""), "make a directory, mode 0644"),
            (create(FileKind::Symlink, 0, "../b"), "make a symbolic link to ../b"),
            (create(FileKind::CharDevice, 0x103, ""), "make a character device 1:3, mode 0644"),
            (
                Operation::Link(operation::Link {
                    file: file(),
                    dir: dir.clone(),
                    label: label("a"),
                    position: 1,
                    cred: cred(),
                    time: NOON,
                }),
                "make it another name of /b",
            ),
            (
                Operation::Unlink(operation::Unlink {
                    dir,
                    label: label("a"),
                    directory: true,
                    open: false,
                    cred: cred(),
                    time: NOON,
                }),
                "remove the directory",
            ),
            (rename(RenameMode::Replace), "rename /b to it"),
            (rename(RenameMode::NoReplace), "rename /b to it, unless it is there"),
            (rename(RenameMode::Exchange), "exchange it with /b"),
            (
                set(chosen),
                "set mode 4755, owner 0, group 100, access time 1 s before 1970, modification time 2026-11-25 12:00:00 UTC",
            ),
            (
                set(AttributeChange { keeps_owner: true, ..AttributeChange::default() }),
                "set the owner that it has",
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
                "set the attribute user.x, 2.0 KiB",
            ),
            (
                Operation::RemoveXattr(operation::RemoveXattr {
                    file: file(),
                    name: attribute(),
                    cred: cred(),
                    time: NOON,
                }),
                "remove the attribute user.x",
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
                "write a file of 3.0 MiB",
            ),
            (
                Operation::SetDisposition(operation::SetDisposition {
                    file: file(),
                    link: None,
                    own: lease::Open::default(),
                    cred: cred(),
                    time: NOON,
                }),
                "leave it at its last close",
            ),
            (
                Operation::Dispose(operation::Dispose { file: file(), time: NOON }),
                "remove it, since it was closed for the last time",
            ),
            (Operation::Accessed(operation::Accessed { file: file(), time: NOON }), "note when it was read"),
        ]
    }

    #[test]
    fn each_change_is_told_in_words() {
        let from = KnownPath { from: FileId::root(), labels: vec![label("b")] };
        for (operation, words) in changes() {
            let change = SalvagedChange::of(&operation, Some(&from), Error::NoSpace);
            let user = if operation.cred().is_some() { "user 1000, " } else { "" };
            let told = format!("{words} ({user}2026-11-25 12:00:00 UTC): no space left");
            assert_eq!(change.to_string(), told);
        }
    }

    /// Programs get each change under the name that `leasehold top` and the metrics use.
    #[test]
    fn each_change_is_kept_as_json_by_the_name_of_its_call() {
        for (operation, _) in changes() {
            let change = SalvagedChange::of(&operation, None, Error::CutOff);
            let json = serde_json::to_value(&change).unwrap();
            assert_eq!(json["call"], operation.name());
            assert_eq!(serde_json::from_value::<SalvagedChange>(json).unwrap(), change);
        }
    }
}
