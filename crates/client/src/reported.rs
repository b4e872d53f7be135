//! What the server tells without a lease, since it passes to and fro between machines: good for the one question that asked, and for nobody to keep (design.md,
//! "Reports").

use crate::client::Client;
use crate::waiting::{On, Stop, Waiting};
use crate::{Call, Now, Output, Reply};
use ident::FileId;
use lease::{Field, Kind, Released, Time};
use namespace::{ContentHead, Error, INLINE_BYTES_MAX, Knowledge, Known, Operation, Stat};
use rustc_hash::FxHashMap;
use wire::FileGrant;

/// For so long after its content was recalled or reported a file counts as one that passes to and fro, ms.
const PASSING_MS: u64 = 10_000;
/// Recalls of a file's content, each within that time of the last, until it does.
const PASSES: u8 = 2;
/// Of what another machine wrote no longer ago than this more is to be expected, seconds.
const FRESH_SECS: u64 = 60;
/// Such files that are remembered.
const PASSING_MAX: usize = 4096;

/// Files whose content was recalled or reported lately, or read past the kernel's pages.
#[derive(Debug, Default)]
pub(crate) struct Passing(FxHashMap<FileId, Passed>);

#[derive(Debug)]
struct Passed {
    /// When last.
    at: Time,
    /// How often it was recalled.
    recalls: u8,
    /// Which version was read so.
    read: Option<u64>,
}

impl Passing {
    fn note(&mut self, now: Time, file: &FileId, recalls: u8) {
        let Some(passed) = self.entry(now, file) else { return };
        if now.ms_since(passed.at) >= PASSING_MS {
            passed.recalls = 0;
        }
        (passed.at, passed.recalls) = (now, passed.recalls.saturating_add(recalls));
    }

    fn entry(&mut self, now: Time, file: &FileId) -> Option<&mut Passed> {
        if self.0.len() >= PASSING_MAX && !self.0.contains_key(file) {
            self.0.retain(|_, passed| now.ms_since(passed.at) < PASSING_MS);
            if self.0.len() >= PASSING_MAX {
                return None;
            }
        }
        Some(self.0.entry(file.clone()).or_insert(Passed { at: now, recalls: 0, read: None }))
    }

    /// This content of `file` was read past the kernel's pages.
    pub fn note_read(&mut self, now: Time, file: &FileId, head: &ContentHead) {
        // Of what is larger pages are kept in any case.
        if is_small(head)
            && let Some(passed) = self.entry(now, file)
        {
            passed.read = Some(head.version);
        }
    }

    fn has_read(&self, file: &FileId, version: u64) -> bool {
        self.0.get(file).is_some_and(|passed| passed.read == Some(version))
    }

    /// Whether the content of `file` passes to and fro: it is better asked for each time than kept below.
    pub fn has(&self, now: Time, file: &FileId) -> bool {
        let passes = |it: &Passed| it.recalls >= PASSES && now.ms_since(it.at) < PASSING_MS;
        self.0.get(file).is_some_and(passes)
    }
}

/// Whether content is told with its head.
fn is_small(head: &ContentHead) -> bool {
    head.size <= INLINE_BYTES_MAX as u64
}

impl Call {
    /// Whether nobody keeps the answer if it says so: then what passes to and fro may be told instead of leased.
    pub(crate) fn takes_report(&self) -> bool {
        match self {
            Call::Lookup { .. } | Call::Stat { .. } | Call::Parent { .. } => true,
            Call::Read { kept, .. } => !kept,
            _ => false,
        }
    }
}

impl Client {
    /// The content of `file` was recalled. Of what is larger than can be told pages are worth keeping, however short.
    pub(crate) fn note_passing(&mut self, now: Now, file: &FileId) {
        let head = self.files.get(file).and_then(|known| known.content.head());
        if head.is_some_and(|head| is_small(&head)) {
            self.passing.note(now.time, file, 1);
        }
    }

    /// Whether reads through a handle that is opened now are better asked for each time than kept below: the file passes to and fro, or may come to, since another machine
    /// wrote it lately and this one has not read that yet. The kernel must be told when the handle is opened, and programs that talk to each other through a file keep it open. What is
    /// opened to be read once more is worth keeping: its bytes are not kept here.
    pub(crate) fn passes(&self, now: Now, file: &FileId) -> bool {
        let is_fresh = |head: ContentHead| {
            let is_recent = now.wall.secs.abs_diff(head.mtime.secs) < FRESH_SECS;
            is_small(&head) && is_recent && !self.passing.has_read(file, head.version)
        };
        let only_read = !self.may_be_mapped(file) && !self.files.holds(file, &Field::Content, Kind::Write);
        self.passing.has(now.time, file)
            || only_read
                && matches!(self.files.content(file, Kind::Read), Known::Used(head) if is_fresh(head))
    }

    /// The values that the question `number` is about.
    pub(crate) fn on_reported(&mut self, now: Now, number: u64, values: Vec<FileGrant>) {
        self.requests.answered(number);
        for grant in values.iter().filter(|grant| grant.values.content.is_some_and(|head| is_small(&head))) {
            self.passing.note(now.time, &grant.file, 0);
        }
        for waiting in self.waiting.values_mut() {
            if matches!(waiting.on, On::Number(n) if n == number) {
                waiting.on = On::Answered;
                waiting.told = values.clone();
            }
        }
    }

    /// Tries a call as if what was told were leased, for this once. It is tried as soon as it is told: so all else that it rests on was held when the server told it, since what
    /// the server says comes in order.
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
            self.learn_grant(grant);
        }
        let reply = self.attempt(now, waiting, out);
        self.files.release(&not_held);
        reply.map(|reply| match reply {
            Reply::Node(..) | Reply::Stat(_) => Reply::Passing(Box::new(reply)),
            reply => reply,
        })
    }

    /// What stat shows to who does not look at times and sizes: the kernel, on its way to a name. Nobody is asked for those.
    pub(crate) fn glance(&self, file: &FileId) -> Result<Reply, Stop> {
        match self.files.attributes(file, Kind::Read) {
            Known::Used(attributes) => {
                let stat = Stat { attributes, size: 0, occupied: 0, mtime: attributes.ctime };
                Ok(Reply::Passing(Box::new(Reply::Stat(stat))))
            }
            Known::Unused => Err(Stop::Error(Error::Stale)),
            Known::Unknown => {
                let operation =
                    Operation::Access { file: file.clone(), mask: 0, cred: namespace::Cred::default() };
                Err(self.want(operation, file, Field::Attributes))
            }
        }
    }
}
