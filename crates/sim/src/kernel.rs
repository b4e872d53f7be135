//! A machine's simulated kernel. It answers from its entries, attributes and pages without a call
//! to the client, until these are invalidated or their time is over.
//!
//! Entries and attributes are apart as in the kernel, and entries of missing names are kept, too.
//! An entry may be kept whose attributes are not. The kernel knows nothing of folds: it has an
//! entry for each spelling of a name. The front door's memory ([`client::Given`]) says which of
//! them go with a lease.

use client::{Call, Entries, Given, Invalidation, Reply, When, call};
use ident::FileId;
use lease::{Label, Time};
use namespace::{Entry, Error, Stat};
use std::collections::BTreeMap;

/// Time after an invalidation of an entry for which its directory counts as contended, ms. It is
/// shorter than in the shipped code, so that kernels keep something.
const LATELY_MS: u64 = 500;

/// Reads of one file whose pages are kept.
const READS_MAX: usize = 4;

/// Entries and attributes, each with the time until which it is good, and pages.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    names: BTreeMap<(FileId, Label), (Time, Option<Entry>)>,
    attributes: BTreeMap<FileId, (Time, Stat)>,
    pages: BTreeMap<FileId, Vec<ReadPages>>,
    /// The front door's memory, by directory.
    given: BTreeMap<FileId, Given>,
    turn: u32,
    /// The time until which entries of these directories are not kept.
    contended: BTreeMap<FileId, Time>,
    barred: Barred,
    /// Whether only the entry of the folded name itself is dropped when a lease on a name goes.
    folded_only: bool,
}

/// The answer to a read.
#[derive(Debug)]
struct ReadPages {
    offset: u64,
    bytes: Vec<u8>,
    /// Whether the file ends there.
    ends: bool,
    /// The time until which it is good.
    until: Time,
}

/// When leases went, in ticks. The kernel keeps nothing of an answer under them to a call that
/// began before.
#[derive(Debug, Default)]
struct Barred {
    /// Leases on names, by directory.
    names: BTreeMap<FileId, u64>,
    files: BTreeMap<FileId, u64>,
    everything: Option<u64>,
}

impl Barred {
    fn names_of(&self, dir: &FileId, begun: u64) -> bool {
        self.names.get(dir).copied().max(self.everything) >= Some(begun)
    }

    fn file(&self, file: &FileId, begun: u64) -> bool {
        self.files.get(file).copied().max(self.everything) >= Some(begun)
    }
}

/// The kernel's own answer.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// A name is there, or is not; with the file's attributes, if they are kept, too.
    Name(Option<(Entry, Option<Stat>)>),
    /// Attributes.
    Stat(Stat),
    /// Content.
    Content(Vec<u8>),
}

impl Kernel {
    /// An empty kernel. One that is `folded_only` drops of the names that go with a lease only the
    /// folded one.
    pub fn new(folded_only: bool) -> Kernel {
        Kernel { folded_only, ..Kernel::default() }
    }

    /// The kernel's own answer to this call at `now`, if it has one.
    pub fn answer(&self, call: &Call, now: Time) -> Option<Kept> {
        let stat = |file: &FileId| {
            self.attributes.get(file).filter(|(until, _)| now < *until).map(|(_, stat)| *stat)
        };
        match call {
            Call::Lookup(call::Lookup { dir, label }) => {
                let (_, entry) =
                    self.names.get(&(dir.clone(), label.clone())).filter(|(until, _)| now < *until)?;
                Some(Kept::Name(entry.clone().map(|entry| (entry.clone(), stat(&entry.file)))))
            }
            Call::Stat(call::Stat { file }) => stat(file).map(Kept::Stat),
            Call::Read(call::Read { file, offset, length, .. }) => {
                let mut kept = self.pages.get(file)?.iter().filter(|pages| now < pages.until);
                kept.find_map(|pages| pages.within(*offset, u64::from(*length))).map(Kept::Content)
            }
            _ => None,
        }
    }

