#!/usr/bin/env bash
# An orderly end while the server is away: what was not applied is kept, and listed; the next start goes on with it, also when that is cut short; and if the session is over by then it stays, with its content.
. "$(dirname "$0")/machines.sh"
within "${WITHIN:-2000}"
build 2
start 1
start 2

# Ends machine $1 by SIGNAL $2 while the server cannot be reached: it must say that something is kept, and where.
end_cut_off() {
    local status=0 pid=${pids[$1]}
    kill "-$2" "$pid"
    wait_for_end "$pid" "machine $1 after SIG$2"
    wait "$pid" || status=$?
    pids[$1]=
    [ $status -ne 0 ] || fail "machine $1 says that everything is durable"
    ! grep -q " ${mounts[$1]} " /proc/self/mountinfo || fail "${mounts[$1]} is still mounted"
    grep -q "the next start goes on with them" "$(machine_log "$1")" || fail "machine $1 does not say what is left: $(tail -n 3 "$(machine_log "$1")")"
}
salvaged() { on "$1" "$leasehold" salvage list --data "$scratch/data$1" 2>&1 || true; }
make_changes() { # $1: below; written, renamed, removed, linked; nothing of it synced
    mkdir "$1"
    head -c 100 /dev/urandom >"$1/small"
    head -c 3000000 /dev/urandom >"$1/large"
    head -c 50000 /dev/urandom >"$1/new" && mv "$1/new" "$1/replaced"
    ln "$1/small" "$1/second"
    : >"$1/gone" && rm "$1/gone"
}

for signal in TERM INT; do
    dir=$signal
    stat "${mounts[2]}" >/dev/null
    # What is made there before the server goes is known to it; what comes after is not.
    mkdir "${mounts[2]}/$dir" && sync "${mounts[2]}"
    make_changes "${mounts[2]}/$dir/before"
    cut 2
    make_changes "${mounts[2]}/$dir/after"
    cp -r "${mounts[2]}/$dir" "$scratch/expected-$dir"
    end_cut_off 2 "$signal"
    salvaged 2 | grep -q "its next start goes on with it" || fail "nothing is listed: $(salvaged 2)"
    number=$(salvaged 2 | sed -n 's/^\([0-9]*\) of .*/\1/p' | tail -n 1)
    # People are told in words what was done, and programs by the names of calls.
    salvaged 2 | grep -q "/$dir/after/second: make it another name of /$dir/after/small (user 0, .*): cut off" || fail "the link is not told: $(salvaged 2)"
    on 2 "$leasehold" salvage list --data "$scratch/data2" --json >"$scratch/salvage.json" || true
    python3 - "$scratch/salvage.json" "/$dir/after" <<'CHECK' || fail "salvage list --json: $(cat "$scratch/salvage.json")"
import json, sys
items = [item for one in json.load(open(sys.argv[1])) for item in one["items"]]
done = {(item["path"], item["change"]["call"]) for item in items if item["change"]}
below = sys.argv[2]
assert {(below, "create"), (below + "/second", "link"), (below + "/replaced", "rename")} <= done, done
CHECK
    on 2 "$leasehold" salvage restore "$number" --data "$scratch/data2" --to "$scratch/restored-$dir" --json >"$scratch/restored.json" || fail "what is left cannot be restored"
    grep -q "\"$scratch/restored-$dir/$dir/after/large\"" "$scratch/restored.json" || fail "salvage restore --json: $(cat "$scratch/restored.json")"
    cmp "$scratch/restored-$dir/$dir/after/large" "$scratch/expected-$dir/after/large" || fail "what is restored is not what was written"
    mend 2
    if [ "$signal" = INT ]; then
        # Killed while it goes on with that, some times.
        for ms in 0.02 0.05 0.1 0.2; do
            start_only 2
            sleep "$ms"
            kill_machine 2
        done
    fi
    start 2
    for mount in "${mounts[1]}" "${mounts[2]}"; do
        diff -r "$scratch/expected-$dir" "$mount/$dir" || fail "after the next start something is missing"
    done
    [ -z "$(salvaged 2 | grep '^[0-9]')" ] || fail "what is applied is still listed: $(salvaged 2)"
done

# The server's process goes, and not the network.
mkdir "${mounts[2]}/killed" && sync "${mounts[2]}"
kill_machine 1
make_changes "${mounts[2]}/killed/after"
cp -r "${mounts[2]}/killed" "$scratch/expected-killed"
end_cut_off 2 TERM
# Together: what machine 1 needs of the other's leases it would have after its term, and then the session is over.
start_only 1
start 2
wait_for 1
diff -r "$scratch/expected-killed" "${mounts[1]}/killed" || fail "after the server's restart something is missing"

# Somebody needs what it held: the session is over, and what was left stays with the machine.
mkdir "${mounts[2]}/over" && sync "${mounts[2]}"
cut 2
echo "never applied" >"${mounts[2]}/over/file"
end_cut_off 2 TERM
timeout "$hang" sh -c "echo other >'${mounts[1]}/over/file'" || fail "hangs: machine 1 waits for one that has ended: $(where_is "${pids[1]}")"
mend 2
start 2
[ "$(cat "${mounts[2]}/over/file")" = other ] || fail "what came later was overwritten"
salvaged 2 | grep -q "cut off" || fail "what was left is not salvaged: $(salvaged 2)"
number=$(salvaged 2 | sed -n 's/^\([0-9]*\) of .*/\1/p' | tail -n 1)
on 2 "$leasehold" salvage restore "$number" --data "$scratch/data2" --to "$scratch/restored-over" >/dev/null
[ "$(cat "$scratch/restored-over/over/file"*)" = "never applied" ] || fail "the salvage has something else"
stop 2
stop 1
passed
