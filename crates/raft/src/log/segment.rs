//! One file of the log, and the frames in it.
//!
//! A segment is written over, never extended. When it enters service, it is full of zeros or of
//! frames from its earlier use. So a frame costs the device its own blocks, and nothing of the file
//! system's journal. Measured against appending, that is half the time of an fdatasync and half the
//! bytes.
//!
//! ```text
//! segment   header (64 bytes): magic, key, checksum 16 bytes │ frame │ frame │ …
//!           │ zeros or frames of a former life
//! frame     number u64 │ length u32 │ locator u32 │ checksum 16 bytes │ body
//!           │ zeros up to a multiple of 64
//! ```
//!
//! A bit that has flipped is put right, wherever it is. That matters most in the last frame, which
//! could pass for one that was being written when the power went: the locator says where in a body
//! it was (see `bit_repair`), elsewhere all places are tried.
//!
//! Numbers are little-endian. Frames are numbered through the whole log, so a frame from an earlier
//! use is not taken for a later one. The checksum is keyed, so data that users put into a body
//! cannot pass for a frame.

use crate::bit_repair::{flip_back, locator};
use crate::disk::{Disk, DiskFile};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The largest body. It is far above a batch, and limits what a damaged length can ask for.
pub(super) const BODY_BYTES_MAX: usize = 1 << 30;

const MAGIC: &[u8; 16] = b"leasehold log 1\n";
const ALIGNMENT: u64 = 64;
const FRAME_HEADER: usize = 32;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The key of one log's checksums.
pub(super) type SegmentKey = [u8; 32];

/// The place of a frame in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentPlace {
    pub(super) at: u64,
    pub(super) body_len: u32,
}

/// An open segment file.
#[derive(Debug)]
pub(super) struct Segment {
    file: Arc<dyn DiskFile>,
    key: SegmentKey,
    /// Size of the file.
    pub(super) bytes: u64,
    /// Offset of the next frame.
    pub(super) end: u64,
}

/// The content of a segment, read from its start.
pub(super) struct Scan {
    pub(super) frames: Vec<(SegmentPlace, Vec<u8>)>,
    /// The offset of a frame that was durable once and cannot be read, if there is one.
    pub(super) damaged_at: Option<u64>,
}

impl Segment {
    /// Reserves disk space for a segment that will be made of it.
    pub(super) fn reserve(disk: &dyn Disk, path: &Path, bytes: u64) -> io::Result<()> {
        disk.open(path, true)?.reserve(bytes)
    }

