//! The clients' parts in the experiments: calls, each with its expected answer.

use crate::host::Violation;
use bytes::Bytes;
use client::{Call, Reply, call};
use ident::FileId;
use lease::{Label, Mode, OpenModes};
use namespace::{Error, FileKind, FileSpec, RenameMode};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Times that each opener opens the file (Farsite §8.3.4).
const ITERATIONS: u64 = 100;
/// The file that they open.
pub(super) const OPENED: &str = "document";
/// How an editor opens the file that it saves.
const WRITING: OpenModes = OpenModes::posix(false, true);

/// A client's part in an experiment, and its progress. Any client anywhere can take a part, and
/// returns it with its findings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Actor {
    /// Makes files.
    Install(Installer),
    /// Saves a file again and again.
    Edit(Editor),
    /// Checks once that a file has the saved content's identity and size.
    Read(SavedContentCheck),
    /// Opens a file again and again.
    Open(Opener),
}

impl Actor {
    /// The next call, with the file that the last call found (if any).
    fn step(&mut self, found: Option<FileId>) -> Option<(Call, Due)> {
        match self {
            Actor::Install(installer) => installer.step(found),
            Actor::Edit(editor) => editor.step(found),
            Actor::Read(reader) => reader.look.take().map(|(label, edited)| edited.look(label)),
            Actor::Open(opener) => opener.step(),
        }
    }
}

/// A part under way: one call after the other.
#[derive(Debug)]
pub struct Script {
    part: Actor,
    /// The call under way.
    due: Option<(Call, Due)>,
}

impl Script {
    /// Begins this part.
    pub fn of(part: Actor) -> Script {
        Script { part, due: None }
    }

    /// The next call, after the last one (if any) had the answer `answer`. `None` at the end of the
    /// part. Fails with a description of a wrong answer.
    pub fn next(&mut self, answer: Option<Result<Reply, Error>>) -> Result<Option<Call>, Violation> {
        let found = match (self.due.take(), answer) {
            (Some((call, due)), Some(answer)) => due.check(&call, answer)?,
            (None, None) => None,
            (due, answer) => return Err(format!("{answer:?} came, and {due:?} was due")),
        };
        self.due = self.part.step(found);
        Ok(self.due.as_ref().map(|(call, _)| call.clone()))
    }

    /// The part with its progress so far.
    pub fn into_part(self) -> Actor {
        self.part
    }
}

/// The expected answer to a call.
#[derive(Clone, Debug)]
enum Due {
    Nothing,
    /// This file, or any file.
    Node(Option<FileId>),
    /// This file, of this size.
    Same(FileId, u64),
    NotFound,
    /// Another handle conflicts.
    Conflict,
    Opened,
    Written(usize),
}

impl Due {
    /// Checks the answer; returns the file of a node.
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

/// Makes empty files, and keeps them open or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Installer {
    names: VecDeque<Label>,
    open: Option<OpenModes>,
    synced: bool,
    /// The files, in the order of their names.
    pub(super) made: Vec<FileId>,
}

impl Installer {
    pub(super) fn of(names: impl IntoIterator<Item = Label>, open: Option<OpenModes>) -> Actor {
        let names = names.into_iter().collect();
        Actor::Install(Installer { names, open, synced: false, made: Vec::new() })
    }

    fn step(&mut self, found: Option<FileId>) -> Option<(Call, Due)> {
        self.made.extend(found);
        if let Some(name) = self.names.pop_front() {
            return Some((create(name, self.open), Due::Node(None)));
        }
        let synced = std::mem::replace(&mut self.synced, true);
        (!synced).then_some((Call::SyncAll, Due::Nothing))
    }
}

/// Saves a file as GNU Emacs does (Farsite §8.2.3: a creation, a deletion and a rename for each
/// save).
///
/// At a buffer's first save since its file was visited, `backup-buffer` renames the file to its
/// backup name (the name and a tilde). Then `write-region` creates the file anew, writes it, syncs
/// it, and looks at it once more for its modification time. Before all that,
/// `verify-visited-file-modtime` looks for another program's change.
///
/// The paper measured on Windows, where a rename does not replace, so that the old backup is
/// deleted first. This part does the same. The auto-save file (`#name#`) and the lock (`.#name`)
/// would be more creations and deletions than the paper has.
///
/// A front door looks up each name before its use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Editor {
    label: Label,
    backup: Label,
    /// Number of saves left, this one included.
    saves: u64,
    step: usize,
    pub(super) edited: Edited,
}

/// The files under the primary name and the backup name, and the size of the former.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Edited {
    pub file: FileId,
    pub size: u64,
    pub old: FileId,
}

impl Edited {
    /// Looks up the primary name, expecting this file.
    fn look(&self, label: Label) -> (Call, Due) {
        (lookup(label), Due::Same(self.file.clone(), self.size))
    }
}

