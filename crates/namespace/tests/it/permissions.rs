//! Permissions, as rows: mode bits, sticky and set-gid directories, chmod, chown, utimens.

use crate::situation::{Situation, rows};
use crate::tree::at;
use namespace::{Attributes, Operation, operation};

#[test]
fn mode_bits() {
    rows(
        "d  drwxrwx--x 1:10
         d/f -rw-r----- 1:10
         u  d---rwxrwx 1:10
         g  drwx---rwx 1:10
         n  drw-rw-rw- 2:20
         n/f -rwxrwxrwx 2:20
         x  -rw-r--r-- 1:10
         y  -rw-r----x 1:10",
        "0:0    lookup d/f          -> ok
         1:1    lookup d/f          -> ok
         3:3    lookup d/f          -> ok
         3:3    lookup d/nothing    -> NotFound
         1:10   lookup u/nothing    -> AccessDenied
         3:10   lookup u/nothing    -> NotFound
         3:10   lookup g/nothing    -> AccessDenied
         3:3,10 lookup g/nothing    -> AccessDenied
         3:3    lookup g/nothing    -> NotFound
         2:20   lookup n/f          -> AccessDenied
         3:3    lookup n/f          -> AccessDenied
         3:3    lookup x/f          -> NotDirectory
         0:0    access rw. x        -> ok
         0:0    access ..x x        -> AccessDenied
         0:0    access ..x y        -> ok
         0:0    access rwx n        -> ok
         1:10   access rw. x        -> ok
         1:10   access ..x y        -> AccessDenied
         3:10   access r.. x        -> ok
         3:10   access .w. x        -> AccessDenied
         3:3    access r.x y        -> AccessDenied
         3:3    access ... u        -> ok
         1:1    create 644 0 d/new  -> ok
         3:10   create 644 0 d/new  -> ok
         3:3,10 create 644 0 d/new  -> ok
         3:3    create 644 0 d/new  -> AccessDenied
         3:3    create 644 0 d/f    -> Exists
         3:3    mkdir  755 0 u/new  -> ok
         1:1    mkdir  755 0 u/new  -> AccessDenied
         3:3    create 644 0 x/new  -> NotDirectory
         3:3    unlink d/f          -> AccessDenied
         3:3    unlink d/nothing    -> NotFound
         3:10   unlink d/f          -> ok; d/f gone
         2:2    unlink n/f          -> AccessDenied
         3:3    link x d/new        -> AccessDenied
         3:3    link x d/f          -> Exists
         3:10   link x d/new        -> ok; d/new is x; x links 2",
    );
}

#[test]
fn only_root_makes_devices() {
    rows(
        ". drwxrwxrwx 0:0",
        "1:1 chardev  644 0 c -> NotPermitted
         1:1 blockdev 644 0 c -> NotPermitted
         1:1 whiteout 644 0 c -> ok; c crw-r--r-- 1:1
         0:0 chardev  644 0 c -> ok; c crw-r--r-- 0:0
         1:1 mkfifo   644 0 c -> ok; c prw-r--r-- 1:1
         1:1 socket   755 0 c -> ok; c srwxr-xr-x 1:1",
    );
}

/// Removal of `file` from a sticky directory that all users may write. Only the sticky bit refuses,
/// and with another error.
#[test]
fn sticky_directories() {
    rows(
        "t   drwxrwxrwt 1:10
         t/f -rw-rw-rw- 2:20
         t/d drwxrwxrwx 2:20
         t/g -rw-rw-rw- 3:30
         o   drwxrwxrwx 0:0
         o/f -rw-rw-rw- 2:20
         o/d drwxrwxrwx 2:20",
        "0:0  unlink t/f           -> ok
         1:10 unlink t/f           -> ok
         2:2  unlink t/f           -> ok
         3:20 unlink t/f           -> NotPermitted
         3:3  unlink t/d           -> NotPermitted
         3:3  unlink t/nothing     -> NotFound
         3:3  rmdir  t/d           -> NotPermitted
         2:2  rmdir  t/d           -> ok
         3:3  rmdir  t/f           -> NotPermitted
         2:2  rmdir  t/f           -> NotDirectory
         3:3  rename t/f t/x       -> NotPermitted
         2:2  rename t/f t/x       -> ok; t/x is t/f
         3:3  rename t/f o/x       -> NotPermitted
         3:3  rename o/f t/x       -> ok
         3:3  rename o/f t/f       -> NotPermitted
         2:2  rename o/f t/f       -> ok; t/f is o/f
         1:1  rename o/f t/f       -> ok
         3:3  rename o/f t/g       -> ok
         3:3  rename t/g t/f       -> NotPermitted
         2:2  rename t/f t/g       -> NotPermitted
         3:3  exchange t/g t/f     -> NotPermitted
         1:1  exchange t/g t/f     -> ok
         3:3  exchange o/f t/f     -> NotPermitted
         3:3  exchange o/d t/g     -> ok; t/g is o/d
         3:3  noreplace t/f t/g    -> Exists
         3:3  link t/f t/x         -> ok
         3:3  create 644 0 t/x     -> ok",
    );
}

