#!/usr/bin/env bash
# Two machines, of which one watches all that the other does (inotify), while it is ended: by SIGTERM, by umount and by kill -9, each within seconds, with nothing left behind.
# TIMES=n of each (3).
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "wants two machines"
[ "$(id -u)" = 0 ] || skip "umount and /proc of all want root"
times=${TIMES:-3} longest_ms=${LONGEST_MS:-10000}
second=$scratch/second
mkdir "$second"
up_options=(--listen 127.0.0.1:14484)
second_pid='' busy='' watcher=''
cleanup() {
    { kill -9 $busy $watcher $second_pid; umount -f "$second" || umount -l "$second"; } 2>/dev/null
}

start_second() {
    local more=()
    [ -e "$scratch/data2/format" ] || more=(--join "$("$leasehold" invite --data "$data" --address 127.0.0.1:14484)" --name second)
    "$leasehold" mount "${more[@]}" --data "$scratch/data2" "$second" >"$scratch/second.log" 2>&1 &
    second_pid=$!
    wait_until "mounted" grep -q '^mounted on ' "$scratch/second.log"
}

# Tells what it hears, in a file, until it is ended or hears nothing more.
watch() {
    : >"$scratch/heard"
    python3 - "$second/watched" >"$scratch/heard" 2>&1 <<'PY' &
import ctypes, os, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(0)
assert libc.inotify_add_watch(fd, sys.argv[1].encode(), 0xFFF) > 0
while True:
    print(len(os.read(fd, 65536)), flush=True)
PY
    watcher=$!
}

# The first machine makes, writes, renames and removes without an end.
work() {
    (
        n=0
        while :; do
            n=$((n + 1))
            echo $n >"$mnt/watched/a$n"
            mv "$mnt/watched/a$n" "$mnt/watched/b$n"
            [ $n -lt 300 ] || rm -f "$mnt/watched/b$((n - 299))"
        done
    ) 2>/dev/null &
    busy=$!
}

raisers() { pgrep -f "raise-events $second\$" || true; }
hears() { [ "$(stat -c %s "$scratch/heard")" -gt "$1" ]; }
is_gone() { ! kill -0 "$second_pid" 2>/dev/null || [ "$(awk '{ print $3 }' "/proc/$second_pid/stat")" = Z ]; }

# once HOW COMMAND...: the second machine, which tells its watcher of what goes on, is ended by the command.
once() {
    local how=$1 since ms heard
    start_second
    watch
    wait_until "heard of the other machine" hears 0
    heard=$(stat -c %s "$scratch/heard")
    wait_until "heard more" hears "$heard"
    since=$(date +%s%N)
    "${@:2}"
    wait_until "ended" is_gone
    ms=$((($(date +%s%N) - since) / 1000000))
    wait "$second_pid" 2>/dev/null || true
    second_pid=
    [ $ms -lt "$longest_ms" ] || fail "$how with a watch took $ms ms"
    kill -9 "$watcher" && wait "$watcher" 2>/dev/null || true
    wait_until "the process that raises events is gone" sh -c "! pgrep -f 'raise-events $second\$'"
    umount -l "$second" 2>/dev/null || true
    say "ended by $how in $ms ms"
}

# While something is being told somebody uses the mount, for moments.
umount_it() { wait_until "unmounted" umount "$second"; }
terminate() { kill -TERM "$second_pid"; }
kill_it() { kill -9 "$second_pid"; }

start_mount
mkdir "$mnt/watched"
work
for _ in $(seq "$times"); do
    once SIGTERM terminate
    once umount umount_it
    once "kill -9" kill_it
done
kill -9 "$busy" && wait "$busy" 2>/dev/null || true
busy=
stop_mount
fsck_clean
passed "each way $times times"
