//! Opening, deleting and emptying on several machines.

use super::oracle::record_key;
use super::workload::CALLS_MAX;
use super::*;
use crate::calls::create;
use directory::Store;
use lease::{Label, Mode};

/// So many machines, which have greeted the server.
fn greeted(seed: u64, machines: u64) -> ManyMachines {
    let mut office = ManyMachines::new(seed, machines, Policy::default(), 6, || TurnWork::Any).unwrap();
    office.drain();
    office
}

impl ManyMachines {
    fn drain(&mut self) {
        self.deliver().unwrap();
    }

    fn calls(&mut self, at: usize, call: Call, doing: Doing) {
        self.call(at, call, doing).unwrap();
        self.drain();
        assert!(self.programs[at].calls.is_empty(), "{:?} wait", self.programs[at].calls);
    }

    /// Makes `a`, without a handle or with one opened so.
    fn creates(&mut self, at: usize, open: Option<OpenModes>) -> FileId {
        let call = create(FileId::root(), Label::new(b"a").unwrap(), FileKind::Regular, open);
        self.calls(at, call, Doing::Create(open));
        self.calls(at, Call::SyncAll, Doing::Name);
        self.known.last().unwrap().clone()
    }

    /// Tries to open the file; returns whether that succeeded.
    fn tries(&mut self, at: usize, file: &FileId, open: OpenModes) -> bool {
        let handles = |office: &ManyMachines| office.programs[at].open.get(file).map_or(0, Vec::len);
        let before = handles(self);
        self.calls(
            at,
            Call::OpenFile(call::OpenFile { file: file.clone(), open, mask: 0 }),
            Doing::Open(file.clone(), open),
        );
        handles(self) > before
    }

    fn opens(&mut self, at: usize, file: &FileId) {
        assert!(self.tries(at, file, READING));
    }

    fn closes(&mut self, at: usize, file: &FileId, open: OpenModes) {
        self.calls(at, Call::Close(call::Close { file: file.clone(), open }), Doing::Name);
    }

    fn unlinks(&mut self, at: usize) {
        let call = Call::Unlink(call::Unlink {
            dir: FileId::root(),
            label: Label::new(b"a").unwrap(),
            directory: false,
            pending: None,
        });
        self.calls(at, call, Doing::Name);
    }

    /// Sets the deletion disposition; returns false if no handle has the right to.
    fn dooms(&mut self, at: usize, file: &FileId) -> bool {
        let before = self.tally.doomed;
        let link = self.names.get(file).cloned();
        self.calls(
            at,
            Call::SetDisposition(call::SetDisposition { file: file.clone(), link }),
            Doing::Doom(true),
        );
        self.tally.doomed > before
    }

    fn is_there(&self, file: &FileId) -> bool {
        self.host.server.store.get(&record_key(file)).is_some()
    }
}

const READING: OpenModes = OpenModes::posix(true, false);

/// Farsite §8.3.3: the cost of opens and closes depends on the number of clients, not of opens.
#[test]
fn messages_are_in_proportion_to_clients_not_to_opens() {
    let messages = |machines: u64, rounds: u32| {
        let mut office = greeted(7, machines);
        let file = office.creates(0, None);
        let before = office.tally.messages;
        for _ in 0..rounds {
            for at in 0..machines as usize {
                office.opens(at, &file);
                office.opens(at, &file);
                office.closes(at, &file, READING);
                office.closes(at, &file, READING);
            }
        }
        office.tally.messages - before
    };
    let (once, often) = (messages(12, 1), messages(12, 100));
    println!("12 clients: {once} messages for 24 opens, {often} for 2,400");
    assert_eq!(once, often);
    // Each client asks once and is answered once; the first client's leases on the others' values
    // are recalled once.
    assert!(once <= 3 * 12, "{once}");
    // With one machine no message is ever sent.
    assert_eq!(messages(1, 100), 0);
}

