//! What a machine's kernel keeps of what it was told: it answers by itself, without a word to the client, until that is taken back or has stood for as long as it may.
//!
//! Entries, those of names that are not there too, and attributes, kept apart as in the kernel: an entry may be kept whose attributes pass.

use client::{Call, Invalidation, Reply};
use ident::FileId;
use lease::{Label, Time};
use namespace::{Entry, Error, Stat};
use std::collections::{BTreeMap, BTreeSet};

/// See the module. All of it with the time until which it stands.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    names: BTreeMap<(FileId, Label), (Time, Option<Entry>)>,
    attributes: BTreeMap<FileId, (Time, Stat)>,
}

/// What the kernel says by itself.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// A name is there, or is not; and the attributes of what it names, if they are kept as well.
    Name(Option<(Entry, Option<Stat>)>),
    /// Attributes.
    Stat(Stat),
}

impl Kernel {
    /// What it says to this call at `now`, if it asks nobody.
    pub fn answer(&self, call: &Call, now: Time) -> Option<Kept> {
        let stat = |file: &FileId| {
            self.attributes.get(file).filter(|(until, _)| now < *until).map(|(_, stat)| *stat)
        };
        match call {
            Call::Lookup { dir, label } => {
                let (_, entry) =
                    self.names.get(&(dir.clone(), label.clone())).filter(|(until, _)| now < *until)?;
                Some(Kept::Name(entry.clone().map(|entry| (entry.clone(), stat(&entry.file)))))
            }
            Call::Stat { file } => stat(file).map(Kept::Stat),
            _ => None,
        }
    }

    /// It is given the answer to a call, to keep until then.
    pub fn given(&mut self, call: &Call, result: &Result<Reply, Error>, until: Time) {
        match (call, result) {
            (
                Call::Lookup { dir, label } | Call::Create { dir, label, .. } | Call::Link { dir, label, .. },
                Ok(reply),
            ) => {
                if let Reply::Node(entry, _) = reply.clone().told() {
                    self.names.insert((dir.clone(), label.clone()), (until, Some(entry.clone())));
                    self.given_stat(&entry.file, reply, until);
                }
            }
            (Call::Lookup { dir, label }, Err(Error::NotFound)) => {
                self.names.insert((dir.clone(), label.clone()), (until, None));
            }
            (Call::Stat { file } | Call::SetAttributes { file, .. }, Ok(reply)) => {
                self.given_stat(file, reply, until);
            }
            (Call::Write { file, .. }, Ok(_)) => _ = self.attributes.remove(file),
            (Call::Unlink { dir, label, .. }, Ok(_)) => {
                self.names.remove(&(dir.clone(), label.clone()));
            }
            // It moves its own entry, which stands for as long as it did.
            (Call::Rename { from_dir, from, to_dir, to, .. }, Ok(_)) => {
                let moved = self.names.remove(&(from_dir.clone(), from.clone()));
                let to = (to_dir.clone(), to.clone());
                match moved.filter(|(_, entry)| entry.is_some()) {
                    Some(moved) => _ = self.names.insert(to, moved),
                    None => _ = self.names.remove(&to),
                }
            }
            _ => {}
        }
    }

    fn given_stat(&mut self, file: &FileId, reply: &Reply, until: Time) {
        match reply {
            Reply::Node(_, stat) | Reply::Stat(stat) => {
                _ = self.attributes.insert(file.clone(), (until, *stat))
            }
            _ => _ = self.attributes.remove(file),
        }
    }

    /// All of this goes. Who makes, moves or removes a name holds its directory's lock: from there no one entry is taken back, and all go.
    pub fn takes_back<'a>(&mut self, what: &[Invalidation], under_way: impl IntoIterator<Item = &'a Call>) {
        let locked: BTreeSet<&FileId> = under_way.into_iter().flat_map(locks).flatten().collect();
        for what in what {
            match what {
                Invalidation::Entry(dir, label) if !locked.contains(dir) => {
                    self.names.remove(&(dir.clone(), label.clone()));
                }
                Invalidation::Entry(..) | Invalidation::Entries(_) => self.names.clear(),
                Invalidation::Attributes(file) | Invalidation::Pages(file) => {
                    _ = self.attributes.remove(file)
                }
                Invalidation::Everything => *self = Kernel::default(),
            }
        }
    }
}

/// The directories that a call keeps locked until it is answered.
fn locks(call: &Call) -> [Option<&FileId>; 2] {
    match call {
        Call::Create { dir, .. } | Call::Link { dir, .. } | Call::Unlink { dir, .. } => [Some(dir), None],
        Call::Rename { from_dir, to_dir, .. } => [Some(from_dir), Some(to_dir)],
        _ => [None, None],
    }
}
