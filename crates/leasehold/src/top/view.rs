//! The figures on the screen, made of two samples. Their names are those of
//! `leasehold top --once --json`.

use super::Sample;
use admin::{ControlRefusal, LinkReport, MachineStanding, ServerReport};
use serde::Serialize;

/// One frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct View {
    /// The version of the program.
    pub version: String,
    /// The data directory.
    pub data: String,
    /// Seconds since the machine was started.
    pub uptime_s: u64,
    /// The span of the rates, seconds.
    pub over_s: f64,
    /// The connection to the server, of a machine without a server.
    pub link: Option<LinkReport>,
    /// All operations, a second.
    pub operations_per_s: f64,
    /// Operations by kind, the most frequent first. Unused kinds are left out.
    pub operations: Vec<OperationRate>,
    /// Operations by directory, the busiest first.
    pub directories: Vec<DirectoryRate>,
    /// The machine's client.
    pub client: ClientView,
    /// The server on this machine, if it has one.
    pub server: Option<ServerView>,
    /// All machines of the cluster that are not expelled.
    pub machines: Vec<MachineView>,
    /// Why the machines are not known.
    pub machines_unknown: Option<ControlRefusal>,
}

/// Operations of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationRate {
    /// The operation's name for people.
    pub kind: String,
    /// The front door.
    pub door: String,
    /// Operations a second.
    pub per_s: f64,
    /// The mean time to an answer, ms.
    pub mean_ms: f64,
}

/// Operations in a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectoryRate {
    /// The path from the root.
    pub path: String,
    /// Operations a second.
    pub per_s: f64,
    /// Operations since the watch began.
    pub operations: u64,
}

/// The figures of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClientView {
    /// Leases that it holds.
    pub leases: usize,
    /// Recalls that it received, a second.
    pub recalls_received_per_s: f64,
    /// Calls that wait for a server.
    pub calls_waiting: usize,
    /// Operations that were not sent to a server yet.
    pub operations_unsent: usize,
    /// Content that is not stored yet, bytes.
    pub dirty_bytes: usize,
}

/// The figures of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerView {
    /// Pending requests for leases.
    pub requests_waiting: usize,
    /// Recalls that it sent, a second.
    pub recalls_sent_per_s: f64,
    /// Messages from and to machines, a second.
    pub messages_per_s: f64,
    /// Times that the log was made durable, a second.
    pub log_flushes_per_s: f64,
    /// Log entries that were applied, a second.
    pub log_entries_per_s: f64,
    /// Bytes proposed and not applied yet.
    pub backlog_bytes: usize,
}

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineView {
    /// The machine's name.
    pub name: String,
    /// How it stands.
    #[serde(flatten)]
    pub standing: MachineStanding,
    /// How long it has not answered a recall, ms.
    pub unanswered_ms: Option<u64>,
    /// The shortest known round trip from this machine to that one, ms.
    pub round_trip_ms: Option<f64>,
}

