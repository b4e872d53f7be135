//! The numbers that a client may use for its next messages (MS-SMB2 §3.3.1.1).

use std::collections::BTreeSet;

/// The window of message numbers. Each is used once.
///
/// Its memory grows with the most credits that it grants: the window is at most four times as wide,
/// so that a client that leaves numbers out gets no more until it uses them.
#[derive(Debug)]
pub struct Window {
    /// Below it, all are used.
    low: u64,
    /// At and above it, none is granted.
    high: u64,
    /// The ones between that are used.
    used: BTreeSet<u64>,
}

impl Default for Window {
    fn default() -> Window {
        Window { low: 0, high: 1, used: BTreeSet::new() }
    }
}

impl Window {
    /// Uses the numbers of a request. Returns false if the client may not: the connection ends
    /// then.
    pub fn consume(&mut self, message_id: u64, charge: u16) -> bool {
        let count = u64::from(charge.max(1));
        let Some(end) = message_id.checked_add(count) else { return false };
        if message_id < self.low || end > self.high {
            return false;
        }
        let is_new = (message_id..end).all(|id| self.used.insert(id));
        while self.used.remove(&self.low) {
            self.low += 1;
        }
        is_new
    }

    /// Grants credits for an answer: what is asked for, as far as the client may have up to `most`.
    /// It always keeps one.
    pub fn grant(&mut self, asked: u16, most: u64) -> u16 {
        let unused = self.high - self.low - self.used.len() as u64;
        let room = most.saturating_sub(unused);
        let spread = (4 * most).saturating_sub(self.high - self.low);
        let granted = u64::from(asked.max(1)).min(room).min(spread);
        self.high += granted;
        granted as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_is_used_once() {
        let mut window = Window::default();
        assert!(window.consume(0, 1));
        assert!(!window.consume(0, 1) && !window.consume(1, 1));
        assert_eq!(window.grant(10, 512), 10);
        assert!(
            window.consume(3, 4) && !window.consume(6, 1) && window.consume(1, 2) && !window.consume(10, 2)
        );
        assert!(window.consume(10, 1));
        assert!(!window.consume(u64::MAX, 2));
    }

    proptest! {
        #[test]
        fn a_client_has_at_most_the_credits_that_there_are(steps in proptest::collection::vec(any::<(u8, u16)>(), 0..2000)) {
            let mut window = Window::default();
            for (offset, asked) in steps {
                window.consume(window.low + u64::from(offset), 1);
                window.grant(asked, 512);
                prop_assert!(window.high - window.low - window.used.len() as u64 <= 512);
                prop_assert!(window.used.len() as u64 <= 4 * 512);
            }
        }
    }
}
