//! Changes of other machines, and the kernel's copies that they invalidate.

use super::*;

#[test]
fn what_changes_elsewhere_is_seen_after_an_invalidation() {
    let Some(m) = Mounted::new() else { return };
    fs::create_dir(m.at("d")).unwrap();
    fs::write(m.at("d/f"), b"old").unwrap();
    assert_eq!(fs::read(m.at("d/f")).unwrap(), b"old");
    assert!(!m.at("d/new").exists());
    let dir = m.memory.elsewhere(|tree| tree.find(&FileId::root(), &label("d")).unwrap().file);
    let file = m.memory.elsewhere(|tree| tree.find(&dir, &label("f")).unwrap().file);

    m.memory.elsewhere(|tree| tree.write(&file, 0, b"newer", false)).unwrap();
    m.memory.invalidate(&Invalidation::Pages(file.clone()));
    assert_eq!(fs::read(m.at("d/f")).unwrap(), b"newer");

    m.memory.elsewhere(|tree| tree.link(&file, &dir, &label("new"))).unwrap();
    m.memory.invalidate(&Invalidation::Entry(dir.clone(), label("new")));
    m.memory.invalidate(&Invalidation::Attributes(file.clone()));
    assert_eq!(fs::metadata(m.at("d/new")).unwrap().nlink(), 2);

    m.memory.elsewhere(|tree| tree.unlink(&dir, &label("new"), false)).unwrap();
    m.memory.invalidate(&Invalidation::Entry(dir, label("new")));
    assert!(!m.at("d/new").exists());
}

/// Trap: `inval_entry` on a directory breaks a shell's current directory.
#[test]
fn an_expired_entry_leaves_a_current_directory_alone() {
    let Some(m) = Mounted::new() else { return };
    fs::create_dir(m.at("home")).unwrap();
    let held = File::open(m.at("home")).unwrap();
    let place =
        || fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held))).unwrap();
    m.memory.invalidate(&Invalidation::Entry(FileId::root(), label("home")));
    let lookups = m.memory.count("lookup");
    assert!(m.at("home").exists());
    assert_eq!(m.memory.count("lookup") - lookups, 1, "it was looked up again");
    assert_eq!(place(), m.at("home"), "and is still linked where it was");
}

/// Trap: an entry that is listed with attributes counts as given.
#[test]
fn a_listing_of_a_directory_that_others_work_in_gives_no_entries() {
    let Some(m) = Mounted::new() else { return };
    let dir = m.at("shared");
    fs::create_dir(&dir).unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("file {n}")).collect();
    names.iter().for_each(|name| fs::write(dir.join(name), b"").unwrap());
    let id = FileId::root().child(fs::metadata(&dir).unwrap().ino());
    // All of the kernel's entries there go, and for a while it is given none.
    m.memory.invalidate(&Invalidation::Entry(id.clone(), label("file 0")));
    m.memory.invalidate(&Invalidation::Entries(id));
    let listed = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    assert_eq!(listed.count(), 20);
    let before = m.memory.count("lookup");
    names.iter().for_each(|name| assert!(fs::metadata(dir.join(name)).is_ok()));
    assert_eq!(m.memory.count("lookup") - before, 20, "each is asked for before it is used");
}

/// Trap: `inval_entry` takes the directory's lock, which a create in it holds while it waits for
/// us.
#[test]
fn an_invalidation_waits_only_so_long_for_a_create_under_way() {
    let Some(m) = Mounted::new() else { return };
    assert!(!m.at("other").exists());
    m.memory.delay("create", Duration::from_secs(6));
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| File::create(m.at("slow")).map(drop));
        eventually("the create has begun", || m.memory.count("create") == 1);
        m.memory.invalidate(&Invalidation::Entry(FileId::root(), label("other")));
        // The create has given way, or waits still.
        assert_eq!(m.memory.came_late(), 0, "it has waited for the create");
        // Other requests are served meanwhile: no thread is held by the create.
        assert!(fs::metadata(m.mount.dir()).is_ok());
        creating.join().unwrap().unwrap();
    });
    m.memory
        .elsewhere(|tree| {
            tree.create(
                &Default::default(),
                &FileId::root(),
                &label("other"),
                (namespace::FileKind::Regular, 0o644, 0),
                Vec::new(),
                false,
            )
        })
        .unwrap();
    m.memory.invalidate(&Invalidation::Entry(FileId::root(), label("other")));
    assert!(m.at("other").exists());
}

/// An answer decided before a recall, and delivered after its notification, must not stay in the
/// kernel.
#[test]
fn an_answer_under_way_does_not_outlive_its_invalidation() {
    let Some(m) = Mounted::new() else { return };
    m.memory.delay("lookup", Duration::from_millis(30));
    std::thread::scope(|scope| {
        // The answer is decided at once: missing. It comes 30 ms later.
        let looking = scope.spawn(|| m.at("late").exists());
        eventually("the lookup has begun", || m.memory.count("lookup") == 1);
        m.memory
            .elsewhere(|tree| {
                tree.create(
                    &Default::default(),
                    &FileId::root(),
                    &label("late"),
                    (namespace::FileKind::Regular, 0o644, 0),
                    Vec::new(),
                    false,
                )
            })
            .unwrap();
        m.memory.invalidate(&Invalidation::Entry(FileId::root(), label("late")));
        assert!(!looking.join().unwrap());
    });
    eventually("the notification is repeated after the answer", || m.at("late").exists());
}

#[test]
fn a_create_that_another_machine_won_opens_what_is_there() {
    let Some(m) = Mounted::new() else { return };
    assert!(!m.at("f").exists());
    // The kernel does not know, and holds a negative entry.
    m.memory
        .elsewhere(|tree| {
            tree.create(
                &Default::default(),
                &FileId::root(),
                &label("f"),
                (namespace::FileKind::Regular, 0o644, 0),
                b"theirs".to_vec(),
                false,
            )
        })
        .unwrap();
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(m.at("f")).unwrap();
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "theirs");
    assert!(m.at("f").exists());
}
