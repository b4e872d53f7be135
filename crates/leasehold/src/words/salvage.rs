//! Salvage: changes that were lost, and content.

use super::Words;
use admin::{Change, Existing, Salvaged, SalvagedChange, SalvagedContent, SalvagedItem};
use figures::{date, size};
use namespace::FileKind;
use std::fmt;

impl fmt::Display for Words<'_, Salvaged> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match (self.0.goes_on, self.0.cut_off) {
            (true, _) => "left when the machine ended: its next start goes on with it",
            (false, true) => "cut off",
            (false, false) => "refused by the server",
        };
        writeln!(f, "{} of {} ({why})", self.0.number, date(self.0.when))?;
        self.0.items.iter().try_for_each(|item| writeln!(f, "    {}", Words(item)))
    }
}

impl fmt::Display for Words<'_, SalvagedItem> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.path)?;
        self.0.change.iter().try_for_each(|change| write!(f, ": {}", Words(change)))?;
        self.0.content.iter().try_for_each(|content| write!(f, ": {}", Words(content)))
    }
}

impl fmt::Display for Words<'_, SalvagedContent> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, length)| length).sum();
        write!(f, "write {} of a file of {}", size(sum(&self.0.ranges)), size(self.0.size))?;
        if self.0.missing.is_empty() {
            return Ok(());
        }
        write!(f, "; {} more cannot be had any more", size(sum(&self.0.missing)))
    }
}

/// Prints a file's time as a calendar date.
fn day(seconds: i64) -> String {
    u64::try_from(seconds).map_or_else(|_| format!("{} s before 1970", seconds.unsigned_abs()), date)
}

impl fmt::Display for Words<'_, SalvagedChange> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Words(&self.0.what))?;
        let user = self.0.user.map(|user| format!("user {user}"));
        let done: Vec<String> = user.into_iter().chain(self.0.when.map(day)).collect();
        if !done.is_empty() {
            write!(f, " ({})", done.join(", "))?;
        }
        write!(f, ": {}", self.0.why)
    }
}

impl fmt::Display for Words<'_, Change> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = |from: &Option<String>| from.clone().unwrap_or_else(|| "a file".to_owned());
        match self.0 {
            Change::Create { kind, target: Some(target), .. } => {
                write!(f, "make a {} to {target}", kind_of_file(*kind))
            }
            Change::Create { kind, mode, device, .. } => {
                write!(f, "make a {}", kind_of_file(*kind))?;
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

fn kind_of_file(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "directory",
        FileKind::Regular => "file",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "named pipe",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::Error;

    #[test]
    fn content_is_told_by_its_bytes() {
        let content = SalvagedContent {
            name: "content-0".to_owned(),
            size: 3 << 20,
            ranges: vec![(0, 1024), (4096, 1024)],
            missing: vec![(8192, 512)],
            hash: String::new(),
        };
        let (path, file) = ("/a".to_owned(), String::new());
        let item = SalvagedItem { path, file, change: None, content: Some(content) };
        let words = "/a: write 2.0 KiB of a file of 3.0 MiB; 512 B more cannot be had any more";
        assert_eq!(Words(&item).to_string(), words);
    }

    fn create(kind: FileKind, target: Option<&str>, device: Option<&str>) -> Change {
        let (target, device) = (target.map(str::to_owned), device.map(str::to_owned));
        Change::Create { kind, mode: "0644".to_owned(), target, device }
    }

    /// Each kind of change, with its words.
    fn changes() -> Vec<(Change, &'static str)> {
        let from = || Some("/b".to_owned());
        let attribute = || "user.x".to_owned();
        let chosen = Change::SetAttributes {
            mode: Some("4755".to_owned()),
            owner: Some(0),
            group: Some(100),
            accessed: Some(-1),
            modified: Some(1_795_608_000),
        };
        let none =
            Change::SetAttributes { mode: None, owner: None, group: None, accessed: None, modified: None };
        vec![
            (create(FileKind::Regular, None, None), "make a file, mode 0644"),
            (create(FileKind::Directory, None, None), "make a directory, mode 0644"),
            (create(FileKind::Fifo, None, None), "make a named pipe, mode 0644"),
            (create(FileKind::Socket, None, None), "make a socket, mode 0644"),
            (create(FileKind::Symlink, Some("../b"), None), "make a symbolic link to ../b"),
            (create(FileKind::CharDevice, None, Some("1:3")), "make a character device 1:3, mode 0644"),
            (create(FileKind::BlockDevice, None, Some("8:0")), "make a block device 8:0, mode 0644"),
            (Change::Link { from: from() }, "make it another name of /b"),
            (Change::Link { from: None }, "make it another name of a file"),
            (Change::Unlink { directory: true }, "remove the directory"),
            (Change::Unlink { directory: false }, "remove it"),
            (Change::Rename { from: from(), existing: Existing::Replaced }, "rename /b to it"),
            (
                Change::Rename { from: from(), existing: Existing::Kept },
                "rename /b to it, unless it is there",
            ),
            (Change::Rename { from: from(), existing: Existing::Exchanged }, "exchange it with /b"),
            (
                chosen,
                "set mode 4755, owner 0, group 100, access time 1 s before 1970, modification time 2026-11-25 12:00:00 UTC",
            ),
            (none, "set the owner that it has"),
            (Change::SetXattr { attribute: attribute(), bytes: 2048 }, "set the attribute user.x, 2.0 KiB"),
            (Change::RemoveXattr { attribute: attribute() }, "remove the attribute user.x"),
            (Change::Write { size: 3 << 20 }, "write a file of 3.0 MiB"),
            (Change::DeleteOnClose { delete: true }, "remove it at its last close"),
            (Change::DeleteOnClose { delete: false }, "leave it at its last close"),
            (Change::LastClose, "remove it, since it was closed for the last time"),
            (Change::Read, "note when it was read"),
            (Change::Lock, "lock or unlock it"),
        ]
    }

    #[test]
    fn each_change_is_told_in_words() {
        for (what, words) in changes() {
            let (when, why, operation) = (Some(1_795_608_000), Error::NoSpace, String::new());
            let mut change = SalvagedChange { what, when, user: Some(1000), why, operation };
            let told = format!("{words} (user 1000, 2026-11-25 12:00:00 UTC): no space left");
            assert_eq!(Words(&change).to_string(), told);
            (change.user, change.when) = (None, None);
            assert_eq!(Words(&change).to_string(), format!("{words}: no space left"));
        }
    }

    #[test]
    fn the_reason_of_a_salvage_comes_first() {
        let told = |goes_on, cut_off| {
            let (number, when, items) = (7, 1_795_608_000, Vec::new());
            Words(&Salvaged { number, when, cut_off, goes_on, items }).to_string()
        };
        assert_eq!(told(false, true), "7 of 2026-11-25 12:00:00 UTC (cut off)\n");
        assert_eq!(told(false, false), "7 of 2026-11-25 12:00:00 UTC (refused by the server)\n");
        assert_eq!(
            told(true, true),
            "7 of 2026-11-25 12:00:00 UTC (left when the machine ended: its next start goes on with it)\n"
        );
    }
}
