//! Farsite's two microbenchmarks on leases (Farsite §8.2.3, §8.2.4), with what is counted in them: real clients, one real server, and a seed that says whose
//! turn it is. Every answer is checked.

use crate::cluster::Violation;
use crate::many::{Office, Program};
use bytes::Bytes;
use client::{Call, Reply};
use directory::Policy;
use ident::FileId;
use lease::{Field, Granularity, Label, Mode, Open, Released};
use namespace::{Error, FileKind, RenameMode};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use wire::{FileGrant, ToClient};

/// Editors in [`file_field`], and what each of them saves so often (Farsite §8.3.3: 100 saves).
const EDITED: [&str; 2] = ["letter", "novel"];
const SAVES: u64 = 50;
/// Clients in [`disjunctive`] beside the creator, and how often each opens the file (Farsite §8.3.4).
const OPENERS: u64 = 12;
const ITERATIONS: u64 = 100;
/// What they open.
const OPENED: &str = "document";
/// How an editor opens what it saves.
const WRITING: Open = Open::posix(false, true);

/// Leases that the server issued and recalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// On how many single fields of those that are counted: an infinite lease is one, and so is everything of a file.
    pub fields: u64,
    /// In how many grants of the file. With a single lease for each file that is the leases; the modes of an open are needed, and so granted, together.
    pub grants: u64,
    /// In how many messages any of them was recalled.
    pub recalls: u64,
    /// Operations that the server did itself, whatever they were on: nobody was granted anything for them, so a count of leases does not show them.
    pub shipped: u64,
}

impl Leases {
    /// Those on the fields of `file` that are `counted`.
    fn among(heard: &[ToClient], file: &FileId, counted: impl Fn(&Field) -> bool) -> Leases {
        let mut leases = Leases::default();
        for message in heard {
            match message {
                ToClient::Granted { grants, .. } => {
                    for grant in grants.iter().filter(|grant| grant.file == *file) {
                        let fields = fields_of(grant, &counted);
                        leases.fields += fields;
                        leases.grants += u64::from(fields > 0);
                    }
                }
                ToClient::Recall { leases: recalled } => {
                    let concerned = |it: &Released| it.file == *file && counted(&it.field);
                    leases.recalls += u64::from(recalled.iter().any(concerned));
                }
                ToClient::Shipped { .. } => leases.shipped += 1,
                _ => {}
            }
        }
        leases
    }
}

fn fields_of(grant: &FileGrant, counted: impl Fn(&Field) -> bool) -> u64 {
    if grant.whole { 1 } else { grant.fields.iter().filter(|(field, _)| counted(field)).count() as u64 }
}

/// Two clients edit two files in one directory, fifty saves each (Farsite §8.2.3). The leases on the directory's labels, from where nobody
/// holds anything.
pub fn file_field(seed: u64, granularity: Granularity) -> Result<Leases, Violation> {
    edit(seed, granularity, SAVES)
}

fn edit(seed: u64, granularity: Granularity, saves: u64) -> Result<Leases, Violation> {
    let policy = Policy { granularity, ..Policy::default() };
    let mut office = Office::with_programs(seed, EDITED.len() as u64, policy);
    let (names, made) = (EDITED.into_iter().flat_map(|name| [label(name), backup(name)]), Made::default());
    office.run_programs([(0, Installer::of(names, None, made.clone()))])?;
    // The machine that made the files starts again: what it held is free.
    office.deliver()?;
    office.stop(0);
    office.deliver()?;
    office.heard = Some(Vec::new());
    let made = made.take();
    let saved: Vec<Saved> = made.chunks(2).map(Edited::installed).collect();
    let editors = EDITED.into_iter().zip(&saved).map(|(name, saved)| Editor::of(name, saves, saved.clone()));
    office.run_programs(editors.enumerate())?;
    let heard = office.heard.take().unwrap_or_default();
    // Each finds what the other saved last.
    let readers = EDITED.into_iter().zip(&saved).map(|(name, saved)| Reader::of(name, saved));
    office.run_programs([1, 0].into_iter().zip(readers))?;
    office.finish()?;
    let of_labels = |field: &Field| matches!(field, Field::Child(_) | Field::Children);
    Ok(Leases::among(&heard, &FileId::root(), of_labels))
}

