//! A file read as the device has it: past the page cache, which keeps a copy that hides what the
//! device has made of it, and has better things to keep than what nobody asked for.

use std::{fs::File, io};

use memmap2::{Advice, MmapMut};
use rustix::{
    fs::{self, OFlags, fadvise, fcntl_setfl},
    io::{Errno, pread},
};

/// Bytes of a read at most, and of a huge page: a share of the usual size is one read.
const PIECE: usize = 2 << 20;

/// What is read into: each in use by one reader at a time, and kept for the next, since clearing a
/// huge page takes half as long as reading into it.
#[derive(Debug)]
pub(crate) struct Piece(MmapMut);

impl Piece {
    pub fn new() -> io::Result<Piece> {
        // Somewhere in twice as much begins a huge page; the rest is never touched, so it is none.
        let memory = MmapMut::map_anon(2 * PIECE)?;
        // What lies in one place is one segment of a request to the device, and in 4 KiB pages
        // hundreds, with which a virtual disk had a third of the rate. Only advice.
        let _ = memory.advise(Advice::HugePage);
        Ok(Piece(memory))
    }

    fn room(&mut self) -> &mut [u8] {
        let begin = self.0.as_ptr().align_offset(PIECE);
        self.0.get_mut(begin..begin.saturating_add(PIECE)).unwrap_or_default()
    }

    /// Shows `take` all of a file, in order. The open file is of no use for other reads then.
    pub fn read_through(&mut self, file: &File, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        // Readers are to see what is seen here.
        let _ = fadvise(file, 0, None, fs::Advice::DontNeed);
        let mut is_direct = fcntl_setfl(file, OFlags::DIRECT).is_ok();
        let length = file.metadata()?.len();
        let room = self.room();
        let mut at = 0;
        while at < length {
            match pread(file, &mut *room, at) {
                Ok(0) => break,
                Ok(read) => {
                    at += read as u64;
                    take(room.get(..read).unwrap_or_default());
                }
                Err(Errno::INTR) => {}
                // The file system takes the flag and not the read, or the last one broke off at an
                // odd place: through memory, then.
                Err(Errno::INVAL) if is_direct => {
                    is_direct = false;
                    fcntl_setfl(file, OFlags::empty())?;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// On disk, and on a file system in memory, which may know no direct reads.
    #[test]
    fn all_of_a_file_is_shown_in_order_whatever_its_length() {
        let mut piece = Piece::new().unwrap();
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            for length in [0, 1, 72, 4095, 4096, 4097, PIECE, PIECE + 72, 2 * PIECE + 5000] {
                let mut file = tempfile::tempfile_in(&dir).unwrap();
                let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
                file.write_all(&bytes).unwrap();
                let mut shown = Vec::new();
                piece.read_through(&file, &mut |some| shown.extend_from_slice(some)).unwrap();
                assert!(shown == bytes, "{length} bytes in {dir:?}");
            }
        }
    }
}
