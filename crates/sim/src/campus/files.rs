//! Calls as programs make them, each with the answer that is due.

use super::program_context::{CallAnswer, ProgramContext, ReplyWithBytes};
use crate::host::Violation;
use bytes::Bytes;
use client::{Call, Reply, Upto, call};
use ident::FileId;
use lease::{Label, OpenModes};
use namespace::{Error, FileKind, FileSpec, RenameMode};

/// Reading, and reading and writing.
pub(crate) const READS: OpenModes = OpenModes::posix(true, false);
pub(crate) const WRITES: OpenModes = OpenModes::posix(true, true);

/// Entries of a page of a listing.
const PAGE: usize = 100;

pub(crate) fn label(name: &str) -> Label {
    crate::names::label(name.as_bytes())
}

fn nothing(what: impl FnOnce() -> String, answer: CallAnswer) -> Result<(), Violation> {
    match answer {
        Ok(ReplyWithBytes::Reply(Reply::Nothing | Reply::Lingers(_))) => Ok(()),
        other => Err(format!("{} came to {other:?}", what())),
    }
}

/// A new directory.
pub(crate) fn directory() -> FileSpec {
    FileSpec::new(FileKind::Directory, 0o755, 0)
}

impl ProgramContext {
    /// The file of this name and its size, if there is one.
    pub async fn find(&self, dir: &FileId, name: &str) -> Result<Option<(FileId, u64)>, Violation> {
        let answer = self.call(Call::Lookup(call::Lookup { dir: dir.clone(), label: label(name) })).await;
        match answer {
            Ok(ReplyWithBytes::Reply(Reply::Node(entry, stat))) => Ok(Some((entry.file, stat.size))),
            Ok(ReplyWithBytes::Reply(Reply::Glimpsed(None))) | Err(Error::NotFound) => Ok(None),
            other => Err(format!("the lookup of {name} came to {other:?}")),
        }
    }

    /// The file of this name, which is there, and its size.
    pub async fn finds(&self, dir: &FileId, name: &str) -> Result<(FileId, u64), Violation> {
        self.find(dir, name).await?.ok_or_else(|| format!("{name} is not there"))
    }

    /// This name is not there.
    pub async fn misses(&self, dir: &FileId, name: &str) -> Result<(), Violation> {
        match self.find(dir, name).await? {
            None => Ok(()),
            Some(_) => Err(format!("{name} is there")),
        }
    }

    pub async fn make(
        &self,
        dir: &FileId,
        name: &str,
        spec: FileSpec,
        open: Option<OpenModes>,
    ) -> Result<Option<FileId>, Violation> {
        let create = call::Create { dir: dir.clone(), label: label(name), spec, open };
        match self.call(Call::Create(create)).await {
            Ok(ReplyWithBytes::Reply(Reply::Node(entry, _))) => Ok(Some(entry.file)),
            Err(Error::Exists) => Ok(None),
            other => Err(format!("the create of {name} came to {other:?}")),
        }
    }

    /// Makes a directory, which is not there.
    pub async fn mkdir(&self, dir: &FileId, name: &str) -> Result<FileId, Violation> {
        let made = self.make(dir, name, directory(), None).await?;
        made.ok_or_else(|| format!("{name} is there already"))
    }

    /// Makes a file, which is not there, and writes it whole.
    pub async fn creates(&self, dir: &FileId, name: &str, bytes: Vec<u8>) -> Result<FileId, Violation> {
        let spec = FileSpec::new(FileKind::Regular, 0o644, 0);
        let made = self.make(dir, name, spec, Some(WRITES)).await?;
        let file = made.ok_or_else(|| format!("{name} is there already"))?;
        self.write(&file, 0, bytes).await?;
        self.close(&file, WRITES).await?;
        Ok(file)
    }

    pub async fn open(&self, file: &FileId, open: OpenModes) -> Result<(), Violation> {
        let mask = if open == READS { 4 } else { 6 };
        match self.call(Call::OpenFile(call::OpenFile { file: file.clone(), open, mask })).await {
            Ok(ReplyWithBytes::Reply(Reply::Opened { .. })) => Ok(()),
            other => Err(format!("the open of {file} came to {other:?}")),
        }
    }

    pub async fn close(&self, file: &FileId, open: OpenModes) -> Result<(), Violation> {
        let answer = self.call(Call::Close(call::Close { file: file.clone(), open })).await;
        nothing(|| format!("the close of {file}"), answer)
    }

