//! Names: renaming, linking, and the deletion disposition (MS-FSA §2.1.5.15.3, §2.1.5.15.6,
//! §2.1.5.15.11).

use crate::path::name_of;
use crate::rights;
use crate::table::Deleting;
use crate::{Deletion, DosAttributes, Open, Store, StoreError, Target};
use client::call;
use ident::FileId;
use lease::caching::{Act, Actor, ObjectId};
use namespace::{Error, FileKind, Link, RenameMode};

impl Open {
    /// Renames (MS-FSA §2.1.5.15.11). Needs DELETE.
    pub async fn rename(&self, target: Target) -> Result<(), StoreError> {
        self.require(rights::DELETE)?;
        if self.is_stream() || target.path.is_stream() {
            return self.rename_stream(&target).await;
        }
        if target.path.is_content {
            return Err(StoreError::Invalid);
        }
        let (store, who) = (self.store(), &self.parts.who);
        let from = self.name().ok_or(StoreError::AccessDenied)?;
        let exact = self.parts.is_posix;
        let place = store.resolve(who, &self.parts.root, &target.path, (true, false)).await?;
        let to = place.link.clone().ok_or(StoreError::NameCollision)?;
        if to == from {
            return Ok(());
        }
        // A name that differs in case only is the file's own, and no collision.
        let (label, found) = match place.found.clone() {
            Some(found) => (to.label.clone(), Some(found)),
            None => store.find(who, &to.dir, to.label.clone(), exact).await?,
        };
        let replaced = found.filter(|(entry, _)| entry.file != *self.file());
        if let Some((entry, stat)) = &replaced {
            if !target.replace {
                return Err(StoreError::NameCollision);
            }
            if entry.kind == FileKind::Directory && !target.posix {
                return Err(StoreError::AccessDenied);
            }
            let dos = store.dos(entry).await?;
            if dos.shown(stat).has(DosAttributes::READ_ONLY) && !target.ignore_read_only {
                return Err(StoreError::AccessDenied);
            }
            store.make_way(&entry.file, target.posix).await?;
        }
        if self.is_directory() {
            store.clear_below(self.file(), target.posix).await?;
        }
        store.may_change_names(&to.dir).await?;
        let mover = store.may_add(who, &to.dir, self.is_directory()).await?;
        let by = Actor::Open(self.id());
        store.act(self.object(), Act::Rename, by).await;
        let replaces = label != to.label && replaced.is_some();
        if replaces {
            // The replaced name has another case. It goes first: both would be there otherwise.
            let call = call::Unlink { dir: to.dir.clone(), label: label.clone(), directory: false };
            store.unlinked(store.service.ask(who, call).await);
        }
        let child = Actor::Child(self.parts.parent);
        store.listing_changes(&from.dir, child);
        store.listing_changes(&to.dir, child);
        let mode = if target.replace && !replaces { RenameMode::Replace } else { RenameMode::NoReplace };
        let call = call::Rename {
            from_dir: from.dir.clone(),
            from: from.label.clone(),
            to_dir: to.dir.clone(),
            to: to.label.clone(),
            mode,
            whiteout: false,
        };
        let renamed = match store.service.ask(&mover, call).await {
            Err(Error::IsDirectory | Error::NotDirectory) => return Err(StoreError::AccessDenied),
            renamed => renamed?,
        };
        store.service.0.forgotten(renamed.into_iter().collect());
        let name = name_of(&to.label, exact);
        let path: Vec<String> =
            place.path.iter().take(place.path.len().saturating_sub(1)).cloned().chain(name).collect();
        let old = self.watched_place();
        store.with(|table, _| table.renamed(self.id(), &from, &to, (&place.above, &place.labels, path)));
        store.act_done(self.object(), Act::Rename, by);
        store.lists(&to.dir, self.file());
        store.listing_changes(&from.dir, child);
        store.listing_changes(&to.dir, child);
        store.below.entry_changed(&from).await;
        store.below.entry_changed(&to).await;
        self.report_renamed(old);
        Ok(())
    }

