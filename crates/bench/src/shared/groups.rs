//! The cost of several servers of the directory, all on one machine: for work on names in
//! directories of different servers, and for servers that do nothing.

use super::private::{Comparison, LEAST};
use super::processor::OneProcessor;
use super::regions;
use super::row::SharedRow;
use super::settings::Settings;
use crate::target::{Target, TargetKind};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Servers that the work is spread over, the root server among them.
const SPREAD: u16 = 8;
/// Servers that do nothing.
const IDLE: u16 = 50;
/// How long no idle server may flush anything.
const QUIET: Duration = Duration::from_secs(60);
/// How long the machine has before that, to write down what made the servers.
const SETTLES_WITHIN: Duration = Duration::from_secs(75);
/// Resident memory of an idle server at most, bytes.
const RESIDENT_MAX: f64 = (2 << 20) as f64;

pub(super) fn run(
    base: &Path,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharedRow>> {
    let mut rows = spread(base, settings, tell)?;
    rows.extend(regions::run(base, tell)?);
    rows.extend(idle(base, tell)?);
    Ok(rows)
}

/// Work on names in directories of eight servers, beside the same with one server.
fn spread(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
    tell("one server of the directory, and eight");
    let _one = OneProcessor::take()?;
    let alone = Target::start(TargetKind::Mount, &base.join("alone"))?;
    let eight = Target::start(TargetKind::Mount, &base.join("eight"))?;
    for server in 1..SPREAD {
        found(&eight, server)?;
    }
    let prepare = |target: &Target, root: &Path| {
        if target.data() != eight.data() {
            return Ok(());
        }
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        (1..SPREAD).try_for_each(|server| delegate(&eight, format!("/{name}/d{server}"), Some(server)))
    };
    let comparison = Comparison { way: "eight servers", dirs: SPREAD.into(), prepare: &prepare };
    let rows = comparison.run(&[&eight, &alone], settings, tell)?;
    Ok(rows.into_iter().map(|row| row.ratio_bar(LEAST)).collect())
}

/// Servers that do nothing: their memory, and their flushes in a minute.
fn idle(base: &Path, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
    tell("idle servers of the directory");
    let machine = Target::start(TargetKind::Mount, &base.join("idle"))?;
    let before = resident(&machine)?;
    for server in 1..=IDLE {
        found(&machine, server)?;
    }
    let each = (resident(&machine)? - before) / f64::from(IDLE);
    tell("idle servers of the directory: a minute of nothing");
    std::thread::sleep(SETTLES_WITHIN);
    let begun = flushes(&machine)?;
    std::thread::sleep(QUIET);
    let flushed = flushes(&machine)? - begun;
    let memory = SharedRow::of("idle servers: resident memory of each, bytes", each);
    let quiet = SharedRow::of("idle servers: flushes in a minute, fifty together", flushed as f64);
    Ok(vec![memory.most_bar(RESIDENT_MAX), quiet.most_bar(0.0)])
}

/// Makes the server of this number, which is the next one.
pub(super) fn found(machine: &Target, server: u16) -> io::Result<()> {
    let name = format!("begins-{server}");
    fs::create_dir(machine.dir().join(&name))?;
    delegate(machine, format!("/{name}"), None)
}

/// Has the server of this number, or a new one, manage all below `path`.
pub(super) fn delegate(machine: &Target, path: String, to: Option<u16>) -> io::Result<()> {
    admin::delegate(machine.data(), (path, to, true), &mut |_| {}).map(drop).map_err(io::Error::other)
}

fn resident(machine: &Target) -> io::Result<f64> {
    let process = machine.process().ok_or(io::ErrorKind::NotFound)?;
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).ok_or_else(|| io::Error::other("no VmRSS is told"))
}

fn flushes(machine: &Target) -> io::Result<u64> {
    let status = admin::ask_status(machine.data()).map_err(io::Error::other)?;
    let server = status.and_then(|status| status.server);
    server.map(|server| server.log_flushes).ok_or_else(|| io::Error::other("the server is gone"))
}
