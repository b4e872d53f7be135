//! Room for one request and its answer.

use memmap2::{Advice, MmapMut};
use std::io;

/// `FUSE_URING_IN_OUT_HEADER_SZ` and `FUSE_URING_OP_IN_OUT_SZ`, linux/fuse.h.
const PART_BYTES: usize = 128;
/// `struct fuse_uring_req_header`: a header, the operation's part of fixed size, and
/// `struct fuse_uring_ent_in_out`.
pub(crate) const HEADER_BYTES: usize = 2 * PART_BYTES + 32;
/// Of `fuse_uring_ent_in_out`: flags u64, commit_id u64, payload_sz u32.
const COMMIT_ID: usize = 2 * PART_BYTES + 8;
const PAYLOAD_BYTES: usize = 2 * PART_BYTES + 16;
/// `struct fuse_out_header`: len u32, error i32, unique u64.
const OUT_HEADER_BYTES: usize = 16;

/// A slot of a ring, in which the kernel puts a request and then looks for the answer. Memory that
/// is never touched takes no room.
pub struct Slot {
    /// The kernel's queue to which the slot belongs.
    pub(crate) queue: u16,
    /// The header, and from `HEADER_ROOM` on names and content.
    memory: MmapMut,
    /// Called once the kernel has the answer.
    pub(crate) after: Option<After>,
}

/// A function that [`Slot::answer`] has called once the kernel has the answer.
pub type After = Box<dyn FnOnce() + Send>;

/// Bytes before names and content: a page of its own, so that content is aligned.
const HEADER_ROOM: usize = 4096;

impl Slot {
    pub(crate) fn new(queue: u16, payload_bytes: usize) -> io::Result<Slot> {
        let memory = MmapMut::map_anon(HEADER_ROOM + payload_bytes)?;
        // Trap: where the kernel gives huge pages to all memory (Debian's does), a slot of which
        // one page is used would take a whole huge page. A kernel without huge pages does not know
        // this advice.
        let _ = memory.advise(Advice::NoHugePage);
        Ok(Slot { queue, memory, after: None })
    }

    /// The places for the kernel to fill: the header, and names and content.
    pub(crate) fn iovecs(&mut self) -> [libc::iovec; 2] {
        let (header, payload) = self.memory.split_at_mut(HEADER_ROOM);
        [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: HEADER_BYTES },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
        ]
    }

    /// The processor on which the request was made, and so its queue.
    pub fn queue(&self) -> u32 {
        u32::from(self.queue)
    }

    /// `struct fuse_in_header`, and unused bytes behind it.
    pub fn header(&self) -> &[u8] {
        &self.memory[..PART_BYTES]
    }

    /// The operation's part of fixed size.
    pub fn fixed(&self) -> &[u8] {
        &self.memory[PART_BYTES..2 * PART_BYTES]
    }

    /// The operation's names and content.
    pub fn payload(&self) -> &[u8] {
        let bytes = self
            .memory
            .get(PAYLOAD_BYTES..)
            .and_then(|at| at.first_chunk())
            .map_or(0, |at| u32::from_ne_bytes(*at));
        let room = &self.memory[HEADER_ROOM..];
        &room[..room.len().min(bytes as usize)]
    }

    /// The kernel's number for the request.
    pub(crate) fn commit_id(&self) -> u64 {
        self.memory.get(COMMIT_ID..).and_then(|at| at.first_chunk()).map_or(0, |at| u64::from_ne_bytes(*at))
    }

    /// Writes the answer to request `unique`: `error`, negative or 0, and `parts`, one after the
    /// other. A part that does not fit is left out with all that follow, and the kernel finds the
    /// answer too short.
    ///
    /// `after` is called once the kernel has taken the answer, which is later than this call.
    pub fn answer(&mut self, unique: u64, error: i32, parts: &[&[u8]], after: Option<After>) {
        self.after = after;
        let mut room = &mut self.memory[HEADER_ROOM..];
        let mut bytes = 0;
        for part in parts {
            let Some((to, rest)) = std::mem::take(&mut room).split_at_mut_checked(part.len()) else { break };
            to.copy_from_slice(part);
            bytes += part.len();
            room = rest;
        }
        let bytes = bytes as u32;
        self.memory[..4].copy_from_slice(&(bytes + OUT_HEADER_BYTES as u32).to_ne_bytes());
        self.memory[4..8].copy_from_slice(&error.to_ne_bytes());
        self.memory[8..16].copy_from_slice(&unique.to_ne_bytes());
        self.memory[PAYLOAD_BYTES..PAYLOAD_BYTES + 4].copy_from_slice(&bytes.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_where_the_kernel_looks_for_it() {
        let mut slot = Slot::new(0, 8192).unwrap();
        slot.memory[COMMIT_ID..COMMIT_ID + 8].copy_from_slice(&77u64.to_ne_bytes());
        slot.answer(5, 0, &[b"ab", b"", b"cde"], None);
        assert_eq!((slot.payload(), slot.commit_id()), (&b"abcde"[..], 77));
        assert_eq!(slot.header()[..4], 21u32.to_ne_bytes());
        slot.answer(6, -2, &[], None);
        assert_eq!((slot.payload().len(), &slot.header()[4..8]), (0, &(-2i32).to_ne_bytes()[..]));
        // More than fits, and a length that the kernel would never write.
        slot.answer(7, 0, &[&[1; 8192], &[2]], None);
        assert_eq!(slot.payload(), [1; 8192]);
        slot.memory[PAYLOAD_BYTES..PAYLOAD_BYTES + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(slot.payload().len(), 8192);
    }
}
