//! A directory's times are those of its last change. Suppose another machine's change of a name was
//! answered before a `stat` began. Then the `stat` shows no modification time from before that
//! change. A kernel drops the attributes of a directory that its own machine changes; the simulated
//! one does not, so those changes are left out.
//!
//! Times are read by report while several machines touch them (docs/internals/leases.md,
//! "Reports"). So they have no order of versions, but this bound.

use crate::world::Violation;
use crate::world::history::{Called, History, Key};
use ident::FileId;
use std::collections::BTreeMap;

impl History {
    pub(super) fn check_times(&self) -> Result<(), Violation> {
        // By directory, in the order in which the changes began.
        let mut changes: BTreeMap<&FileId, Vec<&Called>> = BTreeMap::new();
        for (key, versions) in &self.registers {
            let Key::Name(dir, _) = key else { continue };
            let calls = versions.iter().filter_map(|version| self.calls.get(version.by?));
            changes.entry(dir).or_default().extend(calls.filter(|called| called.done < u64::MAX));
        }
        for of_dir in changes.values_mut() {
            of_dir.sort_by_key(|called| called.begun);
        }
        for look in &self.looks {
            let latest_first = changes.get(&look.dir).into_iter().flatten().rev();
            let missing = latest_first
                .take_while(|called| called.begun > look.modified)
                .find(|called| called.done < look.begun && called.life != look.life);
            if let Some(called) = missing {
                return Err(format!("{look:?} is older than {called:?}"));
            }
        }
        Ok(())
    }
}
