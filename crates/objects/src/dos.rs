//! Attributes that only Windows has. They stand in one extended attribute of the file, as text:
//! `0x22` in hexadecimal, then the times that a client has set: that of the file's making, and that
//! of its last change with the time at which the change was the last. `-` stands for none. A word
//! at the end says that the mode does not tell who may write.

use crate::DosAttributes;
use namespace::{Attributes, FileKind, Stat, Timestamp};

/// The extended attribute. Samba has one of that name, and its oldest form is the same text.
pub(crate) const NAME: &[u8] = b"user.DOSATTRIB";

/// The word of [`Dos::is_described`].
const DESCRIBED: &str = "described";

/// How long after [`ChangeTime::since`] the file may have changed for the last time, ns: setting
/// the change time is a change itself.
const SETTING_NS: i128 = 20_000_000;

/// A time of change that a client has set. A file system of POSIX has no such thing: the time of
/// the last change is then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeTime {
    /// The time that the client gave.
    pub(crate) set: Timestamp,
    /// The file's own time of change just before. With a later change the client's word is over.
    pub(crate) since: Timestamp,
}

/// The value of the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dos {
    /// The settable attributes.
    pub(crate) attributes: u32,
    /// When the file was made, if a client said something else than the file system.
    pub(crate) created: Option<Timestamp>,
    pub(crate) changed: Option<ChangeTime>,
    /// A security descriptor says who may write, and the mode does not.
    pub(crate) is_described: bool,
}

impl Dos {
    /// The attributes of a file that has none stored.
    pub(crate) fn of_kind(kind: FileKind) -> Dos {
        let attributes = if kind == FileKind::Regular { DosAttributes::ARCHIVE } else { 0 };
        Dos { attributes, created: None, changed: None, is_described: false }
    }

    /// Reads the value. Anything else than its form is as if there were none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Dos> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.trim_end_matches('\0').split(' ');
        let attributes = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let [created, set, since] = [(); 3].map(|()| words.next().and_then(time));
        let changed = set.zip(since).map(|(set, since)| ChangeTime { set, since });
        let is_described = words.next() == Some(DESCRIBED);
        Some(Dos { attributes: attributes & DosAttributes::SETTABLE, created, changed, is_described })
    }

    /// Writes the value.
    pub(crate) fn emit(self) -> Vec<u8> {
        let times = [self.created, self.changed.map(|it| it.set), self.changed.map(|it| it.since)];
        let time =
            |time: Option<Timestamp>| time.map_or("-".into(), |it| format!("{}.{}", it.secs, it.nanos));
        let [created, set, since] = times.map(time);
        let described = if self.is_described { format!(" {DESCRIBED}") } else { String::new() };
        format!("{:#x} {created} {set} {since}{described}", self.attributes).into_bytes()
    }

    /// The time of change to show.
    pub(crate) fn change_time(self, stat: &Stat) -> Timestamp {
        let ns = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        let own = stat.attributes.ctime;
        let holds = |it: &ChangeTime| (0..=SETTING_NS).contains(&(ns(own) - ns(it.since)));
        self.changed.filter(holds).map_or(own, |it| it.set)
    }

    /// The attributes to show. A file that nobody may write is read-only.
    pub(crate) fn shown(self, of: &Attributes) -> DosAttributes {
        let mut shown = self.attributes;
        shown |= match of.kind {
            FileKind::Directory => DosAttributes::DIRECTORY,
            FileKind::Symlink => DosAttributes::REPARSE_POINT,
            FileKind::Regular if of.mode & 0o222 == 0 && !self.is_described => DosAttributes::READ_ONLY,
            _ => 0,
        };
        DosAttributes(if shown == 0 { DosAttributes::NORMAL } else { shown })
    }
}

/// Reads a time: seconds, a point, nanoseconds.
fn time(text: &str) -> Option<Timestamp> {
    let (secs, nanos) = text.split_once('.')?;
    let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Timestamp { secs: secs.parse().ok()?, nanos })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times() -> impl Strategy<Value = Timestamp> {
        (any::<i64>(), 0u32..1_000_000_000).prop_map(|(secs, nanos)| Timestamp { secs, nanos })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            attributes in any::<u32>(), created in prop::option::of(times()),
            changed in prop::option::of((times(), times())), is_described: bool
        ) {
            let changed = changed.map(|(set, since)| ChangeTime { set, since });
            let dos = Dos { attributes: attributes & DosAttributes::SETTABLE, created, changed, is_described };
            prop_assert_eq!(Dos::parse(&dos.emit()), Some(dos));
        }

        #[test]
        fn no_bytes_are_trouble(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            let _ = Dos::parse(&bytes);
        }
    }
}
