//! Faults, and their ends.

use super::events::{Event, LinkRepaired, Repaired};
use super::{Violation, World};

/// The longest fault with its consequences, ms.
const ROUGH_MS: u64 = 120_000;

impl World {
    pub(super) fn begin_faults(&mut self) {
        let calm = self.weather.calm_ms;
        self.later(calm, Event::Fault);
        self.later(50, Event::Looks);
    }

    /// Begins a fault.
    pub(super) fn fault(&mut self) -> Result<(), Violation> {
        if self.healed {
            return Ok(());
        }
        let calm = 1 + self.below(2 * self.weather.calm_ms);
        self.later(calm, Event::Fault);
        let weather = self.weather;
        let among_servers = u64::from(!self.group.is_lone());
        let odds = [
            weather.breaks,
            weather.one_way,
            weather.partitions,
            weather.slows,
            weather.freezes,
            weather.crashes,
            weather.restarts,
            weather.splits * among_servers,
            weather.slow_disks * among_servers,
            weather.elections * among_servers,
            weather.astray * among_servers,
            weather.stops * among_servers,
            weather.changes * among_servers,
            u64::from(weather.rots > 0 && !weather.shipped) * among_servers,
            weather.full_disks * u64::from(weather.shipped),
            weather.ends,
        ];
        let mut pick = self.below(odds.iter().sum());
        let kind = odds.iter().position(|odds| {
            let here = pick < *odds;
            pick = pick.saturating_sub(*odds);
            here
        });
        let at = self.below(self.machines.len() as u64) as usize;
        if !matches!(kind, Some(0 | 5 | 15)) {
            self.is_rough();
        }
        // While one server is in doubt, servers get no other fault.
        let kind = kind.filter(|kind| *kind < 6 || !self.shipped.is_in_doubt());
        match kind {
            // The machine learns that the connection is gone, or only misses the answers.
            Some(0) if self.one_in(2) => self.breaks(at),
            Some(0) => {
                self.links[at].loses();
                self.machines[at].steady = None;
            }
            Some(1) => {
                let ways = if self.one_in(2) { [true, false] } else { [false, true] };
                self.cuts(at, ways);
            }
            Some(2) => {
                for at in 0..self.machines.len() {
                    if self.one_in(3) {
                        self.cuts(at, [true, true]);
                    }
                }
            }
            Some(3) => self.slows(at),
            Some(4) => self.freezes(at),
            Some(5) => self.crashes(at)?,
            Some(6) => self.servers_crash(),
            Some(7) => self.splits(),
            Some(8) => self.slows_disk(),
            Some(9) => {
                let candidate = self.some_server();
                let replica = &self.group.replicas[candidate];
                if replica.up && replica.leads.is_none() {
                    self.stands(candidate, true)?;
                }
            }
            Some(10) => self.leads_astray(at),
            Some(11) => {
                let (server, wait) = (self.some_important_server(), self.some_time(40_000));
                if self.weather.shipped {
                    self.member_stops(server, wait);
                } else {
                    self.group.replicas[server].stopped_until = self.now + wait;
                }
            }
            Some(12) => self.wants_servers(),
            Some(13) => {
                let server = self.some_important_server();
                self.disk_rots(server);
            }
            Some(14) => {
                let (server, wait) = (self.some_important_server(), self.some_time(40_000));
                self.notes(|| format!("the disk of server {server} is full"));
                self.happened.full += 1;
                self.shipped.servers[server].fills_disk(true);
                self.later(wait, Event::Repairs(Repaired::Room(server)));
            }
            Some(15) => self.ends(at)?,
            _ => {}
        }
        Ok(())
    }

    /// Begins a fault that may last. Meanwhile a machine's messages, and all that waits for them,
    /// may take any time.
    fn is_rough(&mut self) {
        let until = self.now + ROUGH_MS;
        self.machines.iter_mut().for_each(|machine| machine.rough_until = machine.rough_until.max(until));
    }

    /// A random time: mostly short, sometimes up to `ms_max`.
    pub(super) fn some_time(&mut self, ms_max: u64) -> u64 {
        let bound = if self.one_in(3) { ms_max } else { ms_max / 20 };
        1 + self.below(bound)
    }

    fn some_server(&mut self) -> usize {
        self.below(self.group.replicas.len() as u64) as usize
    }

    /// A random server: the leader more often than others.
    fn some_important_server(&mut self) -> usize {
        match self.leader() {
            Some(leader) if self.one_in(2) => leader,
            _ => self.some_server(),
        }
    }

