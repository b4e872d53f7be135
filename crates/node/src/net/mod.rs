//! The network: TLS connections between machines, with tokio.

mod authority;
mod carrier;
mod content;
mod credential_store;
mod discovery;
mod frames;
mod join;
mod line;
mod link;
mod listener;
mod members;
mod movable;
mod reach;
#[cfg(test)]
mod replicas;
mod serve;
mod serving;
mod socket;
mod strangers;
#[cfg(test)]
mod tests;
mod tls;
mod token;

pub use authority::CertificateError;
pub(crate) use authority::{Authority, fingerprint};
pub use carrier::CarrierError;
pub(crate) use carrier::ShareCarrier;
pub(crate) use content::{Pending, ShareClient, ShareLink, Unanswered};
pub(crate) use credential_store::{Caller, CredentialStore};
pub(crate) use discovery::Places;
pub use join::{JoinError, join, leave};
pub(crate) use link::{ServerLink, ServerLinkStatus};
pub use listener::ListenError;
pub(crate) use listener::Listener;
pub(crate) use members::MemberNet;
pub(crate) use serve::{ServeError, ask_control, ask_to_serve, tell_ready};
pub(crate) use tls::ShownCertificate;
pub use token::{Token, TokenError};

use std::io;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A thread with a runtime of its own that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct NetThread {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NetThread {
    /// Runs `work` until it ends or this is dropped.
    pub(crate) fn spawn<W: Future<Output = ()> + 'static>(
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
