//! Named streams and extended attributes: both are extended attributes of the file. A stream is as
//! large as an attribute can be.

use crate::rights;
use crate::table::ObjectKey;
use crate::{Open, Store, StoreError, StreamInfo, Target, watches};
use bytes::Bytes;
use client::call;
use ident::FileId;
use lease::Label;
use lease::caching::{Act, Actor};
use namespace::{AttributeChange, Cred, Error, XattrMode};

/// The beginning of the name of a stream's attribute, as Samba has it (vfs_streams_xattr).
const STREAM_PREFIX: &str = "user.DosStream.";
/// The end of that name, behind the stream's own.
const STREAM_SUFFIX: &str = ":$DATA";
/// Extended attributes of clients.
const EA: &str = "user.";

/// The stream's name as it is compared.
pub(crate) fn folded(name: &str) -> String {
    let label = Label::attribute(name.as_bytes()).ok();
    let folded = label.and_then(|label| String::from_utf8(namespace::fold(&label).as_bytes().to_vec()).ok());
    folded.unwrap_or_else(|| name.to_owned())
}

/// The extended attribute of a stream.
pub(crate) fn attribute(stream: &str) -> String {
    format!("{STREAM_PREFIX}{stream}{STREAM_SUFFIX}")
}

fn stream_of(label: &Label) -> Option<&str> {
    let name = std::str::from_utf8(label.as_bytes()).ok()?;
    name.strip_prefix(STREAM_PREFIX)?.strip_suffix(STREAM_SUFFIX)
}

fn ea_of(label: &Label) -> Option<&str> {
    let name = std::str::from_utf8(label.as_bytes()).ok()?;
    let is_ours = stream_of(label).is_some() || name.as_bytes() == crate::dos::NAME;
    name.strip_prefix(EA).filter(|_| !is_ours)
}

impl Store {
    /// An extended attribute, with the machine's rights.
    pub(crate) async fn xattr(&self, file: &FileId, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let name = Label::attribute(name).map_err(|_| StoreError::InvalidName)?;
        match self.service.ask(&Cred::default(), call::GetXattr { file: file.clone(), name }).await {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoAttribute | Error::NotPermitted | Error::NotSupported) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn xattrs(&self, file: &FileId) -> Result<Vec<Label>, StoreError> {
        match self.service.ask(&Cred::default(), call::ListXattrs { file: file.clone() }).await {
            Err(Error::NotSupported | Error::NotPermitted) => Ok(Vec::new()),
            names => Ok(names?),
        }
    }

    /// A stream: its exact name, and its content.
    pub(crate) async fn stream(
        &self,
        file: &FileId,
        name: &str,
    ) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        let wanted = folded(name);
        for label in self.xattrs(file).await? {
            if let Some(stream) = stream_of(&label).filter(|stream| folded(stream) == wanted) {
                let value = self.xattr(file, label.as_bytes()).await?;
                return Ok(value.map(|value| (stream.to_owned(), value)));
            }
        }
        Ok(None)
    }
}

impl Store {
    /// The size of all extended attributes of users, as FileFullEaInformation has them.
    pub(crate) async fn ea_size(&self, file: &FileId) -> Result<u32, StoreError> {
        let mut size = 0;
        for label in self.xattrs(file).await? {
            let Some(name) = ea_of(&label) else { continue };
            if let Some(value) = self.xattr(file, label.as_bytes()).await? {
                size += 9 + name.len() + value.len();
            }
        }
        Ok(if size == 0 { 0 } else { 4 + size as u32 })
    }
}

