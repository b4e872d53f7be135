//! Operations that mean a file, whatever has the name by now: unlink, rename and link.

use crate::situation::Situation;
use ident::FileId;
use namespace::{Answer, Error, Link, Operation, Replaced, Verdict, decide, operation};

const FILES: &str = "
    . drwxrwxrwx 0:0
    d drwxrwxrwx 1:1
    d/f -rw-rw-rw- 1:1
    d/g -rw-rw-rw- 1:1
    d/Name -rw-rw-rw- 1:1
    e drwxrwxrwx 1:1
";

fn label(text: &str) -> lease::Label {
    lease::Label::new(text.as_bytes()).unwrap()
}

/// The operation, with these changes.
fn unlink(s: &mut Situation, text: &str, file: &str) -> Operation {
    match s.operation(&text.split_whitespace().collect::<Vec<_>>()) {
        Operation::Unlink(unlink) => {
            Operation::Unlink(operation::Unlink { pending: Some(s.id(file)), ..unlink })
        }
        other => panic!("{other:?}"),
    }
}

fn deletion(file: &FileId, link: Option<Link>) -> Operation {
    let own = lease::OpenModes::with([lease::Mode::AccessDelete]);
    let (file, cred, time) = (file.clone(), crate::situation::cred("1:1"), crate::tree::at(9));
    Operation::SetDisposition(operation::SetDisposition { file, link, own, cred, time })
}

fn rename(s: &mut Situation, text: &str, source: Option<&str>, replaced: Option<(&str, &str)>) -> Operation {
    let (source, replaced) = (source.map(|source| s.id(source)), replaced.map(|it| self::replaced(s, it)));
    match s.operation(&text.split_whitespace().collect::<Vec<_>>()) {
        Operation::Rename(rename) => Operation::Rename(operation::Rename { source, replaced, ..rename }),
        other => panic!("{other:?}"),
    }
}

fn link(s: &mut Situation, text: &str, replaced: (&str, &str)) -> Operation {
    let replaced = Some(self::replaced(s, replaced));
    match s.operation(&text.split_whitespace().collect::<Vec<_>>()) {
        Operation::Link(link) => Operation::Link(operation::Link { replaced, ..link }),
        other => panic!("{other:?}"),
    }
}

fn replaced(s: &Situation, (name, file): (&str, &str)) -> Box<Replaced> {
    Box::new(Replaced { label: label(name), file: s.id(file) })
}

