//! What a command answers on standard output: words for people, or one JSON value for programs
//! (`--json`). Commands return their answer, and `main` tells it in one piece. A reader that goes
//! (`| head`, `| grep -q`) has had enough: that fails nothing.

use crate::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// See the module.
#[must_use = "`main` tells it"]
pub struct Answer {
    words: Vec<u8>,
    json: Option<String>,
    is_no: bool,
    then: Option<Box<dyn FnOnce() -> Result<(), Failure>>>,
}

impl Answer {
    /// `what`, which displays as people are told of it.
    pub fn of<T: Serialize + Display>(what: &T) -> Result<Answer, Failure> {
        Answer::told(what, what.to_string())
    }

    /// `what`, of which people are told in these words: lines, of which the last needs no end.
    pub fn told<T: Serialize + ?Sized>(what: &T, words: impl Into<String>) -> Result<Answer, Failure> {
        let mut words = words.into();
        if !words.is_empty() && !words.ends_with('\n') {
            words.push('\n');
        }
        Answer::bytes(what, words.into())
    }

    /// `what`, which without `--json` is these bytes as they are.
    pub fn bytes<T: Serialize + ?Sized>(what: &T, bytes: Vec<u8>) -> Result<Answer, Failure> {
        let json = Some(serde_json::to_string_pretty(what)? + "\n");
        Ok(Answer { json, ..Answer::only(bytes) })
    }

    /// Nothing: what there is to tell is told otherwise.
    pub fn nothing() -> Answer {
        Answer::only(Vec::new())
    }

    /// Bytes as they are, which nobody wants as JSON.
    pub fn only(bytes: Vec<u8>) -> Answer {
        Answer { words: bytes, json: None, is_no: false, then: None }
    }

    /// The exit status is 1 if this is so.
    pub fn no_if(self, no: bool) -> Answer {
        Answer { is_no: no, ..self }
    }

    /// What the command goes on with once its answer is told.
    pub fn then(self, goes_on: impl FnOnce() -> Result<(), Failure> + 'static) -> Answer {
        Answer { then: Some(Box::new(goes_on)), ..self }
    }

    /// Tells it, and does what is left to do.
    ///
    /// # Errors
    /// If there is no JSON of it, it cannot be written, or the rest fails.
    pub fn tell(self, json: bool) -> Result<ExitCode, Failure> {
        let told = match (json, self.json) {
            (false, _) => self.words,
            (true, Some(json)) => json.into(),
            (true, None) => return Err("what this command prints is no JSON: leave out --json".into()),
        };
        let told = put(&told);
        // A mount, for one, goes on though nobody could be told of it.
        self.then.map_or(Ok(()), |goes_on| goes_on())?;
        told?;
        Ok(if self.is_no { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Bytes as they are, now: for commands that speak a protocol.
pub fn put(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