impl Open {
    /// The size of all extended attributes. An open that may not read them sees none.
    pub async fn ea_size(&self) -> Result<u32, StoreError> {
        match self.require(rights::READ_EA) {
            Ok(()) => self.store().ea_size(self.file()).await,
            Err(StoreError::AccessDenied) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Sets an extended attribute, or removes it, by the right that the open has.
    pub(crate) async fn set_xattr(&self, name: &[u8], value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let name = Label::attribute(name).map_err(|_| StoreError::InvalidName)?;
        let (file, who) = (self.file().clone(), Cred::default());
        match value {
            Some(value) => {
                self.change(&who, call::SetXattr { file, name, value, mode: XattrMode::Set }).await?;
            }
            None => match self.change(&who, call::RemoveXattr { file, name }).await {
                Ok(()) | Err(Error::NoAttribute) => {}
                Err(error) => return Err(error.into()),
            },
        }
        Ok(())
    }

    async fn stream_now(&self) -> Result<(String, Vec<u8>), StoreError> {
        let name = self.stream_name().ok_or(StoreError::Invalid)?;
        let found = self.store().stream(self.file(), &name).await?;
        Ok(found.unwrap_or_else(|| (name, Vec::new())))
    }

    /// Makes the stream, if it does not exist.
    pub(crate) async fn create_stream(&self) -> Result<(), StoreError> {
        let _turn = self.store().stream_writes.lock().await;
        let (name, value) = self.stream_now().await?;
        self.set_xattr(attribute(&name).as_bytes(), Some(value)).await?;
        self.report_modified(watches::STREAM_NAME);
        Ok(())
    }

    pub(crate) async fn read_stream(&self, offset: u64, length: u32) -> Result<Vec<Bytes>, StoreError> {
        let (_, value) = self.stream_now().await?;
        let from = usize::try_from(offset).ok().filter(|from| *from < value.len());
        let Some(from) = from else {
            return if length == 0 { Ok(Vec::new()) } else { Err(StoreError::EndOfFile) };
        };
        let to = value.len().min(from.saturating_add(length as usize));
        Ok(vec![Bytes::from(value).slice(from..to)])
    }

    pub(crate) async fn write_stream(&self, offset: u64, data: &[u8]) -> Result<u32, StoreError> {
        let _turn = self.store().stream_writes.lock().await;
        let (name, mut value) = self.stream_now().await?;
        let end = offset.checked_add(data.len() as u64).ok_or(StoreError::TooBig)?;
        let (from, end) = (offset as usize, fits(end)?);
        value.resize(value.len().max(end), 0);
        value[from..end].copy_from_slice(data);
        self.set_xattr(attribute(&name).as_bytes(), Some(value)).await?;
        Ok(data.len() as u32)
    }

    pub(crate) async fn resize_stream(&self, size: u64) -> Result<(), StoreError> {
        let _turn = self.store().stream_writes.lock().await;
        let (name, mut value) = self.stream_now().await?;
        value.resize(fits(size)?, 0);
        self.set_xattr(attribute(&name).as_bytes(), Some(value)).await
    }

    pub(crate) async fn remove_stream(&self) -> Result<(), StoreError> {
        let _turn = self.store().stream_writes.lock().await;
        let (name, _) = self.stream_now().await?;
        self.set_xattr(attribute(&name).as_bytes(), None).await
    }

    /// Removes all streams of the file, which is overwritten.
    pub(crate) async fn remove_streams(&self) -> Result<(), StoreError> {
        let _turn = self.store().stream_writes.lock().await;
        for label in self.store().xattrs(self.file()).await? {
            if stream_of(&label).is_some() {
                self.set_xattr(label.as_bytes(), None).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn deletes_stream(&self) -> bool {
        self.options().has(crate::CreateOptions::DELETE_ON_CLOSE)
    }

    /// Renames a stream within its file, or makes its content the file's (`::$DATA`). A refusal
    /// leaves everything as it was.
    pub(crate) async fn rename_stream(&self, target: &Target) -> Result<(), StoreError> {
        let name = self.stream_name().ok_or(StoreError::Invalid)?;
        if !target.path.is_root() {
            // The file would be opened once more, to rename it.
            return Err(StoreError::SharingViolation);
        }
        let store = self.store();
        if target.path.is_content && target.replace {
            let (_, value) = self.stream_now().await?;
            self.replace_content(value).await?;
            return self.remove_stream().await;
        }
        let to = target.path.stream.as_deref().ok_or(StoreError::NotSupported)?;
        if to == name {
            return Ok(());
        }
        Label::attribute(attribute(to).as_bytes()).map_err(|_| StoreError::InvalidName)?;
        let _turn = store.stream_writes.lock().await;
        let (name, value) = self.stream_now().await?;
        let replaced = store.stream(self.file(), to).await?.map(|(replaced, _)| replaced);
        let replaced = replaced.filter(|_| folded(to) != folded(&name));
        if replaced.is_some() && !target.replace {
            return Err(StoreError::NameCollision);
        }
        if !store.with(|table, _| table.rename_stream(self.object(), (to, folded(to)))) {
            return Err(StoreError::Invalid);
        }
        // The file has the content twice for a moment, and never not at all.
        if let Err(refused) = self.set_xattr(attribute(to).as_bytes(), Some(value)).await {
            store.with(|table, _| table.rename_stream(self.object(), (&name, folded(&name))));
            return Err(refused);
        }
        for old in replaced.into_iter().filter(|replaced| replaced != to).chain([name]) {
            self.set_xattr(attribute(&old).as_bytes(), None).await?;
        }
        Ok(())
    }

    /// Replaces the file's own content by that of a stream.
    async fn replace_content(&self, value: Vec<u8>) -> Result<(), StoreError> {
        let (store, who) = (self.store(), &self.parts.who);
        let object = store.with(|table, _| table.id(&ObjectKey::of(self.file())));
        if let Some(object) = object {
            store.act(object, Act::Write, Actor::Other).await;
        }
        let (file, change, size) = (self.file().clone(), AttributeChange::default(), value.len() as u64);
        // A write that is refused leaves the old content.
        if !value.is_empty() {
            let write = call::Write { file: file.clone(), offset: 0, data: value.into(), append: false };
            self.change(who, write).await?;
        }
        let cut = call::SetAttributes { file, change, size: Some(size), through_handle: true };
        self.change(who, cut).await?;
        if let Some(object) = object {
            store.act_done(object, Act::Write, Actor::Other);
        }
        store.caches.content_changed(self.file()).await;
        Ok(())
    }

    /// The named streams, and the content as the stream without a name.
    pub async fn streams(&self) -> Result<Vec<StreamInfo>, StoreError> {
        let mut found = Vec::new();
        if self.parts.kind == namespace::FileKind::Regular {
            let call = call::Stat { file: self.file().clone() };
            let stat = self.store().service.ask(&self.parts.who, call).await?.value;
            let allocation = stat.occupied.next_multiple_of(crate::store::CLUSTER.into());
            found.push(StreamInfo { name: String::new(), size: stat.size, allocation });
        }
        for label in self.store().xattrs(self.file()).await? {
            let Some(name) = stream_of(&label) else { continue };
            if let Some(value) = self.store().xattr(self.file(), label.as_bytes()).await? {
                let size = value.len() as u64;
                found.push(StreamInfo { name: name.to_owned(), size, allocation: size.next_multiple_of(8) });
            }
        }
        Ok(found)
    }

    /// The extended attributes of users, without prefix. Needs READ_EA.
    pub async fn eas(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.require(rights::READ_EA)?;
        let mut found = Vec::new();
        for label in self.store().xattrs(self.file()).await? {
            let Some(name) = ea_of(&label) else { continue };
            if let Some(value) = self.store().xattr(self.file(), label.as_bytes()).await? {
                found.push((name.to_owned(), value));
            }
        }
        Ok(found)
    }

    /// Sets an extended attribute; an empty value removes it. Needs WRITE_EA. Names differ in more
    /// than case: the attribute that exists keeps its name.
    pub async fn set_ea(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.require(rights::WRITE_EA)?;
        self.set_user_ea(name, value).await?;
        self.attributes_changed(watches::EA).await;
        Ok(())
    }

    pub(crate) async fn set_user_ea(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let wanted = folded(name);
        let mut label =
            Label::attribute(format!("{EA}{name}").as_bytes()).map_err(|_| StoreError::InvalidName)?;
        if ea_of(&label).is_none() {
            return Err(StoreError::InvalidName);
        }
        for known in self.store().xattrs(self.file()).await? {
            if ea_of(&known).is_some_and(|ea| folded(ea) == wanted) {
                label = known;
            }
        }
        let value = (!value.is_empty()).then(|| value.to_vec());
        self.set_xattr(label.as_bytes(), value).await
    }
}

/// The length of a stream, which has to fit into an attribute.
fn fits(size: u64) -> Result<usize, StoreError> {
    let size = usize::try_from(size).map_err(|_| StoreError::TooBig)?;
    if size > namespace::XATTR_BYTES_MAX { Err(StoreError::TooBig) } else { Ok(size) }
}
