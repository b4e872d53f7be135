#!/usr/bin/env bash
# Three servers and five mounts. Servers are killed, stopped, cut off and cut off one way, their disks fill up and their clocks jump, one fault after the other, while machines that are no servers work: no call
# of theirs fails, nothing that was promised is lost, and how long each fault held them up is printed; at last two of five servers die at once. FAULTS=200 does so many (14); FAULT="kill-leader ..." only those kinds.
. "$(dirname "$0")/machines.sh"
journal=$root/tests/workload/journal beat=$root/tests/workload/beat
faults=${FAULTS:-14}
read -ra kinds <<<"${FAULT:-kill-leader kill-follower stop-leader cut-leader kill-server-and-client cut-follower one-way-from-leader clock-jump one-way-to-leader full-disk restart-leader kill-all cut-client full-disk-of-leader}"

follower_of() { for i in 1 2 3; do [ "$i" = "$1" ] || { echo "$i"; return; }; done; }
others_of() { for i in 1 2 3 4 5; do [ "$i" = "$1" ] || echo "$i"; done; }

# What one says does not arrive at the other: it has a neighbour there that is not.
deafen() { inside "$1" neigh replace "$(address "$2")" lladdr 02:00:00:00:ff:ff nud permanent dev eth0; }
undeafen() { inside "$1" neigh del "$(address "$2")" dev eth0 2>/dev/null || true; }

# Machine $1's disk is taken by somebody else, but for what is left of a block; with -, it is free again.
fill_disk() {
    local disk=$scratch/data$1
    fallocate -l "$(df --output=avail -B1 "$disk" | tail -n 1)" "$disk/filler" 2>/dev/null || true
    cat /dev/zero >"$disk/more" 2>/dev/null || true
}
free_disk() { rm -f "$scratch/data$1/filler" "$scratch/data$1/more"; }

begin_work() {
    local i=$1 state=$scratch/work-$1-$2
    mkdir -p "${mounts[i]}/work-$i-$2" "$state"
    errors=$state/errors job env OPERATIONS=0 PAUSE=0.03 LARGEST=40000 SEED="$((SEED * 10 + i))" "$journal" work "${mounts[i]}/work-$i-$2" "$state"
    workers[$i]=$job work[$i]=work-$i-$2
    errors=$state/beat-errors job "$beat" "${mounts[i]}/beat-$i" "$scratch/beats-$i"
    beaters[$i]=$job
}

end_work() {
    local group
    for group in "${workers[$1]}" "${beaters[$1]}"; do
        kill -9 -- "-$group" 2>/dev/null || true
        wait "$group" 2>/dev/null || true
        unset "jobs[$group]"
    done
    done_work+=("${work[$1]}")
}

still_works() {
    local i=$1 state=$scratch/${work[$1]}
    kill -0 "${workers[$i]}" 2>/dev/null && kill -0 "${beaters[$i]}" 2>/dev/null && ! grep -q Error "$state/errors" "$state/beat-errors" ||
        fail "a call failed on machine $i, that was not at fault: $(tail -n 3 "$state/errors" "$state/beat-errors")"
}

# The longest that a beat took that began or ended since $1, on machine 4; in ms.
stall() { python3 - "$1" "$scratch/beats-4" <<'PY'
import sys
since = float(sys.argv[1])
beats = [tuple(map(float, line.split())) for line in open(sys.argv[2]) if line.count(" ") == 1]
print(int(1000 * max((took for began, took in beats if began + took >= since), default=-1)))
PY
}

# beats_again SINCE: machine 4 has done something that began after it.
beats_again() {
    local tries
    for tries in $(seq $((hang * 10))); do
        python3 - "$1" "$scratch/beats-4" <<'PY' && return 0
import sys
lines = [line.split() for line in open(sys.argv[2]).read().splitlines()[-1:]]
sys.exit(not (lines and float(lines[0][0]) > float(sys.argv[1])))
PY
        still_works 4
        sleep 0.1
    done
    fail "hangs: machine 4 does nothing for $hang s: $(where_is "${pids[4]}")"
}

