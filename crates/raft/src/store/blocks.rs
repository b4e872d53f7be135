//! The file under redb: blocks of 4 KiB, each with a sum that is checked at every read.
//!
//! redb has checksums of its own, and looks at them only for repairs. So a flipped bit in a leaf
//! would be a wrong value, and one in a branch would hide rows.
//!
//! ```text
//! file   head │ head │ sums │ 256 blocks │ sums │ 256 blocks │ …
//! head   sum │ magic 16 bytes │ number u64 │ redb's first 320 bytes │ zeros up to 4 KiB
//! sums   the sum of each of the blocks behind it
//! sum    12 bytes of an XXH3 keyed with the block's number
//!        │ locator u32: where a bit has flipped (see `bit_repair`)
//! ```
//!
//! *A power cut.* Between two syncs redb writes only where the last commit refers to nothing,
//! except to its own first bytes. If a block or its sum is lost, the two do not match, but no
//! reader asks for that block. The first bytes are kept twice. The durable copy stays as it is
//! until the other one is durable, and an open takes the later copy that is whole. To redb that is
//! a lost write.
//!
//! *A full disk.* redb takes no write after an error, so a checkpoint's writes wait until there is
//! room ([`Blocks::wait_for_room`]). No reader waits with them: redb's readers take no lock that it
//! holds while it writes.

use crate::bit_repair::{flip_back, locator};
use parking_lot::Mutex;
use redb::StorageBackend;
use rustix::fs::{Advice, fadvise};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use twox_hash::XxHash3_128;

pub(super) const BLOCK: usize = 4096;
const BLOCK_BYTES: u64 = BLOCK as u64;
/// The part that redb writes over in place: its header.
const HEAD: usize = 320;
const MAGIC: &[u8; 16] = b"leasehold rows 1";
/// Blocks whose sums are stored together: as many as fill a block.
const GROUP: u64 = BLOCK_BYTES / SUM as u64;
const SUM: usize = 16;
const HASH: usize = 12;
/// The time between two looks for room on a full disk.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Offset of the first group.
const GROUPS_AT: u64 = 2 * BLOCK_BYTES;

/// The bytes read are not the bytes written, and differ in more than a single bit.
#[derive(Debug, thiserror::Error)]
#[error("what stands at byte {at} is not what was written there")]
pub(super) struct Changed {
    at: u64,
}

/// The file is not of this version.
#[derive(Debug, thiserror::Error)]
#[error("it is none of this version's")]
struct Foreign;

/// The file under redb, which redb sees without heads and sums.
#[derive(Clone, Debug)]
pub(super) struct Blocks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Box<dyn StorageBackend>,
    /// The same file, for operations that redb's handle lacks. Tests have none.
    disk: Option<File>,
    head: Mutex<Head>,
    repaired: AtomicU64,
    /// Whether a write waits for room. Otherwise the opener of the file gets the error.
    waits: AtomicBool,
    /// Whether a write waits.
    full: AtomicBool,
}

/// redb's first bytes.
#[derive(Clone, Debug)]
struct Head {
    bytes: [u8; HEAD],
    /// The copy that they are in.
    copy: u64,
    /// Counts the writes.
    number: u64,
    /// Whether it is not durable. The other copy is.
    unsynced: bool,
}

impl Blocks {
    /// Opens `file`, which is empty or was written in this form.
    pub(super) fn open(file: impl StorageBackend, disk: Option<File>) -> io::Result<Blocks> {
        let repaired = AtomicU64::new(0);
        let empty = Head { bytes: [0; HEAD], copy: 0, number: 0, unsynced: true };
        let head = if file.len()? == 0 { empty } else { read_head(&file, &repaired)? };
        let (waits, full) = Default::default();
        Ok(Blocks(Arc::new(Inner {
            file: Box::new(file),
            disk,
            head: Mutex::new(head),
            repaired,
            waits,
            full,
        })))
    }

    /// Returns the file as an open after a crash now would find it. Writes to it stay in memory,
    /// and reads go to the file.
    pub(super) fn as_of_now(&self) -> io::Result<Snapshot> {
        let head = self.0.head.lock();
        let len = AtomicU64::new(self.len()?);
        Ok(Snapshot { blocks: self.clone(), head: Mutex::new(head.bytes), len, written: Mutex::default() })
    }

    /// Sets whether writes to a full disk wait for room, or fail.
    pub(super) fn wait_for_room(&self, wait: bool) {
        self.0.waits.store(wait, Relaxed);
    }

    /// Returns whether a write waits.
    pub(super) fn is_full(&self) -> bool {
        self.0.full.load(Relaxed)
    }

