//! Content in fragments, two of three: its rates of writing and reading, on machines that have no
//! server.

use super::row::SharedRow;
use super::settings::Settings;
use super::testbed::Testbed;
use crate::bulk;
use rustix::fs::{XattrFlags, setxattr};
use std::io;
use std::path::Path;
use std::time::Instant;

/// Bytes that one machine writes, and that another reads which has none of them.
const FILE_BYTES: u64 = 100 << 20;
const POLICY: &str = "code=2+1";
/// MB/s: four times the rate of `crates/bench/peers/tahoe`, put as well as got, on a machine of two
/// cores.
const BAR: f64 = 350.0;

pub(super) fn run(
    base: &Path,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharedRow>> {
    let testbed = Testbed::with_servers(base, 2, 3)?;
    let [writer, reader] = [0, 1].map(|n| testbed.machines()[n].dir().to_owned());
    setxattr(&writer, "leasehold.policy", POLICY.as_bytes(), XattrFlags::empty())?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    let rate = |began: Instant| FILE_BYTES as f64 / 1e6 / began.elapsed().as_secs_f64();
    for round in 0..settings.rounds {
        tell(&format!("{} MiB in fragments, round {}", FILE_BYTES >> 20, round + 1));
        let name = format!("coded-{round}");
        let began = Instant::now();
        bulk::write(&writer.join(&name), FILE_BYTES)?;
        rates[0].push(rate(began));
        let began = Instant::now();
        bulk::read(&reader.join(&name))?;
        rates[1].push(rate(began));
        // The disk's rate for as many bytes as three servers write.
        let began = Instant::now();
        bulk::write(&base.join("disk"), FILE_BYTES / 2 * 3)?;
        rates[2].push(rate(began));
    }
    let [put, get, disk] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or_default()
    });
    let why = "four times Tahoe-LAFS 1.20";
    Ok(vec![
        SharedRow::of("code=2+1 over 3 servers, MB/s written", put).beside(disk).rate_bar(BAR, why),
        SharedRow::of("code=2+1 over 3 servers, MB/s read elsewhere", get).rate_bar(BAR, why),
    ])
}
