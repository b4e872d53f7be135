//! Calls of tests, most of them answered before anything else happens, and faults of connections.

use super::{Host, News, Violation};
use crate::calls::create;
use client::{Call, Outcome, Reply, Settings, Ticket, call};
use directory::Policy;
use ident::FileId;
use lease::Label;
use namespace::{Cred, Error, FileKind, Stat};
use wire::Rights;

impl Host {
    /// So many machines with all rights, which have greeted the server.
    pub fn of(seed: u64, machines: u64) -> Host {
        let mut host = Host::new(seed, Policy::default(), Settings::new([0; 32]));
        for _ in 0..machines {
            host.join(Rights::FULL).unwrap();
        }
        host.deliver().unwrap();
        host
    }

    /// Another machine with these rights, which has greeted the server; returns its place.
    pub fn joins(&mut self, rights: Rights) -> usize {
        let at = self.join(rights).unwrap();
        self.deliver().unwrap();
        at
    }

    /// Makes a call, and delivers messages until it is answered.
    pub fn complete(
        &mut self,
        at: usize,
        cred: &Cred,
        call: Call,
    ) -> Result<Result<Reply, Error>, Violation> {
        let ticket = match self.call(at, cred, call)? {
            Outcome::Done(result) => return Ok(result),
            Outcome::Waiting(ticket) => ticket,
        };
        self.deliver()?;
        let is_it = |news: &News| matches!(news, News::Answer { at: by, ticket: its, .. } if (*by, *its) == (at, ticket));
        match self.news.iter().position(is_it).and_then(|it| self.news.remove(it)) {
            Some(News::Answer { result, .. }) => Ok(result),
            _ => Err("not answered".to_owned()),
        }
    }

    /// A call of root, and its result.
    pub fn tries(&mut self, at: usize, call: Call) -> Result<Reply, Error> {
        self.complete(at, &Cred::default(), call).unwrap()
    }

    /// A call that must not be refused.
    pub fn does(&mut self, at: usize, call: Call) -> Reply {
        let text = format!("{call:?}");
        self.tries(at, call).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Makes a file without a handle.
    pub fn make(&mut self, at: usize, dir: &FileId, name: &str, kind: FileKind) -> Result<FileId, Error> {
        match self.tries(at, create(dir.clone(), label(name), kind, None))? {
            Reply::Node(entry, _) => Ok(entry.file),
            other => panic!("{other:?}"),
        }
    }

    /// The answer to stat, and whether it may be kept.
    pub fn stat(&mut self, at: usize, file: &FileId) -> Result<(Stat, bool), Error> {
        let reply = self.tries(at, Call::Stat(call::Stat { file: file.clone() }))?;
        let kept = !matches!(reply, Reply::Uncached(_));
        match reply.told() {
            Reply::Stat(stat) => Ok((stat, kept)),
            other => panic!("{other:?}"),
        }
    }

    /// Cancels a call that waits.
    pub fn cancel(&mut self, at: usize, ticket: Ticket) -> Result<(), Violation> {
        let mut out = Vec::new();
        self.machines[at].client.cancel(ticket, &mut out);
        self.carry_out(at, out)
    }

    /// A machine that was cut off begins another session, unless it has already.
    pub fn begin_session(&mut self, at: usize) -> Result<(), Violation> {
        self.machines[at].connection.session = None;
        self.connect(at)
    }

    /// The connection breaks, and a new one opens at once. Of the messages under way only a
    /// beginning of the machine's own arrives.
    pub fn break_connection(&mut self, at: usize) -> Result<(), Violation> {
        self.lose_end(at);
        self.connect(at)
    }

    /// The answers that nothing has waited for.
    pub fn answers(&self) -> Vec<(usize, Ticket, &Result<Reply, Error>)> {
        let answer = |news| match news {
            &News::Answer { at, ticket, ref result } => Some((at, ticket, result)),
            _ => None,
        };
        self.news.iter().filter_map(answer).collect()
    }
}

pub(crate) fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}
