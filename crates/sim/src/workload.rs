//! The calls of simulated users: random, mostly such as make sense.

use crate::model::Model;
use bytes::Bytes;
use client::{AllocateMode, Call, call};
use ident::FileId;
use lease::{Label, OpenModes};
use namespace::{AttributeChange, FileKind, FileSpec, POLICY_LABEL, RenameMode, XATTR_BYTES_MAX, XattrMode};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;

/// Number of directories beyond which no more are made.
const DIRS_MAX: usize = 12;
/// Policies for the content of new files of a directory.
const POLICIES: [&[u8]; 3] = [b"copies=1", b"copies=2", b"code=2+1"];

/// The users, who know the file system only by its model.
pub(crate) struct Users<'a> {
    pub rng: &'a mut ChaCha12Rng,
    /// The labels in use.
    pub labels: &'a [Label],
}

impl Users<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn label(&mut self) -> Label {
        let pick = self.below(self.labels.len() as u64) as usize;
        self.labels[pick].clone()
    }

    fn pick(&mut self, model: &Model, wanted: impl Fn(&FileId) -> bool) -> Option<FileId> {
        let files: Vec<&FileId> = model.files.keys().filter(|id| wanted(id)).collect();
        let pick = self.below(files.len() as u64) as usize;
        files.get(pick).map(|id| (*id).clone())
    }

    fn dir(&mut self, model: &Model) -> FileId {
        let linked = |id: &FileId| {
            let file = &model.files[id];
            file.kind == FileKind::Directory && file.links > 0
        };
        self.pick(model, linked).unwrap_or_else(FileId::root)
    }

    /// A directory and a label in it, bound more often than not.
    fn name(&mut self, model: &Model) -> (FileId, Label) {
        let dir = self.dir(model);
        let labels: Vec<Label> = model.files[&dir].children.keys().cloned().collect();
        let pick = self.below(labels.len() as u64) as usize;
        match labels.get(pick) {
            Some(label) if !self.one_in(4) => (dir, label.clone()),
            _ => (dir, self.label()),
        }
    }

    /// The next call.
    pub fn some_call(&mut self, model: &Model) -> Call {
        let regular = |id: &FileId| model.files[id].kind == FileKind::Regular;
        let open = |id: &FileId| regular(id) && model.files[id].open > 0;
        match self.below(24) {
            0..5 => self.create(model),
            5 => {
                let (dir, label) = self.name(model);
                let file = self.pick(model, |id| model.files[id].links > 0).unwrap_or_else(FileId::root);
                Call::Link(call::Link { file, dir, label, replaced: None })
            }
            6..8 => {
                let (dir, label) = self.name(model);
                let directory = self.below(3) == 0;
                Call::Unlink(call::Unlink { dir, label, directory, pending: None })
            }
            8..11 => {
                let ((from_dir, from), (to_dir, to)) = (self.name(model), self.name(model));
                let mode =
                    [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]
                        [self.below(4) as usize];
                Call::Rename(call::Rename {
                    from_dir,
                    from,
                    to_dir,
                    to,
                    mode,
                    whiteout: false,
                    source: None,
                    replaced: None,
                })
            }
            11 => match self.pick(model, |id| regular(id) && model.files[id].links > 0) {
                Some(file) => {
                    Call::OpenFile(call::OpenFile { file, open: OpenModes::posix(true, true), mask: 6 })
                }
                None => self.create(model),
            },
            12 => match self.pick(model, open) {
                Some(file) => Call::Close(call::Close { file, open: OpenModes::posix(true, true) }),
                None => self.create(model),
            },
            13..18 => match self.pick(model, open) {
                Some(file) => self.change_content(model, file),
                None => self.create(model),
            },
            18 => match self.pick(model, regular) {
                Some(file) => Call::Sync(call::Sync { file }),
                None => Call::SyncAll,
            },
            19 => {
                let file = self.dir(model);
                let mode = Some((self.below(8) * 0o111) as u16);
                let change = AttributeChange { mode, ..AttributeChange::default() };
                Call::SetAttributes(call::SetAttributes { file, change, size: None, through_handle: false })
            }
            20 => {
                let (file, name) = (self.dir(model), self.xattr());
                let value = match name == *POLICY_LABEL {
                    true => POLICIES[self.below(POLICIES.len() as u64) as usize].to_vec(),
                    // Some values are as long as a file's attributes may be in all.
                    false => {
                        let most = if self.one_in(8) { XATTR_BYTES_MAX as u64 + 1 } else { 64 };
                        vec![b'v'; self.below(most) as usize]
                    }
                };
                let mode = [XattrMode::Set, XattrMode::Create, XattrMode::Replace][self.below(3) as usize];
                Call::SetXattr(call::SetXattr { file, name, value, mode })
            }
            21 => {
                let file = self.dir(model);
                Call::RemoveXattr(call::RemoveXattr { file, name: self.xattr() })
            }
            22 => {
                let (dir, label) = self.name(model);
                Call::Lookup(call::Lookup { dir, label })
            }
            23 if self.one_in(3) => match self.pick(model, |_| true) {
                Some(file) => Call::GetXattr(call::GetXattr { file, name: self.xattr() }),
                None => Call::SyncAll,
            },
            _ => match self.pick(model, regular) {
                Some(file) => self.read(model, file),
                None => Call::SyncAll,
            },
        }
    }

    fn xattr(&mut self) -> Label {
        if self.one_in(3) {
            return POLICY_LABEL.clone();
        }
        // In names of attributes the case of letters always counts.
        let long = format!("user.{:n>250}", self.below(10));
        let names: [&[u8]; 5] = [b"user.one", b"user.ONE", b"user.\xff/\n", b"user.two", long.as_bytes()];
        let pick = self.below(names.len() as u64) as usize;
        #[expect(clippy::expect_used, reason = "all are names")]
        Label::attribute(names[pick]).expect("a name")
    }

    fn create(&mut self, model: &Model) -> Call {
        let (dir, label) = (self.dir(model), self.label());
        let dirs = model.files.values().filter(|file| file.kind == FileKind::Directory).count();
        let kind = match self.below(8) {
            0..2 if dirs < DIRS_MAX => FileKind::Directory,
            2 => FileKind::Symlink,
            3 => FileKind::Fifo,
            _ => FileKind::Regular,
        };
        let target = if kind == FileKind::Symlink { b"some/where".to_vec() } else { Vec::new() };
        let open = (kind == FileKind::Regular && self.one_in(2)).then(|| OpenModes::posix(true, true));
        let spec = FileSpec { target, ..FileSpec::new(kind, 0o777, 0o022) };
        Call::Create(call::Create { dir, label, spec, open })
    }

    fn range(&mut self, model: &Model, file: &FileId) -> (u64, u64) {
        let size = model.files[file].content.len() as u64;
        let offset = self.below(size + 2_000).min(size + self.below(3) * 500);
        let length = match self.below(4) {
            0 => 1 + self.below(16),
            1 => 1 + self.below(9_000),
            2 => 4_096,
            _ => 1 + self.below(200_000),
        };
        (offset, length)
    }

    fn read(&mut self, model: &Model, file: FileId) -> Call {
        let (offset, length) = self.range(model, &file);
        Call::Read(call::Read { file, offset, length: length as u32, kept: true, quietly: false })
    }

    fn change_content(&mut self, model: &Model, file: FileId) -> Call {
        let (offset, length) = self.range(model, &file);
        match self.below(10) {
            0 => Call::Allocate(call::Allocate { file, offset, length, what: AllocateMode::Punch }),
            1 => Call::Allocate(call::Allocate {
                file,
                offset,
                length,
                what: AllocateMode::Zero { keep_size: self.one_in(2) },
            }),
            2 => {
                let size = Some(self.below(offset + 5_000));
                Call::SetAttributes(call::SetAttributes {
                    file,
                    change: AttributeChange::default(),
                    size,
                    through_handle: true,
                })
            }
            n => {
                let byte = self.below(255) as u8 + 1;
                let data =
                    Bytes::from((0..length).map(|i| byte.wrapping_add((i / 7) as u8)).collect::<Vec<_>>());
                Call::Write(call::Write { file, offset, data, append: n == 3 })
            }
        }
    }
}