/// Whether two handles, as Windows describes them, do not conflict. Each has bits for read, write
/// and delete: its access, and the access it shares. They go together if neither may do what the
/// other does not share (BlackBox §4.4, in the words of its first paragraph).
fn go_together((access, share): (u8, u8), (other_access, other_share): (u8, u8)) -> bool {
    access & !other_share == 0 && other_access & !share == 0
}

fn opening((access, share): (u8, u8)) -> OpenModes {
    let bits = |flags: u8, modes: [Mode; 3]| {
        modes.into_iter().enumerate().filter(move |(bit, _)| flags & (1 << bit) != 0).map(|(_, mode)| mode)
    };
    let access = bits(access, [Mode::AccessRead, Mode::AccessWrite, Mode::AccessDelete]);
    OpenModes::with(access.chain(bits(!share, [Mode::ExcludeRead, Mode::ExcludeWrite, Mode::ExcludeDelete])))
}

fn all_openings() -> impl Iterator<Item = (u8, u8)> {
    (0..8).flat_map(|access| (0..8).map(move |share| (access, share)))
}

/// All 64 × 64 pairs, on two machines and on one. An open that fails again for the same reason
/// sends no message (Farsite §6).
#[test]
fn handles_go_together_as_windows_has_it() {
    for first in all_openings() {
        let mut office = greeted(1, 2);
        let file = office.creates(0, Some(opening(first)));
        for second in all_openings() {
            for at in [1, 0] {
                let opened = office.tries(at, &file, opening(second));
                assert_eq!(opened, go_together(first, second), "{first:?} and {second:?} at {at}");
                let before = office.tally.messages;
                if opened {
                    office.closes(at, &file, opening(second));
                } else {
                    assert!(!office.tries(at, &file, opening(second)));
                    assert_eq!(office.tally.messages, before, "{first:?} and {second:?} at {at}");
                }
            }
        }
    }
}

/// With many creators a directory is removed exactly when it is empty, and no file made in it is
/// lost.
#[test]
fn a_directory_is_emptied_and_removed_among_many_creators() {
    let (mut removed, mut refused) = (0, 0);
    for seed in 0..200 {
        let mut office = greeted(seed, 4);
        let name = Label::new(b"d").unwrap();
        let root = FileId::root();
        office.calls(0, create(root.clone(), name.clone(), FileKind::Directory, None), Doing::Create(None));
        office.calls(0, Call::SyncAll, Doing::Name);
        let dir = office.dirs.pop().unwrap();
        for round in 0..60 {
            let at = office.host.below(4) as usize;
            let label = office.label();
            let call = match office.host.below(7) {
                0..2 => create(dir.clone(), label, FileKind::Regular, None),
                2..6 => {
                    Call::Unlink(call::Unlink { dir: dir.clone(), label, directory: false, pending: None })
                }
                _ => Call::Unlink(call::Unlink {
                    dir: root.clone(),
                    label: name.clone(),
                    directory: true,
                    pending: None,
                }),
            };
            if office.programs[at].calls.len() < CALLS_MAX {
                office.call(at, call, Doing::Name).unwrap();
            }
            for _ in 0..office.host.below(6) {
                let at = office.host.below(4) as usize;
                office.host.server_receives(at).unwrap();
                office.client_receives(at).unwrap();
                office.hear().unwrap();
            }
            if round % 20 == 19 {
                office.rest().unwrap();
            }
        }
        office.finish().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        if office.is_there(&dir) { refused += 1 } else { removed += 1 }
    }
    println!("removed in {removed} of {} runs", removed + refused);
    assert!(removed > 50 && refused > 10, "{removed} {refused}");
}

/// A new file takes its access list from its directory's default list. The absence of that list is
/// knowledge, too, under a lease on that name alone as under any other.
#[test]
fn who_creates_again_asks_nobody() {
    let mut office = greeted(7, 2);
    let mut makes = |at: usize, name: &[u8]| {
        let before = office.tally.messages;
        let (dir, label) = (FileId::root(), Label::new(name).unwrap());
        let call = create(dir.clone(), label.clone(), FileKind::Regular, None);
        office.calls(at, call, Doing::Create(None));
        office.calls(
            at,
            Call::Unlink(call::Unlink { dir, label, directory: false, pending: None }),
            Doing::Name,
        );
        office.tally.messages - before
    };
    // The first machine has all of the directory, the second the leases that it needs.
    assert_ne!((makes(0, b"a"), makes(1, b"b")), (0, 0));
    assert_eq!((makes(0, b"a"), makes(1, b"b")), (0, 0));
}

