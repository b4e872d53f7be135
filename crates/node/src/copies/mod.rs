//! A client's way to shares: stored at several hosts, whole or in fragments, and read at the
//! nearest that have them.

mod coded;
mod reading;
mod storing;

use crate::hosts::HostList;
use crate::net::{Pending, Unanswered};
use crate::peers::Peers;
use crate::share_host::ShareHost;
use bytes::Bytes;
use client::Upload;
use coded::PutTogether;
use lease::SessionId;
use namespace::{Error, ShareId, Spread};
use parking_lot::{Mutex, RwLock};
use shares::NewShare;
use std::sync::Arc;
use std::time::Duration;
use wire::{MachineId, ShareCall};

/// What became of an upload: its number, and the hashes of its pieces.
pub(crate) type StoredUpload = (u64, Result<Vec<[u8; 32]>, Error>);

/// A part of a share: which, from where, how many bytes.
pub(crate) type ShareRange = (ShareId, u32, u32);

/// How long a host may say nothing at all before another one is asked, or is enough; twice as long
/// each time that all were, up to the second.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(750), Duration::from_secs(6));
/// Before hosts are asked once more, none of which could be reached.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Copies {
    peers: Arc<Peers>,
    /// This machine's own share server, while it has one.
    here: RwLock<Option<Arc<ShareHost>>>,
    put_together: Mutex<PutTogether>,
}

impl Copies {
    /// Of the machine whose connections are `peers`.
    pub(crate) fn new(peers: Arc<Peers>) -> Copies {
        Copies { peers, here: RwLock::default(), put_together: Mutex::default() }
    }

    /// From now on this is the machine's own share server, or there is none.
    pub(crate) fn set_here(&self, share_host: Option<Arc<ShareHost>>) {
        *self.here.write() = share_host;
    }

    fn here(&self) -> Option<Arc<ShareHost>> {
        self.here.read().clone()
    }

    /// The share server, if it is this machine's and there is no other.
    fn alone(&self) -> Option<Arc<ShareHost>> {
        self.here().filter(|share_host| share_host.is_alone())
    }

    /// Whether all hosts of these are this very machine, so that a front door's thread may wait for
    /// what is read.
    pub(crate) fn are_here(&self, mut shares: impl Iterator<Item = ShareId>) -> bool {
        if self.here.read().is_none() {
            return false;
        }
        let (hosts, me) = (self.peers.hosts().now(), self.peers.me());
        let is_here = |share: ShareId| share.kept_as().all(|kept| hosts.placed(&kept).contains(&me));
        hosts.is_only(me) || shares.all(is_here)
    }

    /// Seals uploads here, and has them stored together. Blocks until they are durable at all hosts
    /// that are to have them, or at enough.
    pub(crate) fn store(&self, session: SessionId, uploads: Vec<Upload>) -> Vec<StoredUpload> {
        let mut shares = Vec::with_capacity(uploads.len());
        let mut sealed = Vec::with_capacity(uploads.len());
        for Upload { upload, share, key, pieces } in uploads {
            let (bytes, hashes) =
                content::seal_share(&key, pieces.iter().map(|(nonce, plain)| (*nonce, plain)));
            shares.push((share, Bytes::from(bytes)));
            sealed.push((upload, hashes));
        }
        let results = self.store_sealed(session, shares);
        let all = sealed.into_iter().zip(results);
        all.map(|((upload, hashes), result)| (upload, result.map(|()| hashes))).collect()
    }

    /// Has shares stored that are sealed. As [`Copies::store`].
    pub(crate) fn store_sealed(
        &self,
        session: SessionId,
        shares: Vec<(ShareId, Bytes)>,
    ) -> Vec<Result<(), Error>> {
        match self.alone() {
            Some(share_host) if shares.iter().all(|(share, _)| is_whole(share)) => {
                store_here(&share_host, session, shares)
            }
            _ => self.store_anywhere(session, shares),
        }
    }

