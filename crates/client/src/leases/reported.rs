//! Values that the server reports without a lease, because they ping-pong between machines. A
//! report is good for the one call that asked, and no cache keeps it (docs/internals/leases.md,
//! "Reports").

use super::ping_pong::is_small;
use crate::calls::{Need, Stop, Waiting};
use crate::client::Client;
use crate::server::ServerId;
use crate::{Call, Now, Output, Reply, call};
use ident::FileId;
use lease::{Field, Kind, Lease, Released};
use namespace::{ContentHead, Error, Knowledge, Known, Operation, Stat, fold, operation};
use wire::FileGrant;

/// For this long after a write of another machine, more writes of it are to be expected, seconds.
const FRESH_SECS: u64 = 60;

impl Call {
    /// Whether one report of values answers the call, and no cache keeps the reply if it says so.
    ///
    /// Content takes shares, which a lease keeps. A file that was looked up is kept by a lease,
    /// too. Trap: a call that takes two requests is never answered by reports, since the first is
    /// gone when the second comes. A directory's parent and that parent's stat are such a pair.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self, Call::Stat { .. } | Call::Glance { .. } | Call::Access { .. })
    }

    /// Whether no cache keeps the reply if it says so. Then a field that ping-pongs may be reported
    /// instead of leased.
    pub(crate) fn takes_report(&self) -> bool {
        match self {
            Call::Lookup { .. } | Call::Stat { .. } | Call::Parent { .. } => true,
            Call::Read(call::Read { kept, .. }) => !kept,
            _ => false,
        }
    }
}

impl Client {
    /// Notes a recall of the content of `file`. For content too large for a report, pages are worth
    /// keeping, however briefly.
    pub(crate) fn note_ping_pong(&mut self, now: Now, file: &FileId) {
        let head = self.files.get(file).and_then(|known| known.content.head());
        if head.is_some_and(|head| is_small(&head)) {
            self.ping_pong.note(now.time, file, 1);
        }
    }

    /// Whether reads through a handle that is opened now should go past the kernel's pages.
    ///
    /// The file ping-pongs, or may begin to: another machine wrote it lately, and this one has not
    /// read that version yet. The kernel must know this when the handle is opened, and programs
    /// that talk to each other through a file keep it open. Pages of a file that is opened again
    /// and read once more are worth keeping, because the client does not keep the bytes.
    pub(crate) fn passes(&self, now: Now, file: &FileId) -> bool {
        let is_fresh = |head: ContentHead| {
            let is_recent = now.wall.secs.abs_diff(head.mtime.secs) < FRESH_SECS;
            is_small(&head) && is_recent && !self.ping_pong.has_read(file, head.version)
        };
        let only_read = !self.may_be_mapped(file) && !self.files.holds(file, &Field::Content, Kind::Write);
        self.ping_pong.has(now.time, file)
            || only_read
                && matches!(self.files.content(file, Kind::Read), Known::Used(head) if is_fresh(head))
    }

    /// Takes the values that answer the request `number`.
    pub(crate) fn on_reported(&mut self, now: Now, server: ServerId, number: u64, values: Vec<FileGrant>) {
        self.servers.get_mut(server).requests.answered(number);
        for grant in values.iter().filter(|grant| grant.values.content.is_some_and(|head| is_small(&head))) {
            self.ping_pong.note(now.time, &grant.file, 0);
        }
        self.calls.answered(number, |waiting| waiting.told = values.clone());
    }

