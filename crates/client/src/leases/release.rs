//! Releases: leases that go, in the log behind every update that used them.

use crate::Now;
use crate::client::Client;
use crate::knowledge::KnownFile;
use crate::server::ServerId;
use ident::FileId;
use lease::{Field, OpenModes, Released, Time};
use std::collections::BTreeMap;
use wire::LogEntry;

impl Client {
    /// Releases leases to the server that granted them, or recalls them.
    pub(crate) fn release(&mut self, now: Now, server: ServerId, leases: Vec<Released>) {
        for released in leases.iter().filter(|released| released.field == Field::Locks) {
            self.write_down_locks(now, &released.file);
        }
        let held = self.files.release(&leases);
        let (mut still_held, mut answers) = (leases.clone(), Vec::new());
        for ((released, held), answer) in leases.iter().zip(held).zip(&mut still_held) {
            if held == held.and_then(|kind| kind.within(released.keep)) {
                answers.push(released.clone());
            }
            match (&released.field, released.keep) {
                (Field::Content, None) => self.publishing.orphan(&released.file),
                (Field::Content, Some(_)) => self.stop_folding(&released.file),
                _ => {}
            }
            if released.field.is_black_box() {
                // A recall may name more than this client holds: one of the two leases of a black
                // box may be here without the other.
                answer.keep =
                    self.files.get(&released.file).and_then(|known| known.held.kind(&released.field));
            }
        }
        self.servers.get_mut(server).log.age_from(now.time);
        self.push_release(server, still_held, answers);
    }

    /// Logs releases of leases from one server. Those of one file's black boxes go in one entry,
    /// together with this client's own values. `answers` are the releases of leases that are not
    /// held.
    pub(crate) fn push_release(&mut self, server: ServerId, leases: Vec<Released>, answers: Vec<Released>) {
        let session = self.servers.get_mut(server);
        if self.revocations.released(&leases) {
            // A recall waits for it, so it is due.
            session.log.age_from(Time(0));
        }
        for lost in leases.iter().filter(|it| it.field == Field::Content && it.keep.is_none()) {
            // Another client writes the range from now on, and this one may never hear of its
            // deletion.
            session.break_promise(&lost.file, 0..u64::MAX);
        }
        let files: Vec<FileId> = leases.iter().map(|released| released.file.clone()).collect();
        let (boxes, released): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|released| released.field.is_black_box());
        let mut returned: BTreeMap<FileId, Vec<_>> = BTreeMap::new();
        for Released { file, field, keep } in boxes {
            returned.entry(file).or_default().push((field, keep));
        }
        for (file, fields) in returned {
            let own = self.files.get(&file).map_or(OpenModes::CLOSED, KnownFile::own);
            let bytes = 48 + 4 * fields.len();
            session.log.push(LogEntry::Return { file, fields, own }, bytes);
        }
        if !released.is_empty() {
            session.log.push_release(released, answers);
        }
        session.released(&files);
    }
}
