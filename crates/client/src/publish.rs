//! The way of content to the servers: uploads of shares, publications in the log, folding of small
//! synced writes, and the account of dirty bytes.

use crate::calls::{Progress, Stop, Waiting, WaitingFor};
use crate::client::Client;
use crate::knowledge::KnownContent;
use crate::publishing::UploadUnderWay;
use crate::server::{Publication, ServerId};
use crate::{Now, Output, Upload};
use content::{FOLD_BYTES, Flush, LAZY_BYTES_MAX, Publish, URGENT_BYTES_MAX, UploadPlan};
use ident::FileId;
use lease::{Field, Kind, Time};
use namespace::{ContentChange, Error, Knowledge, Operation, ShareId, operation};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Dirty bytes of one file at which its upload begins while the writer goes on.
const EARLY_BYTES: u64 = 8 << 20;
/// Dirty ranges of one file at which its upload begins. Each is an extent, or a hole, in one entry
/// of the log.
const EARLY_RUNS: usize = 4096;

impl Client {
    pub(crate) fn has_room(&self) -> bool {
        let unsettled: u64 = self.servers.iter().map(|(_, server)| server.publications.bytes()).sum();
        let unsettled = usize::try_from(unsettled).unwrap_or(usize::MAX);
        self.publishing.dirty_bytes().saturating_add(unsettled) < self.settings.dirty_bytes_max
    }

    /// Begins to publish the dirty content of `file`. Up to `inline_max` bytes go into the log
    /// themselves.
    ///
    /// Returns a barrier that is passed once the content is in the log, or `None` if no content is
    /// open.
    pub(crate) fn publish(
        &mut self,
        now: Now,
        file: &FileId,
        inline_max: u64,
        out: &mut Vec<Output>,
    ) -> Option<u64> {
        let known = self.files.get_mut(file)?;
        let spread = known.spread();
        let KnownContent::Open(content) = &mut known.content else { return None };
        // The opener requested the policy when it opened the file to write. A change since then
        // takes effect at the next open.
        spread.into_iter().for_each(|spread| content.set_spread(spread));
        let flush = content.flush(inline_max, &mut self.rng);
        let (barrier, held, dirty) = (content.barrier(), content.held_bytes(), content.is_dirty());
        let since = self.publishing.dirty_since(file).unwrap_or(now.time);
        self.publishing.note(file, held, dirty, now.time);
        if matches!(flush, Flush::Queued | Flush::Upload(_)) {
            self.publishing.flown.entry(file.clone()).or_insert(since);
        }
        match flush {
            Flush::Nothing | Flush::Queued => {}
            Flush::Publish(publish) => self.log_publication(since, file, publish),
            Flush::Upload(plans) => self.upload(file, plans, out),
        }
        self.fold_from(file, FOLD_BYTES, out);
        Some(barrier)
    }

    /// Begins to move the inline content of `file` into shares, if it has at least `bytes`.
    fn fold_from(&mut self, file: &FileId, bytes: u64, out: &mut Vec<Output>) {
        if let Some(KnownContent::Open(content)) = self.files.get_mut(file).map(|known| &mut known.content)
            && content.pending_inline_bytes() >= bytes
        {
            let plans = content.fold(FOLD_BYTES, &mut self.rng);
            self.upload(file, plans, out);
        }
    }

    /// Logs a publication of content that was dirty since `since`. The bound on its age begins with
    /// the write, however long the upload took.
    fn log_publication(&mut self, since: Time, file: &FileId, publish: Publish) {
        let Publish { version, size, mtime, ctime, change } = publish;
        let (mut shares, mut bytes) = (FxHashSet::default(), 0);
        if let ContentChange::Extents { put, .. } = &change {
            for extent in put {
                if let Some(share) = extent.piece.place.share() {
                    shares.insert(share);
                    bytes += u64::from(extent.length);
                }
            }
            self.no_longer_unpublished(file, |share| shares.contains(share));
        }
        let operation = Operation::Publish(operation::Publish {
            file: file.clone(),
            version,
            size,
            mtime,
            ctime,
            change,
        });
        let server = self.session_of_mut(file);
        let sequence = server.push_update(since, operation);
        server.publications.push(sequence, Publication { file: file.clone(), shares, bytes });
    }

    fn no_longer_unpublished(&mut self, file: &FileId, done: impl Fn(&ShareId) -> bool) {
        if let Some(shares) = self.publishing.unpublished.get_mut(file) {
            shares.retain(|share| !done(share));
            if shares.is_empty() {
                self.publishing.unpublished.remove(file);
            }
        }
    }

