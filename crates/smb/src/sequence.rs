//! The order of a client's requests over several channels (MS-SMB2 §3.3.5.2.10).
//!
//! A client that loses a channel counts its ChannelSequence up, and sends again over another
//! channel what was not answered. A change that was on its way over the lost one must not be done
//! afterwards.

use parking_lot::Mutex;
use std::sync::Arc;

/// The requests of an open that are under way.
#[derive(Debug, Default)]
pub(crate) struct ChannelSequence {
    /// The newest ChannelSequence.
    newest: u16,
    /// The number of times that it has moved: the numbers themselves wrap around.
    moves: u64,
    /// The requests with that one.
    current: u32,
    /// The requests with older ones.
    older: u32,
}

/// A request that is under way until this is dropped.
pub(crate) struct UnderwayRequest {
    of: Arc<Mutex<ChannelSequence>>,
    moves: u64,
}

impl ChannelSequence {
    /// Begins a request. Returns none if it comes too late, or repeats a change while one from
    /// before may still be under way.
    pub(crate) fn begin(
        of: &Arc<Mutex<ChannelSequence>>,
        sequence: u16,
        is_replay: bool,
        is_change: bool,
    ) -> Option<Option<UnderwayRequest>> {
        let mut state = of.lock();
        let ahead = sequence.wrapping_sub(state.newest) as i16;
        if ahead < 0 || is_replay && (state.older > 0 || ahead > 0 && state.current > 0) {
            return if is_change { None } else { Some(None) };
        }
        if ahead > 0 {
            state.older += state.current;
            state.current = 0;
            state.newest = sequence;
            state.moves += 1;
        }
        state.current += 1;
        Some(Some(UnderwayRequest { of: of.clone(), moves: state.moves }))
    }
}

impl Drop for UnderwayRequest {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        if state.moves == self.moves {
            state.current -= 1;
        } else {
            state.older -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(of: &Arc<Mutex<ChannelSequence>>, sequence: u16, is_replay: bool) -> Option<UnderwayRequest> {
        ChannelSequence::begin(of, sequence, is_replay, true).flatten()
    }

    #[test]
    fn an_older_change_is_refused_and_an_older_read_is_not() {
        let of = Arc::default();
        assert!(begin(&of, 1, false).is_some());
        assert!(begin(&of, 0, false).is_none());
        assert!(matches!(ChannelSequence::begin(&of, 0, false, false), Some(None)));
        // Half of the numbers are older, around the end too.
        assert!(begin(&of, 0x8000, false).is_some() && begin(&of, 0xffff, false).is_some());
        assert!(begin(&of, 3, false).is_some() && begin(&of, 0xffff, false).is_none());
    }

    #[test]
    fn a_request_from_a_round_ago_is_an_older_one() {
        let of = Arc::default();
        let first = begin(&of, 0, false);
        for sequence in [30_000, 60_000, 0] {
            assert!(begin(&of, sequence, false).is_some());
        }
        assert!(begin(&of, 0, true).is_none());
        drop(first);
        assert!(begin(&of, 0, true).is_some());
    }

    #[test]
    fn a_change_is_not_repeated_while_one_from_before_is_under_way() {
        let of = Arc::default();
        let first = begin(&of, 0, false);
        assert!(first.is_some());
        assert!(begin(&of, 1, true).is_none());
        let second = begin(&of, 1, false);
        assert!(second.is_some() && begin(&of, 1, true).is_none());
        drop(first);
        assert!(begin(&of, 1, true).is_some());
        drop(second);
        assert!(begin(&of, 2, true).is_some());
        let state = of.lock();
        assert_eq!((state.current, state.older), (0, 0));
    }
}
