//! The cover: the machine's own leases under which SMB clients may cache. R rests on the content
//! and the locks to read, W on both to write. H needs none: another machine that is kept out by a
//! handle asks how the file is open here, and that is the break
//! ([`client::Invalidation::Caching`]).

use crate::Store;
use client::call;
use file_service::Covered;
use ident::FileId;
use lease::caching::{CachingState, ObjectId};
use namespace::Cred;

impl Store {
    /// Asks for the machine's leases on an object, as wide as they come, and notes what its clients
    /// may be granted. A recall that comes meanwhile voids the answer.
    pub(crate) async fn cover(&self, object: ObjectId, is_directory: bool, write: bool) {
        let Some((key, revoked)) = self.with(|table, _| {
            let known = table.objects.get(&object)?;
            (known.revoking == 0).then(|| (known.key.clone(), known.revoked))
        }) else {
            return;
        };
        let state = match &key.stream {
            // Listings are not covered yet: see docs/internals/objects.md.
            _ if is_directory => return,
            None => self.cover_content(&key.file, write).await,
            Some(stream) => self.cover_stream(&key.file, stream).await,
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

    /// The state that the leases on content allow, and the number of handles on the file.
    async fn cover_content(&self, file: &FileId, write: bool) -> (CachingState, Option<u64>) {
        match self.service.ask(&Cred::default(), call::Cover { file: file.clone(), write }).await {
            Ok(Covered { write: true, handles }) => (CachingState::RWH, Some(handles)),
            Ok(Covered { write: false, handles }) => (CachingState::RH, Some(handles)),
            Err(_) => (CachingState::NONE, None),
        }
    }

    /// A stream is an extended attribute: the lease on it covers what is read. A change of that
    /// lease from write to read is not heard of, so nothing is written behind the cache.
    async fn cover_stream(&self, file: &FileId, stream: &str) -> (CachingState, Option<u64>) {
        match self.stream(file, stream).await {
            Ok(_) => (CachingState::RH, None),
            Err(_) => (CachingState::NONE, None),
        }
    }
}
