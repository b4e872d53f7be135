//! Measurements of shares with their files: storing, discovery, and the scrub.

use super::{SharesRow, disk_syncs, median, server, together};
use crate::bulk;
use bytes::Bytes;
use shares::{AccountId, NewShare, ShareId, ShareServer, sample};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

const WRITERS: usize = 16;
const SMALL_BYTES: usize = 4096;
const LARGE_BYTES: usize = 1 << 20;
/// MiB that the scrub reads, and then the disk by itself: more than a virtual disk serves in its
/// first burst.
const LARGE_SHARES: u64 = 512;
/// Shares stored at a time.
const BATCH: u64 = 16;
/// Times that the scrub is compared with the disk.
const ROUNDS: usize = 5;

pub(super) fn storing(dir: &Path, time: Duration, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharesRow>> {
    let syncs = disk_syncs(dir, time, tell)?;
    let dir = dir.join("server");
    tell("storing small shares");
    let store = ShareServer::open(&dir, server()).map_err(io::Error::other)?;
    let body = bytes_of(SMALL_BYTES);
    let stored = together(WRITERS, time, |n| put(&store, n..n + 1, &body))?;
    let before = store.stored().map_err(io::Error::other)?;
    drop(store);
    tell("finding them again");
    for file in ["leases.sqlite", "leases.sqlite-wal", "leases.sqlite-shm"] {
        match std::fs::remove_file(dir.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut settings = server();
    // Discovery begins by itself; the rest of it runs here, without pauses.
    settings.pace.shares_per_second = 1;
    let began = Instant::now();
    let store = ShareServer::open(&dir, settings).map_err(io::Error::other)?;
    store.finish_discovery().map_err(io::Error::other)?;
    let took = began.elapsed();
    let found = store.stored().map_err(io::Error::other)?;
    if found != before {
        return Err(io::Error::other(format!("of {before:?} discovery found {found:?}")));
    }
    let discovery = found.shares as f64 / took.as_secs_f64();
    Ok(vec![
        SharesRow::of("the disk: 4 KiB and fdatasync, one after the other", syncs, "/s"),
        SharesRow::of(format!("durable shares of 4 KiB, {WRITERS} writers"), stored, "/s")
            .beside(syncs)
            .at_least(5000.0),
        SharesRow::of(format!("{} shares found again without a database", found.shares), discovery, "/s")
            .at_least(10_000.0),
    ])
}

pub(super) fn scrub(dir: &Path, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharesRow>> {
    let server = ShareServer::open(&dir.join("server"), server()).map_err(io::Error::other)?;
    let body = bytes_of(LARGE_BYTES);
    let rate = |began: Instant| LARGE_SHARES as f64 / began.elapsed().as_secs_f64();
    tell("storing large shares");
    let began = Instant::now();
    for first in (0..LARGE_SHARES).step_by(BATCH as usize) {
        put(&server, first..first + BATCH, &body)?;
    }
    let stored = rate(began);
    let plain = dir.join("plain");
    let began = Instant::now();
    bulk::write(&plain, LARGE_SHARES << 20)?;
    let written = rate(began);
    let (mut disk, mut scrub) = (Vec::new(), Vec::new());
    // In turns: other work of this machine falls on both.
    for round in 0..ROUNDS {
        tell(&format!("reading, round {}", round + 1));
        let file = std::fs::File::open(&plain)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let began = Instant::now();
        bulk::read(&plain)?;
        disk.push(rate(began));
        let began = Instant::now();
        server.scrub_now(|_| ControlFlow::Continue(())).map_err(io::Error::other)?;
        scrub.push(rate(began));
    }
    if server.damaged().map_err(io::Error::other)? > 0 {
        return Err(io::Error::other("the scrub says that what was just stored is damaged"));
    }
    let name = format!("scrub of {LARGE_SHARES} shares of 1 MiB; a long read");
    Ok(vec![
        SharesRow::of(format!("durable shares of 1 MiB, {BATCH} at a time; a long write"), stored, "MiB/s")
            .beside(written),
        SharesRow::of(name, median(scrub), "MiB/s").beside(median(disk)).disk_bar(0.8),
    ])
}

fn put(server: &ShareServer, numbers: std::ops::Range<u64>, body: &Bytes) -> io::Result<()> {
    let share = |n| NewShare { id: spread(n), parts: vec![body.clone()] };
    server.store_many(numbers.map(share).collect(), AccountId::ANONYMOUS, None).map_err(io::Error::other)
}

/// Neighbouring numbers go to different directories, as shares of random names do.
fn spread(n: u64) -> ShareId {
    sample::share(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), u64::MAX)
}

/// The bytes are neither constant nor regular, so no layer can cut its work short.
fn bytes_of(length: usize) -> Bytes {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
