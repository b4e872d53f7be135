//! The files of the directory server, seen from outside: whether they are there.

use crate::error::{DataError, io};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The file that notes how far the log in `server/` is durable.
pub const MARK: &str = "server.mark";

/// Removes the state of the server in `dir`, and the mark of how far its log was durable.
pub fn remove_server(dir: &Path) -> Result<(), DataError> {
    let (server, mark) = (dir.join("server"), dir.join(MARK));
    let removed = [(&server, fs::remove_dir_all(&server)), (&mark, fs::remove_file(&mark))];
    for (file, removed) in removed {
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io("remove", file)(error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The missing part of `server/` in `dir`, of a machine whose server has been started.
pub fn lacks_server(dir: &Path) -> Option<String> {
    let server = dir.join("server");
    let is_empty = |file: &Path| fs::metadata(file).map_or(true, |it| it.is_file() && it.len() == 0);
    let has_log = || {
        let files = fs::read_dir(server.join("log")).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.path().extension().is_some_and(|kind| kind == "log"))
    };
    let (rows, log) = (is_empty(&server.join("rows")), !has_log());
    match (rows, log) {
        (true, true) => Some("server/".to_owned()),
        (true, false) => Some("server/rows".to_owned()),
        (false, true) => Some("server/log".to_owned()),
        (false, false) => None,
    }
}
