//! Security descriptors of opens (MS-FSA §2.1.5.14, §2.1.5.17).

use crate::dos::Dos;
use crate::permission::SECURITY;
use crate::rights;
use crate::security::{SecurityDescriptor, Sid, UserSids, kept};
use crate::{Open, OpenRequest, StoreError, watches};
use client::call;
use ident::FileId;
use namespace::{AttributeChange, Attributes};

impl Open {
    /// The security descriptor, for these of its parts. Each needs READ_CONTROL, and the list that
    /// says what is noted the privilege that is nobody's (MS-FSA §2.1.5.14).
    pub async fn security(&self, parts: u32) -> Result<SecurityDescriptor, StoreError> {
        self.require(match parts {
            0 => u32::MAX,
            _ if parts & SecurityDescriptor::SACL != 0 => rights::SYSTEM_SECURITY,
            _ => rights::READ_CONTROL,
        })?;
        self.security_of(&self.attributes().await?).await
    }

    /// Sets parts of the security descriptor. A list that is a mode's in another form sets the
    /// mode; any other is kept, and the mode that comes closest is what POSIX sees of it. Needs
    /// WRITE_DAC for the list, and WRITE_OWNER for owner and group.
    pub async fn set_security(&self, parts: u32, new: SecurityDescriptor) -> Result<(), StoreError> {
        const OWNERS: u32 = SecurityDescriptor::OWNER | SecurityDescriptor::GROUP;
        for (part, right) in [(OWNERS, rights::WRITE_OWNER), (SecurityDescriptor::DACL, rights::WRITE_DAC)] {
            if parts & part != 0 {
                self.require(right)?;
            }
        }
        if parts & SecurityDescriptor::SACL != 0 {
            self.require(rights::SYSTEM_SECURITY)?;
        }
        if parts & (OWNERS | SecurityDescriptor::DACL | SecurityDescriptor::SACL) == 0 {
            // No part that is kept.
            return self.require(u32::MAX);
        }
        let mut whole = self.security_of(&self.attributes().await?).await?;
        whole.replace(parts, new);
        self.chown(parts, &whole).await?;
        self.keep(whole).await?;
        self.attributes_changed(watches::SECURITY).await;
        Ok(())
    }

    /// Gives a new file the descriptor that it was made with, or what its directory's passes on.
    pub(crate) async fn begin_security(&self, request: &OpenRequest, dir: &FileId) -> Result<(), StoreError> {
        if self.is_stream() {
            return Ok(());
        }
        let store = self.store();
        let call = call::Glance { file: dir.clone() };
        let above = store.service.ask(&self.parts.who, call).await?.value.attributes;
        let above = store.descriptor(dir, &above).await?;
        if above.is_none() && request.security.is_none() {
            return Ok(());
        }
        let file = self.attributes().await?;
        let (owner, group) = (Sid::user(file.uid), Sid::group(file.gid));
        let passed_on = above.and_then(|above| above.inherited(self.is_directory(), owner, group));
        if passed_on.is_none() && request.security.is_none() {
            return Ok(());
        }
        let mut whole = passed_on.unwrap_or_else(|| SecurityDescriptor::of_mode(&file));
        if let Some(own) = &request.security {
            whole.replace(own.parts() & !SecurityDescriptor::SACL, own.clone());
            self.chown(own.parts(), &whole).await?;
        }
        self.keep(whole).await
    }

    async fn attributes(&self) -> Result<Attributes, StoreError> {
        let call = call::Stat { file: self.file().clone() };
        Ok(self.store().service.ask(&self.parts.who, call).await?.value.attributes)
    }

    async fn security_of(&self, attributes: &Attributes) -> Result<SecurityDescriptor, StoreError> {
        let kept = self.store().descriptor(self.file(), attributes).await?;
        Ok(kept.unwrap_or_else(|| SecurityDescriptor::of_mode(attributes)))
    }

    /// Gives the file to the owner and group of its new descriptor, as far as they are POSIX'. Any
    /// other has to be one of the user's own, unless he is root.
    async fn chown(&self, parts: u32, new: &SecurityDescriptor) -> Result<(), StoreError> {
        let (file, who) = (self.attributes().await?, &self.parts.who);
        let mut change = AttributeChange::default();
        if let Some(owner) = new.owner().filter(|_| parts & SecurityDescriptor::OWNER != 0) {
            match owner.uid() {
                Some(uid) => change.uid = Some(uid).filter(|uid| *uid != file.uid),
                None if who.uid == 0 || UserSids::of(who).has(owner) => {}
                None => return Err(StoreError::AccessDenied),
            }
        }
        if let Some(gid) = new.group().filter(|_| parts & SecurityDescriptor::GROUP != 0).and_then(Sid::gid) {
            change.gid = Some(gid).filter(|gid| *gid != file.gid);
        }
        // A change of owner is the user's own right, and not the open's.
        self.set_attributes(who, change).await
    }

    /// Keeps the descriptor, and has the mode say what it can of it.
    async fn keep(&self, whole: SecurityDescriptor) -> Result<(), StoreError> {
        let file = self.attributes().await?;
        let exact = whole.exact_mode(&file);
        let mode = exact.unwrap_or_else(|| whole.near_mode(&file));
        if mode != file.mode {
            let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
            self.set_attributes(&self.empowered(), change).await?;
        }
        let value = exact.is_none().then(|| kept::to_bytes(&whole, &Attributes { mode, ..file }));
        let dos = self.dos().await?;
        // Without write bits in the mode a file would be shown as read-only.
        let is_described = value.is_some() && mode & 0o222 == 0;
        if dos.is_described != is_described {
            self.set_dos(Dos { is_described, ..dos }).await?;
        }
        self.set_xattr(SECURITY, value).await
    }
}
