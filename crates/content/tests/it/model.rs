//! File content is checked against a plain vector of bytes, through flushes, folds and crashes, and
//! uploads that complete in any order or fail.

use std::collections::VecDeque;

use crate::support::{Server, Shares, at, read};
use bytes::Bytes;
use content::{
    Done, FileContent, Flush, LAZY_BYTES_MAX, Publish, SYNCED_BYTES_MAX, URGENT_BYTES_MAX, UploadPlan,
};
use namespace::ContentHead;
use proptest::prelude::*;
use proptest::sample::select;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Append(usize),
    Truncate(u64),
    Punch(u64, u64),
    Zero(u64, u64, bool),
    Touch,
    Read(u64, u32),
    Flush {
        inline_max: u64,
    },
    Fold,
    /// The end of one of the uploads under way.
    Stored(usize),
    Failed(usize),
    /// The server applies that many of the logged publications.
    Apply(usize),
    /// Publications that the server has not applied are lost. The file is opened again, with that
    /// many known extents.
    Crash(usize),
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..6_000u64, 4 => 0..300_000u64, 1 => 0..2_500_000u64, 1 => Just(131_072u64), 1 => Just(1 << 20)]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1..5_000usize, 3 => 1..80_000usize, 1 => 1..1_300_000usize, 1 => Just(4096usize)]
}

fn step() -> impl Strategy<Value = Step> {
    let wide = prop_oneof![1..5_000u64, 1..400_000u64];
    prop_oneof![
        8 => (offset(), length()).prop_map(|(offset, length)| Step::Write(offset, length)),
        4 => length().prop_map(Step::Append),
        2 => offset().prop_map(Step::Truncate),
        1 => Just(Step::Truncate(0)),
        2 => (offset(), wide.clone()).prop_map(|(offset, length)| Step::Punch(offset, length)),
        2 => (offset(), wide, any::<bool>()).prop_map(|(offset, length, grow)| Step::Zero(offset, length, grow)),
        1 => Just(Step::Touch),
        4 => (offset(), 1..300_000u32).prop_map(|(offset, length)| Step::Read(offset, length)),
        8 => select(vec![LAZY_BYTES_MAX, URGENT_BYTES_MAX, SYNCED_BYTES_MAX]).prop_map(|inline_max| Step::Flush { inline_max }),
        3 => Just(Step::Fold),
        6 => any::<usize>().prop_map(Step::Stored),
        1 => any::<usize>().prop_map(Step::Failed),
        3 => (1..4usize).prop_map(Step::Apply),
        1 => (0..4usize).prop_map(Step::Crash),
    ]
}