    /// The kernel gets the content that answers a read which began at tick `begun`.
    pub fn given_pages(&mut self, read: &call::Read, begun: u64, bytes: &[u8], until: Time) {
        let call::Read { file, offset, length, kept, .. } = read;
        if !kept || self.barred.file(file, begun) {
            return;
        }
        let reads = self.pages.entry(file.clone()).or_default();
        if reads.len() == READS_MAX {
            reads.remove(0);
        }
        let ends = bytes.len() < *length as usize;
        reads.push(ReadPages { offset: *offset, bytes: bytes.to_vec(), ends, until });
    }

    /// The kernel gets the answer to a call that began at tick `begun`, to keep until then.
    pub fn given(
        &mut self,
        now: Time,
        (call, begun): (&Call, u64),
        result: &Result<Reply, Error>,
        until: Time,
    ) {
        self.contended.retain(|_, until| now < *until);
        if result.is_ok() && !matches!(call, Call::Lookup { .. } | Call::List { .. }) {
            // The kernel drops the attributes of a directory whose names it has changed itself.
            for dir in locks(call).into_iter().flatten() {
                self.attributes.remove(dir);
            }
        }
        self.drop_changed_pages(call, result);
        match (call, result) {
            (
                Call::Lookup(call::Lookup { dir, label })
                | Call::Create(call::Create { dir, label, .. })
                | Call::Link(call::Link { dir, label, .. }),
                Ok(reply),
            ) => {
                if let Reply::Glimpsed(_) = reply {
                    self.names.remove(&(dir.clone(), label.clone()));
                } else if let Reply::Node(entry, _) = reply.clone().told() {
                    self.given_entry((dir, label), begun, (until, Some(entry.clone())));
                    self.given_stat(&entry.file, begun, reply, until);
                }
            }
            (Call::Lookup(call::Lookup { dir, label }), Err(Error::NotFound)) => {
                self.given_entry((dir, label), begun, (until, None));
            }
            (
                Call::Stat(call::Stat { file }) | Call::SetAttributes(call::SetAttributes { file, .. }),
                Ok(reply),
            ) => {
                self.given_stat(file, begun, reply, until);
            }
            (Call::Write(call::Write { file, .. }) | Call::Allocate(call::Allocate { file, .. }), Ok(_)) => {
                _ = self.attributes.remove(file)
            }
            (Call::Unlink(call::Unlink { dir, label, .. }), Ok(_)) => {
                self.loses_name(dir, label);
                self.names.remove(&(dir.clone(), label.clone()));
            }
            // The kernel moves its own entry, which stays good for as long as it was.
            (Call::Rename(call::Rename { from_dir, from, to_dir, to, .. }), Ok(_)) => {
                self.loses_name(to_dir, to);
                let moved = self.names.remove(&(from_dir.clone(), from.clone()));
                match moved.filter(|(_, entry)| entry.is_some()) {
                    Some(moved) => self.given_entry((to_dir, to), begun, moved),
                    None => _ = self.names.remove(&(to_dir.clone(), to.clone())),
                }
            }
            _ => {}
        }
    }

    /// Drops the attributes of a file that loses this name: it has one link less. If the name is
    /// not known, that may be any file.
    fn loses_name(&mut self, dir: &FileId, label: &Label) {
        match self.names.get(&(dir.clone(), label.clone())) {
            Some((_, Some(entry))) => _ = self.attributes.remove(&entry.file),
            Some((_, None)) | None => self.attributes.clear(),
        }
    }

    /// Drops the pages that this kernel's own program has changed, or that it is told to drop.
    fn drop_changed_pages(&mut self, call: &Call, result: &Result<Reply, Error>) {
        match (call, result) {
            (_, Err(_)) | (Call::OpenFile(_), Ok(Reply::Opened { keep_pages: true, .. })) => {}
            (
                Call::Write(call::Write { file, .. })
                | Call::Allocate(call::Allocate { file, .. })
                | Call::SetAttributes(call::SetAttributes { file, size: Some(_), .. })
                | Call::OpenFile(call::OpenFile { file, .. }),
                Ok(_),
            ) => _ = self.pages.remove(file),
            _ => {}
        }
    }