#[test]
fn set_gid_directories_pass_their_group_on() {
    rows(
        "s drwxrwsrwx 1:10
         p drwxrwxrwx 1:10",
        "2:20    create  644 022 s/x -> ok; s/x -rw-r--r-- 2:10
         2:20    mkdir   777 022 s/x -> ok; s/x drwxr-sr-x 2:10
         2:20    symlink 0   022 s/x -> ok; s/x lrwxrwxrwx 2:10
         2:20    create  644 022 p/x -> ok; p/x -rw-r--r-- 2:20
         2:20    mkdir  7777 022 p/x -> ok; p/x drwxr-xr-t 2:20
         2:20    mkdir  6777 022 p/x -> ok; p/x drwxr-xr-x 2:20
         2:20    create 2755   0 s/x -> ok; s/x -rwxr-xr-x 2:10
         2:20,10 create 2755   0 s/x -> ok; s/x -rwxr-sr-x 2:10
         0:0     create 2755   0 s/x -> ok; s/x -rwxr-sr-x 0:10
         2:20    create 2744   0 s/x -> ok; s/x -rwxr-Sr-- 2:10
         2:20    create 2755 010 s/x -> ok; s/x -rwxr--r-x 2:10
         2:20    create 2755   0 p/x -> ok; p/x -rwxr-sr-x 2:20
         2:20    create 4777 077 p/x -> ok; p/x -rws------ 2:20",
    );
}

#[test]
fn chmod() {
    rows(
        "f -rw-r--r-- 1:10
         d drwxr-xr-x 1:10
         l lrwxrwxrwx 1:10",
        "1:10   chmod 4755 f -> ok; f -rwsr-xr-x 1:10
         1:10   chmod 2755 f -> ok; f -rwxr-sr-x 1:10
         1:3    chmod 2755 f -> ok; f -rwxr-xr-x 1:10
         1:3    chmod 2755 d -> ok; d drwxr-xr-x 1:10
         1:3,10 chmod 2755 d -> ok; d drwxr-sr-x 1:10
         0:0    chmod 2755 f -> ok; f -rwxr-sr-x 1:10
         1:10   chmod 1644 f -> ok; f -rw-r--r-T 1:10
         2:10   chmod 644  f -> NotPermitted
         1:10   chmod 644  l -> NotSupported
         1:10   chmod 0    f -> ok; f ---------- 1:10",
    );
}

#[test]
fn chown() {
    rows(
        "f -rw-r--r-- 1:10
         s -rwsr-sr-x 1:10
         n -rwSr-Sr-- 1:10
         d drwsrwsr-x 1:10",
        "0:0     chown 2:20 f -> ok; f -rw-r--r-- 2:20
         1:10    chown 2:-  f -> NotPermitted
         1:10    chown 1:-  f -> ok; f -rw-r--r-- 1:10
         1:10    chown -:20 f -> NotPermitted
         1:10,20 chown -:20 f -> ok; f -rw-r--r-- 1:20
         1:20    chown -:20 f -> ok; f -rw-r--r-- 1:20
         1:3     chown 1:10 f -> ok
         2:10,20 chown -:20 f -> NotPermitted
         2:10    chown 1:10 f -> NotPermitted
         2:10    chown -:10 f -> NotPermitted
         2:20    chown -:-  f -> ok
         0:0     chown 2:20 s -> ok; s -rwxr-xr-x 2:20
         1:10    chown 1:10 s -> ok; s -rwxr-xr-x 1:10
         1:10    chown 1:10 n -> ok; n -rw-r-Sr-- 1:10
         1:3     chown 1:10 n -> ok; n -rw-r--r-- 1:10
         0:0     chown 2:20 n -> ok; n -rw-r-Sr-- 2:20
         1:10    chown 1:10 d -> ok; d drwsrwsr-x 1:10",
    );
}

#[test]
fn utimens() {
    rows(
        "f -rw-rw-r-- 1:10
         d drwxr-xr-x 1:10
         l lrwxrwxrwx 1:10",
        "1:10 utimens now now f -> ok
         2:10 utimens now now f -> ok
         2:20 utimens now now f -> AccessDenied
         0:0  utimens now now f -> ok
         2:10 utimens now -   f -> NotPermitted
         2:10 utimens now 5   f -> NotPermitted
         2:10 utimens 5   5   f -> NotPermitted
         2:20 utimens 5   -   f -> NotPermitted
         2:20 utimens -   -   f -> ok
         1:10 utimens 5   7   f -> ok
         2:20 utimens now now d -> AccessDenied
         2:20 utimens -   5   d -> NotPermitted
         0:0  utimens 5   5   l -> ok
         2:20 utimens 5   5   l -> NotPermitted",
    );
}

#[test]
fn what_utimens_sets() {
    let mut s = Situation::new("f -rw-r--r-- 1:10\n d drwxr-xr-x 1:10");
    s.run_text("1:10 utimens 5 - f").unwrap();
    let f = s.file("f");
    assert_eq!((f.attributes.atime, f.attributes.ctime, f.content.mtime), (at(5), at(1000), at(0)));
    let attributes = f.attributes;
    s.run_text("1:10 utimens - 7 f").unwrap();
    let f = s.file("f");
    assert_eq!((f.content.mtime, f.content.ctime, f.content.version), (at(7), at(1000), 0));
    assert_eq!(f.attributes, Attributes { ..attributes }, "attributes are another field");
    s.run_text("1:10 utimens - 7 d").unwrap();
    let times = s.file("d").times;
    assert_eq!((times.mtime, times.ctime, times.generation), (at(7), at(1000), 1));
    let (file, before) = (s.id("f"), (s.file("f").attributes, s.file("f").content));
    s.run(&Operation::Accessed(operation::Accessed { file: file.clone(), time: at(2000) })).unwrap();
    s.run(&Operation::Accessed(operation::Accessed { file, time: at(1500) })).unwrap();
    let attributes = Attributes { atime: at(2000), ..before.0 };
    assert_eq!((s.file("f").attributes, s.file("f").content), (attributes, before.1), "never backwards");
    // A later touch goes on from there, and the generation does not bind it.
    s.run_text("0:0 create 644 0 d/x").unwrap();
    assert_eq!(s.file("d").times.mtime, at(1000));
}
