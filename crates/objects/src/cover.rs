//! The cover: the machine's own leases under which SMB clients may cache. R rests on the content
//! and the locks to read, W on both to write. R on a directory rests on all its labels, and on what
//! its listing shows of the children. H needs none: another machine that is kept out by a
//! handle asks how the file is open here, and that is the break
//! ([`client::Invalidation::Caching`]).

use crate::streams::attribute;
use crate::{Store, StoreError};
use client::call;
use file_service::Covered;
use ident::FileId;
use lease::Label;
use lease::caching::{CachingState, ObjectId};
use namespace::{Cred, Error};

/// Entries that are asked for at once.
const PAGE: usize = 1024;

/// Looks through a directory, at most: one to note the children, one to see that all are held, and
/// some for children that come meanwhile.
const PASSES_MAX: u32 = 4;

impl Store {
    /// Asks for the machine's leases on an object, as wide as they come, and notes what its clients
    /// may be granted. A recall that comes meanwhile voids the answer.
    pub(crate) async fn cover(&self, object: ObjectId, is_directory: bool, (write, empties): (bool, bool)) {
        let Some((key, revoked)) = self.with(|table, _| {
            let known = table.objects.get(&object)?;
            (known.revoking == 0).then(|| (known.key.clone(), known.revoked))
        }) else {
            return;
        };
        let state = match &key.stream {
            _ if is_directory => return self.cover_listing(object, &key.file, revoked).await,
            None => self.cover_content(&key.file, (write, empties)).await,
            Some(stream) => self.cover_stream(&key.file, stream, write).await,
        };
        self.with(|table, _| {
            let handles = table.handles.get(&key.file).copied().unwrap_or(0);
            if let Some(known) = table.objects.get_mut(&object)
                && (known.revoking, known.revoked) == (0, revoked)
            {
                known.caching.extend_cover(match state {
                    // Somebody else on this machine has the file open: a program under FUSE, whose
                    // kernel may have cached pages.
                    (state, Some(all)) if all > handles => state.but(CachingState::WRITE),
                    (state, _) => state,
                });
            }
        });
    }

    /// Covers the listing of a directory, or takes what its clients have of it.
    ///
    /// The children are noted first, so that a recall of one is known to be one of the listing. The
    /// leases on them count that are held after that.
    async fn cover_listing(&self, object: ObjectId, dir: &FileId, revoked: u64) {
        if self.with(|table, _| table.listed.begin(object)) {
            return;
        }
        let mut is_covered = false;
        for _ in 0..PASSES_MAX {
            match self.look_through(object, dir).await {
                Ok(true) => is_covered = true,
                Ok(false) => continue,
                Err(_) => {}
            }
            break;
        }
        self.with(|table, now| {
            let Some(known) = table.objects.get_mut(&object) else { return };
            if is_covered && (known.revoking, known.revoked) == (0, revoked) {
                known.caching.extend_cover(CachingState::RH);
                table.listed.set_whole(object, true);
                return;
            }
            let mut breaks = Vec::new();
            known.caching.recall(now, CachingState::NONE, &mut breaks);
            table.send(object, now, breaks);
            table.listed.forget(object);
        });
    }

    /// Notes the children of a directory. Returns whether all were noted before, and what a listing
    /// shows of each is held.
    async fn look_through(&self, object: ObjectId, dir: &FileId) -> Result<bool, StoreError> {
        let who = Cred::default();
        self.service.ask(&who, call::Stat { file: dir.clone() }).await?;
        let (mut is_held, mut after, mut upto) = (true, 0, None);
        loop {
            let call = call::List { dir: dir.clone(), after, upto, limit: PAGE, stat: true };
            let page = self.service.ask(&who, call).await?;
            upto = Some(page.upto);
            after = page.entries.last().map_or(after, |last| last.entry.position);
            let news = self.with(|table, _| {
                let files = page.entries.iter().map(|listed| &listed.entry.file);
                files.map(|file| table.listed.add(object, file)).collect::<Option<Vec<bool>>>()
            });
            is_held &= !news.ok_or(StoreError::TooBig)?.contains(&true);
            for listed in page.entries.iter().filter(|listed| listed.stat.is_none() || listed.uncached) {
                is_held = false;
                match self.service.ask(&who, call::Stat { file: listed.entry.file.clone() }).await {
                    Ok(_) | Err(Error::Stale | Error::NotFound) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if page.end {
                return Ok(is_held);
            }
        }
    }

    /// The state that the leases on content allow, and the number of handles on the file.
    async fn cover_content(
        &self,
        file: &FileId,
        (write, empties): (bool, bool),
    ) -> (CachingState, Option<u64>) {
        let call = call::Cover { file: file.clone(), write, empties, xattr: None };
        match self.service.ask(&Cred::default(), call).await {
            Ok(Covered { write: true, handles, .. }) => (CachingState::RWH, Some(handles)),
            Ok(Covered { write: false, handles, .. }) => (CachingState::RH, Some(handles)),
            Err(_) => (CachingState::NONE, None),
        }
    }

    /// A stream is an extended attribute: the lease on that covers it.
    async fn cover_stream(&self, file: &FileId, stream: &str, write: bool) -> (CachingState, Option<u64>) {
        let nothing = (CachingState::NONE, None);
        let Ok(found) = self.stream(file, stream).await else { return nothing };
        let name = found.map_or_else(|| stream.to_owned(), |(name, _)| name);
        let Ok(name) = Label::attribute(attribute(&name).as_bytes()) else { return nothing };
        let call = call::Cover { file: file.clone(), write, empties: false, xattr: Some(name) };
        match self.service.ask(&Cred::default(), call).await {
            Ok(Covered { write: true, .. }) => (CachingState::RWH, None),
            Ok(Covered { write: false, .. }) => (CachingState::RH, None),
            Err(_) => nothing,
        }
    }
}
