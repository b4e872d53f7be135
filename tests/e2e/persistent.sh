#!/usr/bin/env bash
# kill -9 of a machine under an SMB client with persistent handles (tests/pike/restart). The client finds its opens at the
# restarted machine: numbers, leases, locks, share modes. An open that nobody comes back for ends by its time, and its file
# goes if it is to be deleted on close.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
[ "$(id -u)" = 0 ] || skip "the users of SMB are others than this one, which wants root"
. "$root/tests/pike/environment"

address=127.$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1))
up_options=(--smb "$address:445")
lh() { "$leasehold" "$@" --data "$data"; }
start_mount
echo secret | lh user add root --uid 0 >/dev/null
mkdir -m 777 "$mnt/kept"
lh share add kept /kept --continuous >/dev/null

for round in 1 2; do
    context="round $round"
    coproc CLIENT { "$environment/bin/python" "$root/tests/pike/restart" "$address" kept 2>"$scratch/client"; }
    client=$CLIENT_PID
    read -r -u "${CLIENT[0]}" word || fail "the client holds nothing: $(tail -n 3 "$scratch/client")"
    [ "$word" = held ] || fail "the client says $word"
    exec {from}<&"${CLIENT[0]}" {to}>&"${CLIENT[1]}"
    kill_mount
    start_mount
    say "restarted in $up_ms ms"
    # A program of the mount wants what the client caches, which is not back yet.
    (echo changed >"$mnt/kept/broken") &
    writer=$!
    sleep 1
    kill -0 "$writer" || fail "a program writes over what a client caches that is away"
    echo back >&"$to"
    read -r -u "$from" word || fail "the client ended: $(tail -n 3 "$scratch/client")"
    [ "$word" = done ] || fail "the client says $word"
    wait "$client" || fail "the client ended with $?: $(tail -n 3 "$scratch/client")"
    exec {from}<&- {to}>&-
    wait_for_end "$writer" "a program that waits for a client's acknowledgment"
    [ "$(cat "$mnt/kept/broken")" = changed ] || fail "what the program wrote is lost"
    [ "$(cat "$mnt/kept/held")" = "Written before the restart" ] || fail "what the client wrote is lost: $(cat "$mnt/kept/held")"
    gone() { [ ! -e "$mnt/kept/left" ]; }
    wait_until "without the file of the open that nobody came back for" gone
    none_kept() { [ -z "$(find "$data/smb-opens" -type f)" ]; }
    wait_until "without records of opens" none_kept
    rm "$mnt/kept"/*
    # An end in order is a restart, too.
    if [ "$round" = 1 ]; then kill_mount() { stop_mount; }; fi
done
! grep -q panicked "$log" || fail "the server panicked: $(grep -A1 panicked "$log")"
stop_mount
fsck_clean
