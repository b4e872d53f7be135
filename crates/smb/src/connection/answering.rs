//! Answering requests: compounds, interim answers, credits, signatures (MS-SMB2 §3.3.4.1,
//! §3.3.4.2, §3.3.5.2.7).

use super::{CancellableRequest, Connection, Ends};
use crate::commands::call::Context;
use crate::commands::serve;
use crate::keys::ChannelKey;
use crate::limits::{INTERIM_AFTER, LATE_INTERIM_AFTER};
use crate::request::{Reply, Request};
use crate::session::Session;
use crate::time::now;
use crate::wire::bodies::{FileId, error_body};
use crate::wire::{Command, Flags, HEADER_BYTES, Header, NtStatus, TRANSFORM_BYTES, Writer};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The values that one request of a compound leaves to the next related one.
#[derive(Default)]
struct Chain {
    session_id: u64,
    tree_id: u32,
    file: Option<FileId>,
    status: Option<NtStatus>,
}

/// An answer, not yet in bytes.
struct UnsentAnswer {
    header: Header,
    body: Vec<u8>,
    content: Vec<Bytes>,
    signed_by: Option<Arc<ChannelKey>>,
    after: Option<objects::Acknowledged>,
}

impl UnsentAnswer {
    /// The most bytes of the answer, with padding.
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len() + self.content.iter().map(Bytes::len).sum::<usize>() + 8
    }
}

impl Connection {
    /// Answers the requests of a frame, one after the other.
    pub(super) async fn answer(
        self: &Arc<Self>,
        requests: Vec<Request>,
        sealed_by: Option<Arc<Session>>,
    ) -> Result<(), Ends> {
        let (mut chain, mut answers) = (Chain::default(), Vec::new());
        let last = requests.len() - 1;
        for (i, request) in requests.into_iter().enumerate() {
            let is_negotiate = request.header.command == Command::Negotiate as u16;
            let is_setup = request.header.command == Command::SessionSetup as u16;
            let answered = self.answer_one(request, &mut chain, i == last, &mut answers, &sealed_by).await?;
            // The hash takes in the answers to these two as they are sent (§3.3.5.4, §3.3.5.5).
            if is_negotiate || (is_setup && answered.header.status == NtStatus::MORE_PROCESSING_REQUIRED) {
                self.update_hash(&answered);
            }
            answers.push(answered);
        }
        self.send(answers, sealed_by.as_ref());
        Ok(())
    }

