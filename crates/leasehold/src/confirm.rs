//! Confirmation before a command does something that cannot be undone.

use crate::Failure;
use clap::Args;
use std::io::{BufRead, IsTerminal, Write};

/// For commands that ask back.
#[derive(Debug, Args)]
pub struct Confirm {
    /// Do not ask back. Without a terminal nobody is asked.
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Confirm {
    /// Asks at the terminal, and goes on if the answer is yes or there is no terminal.
    ///
    /// # Errors
    /// The answer was no.
    pub fn ask(&self, what: &str) -> Result<(), Failure> {
        let (input, mut out) = (std::io::stdin(), std::io::stderr());
        if self.yes || !input.is_terminal() || !out.is_terminal() {
            return Ok(());
        }
        write!(out, "{what} Go on? [y/N] ")?;
        out.flush()?;
        let mut answer = String::new();
        input.lock().read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err("nothing was done".into()),
        }
    }

    /// Whether `--yes` was given.
    pub fn is_given(&self) -> bool {
        self.yes
    }
}
