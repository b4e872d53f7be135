//! The log of one group in memory: its vote, and where its entries are.

use super::recent::Recent;
use super::segment::SegmentPlace;
use crate::starts::Starts;
use crate::types::{GroupEntry, LogId, Vote};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// A change of one group's log.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LogChange {
    Vote(Vote),
    Append(GroupEntry),
    /// Removes the entries after this one.
    Truncate(Option<LogId>),
    /// Removes the entries up to this one.
    Purge(LogId),
    /// The known starts of members.
    Starts(Starts),
    /// All entries, copied forward from older segments.
    Copied(Vec<GroupEntry>),
}

impl LogChange {
    /// Returns the entry at `index`, if it is in this change.
    pub(super) fn entry(self, index: u64) -> Option<GroupEntry> {
        match self {
            LogChange::Append(entry) => Some(entry).filter(|entry| entry.log_id.index == index),
            LogChange::Copied(entries) => entries.into_iter().find(|entry| entry.log_id.index == index),
            _ => None,
        }
    }
}

/// A durable change, as the index notes it.
#[derive(Debug)]
pub(super) enum Noted {
    Vote(Vote),
    Append(LogId, u32),
    Truncate(Option<LogId>),
    Purge(LogId),
    Starts,
    Copied(Vec<(LogId, u32)>),
}

/// A group's log when a segment was begun.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SegmentStart {
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
    pub(super) starts: Starts,
}

/// The place of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) log_id: LogId,
    /// About its size in bytes.
    pub(super) bytes: u32,
    pub(super) at: FramePlace,
}

/// The place of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramePlace {
    /// The first frame of its segment.
    pub(super) segment: u64,
    pub(super) frame: u64,
    pub(super) place: SegmentPlace,
}

/// The log of one group.
#[derive(Default)]
pub(super) struct GroupIndex {
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) starts: Arc<Mutex<Starts>>,
    pub(super) recent: Arc<Mutex<Recent>>,
    /// Durable entries.
    pub(super) spots: VecDeque<Spot>,
    /// Entries that are not durable yet. They follow those of `spots`.
    pub(super) waiting: VecDeque<LogId>,
    /// The batch of the log for which it has last put something.
    pub(super) put_in: u64,
    /// Used while opening: entries below this index were in segments that are gone. They must turn
    /// out to be purged.
    gone_below: u64,
}

impl GroupIndex {
    /// Returns the last entry, or the last purged one if there is none.
    pub(super) fn last(&self) -> Option<LogId> {
        self.waiting.back().copied().or_else(|| self.durable())
    }

    /// Returns the last durable entry, or the last purged one if there is none.
    pub(super) fn durable(&self) -> Option<LogId> {
        self.spots.back().map(|spot| spot.log_id).or(self.purged)
    }

    /// Returns the indices of the entries.
    pub(super) fn indices(&self) -> std::ops::Range<u64> {
        let first = self.spots.front().map(|spot| spot.log_id).or(self.waiting.front().copied());
        let first = first.map_or(0, |log_id| log_id.index);
        first..first + (self.spots.len() + self.waiting.len()) as u64
    }

    /// Returns the place of a durable entry.
    pub(super) fn spot(&self, index: u64) -> Option<Spot> {
        let first = self.spots.front()?.log_id.index;
        self.spots.get(index.checked_sub(first)? as usize).copied()
    }

    /// Returns the first segment that has an entry.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.spots.front().map(|spot| spot.at.segment)
    }

    /// Returns the state that a new segment begins with.
    pub(super) fn begun(&self) -> SegmentStart {
        let starts = self.starts.lock().clone();
        SegmentStart { vote: self.vote, purged: self.purged, last: self.durable(), starts }
    }

    /// Takes over the state with which a segment begins. `is_oldest`: there is no older segment.
    pub(super) fn begins(&mut self, begun: SegmentStart, is_oldest: bool) {
        self.vote = begun.vote;
        *self.starts.lock() = begun.starts;
        begun.purged.into_iter().for_each(|upto| self.forget_upto(upto));
        if is_oldest {
            self.gone_below = next_index(begun.last);
        }
    }

    /// Forgets the entries of segments that turn out to be out of service.
    pub(super) fn loses_segments(&mut self) {
        self.spots.clear();
        self.gone_below = 0;
    }

    /// Returns whether entries are gone that were not purged.
    pub(super) fn lacks_entries(&self) -> bool {
        self.gone_below > next_index(self.purged)
    }

    /// Applies a change from the disk while the log is opened.
    pub(super) fn redo(&mut self, change: LogChange, bytes: u32, at: FramePlace) -> Result<(), &'static str> {
        let noted = match change {
            LogChange::Vote(vote) => Noted::Vote(vote),
            LogChange::Append(entry) => {
                // In the oldest segment the purge mark may be behind. Later purges were in segments
                // that are gone.
                if entry.log_id.index != next_index(self.last()).max(self.gone_below) {
                    return Err("entries are missing");
                }
                Noted::Append(entry.log_id, bytes)
            }
            LogChange::Truncate(keep) => {
                self.gone_below = self.gone_below.min(next_index(keep));
                Noted::Truncate(keep)
            }
            LogChange::Purge(upto) => Noted::Purge(upto),
            LogChange::Starts(starts) => {
                *self.starts.lock() = starts;
                Noted::Starts
            }
            LogChange::Copied(entries) => {
                self.gone_below = 0;
                let each = bytes / entries.len().max(1) as u32;
                Noted::Copied(entries.into_iter().map(|entry| (entry.log_id, each)).collect())
            }
        };
        self.note(noted, at);
        Ok(())
    }

    /// Notes a durable change.
    pub(super) fn note(&mut self, noted: Noted, at: FramePlace) {
        match noted {
            Noted::Vote(vote) => self.vote = Some(vote),
            Noted::Append(log_id, bytes) => {
                self.waiting.pop_front();
                self.spots.push_back(Spot { log_id, bytes, at });
            }
            Noted::Truncate(keep) => {
                let end = next_index(keep);
                while self.spots.back().is_some_and(|spot| spot.log_id.index >= end) {
                    self.spots.pop_back();
                }
                self.recent.lock().forget_from(end);
            }
            Noted::Purge(upto) => self.forget_upto(upto),
            Noted::Starts => {}
            Noted::Copied(entries) => {
                self.spots = entries.into_iter().map(|(log_id, bytes)| Spot { log_id, bytes, at }).collect();
            }
        }
    }

    fn forget_upto(&mut self, upto: LogId) {
        while self.spots.front().is_some_and(|spot| spot.log_id.index <= upto.index) {
            self.spots.pop_front();
        }
        self.recent.lock().forget_before(upto.index + 1);
        self.purged = self.purged.max(Some(upto));
    }
}

fn next_index(log_id: Option<LogId>) -> u64 {
    log_id.map_or(0, |log_id| log_id.index + 1)
}
