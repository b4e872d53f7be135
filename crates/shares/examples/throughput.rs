//! Measures a share server against the plain file system below it: `throughput DIR [MiB]`.
//!
//! Interleaved, three rounds each; the best of each kind is what the machine can do.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use shares::{AccountId, Deletion, NewShare, Settings, ShareId, ShareServer};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SHARE_BYTES: usize = 1 << 20;
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let dir = arguments.next().map_or_else(env::temp_dir, PathBuf::from).join("shares-throughput");
    let mebibytes = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1024);
    let measured = measure(&dir, mebibytes);
    let removed = fs::remove_dir_all(&dir);
    match measured.and_then(|()| Ok(removed?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(dir: &Path, mebibytes: usize) -> Result<(), Failure> {
    fs::create_dir_all(dir)?;
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let server = ShareServer::open(&dir.join("server"), Settings::new(Arc::new(clock)))?;
    // Bytes that do not compress.
    let mut body = vec![0; SHARE_BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut body);
    let body = Bytes::from(body);
    let mut next = 0;
    for round in 0..ROUNDS {
        let plain = timed(|| plain_file(&dir.join("plain"), &body, mebibytes))?;
        report(round, "plain write + fsync", mebibytes, plain, plain);
        for (threads, batch) in [(1, 1), (2, 1), (1, 8), (2, 8), (1, 32), (2, 32)] {
            let first = next;
            next += mebibytes as u64;
            let stored = timed(|| store(&server, first, &body, mebibytes, threads, batch))?;
            report(round, &format!("{threads} threads, batches of {batch}"), mebibytes, stored, plain);
            let ids: Vec<ShareId> = (first..next).map(id).collect();
            let read = timed(|| read(&server, &ids))?;
            report(round, "  read, cached", mebibytes, read, plain);
            let deleted = timed(|| {
                server.let_go(AccountId::ANONYMOUS, &ids, Deletion::AtOnce)?;
                Ok(server.reap()?)
            })?;
            println!("      deleted {} shares/s", rate(ids.len(), deleted));
        }
    }
    small(&server)
}

/// What does not depend on the amount of bytes.
fn small(server: &ShareServer) -> Result<(), Failure> {
    let shares = |first: u64| -> Vec<NewShare> {
        (first..first + 32)
            .map(|n| NewShare { id: id(n), parts: vec![Bytes::from_static(&[7; 4096])] })
            .collect()
    };
    let first = 1 << 40;
    let stored = timed(|| {
        for batch in 0..100 {
            server.store_many(shares(first + batch * 32), AccountId::ANONYMOUS, None)?;
        }
        Ok(())
    })?;
    println!("4 KiB shares in batches of 32: {}/s", rate(3200, stored));
    let ids: Vec<ShareId> = (first..first + 3200).map(id).collect();
    let renewed = timed(|| {
        for some in ids.chunks(100) {
            server.lease(AccountId::ANONYMOUS, some, Some(1 << 40))?;
        }
        Ok(())
    })?;
    println!("leases renewed, 100 at a time: {}/s", rate(3200, renewed));
    let read = timed(|| {
        for _ in 0..100 {
            for id in &ids[..100] {
                server.read(id, 0, 4096)?;
            }
        }
        Ok(())
    })?;
    println!("4 KiB reads of 100 shares: {}/s", rate(10_000, read));
    Ok(())
}

fn plain_file(path: &Path, body: &[u8], mebibytes: usize) -> Result<(), Failure> {
    let mut file = fs::File::create(path)?;
    for _ in 0..mebibytes {
        file.write_all(body)?;
    }
    file.sync_all()?;
    Ok(fs::remove_file(path)?)
}

fn store(
    server: &ShareServer,
    first: u64,
    body: &Bytes,
    mebibytes: usize,
    threads: usize,
    batch: usize,
) -> Result<(), Failure> {
    let each = mebibytes / threads;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || -> Result<(), Failure> {
                    let first = first + (thread * each) as u64;
                    for begin in (0..each).step_by(batch) {
                        let numbers = begin..(begin + batch).min(each);
                        let shares =
                            numbers.map(|n| NewShare { id: id(first + n as u64), parts: vec![body.clone()] });
                        server.store_many(shares.collect(), AccountId::ANONYMOUS, None)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

fn read(server: &ShareServer, ids: &[ShareId]) -> Result<(), Failure> {
    for id in ids {
        server.read(id, 0, u32::try_from(SHARE_BYTES)?)?;
    }
    Ok(())
}

/// Spread over the prefixes as random ids are.
fn id(n: u64) -> ShareId {
    let mut bytes = [0; 16];
    blake3::Hasher::new().update(&n.to_le_bytes()).finalize_xof().fill(&mut bytes);
    ShareId(bytes)
}

fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

fn rate(count: usize, time: Duration) -> u64 {
    (count as f64 / time.as_secs_f64()) as u64
}

fn report(round: usize, what: &str, mebibytes: usize, time: Duration, plain: Duration) {
    let ratio = plain.as_secs_f64() / time.as_secs_f64();
    println!("{round}: {what:24} {:5} MiB/s, {ratio:.2} of plain", rate(mebibytes, time));
}
