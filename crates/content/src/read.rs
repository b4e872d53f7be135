//! Reads through the layers of a file's content: dirty data, uploads under way (newest first),
//! published content.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use namespace::{Extent, Place};

use crate::chunk::Chunk;
use crate::extents::SpanContent;
use crate::file::{Base, FileContent};
use crate::overlay::{DirtyRun, Overlay};
use crate::{Cipher, Damaged, ReadPart, Unreadable};

/// The source of the bytes of a range.
pub(crate) enum Source<'a> {
    /// These bytes, from byte `.1` on.
    Chunk(&'a Chunk, usize),
    /// Inline content.
    Inline(Bytes),
    /// An extent's piece, from byte `skip` on.
    Extent { extent: &'a Extent, skip: u32 },
    /// Inline content that cannot be opened.
    Damaged(Damaged),
    /// Zeros.
    Hole,
    /// Not known here: the server has to be asked.
    Unknown,
}

impl FileContent {
    /// Appends the parts of up to `length` bytes from `offset` on; fewer at the end of the file.
    pub fn read(&self, offset: u64, length: u32, parts: &mut Vec<ReadPart>) -> Result<(), Unreadable> {
        let end = offset.saturating_add(u64::from(length)).min(self.size());
        let mut opener = Opener::new(self);
        let flow = self.visit(offset..end, &mut |range, source| match opener.part(range, source) {
            Ok(part) => {
                push(parts, part);
                ControlFlow::Continue(())
            }
            Err(why) => ControlFlow::Break(why),
        });
        match flow {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(why) => Err(why),
        }
    }

    /// Returns the next data (or hole) at or after `offset`; `None` beyond the end. The end itself
    /// counts as a hole.
    pub fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>, Unreadable> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        let flow = self.visit(offset..size, &mut |range, source| match source {
            Source::Unknown => ControlFlow::Break(Err(Unreadable::NeedExtents { from: range.start })),
            source if matches!(source, Source::Hole) == hole => ControlFlow::Break(Ok(Some(range.start))),
            _ => ControlFlow::Continue(()),
        });
        match flow {
            ControlFlow::Continue(()) => Ok(hole.then_some(size)),
            ControlFlow::Break(found) => found,
        }
    }

    /// Returns the bytes of `range` that are not holes. Unknown ranges count as occupied.
    pub(crate) fn occupied_in(&self, range: Range<u64>) -> u64 {
        let mut occupied = 0;
        let _: ControlFlow<()> = self.visit(range.start..range.end.min(self.size()), &mut |range, source| {
            if !matches!(source, Source::Hole) {
                occupied += range.end - range.start;
            }
            ControlFlow::Continue(())
        });
        occupied
    }

    /// Returns the parts of `range` that have no content, in order: holes, and the range beyond the
    /// end. Unknown ranges count as content.
    pub fn holes_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut holes: Vec<Range<u64>> = Vec::new();
        let mut add = |hole: Range<u64>| match holes.last_mut().filter(|last| last.end == hole.start) {
            Some(last) => last.end = hole.end,
            None if !hole.is_empty() => holes.push(hole),
            None => {}
        };
        let _: ControlFlow<()> = self.visit(range.start..range.end.min(self.size()), &mut |part, source| {
            if matches!(source, Source::Hole) {
                add(part);
            }
            ControlFlow::Continue(())
        });
        add(range.start.max(self.size())..range.end.max(self.size()));
        holes
    }

    /// Returns the ranges that are written and not published, in order.
    pub fn unpublished(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let _: ControlFlow<()> = self.visit(0..self.size(), &mut |range, source| {
            if matches!(source, Source::Chunk(..)) {
                match ranges.last_mut().filter(|last| last.end == range.start) {
                    Some(last) => last.end = range.end,
                    None => ranges.push(range),
                }
            }
            ControlFlow::Continue(())
        });
        ranges
    }

    /// Returns the whole content, if that needs no share.
    pub(crate) fn local_bytes(&self) -> Option<Vec<u8>> {
        let length = u32::try_from(self.size()).ok()?;
        let mut parts = Vec::new();
        self.read(0, length, &mut parts).ok()?;
        crate::assemble(&parts, |_| Err(()), || ()).ok()
    }

    /// Calls `found` with each part of `range` in order.
    pub(crate) fn visit<'a, B>(
        &'a self,
        range: Range<u64>,
        found: &mut impl FnMut(Range<u64>, Source<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if range.is_empty() { ControlFlow::Continue(()) } else { self.visit_layer(0, range, found) }
    }

    fn visit_layer<'a, B>(
        &'a self,
        layer: usize,
        range: Range<u64>,
        found: &mut impl FnMut(Range<u64>, Source<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some(overlay) = self.layer(layer) else {
            return self.base.visit(range, found);
        };
        let floor = overlay.truncate_to().unwrap_or(u64::MAX);
        for (part, run) in overlay.parts(range) {
            match run {
                Some((DirtyRun::Data(chunk), skip)) => found(part, Source::Chunk(chunk, skip as usize))?,
                Some((DirtyRun::Hole(_), _)) => found(part, Source::Hole)?,
                None => {
                    let shows = part.start..part.end.min(floor);
                    let cut = part.start.max(floor)..part.end;
                    if !shows.is_empty() {
                        self.visit_layer(layer + 1, shows, found)?;
                    }
                    if !cut.is_empty() {
                        found(cut, Source::Hole)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns a layer, counted from the top, without the base.
    fn layer(&self, layer: usize) -> Option<&Overlay> {
        match layer.checked_sub(1) {
            None => Some(&self.dirty),
            Some(below) => self.flights.iter().rev().nth(below).map(|flight| &flight.overlay),
        }
    }
}

impl Base {
    fn visit<'a, B>(
        &'a self,
        range: Range<u64>,
        found: &mut impl FnMut(Range<u64>, Source<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match self {
            Base::Inline(bytes) => {
                let length = bytes.len() as u64;
                if range.start < length.min(range.end) {
                    let end = length.min(range.end);
                    found(range.start..end, Source::Inline(bytes.slice(range.start as usize..end as usize)))?;
                }
                if range.end > length.max(range.start) {
                    found(length.max(range.start)..range.end, Source::Hole)?;
                }
            }
            Base::Damaged(why) => found(range, Source::Damaged(*why))?,
            Base::Extents(map) => {
                for span in map.spans(range.start, range.end.saturating_sub(range.start)) {
                    let source = match span.what {
                        SpanContent::Unknown => Source::Unknown,
                        SpanContent::Hole => Source::Hole,
                        SpanContent::Extent { extent, skip } => Source::Extent { extent, skip },
                    };
                    found(span.offset..span.offset + span.length, source)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Turns sources into parts. The key is expanded for the first inline piece.
struct Opener<'a> {
    content: &'a FileContent,
    cipher: Option<Cipher>,
}

impl<'a> Opener<'a> {
    fn new(content: &'a FileContent) -> Opener<'a> {
        Opener { content, cipher: None }
    }

    /// Returns the part for `range`, which is shorter than 4 GiB like every read.
    fn part(&mut self, range: Range<u64>, source: Source<'_>) -> Result<ReadPart, Unreadable> {
        let length = (range.end - range.start) as u32;
        match source {
            Source::Unknown => Err(Unreadable::NeedExtents { from: range.start }),
            Source::Damaged(why) => Err(why.into()),
            Source::Hole => Ok(ReadPart::Zeros(length)),
            Source::Inline(bytes) => Ok(ReadPart::Bytes(bytes)),
            Source::Chunk(chunk, from) => Ok(ReadPart::Bytes(chunk.slice(from..from + length as usize))),
            Source::Extent { extent, skip } => {
                let piece = &extent.piece;
                let end =
                    skip.checked_add(length).filter(|end| *end <= piece.length).ok_or(Damaged::Extent)?;
                match piece.place {
                    Place::Inline(_) => {
                        Ok(ReadPart::Bytes(self.open(extent)?.slice(skip as usize..end as usize)))
                    }
                    Place::Share { share, at } => Ok(ReadPart::Piece {
                        share,
                        at,
                        piece_length: piece.length,
                        nonce: piece.nonce,
                        hash: piece.hash,
                        key: self.content.published.key.ok_or(Damaged::Extent)?,
                        skip,
                        length,
                    }),
                }
            }
        }
    }

    /// Returns the whole plain bytes of an inline piece.
    fn open(&mut self, extent: &Extent) -> Result<Bytes, Damaged> {
        let key = self.content.published.key.ok_or(Damaged::Extent)?;
        open_inline(self.cipher.get_or_insert_with(|| Cipher::new(&key)), extent)
    }
}

/// Opens the inline piece of `extent`.
pub(crate) fn open_inline(cipher: &Cipher, extent: &Extent) -> Result<Bytes, Damaged> {
    let Place::Inline(ciphertext) = &extent.piece.place else { return Err(Damaged::Extent) };
    let mut buffer = ciphertext.to_vec();
    let length = cipher.open_in_place(&extent.piece.nonce, &extent.piece.hash, &mut buffer)?.len();
    if length != extent.piece.length as usize {
        return Err(Damaged::Extent);
    }
    buffer.truncate(length);
    Ok(Bytes::from(buffer))
}

/// Appends a part, and joins zeros.
fn push(parts: &mut Vec<ReadPart>, part: ReadPart) {
    match (parts.last_mut(), part) {
        (Some(ReadPart::Zeros(before)), ReadPart::Zeros(more)) => *before = before.saturating_add(more),
        (_, part) => parts.push(part),
    }
}
