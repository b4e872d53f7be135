//! The commands of a session (MS-SMB2 §3.3.5.7 to §3.3.5.22).

mod create;
mod directory;
mod info;
mod io;
mod ioctl;
mod refusal;
mod set;
mod tree;

use crate::connection::{Connection, Ends, Reply, Request};
use crate::handle::Handle;
use crate::limits::charge_of;
use crate::session::{Session, Tree};
use crate::wire::bodies::{FileId, LeaseAcknowledgment, OplockBreak};
use crate::wire::negotiate::Dialect;
use crate::wire::{Command, Malformed, NtStatus};
use objects::{CachingState, LeaseKey, OpenId};
use std::sync::Arc;

/// The surroundings of a request.
pub(crate) struct Context {
    pub(crate) connection: Arc<Connection>,
    /// The file of the request before, in a compound of related ones.
    pub(crate) related: Option<FileId>,
}

/// A request with what it names.
pub(crate) struct Call<'a> {
    pub(crate) context: &'a Context,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) tree: &'a Arc<Tree>,
    pub(crate) request: &'a Request,
}

/// The result of a command: a reply, or the status of an error.
pub(crate) type Served = Result<Reply, NtStatus>;

impl From<Malformed> for NtStatus {
    fn from(_: Malformed) -> NtStatus {
        NtStatus::INVALID_PARAMETER
    }
}

impl Call<'_> {
    pub(crate) fn message(&self) -> &[u8] {
        &self.request.message
    }

    /// Finds the open that a request names.
    pub(crate) fn handle(&self, file: FileId) -> Result<Arc<Handle>, NtStatus> {
        self.session.handle(self.file(file), self.tree)
    }

    fn file(&self, file: FileId) -> FileId {
        match self.context.related {
            Some(related) if file == FileId::RELATED => related,
            _ => file,
        }
    }

    /// Checks that the request has paid for its payload and for its answer's (§3.3.5.2.5).
    pub(crate) fn has_paid(&self, bytes: u32) -> Result<(), NtStatus> {
        let pays = self.context.connection.dialect() >= Dialect::V2_1;
        if pays && self.request.header.charge.max(1) < charge_of(bytes) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(())
    }
}

/// Serves a command of a session. Returns the file that it was about, for related ones.
pub(crate) async fn serve(
    context: &Context,
    session: &Arc<Session>,
    command: Command,
    request: &Request,
) -> Result<(Reply, Option<FileId>), Ends> {
    let plain = |served: Served| (served.unwrap_or_else(Reply::error), None);
    match command {
        Command::Echo => return Ok((Reply::empty(), None)),
        Command::TreeConnect => return Ok(plain(tree::connect(context, session, request).await)),
        _ => {}
    }
    let Some(tree) = session.tree(request.header.tree_id()) else {
        // Breaks are acknowledged whatever the tree.
        return Ok(match command {
            Command::OplockBreak => plain(acknowledge(context, session, request)),
            _ => (Reply::error(NtStatus::NETWORK_NAME_DELETED), None),
        });
    };
    if tree.encrypts() && !request.is_encrypted {
        return Ok((Reply::error(NtStatus::ACCESS_DENIED), None));
    }
    let call = Call { context, session, tree: &tree, request };
    let mut file = named_file(command, request).map(|file| call.file(file));
    let served = match command {
        Command::TreeDisconnect => tree::disconnect(&call).await,
        Command::Create => create::create(&call).await.map(|(reply, made)| {
            file = Some(made);
            reply
        }),
        Command::Close => io::close(&call).await,
        Command::Flush => io::flush(&call).await,
        Command::Read => io::read(&call).await,
        Command::Write => io::write(&call).await,
        Command::Lock => io::lock(&call).await,
        Command::Ioctl => match ioctl::ioctl(&call).await {
            Err(ioctl::IoctlError::Status(status)) => Err(status),
            Err(ioctl::IoctlError::Ends(ends)) => return Err(ends),
            Ok(reply) => Ok(reply),
        },
        Command::QueryDirectory => directory::query(&call).await,
        Command::ChangeNotify => directory::notify(&call).await,
        Command::QueryInfo => info::query(&call).await,
        Command::SetInfo => set::set(&call).await,
        Command::OplockBreak => acknowledge(context, session, request),
        Command::Negotiate
        | Command::SessionSetup
        | Command::Logoff
        | Command::TreeConnect
        | Command::Cancel
        | Command::Echo => Err(NtStatus::INVALID_PARAMETER),
    };
    Ok((served.unwrap_or_else(Reply::error), file))
}

/// Returns the FileId of a request that has one.
fn named_file(command: Command, request: &Request) -> Option<FileId> {
    use crate::wire::bodies::{
        ChangeNotifyRequest, FileRequest, IoctlRequest, LockRequest, QueryDirectoryRequest, QueryInfoRequest,
        ReadRequest, SetInfoRequest, WriteRequest,
    };
    let message = &request.message;
    match command {
        Command::Close | Command::Flush => FileRequest::parse(message).ok().map(|body| body.file),
        Command::Read => ReadRequest::parse(message).ok().map(|body| body.file),
        Command::Write => WriteRequest::parse(message).ok().map(|body| body.file),
        Command::Lock => LockRequest::parse(message).ok().map(|body| body.file),
        Command::Ioctl => IoctlRequest::parse(message).ok().map(|body| body.file),
        Command::QueryDirectory => QueryDirectoryRequest::parse(message).ok().map(|body| body.file),
        Command::ChangeNotify => ChangeNotifyRequest::parse(message).ok().map(|body| body.file),
        Command::QueryInfo => QueryInfoRequest::parse(message).ok().map(|body| body.file),
        Command::SetInfo => SetInfoRequest::parse(message).ok().map(|body| body.file),
        _ => None,
    }
}

/// Takes the acknowledgment of a break (§3.3.5.22). Its size says of which kind.
fn acknowledge(context: &Context, session: &Arc<Session>, request: &Request) -> Served {
    let store = &context.connection.server.store;
    if let Ok(lease) = LeaseAcknowledgment::parse(&request.message) {
        let key = LeaseKey::new(lease.key).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let keeps = CachingState::from_bits(lease.state);
        let taken = store.acknowledge(context.connection.client_guid(), key, keeps)?;
        let answer =
            LeaseAcknowledgment { flags: 0, reserved: 0, duration: 0, state: taken.state.bits(), ..lease };
        return Ok(Reply { after: Some(taken), ..Reply::done(answer.to_bytes()) });
    }
    let oplock = OplockBreak::parse(&request.message)?;
    let handle = session.opened(oplock.file).ok_or(NtStatus::FILE_CLOSED)?;
    let keeps = match oplock.level {
        0 => CachingState::NONE,
        1 => CachingState::READ,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    handle.object()?;
    let taken = store.acknowledge_oplock(OpenId(oplock.file.volatile), keeps)?;
    let level = crate::client::oplock_level(taken.state);
    let answer = OplockBreak { level, ..oplock };
    Ok(Reply { after: Some(taken), ..Reply::done(answer.to_bytes()) })
}