    pub async fn write(&self, file: &FileId, offset: u64, bytes: Vec<u8>) -> Result<(), Violation> {
        let length = bytes.len() as u32;
        let write = call::Write { file: file.clone(), offset, data: Bytes::from(bytes), append: false };
        match self.call(Call::Write(write)).await {
            Ok(ReplyWithBytes::Reply(Reply::Written(written))) if written == length => Ok(()),
            other => Err(format!("the write of {file} came to {other:?}")),
        }
    }

    pub async fn read(&self, file: &FileId, offset: u64, length: usize) -> Result<Vec<u8>, Violation> {
        let length = length as u32;
        let read = call::Read { file: file.clone(), offset, length, kept: false, quietly: false };
        match self.call(Call::Read(read)).await {
            Ok(ReplyWithBytes::Bytes(bytes)) => Ok(bytes),
            other => Err(format!("the read of {file} came to {other:?}")),
        }
    }

    /// Opens a file, reads it whole, and closes it.
    pub async fn reads(&self, file: &FileId, size: u64) -> Result<Vec<u8>, Violation> {
        self.open(file, READS).await?;
        let bytes = self.read(file, 0, size as usize + 1).await?;
        self.close(file, READS).await?;
        Ok(bytes)
    }

    /// Opens a file, overwrites its beginning, and closes it.
    pub async fn overwrites(&self, file: &FileId, bytes: Vec<u8>) -> Result<(), Violation> {
        self.open(file, WRITES).await?;
        self.write(file, 0, bytes).await?;
        self.close(file, WRITES).await
    }

    pub async fn stat(&self, file: &FileId) -> Result<u64, Violation> {
        match self.call(Call::Stat(call::Stat { file: file.clone() })).await {
            Ok(ReplyWithBytes::Reply(Reply::Stat(stat))) => Ok(stat.size),
            other => Err(format!("the stat of {file} came to {other:?}")),
        }
    }

    pub async fn unlink(&self, dir: &FileId, name: &str) -> Result<(), Violation> {
        let unlink = call::Unlink { dir: dir.clone(), label: label(name), pending: None, directory: false };
        nothing(|| format!("the unlink of {name}"), self.call(Call::Unlink(unlink)).await)
    }

    /// Renames. The answer may be any, since others may be at the same names.
    pub async fn rename(
        &self,
        (from_dir, from): (&FileId, &str),
        (to_dir, to): (&FileId, &str),
    ) -> CallAnswer {
        let rename = call::Rename {
            from_dir: from_dir.clone(),
            from: label(from),
            source: None,
            to_dir: to_dir.clone(),
            to: label(to),
            mode: RenameMode::Replace,
            replaced: None,
            whiteout: false,
        };
        self.call(Call::Rename(rename)).await
    }

    /// Renames what is there.
    pub async fn renames(&self, from: (&FileId, &str), to: (&FileId, &str)) -> Result<(), Violation> {
        nothing(|| format!("the rename of {} to {}", from.1, to.1), self.rename(from, to).await)
    }

    pub async fn sync(&self, file: &FileId) -> Result<(), Violation> {
        let answer = self.call(Call::Sync(call::Sync { file: file.clone() })).await;
        nothing(|| format!("the fsync of {file}"), answer)
    }

    pub async fn sync_all(&self) -> Result<(), Violation> {
        nothing(|| "sync".to_owned(), self.call(Call::SyncAll).await)
    }

    /// The names of a directory.
    pub async fn list(&self, dir: &FileId) -> Result<Vec<String>, Violation> {
        let (mut names, mut after, mut upto) = (Vec::new(), 0, None::<Upto>);
        loop {
            let list = call::List { dir: dir.clone(), after, upto, limit: PAGE, stat: false };
            match self.call(Call::List(list)).await {
                Ok(ReplyWithBytes::Reply(Reply::Listing { entries, upto: end_at, end })) => {
                    after = entries.last().map_or(after, |last| last.entry.position);
                    let text =
                        |one: client::Listed| String::from_utf8_lossy(one.label.as_bytes()).into_owned();
                    names.extend(entries.into_iter().map(text));
                    upto = Some(end_at);
                    if end {
                        return Ok(names);
                    }
                }
                other => return Err(format!("the listing of {dir} came to {other:?}")),
            }
        }
    }
}
