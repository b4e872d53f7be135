#!/usr/bin/env bash
# Starting and ending: over a dead mount, twice on the same data, by SIGTERM and SIGINT.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"

start_mount
echo survives >"$mnt/file"
sync "$mnt/file"
"$leasehold" status --data "$data" --json | python3 -m json.tool >/dev/null || fail "status --json is no JSON"

# Somebody else on the same data: told who holds it, at once, and the mount goes on.
mkdir "$scratch/second"
if timeout "$hang" "$leasehold" up --data "$data" --mount "$scratch/second" >"$scratch/second.log" 2>&1; then fail "a second up on the same data"; fi
grep -q "$up_pid" "$scratch/second.log" || fail "the second up does not say that process $up_pid holds the data: $(cat "$scratch/second.log")"
! mountpoint -q "$scratch/second" || fail "the second up mounted"
[ "$(cat "$mnt/file")" = survives ] || fail "the first mount does not answer after a second up"

# kill -9, with somebody inside: the mount is dead, and the next up takes its place.
exec 9<"$mnt/file"
kill_mount
! cat "$mnt/file" >/dev/null 2>&1 || fail "a mount without its process answers"
start_mount
[ "$(cat "$mnt/file")" = survives ] || fail "not there after kill -9"
[ "$(grep -c " $mnt " /proc/self/mountinfo)" = 1 ] || fail "the dead mount is still below the new one"
exec 9<&-

for signal in TERM INT; do
    echo "before $signal" >"$mnt/$signal" # not synced: unmounting does that
    kill -"$signal" "$up_pid"
    wait_for_end "$up_pid" "leasehold up after SIG$signal"
    wait "$up_pid" || fail "status $? after SIG$signal"
    up_pid=
    ! grep -q " $mnt " /proc/self/mountinfo || fail "still mounted after SIG$signal"
    start_mount
    [ "$(cat "$mnt/$signal")" = "before $signal" ] || fail "lost by SIG$signal"
done

# Into a directory that does not exist yet, and with data of another place.
stop_mount
start_mount "$scratch/other/data" "$scratch/other/mnt"
[ -z "$(ls -A "$mnt")" ] || fail "a new file system is not empty"
stop_mount
fsck_clean
passed
