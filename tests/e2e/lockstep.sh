#!/usr/bin/env bash
# Three machines and a reference directory in lockstep (tests/shared/lockstep): every call is done on the reference and on one of the
# mounts, every answer compared, and all that the mounts show; machines are paused and killed meanwhile.
# SECS=n (110 if not said) of walking, with faults for the second half of it; SEED=n. WATCHED=1: programs watch all of each mount meanwhile (inotify).
. "$(dirname "$0")/machines.sh"
shared=$root/tests/shared
secs=${SECS:-110} seed=${SEED:-1}

# walk NAME: in a directory of its own, through all mounts; with FAULTS it is asked back what it asks for.
walk() {
    local tops=() i reference=$scratch/reference-$1
    mkdir "$reference" "${mounts[1]}/$1"
    for i in 1 2 3; do tops+=("${mounts[i]}/$1"); done
    coproc walker { exec "$shared/lockstep" "$reference" "${tops[@]}" 2> >(tee "$scratch/walk" >&2); }
    local pid=$walker_PID read_from=${walker[0]} write_to=${walker[1]} what machine status=0
    while read -r what machine <&"$read_from"; do
        case $what in
        pause) pause "$machine" ;;
        go_on) go_on "$machine" ;;
        kill) kill_machine "$machine" ;;
        start) start "$machine" ;;
        *) fail "the walker wants '$what $machine'" ;;
        esac
        echo done >&"$write_to"
    done
    wait "$pid" || status=$?
    [ $status = 0 ] || fail "$1: lockstep ended with $status: $(cat "$scratch/walk"); again: SEED=$seed tests/e2e/lockstep.sh"
    rm -rf "$reference"
}

build 3
within "${WITHIN:-$((secs * 10 + 1000))}"
for i in 1 2 3; do start "$i"; done
for i in 1 2 3; do
    [ -z "${WATCHED:-}" ] || job "$shared/watcher" "${mounts[i]}" >"$scratch/heard$i"
done
SECS=$((secs / 2)) SEED=$seed walk calm
SECS=$((secs / 2)) SEED=$((seed + 1)) FAULTS=1 walk faults
if [ -n "${WATCHED:-}" ]; then
    end_jobs
    for i in 1 2 3; do say "watchers on machine $i heard of $(tail -n 1 "$scratch/heard$i") changes"; done
fi
for i in 1 2 3; do
    lh "$i" salvage list >"$scratch/salvage$i" || fail "machine $i has something to salvage, and all was durable when it was killed: $(cat "$scratch/salvage$i")"
done
stop_all
fsck_clean "$scratch/data1"
passed "$secs s in lockstep, seeds $seed and $((seed + 1))"
