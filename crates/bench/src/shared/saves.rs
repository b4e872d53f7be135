//! Two machines that save files in one directory at once, as editors do. Each save is read back.

use super::repeat::again_and_again;
use super::row::SharedRow;
use super::{Dirs, Pair, wrong};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// Five times the rate of the best coherent peer on this machine (reference/measured-limits.md:
/// MooseFS, 780).
const LEAST: f64 = 5.0 * 780.0;
/// Bytes of a file.
const BYTES: usize = 1024;

/// How an editor saves.
#[derive(Clone, Copy)]
enum Editor {
    /// Writes a new file and renames it.
    Rename,
    /// As Emacs does: it makes a lock, renames the old content to a backup, and syncs the new file.
    Emacs,
}

impl Pair {
    /// Measures saves: each machine saves a file of its own.
    pub(super) fn saves(&self, time: Duration, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
        let (by_rename, floor) =
            self.measure("save", tell, |_| Ok(()), |dirs| saves(dirs, Editor::Rename, time))?;
        let rename = SharedRow::between("save by rename, two machines", &by_rename).beside(floor);
        let (as_emacs, floor) =
            self.measure("save as Emacs", tell, |_| Ok(()), |dirs| saves(dirs, Editor::Emacs, time))?;
        let emacs = SharedRow::between("save as Emacs, with fsync, two machines", &as_emacs).beside(floor);
        Ok(vec![rename.rate_bar(LEAST, "5 of MooseFS"), emacs])
    }
}

fn saves(dirs: &Dirs, editor: Editor, time: Duration) -> io::Result<u64> {
    let edit = |dir: &Path, name: &str| {
        again_and_again(time, |turn| {
            editor.save(dir, name, &text(name, turn))?;
            sees(dir, name, turn)
        })
    };
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| edit(&dirs.one, "one"));
        let other = edit(&dirs.other, "other");
        Ok::<_, io::Error>((one.join().map_err(|_| io::Error::other("a thread failed"))??, other?))
    })?;
    if dirs.shared {
        sees(&dirs.other, "one", one - 1)?;
        sees(&dirs.one, "other", other - 1)?;
    }
    Ok(one + other)
}

impl Editor {
    fn save(self, dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
        let file = dir.join(name);
        match self {
            Editor::Rename => {
                let new = dir.join(format!(".{name}.new"));
                fs::write(&new, text)?;
                fs::rename(&new, &file)
            }
            Editor::Emacs => {
                let lock = dir.join(format!(".#{name}"));
                symlink(format!("user@{name}.1"), &lock)?;
                if file.exists() {
                    fs::rename(&file, dir.join(format!("{name}~")))?;
                }
                let mut new = File::create_new(&file)?;
                new.write_all(text)?;
                new.sync_all()?;
                drop(new);
                fs::set_permissions(&file, Permissions::from_mode(0o644))?;
                fs::remove_file(&lock)
            }
        }
    }
}

/// Checks that the saved content is there.
fn sees(dir: &Path, name: &str, turn: u64) -> io::Result<()> {
    match fs::read(dir.join(name))? == text(name, turn) {
        true => Ok(()),
        false => Err(wrong(format!("save {turn} of {name} is not what is there"))),
    }
}

fn text(name: &str, turn: u64) -> Vec<u8> {
    let mut text = format!("{turn} of {name}\n").into_bytes();
    text.resize(BYTES, b'.');
    text
}
