//! Free space: on this machine, and for content at all hosts together.

use crate::hosts::HostList;
use namespace::Spread;
use rustix::fs::statvfs;
use std::collections::BTreeMap;
use std::path::Path;
use wire::{MachineId, Space};

/// The free space below which the leader's own disk limits the room of the cluster, bytes. Names
/// and small files are on that disk, whatever room other servers have.
const ROWS_BYTES: u64 = 1 << 30;

/// The reserve that users never get, bytes. Deleting must always work. It needs room in the log, in
/// the store and in the lease database until it has freed some. A checkpoint of the store alone may
/// need twice its overlay.
const RESERVE_BYTES: u64 = 128 << 20;

/// The space of a store elsewhere, which does not fill.
pub const ELSEWHERE: Space = Space { total: 1 << 50, free: 1 << 50, files: 0, lends: 0, elsewhere: 0 };

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
    Space { total: used.saturating_add(free), free, files: 0, lends, elsewhere: 0 }
}

/// Counts unpublished uploads of sessions as free. The allowances of the sessions have that space
/// until they publish. Counted twice, it would keep the sessions from writing.
pub fn with_unpublished(space: Space, unpublished: u64) -> Space {
    Space { free: space.free.saturating_add(unpublished).min(space.total), ..space }
}

/// Returns the room for users at `hosts`, which have reported `rooms`. The leader has `here`, and a
/// silent host is taken to have as much.
pub fn cluster(hosts: &HostList, rooms: &BTreeMap<MachineId, Space>, here: Space) -> Space {
    let keepers = hosts.all().iter().filter(|host| host.keeps());
    let rooms: Vec<Space> = keepers.map(|host| rooms.get(&host.machine).copied().unwrap_or(here)).collect();
    if rooms.is_empty() {
        return here;
    }
    let (copies, needed) = (hosts.copies_of(Spread::Usual), hosts.needed_of(Spread::Usual));
    let fits = |of: fn(&Space) -> u64| content::room(rooms.iter().map(of).collect(), copies, needed);
    let most = if here.free < ROWS_BYTES { (here.free, here.lends) } else { (u64::MAX, u64::MAX) };
    let (free, lends) = (fits(|room| room.free).min(most.0), fits(|room| room.lends).min(most.1));
    Space { total: fits(|room| room.total), free, files: 0, lends, elsewhere: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts;

    fn list(weights: &[u32], needed: usize) -> std::sync::Arc<HostList> {
        let hosts = hosts::Hosts::default();
        let host = |(at, weight): (usize, &u32)| hosts::ListedHost {
            machine: MachineId(at as u64 + 1),
            addresses: Vec::new(),
            weight: *weight,
        };
        hosts.set(weights.iter().enumerate().map(host).collect(), needed);
        hosts.now()
    }

    fn gib(total: u64, free: u64) -> Space {
        Space { total: total << 30, free: free << 30, files: 0, lends: 0, elsewhere: 0 }
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
        assert_eq!(
            usable(gib(100), 0, 0),
            Space { total: gib(100), free: 0, files: 0, lends: 0, elsewhere: 0 }
        );
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
        let little = Space { total: 10 << 30, free: 5 << 20, files: 0, lends: 0, elsewhere: 0 };
        assert_eq!(cluster(&lone, &rooms(&[ELSEWHERE]), little).free, 5 << 20);
        assert_eq!(cluster(&lone, &rooms(&[little]), little), little);
    }
}
