//! After a client's end, the updates to names and attributes that survive are a prefix of the
//! client's updates (ARCHITECTURE, invariant 12). Content is published by log entries of its own:
//! each file's surviving content is a prefix likewise.

use crate::world::Violation;
use crate::world::history::{Called, History, Key, Life};
use std::collections::BTreeMap;

impl History {
    pub(super) fn check_prefixes(&self) -> Result<(), Violation> {
        // Each life's first lost update: of names and attributes, and of each file's content.
        let mut lost: BTreeMap<(Life, Option<Key>), &Called> = BTreeMap::new();
        for called in self.updates() {
            let key = (called.life, content_of(called));
            match lost.get(&key) {
                // The server does a shipped update before it answers. Of two such calls under way
                // at once, no observer knows which came first.
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
