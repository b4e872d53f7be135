//! The faults of a run: the seed chooses them, with some kinds left out altogether.

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use wire::Versions;

/// The disk of one server in so many that start again is an older one.
const PUTS_BACK: u64 = 3;

/// A fault put into a machine or the server on purpose, to see that it is found. The fault is in
/// the simulated host, not in the shipped code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Clients count their term from the receipt of a renewal, not from its request.
    TermFromReceipt,
    /// The server does not remember which operations it has done for clients.
    ShipsForgotten,
    /// A leader takes entries for committed that it alone has on disk.
    AcknowledgesEarly,
    /// A leader answers questions without asking whether it still leads.
    StaleReads,
    /// Disks of servers acknowledge syncs, and a crash takes the data.
    DiskKeepsNothing,
    /// A server that led leads again when it starts again, without being elected.
    RestoresLeader,
    /// A leader raises the cluster's version though not all servers know the next.
    RaisesEarly,
    /// A leader changes the members at once, without a time in which a majority of both sets is
    /// needed.
    ChangesAtOnce,
    /// Servers check no checksum of their disks.
    BelievesRot,
    /// Servers believe in each other's and their own past, whatever their disks have.
    BelievesMembers,
    /// Machines report that all that they revoked has gone, and kernels keep it.
    KeptBelow,
    /// When a lease on a name goes, the kernel drops only the entry of the folded name itself.
    FoldedBelow,
    /// Machines take a change in write-through for applied once they have sent it.
    HeardEarly,
    /// Servers do not know the rights of machines.
    ForgetsRights,
    /// Clients do not know that there is a kernel, which comes back for files that it has looked
    /// up.
    NothingBelow,
}

/// The kinds of faults, and their odds. Zero odds mean never; times are in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Servers, each with all of the state: a lone one, or a group of which a majority goes on.
    pub servers: u64,
    /// Servers run the shipped code, with openraft; not its contract.
    pub shipped: bool,
    /// Time between two faults, on average.
    pub calm_ms: u64,
    /// Connections break.
    pub breaks: u64,
    /// Links lose everything that is sent in one direction.
    pub one_way: u64,
    /// Sets of machines are cut off from the server.
    pub partitions: u64,
    /// Links become slow.
    pub slows: u64,
    /// Machines freeze and go on later.
    pub freezes: u64,
    /// Machines' processes end, and begin anew.
    pub crashes: u64,
    /// Machines' processes end in order, and begin anew with the updates that were not applied.
    pub ends: u64,
    /// Servers' processes end, and begin anew: the leader's, another, a minority, all of them.
    pub restarts: u64,
    /// Servers are cut off from each other: one way or both, one pair or one from all.
    pub splits: u64,
    /// Servers' processes are stopped and go on later, as if no time had passed.
    pub stops: u64,
    /// A server's disk becomes slow.
    pub slow_disks: u64,
    /// Disks of servers that run the shipped code are full for a while.
    pub full_disks: u64,
    /// Servers elect another leader for no reason.
    pub elections: u64,
    /// The disk of a server of a group rots. With the shipped code: of one in so many that start
    /// again.
    pub rots: u64,
    /// The disk of a server that runs the shipped code is put back to an older copy, or emptied: of
    /// one in so many that start again, if all others are well.
    pub puts_back: u64,
    /// The wanted number of servers changes, to one, three or five.
    pub changes: u64,
    /// Machines are cut off from some of the servers, one way or both.
    pub astray: u64,
    /// Between two programs, of servers or machines, that are replaced by ones that know the next
    /// version, on average. If zero, there are none.
    pub upgrade_ms: u64,
    /// So many of the machines have restricted rights.
    pub limited: u64,
    /// One call in so many sets, removes or reads a policy for the spread of content.
    pub policies: u64,
    /// One call in so many makes a directory or moves one to another; all others look where they
    /// are. If zero, programs make all kinds of calls.
    pub moves: u64,
    /// All but one call in so many are about one small file, which one machine changes and the
    /// others look at. If zero, programs make all kinds of calls.
    pub passes: u64,
    /// One in so many of a program's pauses is long, and no call waits for the updates before it.
    /// Never if zero.
    pub idles: u64,
    /// If not zero, some programs replace files by rename all the time, and all others make calls
    /// on their paths: `sim::world::paths`.
    pub replaces: u64,
    /// Clocks of machines run at most so many millionths too fast or too slow.
    pub drift_ppm: u64,
    /// One packet in so many is lost.
    pub loses: u64,
    /// One packet in so many is doubled.
    pub doubles: u64,
    /// The delay of a slow link at most.
    pub slow_ms: u64,
    /// Whether every event is printed.
    pub aloud: bool,
    /// The mutation, if there is one.
    pub lie: Option<Mutation>,
}