struct World {
    content: FileContent,
    model: Vec<u8>,
    mtime: i64,
    /// The model as of each flush since the content was opened. The first entry is as opened.
    flushed: Vec<(Vec<u8>, i64)>,
    /// The last of them that the server has when the whole log is applied.
    landed: usize,
    uploads: Vec<UploadPlan>,
    log: VecDeque<Publish>,
    server: Server,
    /// The server when the whole log is applied.
    ahead: Server,
    shares: Shares,
    rng: ChaCha8Rng,
    fill: u8,
    /// No extent was ever unknown, so estimates are exact.
    exact: bool,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            content: FileContent::empty(ContentHead::default()),
            model: Vec::new(),
            mtime: 0,
            flushed: vec![(Vec::new(), 0)],
            landed: 0,
            uploads: Vec::new(),
            log: VecDeque::new(),
            server: Server::default(),
            ahead: Server::default(),
            shares: Shares::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            fill: 0,
            exact: true,
        }
    }

    fn write(&mut self, offset: u64, length: usize) {
        self.fill = self.fill.wrapping_add(1);
        let data: Vec<u8> =
            (0..length).map(|n| self.fill.wrapping_mul(31).wrapping_add(n as u8) | 1).collect();
        let from = offset as usize;
        self.model.resize(self.model.len().max(from + length), 0);
        self.model[from..from + length].copy_from_slice(&data);
        self.mtime += 1;
        self.content.write(offset, Bytes::from(data), at(self.mtime));
    }

    fn zero(&mut self, offset: u64, length: u64, grow: bool) {
        let end = (offset + length) as usize;
        if grow {
            self.model.resize(self.model.len().max(end), 0);
        }
        let end = end.min(self.model.len());
        self.model[end.min(offset as usize)..end].fill(0);
        self.mtime += 1;
        match grow {
            true => self.content.zero(offset, length, true, at(self.mtime)),
            false => self.content.punch(offset, length, at(self.mtime)),
        }
    }

    fn flush(&mut self, inline_max: u64) {
        let dirty = self.content.is_dirty();
        let held = self.content.held_bytes();
        let flush = self.content.flush(inline_max, &mut self.rng);
        assert_eq!(dirty, flush != Flush::Nothing);
        assert!(!self.content.is_dirty() && self.content.dirty_bytes() == 0);
        if dirty {
            self.flushed.push((self.model.clone(), self.mtime));
        }
        assert_eq!(self.content.barrier() as usize, self.flushed.len() - 1);
        match flush {
            Flush::Nothing => assert_eq!(held, self.content.held_bytes()),
            Flush::Queued => assert!(!self.uploads.is_empty() && !self.content.is_settled()),
            Flush::Publish(publish) => self.publish(vec![publish]),
            Flush::Upload(plans) => self.upload(plans),
        }
    }

    fn upload(&mut self, plans: Vec<UploadPlan>) {
        plans.iter().for_each(|plan| self.shares.plan(plan));
        self.uploads.extend(plans);
    }

    fn publish(&mut self, publishes: Vec<Publish>) {
        for publish in publishes {
            self.ahead.apply(&publish);
            self.shares.published(&publish, self.ahead.head.key);
            self.log.push_back(publish);
            let bytes = self.ahead.bytes(&self.shares);
            let state = |(flushed, _): &(Vec<u8>, i64)| *flushed == bytes;
            let found = self.flushed.iter().skip(self.landed).position(state);
            self.landed +=
                found.expect("a publication makes a state that was flushed, and none older than the last");
        }
        let shown = self.content.head();
        assert_eq!((shown.version, shown.key), (self.ahead.head.version, self.ahead.head.key));
        // The log has all that a barrier reports as passed.
        let bytes = self.ahead.bytes(&self.shares);
        let passed = (0..self.flushed.len()).rev().find(|barrier| self.content.passed(*barrier as u64));
        let same = self.flushed.iter().rposition(|(flushed, _)| *flushed == bytes);
        assert!(same >= passed, "passed {passed:?}, but the log has {same:?}");
    }

    fn finish_upload(&mut self, which: usize, stored: bool) {
        if self.uploads.is_empty() {
            return;
        }
        let plan = self.uploads.remove(which % self.uploads.len());
        if stored {
            let hashes = self.shares.store(&plan);
            let Done { publishes, unused } = self.content.stored(plan.id, hashes);
            self.shares.drop_unused(unused);
            self.publish(publishes);
        } else {
            let unused = self.content.upload_failed(plan.id);
            self.shares.drop_unused(unused);
        }
    }

    fn apply(&mut self, count: usize) {
        for publish in self.log.drain(..count.min(self.log.len())) {
            self.server.apply(&publish);
        }
    }

    fn crash(&mut self, known: usize) {
        self.uploads.clear();
        self.log.clear();
        self.ahead = self.server.clone();
        self.model = self.server.bytes(&self.shares);
        self.mtime = self.server.head.mtime.secs;
        self.flushed = vec![(self.model.clone(), self.mtime)];
        self.landed = 0;
        self.exact &= known >= self.server.rows.len();
        self.content = self.server.open(known);
        self.shares
            .unused
            .extend(self.shares.stored.keys().filter(|share| !self.shares.referenced.contains(share)));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(offset, length) => self.write(offset, length),
            Step::Append(length) => self.write(self.model.len() as u64, length),
            Step::Truncate(size) => {
                self.model.resize(size as usize, 0);
                self.mtime += 1;
                self.content.truncate(size, at(self.mtime));
            }
            Step::Punch(offset, length) => self.zero(offset, length, false),
            Step::Zero(offset, length, grow) => self.zero(offset, length, grow),
            Step::Touch => {
                self.mtime += 1;
                self.content.set_mtime(at(self.mtime), at(self.mtime));
            }
            Step::Read(offset, length) => self.check(offset, length),
            Step::Flush { inline_max } => self.flush(inline_max),
            Step::Fold => {
                let plans = self.content.fold(1 << 20, &mut self.rng);
                self.upload(plans);
            }
            Step::Stored(which) => self.finish_upload(which, true),
            Step::Failed(which) => self.finish_upload(which, false),
            Step::Apply(count) => self.apply(count),
            Step::Crash(known) => self.crash(known),
        }
        assert_eq!(self.content.size() as usize, self.model.len());
        assert_eq!(self.content.head().mtime, at(self.mtime));
    }

    fn check(&mut self, offset: u64, length: u32) {
        let from = self.model.len().min(offset as usize);
        let to = self.model.len().min(from + length as usize);
        let bytes = read(&mut self.content, &self.server, &self.shares, offset, length);
        assert!(bytes == self.model[from..to], "{from}..{to} is not as it was written");
        self.check_seek(from as u64);
    }

    /// All written bytes are odd, so zeros are holes, or bytes that inline content made of holes.
    fn check_seek(&self, offset: u64) {
        let rest = &self.model[offset as usize..];
        if let Ok(data) = self.content.seek(offset, false) {
            let skipped = data.map_or(rest.len(), |data| (data - offset) as usize);
            assert!(rest[..skipped].iter().all(|byte| *byte == 0), "data is never skipped");
        }
        match self.content.seek(offset, true) {
            Ok(Some(hole)) if hole as usize == self.model.len() => {}
            Ok(Some(hole)) => assert_eq!(self.model[hole as usize], 0),
            Ok(None) => assert!(rest.is_empty()),
            Err(_) => {}
        }
    }

    /// Completes all uploads and publications.
    fn settle(&mut self) {
        while !self.content.is_settled() || !self.uploads.is_empty() {
            self.flush(LAZY_BYTES_MAX);
            for _ in 0..self.uploads.len() {
                self.finish_upload(0, true);
            }
        }
        self.apply(usize::MAX);
        assert!(self.content.passed(self.content.barrier()) && self.content.held_bytes() == 0);
        assert!(self.server.bytes(&self.shares) == self.model);
        assert_eq!(self.server.head.mtime, at(self.mtime));
        for offset in (0..self.model.len() as u64).step_by(700_000) {
            self.check(offset, 700_000);
        }
        if self.exact {
            assert_eq!(self.content.head(), self.server.head);
        }
        let kept = |share: &&_| self.shares.referenced.contains(share) != self.shares.unused.contains(share);
        assert_eq!(
            self.shares.stored.keys().filter(kept).count(),
            self.shares.stored.len(),
            "no share is forgotten"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn content_is_what_was_written(seed: u64, steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(seed);
        for step in steps {
            world.step(step);
        }
        world.settle();
    }
}
