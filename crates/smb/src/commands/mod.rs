//! The commands of a session (MS-SMB2 §3.3.5.7 to §3.3.5.22).

mod acknowledgment;
pub(crate) mod call;
mod copying;
mod create;
mod directory;
mod info;
mod interfaces;
mod io;
mod ioctl;
mod reparse;
mod set;
mod tree;

use crate::connection::Ends;
use crate::request::{Reply, Request};
use crate::sequence::{ChannelSequence, UnderwayRequest};
use crate::session::Session;
use crate::wire::bodies::{
    ChangeNotifyRequest, FileId, FileRequest, IoctlRequest, LeaseAcknowledgment, LockRequest,
    QueryDirectoryRequest, QueryInfoRequest, ReadRequest, SetInfoRequest, WriteRequest,
};
use crate::wire::{Command, Flags, NtStatus};
use acknowledgment::acknowledge;
use call::{BoundRequest, Context, Served};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
        // Leases are the client's, and their breaks are acknowledged whatever the tree.
        let is_lease = LeaseAcknowledgment::parse(&request.message).is_ok();
        return Ok(match command {
            Command::OplockBreak if is_lease => plain(acknowledge(context, session, request)),
            _ => (Reply::error(NtStatus::NETWORK_NAME_DELETED), None),
        });
    };
    if tree.encrypts() && !request.is_encrypted {
        return Ok((Reply::error(NtStatus::ACCESS_DENIED), None));
    }
    let call = BoundRequest { context, session, tree: &tree, request };
    let mut file = named_file(command, request).map(|file| call.file(file));
    let Some(_underway) = in_sequence(&call, command, file) else {
        return Ok((Reply::error(NtStatus::FILE_NOT_AVAILABLE), file));
    };
    let served: Served = match command {
        Command::TreeDisconnect => tree::disconnect(&call).await,
        Command::Create => match create::create(&call).await {
            Ok((reply, made)) => {
                file = Some(made);
                Ok(reply)
            }
            Err(refused) => Ok(context.connection.refusal(refused.status, &refused.data)),
        },
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
    let served = match served {
        Ok(reply) => kept(&call, command, file, reply).await,
        error => error,
    };
    Ok((served.unwrap_or_else(Reply::error), file))
}

/// Makes durable what a request has done through a persistent open, and keeps what became of its
/// lease, before the client is answered.
async fn kept(call: &BoundRequest<'_>, command: Command, file: Option<FileId>, reply: Reply) -> Served {
    let server = &call.context.connection.server;
    match command {
        Command::Write | Command::SetInfo | Command::Ioctl | Command::Lock if !reply.status.is_error() => {
            if let Some(handle) = file.and_then(|file| call.session.opened(file)) {
                handle.persist(server).await?;
            }
        }
        Command::OplockBreak => {
            let lease = LeaseAcknowledgment::parse(call.message()).ok();
            call.session.note_caching(server, lease.map(|lease| lease.key)).await;
        }
        _ => {}
    }
    Ok(reply)
}

/// Takes a request among those of its open that are under way. Returns none if it must not be
/// served any more.
fn in_sequence(
    call: &BoundRequest<'_>,
    command: Command,
    file: Option<FileId>,
) -> Option<Option<UnderwayRequest>> {
    let header = &call.request.header;
    let handle = file.filter(|_| call.context.connection.dialect().is_3());
    let Some(handle) = handle.and_then(|file| call.session.opened(file)) else { return Some(None) };
    let is_replay = header.flags.has(Flags::REPLAY);
    if !is_replay {
        handle.is_used.store(true, Relaxed);
    }
    let is_change = matches!(command, Command::Write | Command::SetInfo | Command::Ioctl);
    ChannelSequence::begin(&handle.sequence, header.channel_sequence(), is_replay, is_change)
}

/// Returns the FileId of a request that has one.
fn named_file(command: Command, request: &Request) -> Option<FileId> {
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