/// One client creates a file and keeps it open; twelve others open and close it again and again (Farsite §8.2.4). The leases on the file's black
/// boxes, from its creation on.
pub fn disjunctive(seed: u64, granularity: Granularity) -> Result<Leases, Violation> {
    let policy = Policy { granularity, ..Policy::default() };
    let mut office = Office::with_programs(seed, OPENERS + 1, policy);
    office.heard = Some(Vec::new());
    let made = Made::default();
    office.run_programs([(
        0,
        Installer::of([label(OPENED)].into_iter(), Some(exclusive_write()), made.clone()),
    )])?;
    let file = made.take().pop().ok_or("nothing was made")?;
    office.run_programs((1..=OPENERS as usize).map(|at| (at, Opener::of(file.clone()))))?;
    let heard = office.heard.take().unwrap_or_default();
    office.finish()?;
    Ok(Leases::among(&heard, &file, Field::is_black_box))
}

/// What must come of a call.
#[derive(Clone, Debug)]
enum Due {
    Nothing,
    /// This file, or any.
    Node(Option<FileId>),
    /// This file, of this size.
    Same(FileId, u64),
    NotFound,
    /// Somebody has it open so that it does not go together.
    Conflict,
    Opened,
    Written(usize),
}

impl Due {
    /// Whether that is what came; of a node, which file.
    fn check(&self, call: &Call, answer: Result<Reply, Error>) -> Result<Option<FileId>, Violation> {
        let (fits, found) = match (self, &answer) {
            (Due::Nothing, Ok(Reply::Nothing))
            | (Due::NotFound, Err(Error::NotFound))
            | (Due::Conflict, Err(Error::SharingViolation))
            | (Due::Opened, Ok(Reply::Opened { .. })) => (true, None),
            (Due::Node(due), Ok(Reply::Node(entry, _))) => {
                (due.as_ref().is_none_or(|due| *due == entry.file), Some(entry.file.clone()))
            }
            (Due::Same(file, size), Ok(Reply::Node(entry, stat))) => {
                (*file == entry.file && *size == stat.size, None)
            }
            (Due::Written(length), Ok(Reply::Written(written))) => (*length == *written as usize, None),
            _ => (false, None),
        };
        if fits { Ok(found) } else { Err(format!("{call:?} came to {answer:?}, and {self:?} was due")) }
    }
}

/// A program of calls of which each knows what must come of it.
struct Script<S> {
    /// What the calls are made from.
    state: S,
    /// The call under way.
    due: Option<(Call, Due)>,
}

/// What a [`Script`] does.
trait Steps {
    /// The next call, after the last one came to this file (if to any).
    fn step(&mut self, found: Option<FileId>) -> Option<(Call, Due)>;
}

impl<S: Steps + 'static> Script<S> {
    fn of(state: S) -> Box<dyn Program> {
        Box::new(Script { state, due: None })
    }
}

impl<S: Steps> Program for Script<S> {
    fn next(&mut self, answer: Option<Result<Reply, Error>>) -> Result<Option<Call>, Violation> {
        let found = match (self.due.take(), answer) {
            (Some((call, due)), Some(answer)) => due.check(&call, answer)?,
            (None, None) => None,
            (due, answer) => return Err(format!("{answer:?} came, and {due:?} was due")),
        };
        self.due = self.state.step(found);
        Ok(self.due.as_ref().map(|(call, _)| call.clone()))
    }
}

/// Files in the order in which they were made.
type Made = Rc<RefCell<Vec<FileId>>>;

/// Makes files, empty, and keeps them open or not.
struct Installer {
    calls: VecDeque<(Call, Due)>,
    made: Made,
}

impl Installer {
    fn of(names: impl Iterator<Item = Label>, open: Option<Open>, made: Made) -> Box<dyn Program> {
        let creates = names.map(|name| (create(name, open), Due::Node(None)));
        let calls = creates.chain([(Call::SyncAll, Due::Nothing)]).collect();
        Script::of(Installer { calls, made })
    }
}

impl Steps for Installer {
    fn step(&mut self, found: Option<FileId>) -> Option<(Call, Due)> {
        self.made.borrow_mut().extend(found);
        self.calls.pop_front()
    }
}

