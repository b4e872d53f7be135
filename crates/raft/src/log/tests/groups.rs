//! Several groups in one log.

use super::power::Forgetful;
use super::*;
use crate::disk::Local;
use std::sync::mpsc::channel;
use std::time::Duration;

fn device(dir: &Path) -> Arc<LogDevice> {
    LogDevice::open(Arc::new(Local), dir, SEGMENT, 3 * SEGMENT, None).unwrap()
}

fn groups(device: &Arc<LogDevice>, count: u64) -> Vec<RaftLog> {
    (0..count).map(|group| device.group(GroupId(group))).collect()
}

#[test]
fn one_flush_is_for_all_groups() {
    let dir = tempfile::tempdir().unwrap();
    let logs = groups(&device(dir.path()), 5);
    let before = logs[0].flushes();
    for log in &logs {
        log.append([entry(0, 10), entry(1, 1000)]).unwrap();
        log.save_vote(vote()).unwrap();
    }
    assert!(logs.iter().all(|log| log.vote().is_none() && log.durable().is_none()));
    logs[3].sync().unwrap();
    assert_eq!(logs[0].flushes(), before + 1);
    logs.iter().for_each(|log| log.sync().unwrap());
    assert_eq!(logs[0].flushes(), before + 1, "nothing waited");
    drop(logs);
    for log in groups(&device(dir.path()), 5) {
        assert_eq!((log.vote(), log.durable(), read_all(&log)), (Some(vote()), Some(log_id(1)), vec![0, 1]));
    }
}

#[test]
fn each_group_has_its_own_log() {
    let dir = tempfile::tempdir().unwrap();
    let logs = groups(&device(dir.path()), 3);
    for index in 0..5 {
        append(&logs[0], [entry(index, 10)]);
        append(&logs[1], [entry(index, 20)]);
    }
    done(&logs[0], logs[0].truncate(Some(log_id(2))));
    done(&logs[1], logs[1].purge(log_id(3)));
    done(&logs[2], logs[2].save_vote(vote()));
    let seen = |logs: &[RaftLog]| -> Vec<_> {
        logs.iter().map(|log| (read_all(log), log.purged(), log.vote(), log.was_there())).collect()
    };
    let expected =
        [(vec![0, 1, 2], None, None), (vec![4], Some(log_id(3)), None), (vec![], None, Some(vote()))];
    let expect = |there| expected.iter().map(|it| (it.0.clone(), it.1, it.2, there)).collect::<Vec<_>>();
    assert_eq!(seen(&logs), expect(false));
    drop(logs);
    let device = device(dir.path());
    assert_eq!(seen(&groups(&device, 3)), expect(true));
    assert!(!device.group(GroupId(3)).was_there());
}

/// A group that writes nothing is copied forward, as often as the log comes round.
#[test]
fn an_idle_group_holds_up_no_segment() {
    let dir = tempfile::tempdir().unwrap();
    let [idle, busy] = <[RaftLog; 2]>::try_from(groups(&device(dir.path()), 2)).ok().unwrap();
    done(&idle, idle.save_vote(vote()));
    (0..10).for_each(|index| append(&idle, [entry(index, 2_000)]));
    done(&idle, idle.purge(log_id(3)));
    for index in 0..600 {
        append(&busy, [entry(index, 8_000)]);
        if busy.is_due(4 * SEGMENT) {
            done(&busy, busy.purge(log_id(index)));
        }
        assert!(busy.bytes() <= 6 * SEGMENT, "{index}: {}", busy.bytes());
    }
    let seen = |log: &RaftLog| (log.vote(), log.purged(), log.durable(), read_all(log));
    let expected = (Some(vote()), Some(log_id(3)), Some(log_id(9)), (4..10).collect::<Vec<_>>());
    assert_eq!(seen(&idle), expected);
    drop((idle, busy));
    let idle = device(dir.path()).group(GroupId(0));
    assert_eq!(seen(&idle), expected);
    done(&idle, idle.truncate(Some(log_id(7))));
    append(&idle, [entry(8, 100)]);
    done(&idle, idle.purge(log_id(5)));
    drop(idle);
    let idle = device(dir.path()).group(GroupId(0));
    assert_eq!((read_all(&idle), idle.durable()), (vec![6, 7, 8], Some(log_id(8))));
}

/// A purge of everything comes before an entry that does not fit into the segment that is written
/// to. Nothing is left in that segment, and it goes although nothing is purged any more. Otherwise
/// nobody would hold it up, and no checkpoint would ever be due for the size of the log.
#[test]
fn a_segment_without_entries_goes_when_the_next_begins() {
    let dir = tempfile::tempdir().unwrap();
    let [log] = <[RaftLog; 1]>::try_from(groups(&device(dir.path()), 1)).ok().unwrap();
    append(&log, [entry(0, SEGMENT as usize / 2)]);
    done(&log, log.purge(log_id(0)));
    for index in 1..10 {
        append(&log, [entry(index, SEGMENT as usize / 2)]);
    }
    assert!(log.is_due(4 * SEGMENT), "{}", log.bytes());
}

