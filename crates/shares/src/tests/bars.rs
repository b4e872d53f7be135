//! How fast, and how much memory, beside what the disk does in the same run:
//! `BARS_DIR=/somewhere cargo test --release -p shares -- --ignored bars --nocapture --test-threads 1`.

use std::{
    env, fs,
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;

use super::Random;
use crate::{
    AccountId, Health, NewShare, Settings, ShareId, ShareServer, State, leases, rows::ShareRow,
    server::Server,
};

struct Bench(PathBuf);

impl Bench {
    fn new(name: &str) -> Bench {
        let dir = env::var_os("BARS_DIR").map_or_else(env::temp_dir, PathBuf::from).join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let bench = Bench(dir);
        bench.disk();
        bench
    }

    fn dir(&self) -> PathBuf {
        self.0.join("server")
    }

    /// What the disk does: small writes made durable one by one, and one long read of what is not in memory.
    fn disk(&self) {
        let path = self.0.join("plain");
        let mut file =
            fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let chunk = random_bytes(1 << 20);
        for _ in 0..256 {
            file.write_all(&chunk).unwrap();
        }
        file.sync_all().unwrap();
        let syncs = per_second(|| {
            for n in 0..500 {
                file.seek(std::io::SeekFrom::Start(n * 4096)).unwrap();
                file.write_all(&chunk[..4096]).unwrap();
                file.sync_data().unwrap();
            }
            500
        });
        let creates = per_second(|| {
            for n in 0..200 {
                let mut file = fs::File::create(self.0.join(format!("plain-{n}"))).unwrap();
                file.write_all(&chunk[..4096]).unwrap();
                file.sync_all().unwrap();
            }
            200
        });
        println!(
            "disk: 4 KiB overwritten and synced {syncs:.0}/s; 4 KiB files made and synced {creates:.0}/s"
        );
        println!("disk: {:.0} MiB/s read", self.read_rate());
    }

    /// Of a plain file.
    fn read_rate(&self) -> f64 {
        let mut file = fs::File::open(self.0.join("plain")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut buffer = vec![0; 1 << 20];
        per_second(|| {
            let mut read = 0;
            while let Ok(some @ 1..) = file.read(&mut buffer) {
                read += some;
            }
            read
        }) / f64::from(1 << 20)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings() -> Settings {
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    Settings::new(Arc::new(clock))
}

fn random_bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn per_second(work: impl FnOnce() -> usize) -> f64 {
    let begun = Instant::now();
    work() as f64 / begun.elapsed().as_secs_f64()
}

/// Spread over the prefixes as random ids are.
fn spread(n: u64) -> ShareId {
    let mut random = Random(n);
    ShareId(((u128::from(random.next()) << 64) | u128::from(random.next())).to_be_bytes())
}

/// Numbers of rows in the order of their ids: a table is filled in order, and asked for at random.
fn even(n: u64, of: u64) -> ShareId {
    let high = u64::MAX / of * n;
    ShareId(((u128::from(high) << 64) | u128::from(Random(n).next())).to_be_bytes())
}

fn memory(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    println!("  memory {what}: {} MiB, at most {} MiB", field("VmRSS") >> 10, field("VmHWM") >> 10);
    field("VmHWM") >> 10
}

/// Rows of so many shares, each leased, without files.
fn fill(dir: &Path, shares: u64) {
    let server = Server::open(dir, settings()).unwrap();
    for first in (0..shares).step_by(20_000) {
        server
            .database
            .write("filling", move |tx| {
                for n in first..(first + 20_000).min(shares) {
                    let row = ShareRow {
                        id: even(n, shares),
                        state: State::Stable,
                        health: Health::Ok,
                        length: 4096,
                        digest: Some([1; 16]),
                        leases: 0,
                        unleased_since: Some(tx.now),
                        changed_at: tx.now,
                        upload: None,
                    };
                    tx.add_share(&row)?;
                    leases::take(tx, &row, AccountId::ANONYMOUS, Some(1 << 40))?;
                }
                Ok(())
            })
            .unwrap();
    }
}

/// Each of `threads` does `work` with numbers of its own until the time is up; how often a second all of them did.
fn together(threads: u64, work: impl Fn(u64) + Sync) -> f64 {
    let count = AtomicU64::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..threads {
            let (work, count) = (&work, &count);
            scope.spawn(move || {
                let mut random = Random(number);
                while begun.elapsed() < Duration::from_secs(5) {
                    work(random.next());
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

fn rows(shares: u64) {
    let bench = Bench::new("bars-rows");
    println!("{shares} shares");
    let filled = per_second(|| {
        fill(&bench.dir(), shares);
        shares as usize
    });
    println!("  filled: {filled:.0}/s");
    let begun = Instant::now();
    let server = ShareServer::open(&bench.dir(), settings()).unwrap();
    println!("  opened: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    memory("after opening");
    let usage = per_second(|| {
        for _ in 0..1000 {
            assert_eq!(server.usage(AccountId::ANONYMOUS).unwrap().shares, shares);
        }
        1000
    });
    println!("  usage: {:.3} ms", 1e3 / usage);
    for threads in [1, 4] {
        let lookups = together(threads, |n| {
            assert!(server.share(&even(n % shares, shares)).unwrap().is_some());
        });
        println!("  lookups, {threads} threads: {lookups:.0}/s");
    }
    for pick in ["anywhere", "in order"] {
        let next = AtomicU64::new(0);
        let renewals = together(64, |n| {
            let n = if pick == "anywhere" { n } else { next.fetch_add(1, Ordering::Relaxed) };
            let id = even(n % shares, shares);
            assert_eq!(server.lease(AccountId::ANONYMOUS, &[id], Some(1 << 40)).unwrap(), [id]);
        });
        println!("  durable renewals, 64 writers, {pick}: {renewals:.0}/s");
    }
    memory("after renewing");
    let begun = Instant::now();
    server.expire().unwrap();
    println!("  expirer, all leases: {:.0}/s", shares as f64 / begun.elapsed().as_secs_f64());
    memory("after expiring");
}

#[test]
#[ignore = "measures, for minutes"]
fn bars_of_a_million_rows() {
    rows(1_000_000);
}

#[test]
#[ignore = "measures, for many minutes, and takes 3 GB of disk"]
fn bars_of_ten_million_rows() {
    rows(10_000_000);
}

#[test]
#[ignore = "measures, for minutes"]
fn bars_of_files() {
    let bench = Bench::new("bars-files");
    let server = ShareServer::open(&bench.dir(), settings()).unwrap();
    let small = Bytes::from(random_bytes(4096));
    let next = AtomicU64::new(0);
    let stored = together(16, |_| {
        let id = spread(next.fetch_add(1, Ordering::Relaxed));
        server
            .store_many(vec![NewShare { id, parts: vec![small.clone()] }], AccountId::ANONYMOUS, None)
            .unwrap();
    });
    println!("durable shares of 4 KiB, 16 writers: {stored:.0}/s");
    let large = Bytes::from(random_bytes(1 << 20));
    for batch in 0..64 {
        let numbers = (0..16).map(|n| (1 << 40) + batch * 16 + n);
        let shares = numbers.map(|n| NewShare { id: spread(n), parts: vec![large.clone()] }).collect();
        server.store_many(shares, AccountId::ANONYMOUS, None).unwrap();
    }
    let stored = server.stored().unwrap();
    drop(server);
    fs::remove_file(bench.dir().join("leases.sqlite")).unwrap();
    let server = ShareServer::without_threads(Server::open(&bench.dir(), settings()).unwrap());
    let found = per_second(|| {
        server.finish_discovery().unwrap();
        stored.shares as usize
    });
    assert_eq!(server.stored().unwrap(), stored);
    println!("discovery: {found:.0} shares/s");
    // Large ones alone: the rate is the disk's, not that of opening files.
    for n in 0..next.load(Ordering::Relaxed) {
        server.let_go_all(&[spread(n)], crate::Deletion::AtOnce).unwrap();
    }
    let deleted = per_second(|| {
        server.reap().unwrap();
        (stored.shares - 1024) as usize
    });
    println!("reaper: {deleted:.0} shares/s");
    let mut best = 0_f64;
    for _ in 0..3 {
        let disk = bench.read_rate();
        let scrub = per_second(|| {
            server.scrub().unwrap();
            1024
        });
        println!("scrub: {scrub:.0} MiB/s, the disk {disk:.0} MiB/s");
        best = best.max(scrub / disk);
    }
    println!("scrub: {best:.2} of the disk's rate at best");
}
