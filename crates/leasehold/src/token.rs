//! Sources of a token. Every user of the machine can read the command line (`ps`), so a token may
//! also come from a file or from standard input.

use crate::Failure;
use node::Token;
use std::fs::File;
use std::io::Read;

/// Bytes that are read of a token, at most.
const BYTES_MAX: u64 = 4096;

/// Returns the token that `text` is, that standard input has (`-`), or that a file has (`@FILE`).
///
/// # Errors
/// If there is none, or the file cannot be read.
pub fn token(text: &str) -> Result<Token, Failure> {
    let mut read = String::new();
    let text = match text.strip_prefix('@') {
        None if text == "-" => {
            std::io::stdin().take(BYTES_MAX).read_to_string(&mut read)?;
            &read
        }
        None => text,
        Some(file) => {
            let failed = |error| format!("cannot read the token in {file}: {error}");
            File::open(file)
                .and_then(|file| file.take(BYTES_MAX).read_to_string(&mut read))
                .map_err(failed)?;
            &read
        }
    };
    Ok(text.parse()?)
}
