#!/usr/bin/env bash
# An ordinary user mounts, through fusermount3, and has the file system to himself.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
fusermount=$(command -v fusermount3) || skip "fusermount3 is missing"
[ -u "$fusermount" ] || skip "$fusermount is not setuid root here"

other=()
if [ "$(id -u)" = 0 ]; then
    if [ "$(stat -c %a /dev/fuse)" != 666 ]; then
        # Distributions open /dev/fuse to all by a udev rule; where that is missing, in a name space of this test only.
        [ -z "${IN_NAME_SPACE:-}" ] || fail "no /dev/fuse for all, even of our own"
        IN_NAME_SPACE=1 unshare -m sh -c 'mknod -m 666 "$1/fuse" c 10 229 && chmod 666 "$1/fuse" && mount --bind "$1/fuse" /dev/fuse && exec "$2"' - "$scratch" "$0"
        exit
    fi
    run_as=(setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME="$scratch")
    other=(setpriv --reuid=daemon --regid=daemon --clear-groups)
    # The tree of a root user may be closed to others.
    install -m 755 "$leasehold" "$scratch/leasehold" && leasehold=$scratch/leasehold
    mkdir "$data" && chown nobody:nogroup "$data" "$mnt"
fi
as() { "${run_as[@]}" "$@"; }

start_mount
as sh -c "cd '$mnt' && mkdir d && echo mine >d/file && ln d/file link && ln -s d/file symlink && chmod 600 d/file && sync d/file" || fail "work as a user"
[ "$(as stat -c %U:%a "$mnt/d/file")" = "$(as id -un):600" ] || fail "owner and mode: $(as stat -c %U:%a "$mnt/d/file")"
[ ${#other[@]} -eq 0 ] || ! "${other[@]}" ls "$mnt" >/dev/null 2>&1 || fail "another user can look into it"
remount
[ "$(as cat "$mnt/symlink")" = mine ] || fail "not there after the remount"
kill_mount
start_mount
[ "$(as cat "$mnt/link")" = mine ] || fail "not there after kill -9"
stop_mount
fsck_clean
passed