    fn upload(&mut self, file: &FileId, plans: Vec<UploadPlan>, out: &mut Vec<Output>) {
        for plan in plans {
            self.publishing.next_upload += 1;
            let upload = self.publishing.next_upload;
            let content = Some((file.clone(), plan.id));
            self.publishing.uploads.insert(upload, UploadUnderWay { share: plan.share, content });
            let pieces = plan.pieces.into_iter().map(|piece| (piece.nonce, piece.plain)).collect();
            out.push(Output::Store(Upload { upload, share: plan.share, key: plan.key, pieces }));
        }
    }

    pub(crate) fn on_stored(
        &mut self,
        now: Now,
        upload: u64,
        result: Result<Vec<[u8; 32]>, Error>,
        out: &mut Vec<Output>,
    ) {
        let Some(UploadUnderWay { share, content }) = self.publishing.uploads.remove(&upload) else { return };
        let known = content.and_then(|(file, id)| {
            let known = self.files.get_mut(&file).map(|known| &mut known.content);
            Some((file, id, known?))
        });
        let Some((file, id, KnownContent::Open(content))) = known else {
            // The content was deleted, or cut off, during its upload.
            if result.is_ok() {
                self.publishing.unneeded.push(share);
            }
            return;
        };
        let (publishes, unneeded, failure) = match result {
            Ok(hashes) => {
                self.publishing.unpublished.entry(file.clone()).or_default().push(share);
                let done = content.stored(id, hashes);
                (done.publishes, done.unused, None)
            }
            Err(error) => (Vec::new(), content.upload_failed(id), Some(error)),
        };
        let (held, dirty) = (content.held_bytes(), content.is_dirty());
        let is_landed = content.is_settled();
        self.publishing.note(&file, held, dirty, now.time);
        let since = self.publishing.flown.get(&file).copied().unwrap_or(now.time);
        if is_landed {
            self.publishing.flown.remove(&file);
        }
        self.no_longer_unpublished(&file, |share| unneeded.contains(share));
        self.publishing.unneeded.extend(unneeded);
        for publish in publishes {
            self.log_publication(since, &file, publish);
        }
        if let Some(error) = failure {
            self.fail_syncs(&file, error, out);
        }
    }

    /// Fails the calls that wait for `file` to be durable. The data stays dirty and is tried again.
    fn fail_syncs(&mut self, file: &FileId, error: Error, out: &mut Vec<Output>) {
        let failed = |_, w: &Waiting| matches!(&w.progress, Progress::Syncing { barriers, .. } if barriers.contains_key(file));
        self.calls.fail(error, failed, out);
    }

    /// Stops a fold of `file`, whose content this client may still read and no longer change. Its
    /// publication would show no difference, but it is a change.
    pub(crate) fn stop_folding(&mut self, file: &FileId) {
        let Some(KnownContent::Open(content)) = self.files.get_mut(file).map(|known| &mut known.content)
        else {
            return;
        };
        let unneeded = content.stop_folding();
        self.no_longer_unpublished(file, |share| unneeded.contains(share));
        self.publishing.unneeded.extend(unneeded);
    }

    /// Whether the content of `file` up to `barrier` is in the log, or is not needed there any
    /// more.
    pub(crate) fn has_published(&self, file: &FileId, barrier: u64) -> bool {
        match self.files.get(file).map(|known| &known.content) {
            Some(KnownContent::Open(content)) => content.passed(barrier),
            Some(_) | None => true,
        }
    }

