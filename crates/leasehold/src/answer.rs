//! The answer of a command on standard output: words for people, or one JSON value for programs
//! (`--json`). Commands return their answer, and `main` writes it in one piece. A reader that
//! closes the pipe early (`| head`, `| grep -q`) makes no command fail.

use crate::Failure;
use crate::words::Words;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// A command's answer, and how it ends.
#[must_use = "`main` tells it"]
pub struct Answer {
    words: Vec<u8>,
    json: Option<String>,
    is_no: bool,
    then: Option<Box<dyn FnOnce() -> Result<(), Failure>>>,
}

impl Answer {
    /// Answers with `what`, in the words of its `Display`.
    pub fn of<T: Serialize + Display>(what: &T) -> Result<Answer, Failure> {
        Answer::told(what, what.to_string())
    }

    /// Answers with a machine's report, in [`Words`].
    pub fn report<T: Serialize>(what: &T) -> Result<Answer, Failure>
    where
        for<'a> Words<'a, T>: Display,
    {
        Answer::told(what, Words(what).to_string())
    }

    /// Answers with `what`, in these words for people. The last line needs no end.
    pub fn told<T: Serialize + ?Sized>(what: &T, words: impl Into<String>) -> Result<Answer, Failure> {
        let mut words = words.into();
        if !words.is_empty() && !words.ends_with('\n') {
            words.push('\n');
        }
        Answer::bytes(what, words.into())
    }

    /// Answers with `what`. Without `--json` that is these bytes, unchanged.
    pub fn bytes<T: Serialize + ?Sized>(what: &T, bytes: Vec<u8>) -> Result<Answer, Failure> {
        let json = Some(serde_json::to_string_pretty(what)? + "\n");
        Ok(Answer { json, ..Answer::only(bytes) })
    }

    /// Answers nothing: the command writes its output itself.
    pub fn nothing() -> Answer {
        Answer::only(Vec::new())
    }

    /// Answers with bytes, unchanged. With `--json` that is an error.
    pub fn only(bytes: Vec<u8>) -> Answer {
        Answer { words: bytes, json: None, is_no: false, then: None }
    }

    /// Sets the exit status to 1, if `no`.
    pub fn no_if(self, no: bool) -> Answer {
        Answer { is_no: no, ..self }
    }

    /// Sets the rest of the command, which runs after its answer is written.
    pub fn then(self, goes_on: impl FnOnce() -> Result<(), Failure> + 'static) -> Answer {
        Answer { then: Some(Box::new(goes_on)), ..self }
    }

    /// Writes the answer, and does the rest of the command.
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
        // A mount, for one, goes on though its answer could not be written.
        self.then.map_or(Ok(()), |goes_on| goes_on())?;
        told?;
        Ok(if self.is_no { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Writes bytes at once, unchanged: for commands that speak a protocol.
pub fn put(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
