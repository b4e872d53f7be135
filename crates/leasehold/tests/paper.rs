//! The paper's experiments on processes and sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lease::Granularity;
use serde_json::Value;
use sim::paper;
use std::io::Write;
use std::process::{Command, Stdio};

fn leasehold(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args);
    command
}

#[test]
fn processes_count_what_the_simulation_counts() {
    let edited = paper::simulated(1, paper::EDITORS, Granularity::Fields, paper::file_field);
    let opened = paper::simulated(1, paper::OPENERS + 1, Granularity::Fields, paper::disjunctive);
    let (edited, opened) = (edited.unwrap(), opened.unwrap());
    let out = leasehold(&["bench", "paper", "--processes", "--json"]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let rows: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
    let counted: Vec<u64> = rows.iter().map(|row| row["measured"].as_u64().unwrap()).collect();
    assert_eq!(counted, [edited.fields, opened.grants, opened.recalls]);
}

#[test]
fn a_machine_refuses_orders_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = leasehold(&["bench", "paper-machine"]);
    command.arg(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut machine = command.spawn().unwrap();
    // Longer than any frame. The other end stays open, so only the length can end it.
    let mut orders = machine.stdin.take().unwrap();
    orders.write_all(&u32::MAX.to_be_bytes()).unwrap();
    let out = machine.wait_with_output().unwrap();
    drop(orders);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("a frame of 4294967295 bytes"), "{out:?}");
}
