# A mount to test: sourced by the scripts of this directory.
#
#   mounted.sh gives: $root $leasehold $scratch $data $mnt, and
#   start_mount [DATA [MOUNT]] · stop_mount · kill_mount · remount · fsck_clean · say · fail · skip · wait_until · wait_for_end
#
# With PLAIN=DIR in the environment no file system of ours is started: the test works in a fresh directory below DIR.
# That is how the tests themselves are tested, on a file system known to be right.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
leasehold=${LEASEHOLD:-$root/target/release/leasehold}
name=${name:-$(basename "$0" .sh)}
started_at=$SECONDS
# A network of a test's own reaches no registry, and cargo asks for minutes. All that is built here is there already.
export CARGO_NET_OFFLINE=true
up_pid=
run_as=() # a prefix that makes leasehold another user's, and execs
# For sh -c in a mount name space of its own, with a directory as $1: /dev/fuse is for all users, as
# distributions have it by a udev rule.
fuse_for_all='mknod -m 666 "$1/fuse" c 10 229 && chmod 666 "$1/fuse" && mount --bind "$1/fuse" /dev/fuse'

say() { printf '%s: %s\n' "$name" "$*"; }
context= # where the test is, said with a failure
reason= # why it failed, said again at the very end, after all the logs
fail() { reason="$*${context:+ ($context)}"; printf '%s: FAILED: %s\n' "$name" "$reason" >&2; exit 1; }
skip() { printf '%s: SKIPPED: %s\n' "$name" "$*" >&2; exit 77; }

# Whatever takes longer hangs: ten times and more what anything takes, also on a machine that is ten times slower.
hang=${HANG:-300}

# where_is PID: what each of its threads waits for in the kernel, to be said of one that hangs.
where_is() {
    local task
    for task in "/proc/$1/task"/*; do echo "$(cat "$task/comm"): $(awk '{ printf "%s ", $2 }' "$task/stack")"; done 2>/dev/null | sort | uniq -c
}

# The same of every process that was told a path of ours: leasehold, and those that wait for it.
where_all_are() {
    local pid
    for pid in $(pgrep -f -- "$scratch"); do
        echo "--- process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-120)" && where_is "$pid"
    done 2>/dev/null || true
}

# wait_until WHAT COMMAND...: until the command ends well. If it has not for $hang s, that hangs.
wait_until() {
    local since=$SECONDS
    until "${@:2}" >"$scratch/waits" 2>&1; do
        [ $((SECONDS - since)) -lt "$hang" ] || fail "hangs: for $hang s not $1: ${*:2}: $(tail -n 5 "$scratch/waits"; where_all_are)"
        sleep 0.1
    done
}

# wait_for_end PID WHAT: until the process has ended; what it is to be said if it hangs.
wait_for_end() {
    timeout "$hang" tail --pid="$1" -s 0.02 -f /dev/null || fail "hangs: still there after $hang s: $2: $(where_is "$1")"
}

# On a disk, never on tmpfs: what is fsynced must have somewhere to go. World-accessible: some tests run as other users.
# Short: pjdfstest makes sockets, whose paths have 107 bytes at most.
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/lh-$name.XXXXXX")
chmod 755 "$scratch"
data=$scratch/data mnt=$scratch/mnt log=$scratch/up.log
mkdir -p "$mnt"
if [ -n "${PLAIN:-}" ]; then
    rmdir "$mnt"
    mnt=$(mktemp -d "$PLAIN/$name.XXXXXX")
    chmod 755 "$mnt"
elif [ ! -x "$leasehold" ]; then
    fail "$leasehold is missing: cargo build --release (or set LEASEHOLD, or PLAIN=DIR to test the test)"
fi

# What a test adds here is undone first, whatever happened.
cleanup() { :; }

at_exit() {
    local status=$?
    set +e
    trap - EXIT INT TERM
    cleanup
    if [ -n "$up_pid" ]; then kill -9 "$up_pid" && wait "$up_pid"; fi 2>/dev/null
    if [ -z "${PLAIN:-}" ] && grep -q " $mnt " /proc/self/mountinfo; then umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt"; fi
    if [ $status -ne 0 ] && [ $status -ne 77 ]; then
        [ ! -s "$log" ] || { echo "--- last lines of $log"; tail -n 30 "$log"; } >&2
        printf '%s: kept for a look: %s\n' "$name" "$scratch" >&2
        [ -z "$reason" ] || printf '%s: FAILED: %s\n' "$name" "$reason" >&2
    else
        rm -rf "$scratch"
        [ -z "${PLAIN:-}" ] || rm -rf "$mnt"
    fi
    exit $status
}
trap at_exit EXIT
trap 'exit 130' INT TERM

is_mounted() { grep -q " $mnt " /proc/self/mountinfo && "${run_as[@]}" stat "$mnt/." >/dev/null 2>&1; }

# What else `leasehold up` is told.
up_options=()

# Starts `leasehold up`, waits until it says that it is mounted (a dead mount may still answer from the kernel's caches);
# leaves the milliseconds that took in $up_ms.
start_mount() {
    local data=${1:-$data} since
    mnt=${2:-$mnt}
    [ -z "${PLAIN:-}" ] || { up_ms=0; return 0; }
    since=$(date +%s%N)
    # Emptied here, not by the redirection below, which happens later in a process of its own.
    [ ! -e "$log" ] || { cat "$log" >>"$log.before" && : >"$log"; }
    "${run_as[@]}" "$leasehold" up --data "$data" --mount "$mnt" "${up_options[@]}" >"$log" 2>&1 &
    up_pid=$!
    until grep -qs '^mounted on ' "$log" && is_mounted; do
        kill -0 "$up_pid" 2>/dev/null || { up_pid=; fail "leasehold up ended by itself, see $log"; }
        [ $((($(date +%s%N) - since) / 1000000000)) -lt "$hang" ] || fail "hangs: no mount after $hang s, see $log: $(where_is "$up_pid")"
        sleep 0.01
    done
    up_ms=$((($(date +%s%N) - since) / 1000000))
}

# SIGTERM must unmount and end with status 0.
stop_mount() {
    local status=0
    if [ -n "${PLAIN:-}" ]; then drop_caches; return; fi
    kill -TERM "$up_pid"
    wait_for_end "$up_pid" "leasehold up after SIGTERM"
    wait "$up_pid" || status=$?
    up_pid=
    [ $status -eq 0 ] || fail "leasehold up ended with status $status after SIGTERM"
    ! grep -q " $mnt " /proc/self/mountinfo || fail "$mnt is still mounted after SIGTERM"
}

# kill -9 leaves a dead mount behind; the next start_mount has to cope with it.
kill_mount() {
    [ -z "${PLAIN:-}" ] || return 0
    kill -9 "$up_pid"
    wait "$up_pid" 2>/dev/null || true
    up_pid=
}

drop_caches() { sync; [ ! -w /proc/sys/vm/drop_caches ] || echo 3 >/proc/sys/vm/drop_caches; }

remount() { stop_mount; start_mount; }

# Wants the mount stopped.
fsck_clean() {
    [ -z "${PLAIN:-}" ] || return 0
    "${run_as[@]}" "$leasehold" fsck --data "${1:-$data}" >"$scratch/fsck.log" 2>&1 || {
        tail -n 20 "$scratch/fsck.log" >&2
        fail "fsck is not clean, see $scratch/fsck.log"
    }
}

passed() { say "passed in $((SECONDS - started_at)) s${1:+: $1}"; }
