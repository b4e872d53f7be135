//! Shares in fragments. A read asks the fragments that have the range. If one of these is
//! unavailable, the share is reassembled from any sufficient set of fragments.

use super::{Asked, Copies, PATIENCE_MAX, PATIENCE_MIN, PAUSE, ShareRange, is_whole, patience};
use crate::fragments::{Scattered, put_together};
use crate::hosts::HostList;
use bytes::Bytes;
use namespace::{Error, ShareId, Spread};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::MachineId;

/// The number of reassembled shares kept: a sequential reader wants the next piece of the same one.
const AT_HAND: usize = 4;

/// The time in which hosts adopt what a file refers to. After it, what they have is no copy.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);

/// The last reassembled shares, the latest last.
#[derive(Default)]
pub(super) struct PutTogether(VecDeque<(ShareId, Bytes)>);

/// A request to a fragment's host.
struct Asking {
    fragment: ShareId,
    machine: MachineId,
    asked: Asked,
}

impl Copies {
    /// As [`Copies::read`].
    pub(super) fn read_some_coded<T>(
        &self,
        parts: &[ShareRange],
        open: impl Fn(usize, Vec<u8>) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        let hosts = self.peers.hosts().now();
        let asked: Vec<_> = parts.iter().map(|part| self.ask_fragments(&hosts, *part)).collect();
        let of_copies = |index: &usize| parts.get(*index).is_some_and(|(share, ..)| is_whole(share));
        let whole: Vec<usize> = (0..parts.len()).filter(of_copies).collect();
        let whole_parts: Vec<ShareRange> =
            whole.iter().filter_map(|index| parts.get(*index).copied()).collect();
        let place = |index: usize| whole.get(index).copied().unwrap_or(index);
        let mut read = self.read_whole(&whole_parts, |index, bytes| open(place(index), bytes)).into_iter();
        let each = parts.iter().zip(asked).enumerate().map(|(index, (part, asked))| {
            if of_copies(&index) {
                return read.next().unwrap_or(Err(Error::Damaged));
            }
            if let Some(opened) = self.hear(&hosts, asked, |bytes| open(index, bytes)) {
                return Ok(opened);
            }
            let (share, at, length) = *part;
            let share = self.put_together(share)?;
            let bytes = share.get(at as usize..).and_then(|rest| rest.get(..length as usize));
            open(index, bytes.ok_or(Error::Damaged)?.to_vec())
        });
        each.collect()
    }

    /// Asks the hosts that should have the range. A share kept whole gives no requests.
    fn ask_fragments(&self, hosts: &HostList, (share, at, length): ShareRange) -> Vec<Asking> {
        let Spread::Code { data, .. } = share.spread() else { return Vec::new() };
        let ask = |segment: content::Segment| {
            let fragment = share.fragment(segment.fragment);
            let machine = *hosts.placed(&fragment).first()?;
            let asked = self.ask(hosts, machine, (fragment, segment.at, segment.length));
            Some(Asking { fragment, machine, asked })
        };
        let asked: Option<Vec<Asking>> = content::segments(data, at, length).into_iter().map(ask).collect();
        asked.unwrap_or_default()
    }

    /// Joins the answers, if all arrive and the result is sound. Otherwise the hosts of the
    /// fragments are told to check them.
    fn hear<T>(
        &self,
        hosts: &HostList,
        asked: Vec<Asking>,
        open: impl Fn(Vec<u8>) -> Result<T, Error>,
    ) -> Option<T> {
        let (mut bytes, mut heard) = (Vec::new(), Vec::with_capacity(asked.len()));
        for Asking { fragment, machine, asked } in asked {
            bytes.extend(asked.wait(patience(hosts, PATIENCE_MIN)).ok()?.ok()?);
            heard.push((fragment, machine));
        }
        if heard.is_empty() {
            return None;
        }
        let opened = open(bytes).ok();
        if opened.is_none() {
            heard.iter().for_each(|(fragment, machine)| self.doubt(hosts, *machine, *fragment));
        }
        opened
    }

    /// Reassembles a share from any of its fragments. Blocks until enough of the fragments that
    /// exist are available.
    fn put_together(&self, share: ShareId) -> Result<Bytes, Error> {
        if let Some((_, bytes)) = self.put_together.lock().0.iter().find(|(known, _)| *known == share) {
            return Ok(bytes.clone());
        }
        let (begun, mut patience) = (Instant::now(), PATIENCE_MIN);
        loop {
            let hosts = self.peers.hosts().now();
            match put_together(&self.peers, self.here().as_deref(), &hosts, share, patience) {
                Ok(bytes) => {
                    let last = &mut self.put_together.lock().0;
                    last.push_back((share, bytes.clone()));
                    if last.len() > AT_HAND {
                        last.pop_front();
                    }
                    return Ok(bytes);
                }
                Err(Scattered::Lost) => return Err(Error::Damaged),
                Err(Scattered::Unadopted) if begun.elapsed() > ADOPTED_WITHIN => return Err(Error::Damaged),
                Err(Scattered::Unreachable | Scattered::Unadopted) if self.peers.is_stopping() => {
                    return Err(Error::CutOff);
                }
                Err(Scattered::Unreachable | Scattered::Unadopted) => {
                    std::thread::sleep(PAUSE);
                    patience = (patience * 2).min(PATIENCE_MAX);
                }
            }
        }
    }
}
