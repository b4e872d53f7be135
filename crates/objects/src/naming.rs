//! Linking, and the deletion disposition (MS-FSA §2.1.5.15.3, §2.1.5.15.6).

use crate::renaming::RACES_MAX;
use crate::replacing::Destination;
use crate::rights;
use crate::table::Deleting;
use crate::{Deletion, DosAttributes, Open, Store, StoreError, Target};
use client::call;
use ident::FileId;
use lease::caching::{Act, Actor};
use namespace::{Error, Link};

impl Open {
    /// Makes another name for the file (MS-FSA §2.1.5.15.6).
    pub async fn link(&self, target: Target) -> Result<(), StoreError> {
        self.require(u32::MAX)?;
        if self.parts.root.read_only {
            return Err(StoreError::AccessDenied);
        }
        if self.is_directory() {
            return Err(StoreError::IsDirectory);
        }
        if self.is_stream() || target.path.is_stream() {
            return Err(StoreError::Invalid);
        }
        for _ in 0..RACES_MAX {
            let destination = self.destination(&target).await?;
            if self.link_at(&target, destination).await? {
                return Ok(());
            }
        }
        Err(StoreError::NameCollision)
    }

    /// Links, if the name is still as it was found.
    async fn link_at(
        &self,
        target: &Target,
        Destination { place, to, found }: Destination,
    ) -> Result<bool, StoreError> {
        let (store, file) = (self.store(), self.file().clone());
        let maker = store.may_add(&self.parts.who, &to.dir, false).await?;
        let replacing = match found {
            Some((_, entry, _)) if entry.file == file && target.replace => return Ok(true),
            Some(found) => match self.may_replace(target, &place, found).await? {
                Some(replacing) => Some(replacing),
                None => return Ok(false),
            },
            None => None,
        };
        store.act(self.object(), Act::Link, Actor::Open(self.id())).await;
        self.names_change([&to]);
        let replaced = replacing.as_ref().map(|replacing| replacing.replaced.clone());
        let call = call::Link { file, dir: to.dir.clone(), label: to.label.clone(), replaced };
        let linked = self.change(&maker, call).await;
        if let Some(replacing) = replacing {
            replacing.end().await;
        }
        match linked {
            // Something has taken the name meanwhile.
            Err(Error::AnotherFile) => return Ok(false),
            Err(Error::Exists) if target.replace => return Ok(false),
            linked => linked?,
        };
        store.lists(&to.dir, self.file());
        self.names_change([&to]);
        store.caches.entry_changed(&to).await;
        store.caches.attributes_changed(self.file()).await;
        self.report_named(&to, &place.path);
        Ok(true)
    }

    /// Sets or clears the deletion disposition (MS-FSA §2.1.5.15.3). Needs DELETE.
    pub async fn set_deletion(&self, deletion: Deletion) -> Result<(), StoreError> {
        self.require(rights::DELETE)?;
        let store = self.store();
        let link = self.name().ok_or(StoreError::CannotDelete)?;
        if deletion.delete {
            let is_read_only = self.info().await?.attributes.has(DosAttributes::READ_ONLY);
            if is_read_only && !deletion.ignore_read_only && !self.is_directory() {
                return Err(StoreError::CannotDelete);
            }
            store.act(self.object(), Act::Dispose, Actor::Open(self.id())).await;
        }
        if self.is_stream() {
            self.note_deletion(deletion.delete.then_some(link), false);
            return Ok(());
        }
        // A deletion by POSIX' rules is none that others could see before the close. It is checked
        // now all the same: a directory that has children stays.
        let wanted = self.dispose(deletion.delete).await?;
        self.note_deletion(wanted, deletion.posix);
        if deletion.delete {
            store.act_done(self.object(), Act::Dispose, Actor::Open(self.id()));
            store.watches.deleting(self.file());
        }
        Ok(())
    }

    /// Has the file's name go with the last handle, or stay. Returns the name that goes.
    pub(crate) async fn dispose(&self, delete: bool) -> Result<Option<Link>, StoreError> {
        let mut is_found = !delete;
        loop {
            let link = if delete { self.name() } else { None };
            if delete && link.is_none() {
                return Err(StoreError::CannotDelete);
            }
            let call = call::SetDisposition { file: self.file().clone(), link: link.clone() };
            match self.change(&self.empowered(), call).await {
                // The file has another name than it had.
                Err(Error::NotFound) if !is_found => {
                    self.find_name().await?;
                    is_found = true;
                }
                set => return Ok(set.map(|()| link)?),
            }
        }
    }

    /// Notes that this name is to go with the last handle, or by POSIX' rules with this one, or
    /// that it stays after all.
    pub(crate) fn note_deletion(&self, link: Option<Link>, posix: bool) {
        let (by, open) = (self.parts.parent, self.id());
        self.store().with(|table, _| {
            if let Some(known) = table.objects.get_mut(&self.object()) {
                let before = known.deleting.take();
                known.deleting = link.map(|link| {
                    let mut unlinks = before.map(|before| before.unlinks).unwrap_or_default();
                    unlinks.extend(posix.then_some(open));
                    Deleting { link, by, unlinks }
                });
            }
            if let Some(lease::caching::LeaseHolder::Lease(lease)) = self.parts.holder {
                table.clients.note_deleted(lease, self.object());
            }
        });
    }
}

impl Store {
    /// Takes the answer to an unlink. No front door of the store's keeps a file that has no name.
    pub(crate) fn unlinked(&self, answer: Result<Option<FileId>, Error>) {
        if let Ok(Some(file)) = answer {
            self.service.0.forgotten(vec![file]);
        }
    }
}