    /// Creates a segment at `path`, durably full of zeros. Its size is `bytes`, or more if a body
    /// of `body_len` needs more. The file `unfinished` is used if it exists. The caller syncs the
    /// directory.
    pub(super) fn create(
        disk: &dyn Disk,
        path: &Path,
        unfinished: &Path,
        key: SegmentKey,
        bytes: u64,
        body_len: usize,
    ) -> io::Result<Segment> {
        let bytes = bytes.max(ALIGNMENT + frame_bytes(body_len));
        let file = disk.open(unfinished, true)?;
        file.set_len(bytes)?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&key);
        header.extend_from_slice(&header_checksum(&header));
        for at in (0..bytes).step_by(ZEROS.len()) {
            file.write_at(&ZEROS[..ZEROS.len().min((bytes - at) as usize)], at)?;
        }
        file.write_at(&header, 0)?;
        file.sync()?;
        disk.rename(unfinished, path)?;
        Ok(Segment { file, key, bytes, end: ALIGNMENT })
    }

    /// Opens a segment to be read or reused. None if it is no segment of this version, or its
    /// header has changed.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> io::Result<Option<Segment>> {
        let file = disk.open(path, false)?;
        let bytes = file.length()?;
        let mut header = [0; ALIGNMENT as usize];
        if bytes < ALIGNMENT {
            return Ok(None);
        }
        file.read_at(&mut header, 0)?;
        if !is_header(&header) {
            let Some(sound) = repaired_header(header) else { return Ok(None) };
            file.write_at(&sound, 0)?;
            header = sound;
        }
        let (magic, rest) = header.split_at(MAGIC.len());
        let Some((key, _)) = rest.split_first_chunk::<32>() else { return Ok(None) };
        Ok((magic == MAGIC).then(|| Segment { file, key: *key, bytes, end: ALIGNMENT }))
    }

    pub(super) fn key(&self) -> SegmentKey {
        self.key
    }

    /// Returns whether it has no frame.
    pub(super) fn is_empty(&self) -> bool {
        self.end == ALIGNMENT
    }

    /// Returns whether a body of this length fits behind the last frame.
    pub(super) fn has_room(&self, body_len: usize) -> bool {
        self.end + frame_bytes(body_len) <= self.bytes
    }

    /// Writes a frame behind the last one, and waits until it is durable.
    pub(super) fn append(&mut self, number: u64, frame: &mut Frame) -> io::Result<SegmentPlace> {
        let place = SegmentPlace { at: self.end, body_len: frame.body().len() as u32 };
        frame.sealed(number, &self.key, |bytes| self.file.write_at(bytes, self.end))?;
        self.file.sync()?;
        self.end += frame_bytes(frame.body().len());
        Ok(place)
    }

    /// Reads a frame's body again. None if the bytes have changed.
    pub(super) fn read(&self, number: u64, place: SegmentPlace) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; FRAME_HEADER + place.body_len as usize];
        self.file.read_at(&mut bytes, place.at)?;
        Ok(match open_frame(&bytes, number, &self.key) {
            Some(body) => Some(body.to_vec()),
            None => self.repair(&bytes, place.at, number)?,
        })
    }

    /// Repairs the frame at the front of `bytes`, and at `at` in the file, if no more than one bit
    /// of it has flipped. Returns its body.
    fn repair(&self, bytes: &[u8], at: u64, number: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(sound) = repaired_frame(bytes, number, &self.key) else { return Ok(None) };
        tracing::warn!(frame = number, "a bit had flipped in the log, and is put right");
        self.file.write_at(&sound, at)?;
        Ok(sound.get(FRAME_HEADER..).map(<[u8]>::to_vec))
    }

    /// Rereads all frames up to [`Segment::end`], from `number` on, from the disk. Returns the
    /// offset of a damaged one, if there is one.
    pub(super) fn reread(&self, mut number: u64) -> io::Result<Option<u64>> {
        self.file.forget(self.end)?;
        let mut bytes = vec![0; self.end as usize];
        self.file.read_at(&mut bytes, 0)?;
        let mut at = ALIGNMENT as usize;
        if bytes.first_chunk().is_none_or(|header| !is_header(header) && repaired_header(*header).is_none()) {
            return Ok(Some(0));
        }
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let body_len = match open_frame(rest, number, &self.key) {
                Some(body) => body.len(),
                None => match self.repair(rest, at as u64, number)? {
                    Some(body) => body.len(),
                    None => return Ok(Some(at as u64)),
                },
            };
            at += frame_bytes(body_len) as usize;
            number += 1;
        }
        Ok(None)
    }

    /// Reads all frames from `number` on, and sets [`Segment::end`] behind them.
    ///
    /// After the last frame comes nothing, or a frame whose write the end of the machine
    /// interrupted. But a frame is written only when all before it are durable. So if a later frame
    /// is there, the unreadable one was durable once. That is damage, and must not be taken for the
    /// log's end.
    pub(super) fn scan(&mut self, mut number: u64) -> io::Result<Scan> {
        let mut bytes = vec![0; self.bytes as usize];
        self.file.read_at(&mut bytes, 0)?;
        let mut scan = Scan { frames: Vec::new(), damaged_at: None };
        let mut at = ALIGNMENT as usize;
        while let Some(rest) = bytes.get(at..) {
            let body = match open_frame(rest, number, &self.key) {
                Some(body) => body.to_vec(),
                None => match self.repair(rest, at as u64, number)? {
                    Some(body) => body,
                    None => break,
                },
            };
            let place = SegmentPlace { at: at as u64, body_len: body.len() as u32 };
            at += frame_bytes(body.len()) as usize;
            number += 1;
            scan.frames.push((place, body));
        }
        self.end = at as u64;
        // The segment has no room for more frames than that.
        let later = number + 1..=number + bytes.len() as u64 / ALIGNMENT;
        let is_later = |rest: &[u8]| {
            frame_number(rest)
                .is_some_and(|found| later.contains(&found) && open_frame(rest, found, &self.key).is_some())
        };
        if (at..bytes.len()).step_by(ALIGNMENT as usize).filter_map(|at| bytes.get(at..)).any(is_later) {
            scan.damaged_at = Some(self.end);
        }
        Ok(scan)
    }
}

