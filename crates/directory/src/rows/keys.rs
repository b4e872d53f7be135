//! The keys of rows. A file's rows have its identifier's bytes, one tag byte, and a sub-key, so
//! that a region is one contiguous range (Farsite §4.1.3). Rows of a region that belong to no file
//! stand in tables at the region's top, so they are in that range and move with it. Rows
//! of the server and of the cluster stand behind all identifiers, and are in no region.

use crate::Corrupt;
use ident::FileId;
use lease::{Label, SessionId};
use namespace::{ShareId, fold};
use smallvec::SmallVec;

/// A row's key. Nearly all keys are short, so finding a row allocates nothing.
pub(crate) type RowKey = SmallVec<[u8; 48]>;

/// The top of this server's region: all files whose identifiers begin with it.
pub(crate) const TOP: FileId = FileId::root();
/// The beginning of the keys of rows that are in no region. No identifier's code begins with more
/// than 14 ones, so all files' rows come before.
pub(crate) const BEYOND: [u8; 8] = [0xff; 8];

/// The kinds of a file's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// [`crate::rows::record::Record`]; every file has one.
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

/// Tables of rows that are no file's own.
///
/// The region's come first, its state before its indices. Each row of an index follows from rows of
/// the file that it names (but a share's publisher), and [`crate::Directory::check`] compares the
/// two. So a walk of a part of the region finds the index rows of that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Table {
    /// [`crate::state::RegionState`].
    Region = 0x10,
    /// [`crate::requests::pending::PendingRequests`].
    Requests = 0x11,
    /// [`crate::requests::contention::Contention`].
    Contention = 0x12,
    /// [`crate::requests::write_through::WriteThrough`].
    WriteThrough = 0x13,
    /// [`crate::requests::walks::Walks`].
    Walks = 0x14,
    /// Files that are to go with their last handle (without a name, or with their disposition set),
    /// by identifier.
    Doomed = 0x15,
    /// Files that have rows left but no record, by identifier.
    Dying = 0x16,
    /// The file that a share belongs to and how many of its extents refer to it, by share.
    Share = 0x17,
    /// Shields: files that a session has locked, or that it is stuck at having open, at all or in a
    /// mode (stuck TRUE, BlackBox §4.6: the session cannot say otherwise). They remain to be
    /// cleared after the session's end. Session, then the identifier.
    Shield = 0x18,
    /// [`crate::state::ServerState`].
    Server = 0x20,
    /// [`crate::sessions::session::Session`], by its number.
    Session = 0x21,
    /// Work on a share's leases that the share server has not confirmed, by share. The leases are
    /// those of the server's own account.
    Unsettled = 0x22,
    /// [`crate::joint::JointOperations`].
    Joint = 0x23,
    /// [`crate::paths::PathLeases`].
    Paths = 0x24,
    /// [`crate::state::ClusterState`].
    Cluster = 0x30,
    /// A machine of the cluster, or a former one ([`crate::cluster::enrolment`]), by its number.
    Machine = 0x31,
    /// An invitation to join, by the hash of its secret.
    Invitation = 0x32,
    /// An authority that certifies machines ([`crate::cluster::certification`]), by its number.
    Authority = 0x33,
    /// A server that was founded beside the root server ([`crate::cluster::founding`]), by its
    /// number: the member of the server group that makes its first state.
    Founded = 0x34,
    /// A file that stays where it is ([`crate::rows::placement`]), by its identifier.
    Pin = 0x35,
    /// The last move of a region, by its identifier.
    Moved = 0x36,
    /// One row, if no region is to move by itself.
    Unbalanced = 0x37,
}

impl Table {
    const ALL: [Table; 22] = [
        Table::Region,
        Table::Requests,
        Table::Contention,
        Table::WriteThrough,
        Table::Walks,
        Table::Doomed,
        Table::Dying,
        Table::Share,
        Table::Shield,
        Table::Server,
        Table::Session,
        Table::Unsettled,
        Table::Joint,
        Table::Paths,
        Table::Cluster,
        Table::Machine,
        Table::Invitation,
        Table::Authority,
        Table::Founded,
        Table::Pin,
        Table::Moved,
        Table::Unbalanced,
    ];

    /// Whether the table is a region's. The others are the server's or the cluster's.
    const fn is_of_region(self) -> bool {
        (self as u8) < Table::Server as u8
    }

    /// The key of the row with this sub-key.
    pub fn key(self, sub: &[u8]) -> RowKey {
        let mut key = RowKey::new();
        match self.is_of_region() {
            true => key.extend_from_slice(TOP.as_bytes()),
            false => key.extend_from_slice(&BEYOND),
        }
        key.push(self as u8);
        key.extend_from_slice(sub);
        key
    }

    /// The range of the table's rows.
    pub fn range(self) -> (RowKey, RowKey) {
        let start = self.key(&[]);
        let mut end = start.clone();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (start, end)
    }

    /// The sub-key of a row of this table.
    pub fn sub_key(self, key: &[u8]) -> Result<&[u8], Corrupt> {
        key.strip_prefix(self.key(&[]).as_slice()).ok_or_else(|| Corrupt::at(key, "key"))
    }

    /// The identifier in the key of a row of [`Table::Doomed`], [`Table::Dying`], [`Table::Pin`] or
    /// [`Table::Moved`].
    pub fn file(self, key: &[u8]) -> Result<FileId, Corrupt> {
        FileId::from_bytes(self.sub_key(key)?).map_err(|_| Corrupt::at(key, "identifier"))
    }

