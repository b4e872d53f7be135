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
# What is set aside can be written when the disk is full, nothing is full before its time, and what is deleted is free at once.
python3 - "$mnt" "$small" "$scratch/untested" <<'P' || fail "space that was promised, see above"
import os, sys, time
top, disk, untested = sys.argv[1:]
MIB = 1 << 20
def check(so, what):
    if not so: sys.exit("full-disk: " + what)
def refused(call, *args):
    try: call(*args)
    except OSError as error: return error.strerror
used = lambda s: (s.f_blocks - s.f_bfree) / max(1, s.f_blocks - s.f_bfree + s.f_bavail)
own, below = os.statvfs(top), os.statvfs(disk)
# What a server keeps back, here an eighth of 275 MiB, counts neither as used nor as free.
check(used(own) < used(below) + 0.05, "df: %.2f in use, and %.2f of the disk" % (used(own), used(below)))
wal = os.open(top + "/wal", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(wal, 0, 48 * MIB)
check(48 * 2048 <= os.fstat(wal).st_blocks <= 49 * 2048, "%d blocks were set aside" % os.fstat(wal).st_blocks)
os.fsync(wal)
ballast, why, written = os.open(top + "/ballast", os.O_WRONLY | os.O_CREAT), None, 0
while not why:
    why = refused(os.write, ballast, os.urandom(MIB))
    written += not why
os.fsync(ballast)
left = os.statvfs(disk).f_bavail * below.f_frsize
size = below.f_blocks * below.f_frsize
check(left <= size / 8 + 48 * MIB + size / 8, "after %d MiB: %s, with %d of %d MiB free" % (written, why, left // MIB, size // MIB))
for at in range(48): check(not refused(os.pwrite, wal, os.urandom(MIB), at * MIB), "no room for MiB %d of what was set aside" % at)
check(not refused(os.fsync, wal), "fsync of what was set aside")
os.unlink(top + "/ballast"); os.close(ballast); os.close(wal)
def write_after(length):
    with open(top + "/after", "wb") as after: after.write(os.urandom(length))
# A call waits for 20 s, in which a disk that many use may not come to delete anything. To be
# refused earlier is wrong, at the first try. Later ones find nothing more to be freed.
def refusal_of(length):
    begun, why = time.time(), refused(write_after, length)
    for _ in range(6 if time.time() - begun > 19 else 0):
        if why: time.sleep(10); why = refused(write_after, length)
    return why
# Nobody tries again who deletes in order to write.
begun, why = time.time(), refusal_of(8 * MIB)
check(not why, "after %.1f s no room yet for 8 of %d MiB that were deleted: %s" % (time.time() - begun, written, why))
# Nor whoever saves a file anew (O_TRUNC) on a disk that others have filled meanwhile.
os.posix_fallocate(wal := os.open(top + "/wal", os.O_RDWR | os.O_CREAT), 0, 1 * MIB); os.close(wal)
why = None
with open(top + "/rest", "wb", buffering=0) as rest:
    while not why: why = refused(rest.write, os.urandom(MIB))
# The last of what is left is given out in ever smaller parts, so less is written than was cut off.
why = refusal_of(2 * MIB)
if why and os.statvfs(disk).f_bavail * below.f_frsize < size / 8 + 2 * MIB:
    # On a busy machine the server takes more than it keeps back (docs/limits.md).
    open(untested, "w").close()
else: check(not why, "no room for a part of what was cut off: %s" % why)
for name in "wal", "after", "rest": os.unlink(top + "/" + name)
P
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
[ ! -e "$scratch/untested" ] || skip "room for a part of what was cut off, since the server has it; all else passed"
passed
