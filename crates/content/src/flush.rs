//! From dirty data to publications.

use std::collections::BTreeMap;
use std::mem;

use bytes::Bytes;
use namespace::{ContentChange, ContentHead, INLINE_BYTES_MAX, ShareId};
use rand_core::Rng;

use crate::file::{Base, FileContent};
use crate::flight::{Flight, Sent, pack, pieces, seal_inline};
use crate::overlay::{DirtyRun, Overlay};
use crate::seal::seal_whole;
use crate::{Done, ExtentMap, FOLD_BYTES, Flush, Hash, Key, Publish, UploadPlan};

impl FileContent {
    /// Flushes all dirty data as one state of the content. Up to `inline_max` bytes go into the
    /// publication itself. If too many such bytes wait to be folded, none do: the writer then waits
    /// for a share, which slows it.
    pub fn flush(&mut self, inline_max: u64, rng: &mut dyn Rng) -> Flush {
        if !mem::take(&mut self.changed) {
            return Flush::Nothing;
        }
        self.flushes += 1;
        let plans = self.launch(inline_max, rng);
        if !plans.is_empty() {
            return Flush::Upload(plans);
        }
        // Earlier flights that are ready were published as they became so.
        self.land().pop().map_or(Flush::Queued, Flush::Publish)
    }

    /// Returns the number of the last flush.
    pub fn barrier(&self) -> u64 {
        self.flushes
    }

    /// Returns whether the data of flush `barrier`, and of those before it, was returned as
    /// publications.
    pub fn passed(&self, barrier: u64) -> bool {
        let first = self.flights.front().map(|flight| flight.flush).or(self.undone);
        first.is_none_or(|flush| flush > barrier)
    }

    /// Notes that an upload is stored, with the hashes of its pieces in order.
    pub fn stored(&mut self, upload: u64, hashes: Vec<Hash>) -> Done {
        if let Some(share) = self.abandoned.remove(&upload) {
            return Done { publishes: Vec::new(), unused: vec![share] };
        }
        if self.fold.as_ref().is_some_and(|fold| fold.has(upload)) {
            return self.fold_stored(upload, hashes);
        }
        let sent =
            self.flights.iter_mut().flat_map(|flight| &mut flight.uploads).find(|sent| sent.id == upload);
        match sent {
            None => Done::default(),
            Some(sent) if sent.len() == hashes.len() => {
                sent.hashes = Some(hashes);
                Done { publishes: self.land(), unused: Vec::new() }
            }
            Some(sent) => {
                let share = sent.share;
                let mut unused = self.upload_failed(upload);
                unused.push(share);
                Done { publishes: Vec::new(), unused }
            }
        }
    }

    /// Notes that an upload could not be stored. Its data is dirty again, and so is all data that
    /// was flushed later: content is published in the order of the writes. Returns the stored
    /// shares that no publication needs any more.
    pub fn upload_failed(&mut self, upload: u64) -> Vec<ShareId> {
        self.abandoned.remove(&upload);
        if self.fold.as_ref().is_some_and(|fold| fold.has(upload)) {
            return self.fold_failed(upload);
        }
        let mut unused = Vec::new();
        let failed =
            self.flights.iter().position(|flight| flight.uploads.iter().any(|sent| sent.id == upload));
        let Some(failed) = failed else { return unused };
        for flight in self.flights.drain(failed..).rev() {
            let upper = mem::replace(&mut self.dirty, flight.overlay);
            self.dirty.cover(upper);
            self.undone = Some(flight.flush);
            abandon(flight.uploads, Some(upload), &mut self.abandoned, &mut unused);
        }
        self.changed = true;
        unused
    }

    /// Makes a flight of all dirty data.
    fn launch(&mut self, inline_max: u64, rng: &mut dyn Rng) -> Vec<UploadPlan> {
        let (change, inline, plans) = self.plan(inline_max, rng);
        let mut overlay = mem::take(&mut self.dirty);
        overlay.freeze();
        let uploads = plans.iter().map(Sent::from).collect();
        let flush = self.undone.take().unwrap_or(self.flushes);
        self.flights.push_back(Flight { flush, overlay, head: self.head, change, inline, uploads });
        plans
    }