    /// Writes to the file, and repeats that as long as there is no room. A write that failed in
    /// part touches nothing that the last commit refers to.
    fn write_file(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        loop {
            let written = self.0.file.write(at, bytes);
            let full = matches!(&written, Err(error) if lacks_room(error)) && self.0.waits.load(Relaxed);
            if self.0.full.swap(full, Relaxed) != full {
                match full {
                    true => tracing::error!("the disk is full: the server's rows wait for room"),
                    false => tracing::warn!("the server's rows wait for room no longer"),
                }
            }
            if !full {
                return written;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the flipped bits that were found since it was opened, and repaired.
    pub(super) fn repaired(&self) -> u64 {
        self.0.repaired.load(Relaxed)
    }

    /// Reads whole blocks. With `from_disk`, the kernel's cache is dropped first.
    fn read_blocks(&self, offset: u64, out: &mut [u8], from_disk: bool) -> io::Result<()> {
        let mut sums = Vec::new();
        for run in Blocks::runs(offset, out.len())? {
            sums.resize(run.sums, 0);
            if let (Some(disk), true) = (&self.0.disk, from_disk) {
                fadvise(disk, run.sums_at, NonZeroU64::new(run.sums as u64), Advice::DontNeed)?;
                fadvise(disk, run.at, NonZeroU64::new(run.bytes.len() as u64), Advice::DontNeed)?;
            }
            self.0.file.read(run.sums_at, &mut sums)?;
            let bytes = &mut out[run.bytes];
            self.0.file.read(run.at, bytes)?;
            let blocks = bytes.chunks_mut(BLOCK).zip(sums.chunks(SUM));
            for ((block, sum), number) in blocks.zip(run.first..) {
                match check(block, number, sum) {
                    Checked::Sound => {}
                    Checked::Repaired => {
                        tracing::warn!(
                            block = number,
                            "a bit had flipped in the rows' file, and is put right"
                        );
                        self.0.repaired.fetch_add(1, Relaxed);
                        self.write((number + 1) * BLOCK_BYTES, block)?;
                    }
                    Checked::Changed => {
                        let at = run.at + (number - run.first) * BLOCK_BYTES;
                        return Err(io::Error::new(io::ErrorKind::InvalidData, Changed { at }));
                    }
                }
            }
        }
        Ok(())
    }

    /// Splits the bytes from `offset` on into runs of blocks whose sums are together. Each has its
    /// place in the file, that of the sums, and its range of the bytes.
    fn runs(offset: u64, length: usize) -> io::Result<impl Iterator<Item = BlockRun>> {
        if !offset.is_multiple_of(BLOCK_BYTES) || !length.is_multiple_of(BLOCK) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "not whole blocks"));
        }
        let first = offset / BLOCK_BYTES - 1;
        let end = first + (length / BLOCK) as u64;
        let mut next = first;
        Ok(std::iter::from_fn(move || {
            let block = next;
            next = ((block / GROUP + 1) * GROUP).min(end);
            (block < end).then(|| BlockRun::new(block, next, first))
        }))
    }
}

/// A run of [`Blocks::runs`].
struct BlockRun {
    first: u64,
    at: u64,
    sums_at: u64,
    sums: usize,
    bytes: Range<usize>,
}

impl BlockRun {
    fn new(block: u64, end: u64, first: u64) -> BlockRun {
        let group = GROUPS_AT + block / GROUP * (GROUP + 1) * BLOCK_BYTES;
        let within = block % GROUP;
        let byte = |block: u64| (block - first) as usize * BLOCK;
        BlockRun {
            first: block,
            at: group + (1 + within) * BLOCK_BYTES,
            sums_at: group + within * SUM as u64,
            sums: (end - block) as usize * SUM,
            bytes: byte(block)..byte(end),
        }
    }
}

