//! Renaming (MS-FSA §2.1.5.15.11).

use crate::path::name_of;
use crate::replacing::Destination;
use crate::rights;
use crate::{Open, Store, StoreError, Target};
use client::call;
use ident::FileId;
use lease::caching::{Act, Actor, ObjectId};
use namespace::{Error, Link, RenameMode, Replaced};

/// How often a rename or a link begins anew because a name is another file's by then.
pub(crate) const RACES_MAX: u32 = 16;

impl Open {
    /// Renames (MS-FSA §2.1.5.15.11). Needs DELETE.
    ///
    /// The file is renamed that is open. If its name is another file's by now, the name that the
    /// file has is looked up.
    pub async fn rename(&self, target: Target) -> Result<(), StoreError> {
        self.require(rights::DELETE)?;
        if self.is_stream() || target.path.is_stream() {
            return self.rename_stream(&target).await;
        }
        if target.path.is_content {
            return Err(StoreError::Invalid);
        }
        for _ in 0..RACES_MAX {
            let from = self.name().ok_or(StoreError::AccessDenied)?;
            let destination = self.destination(&target).await?;
            if self.rename_from(&from, &target, destination).await? {
                return Ok(());
            }
            self.find_name().await?;
        }
        Err(StoreError::NotFound)
    }

    /// Renames, if both names are still as they were found.
    async fn rename_from(
        &self,
        from: &Link,
        target: &Target,
        Destination { place, to, found }: Destination,
    ) -> Result<bool, StoreError> {
        let store = self.store();
        if to == *from {
            return store.leads_to(from, self.file()).await;
        }
        let mut mode = RenameMode::NoReplace;
        let replacing = match found {
            // A name that differs in case only is the file's own, and no collision.
            Some((label, entry, _)) if entry.file == *self.file() => {
                if label == to.label && !target.replace {
                    return Err(StoreError::NameCollision);
                }
                if label == to.label {
                    mode = RenameMode::Replace;
                }
                None
            }
            Some(found) => {
                mode = RenameMode::Replace;
                match self.may_replace(target, &place, found).await? {
                    Some(replacing) => Some(replacing),
                    None => return Ok(false),
                }
            }
            None => None,
        };
        let replaced = replacing.as_ref().map(|replacing| replacing.replaced.clone());
        let renamed = self.rename_to(from, &to, (mode, replaced), target).await;
        if let Some(replacing) = replacing {
            replacing.end().await;
        }
        match renamed {
            // Something has taken a name meanwhile.
            Err(StoreError::NotFound) => return Ok(false),
            Err(StoreError::NameCollision) if target.replace => return Ok(false),
            renamed => renamed?,
        }
        let name = name_of(&to.label, self.parts.is_posix);
        let path: Vec<String> =
            place.path.iter().take(place.path.len().saturating_sub(1)).cloned().chain(name).collect();
        let old = self.watched_place();
        store.with(|table, _| table.renamed(self.id(), from, &to, (&place.above, &place.labels, path)));
        store.act_done(self.object(), Act::Rename, Actor::Open(self.id()));
        store.lists(&to.dir, self.file());
        self.names_change([from, &to]);
        store.caches.entry_changed(from).await;
        store.caches.entry_changed(&to).await;
        self.report_renamed(old);
        Ok(true)
    }

    /// Renames at the client, once nobody who has anything open is in the way.
    async fn rename_to(
        &self,
        from: &Link,
        to: &Link,
        (mode, replaced): (RenameMode, Option<Box<Replaced>>),
        target: &Target,
    ) -> Result<(), StoreError> {
        let (store, who) = (self.store(), &self.parts.who);
        if self.is_directory() {
            store.clear_below(self.file(), target.posix).await?;
        }
        store.may_change_names(&to.dir).await?;
        let mover = store.may_add(who, &to.dir, self.is_directory()).await?;
        store.act(self.object(), Act::Rename, Actor::Open(self.id())).await;
        self.names_change([from, to]);
        let call = call::Rename {
            from_dir: from.dir.clone(),
            from: from.label.clone(),
            source: Some(self.file().clone()),
            to_dir: to.dir.clone(),
            to: to.label.clone(),
            mode,
            replaced,
            whiteout: false,
        };
        let lingers = match self.change(&mover, call).await {
            Err(Error::IsDirectory | Error::NotDirectory) => return Err(StoreError::AccessDenied),
            renamed => renamed?,
        };
        store.service.0.forgotten(lingers.into_iter().collect());
        Ok(())
    }

    /// Tells the holders of leases on the directories of these names that their listings change.
    pub(crate) fn names_change<const N: usize>(&self, names: [&Link; N]) {
        for name in names {
            self.store().listing_changes(&name.dir, Actor::Child(self.parts.parent));
        }
    }

    /// Finds the name of the file anew, if another front door or machine has renamed it. A file
    /// with several other names has no name that is the open's.
    pub(crate) async fn find_name(&self) -> Result<(), StoreError> {
        let store = self.store();
        let old = self.name().ok_or(StoreError::NotFound)?;
        if store.leads_to(&old, self.file()).await? {
            return Ok(());
        }
        let call = call::Links { file: self.file().clone() };
        let links = match store.service.ask(&self.parts.who, call).await {
            Err(Error::Stale) => return Err(StoreError::NotFound),
            links => links?,
        };
        let [only] = links.as_slice() else { return Err(StoreError::NotFound) };
        store.with(|table, _| table.found(self.object(), &old, only));
        Ok(())
    }
}

impl Store {
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
}