/// A group with more entries than are worth a copy is due, and only that group.
#[test]
fn who_holds_up_the_oldest_segment_is_due() {
    let dir = tempfile::tempdir().unwrap();
    let [large, busy] = <[RaftLog; 2]>::try_from(groups(&device(dir.path()), 2)).ok().unwrap();
    (0..6).for_each(|index| append(&large, [entry(index, 8_000)]));
    (0..60).for_each(|index| append(&busy, [entry(index, 8_000)]));
    assert!(large.is_due(4 * SEGMENT) && !large.is_due(40 * SEGMENT));
    done(&large, large.purge(log_id(5)));
    assert!(!large.is_due(4 * SEGMENT) && busy.is_due(4 * SEGMENT));
    done(&busy, busy.purge(log_id(59)));
    assert!(!busy.is_due(4 * SEGMENT));
    assert!(files(dir.path(), ".log").len() == 1);
}

#[test]
fn a_missing_segment_is_damage_as_long_as_any_group_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let logs = groups(&device(&live), 2);
    for index in 0..40 {
        append(&logs[0], [entry(index, 8_000)]);
        append(&logs[1], [entry(index, 8_000)]);
    }
    done(&logs[0], logs[0].purge(log_id(39)));
    let segments = files(&live, ".log");
    assert!(segments.len() > 3);
    let cut = |name: &str, missing: &Path| {
        let cut = dir.path().join(name);
        copy_dir(&live, &cut);
        std::fs::remove_file(cut.join(missing.file_name().unwrap())).unwrap();
        LogDevice::open(Arc::new(Local), &cut, SEGMENT, 3 * SEGMENT, None)
    };
    assert!(matches!(cut("needed", &segments[0]), Err(LogError::Damaged { .. })));
    // The removal is written, and the power goes before segments are retired.
    let before = dir.path().join("before");
    copy_dir(&live, &before);
    done(&logs[1], logs[1].purge(log_id(38)));
    for file in files(&before, ".log") {
        if !live.join(file.file_name().unwrap()).exists() {
            std::fs::copy(&file, live.join(file.file_name().unwrap())).unwrap();
        }
    }
    let open = groups(&cut("free", &segments[0]).unwrap(), 2);
    assert_eq!((read_all(&open[0]), read_all(&open[1])), (vec![], vec![39]));
}

/// A group puts something while a frame with another's is on its way to the disk. It is told of the
/// next frame, not of this one.
#[test]
fn a_flush_answers_for_what_was_put_before_its_frame_was_closed() {
    let disk = Forgetful::default();
    let device =
        LogDevice::open(Arc::new(disk.clone()), Path::new("/log"), SEGMENT, 3 * SEGMENT, None).unwrap();
    let logs: Vec<_> = groups(&device, 2).into_iter().map(Arc::new).collect();
    let (tell, told) = channel();
    let flushes_beside = |group: usize| {
        let (tell, log) = (tell.clone(), logs[group].clone());
        logs[group].append([entry(0, 10)]).unwrap();
        logs[group].flush_beside(move |flushed| {
            flushed.unwrap();
            tell.send((group, log.durable())).unwrap();
        });
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _entered = runtime.enter();
    disk.holds(true);
    flushes_beside(0);
    while disk.waiting() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    flushes_beside(1);
    assert!(told.try_recv().is_err());
    disk.holds(false);
    let told: Vec<_> = told.iter().take(2).collect();
    assert_eq!(told, [(0, Some(log_id(0))), (1, Some(log_id(0)))]);
}

/// Groups on one thread wait for the disk together, and none of them keeps the thread.
#[test]
fn groups_that_wait_share_a_flush() {
    const GROUPS: u64 = 50;
    const ROUNDS: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let device = device(dir.path());
    let logs: Vec<_> = groups(&device, GROUPS).into_iter().map(Arc::new).collect();
    let before = logs[0].flushes();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let each = logs.iter().cloned().map(|log| {
            tokio::spawn(async move {
                for index in 0..ROUNDS {
                    log.append([entry(index, 100)]).unwrap();
                    log.flushed().await.unwrap();
                    assert_eq!(log.durable(), Some(log_id(index)));
                }
            })
        });
        for task in each.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    let flushes = logs[0].flushes() - before;
    println!("{} batches of {GROUPS} groups took {flushes} flushes", GROUPS * ROUNDS);
    assert!((ROUNDS..GROUPS * ROUNDS / 2).contains(&flushes), "{flushes}");
    drop((logs, device));
    let logs = groups(&self::device(dir.path()), GROUPS);
    assert!(logs.iter().all(|log| read_all(log) == (0..ROUNDS).collect::<Vec<_>>()));
}
