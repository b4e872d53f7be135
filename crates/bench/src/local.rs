//! `leasehold bench local`: one machine, alone.

use crate::bulk;
use crate::cost::{Cost, device_bytes_written, resident_bytes};
use crate::names::{Layout, NameWork};
use crate::process::end_on_signals;
use crate::table::Row;
use crate::target::{Target, TargetKind};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A part of the measurements, which can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Work on names and attributes, in four layouts.
    Names,
    /// The same after a restart and with empty caches; memory and store for each file.
    Cold,
    /// Long transfers.
    Stream,
    /// Small random synced writes.
    Random,
    /// Many files, made without a mount.
    Load,
}

impl Section {
    /// All parts, in the order in which they run.
    pub const ALL: [Section; 5] =
        [Section::Names, Section::Cold, Section::Stream, Section::Random, Section::Load];

    /// The part's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Section::Names => "names",
            Section::Cold => "cold",
            Section::Stream => "stream",
            Section::Random => "random",
            Section::Load => "load",
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Parts to measure.
    pub parts: Vec<Section>,
    /// Files in the work on names.
    pub files: usize,
    /// Times that each work on names is done, in turns.
    pub rounds: usize,
    /// Another `leasehold` binary that does the work on names in turns with this one.
    pub beside: Option<PathBuf>,
    /// Bytes of the long transfers.
    pub stream_bytes: u64,
    /// Bytes of the file that gets random writes.
    pub random_bytes: u64,
    /// Length of the random writes.
    pub random_time: Duration,
    /// Files made without a mount.
    pub load_files: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            parts: Section::ALL.to_vec(),
            files: 200_000,
            rounds: 1,
            beside: None,
            stream_bytes: 1 << 30,
            random_bytes: 4 << 30,
            random_time: Duration::from_secs(120),
            load_files: 10_000_000,
        }
    }
}

/// One directory is made for so many files.
const FILES_PER_MKDIR: usize = 10;

impl Settings {
    fn layout(&self, threads: usize, dirs: usize) -> Layout {
        Layout { threads, dirs, files: self.files, mkdirs: self.files / FILES_PER_MKDIR }
    }
}

/// Measures in a new directory of `base`, which is on the disk to compare with. `tell` reports
/// progress.
pub fn run(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
    end_on_signals()?;
    let base = tempfile::Builder::new().prefix("leasehold-bench-").tempdir_in(base)?;
    let mut rows = Vec::new();
    for part in Section::ALL.into_iter().filter(|part| settings.parts.contains(part)) {
        match part {
            Section::Names => {
                for (threads, dirs) in [(1, 1), (1, 100), (4, 1), (4, 100)] {
                    let layout = settings.layout(threads, dirs);
                    rows.extend(names(base.path(), layout, settings, tell)?);
                }
            }
            Section::Cold => rows.extend(cold(base.path(), settings, tell)?),
            Section::Stream => rows.extend(stream(base.path(), settings, tell)?),
            Section::Random => rows.extend(random(base.path(), settings, tell)?),
            Section::Load => {
                rows.extend(crate::load::run(&base.path().join("load"), settings.load_files, tell)?)
            }
        }
    }
    Ok(rows)
}

/// The three targets, each in a fresh directory under `base`.
fn targets(base: &Path, name: &str) -> io::Result<[Target; 3]> {
    let base = base.join(name);
    Ok([
        Target::start(TargetKind::Mount, &base)?,
        Target::start(TargetKind::Floor, &base)?,
        Target::start(TargetKind::Disk, &base)?,
    ])
}

