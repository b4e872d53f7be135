//! The keys of rows. A file's rows have its identifier's bytes, one tag byte, and a sub-key, so
//! that a region is one contiguous range (Farsite §4.1.3). Rows of the whole server begin with a
//! byte less than 0x80, which begins no identifier but the root's, 0x00.

use crate::Corrupt;
use ident::FileId;
use lease::{Label, SessionId};
use namespace::{ShareId, fold};
use smallvec::SmallVec;

/// A row's key. Nearly all keys are short, so finding a row allocates nothing.
pub(crate) type Key = SmallVec<[u8; 48]>;

/// The kinds of a file's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// [`crate::record::Record`]; every file has one.
    Record = 0x01,
    /// Inline content, or a link's target, as it is.
    Inline = 0x02,
    /// An extent; sub-key: its end, so that one forward scan finds the extents that overlap a
    /// range.
    Extent = 0x03,
    /// An extended attribute, as it is; sub-key: its name.
    Xattr = 0x04,
    /// The entry that a label is bound to. Sub-key: the fold, and, if the exact label differs, a
    /// zero byte and the exact label. So all labels of one fold stand together.
    Child = 0x05,
    /// The exact label at a position; sub-key: the position.
    Position = 0x06,
}

/// Rows of the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Global {
    /// Versions in use, sessions, counters, waiting requests: what [`crate::Directory::checkpoint`]
    /// writes.
    State = 0x01,
    /// Files that are to go with their last handle (without a name, or with their disposition set);
    /// then the identifier.
    Doomed = 0x02,
    /// Dead files that have rows left; then the identifier.
    Dying = 0x03,
    /// The file that a share belongs to and how many of its extents refer to it; then the share.
    Share = 0x04,
    /// Shares whose adoption or drop the share server has not confirmed; then the share.
    Unsettled = 0x05,
    /// Shields: files that a session has locked, or that it is stuck at having open, at all or in a
    /// mode (stuck TRUE, BlackBox §4.6: the session cannot say otherwise). They remain to be
    /// cleared after the session's end. Session, then the identifier.
    Shield = 0x06,
    /// A machine of the cluster, or a former one ([`crate::enrolment`]); then its number.
    Machine = 0x07,
    /// An invitation to join; then the hash of its secret.
    Invitation = 0x08,
    /// An authority that certifies machines ([`crate::certification`]); then its number.
    Authority = 0x09,
}

/// The key of a row of `file` that has no sub-key, or the first possible key of those that have
/// one.
pub(crate) fn of(file: &FileId, tag: Tag) -> Key {
    with(file, tag, &[])
}

/// The end of the rows of `file` with `tag`.
pub(crate) fn end_of(file: &FileId, tag: Tag) -> Key {
    let mut key = of(file, tag);
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key
}

/// The key of a row with this sub-key.
pub(crate) fn with(file: &FileId, tag: Tag, sub: &[u8]) -> Key {
    let id = file.as_bytes();
    let mut key = Key::with_capacity(id.len() + 1 + sub.len());
    key.extend_from_slice(id);
    key.push(tag as u8);
    key.extend_from_slice(sub);
    key
}

/// The key of the extent that ends at `end`.
pub(crate) fn extent(file: &FileId, end: u64) -> Key {
    with(file, Tag::Extent, &end.to_be_bytes())
}

/// The key of `label`'s row.
pub(crate) fn child(dir: &FileId, label: &Label) -> Key {
    let folded = fold(label);
    let mut key = with(dir, Tag::Child, folded.as_bytes());
    if folded != *label {
        key.push(0);
        key.extend_from_slice(label.as_bytes());
    }
    key
}

/// The range of the rows of all labels that fold to `folded`. A label holds no zero byte, so the
/// range contains no others.
pub(crate) fn children_folding_to(dir: &FileId, folded: &Label) -> (Key, Key) {
    let start = with(dir, Tag::Child, folded.as_bytes());
    let mut end = start.clone();
    end.push(1);
    (start, end)
}

/// The exact label in a child row's key.
pub(crate) fn label_of_child(dir: &FileId, key: &[u8]) -> Result<Label, Corrupt> {
    let sub = sub_key(dir, key)?;
    let exact = sub.iter().position(|b| *b == 0).map_or(sub, |zero| &sub[zero + 1..]);
    Label::new(exact).map_err(|_| Corrupt::at(key, "label"))
}

/// The key of the row of `position`: its length, then its bytes; most are one or two long.
pub(crate) fn position(dir: &FileId, position: u64) -> Key {
    let bytes = position.to_be_bytes();
    let zeros = position.leading_zeros() as usize / 8;
    let mut key = Key::with_capacity(dir.as_bytes().len() + 10 - zeros);
    key.extend_from_slice(dir.as_bytes());
    key.push(Tag::Position as u8);
    key.push((8 - zeros) as u8);
    key.extend_from_slice(&bytes[zeros..]);
    key
}

