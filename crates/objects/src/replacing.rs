//! Names that other files lose to a rename or a link (MS-FSA §2.1.5.15.6, §2.1.5.15.11).

use crate::counted::CountedHandle;
use crate::resolve::Place;
use crate::rights;
use crate::{AccessMask, DosAttributes, Open, Sharing, Store, StoreError, Target};
use ident::FileId;
use lease::Label;
use lease::caching::{Act, Actor, ObjectId};
use namespace::{Attributes, Entry, Error, FileKind, Link, Replaced};
use std::sync::Arc;

/// The place of a new name.
pub(crate) struct Destination {
    pub(crate) place: Place,
    pub(crate) to: Link,
    /// The entry that has the name, perhaps in another case, and its exact label.
    pub(crate) found: Option<(Label, Entry, Attributes)>,
}

/// A file that may lose its name. The store has it open to delete, so that no open comes meanwhile
/// that does not share that.
pub(crate) struct Replacing {
    pub(crate) replaced: Box<Replaced>,
    handle: CountedHandle,
}

impl Replacing {
    /// Closes the file, which has lost its name or keeps it.
    pub(crate) async fn end(self) {
        let _ = self.handle.close().await;
    }
}

impl Open {
    /// Finds the place of a new name, and what has the name.
    pub(crate) async fn destination(&self, target: &Target) -> Result<Destination, StoreError> {
        let (store, who) = (self.store(), &self.parts.who);
        let place = store.resolve(who, &self.parts.root, &target.path, (true, false)).await?;
        let to = place.link.clone().ok_or(StoreError::NameCollision)?;
        let (label, found) = match place.found.clone() {
            Some(found) => (to.label.clone(), Some(found)),
            None => store.find(who, &to.dir, to.label.clone(), self.parts.is_posix).await?,
        };
        Ok(Destination { place, to, found: found.map(|(entry, attributes)| (label, entry, attributes)) })
    }

    /// Checks whether a file may lose its name to this one: the target says so, the user has DELETE
    /// on that file, and nobody has it open who does not share that. Nothing, if the file is gone.
    pub(crate) async fn may_replace(
        &self,
        target: &Target,
        place: &Place,
        (label, entry, attributes): (Label, Entry, Attributes),
    ) -> Result<Option<Replacing>, StoreError> {
        let (store, who) = (self.store(), &self.parts.who);
        if !target.replace {
            return Err(StoreError::NameCollision);
        }
        if entry.kind == FileKind::Directory && !target.posix {
            return Err(StoreError::AccessDenied);
        }
        let dos = store.dos(&entry).await?;
        if dos.shown(&attributes).has(DosAttributes::READ_ONLY) && !target.ignore_read_only {
            return Err(StoreError::AccessDenied);
        }
        let maximal = store.maximal(who, &self.parts.root, place, (&entry, &attributes)).await?;
        if maximal.0 & rights::DELETE == 0 {
            return Err(StoreError::AccessDenied);
        }
        store.make_way(&entry.file, target.posix).await?;
        let handle = match store.open_to_delete(&entry.file).await {
            Err(Error::Stale | Error::NotFound) => return Ok(None),
            Err(Error::SharingViolation) if !target.posix => return Err(StoreError::AccessDenied),
            handle => handle?,
        };
        let replaced = Box::new(Replaced { label, file: entry.file });
        Ok(Some(Replacing { replaced, handle }))
    }
}

impl Store {
    /// Opens a file as one that deletes it does. Another machine that has it open and does not
    /// share that refuses.
    async fn open_to_delete(self: &Arc<Self>, file: &FileId) -> Result<CountedHandle, Error> {
        let modes = AccessMask::DELETE.modes(Sharing::ALL);
        let handle = self.service.open(&namespace::Cred::default(), file, modes).await?;
        Ok(self.counted(handle))
    }

    /// Has those who cache handles of a file close them, since another takes its name. If somebody
    /// really has it open, the act is refused. A POSIX one is only by who does not share deletion.
    async fn make_way(&self, file: &FileId, posix: bool) -> Result<(), StoreError> {
        let objects = self.with(|table, _| table.of_file(file));
        for object in objects {
            self.act(object, Act::Rename, Actor::Other).await;
            if posix {
                self.beside(object, AccessMask::DELETE, Sharing::ALL).await?;
            } else if self.is_open(object) {
                return Err(StoreError::AccessDenied);
            }
        }
        Ok(())
    }

    pub(crate) fn is_open(&self, object: ObjectId) -> bool {
        self.with(|table, _| table.objects.get(&object).is_some_and(|known| known.caching.is_open()))
    }
}