    async fn answer_one(
        self: &Arc<Self>,
        mut request: Request,
        chain: &mut Chain,
        is_last: bool,
        answers: &mut Vec<UnsentAnswer>,
        sealed_by: &Option<Arc<Session>>,
    ) -> Result<UnsentAnswer, Ends> {
        let is_related = request.header.flags.has(Flags::RELATED);
        if !is_related {
            *chain = Chain::default();
        } else if chain.status.is_some() {
            request.header.session_id = chain.session_id;
            request.header.tree_or_async = u64::from(chain.tree_id) << 32;
        }
        let header = request.header;
        let failed = chain.status.filter(|status| is_related && status.is_error() && chain.file.is_none());
        // The open that a request relates to must be there, at least.
        let is_lost =
            |status| [NtStatus::USER_SESSION_DELETED, NtStatus::NETWORK_NAME_DELETED].contains(&status);
        let failed = failed.map(|status| if is_lost(status) { NtStatus::INVALID_PARAMETER } else { status });
        let first = is_related && chain.status.is_none();
        let mut signed_by = request.signed_by.clone();
        let mut async_id = None;
        let reply = if let Some(status) = request.refused {
            signed_by = self.channel(header.session_id).map(|channel| channel.key);
            Reply::error(status)
        } else if first {
            Reply::error(NtStatus::INVALID_PARAMETER)
        } else if let Some(status) = failed {
            Reply::error(status)
        } else {
            let related = if is_related { chain.file } else { None };
            let context = Context { connection: self.clone(), related };
            let delay = interim_after(header.command).filter(|_| is_last || blocks(header.command));
            match delay {
                None => self.serve(&context, &request, chain).await?,
                Some(delay) => {
                    let cancelled = Arc::new(Notify::new());
                    let id = self.server.next();
                    let waiting = CancellableRequest { header, async_id: id, cancelled: cancelled.clone() };
                    self.state.lock().waiting.insert(header.message_id, waiting);
                    let served = {
                        let serving = self.serve(&context, &request, chain);
                        tokio::pin!(serving);
                        let first = tokio::select! {
                            biased;
                            served = &mut serving => Some(served),
                            () = cancelled.notified() => Some(Ok(Reply::error(NtStatus::CANCELLED))),
                            () = tokio::time::sleep(delay) => None,
                        };
                        match first {
                            Some(served) => served,
                            // Nothing of a compound is answered before this is (§3.3.5.2.7).
                            None if !is_last => Ok(Reply::error(NtStatus::INTERNAL_ERROR)),
                            None => {
                                async_id = Some(id);
                                self.send_interim(&header, id, &signed_by, answers, sealed_by.as_ref());
                                tokio::select! {
                                    biased;
                                    served = &mut serving => served,
                                    () = cancelled.notified() => Ok(Reply::error(NtStatus::CANCELLED)),
                                }
                            }
                        }
                    };
                    self.state.lock().waiting.remove(&header.message_id);
                    served?
                }
            }
        };
        chain.session_id = reply.session.unwrap_or(header.session_id);
        chain.tree_id = reply.tree.unwrap_or(header.tree_id());
        chain.status = Some(reply.status);
        let mut answer = header.answer(reply.status, 0);
        answer.session_id = chain.session_id;
        match async_id {
            Some(id) => {
                answer.flags.0 |= Flags::ASYNC;
                answer.tree_or_async = id;
            }
            None => {
                // An interim answer has granted the credits already.
                answer.credits = self.grant(header.credits);
                answer.tree_or_async = header.tree_or_async & 0xffff_ffff | u64::from(chain.tree_id) << 32;
            }
        }
        signed_by = reply.signed_by.clone().or(signed_by);
        let is_keyless =
            [NtStatus::USER_SESSION_DELETED, NtStatus::INVALID_PARAMETER].contains(&reply.status);
        if is_keyless && signed_by.is_none() {
            // No key is there to sign it. The client knows by its own signature what is answered.
            answer.signature = header.signature;
            answer.flags.0 |= header.flags.0 & Flags::SIGNED;
        }
        let Reply { body, content, after, .. } = reply;
        Ok(UnsentAnswer { header: answer, body, content, signed_by, after })
    }

    async fn serve(
        self: &Arc<Self>,
        context: &Context,
        request: &Request,
        chain: &mut Chain,
    ) -> Result<Reply, Ends> {
        match Command::of(request.header.command) {
            None => Ok(Reply::error(NtStatus::INVALID_PARAMETER)),
            Some(Command::Negotiate) => self.negotiate(&request.header, &request.message),
            Some(_) if self.state.lock().negotiated.is_none() => {
                Err(Ends("the client does not negotiate first"))
            }
            Some(Command::SessionSetup) => self.session_setup(request).await,
            Some(Command::Cancel) => Ok(Reply::error(NtStatus::INVALID_PARAMETER)),
            Some(command) => {
                let id = request.header.session_id;
                let Some(session) = self.session(id) else {
                    let is_echo = command == Command::Echo && id == 0;
                    return Ok(if is_echo {
                        Reply::empty()
                    } else {
                        Reply::error(NtStatus::USER_SESSION_DELETED)
                    });
                };
                if session.has_expired(now()) && !serves_expired(command) {
                    return Ok(Reply::error(NtStatus::NETWORK_SESSION_EXPIRED));
                }
                if command == Command::Logoff {
                    return Ok(self.logoff(&session).await);
                }
                let (served, file) = serve(context, &session, command, request).await?;
                if file.is_some() {
                    chain.file = file;
                }
                Ok(served)
            }
        }
    }

