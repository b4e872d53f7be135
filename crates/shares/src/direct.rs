//! Direct reads: a file as the device has it, past the page cache. A cached copy would hide damage
//! on the device, and the cache has better uses than scrubbed data.

use std::{fs::File, io};

use memmap2::{Advice, MmapMut};
use rustix::{
    fs::{self, OFlags, fadvise, fcntl_setfl},
    io::{Errno, pread},
};

/// The most bytes of a read, and the size of a huge page. A share of the usual size is one read.
const PIECE: usize = 2 << 20;

/// A read buffer. One reader uses it at a time and it is kept for the next, since clearing a huge
/// page takes half as long as reading into it.
#[derive(Debug)]
pub(crate) struct Piece(MmapMut);

impl Piece {
    pub fn new() -> io::Result<Piece> {
        // A huge page begins somewhere in twice its size. The rest is never touched and takes no
        // memory.
        let memory = MmapMut::map_anon(2 * PIECE)?;
        // A contiguous buffer is one segment of a request to the device. In 4 KiB pages it is
        // hundreds, and a virtual disk then had a third of the rate. This is only advice.
        let _ = memory.advise(Advice::HugePage);
        Ok(Piece(memory))
    }

    fn room(&mut self) -> &mut [u8] {
        let begin = self.0.as_ptr().align_offset(PIECE);
        &mut self.0[begin..begin + PIECE]
    }

    /// Shows `take` all of a file, in order. The open file is unfit for other reads afterwards.
    pub fn read_through(&mut self, file: &File, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        // Later readers must see what this reader sees.
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
                    take(&room[..read]);
                }
                Err(Errno::INTR) => {}
                // The file system accepts the flag but not the read, or the last read ended at an
                // unaligned place. The read goes through memory then.
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

    /// Reads on disk, and on a file system in memory, which may lack direct reads.
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
