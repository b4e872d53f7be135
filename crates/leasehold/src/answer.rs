//! What commands say on standard output, each answer in one piece. Whoever reads it and goes
//! (`| head`, `| grep -q`) has had enough: that fails nothing.

use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Says it, with a line's end if it has none.
pub fn say(answer: impl Display) -> io::Result<()> {
    let mut text = answer.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    put(text.as_bytes())
}

/// Says each on a line; nothing, if there are none.
pub fn lines<T: Display>(answers: impl IntoIterator<Item = T>) -> io::Result<()> {
    let text: String = answers.into_iter().map(|answer| format!("{answer}\n")).collect();
    put(text.as_bytes())
}

/// Says it as JSON if that is asked for, otherwise as `text` puts it.
pub fn answer<T: Serialize + ?Sized>(
    json: bool,
    what: &T,
    text: impl FnOnce(&T) -> String,
) -> io::Result<()> {
    if json { say(serde_json::to_string_pretty(what)?) } else { put(text(what).as_bytes()) }
}

/// Bytes as they are.
pub fn put(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
