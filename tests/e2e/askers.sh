#!/usr/bin/env bash
# Users with further groups and capabilities: on an ordinary mount, and on one that is served from a container and used from outside of it, where no user's thread can be seen.
. "$(dirname "$0")/mounted.sh"
[ "$(id -u)" = 0 ] || skip "only root can be others"
askers=$root/tests/askers

start_mount
context="an ordinary mount"
"$askers" "$mnt" >"$scratch/askers.log" || { grep WRONG "$scratch/askers.log"; fail "users do not get what they should"; }
stop_mount
fsck_clean
[ -z "${PLAIN:-}" ] || { passed; exit; }

# What is mounted inside shows outside only below a shared mount.
shared=$scratch/shared
mkdir "$shared" && mount --bind "$shared" "$shared" && mount --make-shared "$shared"
cleanup() {
    [ -z "${inside:-}" ] || kill -9 "$inside" 2>/dev/null
    umount -l "$shared/mnt" 2>/dev/null
    umount -l "$shared" 2>/dev/null
}
mkdir "$shared/mnt"

# serve PREPARATION CHECKS
serve() {
    : >"$log"
    unshare --pid --fork --mount --propagation unchanged --kill-child \
        sh -c "$1; exec \"\$2\" up --data \"\$3\" --mount \"\$4\"" - "$1" "$leasehold" "$scratch/data2" "$shared/mnt" >"$log" 2>&1 &
    inside=$!
    for _ in $(seq $((hang * 10))); do grep -qs '^mounted on ' "$log" && break; sleep 0.1; done
    grep -q " $shared/mnt " /proc/self/mountinfo || fail "hangs: no mount from within the container after $hang s, see $log"
    SEEN=no "$askers" "$shared/mnt" >"$scratch/askers.log" || { grep WRONG "$scratch/askers.log"; fail "users do not get what they should"; }
    kill -9 "$inside" && wait "$inside" 2>/dev/null || true
    inside=
    # The container's first process is killed by the kernel, some time after that.
    wait_until "the data directory is free" flock --nonblock "$scratch/data2/lock" true
    umount -l "$shared/mnt" 2>/dev/null || true
}
context="served from a container with a /proc of its own"
serve 'mount --make-private /proc; mount -t proc proc /proc'
context="served from a container with the /proc of the machine, whose numbers are others"
serve :
passed
