//! A bridge from blocking threads to an asynchronous backend: one thread with a runtime of its own.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A handle on the runtime. The runtime stops with the last of these.
#[derive(Clone, Debug)]
pub(crate) struct Bridge {
    runtime: Handle,
    _running: Arc<oneshot::Sender<()>>,
}

impl Bridge {
    /// Starts the thread.
    pub fn start() -> io::Result<Bridge> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, stopped) = oneshot::channel::<()>();
        thread::Builder::new().name("shares-objects".into()).spawn(move || {
            // The error means that the last handle is gone.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Bridge { runtime: handle, _running: Arc::new(running) })
    }

    /// Runs `work` and blocks this thread until it is done. The calling thread may be inside
    /// another runtime.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // The waiter may have gone.
            let _ = answer.send(work.await);
        });
        answered.recv().map_err(|_| io::Error::other("the runtime has ended"))
    }
}
