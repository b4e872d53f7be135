//! The wires between servers that run the shipped code. Each call and each answer takes its time,
//! in order. A call over a cut wire waits, and connections break.

use bytes::Bytes;
use parking_lot::Mutex;
use raft::{AnswerFuture, Conversation, GroupHost, Life, Wire};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;
use wire::{Version, Versions};

/// Time after which a call over a cut wire is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// All wires, and the members at their ends.
pub(super) struct Net(pub Mutex<NetState>);

pub(super) struct NetState {
    pub chance: ChaCha12Rng,
    /// By the two servers: the least delay, ms, and whether the wire is cut.
    pub wires: Vec<Vec<(u64, bool)>>,
    /// One call in so many is lost with its connection; none if zero.
    pub loses: u64,
    /// By server: the member that is up.
    pub members: BTreeMap<usize, Member>,
}

#[derive(Clone)]
pub(super) struct Member {
    /// The address at which it listens.
    pub address: String,
    pub life: Arc<Life>,
    pub host: GroupHost,
}

impl Net {
    /// Waits until a message has got from one server to another.
    async fn carries(&self, from: usize, to: usize) -> io::Result<()> {
        loop {
            let (ms, cut, lost) = {
                let NetState { chance, wires, loses, .. } = &mut *self.0.lock();
                let (delay, cut) = wires[from][to];
                let lost = *loses > 0 && chance.next_u64().is_multiple_of(*loses);
                (delay + chance.next_u64() % (delay + 1), cut, lost)
            };
            sleep(Duration::from_millis(ms)).await;
            if lost {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if !cut {
                return Ok(());
            }
            sleep(AGAIN).await;
        }
    }

    async fn calls(
        &self,
        from: usize,
        to: usize,
        address: Option<&String>,
        heard_by: &mut Option<Listener>,
        call: Bytes,
    ) -> io::Result<Bytes> {
        let held = heard_by.take();
        let there = || {
            let there = self.0.lock().members.get(&to).cloned();
            there.filter(|there| address == Some(&there.address)).ok_or(io::ErrorKind::ConnectionRefused)
        };
        there()?;
        self.carries(from, to).await?;
        let (tell, told) = oneshot::channel();
        let Member { life, host, .. } = there()?;
        let held = held.filter(|listener| Arc::ptr_eq(&listener.life, &life));
        let mut conversation = held.map_or_else(|| host.listen(), |listener| listener.conversation);
        life.spawn(async move {
            let answer = conversation.hear(&call).await;
            // The asker may not wait any more.
            let _ = tell.send((answer, conversation));
        });
        let (answer, conversation) = told.await.map_err(|_| io::ErrorKind::ConnectionReset)?;
        self.carries(to, from).await?;
        *heard_by = Some(Listener { life, conversation });
        Ok(answer)
    }
}

/// The wires from one server.
pub(super) struct Wires {
    pub from: usize,
    pub net: Arc<Net>,
}

struct Way {
    from: usize,
    to: usize,
    net: Arc<Net>,
    /// The other end of the connection, if it is whole.
    heard_by: Option<Listener>,
}

/// The listening end, and the life in which it listens.
struct Listener {
    life: Arc<Life>,
    conversation: Conversation,
}

impl raft::Wires for Wires {
    fn speaks(&self, _: u64) -> Option<Version> {
        Some(Versions::KNOWN.newest)
    }

    fn to(&self, machine: u64) -> Box<dyn Wire> {
        Box::new(Way { from: self.from, to: machine as usize - 1, net: self.net.clone(), heard_by: None })
    }
}

impl Wire for Way {
    fn stay(&mut self) {}

    fn ask<'a>(&'a mut self, addresses: &'a [String], call: Bytes) -> AnswerFuture<'a> {
        let address = addresses.first();
        Box::pin(self.net.calls(self.from, self.to, address, &mut self.heard_by, call))
    }
}
