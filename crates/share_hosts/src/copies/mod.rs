//! A client's access to shares. They are stored at several hosts, whole or in fragments, and read
//! at the nearest hosts that have them.

mod coded;
mod reading;
mod storing;

use crate::hosts::HostList;
use crate::peers::Peers;
use crate::share_host::ShareHost;
use bytes::Bytes;
use coded::PutTogether;
use content::Upload;
use lease::SessionId;
use namespace::{Error, ShareId, Spread};
use net::{Pending, Unanswered};
use parking_lot::{Mutex, RwLock};
use shares::NewShare;
use std::sync::Arc;
use std::time::Duration;
use wire::{MachineId, ShareCall};

/// The result of an upload: its number, and the hashes of its pieces.
pub type StoredUpload = (u64, Result<Vec<[u8; 32]>, Error>);

/// A range of a share: the share, the offset and the number of bytes.
pub type ShareRange = (ShareId, u32, u32);

/// The time without any message from a host before another host is asked, or before the others
/// suffice. It doubles each time that all hosts were silent.
const PATIENCE_MIN: Duration = Duration::from_millis(750);
/// The most that it becomes.
const PATIENCE_MAX: Duration = Duration::from_secs(6);
/// The pause before hosts are asked once more, when none could be reached.
const PAUSE: Duration = Duration::from_millis(100);

/// A client's access to shares.
pub struct Copies {
    peers: Arc<Peers>,
    /// This machine's own share server, while it has one.
    here: RwLock<Option<Arc<ShareHost>>>,
    put_together: Mutex<PutTogether>,
}

impl Copies {
    /// The access of the machine whose connections are `peers`.
    pub fn new(peers: Arc<Peers>) -> Copies {
        Copies { peers, here: RwLock::default(), put_together: Mutex::default() }
    }

    /// Sets this machine's own share server, or records that there is none.
    pub fn set_here(&self, share_host: Option<Arc<ShareHost>>) {
        *self.here.write() = share_host;
    }

    fn here(&self) -> Option<Arc<ShareHost>> {
        self.here.read().clone()
    }

    /// This machine's share server, if there is no other.
    fn alone(&self) -> Option<Arc<ShareHost>> {
        self.here().filter(|share_host| share_host.is_alone())
    }

    /// Whether this machine is the only host of these shares. A front door's thread may then wait
    /// for the read.
    pub fn are_here(&self, mut shares: impl Iterator<Item = ShareId>) -> bool {
        if self.here.read().is_none() {
            return false;
        }
        let (hosts, me) = (self.peers.hosts().now(), self.peers.me());
        let is_here = |share: ShareId| share.kept_as().all(|kept| hosts.placed(&kept).contains(&me));
        hosts.is_only(me) || shares.all(is_here)
    }

    /// Seals uploads here, and has them stored together. Blocks until they are durable at all hosts
    /// that should have them, or at enough.
    pub fn store(&self, session: SessionId, uploads: Vec<Upload>) -> Vec<StoredUpload> {
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

    /// Has sealed shares stored. Otherwise as [`Copies::store`].
    pub fn store_sealed(&self, session: SessionId, shares: Vec<(ShareId, Bytes)>) -> Vec<Result<(), Error>> {
        match self.alone() {
            Some(share_host) if shares.iter().all(|(share, _)| is_whole(share)) => {
                store_here(&share_host, session, shares)
            }
            _ => self.store_anywhere(session, shares),
        }
    }

    /// Reads ranges of shares together and `open`s them. Opening fails for bytes that differ from
    /// the stored ones. Blocks.
    pub fn read<T>(
        &self,
        parts: &[ShareRange],
        open: impl Fn(usize, Vec<u8>) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        if parts.iter().any(|(share, ..)| !is_whole(share)) {
            return self.read_some_coded(parts, open);
        }
        self.read_whole(parts, open)
    }

    /// Reads ranges of shares that are kept whole.
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

    /// Releases stored shares that are not needed. Shares that cannot be released now are swept
    /// when this machine's next session begins.
    pub fn release(&self, shares: &[ShareId]) {
        let hosts = self.peers.hosts().now();
        let here = self.here();
        let shares: Vec<ShareId> = shares.iter().flat_map(ShareId::kept_as).collect();
        for host in hosts.all() {
            match &here {
                Some(share_host) if host.machine == self.peers.me() => {
                    share_host.shares().release(host.machine, &shares);
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

/// A range that a host was asked for.
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

/// The time to wait for a host. Without another host to ask, there is no limit.
fn patience(hosts: &HostList, patience: Duration) -> Option<Duration> {
    (hosts.all().len() > 1).then_some(patience)
}

/// Whether the share is kept under its own name, not in fragments.
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
