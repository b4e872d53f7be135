//! `leasehold balance`: the loads of the servers, and what the balance would do about them.

use super::comparing::Comparison;
use crate::hosted::HostedServer;
use crate::server::Server;
use admin::{BalanceReport, ControlProgress, ControlRefusal, LoadPair, RegionMove, ServerLoad};
use directory::{Exchange, MoveReason};
use ident::{FileId, ServerId};
use std::cmp::Reverse;
use std::sync::Arc;

/// A server, and its active files.
type Loaded = (Arc<HostedServer>, u64);

impl Server {
    /// Reports the loads of all servers. For each two it reports what the one with more load would
    /// hand over to the other, or why it would not. If `acts`, the first such exchange is made, of
    /// those two whose loads differ most, without waiting for the difference to last. This
    /// machine's member of the root server leads.
    pub(crate) fn balance_report(
        &self,
        acts: bool,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<BalanceReport, ControlRefusal> {
        let comparison = Comparison::of_all(self);
        let mut loads: Vec<Loaded> = self
            .all_hosted()
            .into_iter()
            .map(|hosted| {
                let active = comparison.load(&hosted).count();
                (hosted, active)
            })
            .collect();
        let server = |(hosted, active): &Loaded| ServerLoad {
            server: hosted.id().0,
            active: *active,
            files: hosted.files(),
        };
        let mut report = BalanceReport { on: !comparison.is_off(), ..BalanceReport::default() };
        report.servers = loads.iter().map(server).collect();
        loads.sort_by_key(|(_, active)| Reverse(*active));
        let below = |at: usize| loads.iter().skip(at + 1);
        let mut pairs: Vec<(&Loaded, &Loaded)> =
            loads.iter().enumerate().flat_map(|(at, from)| below(at).map(move |to| (from, to))).collect();
        pairs.sort_by_key(|((_, more), (_, less))| Reverse(more.abs_diff(*less)));
        let mut due = None;
        for ((from, _), (to, _)) in pairs {
            let chosen = comparison.chooses(from, to);
            let held = || comparison.would_choose(from, to);
            let (exchange, stays) = match chosen {
                Ok(exchange) => (Some(exchange), None),
                Err(why @ admin::KeptWhy::NothingFits) => {
                    held().map_or((None, Some(why)), |(exchange, why)| (Some(exchange), Some(why)))
                }
                Err(why) => (None, Some(why)),
            };
            report.pairs.push(self.pair(from.id(), to.id(), exchange.as_ref(), stays));
            if let Some(exchange) = exchange.filter(|_| stays.is_none()) {
                due.get_or_insert((exchange, from.id(), to.id()));
            }
        }
        if let Some((Exchange { gives, takes }, from, to)) = due.filter(|_| acts) {
            report.moved.push(self.balances(&gives, from, to, progress)?);
            if let Some(takes) = takes {
                report.moved.push(self.balances(&takes, to, from, progress)?);
            }
        }
        Ok(report)
    }

    fn pair(
        &self,
        from: ServerId,
        to: ServerId,
        exchange: Option<&Exchange>,
        stays: Option<admin::KeptWhy>,
    ) -> LoadPair {
        LoadPair {
            from: from.0,
            to: to.0,
            gives: exchange.map(|it| self.path(&it.gives)),
            takes: exchange.and_then(|it| it.takes.as_ref()).map(|it| self.path(it)),
            stays,
        }
    }

    fn balances(
        &self,
        region: &FileId,
        from: ServerId,
        to: ServerId,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<RegionMove, ControlRefusal> {
        let (path, region) = (self.path(region), region.clone());
        self.move_region(&path, &region, (from, to), progress)?;
        self.note_move(&region, to, MoveReason::Balance);
        Ok(RegionMove { path, region: region.to_string(), from: from.0, to: to.0, pinned: false })
    }
}
