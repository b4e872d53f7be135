//! The rights of users: by the descriptor that is kept beside a file, or by POSIX where there is
//! none.

use crate::resolve::Place;
use crate::rights::{self, Permitted};
use crate::security::{SecurityDescriptor, UserSids, kept};
use crate::{AccessMask, Root, Store, StoreError};
use client::call;
use ident::FileId;
use namespace::{Attributes, Capabilities, Capability, Cred, Entry, Error, FileKind};

/// The extended attribute of a descriptor. Only the server reads it.
pub(crate) const SECURITY: &[u8] = b"security.NTACL";

impl Store {
    /// The descriptor that a client has set, if it still counts.
    pub(crate) async fn descriptor(
        &self,
        file: &FileId,
        attributes: &Attributes,
    ) -> Result<Option<SecurityDescriptor>, StoreError> {
        let value = self.xattr(file, SECURITY).await?;
        Ok(value.and_then(|value| kept::parse(&value, attributes)))
    }

    /// The rights that a user has at most (MS-FSA §2.1.5.1.2.1).
    pub(crate) async fn maximal(
        &self,
        who: &Cred,
        root: &Root,
        place: &Place,
        (entry, attributes): (&Entry, &Attributes),
    ) -> Result<AccessMask, StoreError> {
        let owns = |uid: u32| who.uid == uid || who.has(Capability::Fowner);
        // The right to remove the name, and whether a listing shows the attributes anyway.
        let (removes, lists) = match &place.link {
            // The root of a share is opened with all rights, and refuses to be deleted.
            None => (true, true),
            Some(link) => {
                let (dir, granted) = self.rights_by_descriptor(who, &link.dir).await?;
                match granted {
                    Some(granted) => (granted & rights::DELETE_CHILD != 0, granted & rights::READ_DATA != 0),
                    None => {
                        let is_sticky = dir.mode & 0o1000 != 0;
                        let may_take = !is_sticky || owns(attributes.uid) || owns(dir.uid);
                        (may_take && self.may(who, &link.dir, 3).await?, self.may(who, &link.dir, 4).await?)
                    }
                }
            }
        };
        if let Some(descriptor) = self.descriptor(&entry.file, attributes).await? {
            let above =
                if removes { rights::DELETE } else { 0 } | if lists { rights::READ_ATTRIBUTES } else { 0 };
            let granted = descriptor.rights(&UserSids::of(who)) | above;
            return Ok(AccessMask(if root.read_only { granted & !rights::CHANGES } else { granted }));
        }
        let permitted = Permitted {
            read: self.may(who, &entry.file, 4).await?,
            write: self.may(who, &entry.file, 2).await?,
            execute: self.may(who, &entry.file, 1).await?,
            owns: owns(attributes.uid),
            delete: removes,
            is_directory: entry.kind == FileKind::Directory,
            read_only: root.read_only,
        };
        Ok(permitted.rights())
    }

    /// Returns the user as whom a name is added to a directory: whoever its descriptor lets add one
    /// needs no mode for that.
    pub(crate) async fn may_add(
        &self,
        who: &Cred,
        dir: &FileId,
        is_directory: bool,
    ) -> Result<Cred, StoreError> {
        let right = if is_directory { rights::APPEND_DATA } else { rights::WRITE_DATA };
        match self.rights_by_descriptor(who, dir).await? {
            (_, None) => Ok(who.clone()),
            (_, Some(granted)) if granted & right != 0 => Ok(empowered(who)),
            (_, Some(_)) => Err(StoreError::AccessDenied),
        }
    }

    /// Returns the user as whom a name of a directory is found that the mode does not let him pass:
    /// its descriptor may.
    pub(crate) async fn may_pass(&self, who: &Cred, dir: &FileId) -> Result<Cred, StoreError> {
        match self.rights_by_descriptor(who, dir).await? {
            (_, Some(granted)) if granted & (rights::EXECUTE | rights::READ_DATA) != 0 => Ok(empowered(who)),
            _ => Err(StoreError::AccessDenied),
        }
    }

    async fn rights_by_descriptor(
        &self,
        who: &Cred,
        dir: &FileId,
    ) -> Result<(Attributes, Option<u32>), StoreError> {
        let attributes = match self.service.ask(who, call::Glance { file: dir.clone() }).await {
            Err(Error::Stale) => return Err(StoreError::PathNotFound),
            stat => stat?.value.attributes,
        };
        let descriptor = self.descriptor(dir, &attributes).await?;
        Ok((attributes, descriptor.map(|descriptor| descriptor.rights(&UserSids::of(who)))))
    }

    /// Returns whether a user may read a file and what is said of it.
    pub(crate) async fn may_read(
        &self,
        who: &Cred,
        file: &FileId,
        attributes: &Attributes,
    ) -> Result<bool, StoreError> {
        match self.descriptor(file, attributes).await? {
            Some(descriptor) => Ok(!descriptor.rights(&UserSids::of(who)) & rights::READABLE == 0),
            None => self.may(who, file, 4).await,
        }
    }

    async fn may(&self, who: &Cred, file: &FileId, mask: u8) -> Result<bool, StoreError> {
        match self.service.ask(who, call::Access { file: file.clone(), mask }).await {
            Ok(()) => Ok(true),
            Err(Error::AccessDenied | Error::NotPermitted | Error::ReadOnly) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The user, without POSIX in the way of what was checked already.
pub(crate) fn empowered(who: &Cred) -> Cred {
    let capabilities = Capabilities::NONE
        .with(Capability::DacOverride)
        .with(Capability::DacReadSearch)
        .with(Capability::Fowner);
    Cred { capabilities, ..who.clone() }
}