    fn given_stat(&mut self, file: &FileId, begun: u64, reply: &Reply, until: Time) {
        match reply {
            Reply::Node(_, stat) | Reply::Stat(stat) if !self.barred.file(file, begun) => {
                _ = self.attributes.insert(file.clone(), (until, *stat))
            }
            _ => _ = self.attributes.remove(file),
        }
    }

    /// Marks the directories of these invalidations as contended.
    pub fn contend(&mut self, now: Time, what: &[Invalidation]) {
        for what in what {
            if let Invalidation::Entry(dir, _) | Invalidation::Entries(dir) = what {
                self.contended.insert(dir.clone(), now.after_ms(LATELY_MS));
            }
        }
    }

    /// The leases on these items are released.
    pub fn bar(&mut self, tick: u64, what: &[Invalidation]) {
        for what in what {
            match what {
                Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                    self.barred.names.insert(dir.clone(), tick);
                }
                Invalidation::Attributes(file)
                | Invalidation::Pages(file)
                | Invalidation::Caching(file, _) => {
                    self.barred.files.insert(file.clone(), tick);
                }
                Invalidation::Everything => self.barred.everything = Some(tick),
            }
        }
    }

    fn given_entry(&mut self, (dir, label): (&FileId, &Label), begun: u64, entry: (Time, Option<Entry>)) {
        if self.contended.contains_key(dir) || self.barred.names_of(dir, begun) {
            _ = self.names.remove(&(dir.clone(), label.clone()));
            return;
        }
        let when = When { turn: self.turn, at_ms: 0, was_told: false };
        self.turn += 1;
        self.given.entry(dir.clone()).or_default().give(label, when);
        self.names.insert((dir.clone(), label.clone()), entry);
    }

    /// The directory whose lock this invalidation needs, if the kernel has anything to drop.
    pub fn needs_lock<'a>(&self, what: &'a Invalidation) -> Option<&'a FileId> {
        match what {
            Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                (!self.entries(what).is_empty()).then_some(dir)
            }
            _ => None,
        }
    }

    fn entries(&self, what: &Invalidation) -> Entries {
        match what {
            Invalidation::Entry(dir, folded) => self.given.get(dir).map(|given| {
                let mut entries = given.folding_to(folded);
                entries.retain(|(label, _)| !self.folded_only || label == folded);
                entries
            }),
            Invalidation::Entries(dir) => self.given.get(dir).map(Given::all),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// Drops all of this.
    pub fn takes_back(&mut self, what: &[Invalidation]) {
        for what in what {
            match what {
                Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                    for (label, when) in self.entries(what) {
                        self.names.remove(&(dir.clone(), label.clone()));
                        self.given.get_mut(dir).map(|given| given.forget(&label, when));
                    }
                }
                Invalidation::Attributes(file) => _ = self.attributes.remove(file),
                Invalidation::Pages(file) | Invalidation::Caching(file, _) => {
                    self.attributes.remove(file);
                    self.pages.remove(file);
                }
                Invalidation::Everything => {
                    let (barred, folded_only) = (std::mem::take(&mut self.barred), self.folded_only);
                    *self = Kernel { barred, folded_only, ..Kernel::default() }
                }
            }
        }
    }

    /// Drops all entries, without a lock.
    pub fn drops_entries(&mut self) {
        self.names.clear();
    }
}

impl ReadPages {
    /// The bytes of this range, as far as they were read and so much was asked for.
    fn within(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let from = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let to = from.checked_add(usize::try_from(length).ok()?)?;
        let to = if self.ends && from <= self.bytes.len() { to.min(self.bytes.len()) } else { to };
        self.bytes.get(from..to).map(<[u8]>::to_vec)
    }
}

/// The directories that a call keeps locked until it is answered.
pub(crate) fn locks(call: &Call) -> [Option<&FileId>; 2] {
    match call {
        Call::Create(call::Create { dir, .. })
        | Call::Link(call::Link { dir, .. })
        | Call::Unlink(call::Unlink { dir, .. })
        | Call::Lookup(call::Lookup { dir, .. })
        | Call::List(call::List { dir, .. }) => [Some(dir), None],
        Call::Rename(call::Rename { from_dir, to_dir, .. }) => [Some(from_dir), Some(to_dir)],
        _ => [None, None],
    }
}
