//! A reader that closes the pipe early, as `| head` and `| grep -q` do, causes neither a panic nor
//! a failure.

use std::process::Command;

#[test]
fn a_reader_that_goes_fails_no_command() {
    let commands: [&[&str]; 4] = [
        &["simulate", "--seed", "0", "--steps", "5"],
        &["completions", "bash"],
        &["bench", "paper", "--only", "file-field"],
        &["bench", "paper", "--only", "file-field", "--json"],
    ];
    for command in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let out =
            Command::new(env!("CARGO_BIN_EXE_leasehold")).args(command).stdout(writer).output().unwrap();
        assert!(out.status.success(), "{command:?}: {out:?}");
        assert!(out.stderr.is_empty(), "{command:?}: {out:?}");
    }
}
