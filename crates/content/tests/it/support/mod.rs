//! A minimal server and share server for the publications of file content.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use content::{
    FileContent, Flush, Hash, Publish, ReadPart, Unreadable, UploadPlan, assemble, open, open_whole,
    seal_share,
};
use namespace::{
    ContentChange, ContentHead, Extent, INLINE_BYTES_MAX, INLINE_SEAL_BYTES, Place, ShareId, Timestamp,
};

pub fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

/// The stored shares, and their possible fates.
#[derive(Default)]
pub struct Shares {
    pub stored: BTreeMap<ShareId, Vec<u8>>,
    pub referenced: BTreeSet<ShareId>,
    pub unused: BTreeSet<ShareId>,
    nonces: BTreeSet<([u8; 32], [u8; 12])>,
}

impl Shares {
    pub fn plan(&mut self, plan: &UploadPlan) {
        let bytes: usize = plan.pieces.iter().map(|piece| piece.plain.len()).sum();
        assert!(!plan.pieces.is_empty() && bytes <= content::SHARE_BYTES_MAX);
        assert!(plan.pieces.len() <= content::SHARE_PIECES_MAX);
        for piece in &plan.pieces {
            let window = u64::from(content::PIECE_BYTES_MAX);
            assert!(!piece.plain.is_empty());
            assert_eq!(piece.offset / window, (piece.offset + piece.plain.len() as u64 - 1) / window);
            assert!(self.nonces.insert((plan.key, piece.nonce)), "no nonce twice under one key");
        }
    }

    pub fn store(&mut self, plan: &UploadPlan) -> Vec<Hash> {
        let pieces = plan.pieces.iter().map(|piece| (piece.nonce, &piece.plain));
        let (share, hashes) = seal_share(&plan.key, pieces);
        assert!(self.stored.insert(plan.share, share).is_none(), "no share twice");
        hashes
    }

    pub fn drop_unused(&mut self, unused: Vec<ShareId>) {
        for share in unused {
            assert!(self.stored.contains_key(&share), "only what is stored is unused");
            assert!(!self.referenced.contains(&share), "nothing unused was published");
            assert!(self.unused.insert(share));
        }
    }

    /// Notes the shares and nonces of a publication.
    pub fn published(&mut self, publish: &Publish, key: Option<[u8; 32]>) {
        if let ContentChange::Inline { sealed, .. } = &publish.change
            && let Some((nonce, _)) = sealed.split_first_chunk()
        {
            assert!(self.nonces.insert((key.unwrap(), *nonce)));
        }
        let ContentChange::Extents { put, .. } = &publish.change else { return };
        for extent in put {
            match &extent.piece.place {
                Place::Share { share, .. } => {
                    assert!(self.stored.contains_key(share) && !self.unused.contains(share));
                    self.referenced.insert(*share);
                }
                Place::Inline(_) => assert!(self.nonces.insert((key.unwrap(), extent.piece.nonce))),
            }
        }
    }

    pub fn open(&self, part: &ReadPart) -> Result<Bytes, String> {
        let ReadPart::Piece { share, at, piece_length, nonce, hash, key, .. } = part else { unreachable!() };
        let from = *at as usize;
        let to = from + *piece_length as usize + content::TAG_BYTES;
        let share = self.stored.get(share).ok_or("no such share")?;
        let ciphertext = share.get(from..to).ok_or("share too short")?;
        open(key, nonce, hash, ciphertext.to_vec()).map(Bytes::from).map_err(|e| e.to_string())
    }
}

/// The server's state of one file.
#[derive(Clone, Default)]
pub struct Server {
    pub head: ContentHead,
    /// The inline content, sealed.
    pub inline: Option<Vec<u8>>,
    pub rows: BTreeMap<u64, Extent>,
}

impl Server {
    pub fn apply(&mut self, publish: &Publish) {
        assert_eq!(publish.version, self.head.version + 1);
        let size = publish.size;
        match &publish.change {
            ContentChange::None => assert!(size >= self.head.size),
            ContentChange::Inline { sealed, key } => {
                assert!(size <= INLINE_BYTES_MAX as u64);
                assert_eq!(sealed.len(), if size == 0 { 0 } else { size as usize + INLINE_SEAL_BYTES });
                assert!(key.is_none() || self.head.key.is_none());
                self.head.key = self.head.key.or(*key);
                self.inline = Some(sealed.clone());
            }
            ContentChange::Extents { truncate_to, punch, put, key } => {
                assert!(truncate_to.map_or(size >= self.head.size, |smallest| smallest <= size));
                assert!(punch.iter().all(|(_, length)| *length > 0));
                assert!(put.is_sorted_by(|a, b| a.offset + u64::from(a.length) <= b.offset));
                assert!(put.last().is_none_or(|last| last.offset + u64::from(last.length) <= size));
                assert!(key.is_none() || self.head.key.is_none());
                self.head.key = self.head.key.or(*key);
                assert!(put.is_empty() || self.head.key.is_some());
                self.inline = None;
            }
        }
        self.edit_rows(&publish.change);
        let Publish { version, size, mtime, ctime, .. } = *publish;
        self.head =
            ContentHead { version, size, mtime, ctime, occupied: self.occupied(), key: self.head.key };
    }

