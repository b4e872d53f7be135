//! `leasehold map` and `leasehold delegate`: which server of the directory manages which files.

use crate::answer::Answer;
use crate::progress::step_of;
use crate::table::table;
use crate::words::Words;
use crate::{Failure, places};
use admin::{MapEntry, MapReport, ServerOfMap};
use clap::Args;
use figures::when;
use std::path::PathBuf;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Map {
    /// The path of a file, from the root of the file system: only its region, and the server of
    /// that.
    path: Option<String>,
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Delegate {
    /// The path of a file or directory, from the root of the file system. Files that were made
    /// below it go along, but for those that were delegated by themselves.
    path: String,
    /// The number of the server that is to manage it: leasehold map lists them. A new server is
    /// made if there is none given.
    server: Option<u16>,
    /// Do not pin it there: the balance of load may move it again.
    #[arg(long)]
    no_pin: bool,
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Map {
    /// Shows the servers and their regions.
    pub fn run(self) -> Result<Answer, Failure> {
        let map = admin::map(&self.data.map_or_else(places::data, Ok)?, self.path)?;
        Answer::told(&map, words(&map, os::utc_secs()))
    }
}

/// The map as of `now`, UTC seconds.
fn words(map: &MapReport, now: u64) -> String {
    let headings = ["SERVER", "LEADER", "MEMBERS", "FILES", "SESSIONS", "MANAGES", "SINCE"];
    let mut text = table(headings, map.servers.iter().flat_map(|server| rows(server, now)));
    for pin in &map.pins {
        text.push_str(&format!("pinned: {}\n", pin.path));
    }
    if !map.balance {
        text.push_str("no region moves by itself: leasehold balance on\n");
    }
    text
}

/// The rows of a server: one for each region, with the server's own figures in the first.
fn rows(server: &ServerOfMap, now: u64) -> Vec<[String; 7]> {
    let mut regions: Vec<_> = server.regions.iter().map(|entry| (region(entry), since(entry, now))).collect();
    if regions.is_empty() {
        regions.push(("-".to_owned(), String::new()));
    }
    let row = |(at, (region, since)): (usize, (String, String))| {
        if at > 0 {
            let nothing = String::new;
            return [nothing(), nothing(), nothing(), nothing(), nothing(), region, since];
        }
        [
            server.server.to_string(),
            server.leader.clone().unwrap_or_else(|| "-".to_owned()),
            server.members.len().to_string(),
            server.files.to_string(),
            server.sessions.to_string(),
            region,
            since,
        ]
    };
    regions.into_iter().enumerate().map(row).collect()
}

/// When and why a region came to its server, as far as that is known.
fn since(entry: &MapEntry, now: u64) -> String {
    let at = entry.since.map(|at| when(at, now)).unwrap_or_default();
    match &entry.why {
        Some(why) => format!("{at}, {}", Words(why)),
        None => at,
    }
}

fn region(entry: &MapEntry) -> String {
    let leaving = entry.leaving_for.map(|to| format!(" (on its way to server {to})"));
    entry.path.clone() + &leaving.unwrap_or_default()
}

impl Delegate {
    /// Hands the region over.
    pub fn run(self) -> Result<Answer, Failure> {
        let Delegate { path, server, no_pin, data } = self;
        let data = data.map_or_else(places::data, Ok)?;
        let moved = admin::delegate(&data, (path, server, !no_pin), &mut step_of)?;
        let mut text = format!("server {} manages {} now\n", moved.to, moved.path);
        if moved.pinned {
            text.push_str(&format!("it stays there: leasehold unpin {} ends that\n", moved.path));
        }
        Answer::told(&moved, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_row_for_each_region() {
        let entry = |path: &str, leaving_for| MapEntry {
            path: path.to_owned(),
            region: "1.2".to_owned(),
            epoch: 3,
            leaving_for,
            since: leaving_for.is_none().then_some(40),
            why: leaving_for.is_none().then_some(admin::MovedWhy::Balance),
            pinned: false,
        };
        let server = ServerOfMap {
            server: 2,
            leader: Some("hall".to_owned()),
            members: vec!["hall".to_owned(), "attic".to_owned()],
            files: 7,
            sessions: 1,
            regions: vec![entry("/a", None), entry("/b", Some(0))],
        };
        let (first, second) = (
            ["2", "hall", "2", "7", "1", "/a", "60 s ago, for balance"],
            ["", "", "", "", "", "/b (on its way to server 0)", ""],
        );
        assert_eq!(rows(&server, 100), [first.map(str::to_owned), second.map(str::to_owned)]);
        let empty = ServerOfMap { leader: None, regions: Vec::new(), ..server };
        assert_eq!(rows(&empty, 100), [["2", "-", "2", "7", "1", "-", ""].map(str::to_owned)]);
    }
}
