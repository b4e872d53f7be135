use super::*;
use std::collections::BTreeSet;

const BOARD: &str = include_str!("../../../../packaging/grafana/leasehold.json");
const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// A report of a server that has a value for each metric.
pub fn report() -> LiveReport {
    let json = r#"{
        "status": {
            "up": true, "version": "0.1.0", "machine": 1, "name": "first", "role": "leader",
            "leader": "first", "mounted_on": "/mnt", "operations_unsent": 2, "calls_waiting": [],
            "data": "/data", "process": 1, "uptime_s": 9, "files_known": 3,
            "dirty_bytes": 4, "salvaged": 1, "lacks_server": false, "quarantined": [], "listens": [],
            "link": {"server": "first:4470", "since_s": 5, "down": null},
            "version_in_use": {"cluster": 1, "known": 1, "older": [], "waits_for": []}, "files": 7, "sessions": 2, "sessions_lapsed": 1, "requests_waiting": 3,
            "unresponsive": [{"name": "bob", "unanswered_ms": 2500}], "space_total": 100, "space_free": 50, "applied": 10, "log_bytes": 11,
            "log_flushes": 12, "backlog_bytes": 13, "store_bytes": 14, "store_repaired": 0, "disk_full": false,
            "scrub": {"ended": 1, "bytes": 2, "shares_ended": 3, "shares_examined": 4, "found": 0, "damaged": 0},
            "shares": 15, "share_bytes": 16,
            "hosts": [{"machine": 1, "copies": {"kept": 1, "bytes": 9, "missing": 2, "fetching": 0, "leaving": 0, "hosts": 1, "complete": false}}],
            "hint": null, "messages_heard": 20, "messages_told": 21, "recalls": 5
        },
        "client": {"leases": 5, "recalls_received": 4},
        "activity": {
            "at_s": 9.0,
            "operations": [{"kind": "create", "door": "fuse", "count": 3, "seconds": 0.5}],
            "directories": [["/work", 3]]
        },
        "round_trips": [{"machine": 2, "connection": "group", "seconds": 0.25}]
    }"#;
    serde_json::from_str(json).unwrap()
}

/// The names as Prometheus knows them: three of a histogram.
fn names() -> BTreeSet<String> {
    let latencies = ["_bucket", "_sum", "_count"].map(|end| LATENCY.name.to_owned() + end);
    METRICS.iter().map(|metric| metric.name.to_owned()).chain(latencies).collect()
}

/// All names of our metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("leasehold_")).map(str::to_owned).collect()
}

/// The queries of a board, and of its variables.
fn queries(of: &serde_json::Value, found: &mut Vec<String>) {
    match of {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str().filter(|_| matches!(&**name, "expr" | "query")) {
                    Some(query) => found.push(query.to_owned()),
                    None => queries(field, found),
                }
            }
        }
        serde_json::Value::Array(fields) => fields.iter().for_each(|field| queries(field, found)),
        _ => {}
    }
}

/// Metrics that a board asks for and that do not exist.
fn unknown(board: &str) -> Vec<String> {
    let mut found = Vec::new();
    queries(&serde_json::from_str(board).unwrap(), &mut found);
    // A variable chooses the source of data, and is no query.
    found.retain(|query| query != "prometheus");
    assert!(found.iter().all(|query| !named(query).is_empty()), "a query of nothing: {found:?}");
    assert!(found.len() > 9, "{} queries", found.len());
    let asked: BTreeSet<String> = found.iter().flat_map(|query| named(query)).collect();
    asked.difference(&names()).cloned().collect()
}

#[test]
fn the_board_asks_for_what_there_is() {
    assert_eq!(unknown(BOARD), [""; 0]);
    let mutated = BOARD.replacen("leasehold_log_flushes_total", "leasehold_log_flushes", 1);
    assert_eq!(unknown(&mutated), ["leasehold_log_flushes"]);
}

#[test]
fn the_document_has_each_metric_and_no_other() {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: Vec<&str> = rows.collect();
    let listed: Vec<&str> = METRICS.iter().map(|metric| metric.name).chain([LATENCY.name]).collect();
    assert_eq!(documented, listed);
    for metric in METRICS {
        assert!(DOCUMENT.contains(metric.meaning), "{}: {}", metric.name, metric.meaning);
    }
}

#[test]
fn a_scrape_has_every_metric_with_its_type() {
    let text = exposition(&report());
    for metric in METRICS {
        let kind = if metric.kind == Type::Counter { "counter" } else { "gauge" };
        assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}: {text}", metric.name);
        assert!(text.contains(&format!("# HELP {} {}\n", metric.name, metric.meaning)), "{text}");
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Type::Counter, "{}", metric.name);
    }
    assert!(text.contains("leasehold_operations_total{kind=\"create\",door=\"fuse\"} 3\n"), "{text}");
    assert!(text.contains("leasehold_host_copies_missing{machine=\"1\"} 2\n"), "{text}");
    let round_trip = "leasehold_peer_round_trip_seconds{peer=\"2\",connection=\"group\"} 0.25\n";
    assert!(text.contains(round_trip), "{text}");
}

#[test]
fn what_a_machine_does_not_have_is_left_out() {
    let mut report = report();
    (report.status.server, report.status.link) = (None, None);
    let text = exposition(&report);
    assert!(text.contains("leasehold_client_leases 5\n") && !text.contains("leasehold_log"), "{text}");
}

#[test]
fn latencies_are_in_buckets() {
    let activity = Arc::new(Activity::new("fuse"));
    let handle = latencies(Some(&activity)).unwrap();
    drop(activity.begin(file_service::Kind::Open, || None));
    let text = handle.render();
    let line = "leasehold_operation_seconds_bucket{kind=\"open\",door=\"fuse\",le=\"+Inf\"} 1\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("leasehold_operation_seconds_count{kind=\"open\",door=\"fuse\"} 1\n"), "{text}");
}
