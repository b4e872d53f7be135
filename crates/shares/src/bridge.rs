//! From threads that wait to futures that somebody runs: one thread with a runtime of its own, for
//! a backend that is asynchronous.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The runtime's end, for whoever waits; it stops with the last of these.
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
            // The error is what says that nobody wants it any more.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Bridge { runtime: handle, _running: Arc::new(running) })
    }

    /// Has `work` done, and waits for it on this thread, whatever runs here.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // Nobody may be waiting any more.
            let _ = answer.send(work.await);
        });
        answered.recv().map_err(|_| io::Error::other("the runtime has ended"))
    }
}
