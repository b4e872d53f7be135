//! Front doors' calls to the client.

use super::chores::Chore;
use super::{After, ClientHost};
use crate::clock;
use client::{Call, Client, Input, Outcome, Output, Reply, Ticket};
use file_service::{Activity, CacheHolder, FileService, Responder, Response};
use ident::FileId;
use namespace::{Cred, Error};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a read is tried whose content is not in its place. Content that another machine has
/// overwritten meanwhile is gone once this machine has released its lease.
const READS_MAX: u8 = 3;

impl ClientHost {
    pub(super) fn tell(&self, answer: Responder, result: Result<Reply, Error>, may_block: bool) {
        match result {
            Ok(Reply::Data(parts)) => {
                let shares = || {
                    parts.iter().filter_map(|part| match part {
                        content::ReadPart::Piece { share, .. } => Some(*share),
                        content::ReadPart::Bytes(_) | content::ReadPart::Zeros(_) => None,
                    })
                };
                let waits = shares().next().is_some();
                if waits && (!may_block || !self.copies().are_here(shares())) {
                    self.chore(Chore::Gather(parts, answer));
                } else {
                    answer(self.pieces.gather(self.copies(), parts).map(Response::Data));
                }
            }
            Ok(Reply::Uncached(reply)) => answer(Ok(Response::Uncached(*reply))),
            Ok(reply) => answer(Ok(Response::Reply(reply))),
            Err(error) => answer(Err(error)),
        }
    }

    fn have_done(&self, act: impl FnOnce(&mut Client, &mut Vec<Output>)) {
        let (mut out, mut after) = (Vec::new(), After::default());
        let mut hosted = self.hosted.lock();
        act(&mut hosted.client, &mut out);
        self.carry_out(&mut hosted, out, &mut after);
        drop(hosted);
        self.finish(after, true);
    }

    pub(super) fn begin(&self, cred: &Cred, call: Call, answer: Responder) -> Option<Ticket> {
        if self.refused.load(Ordering::Relaxed) {
            answer(Err(Error::CutOff));
            return None;
        }
        let mut out = Vec::new();
        let mut hosted = self.hosted.lock();
        let outcome = hosted.client.call(clock::now(), cred, call, &mut out);
        let mut after = After::default();
        let waits = match outcome {
            Outcome::Done(result) if out.is_empty() => {
                drop(hosted);
                self.tell(answer, result, true);
                return None;
            }
            Outcome::Done(result) => {
                after.answers.push((answer, result));
                None
            }
            Outcome::Waiting(ticket) => {
                hosted.answers.insert(ticket, answer);
                Some(ticket)
            }
        };
        self.carry_out(&mut hosted, out, &mut after);
        drop(hosted);
        self.finish(after, true);
        waits
    }

    /// Wraps the answer to a read: a read that finds its content gone is tried again from its
    /// beginning.
    fn reading(&self, cred: Cred, call: Call, answer: Responder, tries: u8) -> Responder {
        let Some(client_host) = self.me.get().and_then(Weak::upgrade).filter(|_| tries > 0) else {
            return answer;
        };
        Box::new(move |told| {
            if !matches!(told, Err(Error::Damaged)) {
                return answer(told);
            }
            let answer = client_host.reading(cred.clone(), call.clone(), answer, tries - 1);
            // The new attempt has no ticket by which it could be cancelled. It does not wait for
            // any other machine either.
            client_host.begin(&cred, call, answer);
        })
    }

    /// Sends all changes made here until now to the server. Returns whether the server has them
    /// within `at_most`.
    pub(crate) fn flush(&self, at_most: Duration) -> bool {
        let (tell, told) = sync_channel(1);
        let answer: Responder = Box::new(move |result| _ = tell.try_send(result.is_ok()));
        let asked = self.begin(&Cred::default(), Call::SyncAll, answer);
        let done = told.recv_timeout(at_most).unwrap_or(false);
        if let Some(ticket) = asked.filter(|_| !done) {
            self.cancel(ticket);
        }
        done
    }
}

impl FileService for ClientHost {
    fn call(&self, cred: &Cred, call: Call, answer: Responder) -> Option<Ticket> {
        let answer = if matches!(call, Call::Read { .. }) {
            self.reading(cred.clone(), call.clone(), answer, READS_MAX)
        } else {
            answer
        };
        self.begin(cred, call, answer)
    }

    fn cancel(&self, ticket: Ticket) {
        self.have_done(|client, out| _ = client.cancel(ticket, out));
    }

    fn give_way(&self, ticket: Ticket) {
        self.have_done(|client, out| client.give_way(clock::now(), ticket, out));
    }

    fn look(&self) {
        self.upstream().look(self);
    }

    fn root(&self) -> FileId {
        self.hosted.lock().client.root().clone()
    }

    fn valid_for(&self) -> Duration {
        Duration::from_millis(self.hosted.lock().client.valid_for_ms(clock::time()))
    }

    fn forgotten(&self, files: Vec<FileId>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        self.input(&mut hosted, Input::Forgotten(files), &mut after);
        drop(hosted);
        self.finish(after, false);
    }

    fn activity(&self) -> Option<&Arc<Activity>> {
        Some(&self.activity)
    }

    fn register_cache(&self, cache: Arc<dyn CacheHolder>) {
        self.hosted.lock().client.has_below();
        self.caches.write().push(cache);
    }
}
