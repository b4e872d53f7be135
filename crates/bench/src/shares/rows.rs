//! Measurements of the lease database of a large store.

use super::{Settings, SharesRow, disk_syncs, median, server, together};
use crate::cost::peak_bytes;
use shares::{AccountId, ShareServer, sample};
use std::io;
use std::path::Path;
use std::time::Instant;

const READERS: usize = 4;
const WRITERS: usize = 64;
/// Times that a short operation is done.
const TIMES: usize = 1000;
/// Times that the store is opened.
const OPENINGS: usize = 5;
/// A time before which no lease ends.
const FAR: u64 = 1 << 40;

pub(super) fn database(
    dir: &Path,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharesRow>> {
    let shares = settings.shares;
    let syncs = disk_syncs(dir, settings.time, tell)?;
    let dir = dir.join("server");
    tell(&format!("making a database of {shares} shares"));
    sample::fill(&dir, server(), shares).map_err(io::Error::other)?;
    tell("opening it");
    let mut openings = Vec::new();
    for _ in 0..OPENINGS {
        let began = Instant::now();
        let opened = ShareServer::open(&dir, server()).map_err(io::Error::other)?;
        openings.push(began.elapsed().as_secs_f64() * 1e3);
        drop(opened);
    }
    let server = ShareServer::open(&dir, server()).map_err(io::Error::other)?;
    tell("usage");
    let began = Instant::now();
    for _ in 0..TIMES {
        usage(&server, shares)?;
    }
    let usage = began.elapsed().as_secs_f64() * 1e3 / TIMES as f64;
    tell("lookups");
    let lookups = together(READERS, settings.time, |n| lookup(&server, anywhere(n, shares), shares))?;
    tell("renewals");
    let renewals = together(WRITERS, settings.time, |n| renew(&server, n % shares, shares))?;
    let scattered = together(WRITERS, settings.time, |n| renew(&server, anywhere(n, shares), shares))?;
    Ok(vec![
        SharesRow::of("the disk: 4 KiB and fdatasync, one after the other", syncs, "/s"),
        SharesRow::of(format!("opening a store of {shares} shares"), median(openings), "ms").under(50.0),
        SharesRow::of(format!("usage of an account of {shares} shares"), usage, "ms").under(1.0),
        SharesRow::of(format!("lookups, {READERS} readers"), lookups, "/s").at_least(70_000.0),
        SharesRow::of(format!("durable renewals, {WRITERS} writers"), renewals, "/s")
            .beside(syncs)
            .at_least(15_000.0),
        SharesRow::of(format!("the same, of leases anywhere, {WRITERS} writers"), scattered, "/s")
            .beside(syncs),
    ])
}

/// The memory of a server of very many shares. It is opened, asked, and made to go through all of
/// its leases.
pub(super) fn memory(
    dir: &Path,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharesRow>> {
    let shares = settings.memory_shares;
    tell(&format!("making a database of {shares} shares"));
    sample::fill(dir, server(), shares).map_err(io::Error::other)?;
    let peak = peak_bytes(|| {
        tell("opening it, lookups and renewals");
        let server = ShareServer::open(dir, server()).map_err(io::Error::other)?;
        together(READERS, settings.time, |n| lookup(&server, anywhere(n, shares), shares))?;
        together(WRITERS, settings.time, |n| renew(&server, anywhere(n, shares), shares))?;
        tell("the expirer, through all leases");
        server.expire().map_err(io::Error::other)?;
        usage(&server, shares)
    })?;
    let mib = peak as f64 / f64::from(1 << 20);
    Ok(vec![SharesRow::of(format!("memory with {shares} shares, at most"), mib, "MiB").under(200.0)])
}

/// A number less than `of`. The results of neighbouring numbers are far apart.
fn anywhere(n: u64, of: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % of
}

fn lookup(server: &ShareServer, n: u64, of: u64) -> io::Result<()> {
    let found = server.share(&sample::share(n, of)).map_err(io::Error::other)?;
    found.map(drop).ok_or_else(|| io::Error::other("a share of the sample is not there"))
}

fn renew(server: &ShareServer, n: u64, of: u64) -> io::Result<()> {
    let held = server.lease(AccountId::ANONYMOUS, &[sample::share(n, of)], Some(FAR));
    match held.map_err(io::Error::other)?.len() {
        1 => Ok(()),
        _ => Err(io::Error::other("a share of the sample is not held")),
    }
}

fn usage(server: &ShareServer, shares: u64) -> io::Result<()> {
    let usage = server.usage(AccountId::ANONYMOUS).map_err(io::Error::other)?;
    if usage.shares == shares {
        Ok(())
    } else {
        Err(io::Error::other(format!("usage says {}", usage.shares)))
    }
}