    /// Tries a call as if the reported values were leased, for this once. The try comes right after
    /// the report, and the server's messages keep their order. So the other fields that the call
    /// rests on were held when the server made the report.
    pub(crate) fn attempt_told(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        out: &mut Vec<Output>,
    ) -> Result<Reply, Stop> {
        if waiting.told.is_empty() {
            return self.attempt(now, waiting, out);
        }
        let mut not_held = Vec::new();
        for grant in std::mem::take(&mut waiting.told) {
            let file = grant.file.clone();
            let missing = |field: &Field| !self.files.holds(&file, field, Kind::Read);
            for (field, _) in grant.fields.iter().filter(|(field, _)| missing(field)) {
                let keep = self.files.get(&file).and_then(|known| known.held.kind(field));
                not_held.push(Released { file: file.clone(), field: field.clone(), keep });
            }
            self.learn_grant(self.server_of(&file), grant);
        }
        self.is_told = true;
        let mut reply = self.attempt(now, waiting, out);
        self.is_told = false;
        self.files.release(&not_held);
        // A report counts once. Trap: a request for the missing fields alone would bring these
        // alone, if the server believes that the client holds the reported ones. The call would
        // then ask for ever.
        if let Err(Stop::Need(Need::Leases { wants, .. })) = &mut reply {
            let again = not_held.iter().map(|it| Lease::new(it.file.clone(), it.field.clone(), Kind::Read));
            wants.extend(again);
        }
        let is_glimpsed = match &waiting.call {
            Call::Lookup(call::Lookup { dir, label }) => {
                !self.files.holds(dir, &Field::Child(fold(label)), Kind::Read)
            }
            _ => false,
        };
        match reply {
            Ok(Reply::Node(entry, stat)) if is_glimpsed => Ok(Reply::Glimpsed(Some((entry, stat)))),
            Err(Stop::Error(Error::NotFound)) if is_glimpsed => Ok(Reply::Glimpsed(None)),
            Ok(reply @ (Reply::Node(..) | Reply::Stat(_))) => Ok(Reply::Uncached(Box::new(reply))),
            reply => reply,
        }
    }

    /// Stat for a caller that does not look at times and sizes: the kernel, on its way to a name.
    /// No holder is asked for those.
    pub(crate) fn glance(&self, file: &FileId) -> Result<Reply, Stop> {
        match self.files.attributes(file, Kind::Read) {
            Known::Used(attributes) => {
                let stat = Stat { attributes, size: 0, occupied: 0, mtime: attributes.ctime };
                Ok(Reply::Uncached(Box::new(Reply::Stat(stat))))
            }
            Known::Unused => Err(Stop::Error(Error::Stale)),
            Known::Unknown => {
                let operation = Operation::Access(operation::Access {
                    file: file.clone(),
                    mask: 0,
                    cred: namespace::Cred::default(),
                });
                Err(self.want(operation, file, Field::Attributes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, empty, opened};
    use crate::{Input, Outcome, Settings};
    use namespace::{Cred, Times};
    use wire::{AskMode, ToClient, ToServer, Values};

    /// A server that wrongly believes that the client holds leases. It reports the fields that a
    /// request names, and no others.
    #[test]
    fn what_was_told_is_asked_for_once_more_with_what_is_missing() {
        let mut client = Client::new(Settings::new([0; 32]));
        let (mut out, file) = (Vec::new(), FileId::root());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let called =
            client.call(at(0), &Cred::default(), Call::Stat(call::Stat { file: file.clone() }), &mut out);
        let Outcome::Waiting(_) = called else { panic!("{called:?}") };
        let attributes = empty(&file).values.attributes;
        let of = |fields: &[Field]| Values {
            attributes: attributes.filter(|_| fields.contains(&Field::Attributes)),
            content: fields.contains(&Field::Content).then(ContentHead::default),
            times: fields.contains(&Field::Times).then(Times::default),
            disposition: fields.contains(&Field::Disposition).then_some(None),
            ..Values::default()
        };
        for _ in 0..20 {
            let asked = out.drain(..).find_map(|output| match output {
                Output::Send(_, ToServer::Ask { number, wants, mode, .. }) => Some((number, wants, mode)),
                Output::Answer { result, .. } => {
                    assert!(matches!(result, Ok(Reply::Uncached(_))), "{result:?}");
                    None
                }
                _ => None,
            });
            let Some((number, wants, mode)) = asked else { return };
            let fields: Vec<Field> = wants.into_iter().map(|want| want.field).collect();
            let (whole, excluded, excluded_xattrs, values) = (false, Vec::new(), Vec::new(), of(&fields));
            let told = fields.into_iter().map(|field| (field, Kind::Read)).collect();
            let grant =
                FileGrant { file: file.clone(), whole, fields: told, excluded, excluded_xattrs, values };
            let answer = match mode {
                AskMode::Values => ToClient::Reported { number, values: vec![grant], gone: Vec::new() },
                _ => ToClient::Granted { number, grants: Vec::new(), gone: Vec::new() },
            };
            client.handle(at(1), Input::Message(ServerId::ROOT, answer), &mut out);
        }
        panic!("it asks without end");
    }
}
