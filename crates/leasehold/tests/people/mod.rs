//! Actions of people: typing commands, and reading answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any command takes that does not hang.
pub const HANG: Duration = Duration::from_secs(120);

/// Runs this command line, with only a home in its environment. Returns the output.
pub fn leasehold(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).env("HOME", home).env_remove("XDG_DATA_HOME").env_remove("LEASEHOLD_DATA");
    command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > HANG {
            child.kill().unwrap();
            panic!("hangs: {args:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Returns all output.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A home directory. Dropping it ends its machine, if a failed test has left one.
pub struct Home(pub tempfile::TempDir);

impl Drop for Home {
    fn drop(&mut self) {
        leasehold(self.0.path(), &["down"]);
    }
}
