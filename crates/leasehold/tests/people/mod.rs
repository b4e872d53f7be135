//! What people do: type commands, and read answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes that does not hang.
pub const HANG: Duration = Duration::from_secs(120);

/// What the program answers to this command line, with nothing in its environment but a home.
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

/// All that it said.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A home whose machine ends with it, if a test that fails has left one.
pub struct Home(pub tempfile::TempDir);

impl Drop for Home {
    fn drop(&mut self) {
        leasehold(self.0.path(), &["down"]);
    }
}
