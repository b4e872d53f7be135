//! The calls of programs, as the seed chooses them: few names and few files, so that machines meet.

use super::oracle::record_key;
use super::{Doing, ManyMachines, TurnWork};
use crate::calls::create;
use crate::host::Violation;
use client::{Call, call};
use directory::Store;
use ident::FileId;
use lease::{Label, Mode, OpenModes};
use namespace::{FileKind, RenameMode};

/// Directories, the root among them.
const DIRS_MAX: usize = 4;
/// Calls of one machine that may be under way at a time.
pub(super) const CALLS_MAX: usize = 3;
/// How programs open files: mostly so that other opens do not conflict.
const OPENINGS: [&[Mode]; 8] = [
    &[Mode::AccessRead],
    &[Mode::AccessRead, Mode::AccessWrite],
    &[Mode::AccessDelete],
    &[Mode::AccessRead, Mode::AccessDelete],
    &[Mode::AccessRead, Mode::ExcludeWrite],
    &[Mode::AccessWrite, Mode::ExcludeRead, Mode::ExcludeWrite],
    &[Mode::AccessDelete, Mode::ExcludeDelete],
    &[],
];
impl ManyMachines {
    /// A program makes a call.
    pub(super) fn begin(&mut self, at: usize) -> Result<(), Violation> {
        if self.programs[at].calls.len() >= CALLS_MAX || self.host.machines[at].frozen {
            return Ok(());
        }
        let (call, doing) = match &self.programs[at].work {
            TurnWork::Any => self.some_call(at),
            TurnWork::Script(..) => return self.go_on(at),
            TurnWork::Done(_) | TurnWork::Nothing => return Ok(()),
        };
        self.call(at, call, doing)
    }

    pub(super) fn some_call(&mut self, at: usize) -> (Call, Doing) {
        let (dir, label) = (self.some_dir(at), self.label());
        let handles = |(file, handles): (&FileId, &Vec<OpenModes>)| {
            let file = file.clone();
            handles.clone().into_iter().map(move |open| (file.clone(), open))
        };
        let open: Vec<(FileId, OpenModes)> = self.programs[at].open.iter().flat_map(handles).collect();
        let pick = self.host.below(open.len() as u64) as usize;
        let some_open = open.get(pick).cloned();
        let pick = self.host.below(self.known.len() as u64) as usize;
        let some_known = self.known.get(pick).filter(|file| self.has_heard_of(at, file)).cloned();
        // A kernel closes a handle once every request through it has been answered.
        let calls = self.programs[at].calls.values();
        let used: Vec<FileId> = calls
            .filter_map(|(_, doing)| if let Doing::Use(file) = doing { Some(file.clone()) } else { None })
            .collect();
        match (self.host.below(20), some_open, some_known) {
            (0..4, Some((file, open)), _) if !used.contains(&file) => {
                (Call::Close(call::Close { file, open }), Doing::Name)
            }
            (4, Some((file, _)), _) => (Call::Stat(call::Stat { file: file.clone() }), Doing::Use(file)),
            (5, Some((file, open)), _) if open.has_mode(Mode::AccessRead) => (
                Call::Read(call::Read {
                    file: file.clone(),
                    offset: 0,
                    length: 1,
                    kept: true,
                    quietly: false,
                }),
                Doing::Use(file),
            ),
            (6..8, Some((file, open)), _) if open.has_mode(Mode::AccessDelete) => {
                let set = self.host.below(3) > 0;
                let link = self.names.get(&file).filter(|_| set).cloned();
                (Call::SetDisposition(call::SetDisposition { file: file.clone(), link }), Doing::Doom(set))
            }
            (8..12, _, Some(file)) => {
                let open = self.some_opening();
                (
                    Call::OpenFile(call::OpenFile { file: file.clone(), open, mask: 0 }),
                    Doing::Open(file, open),
                )
            }
            (12, ..) => (Call::Lookup(call::Lookup { dir, label }), Doing::Name),
            (13, ..) => {
                let directory = self.host.one_in(3);
                (Call::Unlink(call::Unlink { dir, label, directory, pending: None }), Doing::Name)
            }
            (14, ..) => {
                let (to_dir, to, mode) = (self.some_dir(at), self.label(), RenameMode::Replace);
                (
                    Call::Rename(call::Rename {
                        from_dir: dir,
                        from: label,
                        to_dir,
                        to,
                        mode,
                        whiteout: false,
                        source: None,
                        replaced: None,
                    }),
                    Doing::Name,
                )
            }
            (15, _, Some(file)) => (Call::Link(call::Link { file, dir, label, replaced: None }), Doing::Name),
            (16, ..) if self.dirs.len() < DIRS_MAX => {
                (create(dir, label, FileKind::Directory, None), Doing::Create(None))
            }
            _ => {
                let open = if self.host.one_in(2) { Some(self.some_opening()) } else { None };
                (create(dir, label, FileKind::Regular, open), Doing::Create(open))
            }
        }
    }

    pub(super) fn some_opening(&mut self) -> OpenModes {
        let pick = self.host.below(OPENINGS.len() as u64) as usize;
        OpenModes::with(OPENINGS[pick].iter().copied())
    }

    pub(super) fn some_dir(&mut self, at: usize) -> FileId {
        let pick = self.host.below(self.dirs.len() as u64) as usize;
        let dir = self.dirs[pick].clone();
        if self.has_heard_of(at, &dir) { dir } else { FileId::root() }
    }

    /// Whether a program of that machine can know the file.
    pub(super) fn has_heard_of(&self, at: usize, file: &FileId) -> bool {
        let incarnation = self.host.machines[at].incarnation;
        self.makers.get(file) == Some(&(at, incarnation))
            || self.host.server.store.get(&record_key(file)).is_some()
    }

    pub(super) fn label(&mut self) -> Label {
        let pick = self.host.below(self.labels.len() as u64) as usize;
        self.labels[pick].clone()
    }
}