    /// Makes another name for the file (MS-FSA §2.1.5.15.6).
    pub async fn link(&self, target: Target) -> Result<(), StoreError> {
        self.require(u32::MAX)?;
        if self.is_directory() {
            return Err(StoreError::IsDirectory);
        }
        if self.is_stream() || target.path.is_stream() {
            return Err(StoreError::Invalid);
        }
        let (store, who) = (self.store(), &self.parts.who);
        let exact = self.parts.is_posix;
        let place = store.resolve(who, &self.parts.root, &target.path, (exact, false)).await?;
        let to = place.link.clone().ok_or(StoreError::NameCollision)?;
        if let Some((entry, _)) = &place.found {
            if entry.file == *self.file() && target.replace {
                return Ok(());
            }
            if !target.replace {
                return Err(StoreError::NameCollision);
            }
            if entry.kind == FileKind::Directory {
                return Err(StoreError::AccessDenied);
            }
            store.make_way(&entry.file, target.posix).await?;
            let call = call::Unlink { dir: to.dir.clone(), label: to.label.clone(), directory: false };
            store.unlinked(store.service.ask(who, call).await);
        }
        let maker = store.may_add(who, &to.dir, false).await?;
        store.act(self.object(), Act::Link, Actor::Open(self.id())).await;
        let child = Actor::Child(self.parts.parent);
        store.listing_changes(&to.dir, child);
        let call = call::Link { file: self.file().clone(), dir: to.dir.clone(), label: to.label.clone() };
        store.service.ask(&maker, call).await?;
        store.lists(&to.dir, self.file());
        store.listing_changes(&to.dir, child);
        store.below.entry_changed(&to).await;
        store.below.attributes_changed(self.file()).await;
        self.report_named(&to, &place.path);
        Ok(())
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
            self.note_deletion(deletion.delete.then_some(link));
            return Ok(());
        }
        if deletion.posix {
            self.state.lock().unlinks = deletion.delete;
        }
        let wanted = deletion.delete.then(|| link.clone());
        // A deletion by POSIX' rules is none that others could see before the close. It is checked
        // now all the same: a directory that has children stays.
        let call = call::SetDisposition { file: self.file().clone(), link: wanted.clone() };
        store.service.ask(&self.empowered(), call).await?;
        self.note_deletion(wanted);
        if deletion.delete {
            store.act_done(self.object(), Act::Dispose, Actor::Open(self.id()));
            store.watches.deleting(self.file());
        }
        Ok(())
    }

    fn note_deletion(&self, link: Option<Link>) {
        let by = self.parts.parent;
        self.store().with(|table, _| {
            if let Some(known) = table.objects.get_mut(&self.object()) {
                known.deleting = link.map(|link| Deleting { link, by });
            }
            if let Some(lease::caching::LeaseHolder::Lease(lease)) = self.parts.holder {
                table.clients.note_deleted(lease, self.object());
            }
        });
    }
}

impl Store {
    /// Has those who cache handles of a file close them, since another takes its name. If somebody
    /// really has it open, the act is refused unless it is POSIX'.
    async fn make_way(&self, file: &FileId, posix: bool) -> Result<(), StoreError> {
        let objects = self.with(|table, _| table.of_file(file));
        for object in objects {
            self.act(object, Act::Rename, Actor::Other).await;
            if !posix && self.is_open(object) {
                return Err(StoreError::AccessDenied);
            }
        }
        Ok(())
    }

    /// Has those who cache handles below a directory close them. If somebody really has something
    /// open there, a rename by the rules of Windows is refused.
    async fn clear_below(&self, dir: &FileId, posix: bool) -> Result<(), StoreError> {
        let objects = self.with(|table, _| table.below(dir));
        for object in &objects {
            self.act(*object, Act::MoveAbove, Actor::Other).await;
        }
        for object in objects.into_iter().filter(|_| !posix) {
            if self.is_open(object) && self.has_name(object).await {
                return Err(StoreError::AccessDenied);
            }
        }
        Ok(())
    }

    /// Whether a name by which an object was opened still leads to its file. FUSE and other
    /// machines unlink and move files that are open here.
    async fn has_name(&self, object: ObjectId) -> bool {
        let links: Vec<(FileId, Link)> = self.with(|table, _| {
            let Some(known) = table.objects.get(&object) else { return Vec::new() };
            let opens = table.opens.values().filter(|open| open.object == object);
            opens.filter_map(|open| Some((known.key.file.clone(), open.link.clone()?))).collect()
        });
        for (file, link) in links {
            if self.leads_to(&link, &file).await != Ok(false) {
                return true;
            }
        }
        false
    }

    fn is_open(&self, object: ObjectId) -> bool {
        self.with(|table, _| table.objects.get(&object).is_some_and(|known| known.caching.is_open()))
    }

    /// Takes the answer to an unlink. No front door of the store's keeps a file that has no name.
    pub(crate) fn unlinked(&self, answer: Result<Option<FileId>, Error>) {
        if let Ok(Some(file)) = answer {
            self.service.0.forgotten(vec![file]);
        }
    }
}
