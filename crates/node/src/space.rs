//! Free space: on this machine, and for content at all servers together, which the leader asks.
//! Disks of different sizes get different weights, so that they fill alike.

use crate::hosts::HostList;
use crate::server::Server;
use namespace::Spread;
use raft::{Host, Keeping, wait};
use rustix::fs::statvfs;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::{MachineId, Space};

/// How often the leader asks the servers.
const SURVEY: Duration = Duration::from_secs(5);
/// How soon the survey sees that the server stops.
const LOOK: Duration = Duration::from_millis(250);
/// The free space below which the leader's own disk limits the room of the cluster, bytes. Names
/// and small files are on that disk, whatever room other servers have.
const ROWS_BYTES: u64 = 1 << 30;

/// The reserve that users never get, bytes. Deleting must always work. It needs room in the log, in
/// the store and in the lease database until it has freed some. A checkpoint of the store alone may
/// need twice its overlay.
const RESERVE_BYTES: u64 = 128 << 20;

/// The change of free space that is reported to the directory: the free bytes divided by the first
/// number, at least the second and at most the third, bytes.
const MATTERS: (u64, u64, u64) = (256, 256 << 10, 64 << 20);
/// How much later an unchanged figure is reported too, if the directory counts more as used.
const AGAIN: Duration = Duration::from_secs(2);

/// The space of a store elsewhere, which does not fill.
pub(crate) const ELSEWHERE: Space = Space { total: 1 << 50, free: 1 << 50, files: 0, lends: 0 };

/// Measures the file system below `dir`, less the reserve.
pub fn measure(dir: &Path) -> Result<Space, rustix::io::Errno> {
    let stat = statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(usable(bytes(stat.f_blocks), bytes(stat.f_bfree), bytes(stat.f_bavail)))
}

/// Returns the space for users on a disk of `total` bytes, with `free` bytes free, and `available`
/// bytes free for others than root. Neither root's part nor the reserve counts as in use.
fn usable(total: u64, free: u64, available: u64) -> Space {
    // On a small disk the reserve must not take everything.
    let reserve = RESERVE_BYTES.min(total / 8);
    let used = total.saturating_sub(free);
    let free = available.saturating_sub(reserve);
    // The other half is never lent: the log, the store and the lease database need it to free
    // anything.
    let lends = available.min(reserve).saturating_sub(reserve / 2);
    Space { total: used.saturating_add(free), free, files: 0, lends }
}

/// Counts unpublished uploads of sessions as free. The allowances of the sessions have that space
/// until they publish. Counted twice, it would keep the sessions from writing.
pub(crate) fn with_unpublished(space: Space, unpublished: u64) -> Space {
    Space { free: space.free.saturating_add(unpublished).min(space.total), ..space }
}

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
        let matters = (free / MATTERS.0).clamp(MATTERS.1, MATTERS.2);
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
            if last.is_some_and(|last| last.elapsed() < SURVEY) || !self.group().leads() {
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
            self.weigh(&known);
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

/// Returns the room for users at `hosts`, which have reported `rooms`. The leader has `here`, and a
/// silent host is taken to have as much.
pub(crate) fn cluster(hosts: &HostList, rooms: &BTreeMap<MachineId, Space>, here: Space) -> Space {
    let keepers = hosts.all().iter().filter(|host| host.keeps());
    let rooms: Vec<Space> = keepers.map(|host| rooms.get(&host.machine).copied().unwrap_or(here)).collect();
    if rooms.is_empty() {
        return here;
    }
    let (copies, needed) = (hosts.copies_of(Spread::Usual), hosts.needed_of(Spread::Usual));
    let fits = |of: fn(&Space) -> u64| content::room(rooms.iter().map(of).collect(), copies, needed);
    let most = if here.free < ROWS_BYTES { (here.free, here.lends) } else { (u64::MAX, u64::MAX) };
    let (free, lends) = (fits(|room| room.free).min(most.0), fits(|room| room.lends).min(most.1));
    Space { total: fits(|room| room.total), free, files: 0, lends }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts;

    fn list(weights: &[u32], needed: usize) -> std::sync::Arc<HostList> {
        let hosts = hosts::Hosts::default();
        let host = |(at, weight): (usize, &u32)| hosts::Host {
            machine: MachineId(at as u64 + 1),
            addresses: Vec::new(),
            weight: *weight,
        };
        hosts.set(weights.iter().enumerate().map(host).collect(), needed);
        hosts.now()
    }

    fn gib(total: u64, free: u64) -> Space {
        Space { total: total << 30, free: free << 30, files: 0, lends: 0 }
    }

    /// On ext4 a part of the disk is root's. `df` does not count that part, nor the space of the
    /// file system itself.
    #[test]
    fn what_is_kept_for_root_is_not_in_use() {
        let gib = |gib: u64| gib << 30;
        let space = usable(gib(100), gib(60), gib(55));
        assert_eq!((space.total - space.free, space.free), (gib(40), gib(55) - RESERVE_BYTES));
        let little = usable(800, 700, 700);
        assert_eq!((little.total - little.free, little.free, little.lends), (100, 600, 50));
        // A full disk lends what it still has, down to half of its reserve.
        let lends = [0, 50, 51, 75, 100, 200].map(|available| usable(800, available, available).lends);
        assert_eq!(lends, [0, 0, 1, 25, 50, 50]);
        assert_eq!(usable(gib(100), 0, 0), Space { total: gib(100), free: 0, files: 0, lends: 0 });
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
    fn users_have_room_for_what_fits_at_all_servers() {
        let rooms =
            |rooms: &[Space]| (1..).map(MachineId).zip(rooms.iter().copied()).collect::<BTreeMap<_, _>>();
        let three = list(&[1, 1, 1], 2);
        let here = gib(100, 50);
        assert_eq!(cluster(&three, &rooms(&[here, gib(80, 30), gib(80, 40)]), here), gib(80, 40));
        // A host that is full, or drained, keeps no machine from writing. With two full hosts too
        // few would have a copy.
        assert_eq!(cluster(&three, &rooms(&[here, gib(80, 0), gib(80, 40)]), here).free, 40 << 30);
        assert_eq!(
            cluster(&list(&[1, 0, 1], 2), &rooms(&[here, gib(80, 9), gib(80, 40)]), here).free,
            40 << 30
        );
        assert_eq!(cluster(&three, &rooms(&[here, gib(80, 0), gib(80, 0)]), here).free, 0);
        // No host has reported anything yet.
        assert_eq!(cluster(&three, &BTreeMap::new(), here), here);
        assert_eq!(cluster(&list(&[], 1), &BTreeMap::new(), here), here);
        // A store elsewhere does not fill, but the names do.
        let lone = list(&[1], 1);
        assert_eq!(cluster(&lone, &rooms(&[ELSEWHERE]), here), ELSEWHERE);
        let little = Space { total: 10 << 30, free: 5 << 20, files: 0, lends: 0 };
        assert_eq!(cluster(&lone, &rooms(&[ELSEWHERE]), little).free, 5 << 20);
        assert_eq!(cluster(&lone, &rooms(&[little]), little), little);
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
