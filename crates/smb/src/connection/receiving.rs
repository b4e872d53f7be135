//! Receiving frames: encryption, compounds, signatures, message numbers (MS-SMB2 §3.3.5.2).

use super::{Connection, Ends};
use crate::keys::ChannelKey;
use crate::limits::COMPOUND_MAX;
use crate::request::Request;
use crate::session::Session;
use crate::wire::negotiate::Dialect;
use crate::wire::{
    Command, Flags, HEADER_BYTES, Header, NtStatus, SMB1_PROTOCOL, TRANSFORM_BYTES, TRANSFORM_PROTOCOL,
    TransformHeader,
};
use bytes::{Buf, Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};

impl Connection {
    /// Takes a frame. The answers go to the outbox, some of them later.
    pub(crate) fn receive(self: &Arc<Self>, frame: Vec<u8>) -> Result<(), Ends> {
        // Its parts are taken off without a copy.
        let mut frame = BytesMut::from(Bytes::from(frame));
        if frame.starts_with(&SMB1_PROTOCOL) {
            let answer = self.negotiate_smb1(&frame)?;
            self.outbox.send(answer);
            return Ok(());
        }
        let mut sealed_by = None;
        if frame.starts_with(&TRANSFORM_PROTOCOL) {
            let header = TransformHeader::parse(&frame).map_err(|malformed| Ends(malformed.0))?;
            let channel = self.state.lock().sessions.get(&header.session_id).cloned();
            let channel = channel.ok_or(Ends("a message is encrypted for a session that is none"))?;
            let keys = channel.session.encryption.as_ref();
            let keys = keys.ok_or(Ends("a message is encrypted, which was not agreed on"))?;
            keys.open(&header, &mut frame).map_err(|_| Ends("a message cannot be decrypted"))?;
            channel.session.has_encrypted.store(true, Relaxed);
            frame.advance(TRANSFORM_BYTES);
            sealed_by = Some(channel.session);
        }
        let requests = self.split(frame, sealed_by.as_ref())?;
        if let [only] = &requests[..]
            && only.header.command == Command::Cancel as u16
        {
            self.cancel(only);
            return Ok(());
        }
        let mut state = self.state.lock();
        for request in &requests {
            let charge = match &state.negotiated {
                Some(negotiated) if negotiated.dialect > Dialect::V2_0_2 => request.header.charge,
                _ => 1,
            };
            if !state.credits.consume(request.header.message_id, charge) {
                return Err(Ends("a message has a number that the client may not use"));
            }
        }
        drop(state);
        let connection = self.clone();
        let mut answering = Box::pin(async move {
            if let Err(ends) = connection.answer(requests, sealed_by).await {
                tracing::info!(address = %connection.address, why = ends.0, "an SMB connection is closed");
                connection.ends.notify_one();
            }
        });
        // The requests begin before the next frame is looked at, which may be a CANCEL, or change
        // what is watched from here on.
        let begun = answering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if begun.is_pending() {
            tokio::spawn(answering);
        }
        Ok(())
    }

    /// Splits a compound, and checks signatures.
    fn split(&self, frame: BytesMut, sealed_by: Option<&Arc<Session>>) -> Result<Vec<Request>, Ends> {
        let mut requests: Vec<Request> = Vec::new();
        let mut rest = frame;
        loop {
            let header = Header::parse(&rest).map_err(|malformed| Ends(malformed.0))?;
            if header.flags.has(Flags::ANSWER) {
                return Err(Ends("a client sends an answer"));
            }
            let next = header.next as usize;
            let after = if next == 0 {
                None
            } else if next < HEADER_BYTES || !next.is_multiple_of(8) || next > rest.len() {
                return Err(Ends("a compound has a gap"));
            } else {
                Some(rest.split_off(next))
            };
            if requests.len() >= COMPOUND_MAX {
                return Err(Ends("a compound is too long"));
            }
            let mut session_id = header.session_id;
            if header.flags.has(Flags::RELATED)
                && let Some(before) = requests.last()
                && session_id == u64::MAX
            {
                session_id = before.header.session_id;
            }
            let header = Header { session_id, ..header };
            let (signed_by, refused) = match self.check_signature(&header, &mut rest, sealed_by) {
                Ok(key) => (key, None),
                Err(status) => (None, Some(status)),
            };
            let is_encrypted = sealed_by.is_some();
            requests.push(Request { header, message: rest.freeze(), is_encrypted, refused, signed_by });
            match after {
                Some(after) => rest = after,
                None => return Ok(requests),
            }
        }
    }

    /// Checks a signature (§3.3.5.2.4). Every message of a session is signed or encrypted. Returns
    /// the key that signed, or the status of a refusal.
    fn check_signature(
        &self,
        header: &Header,
        message: &mut [u8],
        sealed_by: Option<&Arc<Session>>,
    ) -> Result<Option<Arc<ChannelKey>>, NtStatus> {
        let session_id = header.session_id;
        if let Some(sealed_by) = sealed_by {
            let is_other = session_id != 0 && sealed_by.id != session_id;
            return if is_other { Err(NtStatus::ACCESS_DENIED) } else { Ok(None) };
        }
        let key = match self.channel(session_id) {
            Some(channel) => channel.key,
            None => match self.elsewhere(header) {
                Some(session) => session.key.clone(),
                None => return Ok(None),
            },
        };
        let is_setup = header.command == Command::SessionSetup as u16;
        let is_negotiate = header.command == Command::Negotiate as u16;
        if header.flags.has(Flags::SIGNED) {
            let is_signed = key.is_signed(header, message);
            if is_signed { Ok(Some(key)) } else { Err(NtStatus::ACCESS_DENIED) }
        } else if is_negotiate || is_setup && self.session(session_id).is_none() {
            Ok(None)
        } else {
            Err(NtStatus::ACCESS_DENIED)
        }
    }

    /// Takes a CANCEL (§3.3.5.16), which has no answer. Its signature counts if there is one: some
    /// clients sign none, and nobody gains by it what he could not have by closing the connection.
    fn cancel(&self, request: &Request) {
        if request.refused.is_some() && request.header.flags.has(Flags::SIGNED) {
            return;
        }
        let state = self.state.lock();
        let found = if request.header.flags.has(Flags::ASYNC) {
            state.waiting.values().find(|waiting| waiting.async_id == request.header.tree_or_async)
        } else {
            state.waiting.get(&request.header.message_id)
        };
        if let Some(waiting) = found {
            waiting.cancelled.notify_one();
        }
    }
}