/// A frame to be written: room for its header, and the body so far. It may also be empty.
#[derive(Default)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// Appends `record`, which takes about `bytes` bytes.
    pub(super) fn with(mut self, record: &impl Serialize, bytes: usize) -> Result<Frame, postcard::Error> {
        self.0.reserve(FRAME_HEADER + bytes + ALIGNMENT as usize);
        self.begin();
        Ok(Frame(postcard::to_extend(record, self.0)?))
    }

    /// Appends `body`.
    pub(super) fn extend(&mut self, body: &[u8]) {
        self.begin();
        self.0.extend_from_slice(body);
    }

    /// Returns an empty frame in the same memory, of which it keeps at most `bytes_max` bytes.
    pub(super) fn again(mut self, bytes_max: usize) -> Frame {
        self.0.clear();
        self.0.shrink_to(bytes_max);
        self
    }

    pub(super) fn body(&self) -> &[u8] {
        self.0.get(FRAME_HEADER..).unwrap_or_default()
    }

    fn begin(&mut self) {
        self.0.resize(self.0.len().max(FRAME_HEADER), 0);
    }

    /// Passes the frame to `write` in its form in a segment. It copies nothing, and adds nothing
    /// for good.
    fn sealed<T>(&mut self, number: u64, key: &SegmentKey, write: impl FnOnce(&[u8]) -> T) -> T {
        self.begin();
        let body_len = self.body().len();
        let bytes = &mut self.0;
        let checksum = checksum(number, &bytes[FRAME_HEADER..], key);
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&(body_len as u32).to_le_bytes());
        let located = locator(&bytes[FRAME_HEADER..]).to_le_bytes();
        bytes[12..16].copy_from_slice(&located);
        bytes[16..FRAME_HEADER].copy_from_slice(&checksum);
        bytes.resize(frame_bytes(body_len) as usize, 0);
        let written = write(bytes);
        bytes.truncate(FRAME_HEADER + body_len);
        written
    }
}

fn frame_bytes(body_len: usize) -> u64 {
    ((FRAME_HEADER + body_len) as u64).next_multiple_of(ALIGNMENT)
}

fn frame_number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|number| u64::from_le_bytes(*number))
}

/// Returns the body of frame `number` at the front of `bytes`, if it is there and whole.
fn open_frame<'a>(bytes: &'a [u8], number: u64, key: &SegmentKey) -> Option<&'a [u8]> {
    let (header, rest) = bytes.split_at_checked(FRAME_HEADER)?;
    if frame_number(header)? != number {
        return None;
    }
    let body_len = u32::from_le_bytes(*header.get(8..)?.first_chunk()?) as usize;
    let body = rest.get(..body_len)?;
    (header.get(16..)? == checksum(number, body, key)).then_some(body)
}

/// Returns frame `number` as it was written, if one bit of the front of `bytes` has flipped since.
fn repaired_frame(bytes: &[u8], number: u64, key: &SegmentKey) -> Option<Vec<u8>> {
    if (frame_number(bytes)? ^ number).count_ones() > 1 {
        return None;
    }
    let header = bytes.first_chunk::<FRAME_HEADER>()?;
    let length = u32::from_le_bytes(*header.get(8..)?.first_chunk()?);
    let lengths = std::iter::once(length).chain((0..u32::BITS).map(|bit| length ^ 1 << bit));
    let mut sound = lengths.filter_map(|length| {
        let body = bytes.get(FRAME_HEADER..)?.get(..length as usize)?;
        let differ =
            checksum(number, body, key).into_iter().zip(header.get(16..)?).map(|(a, b)| (a ^ b).count_ones());
        // The bit is in the header, which belongs to this body.
        (differ.sum::<u32>() <= 1).then(|| body.to_vec())
    });
    let in_body = || {
        let mut body = bytes.get(FRAME_HEADER..)?.get(..length as usize)?.to_vec();
        flip_back(&mut body, u32::from_le_bytes(*header.get(12..)?.first_chunk()?));
        (*header.get(16..)? == checksum(number, &body, key)).then_some(body)
    };
    let body = sound.next().or_else(in_body)?;
    let mut frame = Frame::default();
    frame.extend(&body);
    Some(frame.sealed(number, key, |sound| sound[..FRAME_HEADER + body.len()].to_vec()))
}

fn header_checksum(header: &[u8]) -> [u8; 16] {
    let mut checksum = [0; 16];
    crypto::Hasher::new().update(header).finalize_xof().fill(&mut checksum);
    checksum
}

fn is_header(header: &[u8; ALIGNMENT as usize]) -> bool {
    let (known, checksum) = header.split_at(MAGIC.len() + size_of::<SegmentKey>());
    checksum == header_checksum(known)
}

/// A header as it was written, if one bit of it has flipped since.
fn repaired_header(header: [u8; ALIGNMENT as usize]) -> Option<[u8; ALIGNMENT as usize]> {
    (0..header.len() * 8).find_map(|bit| {
        let mut sound = header;
        *sound.get_mut(bit / 8)? ^= 1 << (bit % 8);
        is_header(&sound).then_some(sound)
    })
}

fn checksum(number: u64, body: &[u8], key: &SegmentKey) -> [u8; 16] {
    let mut hasher = crypto::Hasher::new_keyed(key);
    hasher.update(&number.to_le_bytes()).update(body);
    let mut checksum = [0; 16];
    hasher.finalize_xof().fill(&mut checksum);
    checksum
}
