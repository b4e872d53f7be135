//! How much room there is: on this machine, and for content at all servers together, which the leader asks. Disks of different sizes weigh differently, so that they fill alike.

use crate::group::{Host, Keeping, wait};
use crate::hosts::HostList;
use crate::server::Server;
use namespace::Spread;
use rustix::fs::statvfs;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::{MachineId, Space};

/// How often the leader asks.
const SURVEY: Duration = Duration::from_secs(5);
/// How soon it sees that it is to stop.
const LOOK: Duration = Duration::from_millis(250);
/// While the leader's own disk has less than that, it is what there is room for: names and small files are on it, whatever room others have.
const ROWS_BYTES: u64 = 1 << 30;

/// Kept back from what is set aside for users: deleting must always work, and needs room in the log, in the store and in the lease
/// database until it has freed some; a checkpoint of the store alone may need twice its overlay.
const RESERVE_BYTES: u64 = 128 << 20;

/// Of a store elsewhere, which does not fill.
pub(crate) const ELSEWHERE: Space = Space { total: 1 << 50, free: 1 << 50, files: 0 };

/// What the file system below `dir` has, less the reserve.
pub fn measure(dir: &Path) -> Result<Space, rustix::io::Errno> {
    let stat = statvfs(dir)?;
    let total = stat.f_blocks.saturating_mul(stat.f_frsize);
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // On a small disk the reserve must not eat everything.
    let reserve = RESERVE_BYTES.min(total / 8);
    Ok(Space { total, free: free.saturating_sub(reserve), files: 0 })
}

impl Server {
    /// Asks all servers for their room and gives them weights by it, until the machine stops.
    pub(crate) fn survey(&self) {
        let mut last = None::<Instant>;
        while !self.is_stopping() {
            std::thread::sleep(LOOK);
            if last.is_some_and(|last| last.elapsed() < SURVEY) || !self.group().leads() {
                continue;
            }
            last = Some(Instant::now());
            let told = self.keeper().spaces();
            let mut rooms = self.rooms().lock();
            // Of one that does not answer what it said last.
            rooms.retain(|machine, _| told.iter().any(|(known, _)| known == machine));
            rooms.extend(told.into_iter().filter_map(|(machine, space)| Some((machine, space?))));
            let known = rooms.clone();
            drop(rooms);
            self.weigh(&known);
        }
    }

    /// What users have room for, if this machine, which leads, has `here`.
    pub(crate) fn room(&self, here: Space) -> Space {
        let hosts = self.keeper().peers().hosts().now();
        cluster(&hosts, &self.rooms().lock(), here)
    }

    fn weigh(&self, rooms: &BTreeMap<MachineId, Space>) {
        if !self.group().version().has_weights() {
            return;
        }
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

/// The weight that a server with so much room is to have, if that is another. A store that does not fill has the average.
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
    // All that moves for it is worth the while only if the disk is another; pools change a little all the time.
    before.is_none_or(|before| weight.abs_diff(before) > before / 4).then_some(weight)
}

/// What users have room for at `hosts`, which have said so much of their `rooms`; the leader has `here`, and who has said nothing is taken to have as much.
fn cluster(hosts: &HostList, rooms: &BTreeMap<MachineId, Space>, here: Space) -> Space {
    let keepers = hosts.all().iter().filter(|host| host.keeps());
    let rooms: Vec<Space> = keepers.map(|host| rooms.get(&host.machine).copied().unwrap_or(here)).collect();
    if rooms.is_empty() {
        return here;
    }
    let (copies, needed) = (hosts.copies_of(Spread::Usual), hosts.needed_of(Spread::Usual));
    let fits = |of: fn(&Space) -> u64| content::room(rooms.iter().map(of).collect(), copies, needed);
    let (total, free) = (fits(|room| room.total), fits(|room| room.free));
    let free = if here.free < ROWS_BYTES { free.min(here.free) } else { free };
    Space { total, free, files: 0 }
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
        Space { total: total << 30, free: free << 30, files: 0 }
    }

    #[test]
    fn users_have_room_for_what_fits_at_all_servers() {
        let rooms =
            |rooms: &[Space]| (1..).map(MachineId).zip(rooms.iter().copied()).collect::<BTreeMap<_, _>>();
        let three = list(&[1, 1, 1], 2);
        let here = gib(100, 50);
        assert_eq!(cluster(&three, &rooms(&[here, gib(80, 30), gib(80, 40)]), here), gib(80, 40));
        // One that is full, or drained, keeps nobody from writing; with two that are full too few would have a copy.
        assert_eq!(cluster(&three, &rooms(&[here, gib(80, 0), gib(80, 40)]), here).free, 40 << 30);
        assert_eq!(
            cluster(&list(&[1, 0, 1], 2), &rooms(&[here, gib(80, 9), gib(80, 40)]), here).free,
            40 << 30
        );
        assert_eq!(cluster(&three, &rooms(&[here, gib(80, 0), gib(80, 0)]), here).free, 0);
        // Nobody has said anything yet.
        assert_eq!(cluster(&three, &BTreeMap::new(), here), here);
        assert_eq!(cluster(&list(&[], 1), &BTreeMap::new(), here), here);
        // A store elsewhere does not fill, but the names do.
        let lone = list(&[1], 1);
        assert_eq!(cluster(&lone, &rooms(&[ELSEWHERE]), here), ELSEWHERE);
        let little = Space { total: 10 << 30, free: 5 << 20, files: 0 };
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