    /// Tells the client that a request waits. Answers that are ready go with it.
    fn send_interim(
        &self,
        header: &Header,
        id: u64,
        signed_by: &Option<Arc<ChannelKey>>,
        answers: &mut Vec<UnsentAnswer>,
        sealed_by: Option<&Arc<Session>>,
    ) {
        let credits = self.grant(header.credits);
        let mut interim = header.answer(NtStatus::PENDING, credits);
        interim.flags.0 |= Flags::ASYNC;
        interim.tree_or_async = id;
        let interim = UnsentAnswer {
            header: interim,
            body: error_body(),
            content: Vec::new(),
            signed_by: signed_by.clone(),
            after: None,
        };
        let mut all = std::mem::take(answers);
        all.push(interim);
        self.send(all, sealed_by);
    }

    /// Sends answers as one message: signed each, or encrypted together.
    fn send(&self, answers: Vec<UnsentAnswer>, sealed_by: Option<&Arc<Session>>) {
        let keys = sealed_by.and_then(|session| Some((session.id, session.encryption.as_ref()?)));
        let front = if keys.is_some() { TRANSFORM_BYTES } else { 0 };
        let mut out = Vec::with_capacity(front + answers.iter().map(UnsentAnswer::bytes).sum::<usize>());
        out.resize(front, 0);
        let count = answers.len();
        let mut acknowledged = Vec::new();
        for (i, answer) in answers.into_iter().enumerate() {
            let start = out.len();
            answer.header.emit(&mut out);
            out.put(&answer.body);
            answer.content.iter().for_each(|part| out.put(part));
            // The last of a compound has its padding, too.
            if count > 1 {
                out.pad(start, 8);
            }
            if i + 1 < count {
                let next = (out.len() - start) as u32;
                out.set_u32(start + 20, next);
            }
            if let (Some(key), None) = (&answer.signed_by, sealed_by) {
                key.sign(&mut out[start..]);
            }
            acknowledged.extend(answer.after);
        }
        if let Some((id, keys)) = keys {
            keys.seal(id, &mut out);
        }
        self.outbox.send(out);
        // The next break goes out behind the answer.
        drop(acknowledged);
    }

    fn update_hash(&self, answer: &UnsentAnswer) {
        let mut message = Vec::with_capacity(HEADER_BYTES + answer.body.len());
        answer.header.emit(&mut message);
        message.put(&answer.body);
        if let Some(key) = &answer.signed_by {
            key.sign(&mut message);
        }
        let mut state = self.state.lock();
        if answer.header.command == Command::Negotiate as u16 {
            if let Some(negotiated) = &mut state.negotiated {
                negotiated.hash.update(&message);
            }
        } else if let Some(logon) = state.logons.get_mut(&answer.header.session_id) {
            logon.hash.update(&message);
        }
    }
}

/// Returns whether a session that has expired may still do this (§3.3.5.2.9): let go of what it
/// has. A lock is looked at where it is known whether it is taken. An echo is no act of the
/// session.
fn serves_expired(command: Command) -> bool {
    matches!(command, Command::Logoff | Command::Close | Command::Lock | Command::Echo)
}

/// Returns whether a request must not wait within a compound: it would hold up the others until
/// something happens.
fn blocks(command: u16) -> bool {
    command == Command::ChangeNotify as u16
}

/// Returns how long a request may wait until its client is told so. Those that may not be told have
/// none: a rename, for one, waits in the middle of a compound.
fn interim_after(command: u16) -> Option<Duration> {
    match Command::of(command)? {
        Command::ChangeNotify => Some(Duration::from_millis(1)),
        Command::Create | Command::Lock => Some(INTERIM_AFTER),
        Command::Read | Command::Write | Command::Flush | Command::Ioctl | Command::QueryDirectory => {
            Some(LATE_INTERIM_AFTER)
        }
        _ => None,
    }
}
