//! Compares a directory with its last snapshot, and finds the events for its watchers: pure.
//!
//! The kernel has already told its watchers of changes through this mount. So a snapshot follows
//! those operations ([`Snapshot::begin`], [`Snapshot::end`]), and any difference from it is another
//! machine's work. Attributes and content are compared only for files that were recalled
//! ([`Snapshot::doubt`]): while they are leased no other machine changes them.

use ident::FileId;
use lease::Label;
use namespace::{FileKind, Stat, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// An event for the watchers of a directory, about a name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileEvent {
    /// The name is gone.
    Removed { name: Label, directory: bool },
    /// A file has another name now.
    Renamed { from: Label, to: Label, directory: bool },
    /// The name is another file's now.
    Replaced { name: Label },
    /// The name is new.
    Made { name: Label, directory: bool },
    /// The file's content may have changed.
    Modified { name: Label },
    /// The file's attributes have changed.
    Changed { name: Label },
}

/// The attributes of a file whose changes watchers hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looks {
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
    /// Mode, owner, group.
    rights: (u16, u32, u32),
}

impl Looks {
    pub(crate) fn of(stat: &Stat) -> Looks {
        let of = &stat.attributes;
        let (size, mtime, ctime) = (stat.size, stat.mtime, of.ctime);
        Looks { size, mtime, ctime, rights: (of.mode, of.uid, of.gid) }
    }
}

/// A name as a look has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Unknown for a name that a rename here has just brought.
    pub(crate) file: Option<FileId>,
    pub(crate) kind: FileKind,
    pub(crate) looks: Option<Looks>,
    /// No lease covers these attributes.
    pub(crate) uncached: bool,
}

impl Seen {
    fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// The names of a directory, each as it was seen.
pub(crate) type NameList = BTreeMap<Label, Seen>;

/// The result of an operation of this machine on a name.
#[derive(Clone, Debug)]
pub(crate) enum CallDone {
    Nothing,
    Gone,
    Bound(Seen),
}

/// The state of a directory of which its watchers have been told.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    names: NameList,
    /// Names with operations of this machine under way, and how many.
    busy: FxHashMap<Label, u32>,
    /// Names with operations of this machine that have ended since the last look. They count from
    /// the look's beginning while it is under way, and then from its end if it found events.
    touched: Option<FxHashSet<Label>>,
    /// Files that were recalled since the last look began.
    doubted: FxHashSet<FileId>,
    /// Files that were recalled before that. The look under way compares them.
    asked: FxHashSet<FileId>,
    /// It has not been seen yet.
    pub(crate) is_new: bool,
}

impl Snapshot {
    pub(crate) fn new() -> Snapshot {
        Snapshot { is_new: true, ..Snapshot::default() }
    }

    /// Notes that an operation of this machine on a name begins.
    pub(crate) fn begin(&mut self, name: &Label) {
        *self.busy.entry(name.clone()).or_default() += 1;
    }

