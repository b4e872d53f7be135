#!/usr/bin/env bash
# An office: five machines, one of them the server, five mounts; what people do there with files, at once and in the same directories, every read checked.
# PARTS="seen git" runs only those, one by one. MOVING=8 runs all over eight servers of the directory, with regions that move. The sizes are for two slow cores: ROUNDS, LINES, ... of tests/shared/* make it longer.
. "$(dirname "$0")/machines.sh"
shared=$root/tests/shared
# In groups that run at once: they are in each other's way as people are, and use the time in which others wait.
groups=("seen held exercise" onlookers "save maildir git" "cross locks sqlite" pjdfstest append)
[ -z "${PARTS:-}" ] || groups=($PARTS)

# on_mounts NAME MACHINE...: a program of tests/shared in a directory of its own, through these machines' mounts.
on_mounts() {
    local program=$1 tops=() i
    shift
    mkdir "${mounts[1]}/$program"
    chmod 755 "${mounts[1]}/$program"
    for i in "$@"; do tops+=("${mounts[i]}/$program"); done
    job "$shared/$program" "${tops[@]}"
}

run_seen() { ROUNDS=${ROUNDS:-150} on_mounts seen 1 2 3 4 5; }
run_held() { on_mounts held 3 1; }
run_onlookers() { on_mounts onlookers 2 3 1 4; }
run_exercise() { OPS=${OPS:-500} on_mounts exercise 4 5; }
run_save() { SAVES=${SAVES:-25} on_mounts save 2 4; }
run_maildir() { MAILS=${MAILS:-20} on_mounts maildir 1 2 3 4 5; }
run_git() { PUSHES=${PUSHES:-3} on_mounts git 2 5; }
run_cross() { FOR=${FOR:-10} on_mounts cross 2 3; }
run_locks() { TURNS=${TURNS:-100} on_mounts locks 3 4; }
run_sqlite() { MOVES=${MOVES:-25} on_mounts sqlite 1 5; }
run_append() { on_mounts append 2 3; }

run_pjdfstest() {
    local i pid state=$scratch/pjdfstest
    mkdir "${mounts[1]}/pjdfstest" "$state"
    for i in 1 2 4; do job "$shared/beside" "${mounts[i]}/pjdfstest" "$i"; done
    NO_REMOUNT=1 "$root/tests/workload/pjdfstest" work "${mounts[3]}/pjdfstest" "$state" || failed+=("pjdfstest, while others work in the same directories")
    for pid in "${!jobs[@]}"; do kill -0 "$pid" 2>/dev/null || failed+=("ended by itself: ${jobs[$pid]}"); done
    end_jobs
}

# What there is in the end, as a machine sees it: every name with its attributes, every content.
whole_tree() { (cd "${mounts[$1]}" && find . -printf '%p %y %i %m %n %U %G %s %T@ %C@ %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k 2); }

failed=()
build 5
within "${WITHIN:-2000}"
for i in 1 2 3 4 5; do start "$i"; done
maybe_moving
for group in "${groups[@]}"; do
    began=$SECONDS
    for one in $group; do "run_$one"; done
    # One fault is no reason to know nothing of the rest.
    join_jobs || failed+=("$group: $joined")
    say "$group: $((SECONDS - began)) s"
done

maybe_still
for i in 1 2 3 4 5; do
    whole_tree "$i" >"$scratch/tree$i"
    cmp -s "$scratch/tree1" "$scratch/tree$i" || failed+=("in the end machines 1 and $i differ: $(diff "$scratch/tree1" "$scratch/tree$i" | head -4)")
    lh "$i" salvage list >"$scratch/salvage$i" || fail "machine $i has something to salvage, and was never cut off: $(cat "$scratch/salvage$i")"
done
lh 1 fsck >"$scratch/fsck.log" 2>&1 || fail "fsck of the running server: $(tail -5 "$scratch/fsck.log")"
[ ${#failed[@]} = 0 ] || fail "$(printf '%s; ' "${failed[@]}")see above"
stop_all
[ -n "${MOVING:-}" ] || fsck_clean "$scratch/data1"
passed "${groups[*]}"