impl View {
    /// Returns the changes from one sample to the next.
    pub fn between(before: &Sample, after: &Sample) -> View {
        let (was, is) = (&before.live, &after.live);
        let over_s = is.activity.at_s - was.activity.at_s;
        let rate = |before: u64, after: u64| per_second(before, after, over_s);
        let mut operations = Vec::new();
        for of in &is.activity.operations {
            let then =
                was.activity.operations.iter().find(|then| then.kind == of.kind && then.door == of.door);
            let (count, seconds) = then.map_or((0, 0.0), |then| (then.count, then.seconds));
            let per_s = rate(count, of.count);
            if per_s > 0.0 {
                let mean_ms = 1e3 * (of.seconds - seconds).max(0.0) / of.count.saturating_sub(count) as f64;
                operations.push(OperationRate {
                    kind: of.kind.clone(),
                    door: of.door.clone(),
                    per_s,
                    mean_ms,
                });
            }
        }
        operations.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
        let mut directories: Vec<DirectoryRate> = Vec::new();
        for (path, count) in &is.activity.directories {
            let then = was.activity.directories.iter().find(|(then, _)| then == path);
            let per_s = rate(then.map_or(0, |(_, count)| *count), *count);
            directories.push(DirectoryRate { path: path.clone(), per_s, operations: *count });
        }
        directories.sort_by(|a, b| b.per_s.total_cmp(&a.per_s).then(b.operations.cmp(&a.operations)));
        let machines = after.machines.iter().flatten().filter(|machine| !machine.expelled);
        let round_trip_ms = |machine: u64| {
            let to = is.round_trips.iter().filter(|to| to.machine == machine);
            to.map(|to| 1e3 * to.seconds).min_by(f64::total_cmp)
        };
        let machines = machines.map(|machine| MachineView {
            name: machine.name.clone(),
            standing: machine.standing,
            unanswered_ms: machine.unanswered_ms,
            round_trip_ms: round_trip_ms(machine.machine),
        });
        View {
            version: is.status.version.clone(),
            data: is.status.data.clone(),
            uptime_s: is.status.uptime_s,
            over_s,
            link: is.status.link.clone(),
            // The sum of nothing is -0.
            operations_per_s: operations.iter().map(|of| of.per_s).sum::<f64>() + 0.0,
            operations,
            directories,
            client: ClientView {
                leases: is.client.leases,
                recalls_received_per_s: rate(was.client.recalls_received, is.client.recalls_received),
                calls_waiting: is.status.calls_waiting.len(),
                operations_unsent: is.status.operations_unsent,
                dirty_bytes: is.status.dirty_bytes,
            },
            server: is.status.server.as_ref().map(|is| server(was.status.server.as_ref(), is, rate)),
            machines: machines.collect(),
            machines_unknown: after.machines.as_ref().err().cloned(),
        }
    }
}

/// Returns a counter's rate. A counter that went back has begun anew.
fn per_second(before: u64, after: u64, over_s: f64) -> f64 {
    let more = after.checked_sub(before).unwrap_or(after);
    if over_s > 0.0 { more as f64 / over_s } else { 0.0 }
}

fn server(was: Option<&ServerReport>, is: &ServerReport, rate: impl Fn(u64, u64) -> f64) -> ServerView {
    // For a server that was not there before, nothing is known of this second.
    let was = was.unwrap_or(is);
    let messages = |of: &ServerReport| of.traffic.messages_heard + of.traffic.messages_told;
    ServerView {
        requests_waiting: is.requests_waiting,
        recalls_sent_per_s: rate(was.traffic.recalls, is.traffic.recalls),
        messages_per_s: rate(messages(was), messages(is)),
        log_flushes_per_s: rate(was.log_flushes, is.log_flushes),
        log_entries_per_s: rate(was.applied, is.applied),
        backlog_bytes: is.backlog_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::sample;

    #[test]
    fn rates_are_differences_of_two_samples() {
        let (before, mut after) = (sample(10.0, 100, 1.0), sample(12.0, 300, 1.4));
        after.live.activity.directories = vec![("/quiet".to_owned(), 3), ("/busy".to_owned(), 203)];
        let view = View::between(&before, &after);
        assert_eq!((view.over_s, view.operations_per_s), (2.0, 100.0));
        let [create] = &view.operations[..] else { panic!("{:?}", view.operations) };
        assert_eq!((&*create.kind, create.per_s), ("create", 100.0));
        assert!((create.mean_ms - 2.0).abs() < 1e-9);
        let directories = view.directories.iter().map(|of| (&*of.path, of.per_s)).collect::<Vec<_>>();
        assert_eq!(directories, [("/busy", 101.5), ("/quiet", 1.5)]);
        assert_eq!(view.client.recalls_received_per_s, 100.0);
    }

    #[test]
    fn a_counter_that_begins_anew_has_no_negative_rate() {
        assert_eq!(per_second(100, 6, 2.0), 3.0);
        assert_eq!(per_second(1, 2, 0.0), 0.0);
        // Both samples are one: no rate is infinite.
        let one = sample(10.0, 100, 1.0);
        let idle = View::between(&one, &one);
        assert!(idle.operations.is_empty() && idle.operations_per_s.is_sign_positive());
    }
}