impl Weather {
    /// The drift of clocks: the client takes one part in a hundred off its term for it.
    pub const DRIFT_PPM: u64 = 10_000;

    /// Nothing goes wrong.
    pub const FAIR: Weather = Weather {
        servers: 1,
        shipped: false,
        rots: 0,
        puts_back: 0,
        changes: 0,
        calm_ms: 1_000_000_000,
        breaks: 0,
        one_way: 0,
        partitions: 0,
        slows: 0,
        freezes: 0,
        crashes: 0,
        ends: 0,
        restarts: 0,
        splits: 0,
        stops: 0,
        slow_disks: 0,
        full_disks: 0,
        elections: 0,
        astray: 0,
        upgrade_ms: 0,
        limited: 0,
        policies: 0,
        moves: 0,
        passes: 0,
        idles: 0,
        replaces: 0,
        drift_ppm: 0,
        loses: 0,
        doubles: 0,
        slow_ms: 0,
        aloud: false,
        lie: None,
    };

    /// Everything goes wrong.
    pub const FOUL: Weather = Weather {
        servers: 1,
        shipped: false,
        rots: 4,
        puts_back: 0,
        changes: 0,
        calm_ms: 4_000,
        breaks: 4,
        one_way: 3,
        partitions: 3,
        slows: 2,
        freezes: 3,
        crashes: 2,
        ends: 2,
        restarts: 1,
        splits: 3,
        stops: 1,
        slow_disks: 1,
        full_disks: 0,
        elections: 2,
        astray: 2,
        upgrade_ms: 0,
        limited: 0,
        policies: 0,
        moves: 0,
        passes: 0,
        idles: 0,
        replaces: 0,
        drift_ppm: Weather::DRIFT_PPM,
        loses: 30,
        doubles: 30,
        slow_ms: 2_000,
        aloud: false,
        lie: None,
    };

    /// Whether nothing goes wrong.
    pub(super) fn is_fair(&self) -> bool {
        self.calm_ms == Weather::FAIR.calm_ms && self.loses == 0 && self.doubles == 0
    }

    /// The seed's choice for three or five servers that run the shipped code.
    pub fn shipped(seed: u64) -> Weather {
        let weather = Weather::of(seed);
        // The shipped code decides itself who is elected. There is one version of it.
        let restarts = weather.restarts.max(1) * 3;
        let servers = if seed.is_multiple_of(4) { 5 } else { 3 };
        // Two of three seeds change the wanted servers.
        let (changes, rots, limited) = (2 * (seed % 3), Weather::FOUL.rots, 0);
        let (elections, upgrade_ms) = (0, 0);
        let full_disks = 2 * u64::from(seed % 5 > 2);
        Weather {
            servers,
            shipped: true,
            restarts,
            elections,
            changes,
            rots,
            puts_back: PUTS_BACK,
            full_disks,
            limited,
            upgrade_ms,
            ..weather
        }
    }

    /// The versions that the newest program knows. All begin with this one.
    pub(super) fn newest(&self) -> Versions {
        if self.upgrade_ms == 0 { Versions::KNOWN } else { Versions::WITH_NEXT }
    }

    /// The largest number of servers.
    pub(super) fn servers_max(&self) -> u64 {
        if self.changes == 0 { self.servers } else { self.servers.max(5) }
    }

    /// The seed's choice.
    pub fn of(seed: u64) -> Weather {
        let mut rng = ChaCha12Rng::seed_from_u64(seed ^ 0x77EA);
        let mut weather = Weather::FOUL;
        let mut below = |bound: u64| rng.next_u64() % bound;
        let odds = [
            &mut weather.breaks,
            &mut weather.one_way,
            &mut weather.partitions,
            &mut weather.slows,
            &mut weather.freezes,
            &mut weather.crashes,
            &mut weather.restarts,
        ];
        for odds in odds {
            *odds *= u64::from(below(3) > 0);
        }
        weather.calm_ms = 1_000 + below(10_000);
        // None, a few, and as many as on a bad day.
        weather.loses = [0, 50, 3][below(3) as usize];
        weather.doubles = [0, 30][below(2) as usize];
        for odds in
            [&mut weather.splits, &mut weather.slow_disks, &mut weather.elections, &mut weather.astray]
        {
            *odds *= u64::from(below(3) > 0);
        }
        weather.servers = [1, 3][below(2) as usize];
        weather.stops *= u64::from(below(3) > 0);
        weather.upgrade_ms = [0, 3_000][below(2) as usize];
        weather.changes = [0, 2][below(2) as usize] * u64::from(weather.servers > 1);
        weather.rots *= u64::from(below(3) > 0);
        weather.limited = [0, 4][below(2) as usize];
        weather.policies = [0, 10][below(2) as usize];
        weather.ends *= u64::from(below(3) > 0);
        weather
    }
}