    /// Cuts wires between servers. One server does not reach the others, is not reached by them, or
    /// both; or the same holds for a pair.
    fn splits(&mut self) {
        let (one, other) = (self.some_important_server(), self.some_server());
        let (ways, pair) = (self.below(3), self.one_in(3));
        let mut wires = Vec::new();
        for to in (0..self.group.replicas.len()).filter(|to| *to != one && (!pair || *to == other)) {
            if ways != 1 {
                wires.push((one, to));
            }
            if ways != 2 {
                wires.push((to, one));
            }
        }
        wires.iter().for_each(|(from, to)| self.group.wire(*from, *to).cut += 1);
        let wait = self.some_time(40_000);
        self.later(wait, Event::Repairs(Repaired::Wires(wires)));
    }

    fn slows_disk(&mut self) {
        let (at, slow) = (self.some_important_server(), 1 + self.below(self.weather.slow_ms));
        self.disk_takes(at, slow);
        let wait = self.some_time(20_000);
        self.later(wait, Event::Repairs(Repaired::Disk(at)));
    }

    /// Makes the server's disk slower by up to so much, ms.
    fn disk_takes(&mut self, at: usize, ms: u64) {
        self.group.replicas[at].disk_ms = ms;
        if self.weather.shipped {
            self.shipped.servers[at].life.slows_disk(ms);
        }
    }

    /// Cuts the machine off from one server, one way or both.
    fn leads_astray(&mut self, at: usize) {
        let server = self.some_important_server();
        let ways = [[true, true], [true, false], [false, true]][self.below(3) as usize];
        for (cut, way) in self.links[at].cut_of[server].iter_mut().zip(ways) {
            *cut += u64::from(way);
        }
        let wait = self.some_time(60_000);
        self.later(wait, Event::Repairs(Repaired::Astray { at, server, ways }));
    }

    pub(super) fn repairs(&mut self, repaired: Repaired) -> Result<(), Violation> {
        match repaired {
            Repaired::Stopped(at) => self.member_goes_on(at),
            _ if self.healed => {}
            Repaired::Wires(wires) => {
                wires.iter().for_each(|(from, to)| self.group.wire(*from, *to).cut -= 1);
            }
            Repaired::Disk(at) => self.disk_takes(at, 0),
            Repaired::Room(at) => self.shipped.servers[at].fills_disk(false),
            Repaired::Astray { at, server, ways } => {
                for (cut, way) in self.links[at].cut_of[server].iter_mut().zip(ways) {
                    *cut -= u64::from(way);
                }
            }
        }
        Ok(())
    }

    fn cuts(&mut self, at: usize, ways: [bool; 2]) {
        for (cut, way) in self.links[at].cut.iter_mut().zip(ways) {
            *cut += u64::from(way);
        }
        let wait = self.some_time(90_000);
        self.later(wait, Event::RepairsLink(at, LinkRepaired::Cut(ways)));
    }

    fn slows(&mut self, at: usize) {
        let slow = 1 + self.below(self.weather.slow_ms);
        let before = std::mem::replace(&mut self.links[at].delay, (slow / 2, slow / 2));
        let wait = self.some_time(40_000);
        self.later(wait, Event::RepairsLink(at, LinkRepaired::Slow(before)));
    }

    fn freezes(&mut self, at: usize) {
        if self.machines[at].frozen.is_none() {
            let wait = self.some_time(90_000);
            self.machines[at].frozen = Some(self.now + wait);
            self.later(wait, Event::Thaws(at));
        }
    }

    pub(super) fn repairs_link(&mut self, at: usize, repaired: LinkRepaired) -> Result<(), Violation> {
        match repaired {
            _ if self.healed => {}
            LinkRepaired::Cut(ways) => {
                for (cut, way) in self.links[at].cut.iter_mut().zip(ways) {
                    *cut -= u64::from(way);
                }
            }
            LinkRepaired::Slow(before) => self.links[at].delay = before,
        }
        Ok(())
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.healed = true;
        for link in &mut self.links {
            (link.cut, link.delay) = ([0, 0], (1, 4));
            link.cut_of.fill([0, 0]);
        }
        self.group.heal();
        self.shipped.servers.iter().for_each(|server| server.fills_disk(false));
        // A stopped server goes on at its own time; its messages wait in order.
        for at in 0..self.group.replicas.len() {
            self.server_starts(at)?;
            self.scrubs(at);
        }
        Ok(())
    }
}
