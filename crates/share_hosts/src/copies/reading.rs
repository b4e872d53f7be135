//! Shares that are kept whole: read at the nearest host that has them.

use super::{Copies, PATIENCE_MAX, PATIENCE_MIN, PAUSE, ShareRange, patience};
use crate::hosts::HostList;
use namespace::{Error, ShareId};
use std::time::{Duration, Instant};
use wire::MachineId;

/// The time after which a share is unavailable that some hosts lack and the others do not answer
/// for.
const GRACE: Duration = Duration::from_secs(3);

impl Copies {
    /// As [`Copies::read`].
    pub(super) fn read_copies<T>(
        &self,
        parts: &[ShareRange],
        open: impl Fn(usize, Vec<u8>) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        let begun = Instant::now();
        let mut results: Vec<Option<Result<T, Error>>> = parts.iter().map(|_| None).collect();
        let mut searches: Vec<Search> = parts.iter().map(|_| Search::default()).collect();
        let mut patience = PATIENCE_MIN;
        loop {
            let hosts = self.peers.hosts().now();
            let wait = self::patience(&hosts, patience);
            let mut asked = Vec::new();
            let mut pause = false;
            for (index, ((part, result), search)) in
                parts.iter().zip(&mut results).zip(&mut searches).enumerate()
            {
                if result.is_some() {
                    continue;
                }
                match search.next(self, &hosts, part.0) {
                    Some(machine) => asked.push((index, machine, self.ask(&hosts, machine, *part))),
                    None if !search.unreachable && !hosts.all().is_empty() => {
                        *result = Some(Err(Error::Damaged));
                    }
                    None if search.failed && begun.elapsed() > GRACE => *result = Some(Err(Error::Damaged)),
                    None if self.peers.is_stopping() => *result = Some(Err(Error::CutOff)),
                    None => {
                        pause = true;
                        *search = Search { failed: search.failed, ..Search::default() };
                    }
                }
            }
            if results.iter().all(Option::is_some) {
                return results.into_iter().map(|result| result.unwrap_or(Err(Error::Damaged))).collect();
            }
            for (index, machine, asked) in asked {
                let (Some(result), Some(search), Some(part)) =
                    (results.get_mut(index), searches.get_mut(index), parts.get(index))
                else {
                    continue;
                };
                match asked.wait(wait) {
                    Ok(Ok(bytes)) => match open(index, bytes) {
                        Ok(opened) => *result = Some(Ok(opened)),
                        Err(_) => {
                            search.failed = true;
                            self.doubt(&hosts, machine, part.0);
                        }
                    },
                    Ok(Err(_)) => search.failed = true,
                    Err(_) => search.unreachable = true,
                }
            }
            if pause {
                std::thread::sleep(PAUSE);
                patience = (patience * 2).min(PATIENCE_MAX);
            }
        }
    }

    /// The hosts that may have `share`: this machine first, then the nearest of those that should
    /// have it.
    fn order(&self, hosts: &HostList, share: ShareId) -> Vec<MachineId> {
        let mut all = hosts.having(&share);
        let count = hosts.copies(&share).min(all.len());
        if let Some(placed) = all.get_mut(..count) {
            self.peers.by_distance(placed);
            if let Some(at) = placed.iter().position(|machine| *machine == self.peers.me()) {
                placed.get_mut(..=at).into_iter().for_each(|first| first.rotate_right(1));
            }
        }
        all
    }
}

/// The result of looking for a share.
#[derive(Default)]
struct Search {
    order: Option<std::vec::IntoIter<MachineId>>,
    /// Some host lacks it.
    failed: bool,
    /// Some host could not be asked.
    unreachable: bool,
}

impl Search {
    fn next(&mut self, copies: &Copies, hosts: &HostList, share: ShareId) -> Option<MachineId> {
        self.order.get_or_insert_with(|| copies.order(hosts, share).into_iter()).next()
    }
}
