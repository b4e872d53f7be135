//! Combines commit messages with entries: a message without entries waits a little for the next
//! entries.
//!
//! If one entry follows another, each would otherwise cost two messages to every member. The second
//! would go just as the leader is about to answer the client that waits for the first.

use crate::types::Types;
use futures_util::{Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::raft::AppendEntriesRequest;
use std::time::Duration;

/// The longest wait. A follower learns that much later what is committed.
const LINGER: Duration = Duration::from_millis(5);

/// Returns the requests of `input`, without those that have no entries and are followed by another
/// in time.
pub(super) fn together<S>(input: S) -> impl Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin
where
    S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
{
    Box::pin(stream::unfold(input.fuse(), |mut input| async move {
        let mut request = input.next().await?;
        while request.entries.is_empty()
            && let Ok(Some(next)) = tokio::time::timeout(LINGER, input.next()).await
        {
            request = next;
        }
        Some((request, input))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{GroupEntry, LogId, Vote};
    use openraft::entry::RaftEntry;
    use openraft::vote::RaftLeaderId;

    fn request(entries: u64, committed: u64) -> AppendEntriesRequest<Types> {
        let vote = Vote::new_committed(1, 1);
        let at = |index| LogId::new(RaftLeaderId::to_committed(vote.leader_id()), index);
        AppendEntriesRequest {
            vote,
            prev_log_id: Some(at(committed)),
            entries: (0..entries).map(|n| GroupEntry::new_blank(at(committed + 1 + n))).collect(),
            leader_commit: Some(at(committed)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_entries_waits_for_those_that_come_soon() {
        let later = |(ms, request): (u64, _)| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            request
        };
        let all = [(0, (1, 1)), (0, (0, 2)), (1, (2, 2)), (1, (0, 4)), (90, (1, 4)), (0, (0, 5))];
        let all = stream::iter(all).then(later).map(|(entries, committed)| request(entries, committed));
        let said = together(Box::pin(all));
        let said: Vec<(usize, u64)> = said
            .map(|said| (said.entries.len(), said.leader_commit.map_or(0, |at| at.index)))
            .collect()
            .await;
        assert_eq!(said, [(1, 1), (2, 2), (0, 4), (1, 4), (0, 5)]);
    }
}
