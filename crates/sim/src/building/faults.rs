//! What goes wrong, and that it becomes well again.

use super::events::Event;
use super::{Building, Violation};

/// What is well again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mended {
    /// One direction, or both.
    Cut([bool; 2]),
    /// The delay is what it was.
    Slow((u64, u64)),
}

impl Building {
    pub(super) fn begin_faults(&mut self) {
        let calm = self.weather.calm_ms;
        self.later(calm, Event::Fault);
        self.later(50, Event::Looks);
    }

    /// Something goes wrong.
    pub(super) fn fault(&mut self) -> Result<(), Violation> {
        if self.healed {
            return Ok(());
        }
        let calm = 1 + self.below(2 * self.weather.calm_ms);
        self.later(calm, Event::Fault);
        let weather = self.weather;
        let odds = [
            weather.breaks,
            weather.one_way,
            weather.partitions,
            weather.slows,
            weather.freezes,
            weather.crashes,
            weather.restarts,
        ];
        let mut pick = self.below(odds.iter().sum());
        let kind = odds.iter().position(|odds| {
            let here = pick < *odds;
            pick = pick.saturating_sub(*odds);
            here
        });
        let at = self.below(self.machines.len() as u64) as usize;
        match kind {
            // The machine hears of it, or finds that nothing comes any more.
            Some(0) if self.one_in(2) => self.breaks(at),
            Some(0) => self.links[at].loses(),
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
            Some(5) => self.crashes(at),
            Some(6) => {
                let pause = self.some_time(40_000);
                self.server_crashes(pause);
            }
            _ => {}
        }
        Ok(())
    }

    /// Mostly short, sometimes as long as that.
    fn some_time(&mut self, ms_max: u64) -> u64 {
        let bound = if self.one_in(3) { ms_max } else { ms_max / 20 };
        1 + self.below(bound)
    }

    fn cuts(&mut self, at: usize, ways: [bool; 2]) {
        for (cut, way) in self.links[at].cut.iter_mut().zip(ways) {
            *cut += u64::from(way);
        }
        let wait = self.some_time(90_000);
        self.later(wait, Event::Mends(at, Mended::Cut(ways)));
    }

    fn slows(&mut self, at: usize) {
        let slow = 1 + self.below(self.weather.slow_ms);
        let before = std::mem::replace(&mut self.links[at].delay, (slow / 2, slow / 2));
        let wait = self.some_time(40_000);
        self.later(wait, Event::Mends(at, Mended::Slow(before)));
    }

    fn freezes(&mut self, at: usize) {
        if self.machines[at].frozen.is_none() {
            let wait = self.some_time(90_000);
            self.machines[at].frozen = Some(self.now + wait);
            self.later(wait, Event::Thaws(at));
        }
    }

    pub(super) fn mends(&mut self, at: usize, mended: Mended) -> Result<(), Violation> {
        match mended {
            _ if self.healed => {}
            Mended::Cut(ways) => {
                for (cut, way) in self.links[at].cut.iter_mut().zip(ways) {
                    *cut -= u64::from(way);
                }
            }
            Mended::Slow(before) => self.links[at].delay = before,
        }
        Ok(())
    }

    /// All is well from here on.
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.healed = true;
        for link in &mut self.links {
            (link.cut, link.delay) = ([0, 0], (1, 4));
        }
        // Who is stopped goes on when it was to: what waits for it is in order.
        self.server_starts()
    }
}