    /// Notes that it has ended.
    pub(crate) fn end(&mut self, name: &Label, done: CallDone) {
        if let Some(busy) = self.busy.get_mut(name) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(name);
            }
        }
        if let Some(touched) = &mut self.touched {
            touched.insert(name.clone());
        }
        match done {
            CallDone::Nothing => {}
            CallDone::Gone => _ = self.names.remove(name),
            CallDone::Bound(seen) => _ = self.names.insert(name.clone(), seen),
        }
    }

    /// Whether an operation of this machine on a name has ended since the look that found it
    /// changed.
    pub(crate) fn is_touched(&self, name: &Label) -> bool {
        self.touched.as_ref().is_none_or(|touched| touched.contains(name))
    }

    /// The last known state of a name.
    pub(crate) fn seen(&self, name: &Label) -> Option<&Seen> {
        self.names.get(name)
    }

    /// Notes that other machines may change `file` from here on. Until now it looked like `looks`.
    pub(crate) fn doubt(&mut self, file: &FileId, looks: Option<Looks>) {
        self.doubted.insert(file.clone());
        if let Some(looks) = looks {
            let named = self.names.values_mut().filter(|seen| seen.file.as_ref() == Some(file));
            named.for_each(|seen| seen.looks = Some(looks));
        }
    }

    /// Notes that other machines may have changed any of the files.
    pub(crate) fn doubt_all(&mut self) {
        self.doubted.extend(self.names.values().filter_map(|seen| seen.file.clone()));
    }

    /// Begins a look. It may or may not see the changes that this machine makes meanwhile.
    pub(crate) fn begin_look(&mut self) {
        self.touched = Some(FxHashSet::default());
        self.asked.extend(self.doubted.drain());
    }

    /// Ends a look without a result.
    pub(crate) fn end_look(&mut self) {
        self.touched = None;
        self.doubted.extend(self.asked.drain());
    }

    /// Ends a look that has found `now`. Returns the events, and whether some names must be looked
    /// at once more.
    pub(crate) fn compare(&mut self, now: NameList) -> (Vec<FileEvent>, bool) {
        let touched = self.touched.take().unwrap_or_default();
        let is_unclear = |name: &Label| self.busy.contains_key(name) || touched.contains(name);
        let before = std::mem::take(&mut self.names);
        let (mut old, mut new, mut kept) = (NameList::new(), NameList::new(), NameList::new());
        let mut again = false;
        for (name, seen) in before {
            if is_unclear(&name) {
                again = true;
                kept.insert(name, seen);
            } else {
                old.insert(name, seen);
            }
        }
        for (name, seen) in now {
            if is_unclear(&name) {
                again = true;
            } else {
                new.insert(name, seen);
            }
        }
        let mut events = if self.is_new { Vec::new() } else { of_names(&old, &new) };
        let mut looked = Vec::new();
        let asked = std::mem::take(&mut self.asked);
        let is_doubted = |file: &FileId| asked.contains(file) || self.doubted.contains(file);
        for (name, seen) in &new {
            let Some(file) = &seen.file else { continue };
            let was = old.get(name);
            let same = was.filter(|was| was.file.as_ref() == Some(file));
            match same {
                Some(was) if was.uncached || is_doubted(file) => looked.extend(of_looks(name, was, seen)),
                Some(_) => {}
                // A new file with content was written to by now.
                None if was.is_none_or(|was| was.file.is_some())
                    && seen.kind == FileKind::Regular
                    && seen.looks.is_some_and(|looks| looks.size > 0)
                    && !events
                        .iter()
                        .any(|event| matches!(event, FileEvent::Renamed { to, .. } if to == name)) =>
                {
                    looked.push(FileEvent::Modified { name: name.clone() });
                }
                None => {}
            }
        }
        // The doubt stays for unclear names. Files that were recalled meanwhile may change yet.
        let unclear = kept.values().filter_map(|seen| seen.file.as_ref());
        let unclear: Vec<FileId> = unclear.filter(|file| asked.contains(*file)).cloned().collect();
        self.doubted.extend(unclear);
        if !self.is_new {
            events.extend(looked);
        }
        self.is_new = false;
        self.touched = (!events.is_empty()).then(FxHashSet::default);
        new.append(&mut kept);
        self.names = new;
        (events, again)
    }
}

