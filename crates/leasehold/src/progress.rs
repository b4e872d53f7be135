//! How far a command is, for people who look on.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::time::Duration;

/// How often the line moves, so that people see that something goes on.
const TICK: Duration = Duration::from_millis(120);

/// One line on standard error, if that is a terminal; gone when the command has its answer.
pub struct Progress(ProgressBar);

impl Progress {
    /// The line, which says nothing yet.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Progress(bar)
    }

    /// The line says this from now on.
    pub fn say(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A step that people may want to read later: a line that stays, on a terminal or not. That nobody
/// reads it is no reason to stop.
pub fn step(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