    /// The number in the key of a row of [`Table::Session`], [`Table::Machine`],
    /// [`Table::Authority`] or [`Table::Founded`].
    pub fn number(self, key: &[u8]) -> Result<u64, Corrupt> {
        let bytes = self.sub_key(key)?.try_into().map_err(|_| Corrupt::at(key, "number"))?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// The share in the key of a row of [`Table::Share`] or [`Table::Unsettled`].
    pub fn share(self, key: &[u8]) -> Result<ShareId, Corrupt> {
        let bytes = self.sub_key(key)?.try_into();
        bytes.map(ShareId).map_err(|_| Corrupt::at(key, "share"))
    }
}

/// The row that a key is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowOf<'k> {
    /// A file's: its tag byte and its sub-key.
    File(FileId, u8, &'k [u8]),
    /// A table's.
    Table(Table),
}

/// The row that `key` is of.
pub(crate) fn row_of(key: &[u8]) -> Result<RowOf<'_>, Corrupt> {
    let corrupt = || Corrupt::at(key, "key");
    let table = |of_region: bool, tag: u8| {
        Table::ALL.into_iter().find(|it| *it as u8 == tag && it.is_of_region() == of_region)
    };
    if let Some(rest) = key.strip_prefix(&BEYOND) {
        let table = rest.first().and_then(|tag| table(false, *tag));
        return table.map(RowOf::Table).ok_or_else(corrupt);
    }
    let (file, rest) = FileId::split_from(key).map_err(|_| corrupt())?;
    let (tag, sub) = rest.split_first().ok_or_else(corrupt)?;
    match (file == TOP).then(|| table(true, *tag)).flatten() {
        Some(table) => Ok(RowOf::Table(table)),
        None => Ok(RowOf::File(file, *tag, sub)),
    }
}

/// The key of a row of `file` that has no sub-key, or the first possible key of those that have
/// one.
pub(crate) fn of(file: &FileId, tag: Tag) -> RowKey {
    with(file, tag, &[])
}

/// The end of the rows of `file` with `tag`.
pub(crate) fn end_of(file: &FileId, tag: Tag) -> RowKey {
    let mut key = of(file, tag);
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key
}

/// The key of a row with this sub-key.
pub(crate) fn with(file: &FileId, tag: Tag, sub: &[u8]) -> RowKey {
    let id = file.as_bytes();
    let mut key = RowKey::with_capacity(id.len() + 1 + sub.len());
    key.extend_from_slice(id);
    key.push(tag as u8);
    key.extend_from_slice(sub);
    key
}

/// The key of the extent that ends at `end`.
pub(crate) fn extent(file: &FileId, end: u64) -> RowKey {
    with(file, Tag::Extent, &end.to_be_bytes())
}

/// The key of `label`'s row.
pub(crate) fn child(dir: &FileId, label: &Label) -> RowKey {
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
pub(crate) fn children_folding_to(dir: &FileId, folded: &Label) -> (RowKey, RowKey) {
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
pub(crate) fn position(dir: &FileId, position: u64) -> RowKey {
    let bytes = position.to_be_bytes();
    let zeros = position.leading_zeros() as usize / 8;
    let mut key = RowKey::with_capacity(dir.as_bytes().len() + 10 - zeros);
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

/// The prefix of the sub-keys of a session's rows of [`Table::Shield`].
pub(crate) fn shields_of(session: SessionId) -> [u8; 8] {
    session.0.to_be_bytes()
}

/// The sub-key of a row of [`Table::Shield`].
pub(crate) fn shield(session: SessionId, file: &FileId) -> RowKey {
    let mut sub = RowKey::from_slice(&shields_of(session));
    sub.extend_from_slice(file.as_bytes());
    sub
}

/// The session and the identifier in the key of a row of [`Table::Shield`].
pub(crate) fn shield_of(key: &[u8]) -> Result<(SessionId, FileId), Corrupt> {
    let corrupt = || Corrupt::at(key, "shield");
    let (session, file) = Table::Shield.sub_key(key)?.split_first_chunk().ok_or_else(corrupt)?;
    let file = FileId::from_bytes(file).map_err(|_| corrupt())?;
    Ok((SessionId(u64::from_be_bytes(*session)), file))
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
    fn a_files_rows_come_before_those_of_its_children() {
        let dir = FileId::root().child(7);
        let last = position(&dir, u64::MAX);
        assert!(last < of(&dir.child(1), Tag::Record));
        assert!(of(&dir, Tag::Record) < last && last < of(&FileId::root().child(8), Tag::Record));
    }

    #[test]
    fn a_regions_tables_are_in_its_range_and_the_others_behind_every_file() {
        let (start, _) = TOP.region_range();
        let last = of(&(0..8).fold(FileId::root(), |id, _| id.child(ident::INTEGER_MAX)), Tag::Position);
        for table in Table::ALL {
            let (first, end) = table.range();
            assert!(first < table.key(&[0xff; 40]) && table.key(&[0xff; 40]) < end);
            assert_eq!(row_of(&table.key(&[7])), Ok(RowOf::Table(table)));
            if table.is_of_region() {
                assert!(start < first.to_vec() && end < of(&TOP.child(1), Tag::Record), "{table:?}");
                assert!(position(&TOP, u64::MAX) < first, "{table:?}");
            } else {
                assert!(last < first && end < RowKey::from_slice(&[0xff; 40]), "{table:?}");
            }
        }
    }
}
