//! The recalls of one turn. A turn may take in a log of thousands of entries, each of which asks
//! the same session for a lease: that session gets one message.

use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Kind, Released, SessionId};
use std::collections::BTreeMap;
use wire::ToClient;

/// Leases that one recall message names, and wishes.
const RECALLED_TOGETHER: usize = 8192;

/// Recalls that are not sent yet. They go before any other message to the same session, so the
/// session's messages keep their order.
#[derive(Debug, Default)]
pub(crate) struct TurnRecalls(BTreeMap<SessionId, Recalled>);

#[derive(Debug, Default)]
struct Recalled {
    /// The leases, and the kinds that the holder may keep. A later recall of a lease includes the
    /// earlier one.
    leases: BTreeMap<(FileId, Field), Option<Kind>>,
    /// Wishes ahead of a walk.
    ahead: Vec<Released>,
}

impl Transaction<'_> {
    /// Tells a holder to release `leases`, and wishes for those that are `ahead`.
    pub fn recall_from(
        &mut self,
        holder: SessionId,
        leases: impl IntoIterator<Item = Released>,
        ahead: impl IntoIterator<Item = Released>,
    ) {
        let recalled = self.recalls.0.entry(holder).or_default();
        let lease = |Released { file, field, keep }| ((file, field), keep);
        recalled.leases.extend(leases.into_iter().map(lease));
        recalled.ahead.extend(ahead);
    }

    /// Sends the recalls for all sessions.
    pub fn send_recalls(&mut self) {
        while let Some(holder) = self.recalls.0.keys().next().copied() {
            self.send_recalls_to(holder);
        }
    }

    /// Sends the recalls for this session, in messages of bounded length.
    pub fn send_recalls_to(&mut self, holder: SessionId) {
        let Some(Recalled { leases, ahead }) = self.recalls.0.remove(&holder) else { return };
        let released = |((file, field), keep)| Released { file, field, keep };
        let leases: Vec<Released> = leases.into_iter().map(released).collect();
        let (mut leases, mut ahead) = (leases.chunks(RECALLED_TOGETHER), ahead.chunks(RECALLED_TOGETHER));
        while leases.len() + ahead.len() > 0 {
            let [leases, ahead] =
                [&mut leases, &mut ahead].map(|chunks| chunks.next().unwrap_or(&[]).to_vec());
            self.send(holder, ToClient::Recall { leases, ahead });
        }
    }
}
