//! `leasehold map`, and what people want of the placement of regions: pins, and whether regions
//! move by themselves. The root server keeps that.

use crate::beside::{LOOK, TIMEOUT};
use crate::hosted::HostedServer;
use crate::server::Server;
use admin::{BalanceSwitch, ControlRefusal, MapEntry, MapReport, MovedWhy, PinnedFile, ServerOfMap};
use directory::{Input, MoveReason, Moved, Placement, RegionReport, RegionStanding};
use ident::{FileId, ServerId};
use std::time::Instant;

impl Server {
    fn placement(&self) -> Placement {
        self.group().query(|directory, store| directory.placement(store))
    }

    /// The servers of the directory and their regions. With a path, only the region that has the
    /// file at it, and its server.
    pub(crate) fn map(&self, path: Option<&str>) -> Result<MapReport, ControlRefusal> {
        let placement = self.placement();
        let file = path.map(|path| {
            self.resolve(path.as_bytes()).ok_or_else(|| ControlRefusal::NoFile { path: path.to_owned() })
        });
        let file = file.transpose()?;
        let manager = file.as_ref().map(|file| self.manager(file).map(|hosted| hosted.id()));
        let is_asked = |hosted: &HostedServer| manager.is_none_or(|manager| manager == Some(hosted.id()));
        let all = self.all_hosted();
        let asked = all.iter().filter(|hosted| is_asked(hosted));
        let servers = asked.map(|hosted| self.server_of_map(hosted, file.as_ref(), &placement)).collect();
        Ok(MapReport { servers, balance: !placement.is_off, pins: self.pins(&placement) })
    }

    fn server_of_map(
        &self,
        hosted: &HostedServer,
        file: Option<&FileId>,
        placement: &Placement,
    ) -> ServerOfMap {
        let (id, standing) = (hosted.id(), hosted.group().standing());
        let time = hosted.group().status().time;
        let (regions, files, sessions) = hosted.group().query(|directory, _| {
            let status = directory.status(time);
            (directory.regions(), status.files, status.sessions)
        });
        // The longest prefix counts.
        let its = |file: &FileId| {
            regions.iter().rfind(|report| report.region.is_prefix_of(file)).map(|it| it.region.clone())
        };
        let only = file.and_then(its);
        let owned = |report: &&RegionReport| {
            let is_here = matches!(report.standing, RegionStanding::Owned | RegionStanding::Leaving(_));
            // Of a region whose files are gone only the identifiers are left.
            let has_files = report.region == FileId::root() || self.parent(&report.region).is_some();
            is_here && has_files && only.as_ref().is_none_or(|only| *only == report.region)
        };
        // A pin within holds this region only if it is of this one, and of none below.
        let holds = |region: &FileId, pin: &FileId| {
            pin.is_prefix_of(region) || its(pin).is_some_and(|of| of == *region)
        };
        let entry = |report: &RegionReport| {
            let pinned = placement.pins.iter().any(|pin| holds(&report.region, pin));
            self.entry(report, (id, placement), pinned)
        };
        ServerOfMap {
            server: id.0,
            leader: standing.leader().map(|host| host.name.clone()),
            members: standing.members.iter().map(|member| member.host.name.clone()).collect(),
            files,
            sessions,
            regions: regions.iter().filter(owned).map(entry).collect(),
        }
    }

    fn entry(
        &self,
        report: &RegionReport,
        (server, placement): (ServerId, &Placement),
        pinned: bool,
    ) -> MapEntry {
        // The word of a move may be lost, and then the row is about an earlier one.
        let moved = placement.moved.get(&report.region).filter(|moved| moved.to == server);
        MapEntry {
            path: self.path(&report.region),
            region: report.region.to_string(),
            epoch: report.epoch,
            leaving_for: match report.standing {
                RegionStanding::Leaving(to) => Some(to.0),
                _ => None,
            },
            since: moved.map(|moved| moved.at),
            why: moved.map(|moved| match moved.why {
                MoveReason::Asked => MovedWhy::Asked,
                MoveReason::Balance => MovedWhy::Balance,
            }),
            pinned,
        }
    }

    /// The pinned files. Pins of files that are gone are taken away.
    fn pins(&self, placement: &Placement) -> Vec<PinnedFile> {
        let pins = placement.pins.iter().filter(|file| {
            let Some(hosted) = self.manager(file) else { return true };
            let there = **file == FileId::root() || self.parent(file).is_some();
            // Another replica may be late, and the file new.
            if !there && hosted.group().leads() {
                self.group().propose(Input::Pin { file: (*file).clone(), pinned: false });
            }
            there
        });
        pins.map(|file| PinnedFile { path: self.path(file), file: file.to_string() }).collect()
    }

    /// Pins the file at a path to its server, or takes the pin away. Blocks until that holds. This
    /// machine's member of the root server leads.
    pub(crate) fn pin(&self, path: &str, pinned: bool) -> Result<PinnedFile, ControlRefusal> {
        // A file without a path is known by its identifier.
        let named = || self.placement().pins.into_iter().find(|file| !pinned && file.to_string() == path);
        let file = self.resolve(path.as_bytes()).or_else(named);
        let file = file.ok_or_else(|| ControlRefusal::NoFile { path: path.to_owned() })?;
        if !pinned && !self.placement().pins.contains(&file) {
            return Err(ControlRefusal::NotPinned { path: path.to_owned() });
        }
        self.set_pin(&file, pinned)?;
        Ok(PinnedFile { path: path.to_owned(), file: file.to_string() })
    }

    pub(crate) fn set_pin(&self, file: &FileId, pinned: bool) -> Result<(), ControlRefusal> {
        self.group().propose(Input::Pin { file: file.clone(), pinned });
        self.waits_for(|placement| placement.pins.contains(file) == pinned)
    }

    /// Has regions move by themselves, or not. Blocks until that holds.
    pub(crate) fn switch_balance(&self, on: bool) -> Result<BalanceSwitch, ControlRefusal> {
        self.group().propose(Input::Balance { on });
        self.waits_for(|placement| placement.is_off != on)?;
        Ok(BalanceSwitch { on })
    }

    fn waits_for(&self, holds: impl Fn(&Placement) -> bool) -> Result<(), ControlRefusal> {
        let begun = Instant::now();
        while !holds(&self.placement()) {
            if begun.elapsed() > TIMEOUT || self.is_stopping() {
                return Err(ControlRefusal::DirectorySilent { within_s: TIMEOUT.as_secs() });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Notes for people that a region has come to a server. Nothing is left to be said of one that
    /// has become a part of what is around it. Never blocks.
    pub(crate) fn note_move(&self, region: &FileId, to: ServerId, why: MoveReason) {
        let Some(hosted) = self.hosted(to) else { return };
        let regions = hosted.group().query(|directory, _| directory.regions());
        let is_whole = regions.iter().any(|it| it.region == *region && it.standing == RegionStanding::Owned);
        let moved = is_whole.then(|| Moved { to, at: os::utc_secs(), why });
        self.group().pass_on(Input::Moved { region: region.clone(), moved });
    }
}
