//! The balance of load among the servers of the directory (Farsite §7.2.2).
//!
//! A machine balances for the servers that it leads. At times it compares the load of such a server
//! with that of another one, drawn at random. All machines that serve have replicas of all servers,
//! so it asks nobody. If the rule wants so for several times in a row, a region moves, as if people
//! had delegated it. For a heavy one, a lighter one may come back.
//!
//! A file counts for the server that manages it now, whichever server was asked about it. So the
//! load of a region goes with it at once, and no region follows for a load that has moved already.

mod comparing;
mod explaining;
pub(crate) mod memory;
mod pace;
pub(crate) mod settings;

use crate::beside::HANDED_OVER_WITHIN;
use crate::hosted::HostedServer;
use crate::server::Server;
use comparing::Comparison;
use directory::{DelegateError, Input, MoveReason, RegionStanding};
use ident::{FileId, ServerId};
use memory::{Balancer, RegionUnderway};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often moves under way are looked at.
const LOOK: Duration = Duration::from_millis(500);

impl Server {
    /// Balances the servers that this machine leads, until it stops.
    pub(crate) fn run_balance(&self) {
        let mut compared = Instant::now();
        while !self.is_stopping() {
            std::thread::sleep(LOOK.min(self.balance_settings().every));
            self.follow_moves();
            if compared.elapsed() < self.balance_settings().every {
                continue;
            }
            compared = Instant::now();
            if self.is_one() {
                continue;
            }
            self.balancer().lock().pace.forget(compared, self.balance_settings());
            self.balance();
        }
    }

    /// Compares each server that this machine leads with another one. Has regions move where it is
    /// time for that.
    fn balance(&self) {
        let all = self.all_hosted();
        let may = self.group().is_current();
        let (led, others): (Vec<_>, Vec<_>) = all.iter().partition(|it| may && it.group().leads());
        others.iter().for_each(|it| self.balancer().lock().pace.begin_anew(it.id()));
        if led.is_empty() {
            return;
        }
        let comparison = Comparison::of_all(self);
        for hosted in led {
            let id = hosted.id();
            let others: Vec<_> = all.iter().filter(|other| other.id() != id).collect();
            let Some(other) = drawn(&others) else { return };
            if comparison.is_off() {
                self.balancer().lock().pace.begin_anew(id);
                continue;
            }
            let chosen = comparison.chooses(hosted, other);
            let acts = self.balancer().lock().pace.compared(id, chosen.is_ok(), self.balance_settings());
            if let Ok(exchange) = chosen
                && acts
            {
                self.balancer().lock().pace.begin_anew(id);
                self.begins_move(id, exchange.gives, (id, other.id()), exchange.takes);
            }
        }
    }

    /// Has a region handed over, and then another one back.
    fn begins_move(
        &self,
        by: ServerId,
        region: FileId,
        (from, to): (ServerId, ServerId),
        then: Option<FileId>,
    ) {
        let Some(server) = self.hosted(from) else { return };
        let path = self.path(&region);
        tracing::info!(path, from = from.0, to = to.0, "a region moves to balance the load");
        let moving =
            RegionUnderway { region: region.clone(), from, to, then, begun: Instant::now(), left: None };
        self.balancer().lock().underway.insert(by, moving);
        server.group().pass_on(Input::Delegate { region, to });
    }

    /// Notes the result of any hand-over. Never blocks.
    pub(crate) fn hears_move(&self, region: &FileId, result: Result<(), DelegateError>) {
        let mut balancer = self.balancer().lock();
        balancer.pace.heard(region, result.is_ok(), Instant::now(), self.balance_settings());
        for moving in balancer.underway.values_mut().filter(|it| it.region == *region) {
            moving.left = Some(result.is_ok());
        }
    }

    /// Ends the moves that are over, and begins those that follow.
    fn follow_moves(&self) {
        let mut over = Vec::new();
        let mut balancer = self.balancer().lock();
        let is_led = |server: ServerId| self.hosted(server).is_some_and(|it| it.group().leads());
        balancer.underway.retain(|by, _| is_led(*by));
        let Balancer { pace, underway, .. } = &mut *balancer;
        for (by, moving) in underway.iter() {
            let has_come = || self.hosted(moving.to).is_some_and(|it| it.manages(&moving.region));
            let is_late = moving.begun.elapsed() > HANDED_OVER_WITHIN;
            match moving.left {
                Some(true) if has_come() || is_late => over.push(*by),
                Some(false) => over.push(*by),
                None if is_late => {
                    pace.heard(&moving.region, false, Instant::now(), self.balance_settings());
                    over.push(*by);
                }
                Some(true) | None => {}
            }
        }
        let over: Vec<_> = over.into_iter().filter_map(|by| Some((by, underway.remove(&by)?))).collect();
        drop(balancer);
        for (by, RegionUnderway { region, from, to, then, left, .. }) in over {
            if left != Some(true) {
                tracing::info!(path = self.path(&region), "a region could not move to balance the load");
                continue;
            }
            self.note_move(&region, to, MoveReason::Balance);
            // Much may have happened meanwhile.
            let may_come = |region: &FileId| {
                let comparison = Comparison::of_all(self);
                !comparison.is_off() && comparison.may_go(region, to, from)
            };
            if let Some(then) = then.filter(may_come) {
                self.begins_move(by, then, (to, from), None);
            }
        }
    }

    /// Whether a server hands a region over, or takes one, as far as this machine's replica knows.
    fn is_moving(&self, hosted: &HostedServer) -> bool {
        let moves = |standing: RegionStanding| {
            matches!(standing, RegionStanding::Leaving(_) | RegionStanding::Coming(_))
        };
        let has_begun = self.balancer().lock().underway.contains_key(&hosted.id());
        has_begun
            || hosted.group().query(|directory, _| directory.regions()).iter().any(|it| moves(it.standing))
    }
}

/// One of these servers, drawn at random.
fn drawn<'a>(servers: &[&'a Arc<HostedServer>]) -> Option<&'a Arc<HostedServer>> {
    let mut bytes = [0; 8];
    os::fill_random(&mut bytes).ok()?;
    servers.get((u64::from_le_bytes(bytes) % servers.len().max(1) as u64) as usize).copied()
}
