//! Where a token comes from: the command line shows what is typed there to every user of the
//! machine (`ps`).

use crate::Failure;
use node::Token;
use std::fs::File;
use std::io::Read;

/// Bytes that are read where a token is expected.
const BYTES_MAX: u64 = 4096;

/// The token that `text` is; or that standard input has (`-`), or a file (`@FILE`).
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