fn position(answer: Result<Answer, Error>) -> u64 {
    match answer {
        Ok(Answer::Entry(entry)) => entry.position,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_that_is_another_files_is_not_removed() {
    let mut s = Situation::new(FILES);
    let (d, f) = (s.id("d"), s.id("d/f"));
    s.run_text("1:1 link d/f e/h").unwrap();
    s.run(&deletion(&f, Some(Link { dir: d.clone(), label: label("f") }))).unwrap();
    let other = unlink(&mut s, "1:1 unlink d/f", "d/g");
    assert_eq!(s.run(&other), Err(Error::AnotherFile));
    let gone = unlink(&mut s, "1:1 unlink d/none", "d/g");
    assert_eq!(s.run(&gone), Err(Error::NotFound));
    let another_name = unlink(&mut s, "1:1 unlink e/h", "d/f");
    assert_eq!(s.run(&another_name), Err(Error::Invalid), "it is another link that is to go");
    // It is withdrawn, and set again.
    let meant = unlink(&mut s, "1:1 unlink d/f open", "d/f");
    s.run(&deletion(&f, None)).unwrap();
    assert_eq!(s.run(&meant), Err(Error::Invalid));
    s.run(&deletion(&f, Some(Link { dir: d, label: label("f") }))).unwrap();
    s.run(&meant).unwrap();
    assert_eq!(s.tree.files[&f].disposition, None, "the other name stays");
    assert_eq!(s.id("e/h"), f);
    assert_eq!(s.run(&meant), Err(Error::NotFound));
}

#[test]
fn a_name_that_is_another_files_is_not_renamed() {
    for verb in ["rename", "noreplace", "leave", "exchange"] {
        let mut s = Situation::new(FILES);
        let to = if verb == "noreplace" { "d/new" } else { "d/g" };
        let text = format!("1:1 {verb} d/f {to}");
        let other = rename(&mut s, &text, Some("d/Name"), None);
        assert_eq!(s.run(&other), Err(Error::AnotherFile), "{verb}");
        let (f, meant) = (s.id("d/f"), rename(&mut s, &text, Some("d/f"), None));
        s.run(&meant).unwrap();
        assert_eq!(s.id(to), f, "{verb}");
    }
}

#[test]
fn only_the_file_that_may_go_is_replaced() {
    let mut s = Situation::new(FILES);
    let other = rename(&mut s, "1:1 rename d/f d/g", None, Some(("g", "d/Name")));
    assert_eq!(s.run(&other), Err(Error::AnotherFile));
    let other = link(&mut s, "1:1 link d/f d/g", ("g", "d/Name"));
    assert_eq!(s.run(&other), Err(Error::AnotherFile));
    let (f, g) = (s.id("d/f"), s.id("d/g"));
    let at = s.tree.files[&s.id("d")].children[&label("g")].position;
    let linked = link(&mut s, "1:1 link d/f d/g", ("g", "d/g"));
    assert_eq!(position(s.run(&linked)), at, "the name is bound throughout");
    assert!(s.id("d/g") == f && !s.tree.files.contains_key(&g));
    assert_eq!(s.file("d/f").attributes.links, 2);
    // Nothing has the name any more: then nothing is replaced.
    let gone = rename(&mut s, "1:1 rename d/f d/free", None, Some(("free", "d/Name")));
    s.run(&gone).unwrap();
    assert_eq!(s.id("d/free"), f);
}

#[test]
fn another_spelling_goes_in_the_same_step() {
    for verb in ["rename", "link"] {
        let mut s = Situation::new(FILES);
        let (f, name) = (s.id("d/f"), s.id("d/Name"));
        let at = s.tree.files[&s.id("d")].children[&label("Name")].position;
        let text = format!("1:1 {verb} d/f d/NAME");
        let replaces = |s: &mut Situation, replaced| match verb {
            "rename" => rename(s, &text, Some("d/f"), Some(replaced)),
            _ => link(s, &text, replaced),
        };
        let other = replaces(&mut s, ("Name", "d/g"));
        assert_eq!(s.run(&other), Err(Error::AnotherFile));
        let unlike = replaces(&mut s, ("g", "d/g"));
        assert_eq!(s.run(&unlike), Err(Error::Invalid), "it is leased by another fold");
        let operation = replaces(&mut s, ("Name", "d/Name"));
        let moved = position(s.run(&operation));
        assert!(moved > at, "a listing that has shown the old name shows the new one, too");
        assert_eq!(s.id("d/NAME"), f);
        let children: Vec<_> = s.tree.files[&s.id("d")].children.keys().map(ToString::to_string).collect();
        assert!(!children.contains(&"Name".to_owned()) && !s.tree.files.contains_key(&name), "{children:?}");
        // A name that came meanwhile is in the way.
        s.run_text("1:1 create 644 0 d/name").unwrap();
        let (text, operation) = (format!("1:1 {verb} d/g d/name"), ("NAME", "d/NAME"));
        let late = match verb {
            "rename" => rename(&mut s, &text, None, Some(operation)),
            _ => link(&mut s, &text, operation),
        };
        assert_eq!(s.run(&late), Err(Error::Exists));
    }
}

#[test]
fn a_link_replaces_what_an_unlink_would_remove() {
    let mut s = Situation::new(FILES);
    let a_directory = link(&mut s, "1:1 link d/f e", ("e", "e"));
    assert_eq!(s.run(&a_directory), Err(Error::IsDirectory));
    let itself = link(&mut s, "1:1 link d/f d/f", ("f", "d/f"));
    s.run(&itself).unwrap();
    assert_eq!(s.file("d/f").attributes.links, 1);
    // A file that somebody has open stays without a name.
    let g = s.id("d/g");
    s.tree.elsewhere.insert(g.clone(), lease::OpenModes::posix(true, false));
    let open = link(&mut s, "1:1 link d/f d/g", ("g", "d/g"));
    s.run(&open).unwrap();
    assert_eq!(s.tree.files[&g].attributes.links, 0);
    let mut s = Situation::new("d drwxrwxrwt 2:2\nd/f -rw-rw-rw- 1:1\nd/g -rw-rw-rw- 2:2");
    let sticky = link(&mut s, "1:1 link d/f d/g", ("g", "d/g"));
    assert!(matches!(decide(&sticky, &s.tree), Verdict::Refused { error: Error::NotPermitted, .. }));
}
