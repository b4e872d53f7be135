//! A thread that carries connections.

use std::io;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A thread with a runtime of its own that ends when this is dropped.
#[derive(Debug)]
pub struct NetThread {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NetThread {
    /// Runs `work` until it ends or this is dropped.
    pub fn spawn<W: Future<Output = ()> + 'static>(
        name: &str,
        work: impl FnOnce() -> W + Send + 'static,
    ) -> io::Result<NetThread> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Reading and storing shares waits for the disk.
            .max_blocking_threads(8)
            .build()?;
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let local = tokio::task::LocalSet::new();
            runtime.block_on(local.run_until(async {
                tokio::select! {
                    () = work() => {}
                    _ = ended => {}
                }
            }));
            drop(local);
            // Blocking work is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(NetThread { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for NetThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}
