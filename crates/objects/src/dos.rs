//! Attributes that only Windows has. They stand in one extended attribute of the file, as text:
//! `0x22` in hexadecimal, then, if it was set, the time of the file's making.

use crate::DosAttributes;
use namespace::{FileKind, Stat, Timestamp};

/// The extended attribute. Samba has one of that name, and its oldest form is the same text.
pub(crate) const NAME: &[u8] = b"user.DOSATTRIB";

/// The value of the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dos {
    /// The settable attributes.
    pub(crate) attributes: u32,
    /// When the file was made, if a client said something else than the file system.
    pub(crate) created: Option<Timestamp>,
}

impl Dos {
    /// The attributes of a file that has none stored.
    pub(crate) fn of_kind(kind: FileKind) -> Dos {
        let attributes = if kind == FileKind::Regular { DosAttributes::ARCHIVE } else { 0 };
        Dos { attributes, created: None }
    }

    /// Reads the value. Anything else than its form is as if there were none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Dos> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.trim_end_matches('\0').split(' ');
        let attributes = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let created = words.next().and_then(|time| {
            let (secs, nanos) = time.split_once('.')?;
            let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
            Some(Timestamp { secs: secs.parse().ok()?, nanos })
        });
        Some(Dos { attributes: attributes & DosAttributes::SETTABLE, created })
    }

    /// Writes the value.
    pub(crate) fn emit(self) -> Vec<u8> {
        let time = self.created.map(|time| format!(" {}.{}", time.secs, time.nanos));
        format!("{:#x}{}", self.attributes, time.unwrap_or_default()).into_bytes()
    }

    /// The attributes to show. A file that nobody may write is read-only.
    pub(crate) fn shown(self, stat: &Stat) -> DosAttributes {
        let mut shown = self.attributes;
        shown |= match stat.attributes.kind {
            FileKind::Directory => DosAttributes::DIRECTORY,
            FileKind::Symlink => DosAttributes::REPARSE_POINT,
            FileKind::Regular if stat.attributes.mode & 0o222 == 0 => DosAttributes::READ_ONLY,
            _ => 0,
        };
        DosAttributes(if shown == 0 { DosAttributes::NORMAL } else { shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            attributes in any::<u32>(), created in prop::option::of((any::<i64>(), 0u32..1_000_000_000))
        ) {
            let created = created.map(|(secs, nanos)| Timestamp { secs, nanos });
            let dos = Dos { attributes: attributes & DosAttributes::SETTABLE, created };
            prop_assert_eq!(Dos::parse(&dos.emit()), Some(dos));
        }

        #[test]
        fn no_bytes_are_trouble(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            let _ = Dos::parse(&bytes);
        }
    }
}