fault() {
    local kind=$1 at victim i now
    at=$(leader) now=$(date +%s.%N)
    case $kind in
    kill-leader) victim=$at; kill_machine "$victim" ;;
    restart-leader) victim=$at; kill_machine "$victim"; start "$victim" ;;
    kill-follower) victim=$(follower_of "$at"); kill_machine "$victim" ;;
    kill-server-and-client)
        victim=$(follower_of "$at")
        end_work 5
        kill_machine 5
        kill_machine "$victim" ;;
    kill-all) victim=; for i in 1 2 3; do kill_machine "$i"; done ;;
    stop-leader) victim=$at; pause "$victim" ;;
    full-disk) victim=$(follower_of "$at"); fill_disk "$victim" ;;
    full-disk-of-leader) victim=$at; fill_disk "$victim" ;;
    clock-jump) victim=$at; kill_machine "$victim" ;;
    cut-client) victim=5; end_work 5; cut 5 ;;
    cut-leader) victim=$at; cut "$victim" ;;
    cut-follower) victim=$(follower_of "$at"); cut "$victim" ;;
    one-way-from-leader) victim=$at; for i in $(others_of "$at"); do deafen "$at" "$i"; done ;;
    one-way-to-leader) victim=$at; for i in $(others_of "$at"); do deafen "$i" "$at"; done ;;
    esac
    if [ "$kind" = kill-all ]; then
        for i in 1 2 3; do start_only "$i"; done
        for i in 1 2 3; do wait_for "$i"; done
        beats_again "$(date +%s.%N)"
    else
        beats_again "$(python3 -c "print($now + 0.2)")"
        sleep 1
    fi
    stalled=$(stall "$now")
    case $kind in
    kill-leader | kill-follower) start "$victim" ;;
    # A backup begins with a checkpoint, which waits for room. The server goes on by itself once there is some.
    full-disk*)
        lh "$victim" backup "$scratch/backup" >"$scratch/backup.log" 2>&1 || true
        sleep 2
        lh "$victim" status >"$scratch/status.log" 2>&1 || fail "machine $victim does not answer: its disk is full"
        free_disk "$victim"
        kill -0 "${pids[victim]}" 2>/dev/null || fail "machine $victim ended: its disk was full: $(tail -n 4 "$(machine_log "$victim")")" ;;
    # The clock that leases count in, hours or days on, or back where it was.
    clock-jump)
        if [ -n "${clocks[$victim]:-}" ]; then unset "clocks[$victim]"; else clocks[$victim]=$((1 + RANDOM * 90)); fi
        start "$victim" ;;
    cut-client) mend 5; begin_work 5 "$number" ;;
    kill-server-and-client) start "$victim"; start 5; begin_work 5 "$number" ;;
    stop-leader) go_on "$victim" ;;
    cut-*) mend "$victim" ;;
    one-way-from-leader) for i in $(others_of "$at"); do undeafen "$at" "$i"; done ;;
    one-way-to-leader) for i in $(others_of "$at"); do undeafen "$i" "$at"; done ;;
    esac
    settled
    beats_again "$(date +%s.%N)"
    for i in 4 5; do still_works "$i"; done
    echo "$kind $stalled" >>"$scratch/stalls"
    say "fault $number, $kind of machine ${victim:-1, 2 and 3}: held up for $stalled ms"
}

unshare --time --boottime 1 true 2>/dev/null || skip "clocks that jump need time namespaces"
declare -A workers=() beaters=() work=()
done_work=()
build 5
for i in 1 2 3; do
    disk "$i" 2G
done
within "${WITHIN:-$((600 + faults * 120))}"
SEED=${SEED:-$((RANDOM % 1000))}
say "SEED=$SEED"
for i in 1 2 3 4 5; do start "$i"; done
for i in 2 3; do lh 1 server add "machine$i" >"$scratch/add$i.log" 2>&1 || fail "server add: $(tail -n 2 "$scratch/add$i.log")"; done
settled
for i in 4 5; do begin_work "$i" first; done
sleep 1
for number in $(seq "$faults"); do
    fault "${kinds[$(((number - 1) % ${#kinds[@]}))]}"
done
# Two of five: the leader and another.
for i in 4 5; do at=$(leader); on "$at" timeout "$hang" "$leasehold" server add "machine$i" --data "$scratch/data$at" >"$scratch/add$i.log" 2>&1 || fail "server add: $(tail -n 2 "$scratch/add$i.log")"; done
settled 5
for number in 1 2; do
    at=$(leader) now=$(date +%s.%N)
    [ "$at" -le 3 ] || break
    victims=("$at" "$(follower_of "$at")")
    for i in "${victims[@]}"; do kill_machine "$i"; done
    beats_again "$(python3 -c "print($now + 0.2)")"
    sleep 1
    echo "two-of-five $(stall "$now")" >>"$scratch/stalls"
    say "machines ${victims[*]}, two of five servers: held up for $(stall "$now") ms"
    for i in "${victims[@]}"; do start_only "$i"; done
    for i in "${victims[@]}"; do wait_for "$i"; done
    settled 5
done
for i in 4 5; do still_works "$i"; done
for i in 4 5; do end_work "$i"; done
say "all promises are looked at"
for promised in "${done_work[@]}"; do
    for i in 1 2 3 4 5; do
        "$journal" check "${mounts[i]}/$promised" "$scratch/$promised" >"$scratch/check.log" 2>&1 ||
            fail "$promised was promised what machine $i does not see: $(tail -n 4 "$scratch/check.log")"
    done
done
# Content outlives the machine that is emptied and removed.
head -c 20000000 /dev/urandom >"$scratch/large"
cp "$scratch/large" "${mounts[4]}/large"
sync "${mounts[4]}/large"
leads=$(leader) gone=$(follower_of "$(leader)")
lh "$leads" drain "machine$gone" >"$scratch/drain.log" 2>&1 || fail "drain: $(tail -n 2 "$scratch/drain.log")"
lh "$(leader)" server remove "machine$gone" >"$scratch/remove.log" 2>&1 || fail "server remove: $(tail -n 2 "$scratch/remove.log")"
kill_machine "$gone"
rm -rf "$scratch/data$gone/shares" "$scratch/data$gone/server"
for i in 1 2 3 4 5; do
    [ "$i" = "$gone" ] || cmp "$scratch/large" "${mounts[i]}/large" || fail "machine $i does not see the content of a server that is gone"
done
lh "$(leader "$gone")" fsck >"$scratch/fsck.log" 2>&1 || fail "fsck of the leader: $(tail -n 5 "$scratch/fsck.log")"
python3 - "$scratch/stalls" <<'PY'
import sys
kinds = {}
for line in open(sys.argv[1]):
    kind, ms = line.split()
    kinds.setdefault(kind, []).append(int(ms))
for kind, all in sorted(kinds.items()):
    all.sort()
    print(f"held up by {kind:<24} {len(all):>3} times: median {all[len(all) // 2]:>6} ms, longest {all[-1]:>6} ms")
PY
[ -z "${KEEP:-}" ] || cp "$scratch"/*.log "$scratch"/beats* "$KEEP"/
stop_all
passed "$faults faults; SEED=$SEED"
