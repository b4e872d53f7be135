//! Giving back what others need, and forgetting what is least used.

use crate::client::Client;
use crate::known::KnownContent;
use crate::{Invalidation, Now, Output};
use ident::FileId;
use lease::{Field, Released};
use wire::LogEntry;

/// How many files the eviction hand looks at after one input.
const HAND_STEPS: usize = 64;

impl Client {
    pub(crate) fn on_recall(&mut self, now: Now, leases: Vec<Released>, out: &mut Vec<Output>) {
        self.yielding.extend(leases);
        self.yield_recalled(now, out);
    }

    /// Lets go of what was recalled as soon as nothing that it covered is unpublished: first what was handed out below is
    /// invalidated, then the log is flushed up to the release, which stands behind every update that used the lease.
    pub(crate) fn yield_recalled(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.yielding.is_empty() {
            return;
        }
        let mut ready = Vec::new();
        for released in std::mem::take(&mut self.yielding) {
            let publishing =
                released.field == Field::Content && self.publish_before(now, &released.file, out).is_err();
            if publishing {
                self.yielding.push(released);
            } else {
                invalidate(&released, out);
                ready.push(released);
            }
        }
        if !ready.is_empty() {
            self.release(now, ready);
            self.flush_log(out);
        }
        let mut flushed = Vec::new();
        for (number, file) in std::mem::take(&mut self.flushing) {
            if self.publish_before(now, &file, out).is_err() {
                self.flushing.push((number, file));
            } else {
                flushed.push(number);
            }
        }
        self.answer_flushes(flushed, out);
    }

    /// A report: what is pending of the field goes to the server, the lease stays.
    pub(crate) fn on_flush(
        &mut self,
        now: Now,
        number: u64,
        file: FileId,
        field: &Field,
        out: &mut Vec<Output>,
    ) {
        if *field == Field::Locks {
            self.write_down_locks(now, &file);
        }
        if *field == Field::Content && self.publish_before(now, &file, out).is_err() {
            self.flushing.push((number, file));
        } else {
            self.answer_flushes(vec![number], out);
        }
    }

    fn answer_flushes(&mut self, numbers: Vec<u64>, out: &mut Vec<Output>) {
        if !numbers.is_empty() {
            for number in numbers {
                self.log.push(LogEntry::Flushed { number }, 16);
            }
            self.flush_log(out);
        }
    }

    /// Keeps what is known within bounds: a clock hand passes over the files, and lets go of those that were not used since it last
    /// came by.
    pub(crate) fn evict(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.files.0.len() <= self.settings.files_max {
            return;
        }
        for _ in 0..HAND_STEPS {
            let Some(file) = self.hand.pop_front() else { return };
            let Some(known) = self.files.get_mut(&file) else { continue };
            let content_busy = match &known.content {
                KnownContent::Open(content) => {
                    content.is_dirty() || !content.is_settled() || content.is_folding()
                }
                KnownContent::Unknown | KnownContent::Head(..) => false,
            };
            if known.recent
                || known.gone
                || known.handles.is_some()
                || content_busy
                || file == self.rights.root
            {
                known.recent = false;
                self.hand.push_back(file);
                continue;
            }
            if let Some(children) = &known.children {
                let entries = children.by_label.keys();
                out.extend(
                    entries.map(|label| Output::Invalidate(Invalidation::Entry(file.clone(), label.clone()))),
                );
            }
            self.write_down_locks(now, &file);
            let Some(known) = self.files.get_mut(&file) else { continue };
            let fields: Vec<Field> = known.held.iter().map(|(field, _)| field).collect();
            Client::invalidate(&file, out);
            let released =
                fields.into_iter().map(|field| Released { file: file.clone(), field, keep: None }).collect();
            self.publishing.orphan(&file);
            self.push_release(released);
            self.files.0.remove(&file);
        }
    }
}

fn invalidate(released: &Released, out: &mut Vec<Output>) {
    let file = released.file.clone();
    let invalidation = match &released.field {
        // Whoever may still read is told nothing new by what others read.
        _ if released.keep.is_some() => return,
        Field::Child(label) => Invalidation::Entry(file, label.clone()),
        Field::Content => Invalidation::Pages(file),
        Field::Attributes | Field::Times | Field::Parent | Field::Children => Invalidation::Attributes(file),
        Field::Xattr(_) | Field::Xattrs => Invalidation::Attributes(file),
        Field::Disposition | Field::Handles | Field::Mode(_) | Field::Locks | Field::Path => return,
    };
    out.push(Output::Invalidate(invalidation));
}
