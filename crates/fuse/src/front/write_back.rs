//! Has the kernel write back, or drop, what it holds of a file before the front door goes on.

use std::sync::{Arc, Weak};

use super::Front;
use super::mapped::Drop;

impl Front {
    /// Calls `then` once the kernel has written back the dirty pages of `node`.
    pub(super) fn after_writing_back(
        self: &Arc<Self>,
        node: u64,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        if self.mapped.take(node) { self.after_dropping(node, Drop::Pages(0, 0), then) } else { then(self) }
    }

    /// Calls `then` once the kernel has dropped `what`.
    pub(super) fn after_dropping(
        self: &Arc<Self>,
        node: u64,
        what: Drop,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        let Some(kernel) = self.mapped.kernel.get().and_then(Weak::upgrade) else { return then(self) };
        let front = Arc::clone(self);
        kernel.drop_and_tell(node, what, Box::new(move || then(&front)));
    }
}
