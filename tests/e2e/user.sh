#!/usr/bin/env bash
# An ordinary user mounts, through fusermount3, and has the file system to himself.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
fusermount=$(command -v fusermount3) || skip "fusermount3 is missing"
[ -u "$fusermount" ] || skip "$fusermount is not setuid root here"

other=()
if [ "$(id -u)" = 0 ]; then
    # What /etc/fuse.conf allows is the machine's, and this test has its own, as /dev/fuse.
    if [ -z "${IN_NAME_SPACE:-}" ]; then
        IN_NAME_SPACE=1 unshare -m sh -c "$fuse_for_all"' &&
                : >>/etc/fuse.conf && : >"$1/fuse.conf" && mount --bind "$1/fuse.conf" /etc/fuse.conf &&
                export FUSE_CONF="$1/fuse.conf" && exec "$2"' - "$scratch" "$0"
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
# Others may look in if the machine lets a user let them, which is asked before anything is made.
if [ -n "${FUSE_CONF:-}" ]; then
    ! as "$leasehold" up --data "$scratch/others" --mount "$mnt" --allow-other >"$scratch/refused" 2>&1 ||
        fail "it lets others in, whatever /etc/fuse.conf says"
    grep -q "user_allow_other" "$scratch/refused" || fail "not said why: $(cat "$scratch/refused")"
    [ ! -e "$scratch/others" ] || fail "it has made a file system that nobody may have"
    echo user_allow_other >"$FUSE_CONF"
    up_options=(--allow-other)
    start_mount
    as chmod 644 "$mnt/d/file"
    [ "$("${other[@]}" cat "$mnt/d/file")" = mine ] || fail "others are let in, and see nothing"
    as chmod 600 "$mnt/d/file"
    ! "${other[@]}" cat "$mnt/d/file" 2>/dev/null || fail "others see what is the user's alone"
    stop_mount
fi
passed