    /// Puts all content of `file` into the log before an entry that depends on it.
    pub(crate) fn publish_before(
        &mut self,
        now: Now,
        file: &FileId,
        out: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        match self.publish(now, file, URGENT_BYTES_MAX, out) {
            Some(barrier) if !self.has_published(file, barrier) => {
                Err(Stop::until(WaitingFor::Published(BTreeMap::from([(file.clone(), barrier)]))))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Begins to upload a file with a long run of writes.
    pub(crate) fn publish_early(&mut self, now: Now, file: &FileId, out: &mut Vec<Output>) {
        if let Some(KnownContent::Open(content)) = self.files.get(file).map(|known| &known.content)
            && (content.dirty_bytes() >= EARLY_BYTES || content.dirty_runs() >= EARLY_RUNS)
        {
            self.publish(now, file, LAZY_BYTES_MAX, out);
        }
    }

    /// Publishes everything. Returns the barriers of content that is not in the log yet.
    pub(crate) fn publish_all(&mut self, now: Now, out: &mut Vec<Output>) -> BTreeMap<FileId, u64> {
        let files: Vec<FileId> = self.publishing.dirty_files().cloned().collect();
        let mut barriers = BTreeMap::new();
        for file in files {
            match self.publish(now, &file, LAZY_BYTES_MAX, out) {
                Some(barrier) => _ = barriers.insert(file, barrier),
                // Nothing is left to publish, and an orderly end must not wait for it.
                None => self.forget_content(&file),
            }
        }
        barriers
    }

    /// The age at which dirty content is published, ms. Its upload takes a while, and it is to
    /// leave together with the log.
    pub(crate) fn publish_after_ms(&self) -> u64 {
        self.settings.flush_after_ms / 2
    }

    /// Publishes content that is dirty for long enough.
    pub(crate) fn publish_old(&mut self, now: Now, out: &mut Vec<Output>) {
        let publish_after_ms = self.publish_after_ms();
        while let Some((since, file)) = self.publishing.since.first().cloned()
            && now.time >= since.after_ms(publish_after_ms)
        {
            if self.publish(now, &file, LAZY_BYTES_MAX, out).is_none() {
                self.forget_content(&file);
            }
            // Content that cannot go out yet (queued behind an upload) is not tried again in this
            // pass.
            if self.publishing.since.remove(&(since, file.clone()))
                && let Some(held) = self.publishing.files.get_mut(&file)
            {
                held.since = Some(now.time);
                self.publishing.since.insert((now.time, file));
            }
        }
    }

    /// Forgets the dirty content of a deleted file.
    pub(crate) fn forget_content(&mut self, file: &FileId) {
        self.publishing.note(file, 0, false, Time::default());
        self.publishing.flown.remove(file);
        self.publishing.unneeded.extend(self.publishing.unpublished.remove(file).unwrap_or_default());
    }

    /// Takes the close of the last handle. Content leaves memory once the server has it. Inline
    /// content beyond `URGENT_BYTES_MAX` leaves the server's rows as well.
    pub(crate) fn shut(&mut self, file: &FileId, out: &mut Vec<Output>) {
        if self.files.holds(file, &Field::Content, Kind::Write) {
            self.fold_from(file, URGENT_BYTES_MAX + 1, out);
        }
        if !self.session_of(file).publications.has(file) {
            self.close_content(file);
        }
    }

    /// Settles publications that the server has: all entries of its log up to `through`.
    pub(crate) fn settle_content(&mut self, server: ServerId, up_to: u64) {
        while let Some(publication) = self.servers.get_mut(server).publications.acknowledge(up_to) {
            let Publication { file, shares, .. } = publication;
            self.publishing.settled.extend(shares);
            // While a later publication is under way, the server's extents differ from those here.
            if !self.servers.get(server).publications.has(&file) {
                self.close_content(&file);
            }
        }
    }

    /// Forgets all but the head of content that no program has open and that the server has as it
    /// is here. The kernel keeps the pages. After a later publication this is called again.
    fn close_content(&mut self, file: &FileId) {
        let number = self.last_number();
        let Some(known) = self.files.get_mut(file) else { return };
        if let KnownContent::Open(content) = &known.content
            && known.handles.is_none()
            && content.is_settled()
            && !content.is_dirty()
            && !content.is_folding()
            && content.held_bytes() == 0
        {
            known.content = KnownContent::Head(content.head(), None);
            known.content_since = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, logged, writer};
    use crate::{Call, Input, Outcome, call};
    use lease::Label;
    use namespace::{Cred, RenameMode};
    use wire::{AskMode, LogEntry, ToClient, ToServer};

    fn write(client: &mut Client, ms: u64, file: &FileId, bytes: usize, out: &mut Vec<Output>) {
        let data = vec![3; bytes].into();
        let call = Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false });
        let called = client.call(at(ms), &Cred::default(), call, out);
        assert!(matches!(called, Outcome::Done(Ok(_))), "{called:?}");
    }

    /// Answers all uploads as a share server that has stored them.
    fn stores(client: &mut Client, ms: u64, out: &mut Vec<Output>) {
        let uploads: Vec<Upload> = out
            .iter()
            .filter_map(|output| if let Output::Store(upload) = output { Some(upload.clone()) } else { None })
            .collect();
        for Upload { upload, key, pieces, .. } in uploads {
            let (_, hashes) = content::seal_share(&key, pieces.iter().map(|(nonce, plain)| (*nonce, plain)));
            client.handle(at(ms), Input::Stored { upload, result: Ok(hashes) }, out);
        }
    }

    fn is_publication(entry: &LogEntry) -> bool {
        matches!(entry, LogEntry::Update { operation: Operation::Publish { .. }, .. })
    }

    /// The host ticks on time, and storing takes a second. All has been sent within five seconds.
    #[test]
    fn content_is_on_its_way_when_its_name_is() {
        for bytes in [10, 1 << 20] {
            let (mut client, file) = writer(1 << 30);
            let (mut out, mut stored) = (Vec::new(), None);
            write(&mut client, 10, &file, bytes, &mut out);
            let mut sent = None;
            for ms in (100..6_000).step_by(100) {
                if client.deadline().is_some_and(|deadline| deadline <= Time(ms)) {
                    client.handle(at(ms), Input::Tick, &mut out);
                }
                let begun = out.iter().any(|output| matches!(output, Output::Store(_)));
                stored = stored.or(begun.then_some(ms + 1_000));
                if stored == Some(ms) {
                    stores(&mut client, ms, &mut out);
                }
                sent = sent.or(logged(&out).iter().any(is_publication).then_some(ms));
            }
            assert!(sent.is_some_and(|ms| (2_000..4_700).contains(&ms)), "{bytes} bytes: {sent:?}");
        }
    }

    /// Grants of the names come and are recalled, until the server is to do the rename. The content
    /// is in the log before that, and the log goes first.
    #[test]
    fn the_server_renames_nothing_before_the_content_is_in_the_log() {
        for bytes in [10, 1 << 20] {
            let (mut client, file) = writer(1 << 30);
            let mut out = Vec::new();
            write(&mut client, 2, &file, bytes, &mut out);
            let dir = FileId::root();
            let [from, to] = [b"a", b"b"].map(|name| Label::new(name).unwrap());
            let call = Call::Rename(call::Rename {
                from_dir: dir.clone(),
                from,
                to_dir: dir,
                to,
                mode: RenameMode::Replace,
                whiteout: false,
                source: None,
                replaced: None,
            });
            client.call(at(3), &Cred::default(), call, &mut out);
            let asked = |out: &[Output]| {
                out.iter().rev().find_map(|output| match output {
                    Output::Send(_, ToServer::Ask { number, mode, .. }) => Some((*number, *mode)),
                    _ => None,
                })
            };
            let mut rounds = 0;
            while let Some((number, AskMode::Lease)) = asked(&out) {
                out.retain(|output| !matches!(output, Output::Send(..)));
                let granted = ToClient::Granted { number, grants: Vec::new(), gone: Vec::new() };
                client.handle(at(4), Input::Message(ServerId::ROOT, granted), &mut out);
                rounds += 1;
                assert!(rounds < 10, "it asks for ever");
            }
            if bytes > LAZY_BYTES_MAX as usize {
                assert_eq!(asked(&out), None, "{out:?}");
                stores(&mut client, 5, &mut out);
            }
            // Front doors revoke the names without a lease.
            let gone = out.iter().find_map(|output| match output {
                Output::Revoke { number, .. } => Some(*number),
                _ => None,
            });
            gone.into_iter().for_each(|number| {
                client.handle(at(6), Input::Revoked { number, kept: Default::default() }, &mut out)
            });
            assert!(matches!(asked(&out), Some((_, AskMode::Ship))), "{bytes} bytes: {out:?}");
            let said = |is_it: &dyn Fn(&ToServer) -> bool| {
                out.iter().position(|output| matches!(output, Output::Send(_, said) if is_it(said)))
            };
            let published = said(
                &|said| matches!(said, ToServer::Log { entries, .. } if entries.iter().any(is_publication)),
            );
            let renamed = said(&|said| matches!(said, ToServer::Ask { mode: AskMode::Ship, .. }));
            assert!(published.is_some() && published < renamed, "{bytes} bytes: {out:?}");
        }
    }

    /// The host keeps the bytes until the server has the publication.
    #[test]
    fn what_was_stored_is_settled_when_its_publication_is_acknowledged() {
        let (mut client, file) = writer(1 << 30);
        let mut out = Vec::new();
        write(&mut client, 2, &file, 1 << 20, &mut out);
        client.handle(at(3_000), Input::Tick, &mut out);
        stores(&mut client, 3_001, &mut out);
        client.handle(at(5_000), Input::Tick, &mut out);
        let settled = |out: &[Output]| out.iter().any(|output| matches!(output, Output::Settled(_)));
        assert!(logged(&out).iter().any(is_publication) && !settled(&out), "{out:?}");
        let applied =
            ToClient::Applied { up_to: client.server().log.last(), rejected: Vec::new(), forgotten: 0 };
        client.handle(at(5_001), Input::Message(ServerId::ROOT, applied), &mut out);
        assert!(settled(&out), "{out:?}");
        assert_eq!(client.server().publications.bytes(), 0);
    }
}
