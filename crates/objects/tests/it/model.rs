//! Random opens by several clients, checked against a simple model of share modes, deletion and
//! leases.

use crate::bed::{ALL, Bed, DELETE, READ, Sink, WRITE, leased, request, state};
use lease::caching::{AccessMask, CachingState, ClientGuid, LeaseHolder, Sharing};
use objects::{CreateDisposition, Deletion, Open, OpenRequest, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// A generator of numbers (xorshift), so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct Held {
    open: Arc<Open>,
    name: usize,
    access: u32,
    sharing: u32,
}

const NAMES: [&str; 3] = ["One", "TWO", "three"];

/// Whether one handle's rights are shared by the other's sharing.
fn excludes(access: u32, sharing: u32) -> bool {
    let kinds = [(READ & 0x21, 1), (0x6, 2), (DELETE, 4)];
    kinds.into_iter().any(|(rights, shared)| access & rights != 0 && sharing & shared == 0)
}

fn conflict(one: (u32, u32), other: (u32, u32)) -> bool {
    let has = |access: u32| access & (0x27 | DELETE) != 0;
    has(one.0) && has(other.0) && (excludes(one.0, other.1) || excludes(other.0, one.1))
}

/// Clients acknowledge what they are told, and close nothing.
async fn acknowledge(store: &Arc<Store>, sinks: &[Arc<Sink>]) {
    loop {
        for sink in sinks {
            let breaks: Vec<_> = sink.0.lock().drain(..).collect();
            for broken in breaks.into_iter().filter(|broken| broken.acknowledge) {
                let LeaseHolder::Lease(lease) = broken.holder else { unreachable!() };
                drop(store.acknowledge(lease.client, lease.key, broken.to));
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn opens_are_as_a_model_has_them() {
    let bed = Bed::new().await;
    let sinks = [bed.client(1), bed.client(2), bed.client(3)];
    let store = Arc::clone(&bed.store);
    let acknowledges = tokio::spawn(async move { acknowledge(&store, &sinks).await });
    for seed in 1..=4 {
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15 ^ (seed << 20));
        let mut held: Vec<Held> = Vec::new();
        let mut deleting = [false; NAMES.len()];
        let mut exists = [false; NAMES.len()];
        for _ in 0..300 {
            if numbers.below(3) == 0 && !held.is_empty() {
                let Held { open, name, access, .. } = held.remove(numbers.below(held.len() as u64) as usize);
                if numbers.below(3) == 0 {
                    let delete = Deletion { delete: true, ..Deletion::default() };
                    let set = open.set_deletion(delete).await;
                    assert_eq!(set.is_ok(), access & DELETE != 0, "{set:?}");
                    deleting[name] |= set.is_ok();
                }
                open.close(false).await.unwrap();
                if deleting[name] && held.iter().all(|other| other.name != name) {
                    (deleting[name], exists[name]) = (false, false);
                }
                continue;
            }
            let name = numbers.below(3) as usize;
            let access = [READ, WRITE, ALL, DELETE, 0x80][numbers.below(5) as usize];
            let sharing = numbers.below(8) as u32;
            let disposition = [CreateDisposition::Open, CreateDisposition::OpenIf][numbers.below(2) as usize];
            let request = OpenRequest { disposition, ..request(access, Sharing(sharing)) };
            let client = numbers.below(3) as u8 + 1;
            let asks = [CachingState::RWH, CachingState::RH, CachingState::NONE][numbers.below(3) as usize];
            // A client has a key for each file.
            let key_of = client + 3 * name as u8;
            let mut request = leased(key_of, asks, request);
            request.client = ClientGuid([client; 16]);
            let shown = NAMES[name].to_lowercase();
            let task = bed.opens(if numbers.below(2) == 0 { NAMES[name] } else { &shown }, request);
            let opened = task.await.unwrap();
            let others = held.iter().filter(|other| other.name == name);
            let expected = if deleting[name] {
                Some(StoreError::DeletePending)
            } else if !exists[name] && disposition == CreateDisposition::Open {
                Some(StoreError::NotFound)
            } else if others.into_iter().any(|it| conflict((access, sharing), (it.access, it.sharing))) {
                Some(StoreError::SharingViolation)
            } else {
                None
            };
            assert_eq!(opened.as_ref().err().copied(), expected, "seed {seed}, {access:x} {sharing}");
            if let Ok(opened) = opened {
                exists[name] = true;
                assert_eq!(opened.open.access(), AccessMask(access));
                let writers =
                    held.iter().filter(|it| it.name == name && it.open.client() != opened.open.client());
                let is_stat = |it: &Held| it.access == 0x80;
                let writes = state(opened.granted).has(CachingState::WRITE);
                assert!(!writes || writers.into_iter().all(is_stat), "only one writes behind a cache");
                held.push(Held { open: opened.open, name, access, sharing });
            }
        }
        for Held { open, .. } in held {
            open.close(false).await.unwrap();
        }
        for name in NAMES {
            let gone = OpenRequest { sharing: Sharing::ALL, ..request(DELETE, Sharing::ALL) };
            if let Ok(opened) = bed.open(name, gone).await {
                let delete = Deletion { delete: true, ..Deletion::default() };
                opened.open.set_deletion(delete).await.unwrap();
                opened.open.close(false).await.unwrap();
            }
        }
        assert_eq!(bed.store.counts(), (0, 0, 0));
    }
    acknowledges.abort();
}
