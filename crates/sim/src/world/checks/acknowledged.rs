//! Acknowledged updates survive (ARCHITECTURE, invariant 10). After an answered sync all updates
//! before it are there. Once all has come to rest, so is every update of a session that has not
//! ended.

use crate::world::Violation;
use crate::world::history::{Called, History};
use client::{Call, call};

impl History {
    pub(super) fn check_acknowledged(&self) -> Result<(), Violation> {
        let syncs: Vec<&Called> =
            self.calls.iter().filter(|called| called.done < u64::MAX && is_sync(&called.call)).collect();
        for called in self.missing() {
            let is_whole = self.whole.contains(&called.life);
            let over = !is_whole && self.lives.get(called.life).is_some_and(|(_, over)| *over);
            if !over {
                return Err(format!("{:?} was done, and did not come to be", called.call));
            }
            let promised = |sync: &&&Called| {
                sync.life == called.life && sync.begun > called.done && covers(&sync.call, &called.call)
            };
            if let Some(sync) = syncs.iter().find(promised) {
                return Err(format!("{:?} was lost after {:?} was answered", called.call, sync.call));
            }
        }
        Ok(())
    }
}

fn is_sync(call: &Call) -> bool {
    matches!(call, Call::Sync { .. } | Call::SyncAll)
}

fn covers(sync: &Call, update: &Call) -> bool {
    match (sync, update) {
        (Call::SyncAll, _) => true,
        (
            Call::Sync(call::Sync { file }),
            Call::Write(call::Write { file: of, .. })
            | Call::SetAttributes(call::SetAttributes { file: of, .. })
            | Call::SetXattr(call::SetXattr { file: of, .. })
            | Call::RemoveXattr(call::RemoveXattr { file: of, .. }),
        ) => file == of,
        _ => false,
    }
}
