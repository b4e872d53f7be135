#!/usr/bin/env bash
# Three servers, a fourth machine that works. Disks of servers are put back to older copies, emptied, and cloned, one after the other: who has forgotten what it promised takes part no more and is added
# anew, nobody founds anything, nothing that was promised is lost. Then the client machine's own directory: an older copy starts at once, and of two copies the second is told why it cannot.
. "$(dirname "$0")/machines.sh"

follower() { local at i; at=$(leader); for i in 3 2 1; do [ "$i" = "$at" ] || { echo "$i"; return; }; done; }
quarantined() { find "$scratch/data$1" -maxdepth 1 -name "server.damaged-*" | wc -l; }
added_anew() {
    local tries
    for tries in $(seq 300); do
        [ "$(quarantined "$1")" = "$2" ] && lh "$1" scrub >/dev/null 2>&1 && { settled; return 0; }
        sleep 0.2
    done
    fail "machine $1 was not added anew: $(tail -n 4 "$(machine_log "$1")")"
}
written=0
# Each with fsync.
write() {
    local n
    for n in $(seq "$1"); do
        written=$((written + 1))
        timeout 60 dd if=/dev/zero of="${mounts[4]}/file$written" bs=100 count=1 conv=fsync status=none || fail "file $written was not written"
    done
}
all_there() {
    local n
    [ "$(timeout 60 ls "${mounts[4]}" | grep -c '^file')" = "$written" ] || fail "files are gone: $(ls "${mounts[4]}" | wc -l) of $written"
    for n in $(seq "$written"); do [ "$(stat -c %s "${mounts[4]}/file$n")" = 100 ] || fail "file$n is not what was written"; done
}
keep() { rm -rf "$scratch/kept"; cp -a "$scratch/data$1" "$scratch/kept"; }
put_back() { rm -rf "$scratch/data$1"; cp -a "$scratch/kept" "$scratch/data$1"; }

build 5
within "${WITHIN:-300}"
for i in 1 2 3 4; do start "$i"; done
for i in 2 3; do lh 1 server add "machine$i" >"$scratch/add$i.log" 2>&1 || fail "server add: $(tail -n 2 "$scratch/add$i.log")"; done
settled
write 20

kill_machine 1
mv "$scratch/data1/server" "$scratch/gone"
start 1
added_anew 1 1
write 5
all_there
say "the founder, whose state was missing, was added anew"

at=$(follower) before=$(quarantined "$at")
kill_machine "$at"
rm -rf "$scratch/data$at"/server/*
start "$at"
added_anew "$at" $((before + 1))
say "machine $at, whose state was emptied, was added anew"

at=$(follower) before=$(quarantined "$at")
kill_machine "$at"
keep "$at"
start "$at"
settled
write 20
kill_machine "$at"
put_back "$at"
start "$at"
added_anew "$at" $((before + 1))
write 5
all_there
say "machine $at, whose disk was put back, was added anew"

# Of what is written now one server has nothing, and another forgets it while the third is away: these two must not go on.
first=$(leader) second=$(follower)
third=$((6 - first - second)) before=$(quarantined "$second")
kill_machine "$second"
keep "$second"
start "$second"
settled
kill_machine "$third"
write 30
kill_machine "$second"
put_back "$second"
kill_machine "$first"
start_only "$second"
start_only "$third"
sleep 15
! timeout 5 "$leasehold" server list --data "$scratch/data$second" --json 2>/dev/null | grep -q '"leads": *true' || fail "machine $second leads, or follows, with what it has forgotten"
start "$first"
for at in "$second" "$third"; do wait_for "$at"; done
added_anew "$second" $((before + 1))
write 5
all_there
say "two servers, of which one had forgotten what was promised, waited for the third"

# The working machine.
kill_machine 4
keep 4
for n in 1 2 3; do start 4; kill_machine 4; done
put_back 4
start 4
[ "$started_ms" -lt 20000 ] || fail "a machine with an older copy of its directory took $started_ms ms to start"
cp -a "$scratch/kept" "$scratch/data5"
rm -f "$scratch/data5/control"
! timeout 60 nsenter --net="/run/netns/$net-5" -- "$leasehold" mount --data "$scratch/data5" "${mounts[5]}" >"$scratch/twin.log" 2>&1 || fail "two copies of a machine are up"
grep -q "copy of this machine's data directory" "$scratch/twin.log" || fail "the second copy is not told why: $(cat "$scratch/twin.log")"
write 5
all_there
say "an older copy of machine 4 started in $started_ms ms, and a second one was refused"
stop_all
passed