impl StorageBackend for Blocks {
    fn len(&self) -> io::Result<u64> {
        let blocks = self.0.file.len()?.saturating_sub(GROUPS_AT) / BLOCK_BYTES;
        let (groups, rest) = (blocks / (GROUP + 1), blocks % (GROUP + 1));
        let blocks = groups * GROUP + rest.saturating_sub(1);
        Ok(if self.0.file.len()? == 0 { 0 } else { (1 + blocks) * BLOCK_BYTES })
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset < BLOCK_BYTES {
            return copy_head(&self.0.head.lock().bytes, offset, out);
        }
        self.read_blocks(offset, out, false)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset < BLOCK_BYTES {
            let head = &mut *self.0.head.lock();
            let copy = if head.unsynced { head.copy } else { 1 - head.copy };
            let mut bytes = head.bytes;
            overwrite(&mut bytes, offset, data)?;
            *head = Head { bytes, copy, number: head.number + 1, unsynced: true };
            return self.write_file(copy * BLOCK_BYTES, &head.encode());
        }
        for run in Blocks::runs(offset, data.len())? {
            let bytes = &data[run.bytes];
            let blocks = bytes.chunks(BLOCK).zip(run.first..);
            let sums: Vec<u8> = blocks.flat_map(|(block, number)| sum(block, number)).collect();
            self.write_file(run.at, bytes)?;
            self.write_file(run.sums_at, &sums)?;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.len()?;
        let blocks = (len / BLOCK_BYTES).saturating_sub(1);
        self.0.file.set_len(GROUPS_AT + (blocks + blocks.div_ceil(GROUP)) * BLOCK_BYTES)?;
        let left = (GROUP - blocks % GROUP) % GROUP;
        if len < before && left > 0 {
            // If the file gets longer again, these blocks are zeros.
            let run = BlockRun::new(blocks, blocks + left, blocks);
            self.0.file.write(run.sums_at, &vec![0; run.sums])?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut head = self.0.head.lock();
        self.0.file.sync_data()?;
        head.unsynced = false;
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.extend(self.number.to_le_bytes());
        body.extend(self.bytes);
        let mut block = sum(&body, self.copy).to_vec();
        block.append(&mut body);
        block.resize(BLOCK, 0);
        block
    }
}

/// Returns the later copy of those that are whole.
fn read_head(file: &impl StorageBackend, repaired: &AtomicU64) -> io::Result<Head> {
    let mut latest: Option<Head> = None;
    for copy in [0, 1] {
        let mut block = [0; SUM + MAGIC.len() + 8 + HEAD];
        file.read(copy * BLOCK_BYTES, &mut block)?;
        let (sum, body) = block.split_at_mut(SUM);
        match check(body, copy, sum) {
            Checked::Sound if body.iter().all(|byte| *byte == 0) => continue,
            Checked::Sound => {}
            Checked::Repaired => {
                tracing::warn!(copy, "a bit had flipped in the head of the rows' file, and is read right");
                repaired.fetch_add(1, Relaxed);
            }
            Checked::Changed => continue,
        }
        let (magic, body) = body.split_at(MAGIC.len());
        let head = body
            .split_first_chunk::<8>()
            .and_then(|(number, bytes)| Some((u64::from_le_bytes(*number), *bytes.first_chunk::<HEAD>()?)));
        let (number, bytes) = head.filter(|_| magic == MAGIC).ok_or_else(|| io::Error::other(Foreign))?;
        if latest.as_ref().is_none_or(|latest| latest.number < number) {
            latest = Some(Head { bytes, copy, number, unsynced: false });
        }
    }
    latest.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, Changed { at: 0 }))
}

/// Reads from redb's first bytes.
fn copy_head(head: &[u8; HEAD], offset: u64, out: &mut [u8]) -> io::Result<()> {
    let bytes = head.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
    out.copy_from_slice(bytes.ok_or(io::ErrorKind::Unsupported)?);
    Ok(())
}

/// Changes redb's first bytes.
fn overwrite(head: &mut [u8; HEAD], offset: u64, data: &[u8]) -> io::Result<()> {
    let bytes = head.get_mut(offset as usize..).and_then(|bytes| bytes.get_mut(..data.len()));
    bytes.ok_or(io::ErrorKind::Unsupported)?.copy_from_slice(data);
    Ok(())
}

/// Returns whether a write error says that the disk is full.
pub(crate) fn lacks_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

enum Checked {
    Sound,
    /// One bit was wrong, and is repaired.
    Repaired,
    Changed,
}

fn check(block: &mut [u8], number: u64, known: &[u8]) -> Checked {
    let now = sum(block, number);
    let differ =
        |now: &[u8; SUM]| now.iter().zip(known).take(HASH).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    if differ(&now) == 0 {
        return Checked::Sound;
    }
    if differ(&now) == 1 && known.get(HASH..) == now.get(HASH..) {
        return Checked::Repaired;
    }
    let located =
        known.get(HASH..).and_then(|known| known.first_chunk()).map(|known| u32::from_le_bytes(*known));
    flip_back(block, located.unwrap_or_default());
    if differ(&sum(block, number)) == 0 { Checked::Repaired } else { Checked::Changed }
}

/// Returns the sum of a block. The sum of zeros is zeros, as in blocks that were never written.
fn sum(block: &[u8], number: u64) -> [u8; SUM] {
    let mut sum = [0; SUM];
    if block.iter().any(|byte| *byte != 0) {
        let hash = XxHash3_128::oneshot_with_seed(number, block).to_le_bytes();
        let located = locator(block).to_le_bytes();
        let bytes = hash.into_iter().take(HASH).chain(located);
        sum.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }
    sum
}

/// The file of [`Blocks::as_of_now`]. It must not outlive the pages that it refers to, so its
/// holder keeps a read transaction of redb open.
#[derive(Debug)]
pub(super) struct Snapshot {
    blocks: Blocks,
    head: Mutex<[u8; HEAD]>,
    len: AtomicU64,
    written: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl StorageBackend for Snapshot {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len.load(Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset < BLOCK_BYTES {
            return copy_head(&self.head.lock(), offset, out);
        }
        let written = self.written.lock();
        if !written.range(offset..offset + out.len() as u64).any(|_| true) {
            return self.blocks.read_blocks(offset, out, true);
        }
        for (block, at) in out.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
            match written.get(&at) {
                Some(bytes) => block.copy_from_slice(bytes),
                None => self.blocks.read_blocks(at, block, true)?,
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset < BLOCK_BYTES {
            return overwrite(&mut self.head.lock(), offset, data);
        }
        let blocks = data.chunks(BLOCK).zip((offset..).step_by(BLOCK));
        self.written.lock().extend(blocks.map(|(block, at)| (at, block.to_vec())));
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