    fn edit_rows(&mut self, change: &ContentChange) {
        match change {
            ContentChange::None => {}
            ContentChange::Inline { .. } => self.rows.clear(),
            ContentChange::Extents { truncate_to, punch, put, .. } => {
                if let Some(size) = truncate_to {
                    self.clear(*size, u64::MAX);
                }
                for (offset, length) in punch {
                    self.clear(*offset, offset + length);
                }
                for extent in put {
                    self.clear(extent.offset, extent.offset + u64::from(extent.length));
                    self.rows.insert(extent.offset, extent.clone());
                }
            }
        }
    }

    fn clear(&mut self, from: u64, to: u64) {
        for row in std::mem::take(&mut self.rows).into_values() {
            let end = row.offset + u64::from(row.length);
            let before = row.offset..end.min(from);
            let after = row.offset.max(to)..end;
            for rest in [before, after].into_iter().filter(|rest| !rest.is_empty()) {
                let skip = row.skip + (rest.start - row.offset) as u32;
                let length = (rest.end - rest.start) as u32;
                self.rows.insert(
                    rest.start,
                    Extent { offset: rest.start, length, skip, piece: row.piece.clone() },
                );
            }
        }
    }

    fn occupied(&self) -> u64 {
        let rows: u64 = self.rows.values().map(|row| u64::from(row.length)).sum();
        rows + self.inline_bytes().len() as u64
    }

    fn inline_bytes(&self) -> Bytes {
        open_whole(self.head.key.as_ref(), self.inline.as_deref().unwrap_or_default()).unwrap()
    }

    /// Returns the content, opened row by row: it uses no code of the crate but `open`.
    pub fn bytes(&self, shares: &Shares) -> Vec<u8> {
        let mut bytes = self.inline_bytes().to_vec();
        bytes.resize(self.head.size as usize, 0);
        for row in self.rows.values() {
            let piece = &row.piece;
            let length = piece.length as usize + content::TAG_BYTES;
            let ciphertext = match &piece.place {
                Place::Inline(ciphertext) => ciphertext.to_vec(),
                Place::Share { share, at } => {
                    shares.stored[share][*at as usize..*at as usize + length].to_vec()
                }
            };
            let plain = open(&self.head.key.unwrap(), &piece.nonce, &piece.hash, ciphertext).unwrap();
            let part = &plain[row.skip as usize..(row.skip + row.length) as usize];
            bytes[row.offset as usize..row.offset as usize + part.len()].copy_from_slice(part);
        }
        bytes
    }

    /// Returns up to `limit` rows that reach beyond `from`, and the offset up to which they are
    /// complete.
    pub fn page(&self, from: u64, limit: usize) -> (Vec<Extent>, u64) {
        let mut rows = self.rows.values().filter(|row| row.offset + u64::from(row.length) > from).cloned();
        let page: Vec<Extent> = rows.by_ref().take(limit).collect();
        let to = rows.next().map_or(u64::MAX, |next| next.offset);
        (page, to)
    }

    pub fn open(&self, limit: usize) -> FileContent {
        match &self.inline {
            Some(bytes) => FileContent::new(self.head, Some(bytes.clone()), None),
            None if self.rows.is_empty() => FileContent::empty(self.head),
            None => FileContent::new(self.head, None, Some(self.page(0, limit))),
        }
    }
}

/// Reads as a host does, and asks the server for pages of extents as often as needed.
pub fn read(
    content: &mut FileContent,
    server: &Server,
    shares: &Shares,
    offset: u64,
    length: u32,
) -> Vec<u8> {
    let mut parts = Vec::new();
    for _ in 0..10_000 {
        parts.clear();
        match content.read(offset, length, &mut parts) {
            Ok(()) => {
                return assemble(&parts, |part| shares.open(part), || "short piece".to_owned()).unwrap();
            }
            Err(Unreadable::NeedExtents { from }) => {
                let (page, to) = server.page(from, 2);
                assert!(to > from, "each page is of use");
                content.learn(from, to, page);
            }
            Err(Unreadable::Damaged(why)) => panic!("{why}"),
        }
    }
    panic!("pages do not lead to an end");
}

pub fn plans(flush: Flush) -> Vec<UploadPlan> {
    match flush {
        Flush::Upload(plans) => plans,
        other => panic!("an upload, not {other:?}"),
    }
}

pub fn publish(flush: Flush) -> Publish {
    match flush {
        Flush::Publish(publish) => publish,
        other => panic!("a publication, not {other:?}"),
    }
}
