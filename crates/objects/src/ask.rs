//! Calls at the machine's client, awaited. To drop the future cancels the call.

use client::{Ticket, call};
use file_service::{FileCall, FileService, OpenedHandle};
use ident::FileId;
use lease::Label;
use namespace::{Cred, Entry, Error, FileSpec, Stat};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The machine's client.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<dyn FileService>);

/// A handle that the client has open for an open of the store. It is closed when this is dropped.
pub(crate) struct ClientHandle {
    service: Service,
    pub(crate) file: FileId,
    pub(crate) modes: lease::OpenModes,
    is_closed: bool,
}

/// Cancels a call that was not answered yet.
struct Cancel<'a> {
    service: &'a Service,
    ticket: Option<Ticket>,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.service.0.cancel(ticket);
        }
    }
}

impl Service {
    /// Does a call.
    pub(crate) async fn ask<C: FileCall>(&self, cred: &Cred, call: C) -> Result<C::Reply, Error> {
        self.ask_as(cred, call, |reply| reply).await
    }

    /// Does a call, and takes its reply where it is given, even if nobody waits for it any more.
    async fn ask_as<C: FileCall, T: Send + 'static>(
        &self,
        cred: &Cred,
        call: C,
        take: impl FnOnce(C::Reply) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (tell, told) = oneshot::channel();
        let ticket = self.0.ask(cred, call, move |reply| _ = tell.send(reply.map(take)));
        let mut cancel = Cancel { service: self, ticket };
        let reply = told.await.unwrap_or(Err(Error::CutOff));
        cancel.ticket = None;
        reply
    }

    /// Opens a handle. The rights were checked before.
    pub(crate) async fn open(
        &self,
        cred: &Cred,
        file: &FileId,
        modes: lease::OpenModes,
    ) -> Result<ClientHandle, Error> {
        let call = call::OpenFile { file: file.clone(), open: modes, mask: 0 };
        let (service, file) = (self.clone(), file.clone());
        self.ask_as(cred, call, move |_: OpenedHandle| service.handle(file, modes)).await
    }

    /// Makes a file, and opens a handle on it in the same step.
    pub(crate) async fn create(
        &self,
        cred: &Cred,
        (dir, label): (&FileId, &Label),
        spec: FileSpec,
        modes: lease::OpenModes,
    ) -> Result<(Entry, Stat, ClientHandle), Error> {
        let call = call::Create { dir: dir.clone(), label: label.clone(), spec, open: Some(modes) };
        let service = self.clone();
        self.ask_as(cred, call, move |node| {
            let (entry, stat) = node.value;
            let handle = service.handle(entry.file.clone(), modes);
            (entry, stat, handle)
        })
        .await
    }

    fn handle(&self, file: FileId, modes: lease::OpenModes) -> ClientHandle {
        ClientHandle { service: self.clone(), file, modes, is_closed: false }
    }

    /// Does a call whose result does not matter to anybody.
    pub(crate) fn tell(&self, call: impl Into<client::Call>) {
        self.0.call(&Cred::default(), call.into(), Box::new(|_| ()));
    }
}

impl ClientHandle {
    /// Closes the handle, and waits until what goes with it is gone.
    pub(crate) async fn close(mut self) -> Result<(), Error> {
        self.is_closed = true;
        let call = call::Close { file: self.file.clone(), open: self.modes };
        // A close goes on when nobody waits for it any more, so it is not cancelled.
        let (tell, told) = oneshot::channel();
        self.service.0.ask(&Cred::default(), call, move |reply| _ = tell.send(reply));
        told.await.unwrap_or(Err(Error::CutOff))
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        if !self.is_closed {
            self.service.tell(call::Close { file: self.file.clone(), open: self.modes });
        }
    }
}

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClientHandle").field(&self.file).field(&self.modes).finish()
    }
}