/// The events of names that were removed, moved or made.
fn of_names(old: &NameList, new: &NameList) -> Vec<FileEvent> {
    let is_other = |name: &Label| match (old.get(name), new.get(name)) {
        (Some(was), Some(is)) => was.file.is_some() && was.file != is.file,
        (was, is) => was.is_some() != is.is_some(),
    };
    let mut from: FxHashMap<&FileId, &Label> = FxHashMap::default();
    for (name, seen) in old.iter().filter(|(name, _)| is_other(name)) {
        if let Some(file) = &seen.file {
            from.insert(file, name);
        }
    }
    let mut renames: BTreeMap<&Label, (&Label, bool)> = BTreeMap::new();
    let mut rest: Vec<(&Label, &Seen)> = Vec::new();
    for (name, seen) in new.iter().filter(|(name, _)| is_other(name)) {
        match seen.file.as_ref().and_then(|file| from.remove(file)) {
            Some(before) => _ = renames.insert(before, (name, seen.is_directory())),
            None => rest.push((name, seen)),
        }
    }
    let (mut removed, mut made) = (Vec::new(), Vec::new());
    let moved_to: BTreeSet<&Label> = renames.values().map(|(to, _)| *to).collect();
    for (name, was) in old {
        if !new.contains_key(name) && !renames.contains_key(name) && !moved_to.contains(name) {
            removed.push(FileEvent::Removed { name: name.clone(), directory: was.is_directory() });
        }
    }
    for (name, seen) in rest {
        let (name_, directory) = (name.clone(), seen.is_directory());
        match old.get(name).filter(|_| !renames.contains_key(name)) {
            Some(was) if was.is_directory() || directory => {
                removed.push(FileEvent::Removed { name: name_.clone(), directory: was.is_directory() });
                made.push(FileEvent::Made { name: name_, directory });
            }
            Some(_) => made.push(FileEvent::Replaced { name: name_ }),
            None => made.push(FileEvent::Made { name: name_, directory }),
        }
    }
    removed.extend(in_order(renames));
    removed.extend(made);
    removed
}

/// The renames in an order that a watcher can follow: a name that another one moves to moves first,
/// so that each is found as it was.
fn in_order(mut renames: BTreeMap<&Label, (&Label, bool)>) -> Vec<FileEvent> {
    let mut events = Vec::new();
    while let Some(first) = renames.keys().next().copied() {
        let (mut from, mut steps) = (first, renames.len());
        // In a circle any name is as good.
        while let Some((to, _)) = renames.get(from).filter(|(to, _)| steps > 0 && renames.contains_key(*to)) {
            (from, steps) = (*to, steps - 1);
        }
        if let Some((to, directory)) = renames.remove(from) {
            events.push(FileEvent::Renamed { from: from.clone(), to: to.clone(), directory });
        }
    }
    events
}

