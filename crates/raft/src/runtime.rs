//! The runtime of openraft: tokio, where a simulation can set random numbers, order and the end of
//! tasks ([`super::life`]).

use super::life::Life;
use crate::alarm::Alarm;
use crate::indispensable::indispensable;
use openraft::async_runtime::watch::{RecvError, SendError};
use openraft::async_runtime::{AsyncRuntime, Watch, WatchReceiver, WatchSender};
use openraft::{OptionalSend, OptionalSync, TokioRuntime};
use rand_core::{Rng, TryRng};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

type Tokio = TokioRuntime;

/// The runtime that openraft is generic over.
#[derive(Debug)]
pub struct Runtime(Tokio);

impl AsyncRuntime for Runtime {
    type JoinError = <Tokio as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <Tokio as AsyncRuntime>::Sleep;
    type Instant = <Tokio as AsyncRuntime>::Instant;
    type TimeoutError = <Tokio as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <Tokio as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Chance;
    type Mpsc = <Tokio as AsyncRuntime>::Mpsc;
    type Watch = InOrder;
    type Oneshot = <Tokio as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::Mutex<T>;

    /// Trap: tokio and openraft keep a panic of a task to themselves. The server would stay up and
    /// answer nothing.
    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let future = indispensable(future);
        match (Life::current(), Alarm::current()) {
            (Some(life), _) => life.spawn(future),
            (None, Some(alarm)) => Tokio::spawn(alarm.over(future)),
            (None, None) => Tokio::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Tokio::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        Tokio::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        Tokio::is_panic(error)
    }

    fn thread_rng() -> Chance {
        Life::current().map_or_else(|| Chance::Real(Tokio::thread_rng()), Chance::Simulated)
    }

    fn new(threads: usize) -> Runtime {
        Runtime(Tokio::new(threads))
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        self.0.block_on(future)
    }

    /// Runs `work` on a thread that may wait for the disk.
    async fn spawn_blocking<F, T>(work: F) -> Result<T, io::Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match Life::current() {
            Some(life) => Ok(life.waits_for_disk(work).await),
            None => tokio::task::spawn_blocking(work).await.map_err(io::Error::other),
        }
    }
}

impl Runtime {
    /// Runs `work` on a thread that may wait for the disk. The caller does not wait for it.
    pub(super) fn beside(work: impl FnOnce() + Send + 'static) {
        match Life::current() {
            Some(life) => {
                let its = life.clone();
                drop(life.spawn(async move { its.waits_for_flush(work).await }));
            }
            None => drop(tokio::task::spawn_blocking(work)),
        }
    }
}

/// A source of random numbers.
pub enum Chance {
    /// The system.
    Real(<Tokio as AsyncRuntime>::ThreadLocalRng),
    /// A seed.
    Simulated(Arc<Life>),
}

impl TryRng for Chance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.try_next_u64()? as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(match self {
            Chance::Real(rng) => rng.next_u64(),
            Chance::Simulated(life) => life.next_u64(),
        })
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.try_next_u64()?.to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// tokio's watched values with one difference: waiters wake in the order in which they came, which
/// tokio leaves to chance.
#[derive(Debug)]
pub struct InOrder;

/// The sender of [`InOrder`].
pub struct Sender<T> {
    value: tokio::sync::watch::Sender<T>,
    wake: Wake,
}

/// The receiver of [`InOrder`].
pub struct Receiver<T> {
    value: tokio::sync::watch::Receiver<T>,
    wake: Arc<Notify>,
}

/// Wakes the waiters, also when the sender is gone. It is dropped after the sender's value.
#[derive(Clone)]
struct Wake(Arc<Notify>);

impl Drop for Wake {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Watch for InOrder {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = tokio::sync::watch::Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = tokio::sync::watch::channel(init);
        let wake = Arc::new(Notify::new());
        (Sender { value: sender, wake: Wake(wake.clone()) }, Receiver { value: receiver, wake })
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { value: self.value.clone(), wake: self.wake.clone() }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver { value: self.value.clone(), wake: self.wake.clone() }
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<InOrder, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        let sent = self.value.send(value).map_err(|error| SendError(error.0));
        self.wake.0.notify_waiters();
        sent
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        let modified = self.value.send_if_modified(modify);
        if modified {
            self.wake.0.notify_waiters();
        }
        modified
    }

    fn borrow_watched(&self) -> tokio::sync::watch::Ref<'_, T> {
        self.value.borrow()
    }

    fn subscribe(&self) -> Receiver<T> {
        Receiver { value: self.value.subscribe(), wake: self.wake.0.clone() }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<InOrder, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            let woken = self.wake.notified();
            if self.value.borrow().has_changed() {
                self.value.mark_unchanged();
                return Ok(());
            }
            if self.value.has_changed().is_err() {
                return Err(RecvError(()));
            }
            woken.await;
        }
    }

    fn borrow_watched(&self) -> tokio::sync::watch::Ref<'_, T> {
        self.value.borrow()
    }

    fn borrow_and_update(&mut self) -> tokio::sync::watch::Ref<'_, T> {
        self.value.borrow_and_update()
    }
}
