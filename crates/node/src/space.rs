//! Free space for content at all servers together, which the leader asks. Disks of different sizes
//! get different weights, so that they fill alike.

use crate::server::Server;
use raft::{Host, Keeping, wait};
use share_hosts::{ELSEWHERE, cluster};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::{MachineId, Space};

/// How often the leader asks the servers.
const SURVEY: Duration = Duration::from_secs(5);
/// How soon the survey sees that the server stops.
const LOOK: Duration = Duration::from_millis(250);
/// The change of free space that is reported to the directory: the free bytes divided by this.
const MATTERS_PART: u64 = 256;
/// That change is at least this, bytes.
const MATTERS_MIN: u64 = 256 << 10;
/// That change is at most this, bytes.
const MATTERS_MAX: u64 = 64 << 20;
/// How much later an unchanged figure is reported too, if the directory counts more as used.
const AGAIN: Duration = Duration::from_secs(2);

/// Decides when a new measurement is reported to the directory.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// The free space of the last report, and when that was.
    last: Option<(u64, Instant)>,
}

impl Measured {
    /// Whether to report `free` bytes, when `used_up` bytes were used since the last report. It is
    /// due if the change matters, or if the use matters and does not explain the change.
    pub(crate) fn is_due(&mut self, now: Instant, free: u64, used_up: u64) -> bool {
        let matters = (free / MATTERS_PART).clamp(MATTERS_MIN, MATTERS_MAX);
        let due = self.last.is_none_or(|(before, at)| {
            before.abs_diff(free) > matters || used_up > matters && now.saturating_duration_since(at) >= AGAIN
        });
        if due {
            self.last = Some((free, now));
        }
        due
    }
}

impl Server {
    /// Asks all servers for their room, and gives them weights by it, until the machine stops.
    pub(crate) fn survey(&self) {
        let mut last = None::<Instant>;
        while !self.is_stopping() {
            std::thread::sleep(LOOK);
            if last.is_some_and(|last| last.elapsed() < SURVEY) || !self.leads_any() {
                continue;
            }
            last = Some(Instant::now());
            let told = self.share_host().spaces(self);
            let mut rooms = self.rooms().lock();
            // A server that does not answer keeps its last figure.
            rooms.retain(|machine, _| told.iter().any(|(known, _)| known == machine));
            rooms.extend(told.into_iter().filter_map(|(machine, space)| Some((machine, space?))));
            let known = rooms.clone();
            drop(rooms);
            if self.group().leads() {
                self.weigh(&known);
            }
        }
    }

    /// Returns the room for users. This machine leads, and has `here`.
    pub(crate) fn room(&self, here: Space) -> Space {
        let hosts = self.share_host().peers().hosts().now();
        let mut rooms = self.rooms().lock().clone();
        // The room here needs no request.
        let mut here = here;
        if let Some(own) = self.share_host().space(self) {
            rooms.insert(self.share_host().peers().me(), own);
            if self.share_host().is_on_disk_of(self.dir()) {
                here = own;
            }
        }
        cluster(&hosts, &rooms, here)
    }

    fn weigh(&self, rooms: &BTreeMap<MachineId, Space>) {
        for member in self.group().standing().members {
            let keeping = member.host.keeping;
            let Some(weight) =
                rooms.get(&MachineId(member.host.machine)).and_then(|room| weighs(keeping, room))
            else {
                continue;
            };
            let host = Host { keeping: Keeping::Weighs(weight), ..member.host };
            tracing::info!(server = host.name, weight, "a server keeps content by its disk's size");
            if let Err(error) = wait(self.group().set_member(member.id, host)) {
                tracing::warn!(%error, "a server could not be given its weight; it is tried again");
            }
        }
    }
}

/// Returns the weight for a server with so much room, if it is to change. A store that does not
/// fill has the average weight.
fn weighs(keeping: Keeping, room: &Space) -> Option<u32> {
    let before = match keeping {
        Keeping::Keeps => None,
        Keeping::Weighs(weight) => Some(weight),
        Keeping::Away | Keeping::Drains => return None,
    };
    if *room == ELSEWHERE {
        return None;
    }
    let weight = u32::try_from(room.total >> 30).unwrap_or(u32::MAX).max(1);
    // A new weight moves shares, which is worth it only for another disk. Pools change a little all
    // the time.
    before.is_none_or(|before| weight.abs_diff(before) > before / 4).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gib(total: u64, free: u64) -> Space {
        Space { total: total << 30, free: free << 30, files: 0, lends: 0, elsewhere: 0 }
    }

    #[test]
    fn what_was_used_up_is_measured_again_though_nothing_else_changes() {
        let (mut measured, begun) = (Measured::default(), Instant::now());
        assert!(measured.is_due(begun, 1 << 30, 0), "nothing was told yet");
        assert!(!measured.is_due(begun, 1 << 30, 0));
        assert!(!measured.is_due(begun, (1 << 30) - (1 << 20), 1 << 20), "that is little");
        assert!(measured.is_due(begun, 1 << 29, 1 << 29), "as much was used up as is missing");
        assert!(!measured.is_due(begun, 1 << 29, 1 << 29));
        assert!(measured.is_due(begun + AGAIN, 1 << 29, 1 << 29), "more is said to be used up than is");
        assert!(measured.is_due(begun + AGAIN, (1 << 29) + (8 << 20), 0), "something was freed");
    }

    #[test]
    fn a_weight_changes_with_the_disk_and_not_with_what_is_on_it() {
        assert_eq!(weighs(Keeping::Keeps, &gib(931, 0)), Some(931));
        assert_eq!(weighs(Keeping::Keeps, &Space { total: 1 << 20, ..gib(0, 0) }), Some(1));
        assert_eq!(weighs(Keeping::Weighs(931), &gib(931, 7)), None);
        assert_eq!(weighs(Keeping::Weighs(931), &gib(1_100, 7)), None);
        assert_eq!(weighs(Keeping::Weighs(931), &gib(1_863, 7)), Some(1_863));
        assert_eq!(weighs(Keeping::Weighs(1), &gib(2, 7)), Some(2));
        assert_eq!([Keeping::Away, Keeping::Drains].map(|keeping| weighs(keeping, &gib(931, 7))), [None; 2]);
        assert_eq!(weighs(Keeping::Keeps, &ELSEWHERE), None);
    }
}