/// The position in a position row's key.
pub(crate) fn position_of(dir: &FileId, key: &[u8]) -> Result<u64, Corrupt> {
    match sub_key(dir, key)? {
        [length, bytes @ ..] if usize::from(*length) == bytes.len() && bytes.len() <= 8 => {
            Ok(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
        }
        _ => Err(Corrupt::at(key, "position")),
    }
}

/// The bytes after the identifier and the tag.
pub(crate) fn sub_key<'k>(file: &FileId, key: &'k [u8]) -> Result<&'k [u8], Corrupt> {
    key.get(file.as_bytes().len() + 1..).ok_or_else(|| Corrupt::at(key, "key"))
}

/// The file, tag byte and sub-key of a file's row.
pub(crate) fn split(key: &[u8]) -> Result<(FileId, u8, &[u8]), Corrupt> {
    match FileId::split_from(key) {
        Ok((file, [tag, sub @ ..])) => Ok((file, *tag, sub)),
        _ => Err(Corrupt::at(key, "key")),
    }
}

/// The key of a row of the whole server.
pub(crate) fn global(row: Global, sub: &[u8]) -> Key {
    let mut key = Key::with_capacity(1 + sub.len());
    key.push(row as u8);
    key.extend_from_slice(sub);
    key
}

/// The range of the rows of that sort.
pub(crate) fn globals(row: Global) -> (Key, Key) {
    (Key::from_slice(&[row as u8]), Key::from_slice(&[row as u8 + 1]))
}

/// The identifier in a row of [`Global::Doomed`] or [`Global::Dying`].
pub(crate) fn file_of_global(key: &[u8]) -> Result<FileId, Corrupt> {
    FileId::from_bytes(key.get(1..).unwrap_or_default()).map_err(|_| Corrupt::at(key, "identifier"))
}

/// The prefix of the sub-keys of a session's rows of [`Global::Shield`].
pub(crate) fn shields_of(session: SessionId) -> [u8; 8] {
    session.0.to_be_bytes()
}

/// The sub-key of a row of [`Global::Shield`].
pub(crate) fn shield(session: SessionId, file: &FileId) -> Key {
    let mut sub = Key::from_slice(&shields_of(session));
    sub.extend_from_slice(file.as_bytes());
    sub
}

/// The session and the identifier in a row of [`Global::Shield`].
pub(crate) fn shield_of_global(key: &[u8]) -> Result<(SessionId, FileId), Corrupt> {
    let corrupt = || Corrupt::at(key, "shield");
    let (session, file) = key.get(1..).and_then(<[u8]>::split_first_chunk).ok_or_else(corrupt)?;
    let file = FileId::from_bytes(file).map_err(|_| corrupt())?;
    Ok((SessionId(u64::from_be_bytes(*session)), file))
}

/// The share in a row of [`Global::Share`] or [`Global::Unsettled`].
pub(crate) fn share_of_global(key: &[u8]) -> Result<ShareId, Corrupt> {
    let bytes = key.get(1..).and_then(|bytes| bytes.try_into().ok());
    bytes.map(ShareId).ok_or_else(|| Corrupt::at(key, "share"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str) -> Label {
        Label::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn positions_stand_in_their_order() {
        let dir = FileId::root().child(7);
        let positions = [1, 2, 255, 256, 65_535, 65_536, u64::MAX >> 1];
        let keys = positions.map(|n| position(&dir, n));
        assert!(keys.is_sorted());
        for (key, n) in keys.iter().zip(positions) {
            assert_eq!(position_of(&dir, key), Ok(n));
            assert!(*key < end_of(&dir, Tag::Position));
        }
    }

    #[test]
    fn labels_of_one_fold_stand_together_and_alone() {
        let dir = FileId::root().child(7);
        let folded = fold(&label("README"));
        let (start, end) = children_folding_to(&dir, &folded);
        for name in ["README", "readme", "ReadMe"] {
            let key = child(&dir, &label(name));
            assert!(start <= key && key < end, "{name}");
            assert_eq!(label_of_child(&dir, &key), Ok(label(name)));
        }
        for name in ["READM", "README2", "README\u{1}", "readme.md"] {
            let key = child(&dir, &label(name));
            assert!(!(start <= key && key < end), "{name}");
            assert_eq!(label_of_child(&dir, &key), Ok(label(name)));
        }
    }

    #[test]
    fn a_files_rows_come_before_those_of_its_children_and_after_the_servers() {
        let dir = FileId::root().child(7);
        let last = position(&dir, u64::MAX);
        assert!(last < of(&dir.child(1), Tag::Record));
        assert!(of(&dir, Tag::Record) < last && last < of(&FileId::root().child(8), Tag::Record));
        assert!(position(&FileId::root(), u64::MAX) < global(Global::State, &[]));
        assert!(global(Global::Shield, &[0xff; 16]) < of(&FileId::root().child(1), Tag::Record));
    }
}
