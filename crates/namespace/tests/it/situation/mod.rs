//! Situations, operations and outcomes as rows of text.
//!
//! A situation has a line for each file: path, mode as `ls` prints it, owner and group, and for a
//! further link `= path`. The root is `.`, with mode 0755 and owner root unless the situation says
//! otherwise.
//!
//! A row is `asker operation -> outcome; what holds afterwards; ...`. The asker is
//! `uid:gid,gid...+CAPABILITY+CAPABILITY...`. The part "what holds afterwards" is
//! `path mode owner:group`, `path links n`, `path is path` (as it was before), or `path gone`.
//!
//! The rows were also run on ext4 and tmpfs of Linux 6.18. They give the same results, except for
//! the kernel's own decisions. The kernel follows symbolic links on the way, and may refuse links
//! to other users' files (fs.protected_hardlinks).

use crate::tree::{File, Tree, at, decide_proved};
use ident::FileId;
use lease::Label;
use namespace::*;
use std::collections::BTreeMap;

/// The time of every operation; files are older.
pub const NOW: i64 = 1000;

#[derive(Clone)]
pub struct Situation {
    pub tree: Tree,
    next: u64,
}

impl Situation {
    pub fn new(text: &str) -> Situation {
        let mut situation = Situation { tree: Tree::new(attributes("drwxr-xr-x", "0:0", 1)), next: 100 };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            situation.add(&line.split_whitespace().collect::<Vec<_>>());
        }
        situation.tree.check();
        situation
    }

    fn add(&mut self, line: &[&str]) {
        let (id, made) = match line {
            [".", mode, owner] => {
                self.tree.files.get_mut(&FileId::root()).unwrap().attributes = attributes(mode, owner, 1);
                return;
            }
            [_, "=", other] => {
                let id = self.id(other);
                self.tree.files.get_mut(&id).unwrap().attributes.links += 1;
                (id, None)
            }
            [_, mode, owner] => {
                let ino = self.number();
                let file = File {
                    attributes: attributes(mode, owner, ino),
                    content: ContentHead::default(),
                    inline: Vec::new(),
                    times: Times::default(),
                    links: Links::new(),
                    disposition: None,
                    children: BTreeMap::new(),
                    xattrs: BTreeMap::new(),
                    locks: Default::default(),
                };
                (FileId::root().child(ino), Some(file))
            }
            _ => panic!("{line:?}"),
        };
        if let Some(file) = made {
            self.tree.files.insert(id.clone(), file);
        }
        let (dir, label) = self.place(line[0]);
        let Attributes { kind, ino, .. } = self.tree.files[&id].attributes;
        let entry = Entry { file: id.clone(), kind, ino, position: self.number() };
        self.tree.apply(&Effect::AddLink { file: id, link: Link { dir: dir.clone(), label: label.clone() } });
        self.tree.apply(&Effect::Bind { dir, label, entry });
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn find(&self, path: &str) -> Option<FileId> {
        if path == "." {
            return Some(FileId::root());
        }
        path.split('/').try_fold(FileId::root(), |dir, label| {
            let entry = self.tree.files[&dir].children.get(label.as_bytes())?;
            Some(entry.file.clone())
        })
    }

    pub fn id(&self, path: &str) -> FileId {
        self.find(path).unwrap_or_else(|| panic!("no {path}"))
    }

    pub fn file(&self, path: &str) -> &File {
        &self.tree.files[&self.id(path)]
    }

    /// Directory and label of a path.
    fn place(&self, path: &str) -> (FileId, Label) {
        let (dir, label) = path.rsplit_once('/').unwrap_or((".", path));
        (self.id(dir), Label::new(label.as_bytes()).unwrap())
    }

    pub fn run(&mut self, operation: &Operation) -> Result<Answer, Error> {
        match decide_proved(&self.tree, operation) {
            Verdict::Done { answer, effects } => {
                for effect in &effects {
                    self.tree.apply(effect);
                }
                self.tree.check();
                Ok(answer)
            }
            Verdict::Refused { error, .. } => Err(error),
            Verdict::Unknown { .. } => unreachable!("the tree knows everything"),
        }
    }

    /// Parses and runs `asker operation`.
    pub fn run_text(&mut self, text: &str) -> Result<Answer, Error> {
        let operation = self.operation(&text.split_whitespace().collect::<Vec<_>>());
        self.run(&operation)
    }

    pub fn operation(&mut self, words: &[&str]) -> Operation {
        let (cred, time, position) = (cred(words[0]), at(NOW), self.number());
        match words[1..] {
            ["lookup", path] => {
                let (dir, label) = self.place(path);
                Operation::Lookup(operation::Lookup { dir, label, cred })
            }
            ["access", mask, path] => Operation::Access(operation::Access {
                file: self.id(path),
                mask: bits(&mask.replace('.', "-")) as u8,
                cred,
            }),
            ["link", old, new] => {
                let (dir, label) = self.place(new);
                Operation::Link(operation::Link {
                    file: self.id(old),
                    dir,
                    label,
                    position,
                    cred,
                    time,
                    replaced: None,
                    open: false,
                })
            }
            [verb @ ("unlink" | "rmdir"), path, ref open @ ..] => {
                let (dir, label) = self.place(path);
                Operation::Unlink(operation::Unlink {
                    dir,
                    label,
                    directory: verb == "rmdir",
                    open: open == ["open"],
                    cred,
                    time,
                    pending: None,
                })
            }
            [verb @ ("rename" | "leave" | "exchange" | "noreplace"), from, to, ref open @ ..] => {
                let mode = match verb {
                    "rename" | "leave" => RenameMode::Replace,
                    "exchange" => RenameMode::Exchange,
                    _ => RenameMode::NoReplace,
                };
                let whiteout =
                    (verb == "leave").then(|| Whiteout { integer: self.number(), ino: self.number() });
                let ((from_dir, from), (to_dir, to), open) =
                    (self.place(from), self.place(to), open == ["open"]);
                Operation::Rename(operation::Rename {
                    from_dir,
                    from,
                    to_dir,
                    to,
                    mode,
                    position,
                    whiteout,
                    open,
                    cred,
                    time,
                    source: None,
                    replaced: None,
                })
            }
            ["chmod", mode, path] => self.set(path, cred, |change| change.mode = Some(octal(mode))),
            ["chown", owner, path] => self.set(path, cred, |change| {
                let (uid, gid) = owner.split_once(':').unwrap();
                (change.uid, change.gid) = (uid.parse().ok(), gid.parse().ok());
                change.keeps_owner = owner == "-:-";
            }),
            ["utimens", atime, mtime, path] => self.set(path, cred, |change| {
                (change.atime, change.mtime) = (set_time(atime), set_time(mtime));
            }),
            ["setxattr", name, value, path] => {
                self.set_xattr(name, value.as_bytes(), XattrMode::Set, path, words[0])
            }
            ["getxattr", name, path] => {
                Operation::GetXattr(operation::GetXattr { file: self.id(path), name: name_of(name), cred })
            }
            ["removexattr", name, path] => Operation::RemoveXattr(operation::RemoveXattr {
                file: self.id(path),
                name: name_of(name),
                cred,
                time,
            }),
            [verb, mode, umask, path] => {
                let (dir, label) = self.place(path);
                let new = new_file(&dir, verb, octal(mode), octal(umask), position);
                Operation::Create(operation::Create { dir, label, position, new, cred, time })
            }
            _ => panic!("{words:?}"),
        }
    }

    fn set(&self, path: &str, cred: Cred, set: impl FnOnce(&mut AttributeChange)) -> Operation {
        let mut change = AttributeChange::default();
        set(&mut change);
        Operation::SetAttributes(operation::SetAttributes {
            file: self.id(path),
            change,
            cred,
            time: at(NOW),
        })
    }

    pub fn set_xattr(&self, name: &str, value: &[u8], mode: XattrMode, path: &str, asker: &str) -> Operation {
        let (file, name, value) = (self.id(path), name_of(name), value.to_vec());
        Operation::SetXattr(operation::SetXattr { file, name, value, mode, cred: cred(asker), time: at(NOW) })
    }
}

