//! Uploads: sealed and stored on threads of their own, and kept as plain bytes until the server has
//! their publication.

use super::{After, ClientHost, Hosted};
use bytes::Bytes;
use client::{Input, Lost, LostWhat, Upload};
use lease::SessionId;
use namespace::Error;
use os::STOP_LOOK;
use parking_lot::Mutex;
use std::sync::mpsc::Receiver;

/// Uploads that one thread takes together, so that they share the disk's flushes.
const UPLOADS_TOGETHER: usize = 16;

impl ClientHost {
    /// Seals and stores uploads until the machine stops.
    pub(crate) fn store_uploads(&self, queue: &Mutex<Receiver<Upload>>) {
        loop {
            let uploads: Vec<Upload> = {
                let queue = queue.lock();
                let Ok(first) = queue.recv_timeout(STOP_LOOK) else {
                    if self.is_stopping() {
                        return;
                    }
                    continue;
                };
                std::iter::once(first).chain(queue.try_iter().take(UPLOADS_TOGETHER - 1)).collect()
            };
            // The next session sweeps uploads that belong to no session.
            let session = self.session().unwrap_or(SessionId(0));
            let stored = self.copies().store(session, uploads);
            let mut after = After::default();
            let mut hosted = self.hosted.lock();
            for (upload, result) in stored {
                self.stored(&mut hosted, upload, result, &mut after);
            }
            self.changed.notify_all();
            drop(hosted);
            self.finish(after, true);
        }
    }

    /// Takes in that the share server has stored an upload, or cannot store it.
    pub(super) fn stored(
        &self,
        hosted: &mut Hosted,
        upload: u64,
        result: Result<Vec<[u8; 32]>, Error>,
        after: &mut After,
    ) {
        if let Some(stored) = hosted.unstored.remove(&upload).filter(|_| result.is_ok()) {
            hosted.unsettled.insert(stored.share, stored);
        }
        self.input(hosted, Input::Stored { upload, result }, after);
    }
}

impl Hosted {
    /// Replaces pieces of shares that the server may soon drop by their plain bytes.
    pub(super) fn fill_in(&self, items: &mut [Lost]) {
        for lost in items {
            let LostWhat::Content { ranges, .. } = &mut lost.what else { continue };
            for (_, part) in ranges {
                if let Some(bytes) = self.plain(part) {
                    *part = content::ReadPart::Bytes(bytes);
                }
            }
        }
    }

    pub(super) fn plain(&self, part: &content::ReadPart) -> Option<Bytes> {
        let content::ReadPart::Piece { share, at, skip, length, .. } = part else { return None };
        let of_share = || self.unstored.values().find(|upload| upload.share == *share);
        let upload = self.unsettled.get(share).or_else(of_share)?;
        let mut begins = 0;
        for (_, plain) in &upload.pieces {
            if begins == *at as usize {
                let from = *skip as usize;
                return (from + *length as usize <= plain.len())
                    .then(|| plain.slice(from..from + *length as usize));
            }
            begins += plain.len() + content::TAG_BYTES;
        }
        None
    }
}
