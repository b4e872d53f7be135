//! The regions that a server knows of, for hosts and for people.

use super::{Regions, Standing};
use ident::{FileId, ServerId};

/// A region that a server knows of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionReport {
    /// The region: a prefix of identifiers, without the longer ones that are listed.
    pub region: FileId,
    /// How the server stands to it.
    pub standing: RegionStanding,
    /// The epoch of that standing. It grows with each server of the region.
    pub epoch: u64,
}

/// How a server stands to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionStanding {
    /// The server manages the region.
    Owned,
    /// The server manages the region, and is about to hand it over to that one.
    Leaving(ServerId),
    /// That server manages the region, as far as this one knows.
    Away {
        /// The other server.
        to: ServerId,
        /// The other server has confirmed that, and no row of the region is left here.
        settled: bool,
    },
    /// That server hands the region over to this one.
    Coming(ServerId),
}

impl Regions {
    /// Reports all regions that this server knows of, in the order of identifiers.
    pub fn report(&self) -> Vec<RegionReport> {
        let of = |(region, standing): (&FileId, &Standing)| {
            let (standing, epoch) = match standing {
                Standing::Owned { epoch } => (RegionStanding::Owned, *epoch),
                Standing::Leaving { to, epoch, .. } => (RegionStanding::Leaving(*to), *epoch),
                Standing::Coming { from, epoch, .. } => (RegionStanding::Coming(*from), *epoch),
                Standing::Away(away) => {
                    let settled = away.unconfirmed.is_none() && away.left.is_none();
                    (RegionStanding::Away { to: away.to, settled }, away.epoch)
                }
            };
            RegionReport { region: region.clone(), standing, epoch }
        };
        self.iter().map(of).collect()
    }
}
