//! openraft as this group uses it: the types, and the network of a group that has one voter.

use super::batch::Batch;
use super::machine::StateMachine;
use crate::store::RowView;
use openraft::BasicNode;
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, v2::RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias;
use serde::{Deserialize, Serialize};
use std::future::Future;

openraft::declare_raft_types!(
    /// What the group's log holds.
    pub Types:
        D = Batch,
        R = Applied,
);

pub(super) type Entry = alias::EntryOf<Types>;
pub(super) type LogId = alias::LogIdOf<Types>;
pub(super) type Vote = alias::VoteOf<Types>;
pub(super) type StoredMembership = alias::StoredMembershipOf<Types>;
pub(super) type SnapshotMeta = alias::SnapshotMetaOf<Types>;
pub(super) type Snapshot = alias::SnapshotOf<Types, RowView>;
pub(super) type Raft = openraft::Raft<Types, StateMachine>;

/// Answers a proposal: it is applied. What comes of it goes to `deliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied;

impl std::fmt::Display for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("applied")
    }
}

/// Reaches nobody: the group has one voter, so a peer that is asked for does not exist yet.
pub(super) struct Alone;

#[derive(Debug, thiserror::Error)]
#[error("this group has one voter")]
struct NoPeers;

fn unreachable() -> Unreachable<Types> {
    Unreachable::new(&NoPeers)
}

impl RaftNetworkFactory<Types> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _target: u64, _node: &BasicNode) -> Alone {
        Alone
    }
}

impl RaftNetworkV2<Types> for Alone {
    type SnapshotData = RowView;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(unreachable()))
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(unreachable()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(StreamingError::Unreachable(unreachable()))
    }
}