fn name_of(name: &str) -> Label {
    Label::attribute(name.as_bytes()).unwrap()
}

/// Runs each row on a fresh copy of the situation.
pub fn rows(situation: &str, rows: &str) {
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let mut after = Situation::new(situation);
        let before = Situation::new(situation);
        let (question, outcome) = row.split_once(" -> ").unwrap_or_else(|| panic!("{row}"));
        let mut outcome = outcome.split(';').map(str::trim);
        let got = match after.run_text(question) {
            Ok(_) => "ok".to_owned(),
            Err(error) => {
                assert_eq!(after.tree, before.tree, "{row}");
                format!("{error:?}")
            }
        };
        assert_eq!(got, outcome.next().unwrap(), "{row}");
        for claim in outcome {
            assert!(holds(&before, &after, claim), "{row}: {claim}, but {:#?}", after.tree);
        }
    }
}

pub fn holds(before: &Situation, after: &Situation, claim: &str) -> bool {
    match claim.split_whitespace().collect::<Vec<_>>()[..] {
        [path, "gone"] => after.find(path).is_none(),
        [path, "links", n] => after.file(path).attributes.links == n.parse::<u32>().unwrap(),
        [path, "is", old] => after.find(path) == Some(before.id(old)),
        [path, "dead"] => !after.tree.files.contains_key(&before.id(path)),
        [path, "orphaned"] => after.tree.files[&before.id(path)].attributes.links == 0,
        [path, mode, owner] => {
            let wanted = attributes(mode, owner, 0);
            let Attributes { kind, mode, uid, gid, .. } = after.file(path).attributes;
            (kind, mode, uid, gid) == (wanted.kind, wanted.mode, wanted.uid, wanted.gid)
        }
        _ => panic!("{claim}"),
    }
}

