//! The start of a store: its place as a cache below the client, and the thread that ends breaks.

use crate::Store;
use crate::ask::Service;
use crate::breaks::end_breaks;
use crate::revocations::Revocations;
use file_service::FileService;
use std::sync::Arc;

impl Store {
    /// Makes the store of a machine, above its client. It registers itself for revocations.
    pub fn new(service: Arc<dyn FileService>) -> Arc<Store> {
        let store = Arc::new(Store::above(Service(service)));
        store.service.0.register_cache(Arc::new(Revocations::new(&store)));
        let (alarm, weak) = (Arc::clone(&store.alarm), Arc::downgrade(&store));
        let thread = std::thread::Builder::new().name("smb breaks".to_owned());
        if let Err(error) = thread.spawn(move || end_breaks(&alarm, &weak)) {
            tracing::error!(%error, "no thread for breaks that nobody acknowledges");
        }
        store
    }
}
