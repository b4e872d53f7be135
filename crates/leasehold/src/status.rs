//! `leasehold status`.

use crate::answer::Answer;
use crate::words::Words;
use crate::{Failure, places};
use admin::{HostReport, Role, ServerReport, StatusReport};
use clap::Args;
use figures::{size, span};
use node::ShareStanding;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// Waiting calls that are shown, at most.
const CALLS_SHOWN: usize = 10;
/// A shorter wait is not shown, ms: the call is about to be answered.
const CALL_MS: u64 = 1_000;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Status {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// A machine that is not up.
#[derive(Serialize)]
struct NotUp {
    up: bool,
    data: String,
}

impl Status {
    /// Asks the machine. Exits with 1 if none is up.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let Some(status) = admin::ask_status(&data)? else {
            let not_up = NotUp { up: false, data: data.display().to_string() };
            let mut words = format!("no machine is up on {}; start it with: leasehold up", not_up.data);
            places::elsewhere().iter().for_each(|elsewhere| words.push_str(&format!("\n({elsewhere})")));
            return Ok(Answer::told(&not_up, words)?.no_if(true));
        };
        Answer::told(&status, text(&status))
    }
}

/// Writes the status for people: the first word of each line names its topic.
fn text(status: &StatusReport) -> String {
    let mut text = String::new();
    let mut line = |word: &str, rest: String| _ = writeln!(text, "{word:<10} {rest}");
    let number = status.machine;
    let machine = match status.name.as_str() {
        "" => format!("machine {number}"),
        name => format!("{name} (machine {number})"),
    };
    line(
        "up",
        format!(
            "{machine} for {}, leasehold {}, process {}",
            span(status.uptime_s),
            status.version,
            status.process
        ),
    );
    if let Some(dir) = &status.mounted_on {
        line("mounted", format!("on {dir}"));
    }
    line("data", format!("in {}", status.data));
    let leader = status.leader.as_deref();
    line(
        "role",
        match (status.role, leader) {
            (Role::Client, _) if status.lacks_server => {
                "its server DOES NOT RUN, though the servers list it: the log says why".to_owned()
            }
            (Role::Client, _) => "no server here".to_owned(),
            (Role::Leader, _) => "its server leads".to_owned(),
            (Role::Follower, Some(leader)) => format!("its server follows {leader}"),
            (Role::Follower, None) => "its server knows of none that leads".to_owned(),
        },
    );
    if let Some(link) = &status.link {
        line("server", Words(link).to_string());
    }
    let dirty = size(status.dirty_bytes as u64);
    line("unsaved", format!("{} operations, {dirty} of content", status.operations_unsent));
    let waiting: Vec<_> = status.calls_waiting.iter().filter(|call| call.for_ms >= CALL_MS).collect();
    for call in waiting.iter().take(CALLS_SHOWN) {
        let seconds = call.for_ms as f64 / 1e3;
        line("waiting", format!("{} for {seconds:.1} s: for {}", call.call, Words(&call.waits_for)));
    }
    if waiting.len() > CALLS_SHOWN {
        line("waiting", format!("and {} calls more", waiting.len() - CALLS_SHOWN));
    }
    line("known", format!("{} files by this machine's client", status.files_known));
    for dir in &status.quarantined {
        line("damaged", format!("a server was added anew; what it had is kept: {dir}"));
    }
    if status.salvaged > 0 {
        let times = status.salvaged;
        line("salvaged", format!("{times} times something could not be applied: leasehold salvage list"));
    }
    if let Some(server) = &status.server {
        of_server(server, &mut line);
    }
    text
}

/// The words for what the database of shares would say.
const UNREADABLE: &str = "NOT KNOWN: the database of shares cannot be read; the log says why";

fn of_server(server: &ServerReport, line: &mut dyn FnMut(&str, String)) {
    let versions = Words(&server.version_in_use).to_string();
    versions.lines().for_each(|told| match told.strip_prefix("version") {
        Some(rest) => line("version", rest.trim_start().to_owned()),
        None => line("", told.trim_start().to_owned()),
    });
    line("files", server.files.to_string());
    line("space", format!("{} free of {}", size(server.space_free), size(server.space_total)));
    match (server.shares, server.share_bytes) {
        (Some(shares), Some(bytes)) => line("content", format!("{shares} shares, {}", size(bytes))),
        _ => line("content", UNREADABLE.to_owned()),
    }
    for HostReport { machine, copies } in &server.hosts {
        match copies {
            Some(ShareStanding { complete: true, .. }) => {}
            Some(ShareStanding { kept, missing, leaving, .. }) => line(
                "copies",
                format!(
                    "machine {machine}: {kept} kept, {missing} missing, {leaving} kept for others until they have them"
                ),
            ),
            None => line("copies", format!("machine {machine} DOES NOT ANSWER")),
        }
    }
    let ServerReport { sessions, sessions_lapsed, requests_waiting, .. } = server;
    line("sessions", format!("{sessions} ({sessions_lapsed} lapsed), {requests_waiting} requests waiting"));
    server.unresponsive.iter().for_each(|machine| line("waiting", Words(machine).to_string()));
    server.hint.iter().for_each(|hint| line("hint", Words(hint).to_string()));
    line(
        "log",
        format!(
            "entry {}, {} to replay, flushed {} times; store {}",
            server.applied,
            size(server.log_bytes),
            server.log_flushes,
            size(server.store_bytes)
        ),
    );
    if server.disk_full {
        line("DISK FULL", "what the server has to write down waits for room".to_owned());
    }
    line("scrub", server.scrub.as_ref().map_or(UNREADABLE.to_owned(), |scrub| Words(scrub).to_string()));
    if server.store_repaired > 0 {
        line("repaired", format!("{} bits in the rows: look at this machine's disk", server.store_repaired));
    }
    let traffic = &server.traffic;
    line(
        "traffic",
        format!(
            "{} messages heard, {} told, {} of them recalls",
            traffic.messages_heard, traffic.messages_told, traffic.recalls
        ),
    );
}
