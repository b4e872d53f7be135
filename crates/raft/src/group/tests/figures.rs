//! Figures: `cargo test --release -p raft group_figures -- --ignored --nocapture`.

use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, channel};
use wire::ToServer;

const ROUNDS: usize = 2000;
/// Returns the CPU time of this process and its threads, in clock ticks of 10 ms.
pub(super) fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    Duration::from_millis(10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()))
}

/// Returns the bytes written to the disks of this machine so far.
fn device_bytes() -> u64 {
    let disks = std::fs::read_to_string("/proc/diskstats").unwrap();
    let whole = |name: &&str| Path::new("/sys/block").join(name).join("device").exists();
    let fields = disks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| whole(&fields[2])).map(|fields| 512 * fields[9].parse::<u64>().unwrap()).sum()
}

fn measure(name: &str, rounds: usize, user_bytes: usize, mut each: impl FnMut(usize)) {
    let (started, cpu_before, device_before) = (Instant::now(), cpu(), device_bytes());
    let mut times: Vec<Duration> = (0..rounds)
        .map(|round| {
            let at = Instant::now();
            each(round);
            at.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "{name:34} p50 {:>9.1?} p99 {:>9.1?} CPU {:>6.1?} each; {:>7.0}/s; device bytes {:.2} x user bytes",
        times[rounds / 2],
        times[rounds * 99 / 100],
        (cpu() - cpu_before) / rounds as u32,
        rounds as f64 / started.elapsed().as_secs_f64(),
        (device_bytes() - device_before) as f64 / (rounds * user_bytes) as f64,
    );
}

fn plain(dir: &Path) {
    let data = vec![1; 4096];
    let file = File::create(dir.join("appended")).unwrap();
    measure("append 4 KiB + fdatasync", ROUNDS, 4096, |round| {
        file.write_all_at(&data, 4096 * round as u64).unwrap();
        file.sync_data().unwrap();
    });
    let file = File::create(dir.join("written over")).unwrap();
    file.write_all_at(&vec![0; 4096 * ROUNDS], 0).unwrap();
    file.sync_all().unwrap();
    measure("write 4 KiB over + fdatasync", ROUNDS, 4096, |round| {
        file.write_all_at(&data, 4096 * round as u64).unwrap();
        file.sync_data().unwrap();
    });
}

/// Makes a message of a session that does not exist, so that applying it costs next to nothing. The
/// figures are those of the path to it.
pub(super) fn message(bytes: usize) -> Input {
    let operation = namespace::Operation::Publish(namespace::operation::Publish {
        file: ident::FileId::root(),
        version: 1,
        size: bytes as u64,
        mtime: namespace::Timestamp::default(),
        ctime: namespace::Timestamp::default(),
        change: namespace::ContentChange::Inline { sealed: vec![7; bytes], key: None },
    });
    let entries = vec![wire::LogEntry::Update { version: Version::NEWEST, operation }];
    Input::Message { session: SessionId(999), message: ToServer::Log { answer: true, first: 1, entries } }
}

fn start(dir: &Path) -> (Group, Receiver<usize>) {
    let (tell, told) = channel();
    std::fs::create_dir_all(dir).unwrap();
    let deliver: Deliver = Box::new(move |event| {
        if let Event::Outputs(outputs) = event {
            // Nothing waits for the outputs of the beginning.
            let _ = tell.send(outputs.len());
        }
    });
    let group = open_alone(dir, GroupSettings::default(), deliver);
    // The segments for the whole run exist, as in a log in use.
    for _ in 0..80 {
        group.propose(message(1 << 20));
        told.recv().unwrap();
    }
    group.checkpoint();
    (group, told)
}

#[test]
#[ignore = "measures"]
fn group_figures() {
    let dir = tempfile::tempdir_in(std::env::var("FIGURES_DIR").unwrap_or_else(|_| ".".into())).unwrap();
    for _ in 0..2 {
        plain(dir.path());
        let (group, told) = start(&dir.path().join("group"));
        for bytes in [1, 4096] {
            let message = message(bytes);
            measure(&format!("propose to deliver, {bytes} bytes"), ROUNDS, bytes, |_| {
                group.propose(message.clone());
                told.recv().unwrap();
            });
        }
        let message = message(100);
        measure("pipelined, 100 bytes", 200_000, 100, |round| {
            group.propose(message.clone());
            while group.backlog_bytes() > 1 << 20 || (round == 199_999 && group.backlog_bytes() > 0) {
                let _ = told.recv_timeout(Duration::from_millis(1));
            }
        });
        let before = cpu();
        std::thread::sleep(Duration::from_secs(2));
        println!("idle for 2 s: {:?} CPU", cpu() - before);
        let at = Instant::now();
        drop(group);
        println!("dropped in {:?}", at.elapsed());
        let at = Instant::now();
        let log = RaftLog::open(&dir.path().join("group/log"), SEGMENT_BYTES, 0).unwrap();
        println!("log of {} bytes read in {:?}", log.bytes(), at.elapsed());
        drop(log);
        let at = Instant::now();
        let group = open_alone(&dir.path().join("group"), GroupSettings::default(), Box::new(|_| {}));
        println!("opened in {:?}: {:?}", at.elapsed(), group.status());
        group.shutdown();
        drop(group);
        std::fs::remove_dir_all(dir.path().join("group")).unwrap();
    }
}
