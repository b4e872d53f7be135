//! Symbolic links that clients make and look at: reparse points (MS-FSA §2.1.5.10.14,
//! §2.1.5.10.37). They are the file system's own symbolic links.
//!
//! Windows makes a file first, and then a link of it. A file keeps its kind here, so a link takes
//! the file's name, and its open.

use crate::opening::key_of;
use crate::path::{from_private, name_of};
use crate::rights;
use crate::underway::Content;
use crate::{
    Caching, CreateDisposition, CreateOptions, DosAttributes, ObjectPath, Open, OpenRequest, Root, Store,
    StoreError,
};
use client::call;
use lease::Label;
use lease::caching::{Act, Actor};
use namespace::{Cred, FileKind, FileSpec, Link};
use std::sync::Arc;

/// A symbolic link on the way to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOnPath {
    /// Its target, as POSIX has it.
    pub target: Vec<u8>,
    /// The number of components that come behind it.
    pub left: usize,
}

impl Open {
    /// The target of a symbolic link that was opened itself (FILE_OPEN_REPARSE_POINT), as POSIX has
    /// it.
    pub async fn link_target(&self) -> Result<Vec<u8>, StoreError> {
        if self.parts.kind != FileKind::Symlink || self.is_stream() {
            return Err(StoreError::NotLink);
        }
        let call = call::ReadLink { file: self.file().clone() };
        Ok(self.store().service.ask(&self.parts.who, call).await?)
    }

    /// Makes a symbolic link of the file or directory, which must be empty, and which nobody else
    /// may have open on this machine. Needs WRITE_DATA or WRITE_ATTRIBUTES.
    ///
    /// Returns the open of the link, which takes the place of this one: this one is closed. It has
    /// neither a lease nor an oplock.
    pub async fn become_link(&self, target: &[u8]) -> Result<Arc<Open>, StoreError> {
        self.require(rights::WRITE_DATA | rights::WRITE_ATTRIBUTES)?;
        let store = self.store();
        if self.is_stream() {
            return Err(StoreError::NotSupported);
        }
        if self.parts.root.read_only {
            return Err(StoreError::AccessDenied);
        }
        if self.info().await?.size > 0 && self.parts.kind == FileKind::Regular {
            return Err(StoreError::NotEmpty);
        }
        self.find_name().await?;
        let link = self.name().ok_or(StoreError::AccessDenied)?;
        store.act(self.object(), Act::Rename, Actor::Open(self.id())).await;
        let (is_alone, record) = store.with(|table, _| {
            let of_object = table.opens.values().filter(|open| open.object == self.object());
            (of_object.count() == 1, table.opens.get(&self.id()).cloned())
        });
        let record = record.ok_or(StoreError::Closed)?;
        if !is_alone {
            return Err(StoreError::SharingViolation);
        }
        self.replace_by_link(&link, target).await?;
        self.state.lock().spares = true;
        self.end().await;
        let options = self.options().0 & !CreateOptions::DIRECTORY | CreateOptions::REPARSE_POINT;
        let request = OpenRequest {
            client: record.client,
            access: self.access(),
            sharing: self.parts.sharing,
            disposition: CreateDisposition::Open,
            options: CreateOptions(options),
            attributes: DosAttributes(0),
            allocation: 0,
            eas: Vec::new(),
            security: None,
            caching: Caching::Nothing,
            mode: None,
            leases_directories: false,
            is_posix: self.parts.is_posix,
        };
        store.open_link(&self.parts.who, &self.parts.root, &request, &link, record.path).await
    }

    /// Gives the name to a new link. The file loses it, and goes with its last handle.
    async fn replace_by_link(&self, link: &Link, target: &[u8]) -> Result<(), StoreError> {
        let store = self.store();
        let maker = crate::permission::empowered(&store.may_add(&self.parts.who, &link.dir, false).await?);
        self.names_change([link]);
        let (dir, label) = (link.dir.clone(), link.label.clone());
        let directory = self.is_directory();
        let unlink = call::Unlink { dir: dir.clone(), label: label.clone(), pending: None, directory };
        let unlinked = self.change(&maker, unlink).await;
        if let Err(error) = unlinked {
            return Err(error.into());
        }
        store.unlinked(unlinked);
        let spec = FileSpec { target: target.to_vec(), ..FileSpec::new(FileKind::Symlink, 0o777, 0) };
        let create = call::Create { dir, label, spec, open: None };
        let (entry, _) = self.change(&maker, create).await?.value;
        store.lists(&link.dir, &entry.file);
        self.names_change([link]);
        store.caches.entry_changed(link).await;
        Ok(())
    }
}

