//! The regions of this server: the identifiers that it manages, and those that others do (Farsite
//! §4.1.3, §4.1.4).
//!
//! A region is a prefix of identifiers, without the longer prefixes that have a standing of their
//! own. At no time do two servers manage one file. None does only between two entries: `HandOver`
//! at the region's server, and `TakeOver` at the next one (`source`, `target`).

pub(crate) mod report;
mod source;
mod target;

use ident::{FileId, ServerId};
use lease::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::ToClient;

/// How this server stands to a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// This server manages the region, as the `epoch`th that does.
    Owned { epoch: u64 },
    /// As `Owned` by one less, and about to hand the region over to `to`. Once it has cooled,
    /// nothing of the region is granted any more.
    Leaving { to: ServerId, epoch: u64, step: LeavingStep },
    /// Another server manages the region, as far as this one knows.
    Away(Away),
    /// `from` hands the region over to this server, which has the rows of the pages below `page`.
    Coming { from: ServerId, epoch: u64, page: u64 },
}

/// A region of another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Away {
    pub to: ServerId,
    pub epoch: u64,
    /// The files that the other server has yet to confirm.
    pub unconfirmed: Option<u64>,
    /// The key from which on rows of the region are left here, to be deleted; none if there are
    /// none.
    pub left: Option<Vec<u8>>,
}

/// How far the region's server is with handing it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LeavingStep {
    /// Leases are recalled ahead, since this time, while requests are served as ever. The one pass
    /// over the rows goes on at this key.
    Cooling { since: Time, start: Vec<u8> },
    /// All leases are recalled, since this time. The pass over the rows goes on at this key; after
    /// it, only files are looked at that were `held`. `is_whole` as long as these are all that keep
    /// the region, and nothing has come into use behind the pass.
    Recalling { since: Time, start: Option<Vec<u8>>, held: Vec<FileId>, is_whole: bool },
    /// Nobody has anything of the region. The step that has found this out may have changed rows,
    /// so they go from the next one on.
    Idle,
    /// The rows of this page, which is due since this time, begin at this key, and the next page's
    /// at the other one; files up to there.
    Copying { since: Time, page: u64, start: Vec<u8>, next: Option<Vec<u8>>, files: u64 },
}

/// All regions that this server knows of. The root's has an entry, so every file is in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Regions {
    server: ServerId,
    all: BTreeMap<FileId, Standing>,
}

impl Regions {
    /// The regions of `server` at its beginning. The root server has all but the overflow prefixes
    /// of others, and each other server has its own one.
    pub fn new(server: ServerId) -> Regions {
        let owned = Standing::Owned { epoch: 0 };
        let all = match server {
            ServerId::ROOT => BTreeMap::from([(FileId::root(), owned)]),
            _ => BTreeMap::from([
                (FileId::root(), Standing::Away(Away::at(ServerId::ROOT))),
                (server.overflow(), owned),
            ]),
        };
        Regions { server, all }
    }

    /// Whether the root's region is there, as it always is unless a disk has changed the row.
    pub fn have_the_root(&self) -> bool {
        self.all.contains_key(&FileId::root())
    }

    /// The region that has `file`, and this server's standing.
    fn of(&self, file: &FileId) -> (&FileId, &Standing) {
        let mut upto = self.all.range(..=file).rev();
        let region = upto.find(|(region, _)| region.is_prefix_of(file));
        region.expect("the root's region has every file")
    }

    /// Whether this server manages `file`.
    pub fn manage(&self, file: &FileId) -> bool {
        match self.of(file) {
            (region, Standing::Owned { .. } | Standing::Leaving { .. }) => {
                self.born_elsewhere(region, file).is_none()
            }
            (_, Standing::Away(_) | Standing::Coming { .. }) => false,
        }
    }

    /// Whether `file` is about to be handed over, so that nothing of it is granted.
    pub fn are_leaving(&self, file: &FileId) -> bool {
        let leaves = |standing: &Standing| match standing {
            Standing::Leaving { step: LeavingStep::Cooling { .. }, .. } => false,
            Standing::Leaving { .. } => true,
            Standing::Owned { .. } | Standing::Away(_) | Standing::Coming { .. } => false,
        };
        self.all.len() > 1 && leaves(self.of(file).1)
    }