/// Saves a file as GNU Emacs does (Farsite §8.2.3: a creation, a deletion and a rename for each save).
///
/// When a buffer is saved for the first time since its file was visited, `backup-buffer` renames the file to its backup name (the name and a tilde), and
/// `write-region` creates it anew, writes it, syncs it and looks at it once more for its modification time. Before all that, `verify-visited-file-modtime` looks whether somebody
/// else has changed it. Where a rename does not replace, as on Windows, where the paper measured, the old backup is deleted first. So it is
/// here. The auto-save file (`#name#`) and the lock (`.#name`) would be more creations and deletions than the paper has.
///
/// Before a name is used, a front door looks it up.
struct Editor {
    label: Label,
    backup: Label,
    /// Saves that are left, this one included.
    saves: u64,
    step: usize,
    saved: Saved,
}

/// What an editor and its reader know of a file.
type Saved = Rc<RefCell<Edited>>;

/// What stands under the primary name and the backup name, and the size of the former.
#[derive(Clone, Debug)]
struct Edited {
    file: FileId,
    size: u64,
    old: FileId,
}

impl Edited {
    /// The two files, both empty.
    fn installed(files: &[FileId]) -> Saved {
        let of = |at: usize| files.get(at).cloned().unwrap_or_else(FileId::root);
        Rc::new(RefCell::new(Edited { file: of(0), size: 0, old: of(1) }))
    }
}

impl Editor {
    fn of(name: &str, saves: u64, saved: Saved) -> Box<dyn Program> {
        Script::of(Editor { label: label(name), backup: backup(name), saves, step: 0, saved })
    }
}

impl Steps for Editor {
    fn step(&mut self, found: Option<FileId>) -> Option<(Call, Due)> {
        let mut saved = self.saved.borrow_mut();
        let (dir, label, backup) = (FileId::root(), self.label.clone(), self.backup.clone());
        let step = self.step;
        self.step += 1;
        Some(match step {
            0 if self.saves == 0 => return None,
            // Is it still what was visited?
            0 => (lookup(label), Due::Same(saved.file.clone(), saved.size)),
            1 => (lookup(backup), Due::Node(Some(saved.old.clone()))),
            2 => (Call::Unlink { dir, label: backup, directory: false }, Due::Nothing),
            3 => (lookup(backup), Due::NotFound),
            4 => {
                let (from_dir, to_dir, mode) = (dir.clone(), dir, RenameMode::Replace);
                (Call::Rename { from_dir, from: label, to_dir, to: backup, mode }, Due::Nothing)
            }
            5 => {
                saved.old = saved.file.clone();
                (lookup(label), Due::NotFound)
            }
            6 => (create(label, Some(WRITING)), Due::Node(None)),
            7 => {
                (saved.file, saved.size) = (found?, saved.size + 1);
                let data = Bytes::from(vec![b'.'; saved.size as usize]);
                let length = data.len();
                (
                    Call::Write { file: saved.file.clone(), offset: 0, data, append: false },
                    Due::Written(length),
                )
            }
            8 => (Call::Sync { file: saved.file.clone() }, Due::Nothing),
            9 => (Call::Close { file: saved.file.clone(), open: WRITING }, Due::Nothing),
            _ => {
                (self.saves, self.step) = (self.saves - 1, 0);
                (lookup(label), Due::Same(saved.file.clone(), saved.size))
            }
        })
    }
}

/// Looks once whether a file is what was saved.
struct Reader {
    look: Option<(Call, Due)>,
}

impl Reader {
    fn of(name: &str, saved: &Saved) -> Box<dyn Program> {
        let saved = saved.borrow();
        Script::of(Reader { look: Some((lookup(label(name)), Due::Same(saved.file.clone(), saved.size))) })
    }
}

impl Steps for Reader {
    fn step(&mut self, _: Option<FileId>) -> Option<(Call, Due)> {
        self.look.take()
    }
}

/// Opens the file and closes it, again and again.
struct Opener {
    file: FileId,
    /// Steps done.
    done: u64,
}

impl Opener {
    fn of(file: FileId) -> Box<dyn Program> {
        Script::of(Opener { file, done: 0 })
    }