impl Store {
    /// Opens the link that has just got this name.
    async fn open_link(
        self: &Arc<Self>,
        who: &Cred,
        root: &Root,
        request: &OpenRequest,
        link: &Link,
        path: Vec<String>,
    ) -> Result<Arc<Open>, StoreError> {
        let path = ObjectPath::parse(&path.join("\\"), request.is_posix)?;
        let place = self.resolve(&crate::permission::empowered(who), root, &path, (true, false)).await?;
        let is_it = place.link.as_ref() == Some(link);
        let (entry, _) = place.found.clone().filter(|_| is_it).ok_or(StoreError::NotFound)?;
        let underway = self.begin(request, &key_of(&entry, &path), false, (&place, None))?;
        self.admit(request, &underway, request.access).await?;
        let modes = request.access.modes(request.sharing);
        let handle = self.counted(self.service.open(who, &entry.file, modes).await?);
        let content = Content::Kept { size: 0 };
        self.judge_open(request, &underway, request.access, content).await?;
        let open = self.opened(who, root, request, (underway, &entry, request.access), handle, &path);
        open.report_added();
        Ok(open)
    }

    /// Finds the first symbolic link on a path, for a client that is to follow it itself.
    pub async fn link_on_path(
        &self,
        who: &Cred,
        root: &Root,
        path: &ObjectPath,
        is_posix: bool,
    ) -> Result<LinkOnPath, StoreError> {
        let count = path.components.len();
        for length in 1..=count {
            let components = path.components[..length].to_vec();
            let part = ObjectPath { components, ..ObjectPath::default() };
            let place = self.resolve(who, root, &part, (is_posix, false)).await?;
            let (entry, _) = place.found.ok_or(StoreError::NotFound)?;
            if entry.kind == FileKind::Symlink {
                let call = call::ReadLink { file: entry.file };
                let target = self.service.ask(who, call).await?;
                return Ok(LinkOnPath { target, left: count - length });
            }
        }
        Err(StoreError::NotFound)
    }
}

/// Targets that lead out of the server, as Windows has them: `\??\C:\dir`.
const OUTSIDE: &str = r"\??\";
/// The longest target, in bytes, as Linux has it.
const TARGET_BYTES_MAX: usize = 4095;

/// Returns the target of a link, as POSIX has it, for the text of Windows.
pub fn link_target(text: &str) -> Result<Vec<u8>, StoreError> {
    let is_outside = text.starts_with(OUTSIDE);
    let posix = |c: char| match c {
        '\\' => '/',
        c if is_outside => c,
        c => from_private(c),
    };
    let target: String = text.chars().map(posix).collect();
    if target.is_empty() || target.contains('\0') || target.len() > TARGET_BYTES_MAX {
        return Err(StoreError::InvalidName);
    }
    Ok(target.into_bytes())
}

/// Returns the text of Windows for a link's target, and whether it is relative to the link or to
/// the volume. Bytes that are no UTF-8 are replaced.
pub fn link_text(target: &[u8]) -> (String, bool) {
    let target = String::from_utf8_lossy(target);
    let text = target.replace('/', "\\");
    if text.starts_with(OUTSIDE) {
        return (text, false);
    }
    let names = target.split('/').map(|name| match name {
        "" | "." | ".." => name.to_owned(),
        name => Label::new(name.as_bytes())
            .ok()
            .and_then(|label| name_of(&label, false))
            .unwrap_or_else(|| name.to_owned()),
    });
    (names.collect::<Vec<String>>().join("\\"), true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_of_windows_and_posix() {
        for (text, target) in [
            ("a", "a"),
            (r"..\b\c", "../b/c"),
            (r"\from\root", "/from/root"),
            (r"\??\C:\x?", "/??/C:/x?"),
            ("q\u{f03f}", "q?"),
        ] {
            assert_eq!(link_target(text).unwrap(), target.as_bytes());
            assert_eq!(link_text(target.as_bytes()).0, text);
        }
        assert!(!link_text(b"/??/C:/x").1 && link_text(b"/x").1 && link_text(b"x").1);
        for text in ["", "a\0b", &"x".repeat(5000)] {
            assert_eq!(link_target(text), Err(StoreError::InvalidName));
        }
    }

    proptest! {
        #[test]
        fn a_target_of_a_client_comes_back(text in "[a-c.\\\\: ?]{1,12}") {
            let target = link_target(&text).unwrap();
            prop_assert_eq!(link_target(&link_text(&target).0).unwrap(), target);
        }
    }
}
