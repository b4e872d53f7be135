//! A file of a backup, or a directory with its whole tree, as files on this machine.
//!
//! Everything is made in one directory that no other user can enter. So this process made every
//! file there, and no link that it made is followed. The memory grows only with the names of files
//! with several links. A few shares are kept, since the shares of one file follow each other.

use crate::archive::Archive;
use crate::error::{BackupError, io};
use crate::extracting::{ExtractReport, ExtractState, LostFile, PROGRESS_EVERY, SkippedParts};
use crate::made::{FilePart, Made, Owning};
use crate::progress::RestoreProgress;
use directory::Found;
use ident::FileId;
use lru::LruCache;
use namespace::{Extent, FileKind, Place, ShareId};
use os::private;
use rustc_hash::FxHashMap;
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The number of shares kept, of about 1 MiB each.
const SHARES_KEPT: NonZeroUsize = NonZeroUsize::new(8).expect("more than none");
/// The entries of a directory, or extents of a file, read at a time.
const PAGE: usize = 256;

/// Why a file is not made.
enum Failed {
    /// Some of its content is not in the backup.
    Lost(String),
    Other(BackupError),
}

impl From<BackupError> for Failed {
    fn from(error: BackupError) -> Failed {
        Failed::Other(error)
    }
}

/// A file or directory that was made and lacks its attributes.
pub(crate) struct Unfinished {
    found: Found,
    xattrs: Vec<(lease::Label, Vec<u8>)>,
    open: Option<File>,
}

