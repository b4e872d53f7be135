#!/usr/bin/env bash
# kill -9, KILLS times (50) at random moments of every workload, over a tree of 100,000 files. After each: the restart takes
# less than 2 s, all that an fsync answered for is there (the journal's facts, SQLite's commits, ...), and fsck is clean.
# The same moments again: SEED=n.
. "$(dirname "$0")/mounted.sh"
kills=${KILLS:-50} files=${FILES_AROUND:-100000} restart_max_ms=${RESTART_MAX_MS:-2000}
RANDOM=${SEED:=$(($(od -An -N2 -tu2 /dev/urandom)))}
workloads=(git build tar sqlite fsx append pjdfstest)
[ "$(id -u)" = 0 ] || workloads=(git build tar sqlite fsx append)
running=()
cleanup() { for group in "${running[@]}"; do kill -9 -- "-$group"; done 2>/dev/null; }
say "SEED=$SEED, kept moments come back with it"

# Each workload in a process group of its own, so that its stragglers can be ended with it.
begin() { setsid "$@" >>"$state/$(basename "$1").log" 2>&1 & running+=($!); }

end_workloads() {
    local group
    for group in "${running[@]}"; do
        # They end by themselves, since every call fails now; if not, after a while.
        [ -n "${PLAIN:-}" ] || timeout 60 tail --pid="$group" -s 0.02 -f /dev/null || true
        kill -9 -- "-$group" 2>/dev/null || true
        wait "$group" 2>/dev/null || true
    done
    running=()
}

prepare() {
    mkdir "$scratch/shared"
    FILES=4000 "$root/tests/workload/tar" work "$mnt" "$scratch/shared"
    "$root/tests/tree" make "$mnt/many" "$files"
    mkdir "$mnt/first" && "$root/tests/workload/git" work "$mnt/first" "$scratch/shared"
    rm "$scratch/shared/done"
    stop_mount
    fsck_clean
    start_mount
    say "made $files files, restarted in $up_ms ms"
}

check_facts() {
    local workload=$1 dir=$2 state=$3
    "$root/tests/workload/journal" check "$dir/journal" "$state" >"$scratch/check.log" 2>&1 &&
        "$root/tests/workload/$workload" check "$dir/work" "$state" >>"$scratch/check.log" 2>&1 || {
        tail -n 20 "$scratch/check.log" >&2
        fail "facts do not hold, see $state"
    }
}

start_mount
prepare
slowest=0
for kill in $(seq "$kills"); do
    workload=${workloads[$((kill % ${#workloads[@]}))]}
    moment=$((RANDOM % 2500 + 50))
    context="kill $kill, $workload, after $moment ms, SEED=$SEED"
    dir=$mnt/round$kill state=$scratch/round$kill
    mkdir -p "$dir/journal" "$dir/work" "$state"
    ln -s "$scratch/shared/"{tree,origin.git} "$state/"
    export SEED OPERATIONS=0 NO_REMOUNT=1 FILES=4000
    begin "$root/tests/workload/$workload" work "$dir/work" "$state"
    begin "$root/tests/workload/journal" work "$dir/journal" "$state"
    sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
    kill_mount
    end_workloads
    start_mount
    [ "$up_ms" -le "$restart_max_ms" ] || fail "the restart took $up_ms ms"
    [ "$up_ms" -le "$slowest" ] || slowest=$up_ms
    check_facts "$workload" "$dir" "$state"
    rm -rf "$dir/work"
    # Every other time by the running machine itself.
    if [ $((kill % 2)) = 0 ]; then fsck_clean; else stop_mount && fsck_clean && start_mount; fi
done

# What the first kills spared, the later ones did too.
for kill in $(seq "$kills"); do
    "$root/tests/workload/journal" check "$mnt/round$kill/journal" "$scratch/round$kill" >/dev/null || fail "facts of round $kill were lost later"
done
stop_mount
fsck_clean
passed "$kills kills, slowest restart $slowest ms with $files files; seed $SEED"
