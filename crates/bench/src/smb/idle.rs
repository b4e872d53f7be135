//! Connections that do nothing.

use super::client::SmbClient;
use super::protection::Way;
use super::servers::Ours;
use crate::cost::resident_bytes;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;

/// Files that a process has open aside from connections.
const OTHERS: u64 = 1000;

/// Lets this process, and those that it starts from now on, have so many connections.
pub(super) fn allow_open_files(connections: usize) -> io::Result<()> {
    let (mut limit, wanted) = (getrlimit(Resource::Nofile), connections as u64 + OTHERS);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    limit.current = Some(wanted);
    limit.maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    setrlimit(Resource::Nofile, limit).map_err(|error| {
        io::Error::other(format!("{wanted} open files (ulimit -n) are not allowed here: {error}"))
    })
}

/// The server's resident memory with so many clients that have logged on.
pub(super) fn resident_mib(ours: &Ours, connections: usize, tell: &mut dyn FnMut(&str)) -> io::Result<f64> {
    let mut clients = Vec::with_capacity(connections);
    for n in 0..connections {
        if n % 1000 == 0 {
            tell(&format!("idle connections: {n} of {connections}"));
        }
        clients.push(SmbClient::connect(ours.address, Way::Signed)?);
    }
    let resident = resident_bytes(ours.process()?)?;
    // All are still there.
    clients.into_iter().try_for_each(SmbClient::log_off)?;
    Ok(resident as f64 / f64::from(1 << 20))
}
