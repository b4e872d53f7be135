//! All metrics: their names, their meanings, and where each value is read. Tests check the
//! registered, documented and charted metrics against this list.

use Type::{Counter, Gauge};
use admin::{LiveReport, ServerReport};

/// Takes a value with its labels.
pub type Give<'a> = &'a mut dyn FnMut(&[(&'static str, String)], f64);

/// How a value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// The value only goes up, from the machine's start.
    Counter,
    /// The value goes up and down.
    Gauge,
}

/// A metric that is read when it is scraped.
pub struct Metric {
    /// The name, with its unit.
    pub name: &'static str,
    /// How the value changes.
    pub kind: Type,
    /// The meaning, in words.
    pub meaning: &'static str,
    /// Gives the values that there are.
    pub read: fn(&LiveReport, Give<'_>),
}

/// The one histogram.
pub struct Latency {
    /// The name, with its unit.
    pub name: &'static str,
    /// The meaning, in words.
    pub meaning: &'static str,
}

/// The latency of operations.
pub const LATENCY: Latency = Latency {
    name: "leasehold_operation_seconds",
    meaning: "The time of answers to the kernel, by kind and front door",
};

/// A metric of the server on this machine.
macro_rules! server {
    ($name:literal, $kind:expr, $meaning:literal, $value:expr) => {
        Metric {
            name: $name,
            kind: $kind,
            meaning: $meaning,
            read: |report, give| {
                let value: fn(&ServerReport) -> Option<f64> = $value;
                if let Some(value) = report.status.server.as_ref().and_then(value) {
                    give(&[], value);
                }
            },
        }
    };
}

/// A metric that each machine has.
macro_rules! machine {
    ($name:literal, $kind:expr, $meaning:literal, $value:expr) => {
        Metric {
            name: $name,
            kind: $kind,
            meaning: $meaning,
            read: |report, give| {
                let value: fn(&LiveReport) -> f64 = $value;
                give(&[], value(report));
            },
        }
    };
}

/// Everything but the latencies.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "leasehold_info",
        kind: Gauge,
        meaning: "Always 1; the version of the program is a label",
        read: |report, give| give(&[("version", report.status.version.clone())], 1.0),
    },
    machine!("leasehold_uptime_seconds", Gauge, "Since the machine was started", |report| {
        report.status.uptime_s as f64
    }),
    Metric {
        name: "leasehold_operations_total",
        kind: Counter,
        meaning: "Operations that were answered, by kind and front door",
        read: |report, give| {
            for of in &report.activity.operations {
                give(&[("kind", of.kind.clone()), ("door", of.door.clone())], of.count as f64);
            }
        },
    },
    machine!("leasehold_client_leases", Gauge, "Leases that this machine's client holds", |report| {
        report.client.leases as f64
    }),
    machine!(
        "leasehold_client_files",
        Gauge,
        "Files that this machine's client knows something of",
        |report| { report.status.files_known as f64 }
    ),
    machine!(
        "leasehold_client_recalls_received_total",
        Counter,
        "Recalls of leases that this machine has received",
        |report| report.client.recalls_received as f64
    ),
    machine!(
        "leasehold_client_operations_unsent",
        Gauge,
        "Operations that this machine did and that no server was sent yet",
        |report| report.status.operations_unsent as f64
    ),
    machine!(
        "leasehold_client_calls_waiting",
        Gauge,
        "Calls on this machine that wait for a server",
        |report| { report.status.calls_waiting.len() as f64 }
    ),
    machine!(
        "leasehold_client_dirty_bytes",
        Gauge,
        "Content of this machine that is not stored yet",
        |report| { report.status.dirty_bytes as f64 }
    ),
    machine!(
        "leasehold_client_salvages",
        Gauge,
        "Changes that could not be applied and are kept: leasehold salvage list",
        |report| report.status.salvaged as f64
    ),
    Metric {
        name: "leasehold_link_up",
        kind: Gauge,
        meaning: "Whether this machine is connected to the server that leads; absent on that server itself",
        read: |report, give| {
            if let Some(link) = &report.status.link {
                give(&[("server", link.server.clone())], f64::from(u8::from(link.down.is_none())));
            }
        },
    },
    Metric {
        name: "leasehold_link_since_seconds",
        kind: Gauge,
        meaning: "For how long that connection is up, or down",
        read: |report, give| {
            if let Some(link) = &report.status.link {
                give(&[("server", link.server.clone())], link.since_s as f64);
            }
        },
    },
    Metric {
        name: "leasehold_peer_round_trip_seconds",
        kind: Gauge,
        meaning: "From a request to another machine to its answer, smoothed",
        read: |report, give| {
            for of in &report.round_trips {
                let labels = [("peer", of.machine.to_string()), ("connection", of.connection.clone())];
                give(&labels, of.seconds);
            }
        },
    },
    server!("leasehold_server_files", Gauge, "Files in the file system", |of| Some(of.files as f64)),
    server!("leasehold_server_sessions", Gauge, "Sessions of machines", |of| Some(of.sessions as f64)),
    server!("leasehold_server_sessions_lapsed", Gauge, "Sessions of machines that are not heard of", |of| {
        Some(of.sessions_lapsed as f64)
    }),
    server!("leasehold_server_requests_waiting", Gauge, "Requests for leases that wait", |of| {
        Some(of.requests_waiting as f64)
    }),
    server!(
        "leasehold_server_machines_unresponsive",
        Gauge,
        "Machines that have not answered a recall for a second",
        |of| Some(of.unresponsive.len() as f64)
    ),
    server!("leasehold_server_messages_received_total", Counter, "Messages from machines", |of| {
        Some(of.traffic.messages_heard as f64)
    }),
    server!("leasehold_server_messages_sent_total", Counter, "Messages to machines", |of| {
        Some(of.traffic.messages_told as f64)
    }),
    server!("leasehold_server_recalls_sent_total", Counter, "Those of them that ask for leases", |of| {
        Some(of.traffic.recalls as f64)
    }),
    server!("leasehold_log_entries_total", Counter, "Index of the last log entry that was applied", |of| {
        Some(of.applied as f64)
    }),
    server!("leasehold_log_bytes", Gauge, "Log that a start would replay", |of| Some(of.log_bytes as f64)),
    server!("leasehold_log_flushes_total", Counter, "Times that the log was made durable", |of| {
        Some(of.log_flushes as f64)
    }),
    server!("leasehold_log_backlog_bytes", Gauge, "Proposed and not applied yet", |of| {
        Some(of.backlog_bytes as f64)
    }),
    server!("leasehold_store_bytes", Gauge, "Rows of the server on disk", |of| Some(of.store_bytes as f64)),
    server!(
        "leasehold_store_repaired_total",
        Counter,
        "Bits found flipped in the rows, and put right",
        |of| { Some(of.store_repaired as f64) }
    ),
    server!("leasehold_shares", Gauge, "Shares that are stored here", |of| of
        .shares
        .map(|shares| shares as f64)),
    server!("leasehold_share_bytes", Gauge, "Bytes of these shares", |of| of
        .share_bytes
        .map(|bytes| bytes as f64)),
    server!("leasehold_disk_total_bytes", Gauge, "The file system's disk", |of| Some(of.space_total as f64)),
    server!("leasehold_disk_free_bytes", Gauge, "The part of it that can still be set aside", |of| {
        Some(of.space_free as f64)
    }),
    server!("leasehold_disk_full", Gauge, "1 if rows wait for room on the disk", |of| {
        Some(f64::from(u8::from(of.disk_full)))
    }),
    Metric {
        name: "leasehold_host_up",
        kind: Gauge,
        meaning: "Whether a host of shares answers, by the number of its machine",
        read: |report, give| {
            for host in report.status.server.iter().flat_map(|server| &server.hosts) {
                let up = f64::from(u8::from(host.copies.is_some()));
                give(&[("machine", host.machine.to_string())], up);
            }
        },
    },
    Metric {
        name: "leasehold_host_copies_missing",
        kind: Gauge,
        meaning: "Copies that a host of shares is to have and has not",
        read: |report, give| {
            for host in report.status.server.iter().flat_map(|server| &server.hosts) {
                if let Some(copies) = &host.copies {
                    give(&[("machine", host.machine.to_string())], copies.missing as f64);
                }
            }
        },
    },
    server!(
        "leasehold_scrub_ended_timestamp_seconds",
        Gauge,
        "When the last whole pass through files, rows and log ended",
        |of| of.scrub.as_ref()?.ended.map(|at| at as f64)
    ),
    server!("leasehold_scrub_read_bytes", Gauge, "Bytes that the pass under way has read", |of| {
        of.scrub.as_ref()?.bytes.map(|bytes| bytes as f64)
    }),
    server!(
        "leasehold_scrub_shares_ended_timestamp_seconds",
        Gauge,
        "When the last whole pass through the shares ended",
        |of| of.scrub.as_ref()?.shares_ended.map(|at| at as f64)
    ),
    server!("leasehold_scrub_shares_examined", Gauge, "Shares that the pass under way has looked at", |of| {
        of.scrub.as_ref()?.shares_examined.map(|shares| shares as f64)
    }),
    server!("leasehold_scrub_shares_damaged", Gauge, "Shares that are damaged or missing now", |of| {
        of.scrub.as_ref().map(|scrub| scrub.damaged as f64)
    }),
];