    /// One iteration: "Each open is first attempted with shared-read/exclusive-write access, and when this fails, the open is repeated with shared-read
    /// access" (Farsite §8.2.4).
    fn iteration(&self) -> [(Call, Due); 4] {
        let (file, reading) = (self.file.clone(), Open::posix(true, false));
        [
            (lookup(label(OPENED)), Due::Node(Some(file.clone()))),
            (Call::Open { file: file.clone(), open: exclusive_write(), mask: 6 }, Due::Conflict),
            (Call::Open { file: file.clone(), open: reading, mask: 4 }, Due::Opened),
            (Call::Close { file, open: reading }, Due::Nothing),
        ]
    }
}

impl Steps for Opener {
    fn step(&mut self, _: Option<FileId>) -> Option<(Call, Due)> {
        let iteration = self.iteration();
        let steps = iteration.len() as u64;
        let step = self.done % steps;
        self.done += 1;
        if self.done > ITERATIONS * steps { None } else { iteration.into_iter().nth(step as usize) }
    }
}

fn lookup(label: Label) -> Call {
    Call::Lookup { dir: FileId::root(), label }
}

/// Shared-read/exclusive-write access: reads and writes, others only read.
fn exclusive_write() -> Open {
    Open::with([Mode::AccessRead, Mode::AccessWrite, Mode::ExcludeWrite])
}

fn create(label: Label, open: Option<Open>) -> Call {
    let (dir, kind, target) = (FileId::root(), FileKind::Regular, Vec::new());
    Call::Create { dir, label, kind, mode: 0o644, umask: 0o022, rdev: 0, target, open }
}

#[expect(clippy::expect_used, reason = "the names above are short")]
fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).expect("a label")
}

fn backup(name: &str) -> Label {
    label(&format!("{name}~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bars hold whatever comes in what order.
    const SEEDS: u64 = 10;

    #[test]
    fn editors_of_two_files_share_a_directory() {
        for seed in 0..SEEDS {
            let fields = file_field(seed, Granularity::Fields).unwrap();
            let files = file_field(seed, Granularity::Files).unwrap();
            println!("seed {seed}: {fields:?}; a single lease for each file: {files:?}");
            assert!(fields.fields <= 6 && fields.shipped == 0, "seed {seed}: {fields:?}");
            assert!(files.grants > 100, "seed {seed}: {files:?}");
            // "In the control run, the count of leases is proportional to editor saves, but in the experimental run, the count of leases is constant."
            assert_eq!(edit(seed, Granularity::Fields, 2 * SAVES).unwrap(), fields, "seed {seed}");
            let files_twice = edit(seed, Granularity::Files, 2 * SAVES).unwrap();
            assert!(
                2 * files_twice.grants > 3 * files.grants,
                "seed {seed}: {files:?}, then {files_twice:?}"
            );
        }
    }

    #[test]
    fn those_that_open_one_file_share_its_black_boxes() {
        for seed in 0..SEEDS {
            let fields = disjunctive(seed, Granularity::Fields).unwrap();
            let single_writer = disjunctive(seed, Granularity::SingleWriter).unwrap();
            println!("seed {seed}: {fields:?}; one writer or many readers: {single_writer:?}");
            assert!(
                fields.grants <= 13 && fields.recalls <= 1 && fields.shipped == 0,
                "seed {seed}: {fields:?}"
            );
            let Leases { grants, recalls, .. } = single_writer;
            assert!(grants > 1_200 && recalls > 1_200, "seed {seed}: {single_writer:?}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_figures() {
        let figures =
            || (file_field(1, Granularity::Files).unwrap(), disjunctive(1, Granularity::Fields).unwrap());
        assert_eq!(figures(), figures());
    }

    /// What a program is told is compared with what is due to it.
    #[test]
    fn a_wrong_answer_is_found() {
        let mut office = Office::with_programs(0, 1, Policy::default());
        let made = Made::default();
        office.run_programs([(0, Installer::of([label("novel")].into_iter(), None, made.clone()))]).unwrap();
        let saved =
            Rc::new(RefCell::new(Edited { file: made.take().remove(0), size: 1, old: FileId::root() }));
        let wrong = office.run_programs([(0, Reader::of("novel", &saved))]).unwrap_err();
        assert!(wrong.contains("was due"), "{wrong}");
    }
}