/// Attributes from the form of `ls -l`.
fn attributes(text: &str, owner: &str, ino: u64) -> Attributes {
    let kind = match text.as_bytes()[0] {
        b'd' => FileKind::Directory,
        b'l' => FileKind::Symlink,
        b'p' => FileKind::Fifo,
        b'c' => FileKind::CharDevice,
        b'b' => FileKind::BlockDevice,
        b's' => FileKind::Socket,
        _ => FileKind::Regular,
    };
    let (user, group, other) = (&text[1..4], &text[4..7], &text[7..10]);
    let mut mode = bits(user) << 6 | bits(group) << 3 | bits(other);
    for (part, bit) in [(user, 0o4000), (group, 0o2000), (other, 0o1000)] {
        if part.ends_with(['s', 'S', 't', 'T']) {
            mode |= bit;
        }
    }
    let (uid, gid) = owner.split_once(':').unwrap();
    Attributes {
        kind,
        mode,
        uid: uid.parse().unwrap(),
        gid: gid.parse().unwrap(),
        links: 1,
        ino,
        rdev: 0,
        ctime: at(10),
        btime: at(10),
        atime: at(10),
    }
}

/// `rwx`, or any part of it.
fn bits(text: &str) -> u16 {
    text.chars()
        .map(|c| match c {
            'r' => 4,
            'w' => 2,
            'x' | 's' | 't' => 1,
            _ => 0,
        })
        .sum()
}

pub fn cred(text: &str) -> Cred {
    let (uid, groups) = text.split_once(':').unwrap();
    let mut groups = groups.split('+');
    let gids: Vec<u32> = groups.next().unwrap().split(',').map(|gid| gid.parse().unwrap()).collect();
    let capabilities = groups.fold(Capabilities::NONE, |some, name| some.with(capability(name)));
    Cred { uid: uid.parse().unwrap(), gid: gids[0], groups: gids[1..].into(), capabilities }
}

fn capability(name: &str) -> Capability {
    match name {
        "CHOWN" => Capability::Chown,
        "DAC_OVERRIDE" => Capability::DacOverride,
        "DAC_READ_SEARCH" => Capability::DacReadSearch,
        "FOWNER" => Capability::Fowner,
        "FSETID" => Capability::Fsetid,
        "SYS_ADMIN" => Capability::SysAdmin,
        "MKNOD" => Capability::Mknod,
        "SETFCAP" => Capability::Setfcap,
        _ => panic!("{name}"),
    }
}

fn octal(text: &str) -> u16 {
    u16::from_str_radix(text, 8).unwrap()
}

fn set_time(text: &str) -> Option<SetTime> {
    match text {
        "now" => Some(SetTime::Now),
        "-" => None,
        secs => Some(SetTime::At(at(secs.parse().unwrap()))),
    }
}

fn new_file(dir: &FileId, verb: &str, mode: u16, umask: u16, n: u64) -> NewFile {
    let (kind, rdev) = match verb {
        "create" => (FileKind::Regular, 0),
        "mkdir" => (FileKind::Directory, 0),
        "symlink" => (FileKind::Symlink, 0),
        "mkfifo" => (FileKind::Fifo, 0),
        "socket" => (FileKind::Socket, 0),
        "chardev" => (FileKind::CharDevice, 0x103),
        "whiteout" => (FileKind::CharDevice, 0),
        "blockdev" => (FileKind::BlockDevice, 0x801),
        _ => panic!("{verb}"),
    };
    let target = if kind == FileKind::Symlink { b"target".to_vec() } else { Vec::new() };
    NewFile { file: FileId::for_child(dir, n, n), ino: n, spec: FileSpec { kind, mode, umask, rdev, target } }
}