    /// Reads parts of shares, together, and `open`s them, which fails for bytes that are not what
    /// they were. Blocks.
    pub(crate) fn read<T>(
        &self,
        parts: &[ShareRange],
        open: impl Fn(usize, Vec<u8>) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        if parts.iter().any(|(share, ..)| !is_whole(share)) {
            return self.read_some_coded(parts, open);
        }
        self.read_whole(parts, open)
    }

    /// Of shares that are kept whole.
    fn read_whole<T>(
        &self,
        parts: &[ShareRange],
        open: impl Fn(usize, Vec<u8>) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        if let Some(share_host) = self.alone() {
            let parts = parts.iter().enumerate();
            let read = |(index, &(share, at, length)): (usize, &ShareRange)| {
                share_host.read(share, at, length).and_then(|bytes| open(index, bytes))
            };
            return parts.map(read).collect();
        }
        self.read_copies(parts, open)
    }

    /// Lets go what was stored and is not needed. What cannot be let go now is swept when this
    /// machine's next session begins.
    pub(crate) fn let_go(&self, shares: &[ShareId]) {
        let hosts = self.peers.hosts().now();
        let here = self.here();
        let shares: Vec<ShareId> = shares.iter().flat_map(ShareId::kept_as).collect();
        for host in hosts.all() {
            match &here {
                Some(share_host) if host.machine == self.peers.me() => {
                    share_host.shares().let_go(host.machine, &shares);
                }
                _ => {
                    drop(self.peers.call(&hosts, host.machine, ShareCall::LetGo(shares.clone()), Vec::new()))
                }
            }
        }
    }

    fn ask(&self, hosts: &HostList, machine: MachineId, (share, at, length): ShareRange) -> Asked {
        match self.here() {
            Some(share_host) if machine == self.peers.me() => {
                Asked::Answered(share_host.read(share, at, length))
            }
            _ => {
                let read = ShareCall::Read { share, at, length };
                self.peers.call(hosts, machine, read, Vec::new()).map_or(Asked::Unreachable, Asked::Pending)
            }
        }
    }

    fn doubt(&self, hosts: &HostList, machine: MachineId, share: ShareId) {
        tracing::error!(?share, machine = machine.0, "a piece of content does not match its hash");
        match self.here() {
            Some(share_host) if machine == self.peers.me() => share_host.doubt(share),
            _ => drop(self.peers.call(hosts, machine, ShareCall::Doubt(share), Vec::new())),
        }
    }
}

/// A part that a host was asked for.
enum Asked {
    Answered(Result<Vec<u8>, Error>),
    Pending(Pending),
    Unreachable,
}

impl Asked {
    fn wait(self, patience: Option<Duration>) -> Result<Result<Vec<u8>, Error>, Unanswered> {
        match self {
            Asked::Answered(answer) => Ok(answer),
            Asked::Unreachable => Err(Unanswered::Unreachable),
            Asked::Pending(pending) => {
                let (results, body) = pending.wait(patience)?;
                let result = results.into_iter().next().unwrap_or(Err(Error::Damaged));
                Ok(result.map(|()| body.to_vec()))
            }
        }
    }
}

/// Where there is nobody else to ask, there is nothing but to wait.
fn patience(hosts: &HostList, patience: Duration) -> Option<Duration> {
    (hosts.all().len() > 1).then_some(patience)
}

/// It is kept under its own name, and not in fragments.
fn is_whole(share: &ShareId) -> bool {
    !matches!(share.spread(), Spread::Code { .. })
}

fn store_here(
    share_host: &ShareHost,
    session: SessionId,
    shares: Vec<(ShareId, Bytes)>,
) -> Vec<Result<(), Error>> {
    let shares = shares.into_iter().map(|(id, bytes)| NewShare { id, parts: vec![bytes] });
    share_host.shares().store(share_host.peers().me(), session, shares.collect())
}
