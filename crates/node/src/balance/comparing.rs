//! The comparison of two servers' loads, by this machine's replicas.

use super::settings::BalanceSettings;
use crate::hosted::HostedServer;
use crate::server::Server;
use admin::KeptWhy;
use directory::{ActiveFiles, Exchange, Placement, StayReason};
use ident::{FileId, ServerId};
use std::time::Instant;

/// Files that are looked at while a replica stands still, at most.
const FILES_AT_ONCE: usize = 1_024;

/// The files that are in use at all servers, and what people want of regions, at one time.
pub(super) struct Comparison<'s> {
    server: &'s Server,
    active: ActiveFiles,
    placement: Placement,
    now: Instant,
}

impl<'s> Comparison<'s> {
    /// Asks all replicas of this machine.
    pub(super) fn of_all(server: &'s Server) -> Comparison<'s> {
        let within_ms = server.balance_settings().active.as_millis() as u64;
        let at = Instant::now();
        let active = server.all_hosted().into_iter().map(|hosted| {
            let now = server.balancer().lock().time_of(hosted.id(), hosted.group().now(), at);
            hosted.group().query(|directory, _| directory.active(now, within_ms))
        });
        let active = ActiveFiles::joined(active);
        let placement = server.group().query(|directory, store| directory.placement(store));
        Comparison { server, active, placement, now: at }
    }

    /// Whether no region is to move by itself.
    pub(super) fn is_off(&self) -> bool {
        self.placement.is_off
    }

    fn settings(&self) -> &BalanceSettings {
        self.server.balance_settings()
    }

    /// The files in use that a server manages.
    pub(super) fn load(&self, hosted: &HostedServer) -> ActiveFiles {
        let parts = self.active.files().chunks(FILES_AT_ONCE).flat_map(|files| {
            hosted
                .group()
                .query(|directory, _| files.iter().map(|file| directory.manages(file)).collect::<Vec<bool>>())
        });
        let mut manages = parts.collect::<Vec<bool>>().into_iter();
        self.active.with(|_| manages.next().unwrap_or_default())
    }

    /// The exchange that a server is to make with another one.
    pub(super) fn chooses(&self, from: &HostedServer, to: &HostedServer) -> Result<Exchange, KeptWhy> {
        self.are_ready(from, to)?;
        let may_go = |region: &FileId| self.may_go(region, from.id(), to.id());
        let may_come = |region: &FileId| self.may_go(region, to.id(), from.id());
        let rule = &self.settings().rule;
        rule.chooses(&self.load(from), &self.load(to), may_go, may_come).map_err(reason)
    }

    /// The exchange that it would make if every region might move, and why the region stays.
    pub(super) fn would_choose(&self, from: &HostedServer, to: &HostedServer) -> Option<(Exchange, KeptWhy)> {
        let rule = &self.settings().rule;
        let free = rule.chooses(&self.load(from), &self.load(to), |_| true, |_| true).ok()?;
        let why = self.keeps(&free.gives, from.id(), to.id()).or_else(|| {
            let takes = free.takes.as_ref()?;
            self.keeps(takes, to.id(), from.id())
        });
        Some((free, why?))
    }

    /// Whether two servers can be compared, and are free to exchange regions.
    fn are_ready(&self, from: &HostedServer, to: &HostedServer) -> Result<(), KeptWhy> {
        let is_watched = |it: &HostedServer| it.since().elapsed() >= self.settings().active;
        if !is_watched(from) || !is_watched(to) {
            return Err(KeptWhy::NotWatched);
        }
        let is_ready = |it: &HostedServer| self.server.is_safe(it.id()) && it.group().is_current();
        if !is_ready(from) || !is_ready(to) {
            return Err(KeptWhy::NotReady);
        }
        if self.server.is_moving(from) || self.server.is_moving(to) {
            return Err(KeptWhy::Moving);
        }
        Ok(())
    }

    /// Whether a region may go from one server to another by itself.
    pub(super) fn may_go(&self, region: &FileId, from: ServerId, to: ServerId) -> bool {
        self.keeps(region, from, to).is_none()
    }

    /// The reason why a region stays where it is.
    fn keeps(&self, region: &FileId, from: ServerId, to: ServerId) -> Option<KeptWhy> {
        if self.placement.is_pinned(region) {
            return Some(KeptWhy::Pinned);
        }
        if self.server.balancer().lock().pace.rests(region, self.now, self.settings()) {
            return Some(KeptWhy::Rests);
        }
        let hosted = self.server.hosted(from)?;
        let may = hosted.group().query(|directory, store| directory.may_delegate(store, region, to));
        may.err().map(|_| KeptWhy::Tied)
    }
}

fn reason(reason: StayReason) -> KeptWhy {
    match reason {
        StayReason::Small => KeptWhy::Small,
        StayReason::Even => KeptWhy::Even,
        StayReason::NothingFits => KeptWhy::NothingFits,
    }
}
