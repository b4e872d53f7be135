//! Numbers that the server sets aside in blocks: inode numbers, and integers of directories.

use std::ops::Range;

/// A block of numbers in use, and the next one.
#[derive(Debug, Default)]
pub(crate) struct NumberBlocks {
    current: Range<u64>,
    next: Range<u64>,
    /// A further block is on its way.
    pub is_reserving: bool,
}

impl NumberBlocks {
    /// Begins with this block.
    pub fn new(current: Range<u64>) -> NumberBlocks {
        NumberBlocks { current, ..NumberBlocks::default() }
    }

    /// The next number, if one is at hand. [`NumberBlocks::take`] uses it up.
    pub fn first(&self) -> Option<u64> {
        (self.left() > 0).then_some(self.current.start)
    }

    /// Uses up the next number.
    pub fn take(&mut self) {
        self.current.start += 1;
        if self.left() == 0 && self.has_next() {
            self.current = std::mem::take(&mut self.next);
        }
    }

    /// Adds a block from the server. A block that came before is a repetition.
    pub fn add(&mut self, block: Range<u64>) {
        if block.start < self.end() {
            return;
        }
        if self.left() == 0 {
            self.current = block;
        } else {
            self.next = block;
        }
    }

    /// The end of the last block that came.
    pub fn end(&self) -> u64 {
        self.current.end.max(self.next.end)
    }

    /// The numbers left in the block in use.
    pub fn left(&self) -> u64 {
        self.current.end.saturating_sub(self.current.start)
    }

    /// Whether a next block is at hand.
    pub fn has_next(&self) -> bool {
        !self.next.is_empty()
    }

    /// The ranges of numbers at hand.
    pub fn at_hand(&self) -> [(u64, u64); 2] {
        [(self.current.start, self.current.end), (self.next.start, self.next.end)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(blocks: &mut NumberBlocks) -> Vec<u64> {
        std::iter::from_fn(|| blocks.first().inspect(|_| blocks.take())).collect()
    }

    #[test]
    fn each_number_is_used_once_however_often_its_block_comes() {
        let mut blocks = NumberBlocks::new(1..4);
        blocks.add(1..4);
        blocks.add(7..9);
        blocks.add(7..9);
        assert!(blocks.has_next() && blocks.left() == 3 && blocks.end() == 9);
        assert_eq!(all(&mut blocks), [1, 2, 3, 7, 8]);
        blocks.add(7..9);
        assert_eq!((blocks.first(), blocks.end()), (None, 9));
        blocks.add(9..10);
        assert_eq!(all(&mut blocks), [9]);
    }

    #[test]
    fn a_refusal_brings_no_number() {
        let mut blocks = NumberBlocks::default();
        blocks.add(0..0);
        assert_eq!((blocks.first(), blocks.end()), (None, 0));
        blocks.add(5..6);
        blocks.add(0..0);
        assert_eq!(all(&mut blocks), [5]);
    }
}
