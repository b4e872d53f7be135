//! What a host does about the shares that it keeps: leases taken and let go as the directory says, and what sessions have left behind swept.

use crate::machine::STOP_LOOK;
use crate::shares_server::Shares;
use directory::ShareWork;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::MachineId;

/// Between two attempts at what failed.
const PAUSE: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct Keeper {
    shares: Shares,
    chores: Sender<Chore>,
    stopping: AtomicBool,
}

/// What [`Keeper::run`] is to do.
pub(crate) enum Chore {
    Work(Vec<ShareWork>),
    /// Uploads of the machine from before this time (UTC seconds) that nobody has adopted by now are nobody's.
    Sweep(MachineId, u64),
}

impl Keeper {
    /// Of the share server `shares`; what it puts off is for [`Keeper::run`].
    pub(crate) fn new(shares: Shares) -> (Keeper, Receiver<Chore>) {
        let (chores, to_do) = channel();
        (Keeper { shares, chores, stopping: AtomicBool::new(false) }, to_do)
    }

    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Its thread ends when it next looks.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// An applied log entry says so. In the order of the log; never blocks.
    pub(crate) fn work(&self, work: Vec<ShareWork>) {
        self.chore(Chore::Work(work));
    }

    /// A new session of `machine` in the log: what its earlier ones have left behind is swept.
    pub(crate) fn begin(&self, machine: MachineId) {
        let since = self.shares.begin(machine);
        self.chore(Chore::Sweep(machine, since));
    }

    fn chore(&self, chore: Chore) {
        // The thread ends after the last sender's owner.
        let _ = self.chores.send(chore);
    }

    /// Settles share leases until the machine stops. What is settled goes to `settled`.
    pub(crate) fn run(&self, chores: &Receiver<Chore>, settled: impl Fn(Vec<ShareWork>)) {
        let mut unsettled: Vec<ShareWork> = Vec::new();
        let mut sweeps: BTreeMap<MachineId, u64> = BTreeMap::new();
        loop {
            match chores.recv_timeout(STOP_LOOK) {
                Ok(Chore::Work(work)) => unsettled.extend(work),
                Ok(Chore::Sweep(machine, since)) => drop(sweeps.insert(machine, since)),
                Err(_) if self.stopping.load(Ordering::SeqCst) => return,
                Err(_) if unsettled.is_empty() => {}
                // Tried again.
                Err(_) => std::thread::sleep(PAUSE),
            }
            if !unsettled.is_empty() && self.shares.settle(&unsettled) {
                settled(std::mem::take(&mut unsettled));
            }
            // What is pending may be the adoption of such an upload.
            if unsettled.is_empty() {
                for (machine, since) in std::mem::take(&mut sweeps) {
                    self.shares.sweep(machine, since);
                }
            }
        }
    }
}