impl Editor {
    /// A part that saves `file`, called `name`, with its backup `old`. Both are empty.
    pub(super) fn of(name: &str, file: &FileId, old: &FileId, saves: u64) -> Actor {
        let edited = Edited { file: file.clone(), size: 0, old: old.clone() };
        Actor::Edit(Editor { label: label(name), backup: backup(name), saves, step: 0, edited })
    }

    fn step(&mut self, found: Option<FileId>) -> Option<(Call, Due)> {
        let edited = &mut self.edited;
        let (dir, label, backup) = (FileId::root(), self.label.clone(), self.backup.clone());
        let step = self.step;
        self.step += 1;
        Some(match step {
            0 if self.saves == 0 => return None,
            // The file must still be the visited one.
            0 => edited.look(label),
            1 => (lookup(backup), Due::Node(Some(edited.old.clone()))),
            2 => (
                Call::Unlink(call::Unlink { dir, label: backup, directory: false, pending: None }),
                Due::Nothing,
            ),
            3 => (lookup(backup), Due::NotFound),
            4 => {
                let (from_dir, to_dir, mode) = (dir.clone(), dir, RenameMode::Replace);
                (
                    Call::Rename(call::Rename {
                        from_dir,
                        from: label,
                        to_dir,
                        to: backup,
                        mode,
                        whiteout: false,
                        source: None,
                        replaced: None,
                    }),
                    Due::Nothing,
                )
            }
            5 => {
                edited.old = edited.file.clone();
                (lookup(label), Due::NotFound)
            }
            6 => (create(label, Some(WRITING)), Due::Node(None)),
            7 => {
                (edited.file, edited.size) = (found?, edited.size + 1);
                let data = Bytes::from(vec![b'.'; edited.size as usize]);
                let length = data.len();
                (
                    Call::Write(call::Write { file: edited.file.clone(), offset: 0, data, append: false }),
                    Due::Written(length),
                )
            }
            8 => (Call::Sync(call::Sync { file: edited.file.clone() }), Due::Nothing),
            9 => (Call::Close(call::Close { file: edited.file.clone(), open: WRITING }), Due::Nothing),
            _ => {
                (self.saves, self.step) = (self.saves - 1, 0);
                edited.look(label)
            }
        })
    }
}

/// Checks once that a file has the saved content's identity and size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedContentCheck {
    look: Option<(Label, Edited)>,
}

impl SavedContentCheck {
    pub(super) fn of(name: &str, edited: Edited) -> Actor {
        Actor::Read(SavedContentCheck { look: Some((label(name), edited)) })
    }
}

/// Opens the file and closes it, again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opener {
    file: FileId,
    /// Number of steps done.
    done: u64,
}

impl Opener {
    pub(super) fn of(file: FileId) -> Actor {
        Actor::Open(Opener { file, done: 0 })
    }

    /// One iteration: "Each open is first attempted with shared-read/exclusive-write access, and
    /// when this fails, the open is repeated with shared-read access" (Farsite §8.2.4).
    fn iteration(&self) -> [(Call, Due); 4] {
        let (file, reading) = (self.file.clone(), OpenModes::posix(true, false));
        [
            (lookup(label(OPENED)), Due::Node(Some(file.clone()))),
            (
                Call::OpenFile(call::OpenFile { file: file.clone(), open: exclusive_write(), mask: 6 }),
                Due::Conflict,
            ),
            (Call::OpenFile(call::OpenFile { file: file.clone(), open: reading, mask: 4 }), Due::Opened),
            (Call::Close(call::Close { file, open: reading }), Due::Nothing),
        ]
    }

    fn step(&mut self) -> Option<(Call, Due)> {
        let iteration = self.iteration();
        let steps = iteration.len() as u64;
        let step = self.done % steps;
        self.done += 1;
        if self.done > ITERATIONS * steps { None } else { iteration.into_iter().nth(step as usize) }
    }
}

fn lookup(label: Label) -> Call {
    Call::Lookup(call::Lookup { dir: FileId::root(), label })
}

/// Shared-read/exclusive-write access: this handle reads and writes, others only read.
pub(super) fn exclusive_write() -> OpenModes {
    OpenModes::with([Mode::AccessRead, Mode::AccessWrite, Mode::ExcludeWrite])
}

fn create(label: Label, open: Option<OpenModes>) -> Call {
    let (dir, spec) = (FileId::root(), FileSpec::new(FileKind::Regular, 0o644, 0o022));
    Call::Create(call::Create { dir, label, spec, open })
}

#[expect(clippy::expect_used, reason = "the names above are short")]
pub(super) fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).expect("a label")
}

pub(super) fn backup(name: &str) -> Label {
    label(&format!("{name}~"))
}
