//! Figures of many groups on one machine, each its group's only member:
//! `cargo test -p raft group_host_figures -- --ignored --nocapture`.

use super::*;

const MANY: u64 = 50;
/// How long nothing may be written.
const IDLE: Duration = Duration::from_secs(60);
/// Entries of each busy group.
const ENTRIES: u64 = 200;

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
#[ignore = "measures, takes two minutes"]
fn group_host_figures() {
    let dir = tempfile::tempdir().unwrap();
    let host = GroupHost::open(files(dir.path()), GroupSettings::default()).unwrap();
    let delivered = Arc::new(AtomicU64::new(0));
    let open = |group: u64| {
        let delivered = delivered.clone();
        let deliver: Deliver = Box::new(move |event| {
            if let Event::Outputs(outputs) = event {
                let opened = |output: &&Output| matches!(output, Output::Opened { .. });
                delivered.fetch_add(outputs.iter().filter(opened).count() as u64, SeqCst);
            }
        });
        let opened = host.group(GroupId(group), root(), alone("first"), Arc::new(Nobody), deliver).unwrap();
        opened.begin();
        opened
    };
    let mut groups = vec![open(0)];
    let before = resident();
    groups.extend((1..=MANY).map(open));
    std::thread::sleep(Duration::from_secs(2));
    groups.iter().for_each(|group| assert!(group.checkpoint()));
    println!("{MANY} groups more: {} KiB each", ((resident() - before) / MANY) >> 10);
    let (flushes, memory) = (groups[0].status().log_flushes, resident());
    std::thread::sleep(IDLE);
    println!("idle for {IDLE:?}: {} flushes", groups[0].status().log_flushes - flushes);
    println!("memory {} KiB more meanwhile", resident().saturating_sub(memory) >> 10);
    // All propose at once, and each proposes again when it has been answered.
    let (flushes, at) = (groups[0].status().log_flushes, Instant::now());
    for round in 0..ENTRIES {
        let before = delivered.load(SeqCst);
        groups[1..].iter().for_each(|group| group.propose(open_session(round + 1)));
        while delivered.load(SeqCst) < before + MANY {
            std::thread::yield_now();
        }
    }
    let flushes = groups[0].status().log_flushes - flushes;
    println!(
        "{ENTRIES} rounds of {MANY} groups in {:?}: {:.2} flushes for each round",
        at.elapsed(),
        flushes as f64 / ENTRIES as f64
    );
    println!("after work: {} KiB each", ((resident() - before) / MANY) >> 10);
}
