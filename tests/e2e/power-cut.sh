#!/usr/bin/env bash
# Power cuts below the store: the data directory lies on a disk (crates/powercut) that drops, tears and reorders what was
# not synced. One run is recorded, CUTS disks (200) are made from it; each must mount, start, pass fsck and hold every fact.
# One cut again: SEED=n CUT=m. PLAIN=1 puts the work on the disk's ext4 itself; with LIE=1, which syncs nothing, cuts must be noticed.
plain=${PLAIN:-} && unset PLAIN
[ -z "$plain" ] || LEASEHOLD=/bin/true
. "$(dirname "$0")/mounted.sh"
[ "$(id -u)" = 0 ] && losetup -f >/dev/null 2>&1 || skip "needs root and loop devices"
powercut=${POWERCUT:-$root/target/release/powercut}
[ -x "$powercut" ] || fail "$powercut is missing: cargo build --release"
seed=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')} cuts=${CUTS:-200} size=512
watched=$scratch/watched notes=$scratch/notes disk=$scratch/disk image=$scratch/image
mkdir "$watched" "$disk"
data=$disk/data
cleanup() {
    if [ -n "$up_pid" ]; then kill -9 "$up_pid"; wait "$up_pid"; up_pid=; fi 2>/dev/null
    for dir in "$mnt" "$disk"; do umount -l "$dir" 2>/dev/null; done
    [ -z "${loop:-}" ] || losetup -d "$loop" 2>/dev/null
    umount -l "$watched" 2>/dev/null
}
up() { if [ -n "$plain" ]; then mkdir -p "$data" && mnt=$data; else start_mount; fi; }
down() { [ -n "$plain" ] || stop_mount; }

# The same work for both: changes with their fsyncs, and databases. Its records are notes on the watched disk.
record_run() {
    "$powercut" record --size $size --record "$scratch/record" --backing "$scratch/backing" "$watched" &
    until mountpoint -q "$watched"; do sleep 0.05; done
    loop=$(losetup --find --show "$watched/disk")
    mkfs.ext4 -q -J size=16 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount "$loop" "$disk"
    sync -f "$disk"
    echo ready >"$watched/ready"
    up
    OPERATIONS=${OPERATIONS:-150} SEED=$seed "$root/tests/workload/journal" work "$mnt" "$watched"
    down
    up
    mkdir "$mnt/sqlite"
    MOVES=10 "$root/tests/workload/sqlite" work "$mnt/sqlite" "$watched"
    # Not in the loop above: a long tail without syncs, so that cuts find much in flight.
    for n in $(seq 200); do head -c 20000 "$root/Cargo.lock" >"$mnt/unsynced$n"; done
    down
    umount "$disk"
    losetup -d "$loop" && loop=
    umount "$watched"
    rm "$scratch/backing"
}

check() {
    [ ! -e "$notes/facts-0" ] || "$root/tests/workload/journal" check "$mnt" "$notes" || return
    [ ! -e "$notes/moves-wal-0" ] || "$root/tests/workload/sqlite" check "$mnt/sqlite" "$notes"
}

survives() {
    rm -rf "$image" "$notes" && mkdir "$notes"
    "$powercut" cut --size $size --record "$scratch/record" --seed "$seed" --number "$1" "$image" "$notes" >"$scratch/cut"
    context="$(cat "$scratch/cut"); again: SEED=$seed CUT=$1 $0"
    # ext4 takes its superblock of two sectors to be written whole; where we tore it, e2fsck does as an owner would.
    mount -o loop "$image" "$disk" 2>/dev/null || {
        e2fsck -fy "$image" >"$scratch/e2fsck.log" 2>&1 || [ $? -le 1 ] || fail "ext4 is beyond e2fsck"
        mount -o loop "$image" "$disk" || fail "ext4 does not mount"
    }
    up
    check >"$scratch/check" 2>&1 || { cat "$scratch/check" && fail "facts do not hold"; }
    down
    [ -n "$plain" ] || fsck_clean
    umount "$disk"
}

record_run
say "recorded $(du -h "$scratch/record" | cut -f1) in $((SECONDS - started_at)) s; SEED=$seed"
facts=0
for number in ${CUT:-$(seq "$cuts")}; do
    survives "$number"
    held=$(sed -n "s/^journal: \([0-9]*\) .*/\1/p" "$scratch/check")
    facts=$((facts + ${held:-0}))
done
passed "$cuts cuts, $facts facts held; seed $seed"
