//! Finds out what programs watch: /proc shows the watches of each inotify descriptor.

use rustc_hash::FxHashSet;

use crate::proc;

/// The nodes that programs watch on the mount with this device number. Only processes that we may
/// look at are seen: as root all.
pub(super) fn watched(device: u32) -> FxHashSet<u64> {
    let mut nodes = FxHashSet::default();
    for pid in proc::names(".").unwrap_or_default().iter().filter(|name| name.parse::<u32>().is_ok()) {
        for fd in proc::names(&format!("{pid}/fd")).unwrap_or_default() {
            // The link says so without a look at the file, which may be on a file system that
            // hangs.
            if proc::link(&format!("{pid}/fd/{fd}")).is_ok_and(|link| link == b"anon_inode:inotify") {
                let info = proc::read(&format!("{pid}/fdinfo/{fd}")).unwrap_or_default();
                nodes.extend(info.lines().filter_map(|line| node(line, device)));
            }
        }
    }
    nodes
}

/// The node of a line of this form:
///
/// ```text
/// inotify wd:1 ino:9 sdev:2f mask:fff ignored_mask:0 fhandle-bytes:c fhandle-type:81 f_handle:...
/// ```
///
/// FUSE's handles begin with the node's number, in two halves. A root's inode number is not its
/// node number.
fn node(line: &str, device: u32) -> Option<u64> {
    let mut words = line.strip_prefix("inotify ")?.split_ascii_whitespace();
    let mut number = |key: &str| {
        let word = words.find_map(|word| word.strip_prefix(key)?.strip_prefix(':'))?;
        Some(word)
    };
    let ino = u64::from_str_radix(number("ino")?, 16).ok()?;
    if u32::from_str_radix(number("sdev")?, 16).ok()? != device {
        return None;
    }
    let handle = number("f_handle").and_then(|handle| {
        let word = |at: usize| {
            let bytes = |at: usize| u8::from_str_radix(handle.get(2 * at..2 * at + 2)?, 16).ok();
            Some(u32::from_ne_bytes([bytes(at)?, bytes(at + 1)?, bytes(at + 2)?, bytes(at + 3)?]))
        };
        Some(u64::from(word(0)?) << 32 | u64::from(word(4)?))
    });
    Some(handle.unwrap_or(ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn a_line_names_the_node_by_its_handle() {
        let line = "inotify wd:1 ino:5 sdev:2f mask:fff ignored_mask:0 fhandle-bytes:c fhandle-type:81 \
                    f_handle:000000000700000000000000";
        assert_eq!((node(line, 0x2f), node(line, 0x30)), (Some(7), None));
        assert_eq!(node("inotify wd:1 ino:5 sdev:2f mask:fff ignored_mask:0", 0x2f), Some(5));
        let further = "inotify wd:2 ino:5 sdev:2f mask:fff f_handle:000000800100000000000000";
        assert_eq!(node(further, 0x2f), Some((1 << 63) + 1));
        for nothing in ["", "pos:\t0", "inotify", "inotify wd:1 ino:x sdev:2f", "inotify wd:1 ino:5"] {
            assert_eq!(node(nothing, 0x2f), None, "{nothing:?}");
        }
    }

    #[test]
    fn watches_of_this_process_are_seen() {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let dir = tempfile::tempdir().unwrap();
        let watcher = init(CreateFlags::CLOEXEC).unwrap();
        add_watch(&watcher, dir.path(), WatchFlags::CREATE).unwrap();
        let info = format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(&watcher));
        let info = std::fs::read_to_string(info).unwrap();
        let device = info.split(' ').find_map(|word| word.strip_prefix("sdev:")).unwrap();
        let device = u32::from_str_radix(device, 16).unwrap();
        assert!(!watched(device).is_empty(), "{info}");
        assert!(watched(u32::MAX).is_empty(), "none of ours is on a device of this number");
    }
}
