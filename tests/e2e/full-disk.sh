#!/usr/bin/env bash
# A full disk: ENOSPC comes from create and write and never later, nothing is corrupted, deleting makes room again.
. "$(dirname "$0")/mounted.sh"
[ "$(id -u)" = 0 ] && losetup -f >/dev/null 2>&1 || skip "a small disk of its own needs root and loop devices"
small=$scratch/small data=$scratch/small/data
mkdir "$small"
truncate -s "${SIZE:-300M}" "$scratch/image"
mkfs.ext4 -q -m 0 "$scratch/image"
mount -o loop "$scratch/image" "$small"
cleanup() {
    if [ -n "$up_pid" ]; then kill -9 "$up_pid"; wait "$up_pid"; up_pid=; fi 2>/dev/null
    for dir in "$mnt" "$small"; do umount -l "$dir" 2>/dev/null; done
}
[ -z "${PLAIN:-}" ] || { rm -rf "$mnt" && mnt=$small/plain && mkdir "$mnt"; }

start_mount
files=$mnt/files state=$scratch/accepted
mkdir "$files"
fill() { local says; says=$("$root/tests/fill" "$1" "$files" "$state") || fail "fill $1, see above"; say "$says"; }
for round in 1 2 3; do
    fill up
    fill check
    fill half
    remount
    fill check
done
fill up
remount
fill check
# Others fill what is left of the disk, while it is down and while it is up: it starts all the same, has what it had, and deletes.
for end in stop_mount kill_mount; do
    $end
    head -c "${SIZE:-300M}" /dev/zero >"$small/others" 2>/dev/null && fail "the disk is not full"
    start_mount
    fill check
done
kill_mount
start_mount
rm "$small/others"
fill check
fill half
rm -r "$files" || fail "deleting on a full disk"
mkdir "$files" && rm "$state"
stop_mount
fsck_clean
start_mount
fill up # as much as at first: nothing was lost to what is gone
stop_mount
fsck_clean
passed