fn of_looks(name: &Label, was: &Seen, is: &Seen) -> impl Iterator<Item = FileEvent> {
    let (modified, changed) = match (was.looks, is.looks) {
        (Some(was), Some(is)) => {
            let modified = (was.size, was.mtime) != (is.size, is.mtime);
            (modified, was.rights != is.rights || !modified && was.ctime != is.ctime)
        }
        (None, Some(_)) => (false, true),
        (_, None) => (false, false),
    };
    // A directory's times change with its names, of which its own watchers hear.
    let of_rights = |was: &Seen| was.looks.map(|looks| looks.rights);
    let (modified, changed) = if is.is_directory() {
        (false, changed && of_rights(was) != of_rights(is))
    } else {
        (modified, changed)
    };
    let modified = modified.then(|| FileEvent::Modified { name: name.clone() });
    modified.into_iter().chain(changed.then(|| FileEvent::Changed { name: name.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str) -> Label {
        Label::new(name.as_bytes()).unwrap()
    }

    fn looks(size: u64, secs: i64, mode: u16) -> Looks {
        let at = Timestamp { secs, nanos: 0 };
        Looks { size, mtime: at, ctime: at, rights: (mode, 0, 0) }
    }

    /// An empty file with this number.
    fn file(number: u64) -> Seen {
        let looks = Some(looks(0, 1, 0o644));
        let file = Some(FileId::root().child(number));
        Seen { file, kind: FileKind::Regular, looks, uncached: false }
    }

    fn directory(number: u64) -> Seen {
        Seen { kind: FileKind::Directory, ..file(number) }
    }

    fn names(of: &[(&str, Seen)]) -> NameList {
        of.iter().map(|(name, seen)| (label(name), seen.clone())).collect()
    }

    fn seen(of: &[(&str, Seen)]) -> Snapshot {
        let mut snapshot = Snapshot::new();
        snapshot.begin_look();
        assert_eq!(snapshot.compare(names(of)), (Vec::new(), false), "what was there before is no news");
        snapshot
    }

    fn look(snapshot: &mut Snapshot, of: &[(&str, Seen)]) -> Vec<FileEvent> {
        snapshot.begin_look();
        let (events, again) = snapshot.compare(names(of));
        assert!(!again);
        events
    }

    fn made(name: &str) -> FileEvent {
        FileEvent::Made { name: label(name), directory: false }
    }

    fn removed(name: &str) -> FileEvent {
        FileEvent::Removed { name: label(name), directory: false }
    }

    fn renamed(from: &str, to: &str) -> FileEvent {
        FileEvent::Renamed { from: label(from), to: label(to), directory: false }
    }

    fn modified(name: &str) -> FileEvent {
        FileEvent::Modified { name: label(name) }
    }

    fn changed(name: &str) -> FileEvent {
        FileEvent::Changed { name: label(name) }
    }

    #[test]
    fn names_come_go_and_move() {
        let mut snapshot = seen(&[("a", file(1)), ("b", file(2)), ("c", file(3))]);
        let now = [("a", file(4)), ("d", file(2)), ("e", directory(5))];
        let is_directory = FileEvent::Made { name: label("e"), directory: true };
        let replaced = FileEvent::Replaced { name: label("a") };
        assert_eq!(look(&mut snapshot, &now), [removed("c"), renamed("b", "d"), replaced, is_directory]);
        assert!(look(&mut snapshot, &now).is_empty(), "each is told once");
        // A file cannot replace a directory, nor the other way round.
        let gone = FileEvent::Removed { name: label("e"), directory: true };
        assert_eq!(look(&mut snapshot, &[("a", file(4)), ("d", file(2)), ("e", file(6))]), [gone, made("e")]);
    }

    #[test]
    fn what_is_rotated_moves_to_a_free_place_first() {
        let mut snapshot = seen(&[("log", file(1)), ("log.1", file(2)), ("log.2", file(3))]);
        let now = [("log", file(4)), ("log.1", file(1)), ("log.2", file(2))];
        assert_eq!(
            look(&mut snapshot, &now),
            [renamed("log.1", "log.2"), renamed("log", "log.1"), made("log")]
        );
        // Two names that are swapped come in some order.
        let events = look(&mut snapshot, &[("log", file(1)), ("log.1", file(4)), ("log.2", file(2))]);
        assert_eq!(events.len(), 2);
        assert!(events.contains(&renamed("log", "log.1")) && events.contains(&renamed("log.1", "log")));
    }

    #[test]
    fn what_was_recalled_is_compared_and_nothing_else() {
        let mut snapshot = seen(&[("a", file(1)), ("b", file(2)), ("d", directory(3))]);
        let written = |number| Seen { looks: Some(looks(9, 2, 0o644)), ..file(number) };
        let touched = Seen { looks: Some(looks(0, 2, 0o755)), ..directory(3) };
        assert!(look(&mut snapshot, &[("a", written(1)), ("b", file(2)), ("d", touched.clone())]).is_empty());
        snapshot.doubt(&FileId::root().child(2), Some(looks(0, 1, 0o644)));
        let rights = Seen { looks: Some(looks(9, 2, 0o600)), ..file(2) };
        let now = [("a", written(1)), ("b", rights.clone()), ("d", touched.clone())];
        assert_eq!(look(&mut snapshot, &now), [modified("b"), changed("b")]);
        // Changes by this machine before the recall give no event.
        snapshot.doubt(&FileId::root().child(1), Some(looks(11, 3, 0o644)));
        let now =
            [("a", Seen { looks: Some(looks(11, 3, 0o644)), ..file(1) }), ("b", rights), ("d", touched)];
        assert!(look(&mut snapshot, &now).is_empty());
    }

    #[test]
    fn what_is_recalled_during_a_look_is_compared_by_the_next() {
        let mut snapshot = seen(&[("a", file(1))]);
        snapshot.begin_look();
        snapshot.doubt(&FileId::root().child(1), Some(looks(0, 1, 0o644)));
        assert_eq!(snapshot.compare(names(&[("a", file(1))])).0, []);
        let written = Seen { looks: Some(looks(9, 2, 0o644)), ..file(1) };
        assert_eq!(look(&mut snapshot, &[("a", written)]), [modified("a")]);
        // A look without a result forgets nothing.
        snapshot.doubt(&FileId::root().child(1), None);
        snapshot.begin_look();
        snapshot.end_look();
        let written = Seen { looks: Some(looks(10, 3, 0o644)), ..file(1) };
        assert_eq!(look(&mut snapshot, &[("a", written)]), [modified("a")]);
    }

    #[test]
    fn what_no_lease_covers_is_compared_each_time() {
        let uncached = |size, secs| Seen { looks: Some(looks(size, secs, 0o644)), uncached: true, ..file(1) };
        let mut snapshot = seen(&[("a", uncached(1, 1))]);
        assert_eq!(look(&mut snapshot, &[("a", uncached(2, 2))]), [modified("a")]);
        assert!(look(&mut snapshot, &[("a", uncached(2, 2))]).is_empty());
    }

    #[test]
    fn what_is_new_and_has_content_was_written() {
        let written = Seen { looks: Some(looks(9, 2, 0o644)), ..file(1) };
        assert_eq!(look(&mut seen(&[]), &[("a", written.clone())]), [made("a"), modified("a")]);
        assert_eq!(look(&mut seen(&[("b", written.clone())]), &[("a", written)]), [renamed("b", "a")]);
    }

    #[test]
    fn what_is_done_here_is_not_told() {
        let mut snapshot = seen(&[("gone", file(1)), ("here", file(2))]);
        snapshot.begin(&label("new"));
        snapshot.end(&label("new"), CallDone::Bound(file(3)));
        snapshot.begin(&label("gone"));
        snapshot.end(&label("gone"), CallDone::Gone);
        assert!(look(&mut snapshot, &[("here", file(2)), ("new", file(3))]).is_empty());
        // Another machine removes a file that was made here: that is an event.
        assert_eq!(look(&mut snapshot, &[("here", file(2))]), [removed("new")]);
        // A rename from an unwatched directory brings an unknown file. The next look finds out
        // which.
        snapshot.begin(&label("moved"));
        snapshot.end(&label("moved"), CallDone::Bound(Seen { file: None, ..file(9) }));
        assert!(look(&mut snapshot, &[("here", file(2)), ("moved", file(7))]).is_empty());
        assert_eq!(look(&mut snapshot, &[("here", file(2))]), [removed("moved")]);
    }

    #[test]
    fn what_is_done_here_during_a_look_is_looked_at_again() {
        let mut snapshot = seen(&[("a", file(1))]);
        snapshot.begin_look();
        snapshot.begin(&label("b"));
        let now = [("a", file(1)), ("b", file(2)), ("c", file(3))];
        assert_eq!(snapshot.compare(names(&now)), (vec![made("c")], true), "`b` is under way");
        assert!(!snapshot.is_touched(&label("c")));
        snapshot.end(&label("b"), CallDone::Bound(file(2)));
        snapshot.begin(&label("c"));
        snapshot.end(&label("c"), CallDone::Gone);
        assert!(snapshot.is_touched(&label("c")), "what was found is so no more, and was told by the kernel");
        snapshot.begin_look();
        snapshot.begin(&label("a"));
        snapshot.end(&label("a"), CallDone::Gone);
        // The look saw `a` before that.
        assert_eq!(snapshot.compare(names(&[("a", file(1)), ("b", file(2))])), (Vec::new(), true));
        assert!(look(&mut snapshot, &[("b", file(2))]).is_empty());
    }
}
