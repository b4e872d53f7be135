//! The store's handles at the client, which it counts. A file that has more handles than these is
//! open under FUSE, too, and no SMB client writes behind its cache ([`Store::cover`]). So a count
//! that is left behind would hide a program's open: it goes with its handle.

use crate::Store;
use crate::ask::ClientHandle;
use ident::FileId;
use namespace::Error;
use std::sync::Arc;

/// A handle that counts as one of the store's until this is dropped or closed.
pub(crate) struct CountedHandle {
    store: Arc<Store>,
    handle: Option<ClientHandle>,
}

impl CountedHandle {
    pub(crate) fn file(&self) -> Option<&FileId> {
        self.handle.as_ref().map(|handle| &handle.file)
    }

    /// Closes the handle, and waits until what goes with it is gone.
    pub(crate) async fn close(mut self) -> Result<(), Error> {
        match self.uncounted() {
            Some(handle) => handle.close().await,
            None => Ok(()),
        }
    }

    /// Takes the handle out of the count, before it is closed: what the client has beyond the count
    /// is taken for a program's.
    fn uncounted(&mut self) -> Option<ClientHandle> {
        let handle = self.handle.take()?;
        self.store.with(|table, _| {
            if let Some(count) = table.handles.get_mut(&handle.file) {
                *count -= 1;
                if *count == 0 {
                    table.handles.remove(&handle.file);
                }
            }
        });
        Some(handle)
    }
}

impl Drop for CountedHandle {
    fn drop(&mut self) {
        drop(self.uncounted());
    }
}

impl Store {
    /// Counts a handle as one of the store's.
    pub(crate) fn counted(self: &Arc<Self>, handle: ClientHandle) -> CountedHandle {
        self.with(|table, _| *table.handles.entry(handle.file.clone()).or_default() += 1);
        CountedHandle { store: Arc::clone(self), handle: Some(handle) }
    }
}