/// The plan of a run of [`a_file_is_there_while_anybody_has_it_open`].
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Whether the file is unlinked, or its disposition set.
    unlink: bool,
    /// The deleting machine: one that has the file open, or the third.
    deleter: usize,
    /// The machine that closes first.
    first: usize,
    /// A machine that stops, and the step before which it does.
    stops: Option<(usize, usize)>,
    /// The step before which the server starts again.
    restarts: Option<usize>,
    /// Whether other machines have learnt that the file is open elsewhere.
    seen: bool,
}

fn carry_out(plan: Plan) {
    let mut office = greeted(plan.deleter as u64, 3);
    let deleting = OpenModes::with([Mode::AccessRead, Mode::AccessDelete]);
    let file = office.creates(0, Some(deleting));
    assert!(office.tries(1, &file, deleting));
    if plan.seen {
        // The file has a second name for a moment. Removing the first name asks for no handles;
        // removing the last name does.
        let (dir, label) = (FileId::root(), Label::new(b"b").unwrap());
        let link = Call::Link(call::Link {
            file: file.clone(),
            dir: dir.clone(),
            label: label.clone(),
            replaced: None,
        });
        office.calls(2, link, Doing::Name);
        office.calls(
            2,
            Call::Unlink(call::Unlink { dir, label, directory: false, pending: None }),
            Doing::Name,
        );
    }
    let mut named = true;
    for step in 0..4 {
        if plan.restarts == Some(step) {
            office.host.restart().unwrap();
        }
        if let Some((at, _)) = plan.stops.filter(|(_, before)| *before == step) {
            office.stop(at).unwrap();
            office.drain();
        }
        match step {
            0 if plan.unlink => {
                office.unlinks(plan.deleter);
                named = false;
            }
            0 => {
                if plan.deleter == 2 {
                    assert!(office.tries(2, &file, deleting));
                }
                named = !office.dooms(plan.deleter, &file);
                if plan.deleter == 2 {
                    office.closes(2, &file, deleting);
                }
                assert!(named || !office.tries(2, &file, READING), "{plan:?}: it is to go");
            }
            1 => office.closes(plan.first, &file, deleting),
            2 => office.closes(1 - plan.first, &file, deleting),
            _ => {}
        }
        // Every update of this step is at the server.
        for at in 0..3 {
            office.calls(at, Call::SyncAll, Doing::Name);
        }
        let open = office.programs.iter().any(|programs| programs.open.contains_key(&file));
        assert_eq!(office.is_there(&file), named || open, "{plan:?} after step {step}");
        office.host.server.check().unwrap_or_else(|what| panic!("{plan:?} after step {step}: {what}"));
    }
    office.finish().unwrap();
    assert_eq!(office.host.server.directory.status(office.host.now).files, 1 + u64::from(named), "{plan:?}");
}

/// A file is unlinked while open elsewhere, or set to be deleted at the last close. The runs have
/// every order of closes, either session ending, and the server's restart, each at every step.
#[test]
fn a_file_is_there_while_anybody_has_it_open() {
    let stops = (0..2).flat_map(|at| (0..4).map(move |step| Some((at, step))));
    for stops in stops.chain([None]) {
        for restarts in (0..4).map(Some).chain([None]) {
            for (unlink, deleter) in (0..3).flat_map(|deleter| [(true, deleter), (false, deleter)]) {
                for (first, seen) in [(0, false), (1, false), (0, true), (1, true)] {
                    carry_out(Plan { unlink, deleter, first, stops, restarts, seen });
                }
            }
        }
    }
}
