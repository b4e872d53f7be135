//! After a client's end, what survives of its updates to names and attributes is a prefix of them
//! (ARCHITECTURE, invariant 12). Content is published by entries of its own: of each file's it is a
//! prefix likewise.

use crate::world::Violation;
use crate::world::history::{Called, History, Key, Life};
use std::collections::BTreeMap;

impl History {
    pub(super) fn check_prefixes(&self) -> Result<(), Violation> {
        // What each life's first lost update was: of names and attributes, and of each file's
        // content.
        let mut lost: BTreeMap<(Life, Option<Key>), &Called> = BTreeMap::new();
        for called in self.updates() {
            let key = (called.life, content_of(called));
            match lost.get(&key) {
                // What the server did for a machine it did before it was answered: of two that were
                // under way at once no one knows which came first.
                Some(lost) if called.applied && !(called.shipped && called.begun <= lost.done) => {
                    return Err(format!(
                        "{:?} was lost, and {:?}, which came after it, was not",
                        lost.call, called.call
                    ));
                }
                None if !called.applied => _ = lost.insert(key, called),
                _ => {}
            }
        }
        Ok(())
    }
}

fn content_of(called: &Called) -> Option<Key> {
    called.changes().into_iter().next().filter(|key| matches!(key, Key::Content(_)))
}