    /// Decides how dirty data is published. Returns also the plain bytes sealed in the change, if
    /// that is the whole content. Afterwards `dirty` holds exactly the changes of the flight.
    fn plan(
        &mut self,
        inline_max: u64,
        rng: &mut dyn Rng,
    ) -> (ContentChange, Option<Bytes>, Vec<UploadPlan>) {
        let inline = self.inline_beneath();
        let carries = inline.as_ref().is_some_and(|bytes| !bytes.is_empty());
        if self.dirty.is_empty() && (self.size() == self.size_beneath() || !carries) {
            return (ContentChange::None, None, Vec::new());
        }
        if self.size() <= INLINE_BYTES_MAX as u64
            && let Some(bytes) = self.local_bytes()
        {
            self.dirty = Overlay::default();
            self.dirty.truncate(0, u64::MAX);
            let plain = Bytes::from(bytes);
            self.dirty.write(0, plain.clone());
            self.head.occupied = self.size();
            let sealed = if plain.is_empty() { Vec::new() } else { self.seal_whole(&plain, rng) };
            return (ContentChange::Inline { sealed, key: None }, Some(plain), Vec::new());
        }
        if let Some(bytes) = inline {
            let upper = mem::take(&mut self.dirty);
            self.dirty.write(0, bytes);
            self.dirty.cover(upper);
        }
        self.dirty.freeze();
        let pieces = pieces(&self.dirty);
        let limit = if self.pending_inline_bytes() >= 2 * FOLD_BYTES { 0 } else { inline_max };
        let (mut put, mut plans) = (Vec::new(), Vec::new());
        if !pieces.is_empty() {
            let key = self.key(rng);
            if self.dirty.bytes() <= limit {
                put = seal_inline(&key, pieces, &mut self.nonces, rng);
            } else {
                plans = pack(&key, pieces, self.spread, &mut self.next_upload, &mut self.nonces, rng);
            }
        }
        let hole = |(offset, run): (u64, &DirtyRun)| match run {
            DirtyRun::Hole(length) => Some((offset, *length)),
            DirtyRun::Data(_) => None,
        };
        let punch = self.dirty.runs().filter_map(hole).collect();
        let truncate_to = self.dirty.truncate_to();
        (ContentChange::Extents { truncate_to, punch, put, key: None }, None, plans)
    }

    fn seal_whole(&mut self, plain: &[u8], rng: &mut dyn Rng) -> Vec<u8> {
        let key = self.key(rng);
        seal_whole(&key, &self.nonces.next(rng), plain)
    }

    /// Returns the inline content below the dirty data, if that layer is inline.
    fn inline_beneath(&self) -> Option<Bytes> {
        for flight in self.flights.iter().rev() {
            match &flight.change {
                ContentChange::Inline { .. } => return flight.inline.clone(),
                ContentChange::Extents { .. } => return None,
                ContentChange::None => {}
            }
        }
        match &self.base {
            Base::Inline(bytes) => Some(bytes.clone()),
            Base::Damaged(_) | Base::Extents(_) => None,
        }
    }

    fn key(&mut self, rng: &mut dyn Rng) -> Key {
        *self.head.key.get_or_insert_with(|| {
            let mut key = [0; 32];
            rng.fill_bytes(&mut key);
            key
        })
    }

    /// Publishes the flights that are ready, up to the first one that is not.
    fn land(&mut self) -> Vec<Publish> {
        let mut publishes = Vec::new();
        while self.flights.front().is_some_and(Flight::is_ready) {
            let Some(flight) = self.flights.pop_front() else { break };
            let (head, change, inline) = flight.finish();
            publishes.push(self.publish(head, change, inline));
        }
        publishes
    }

    /// Applies a change to the published state, and returns it as a publication. `inline` is the
    /// plain bytes sealed in it, if that is the whole content. Only size, times and bytes occupied
    /// of `head` count.
    pub(crate) fn publish(
        &mut self,
        head: ContentHead,
        mut change: ContentChange,
        inline: Option<Bytes>,
    ) -> Publish {
        if self.published.key.is_none() {
            self.tell_key(&mut change);
        }
        match (&change, &mut self.base) {
            (ContentChange::None, _) => {}
            (ContentChange::Inline { .. }, base) => *base = Base::Inline(inline.unwrap_or_default()),
            (ContentChange::Extents { .. }, Base::Extents(map)) => map.apply(&change),
            (ContentChange::Extents { .. }, base) => {
                let mut map = ExtentMap::whole_hole();
                map.apply(&change);
                *base = Base::Extents(map);
            }
        }
        let version = self.published.version.saturating_add(1);
        self.published = ContentHead { version, key: self.published.key, ..head };
        self.head.version = version;
        Publish { version, size: head.size, mtime: head.mtime, ctime: head.ctime, change }
    }

    /// Adds the key to the first publication that seals something.
    fn tell_key(&mut self, change: &mut ContentChange) {
        let (seals, key) = match change {
            ContentChange::Inline { sealed, key } => (!sealed.is_empty(), key),
            ContentChange::Extents { put, key, .. } => (!put.is_empty(), key),
            ContentChange::None => return,
        };
        if seals {
            *key = self.head.key;
            self.published.key = self.head.key;
        }
    }
}

/// Gives up `uploads`, of which `failed`, if any, is known not to be stored. The stored ones are
/// unused now; the others become so when they are stored.
pub(crate) fn abandon(
    uploads: Vec<Sent>,
    failed: Option<u64>,
    abandoned: &mut BTreeMap<u64, ShareId>,
    unused: &mut Vec<ShareId>,
) {
    for sent in uploads.into_iter().filter(|sent| Some(sent.id) != failed) {
        match sent.hashes {
            Some(_) => unused.push(sent.share),
            None => {
                abandoned.insert(sent.id, sent.share);
            }
        }
    }
}
