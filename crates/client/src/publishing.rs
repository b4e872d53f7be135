//! The account of dirty content, and of its uploads.

use ident::FileId;
use lease::Time;
use namespace::ShareId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Dirty content, and uploads on their way to the share servers.
#[derive(Debug, Default)]
pub(crate) struct Publishing {
    /// By upload number.
    pub uploads: BTreeMap<u64, UploadUnderWay>,
    pub next_upload: u64,
    /// Files with bytes in memory, and since when these are dirty.
    pub files: FxHashMap<FileId, HeldContent>,
    pub since: BTreeSet<(Time, FileId)>,
    pub held_bytes: u64,
    /// Stored shares without a publication yet: other shares of the same flush are still under way.
    pub unpublished: FxHashMap<FileId, Vec<ShareId>>,
    /// Stored shares that no publication will name.
    pub unneeded: Vec<ShareId>,
    /// When the content that is under way became dirty, by file.
    pub flown: FxHashMap<FileId, Time>,
    /// Shares whose bytes the host need not keep any more.
    pub settled: Vec<ShareId>,
}

#[derive(Debug)]
pub(crate) struct UploadUnderWay {
    pub share: ShareId,
    /// The file, and the number of the upload in its content, if that content is still known here.
    pub content: Option<(FileId, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldContent {
    pub bytes: u64,
    pub since: Option<Time>,
}

impl Publishing {
    /// Updates the account: `held` bytes of `file` are in memory, and some are unpublished if
    /// `dirty`.
    pub fn note(&mut self, file: &FileId, held: u64, dirty: bool, now: Time) {
        let before = self.files.get(file).copied().unwrap_or_default();
        let since = dirty.then(|| before.since.unwrap_or(now));
        if before.since != since {
            if let Some(time) = before.since {
                self.since.remove(&(time, file.clone()));
            }
            if let Some(time) = since {
                self.since.insert((time, file.clone()));
            }
        }
        self.held_bytes = self.held_bytes - before.bytes + held;
        if held == 0 && since.is_none() {
            self.files.remove(file);
        } else {
            self.files.insert(file.clone(), HeldContent { bytes: held, since });
        }
    }

    pub fn dirty_bytes(&self) -> usize {
        usize::try_from(self.held_bytes).unwrap_or(usize::MAX)
    }

    /// Since when `file` has been dirty.
    pub fn dirty_since(&self, file: &FileId) -> Option<Time> {
        self.files.get(file).and_then(|held| held.since)
    }

    pub fn oldest_dirty(&self) -> Option<Time> {
        self.since.first().map(|(time, _)| *time)
    }

    /// Files with unpublished bytes in memory, in order.
    pub fn dirty_files(&self) -> impl Iterator<Item = &FileId> {
        let mut files: Vec<&FileId> = self.files.keys().collect();
        files.sort();
        files.into_iter()
    }

    /// Forgets the content of `file`. Uploads under way belong to no known content from then on.
    pub fn orphan(&mut self, file: &FileId) {
        for upload in self.uploads.values_mut() {
            upload.content.take_if(|(of, _)| of == file);
        }
    }

    /// Forgets the content of files of a session that is over. Published shares stay as they are:
    /// the server may have the publication, and the salvage reads them.
    pub fn abandon(&mut self, is_over: impl Fn(&FileId) -> bool) {
        for upload in self.uploads.values_mut() {
            upload.content.take_if(|(file, _)| is_over(file));
        }
        let stored = self.unpublished.extract_if(|file, _| is_over(file)).flat_map(|(_, shares)| shares);
        let mut stored: Vec<ShareId> = stored.collect();
        stored.sort();
        self.unneeded.extend(stored);
        self.files.retain(|file, _| !is_over(file));
        self.since.retain(|(_, file)| !is_over(file));
        self.held_bytes = self.files.values().map(|held| held.bytes).sum();
        self.flown.retain(|file, _| !is_over(file));
    }

    /// Whether nothing is dirty and nothing under way.
    pub fn is_idle(&self) -> bool {
        self.files.is_empty() && self.uploads.is_empty()
    }
}