/// A tree being extracted.
pub(crate) struct Tree<'a> {
    archive: &'a Archive,
    state: &'a ExtractState,
    incomplete: bool,
    report: ExtractReport,
    progress: &'a mut dyn FnMut(&RestoreProgress),
    told: Instant,
    shares: LruCache<ShareId, Option<Vec<u8>>>,
    /// The first name of each file that has several.
    named: FxHashMap<u64, PathBuf>,
    owning: Owning,
    /// The attributes and files that could not be made: how often, and the first place.
    skipped: BTreeMap<(FilePart, String), (u64, String)>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(
        archive: &'a Archive,
        state: &'a ExtractState,
        incomplete: bool,
        report: ExtractReport,
        progress: &'a mut dyn FnMut(&RestoreProgress),
    ) -> Tree<'a> {
        Tree {
            archive,
            state,
            incomplete,
            report,
            progress,
            told: Instant::now(),
            shares: LruCache::new(SHARES_KEPT),
            named: FxHashMap::default(),
            owning: Owning::of_this_process(),
            skipped: BTreeMap::new(),
        }
    }

    /// The result of the extraction.
    pub(crate) fn report(mut self) -> ExtractReport {
        let skipped = self.skipped.into_iter();
        let parts = |((part, why), (count, path))| SkippedParts { path, others: count - 1, part, why };
        self.report.skipped = skipped.map(parts).collect();
        self.report
    }

    /// Makes `file` and its whole tree at `at`; `shown` is its path in the backup. The result has
    /// its content and needs its attributes. None if the file was left out.
    pub(crate) fn make(
        &mut self,
        file: &FileId,
        at: &Path,
        shown: &Path,
    ) -> Result<Option<Unfinished>, BackupError> {
        let ExtractState { directory, store, .. } = self.state;
        let Some(found) = self.state.sound(directory.found(store, file))? else {
            let why = "its record is missing in the metadata".to_owned();
            return self.leave_out(shown, why).map(|()| None);
        };
        self.tell();
        let open = match found.attributes.kind {
            FileKind::Directory => {
                self.directory(file, at, shown)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let opened = rustix::fs::open(at, flags, Mode::empty());
                Some(File::from(opened.map_err(|error| io("open", at)(error.into()))?))
            }
            FileKind::Regular => match self.regular(file, &found, at) {
                Ok(made) => Some(made),
                Err(Failed::Other(error)) => return Err(error),
                Err(Failed::Lost(why)) => {
                    fs::remove_file(at).map_err(io("remove", at))?;
                    return self.leave_out(shown, why).map(|()| None);
                }
            },
            FileKind::Symlink => {
                let target = self.state.sound(directory.inline(store, file))?;
                symlink(OsStr::from_bytes(&target), at).map_err(io("make", at))?;
                None
            }
            special => {
                if !self.special(special, found.attributes.rdev, at, shown)? {
                    return Ok(None);
                }
                None
            }
        };
        self.report.files += u64::from(found.attributes.kind != FileKind::Directory);
        let xattrs = self.state.sound(directory.xattrs(store, file))?;
        Ok(Some(Unfinished { found, xattrs, open }))
    }

    /// Sets the attributes of a finished file.
    pub(crate) fn finish(&mut self, unfinished: Unfinished, at: &Path, shown: &Path) {
        let Unfinished { found, xattrs, open } = unfinished;
        let made = open.map_or(Made::Named(at), Made::Open);
        for (part, why) in made.finish(&found, &xattrs, &self.owning) {
            self.skip(part, why, shown);
        }
    }

    fn directory(&mut self, dir: &FileId, at: &Path, shown: &Path) -> Result<(), BackupError> {
        private::make_one_dir(at).map_err(io("make", at))?;
        let ExtractState { directory, store, .. } = self.state;
        let mut after = 0;
        loop {
            let page = self.state.sound(directory.entries(store, dir, after, PAGE))?;
            for (label, entry) in &page {
                let name = OsStr::from_bytes(label.as_bytes());
                self.entry(&entry.file, entry.ino, &at.join(name), &shown.join(name))?;
                after = entry.position;
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Makes an entry of a directory: another name of a file that is there already, or the file.
    fn entry(&mut self, file: &FileId, ino: u64, at: &Path, shown: &Path) -> Result<(), BackupError> {
        if let Some(first) = self.named.get(&ino) {
            // The system follows no symbolic link here.
            return fs::hard_link(first, at).map_err(io("link", at));
        }
        let Some(unfinished) = self.make(file, at, shown)? else { return Ok(()) };
        let attributes = unfinished.found.attributes;
        if attributes.links > 1 && attributes.kind != FileKind::Directory {
            self.named.insert(ino, at.to_path_buf());
        }
        self.finish(unfinished, at, shown);
        Ok(())
    }

    fn regular(&mut self, file: &FileId, found: &Found, at: &Path) -> Result<File, Failed> {
        let ExtractState { directory, store, .. } = self.state;
        let head = found.content;
        let out = private::options().write(true).create_new(true).open(at).map_err(io("make", at))?;
        // The whole file begins as a hole.
        out.set_len(head.size).map_err(io("write", at))?;
        let sealed = self.state.sound(directory.inline(store, file))?;
        let plain = content::open_whole(head.key.as_ref(), &sealed).map_err(lost)?;
        let length = plain.len().min(usize::try_from(head.size).unwrap_or(usize::MAX));
        self.write(&out, &plain[..length], 0, at)?;
        let mut from = 0;
        loop {
            let page = self.state.sound(directory.extents(store, file, from, PAGE))?;
            for extent in &page {
                from = extent.offset.saturating_add(extent.length.into());
                let plain = self.open(head.key.as_ref(), extent)?;
                let within = head.size.saturating_sub(extent.offset).min(extent.length.into()) as usize;
                let skip = extent.skip as usize;
                let part = plain.get(skip..).and_then(|rest| rest.get(..within));
                self.write(&out, part.ok_or_else(|| lost(content::Damaged::Extent))?, extent.offset, at)?;
            }
            if page.len() < PAGE {
                return Ok(out);
            }
        }
    }

    fn write(&mut self, out: &File, bytes: &[u8], offset: u64, at: &Path) -> Result<(), BackupError> {
        out.write_all_at(bytes, offset).map_err(io("write", at))?;
        self.report.bytes += bytes.len() as u64;
        self.tell();
        Ok(())
    }

    /// Reads the piece of an extent.
    fn open(&mut self, key: Option<&content::Key>, extent: &Extent) -> Result<Vec<u8>, Failed> {
        let piece = &extent.piece;
        let ciphertext = match &piece.place {
            Place::Inline(bytes) => bytes.to_vec(),
            Place::Share { share, at } => {
                let end = *at as usize + piece.length as usize + content::TAG_BYTES;
                let body = self.share(share)?.ok_or_else(|| {
                    let share = u128::from_be_bytes(share.0);
                    Failed::Lost(format!("share {share:032x} is missing or damaged"))
                })?;
                body.get(*at as usize..end).ok_or_else(|| lost(content::Damaged::Extent))?.to_vec()
            }
        };
        let key = key.ok_or_else(|| lost(content::Damaged::Extent))?;
        content::open(key, &piece.nonce, &piece.hash, ciphertext).map_err(lost)
    }

    fn share(&mut self, share: &ShareId) -> Result<Option<&[u8]>, BackupError> {
        if !self.shares.contains(share) {
            self.shares.put(*share, self.archive.get(share)?);
        }
        Ok(self.shares.get(share).and_then(Option::as_deref))
    }

    /// Makes a device, a pipe or a socket's name. Returns whether that was allowed.
    fn special(&mut self, kind: FileKind, rdev: u32, at: &Path, shown: &Path) -> Result<bool, BackupError> {
        let (of, part) = match kind {
            FileKind::Fifo => (FileType::Fifo, FilePart::NamedPipe),
            FileKind::Socket => (FileType::Socket, FilePart::Socket),
            FileKind::CharDevice => (FileType::CharacterDevice, FilePart::CharacterDevice),
            _ => (FileType::BlockDevice, FilePart::BlockDevice),
        };
        // The encoding of Linux' `new_encode_dev`.
        let device = makedev((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00));
        match mknodat(CWD, at, of, Mode::RUSR | Mode::WUSR, device) {
            Ok(()) => Ok(true),
            Err(error) if is_refusal(error) => {
                self.skip(part, error, shown);
                Ok(false)
            }
            Err(error) => Err(io("make", at)(error.into())),
        }
    }

    /// Leaves out a file whose content is not available.
    fn leave_out(&mut self, shown: &Path, why: String) -> Result<(), BackupError> {
        if !self.incomplete {
            let (path, name) = (shown.to_path_buf(), self.state.name.clone());
            return Err(BackupError::Lost { path, name, why });
        }
        self.report.lost.push(LostFile { path: shown.display().to_string(), why });
        Ok(())
    }

    fn skip(&mut self, part: FilePart, why: Errno, shown: &Path) {
        self.skipped.entry((part, why.to_string())).or_insert_with(|| (0, shown.display().to_string())).0 +=
            1;
    }

    fn tell(&mut self) {
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            let ExtractReport { files, bytes, .. } = self.report;
            (self.progress)(&RestoreProgress::Extracted { files, bytes });
        }
    }
}

fn lost(why: content::Damaged) -> Failed {
    Failed::Lost(why.to_string())
}

/// Whether the error is a refusal. Users may not make devices, and some file systems have none.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::PERM | Errno::ACCESS | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL)
}
