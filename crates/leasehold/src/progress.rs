//! The progress of a command, for people.

use crate::words::Words;
use admin::ControlProgress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

/// How often the line moves, so that people see progress.
const TICK: Duration = Duration::from_millis(120);

/// One line on standard error, if that is a terminal. It vanishes when the command has its answer.
pub struct Progress(ProgressBar);

impl Progress {
    /// Makes an empty line.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Progress(bar)
    }

    /// Sets the text of the line: how far the work is, in [`Words`].
    pub fn say<T>(&self, at: &T)
    where
        for<'a> Words<'a, T>: Display,
    {
        self.0.set_message(Words(at).to_string());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Prints a step that people may want to read later: a line that stays, on a terminal or not. A
/// failed write does not stop the command.
pub fn step(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints how far a machine is, as a [`step`].
pub fn step_of(at: &ControlProgress) {
    step(&Words(at).to_string());
}