    /// Whether the rows of `file` go to another server just now: nothing about the file changes.
    pub fn are_copying(&self, file: &FileId) -> bool {
        let copying = |standing: &Standing| {
            let Standing::Leaving { step, .. } = standing else { return false };
            matches!(step, LeavingStep::Idle | LeavingStep::Copying { .. })
        };
        self.all.len() > 1 && copying(self.of(file).1)
    }

    /// Whether a region leaves as soon as some leases are back.
    pub fn are_awaited(&self) -> bool {
        self.all.values().any(|standing| {
            matches!(standing, Standing::Leaving { step: LeavingStep::Recalling { start: None, .. }, .. })
        })
    }

    /// Whether sessions may be granted anything of `file`: this server manages the file, and goes
    /// on doing so.
    pub fn may_grant(&self, file: &FileId) -> bool {
        self.manage(file) && !self.are_leaving(file)
    }

    /// Whether this server knows of regions of others.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Whether any hand-over is under way, or leaves work in the background.
    pub fn are_moving(&self) -> bool {
        self.all.values().any(|standing| match standing {
            Standing::Owned { .. } => false,
            Standing::Leaving { .. } | Standing::Coming { .. } => true,
            Standing::Away(away) => away.unconfirmed.is_some() || away.left.is_some(),
        })
    }

    /// This server manages the region, as of this epoch. If it manages what is around the region,
    /// too, both become one: a region that has come home, or never left, can leave with that.
    ///
    /// The region around takes the later epoch. So whatever begins there anew has an epoch that
    /// nobody was ever offered, and a longer prefix with an earlier epoch is history everywhere.
    fn own(&mut self, region: FileId, epoch: u64) {
        self.all.remove(&region);
        let (around, standing) = self.of(&region);
        match standing {
            Standing::Owned { epoch: before } if self.born_elsewhere(around, &region).is_none() => {
                let (around, epoch) = (around.clone(), epoch.max(*before));
                self.all.insert(around, Standing::Owned { epoch });
            }
            _ => _ = self.all.insert(region, Standing::Owned { epoch }),
        }
    }

    /// The server of an overflow prefix below the root's own region, which it has from its
    /// beginning.
    fn born_elsewhere(&self, region: &FileId, file: &FileId) -> Option<ServerId> {
        let server = ServerId::of_overflow(file)?;
        (server != self.server && *region == FileId::root()).then_some(server)
    }

    /// The answer to the request `number` about `file`, if another server manages the file.
    pub fn elsewhere(&self, number: u64, file: &FileId) -> Option<ToClient> {
        let (region, epoch, server) = self.other_server(file)?;
        Some(ToClient::Elsewhere { number, region, epoch, server })
    }

    /// The server that manages `file`, as far as this one knows.
    pub fn server_of(&self, file: &FileId) -> ServerId {
        self.other_server(file).map_or(self.server, |(.., server)| server)
    }

    /// This server.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// The region of another server that has `file`, its epoch and that server. While a region
    /// comes to this server, its server before is the one to ask.
    fn other_server(&self, file: &FileId) -> Option<(FileId, u64, ServerId)> {
        let (region, standing) = self.of(file);
        match standing {
            Standing::Owned { .. } | Standing::Leaving { .. } => {
                let server = self.born_elsewhere(region, file)?;
                Some((server.overflow(), 0, server))
            }
            Standing::Away(away) => Some((region.clone(), away.epoch, away.to)),
            Standing::Coming { from, epoch, .. } => Some((region.clone(), epoch - 1, *from)),
        }
    }

    /// Regions and their standings, in the order of identifiers.
    fn iter(&self) -> impl Iterator<Item = (&FileId, &Standing)> {
        self.all.iter()
    }
}

impl Away {
    /// Another server's region, of which nothing was ever here.
    fn at(to: ServerId) -> Away {
        Away { to, epoch: 0, unconfirmed: None, left: None }
    }
}