fn names(
    base: &Path,
    layout: Layout,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<Row>> {
    let (Layout { threads, dirs, .. }, rounds) = (layout, settings.rounds);
    let name = format!("names-{threads}-{dirs}");
    let mut targets = Vec::from(targets(base, &name)?);
    if let Some(binary) = &settings.beside {
        targets.push(Target::beside(binary, &base.join(&name))?);
    }
    // Of each work, round by round: the work itself and the final sync, on each target.
    let mut costs = vec![Vec::new(); NameWork::ALL.len()];
    for round in 0..rounds {
        for (w, work) in NameWork::ALL.into_iter().enumerate() {
            // Each comes first as often as last: the one that is done later is often the slower.
            let mut order: Vec<_> = targets.iter().enumerate().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            let mut on = [(Cost::default(), Cost::default()); 4];
            for (t, target) in order {
                tell(&format!(
                    "{} ({threads} threads, {dirs} dirs): {}, round {}",
                    work.name(),
                    target.kind,
                    round + 1
                ));
                let root = target.dir().join(format!("round-{round}"));
                layout.prepare(&root)?;
                let running = Cost::of(target.process(), || work.run(&root, layout))?;
                let synced = match work.updates() {
                    true => Cost::of(target.process(), || target.sync())?,
                    false => Cost::default(),
                };
                on[t] = (running, synced);
            }
            costs[w].push(on);
        }
    }
    let rows = NameWork::ALL
        .into_iter()
        .zip(costs)
        .map(|(work, costs)| {
            let sum = |(run, sync): (Cost, Cost), more: (Cost, Cost)| (run.plus(more.0), sync.plus(more.1));
            let total = |t: usize| costs.iter().map(|on| on[t]).fold(Default::default(), sum);
            let (mount, floor, disk) = (total(0), total(1), total(2));
            let operations = work.operations(layout) * rounds as u64;
            let name = format!("{}, {threads} thr, {dirs} dirs", work.name());
            let mut row = Row::of(name, operations, mount.0, Some(floor.0), Some(disk.0));
            if work.updates() {
                let all =
                    |(running, synced): (Cost, Cost)| running.plus(synced).cpu().as_secs_f64().max(1e-9);
                row.cpu_ratio_to_floor_synced = Some(all(floor) / all(mount));
            }
            if settings.beside.is_some() {
                row = row.beside(costs.iter().map(|[mount, _, _, beside]| (mount.0, beside.0)));
            }
            row.floor_bar(0.8, work.updates().then_some(0.6))
        })
        .collect();
    Ok(rows)
}

fn cold(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
    let base = base.join("cold");
    let layout = settings.layout(1, 100);
    let mut mount = Target::start(TargetKind::Mount, &base)?;
    let mut disk = Target::start(TargetKind::Disk, &base)?;
    for target in [&mount, &disk] {
        tell(&format!("loading {} files: {}", layout.files, target.kind));
        layout.prepare(target.dir())?;
        NameWork::Create.run(target.dir(), layout)?;
        target.sync()?;
    }
    let mut rows = Vec::new();
    for work in [NameWork::Stat, NameWork::List] {
        let mut costs = Vec::new();
        for target in [&mut mount, &mut disk] {
            tell(&format!("cold {}: {}", work.name(), target.kind));
            target.make_cold()?;
            costs.push(Cost::of(target.process(), || work.run(target.dir(), layout))?);
        }
        let name = format!("cold {}, 100 dirs", work.name().trim_start_matches("warm "));
        rows.push(Row::of(name, layout.files as u64, costs[0], None, Some(costs[1])).disk_bar(0.3));
    }
    rows.extend(memory(&mut mount, layout, tell)?);
    Ok(rows)
}

/// The store's bytes for each file, and the client's memory for each file that it knows.
fn memory(mount: &mut Target, layout: Layout, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
    tell("memory");
    let files = layout.files as f64;
    // The server's rows are in the same process. The server keeps as few of them as it can.
    mount.server_memory = Some(8);
    let restart = mount.make_cold()?;
    let empty = mount.process().map_or(Ok(0), resident_bytes)?;
    NameWork::List.run(mount.dir(), layout)?;
    let full = mount.process().map_or(Ok(0), resident_bytes)?;
    let store = mount.data().join("server").join("rows");
    let mut rows = vec![
        Row::at_most(
            "memory a file known, bytes",
            full.saturating_sub(empty) as f64 / files,
            1024.0,
            "bytes",
        ),
        Row::at_most("restart, s", restart.as_secs_f64(), 2.0, "s"),
    ];
    let bytes = std::fs::metadata(&store)?.blocks() * 512;
    rows.push(Row::at_most("store a file, bytes", bytes as f64 / files, 400.0, "bytes"));
    Ok(rows)
}

fn stream(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
    let mut targets = targets(base, "stream")?;
    let mib = settings.stream_bytes >> 20;
    let mut costs = [[Cost::default(); 3]; 3];
    for (t, target) in targets.iter_mut().enumerate() {
        let file = target.dir().join("stream");
        tell(&format!("sequential write: {}", target.kind));
        costs[0][t] = Cost::of(target.process(), || bulk::write(&file, settings.stream_bytes))?;
        target.make_cold()?;
        tell(&format!("sequential read: {}", target.kind));
        costs[1][t] = Cost::of(target.process(), || bulk::read(&file))?;
        tell(&format!("read again: {}", target.kind));
        costs[2][t] = Cost::of(target.process(), || bulk::read(&file))?;
    }
    let [write, read, again] = costs;
    Ok(vec![
        Row::of("sequential write + fsync, MiB".into(), mib, write[0], Some(write[1]), Some(write[2]))
            .disk_bar(0.7),
        Row::of("sequential read, cold, MiB".into(), mib, read[0], None, Some(read[2])).disk_bar(0.7),
        Row::of("read again, MiB".into(), mib, again[0], Some(again[1]), Some(again[2])).floor_bar(0.9, None),
    ])
}

fn random(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
    let base = base.join("random");
    let mount = Target::start(TargetKind::Mount, &base)?;
    let file = mount.dir().join("database");
    tell("the disk's own fdatasync rate");
    let time = settings.random_time.min(Duration::from_secs(10));
    let mut syncs = 0;
    let disk = Cost::of(None, || {
        bulk::disk_syncs(&base.join("syncs"), bulk::PAGE, time).map(|count| syncs = count)
    })?;
    tell("4 KiB random write + fsync");
    let before = device_bytes_written(&base);
    let mut writes = 0;
    let cost = Cost::of(mount.process(), || {
        bulk::random_synced_writes(&file, settings.random_bytes, settings.random_time)
            .map(|count| writes = count)
    })?;
    mount.sync()?;
    let mut row = Row::of("4 KiB random write + fsync".into(), writes, cost, None, None);
    let disk_rate = syncs as f64 / disk.wall.as_secs_f64();
    row.disk_rate = Some(disk_rate);
    row.ratio_to_disk = row.rate.map(|rate| rate / disk_rate);
    let mut rows = vec![row.disk_bar(0.4)];
    if let (Some(before), Some(after)) = (before, device_bytes_written(&base)) {
        let ratio = after.saturating_sub(before) as f64 / (writes * bulk::PAGE as u64).max(1) as f64;
        rows.push(Row::at_most("device bytes a user's byte", ratio, 8.0, "times"));
    }
    Ok(rows)
}
