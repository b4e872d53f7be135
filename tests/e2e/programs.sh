#!/usr/bin/env bash
# Programs as they fared on comparable file systems, by public reports: each of tests/programs on one mount and on the mounts of two machines.
# Usage: programs.sh [PROGRAM...]     all if none is named, here or in $PROGRAMS; with PLAIN=DIR on a plain directory, where all must pass
# LOOP=n is for how many seconds those go on that work against the clock (3), AT_ONCE=n how many run beside each other (4), LONGEST=n when one hangs (600 s).
. "$(dirname "$0")/mounted.sh"
[ "$(id -u)" = 0 ] || skip "programs that change owners and mount want root"
programs=$root/tests/programs
export LOOP=${LOOP:-3} LONGEST=${LONGEST:-600}
at_once=${AT_ONCE:-4}
out=$scratch/out
mkdir "$out"
declare -A pids=()

named=("$@")
[ ${#named[@]} -gt 0 ] || read -ra named <<<"${PROGRAMS:-}"
[ ${#named[@]} -gt 0 ] || mapfile -t named < <(find "$programs" -name '*.py' -perm -u+x -printf '%f\n' | sort)
named=("${named[@]%.py}")
is_named() { [[ " ${named[*]} " == *" $1 "* ]]; }
# These fill a file system, measure it or its speed, stop a machine of it, or have mounts in it, which do not survive the last resort against
# programs of two machines that rename directories into each other (fuse/src/notices.rs): they have one to themselves, on a small disk.
alone=(space_that_is_told space_that_was_promised suspended_and_resumed tree_that_another_made mounts_and_shells_within)
is_alone() { [[ " ${alone[*]} " == *" $1 "* ]]; }

# begin NAME COMMAND...: starts a leasehold and waits until it is mounted.
begin() {
    local name=$1 log=$scratch/$1.log tries
    "${@:2}" >"$log" 2>&1 &
    pids[$name]=$!
    for tries in $(seq 1200); do
        ! grep -qs '^mounted on ' "$log" || return 0
        kill -0 "${pids[$name]}" 2>/dev/null || fail "$name ended by itself: $(tail -n 5 "$log")"
        sleep 0.1
    done
    fail "$name hangs: not mounted after 120 s: $(tail -n 5 "$log") $(where_is "${pids[$name]}")"
}

# join NAME DATA: a second machine of the file system of the server with that data, mounted on $scratch/NAME.
join() {
    local token
    token=$("$leasehold" invite --data "$2" --address "$3")
    begin "$1" "$leasehold" mount --join "$token" --name "$1" --data "$scratch/data-$1" "$scratch/$1"
}

# end NAME [PID]: by SIGTERM, must end with status 0.
end() {
    local pid=${pids[$1]} status=0
    kill -TERM "${2:-$pid}"
    timeout 300 tail --pid="$pid" -s 0.05 -f /dev/null || fail "$1 hangs: runs 300 s after SIGTERM: $(tail -n 5 "$scratch/$1.log") $(where_is "$pid")"
    wait "$pid" || status=$?
    unset "pids[$1]"
    [ $status = 0 ] || fail "$1 ended with status $status: $(tail -n 5 "$scratch/$1.log")"
}

cleanup() {
    local name
    {
        for name in "${!pids[@]}"; do kill -9 "${pids[$name]}"; done
        for name in second second-small small apart/mnt; do umount -f "$scratch/$name" || umount -l "$scratch/$name"; done
        umount -l "$scratch/apart" "$scratch/disk"
    } 2>/dev/null
}

# try COLUMN PROGRAM DIR...: its status and the seconds that it took, and what it said, are left in $out.
try() {
    local at=$out/$1.$2 began=$SECONDS status=0
    timeout -k 5 $((LONGEST + 120)) "$programs/$2.py" "${@:3}" >"$at.log" 2>&1 || status=$?
    [ $status != 124 ] || echo "WRONG  hangs, and its guard with it: no end after $((LONGEST + 120)) s" >>"$at.log"
    echo $status $((SECONDS - began)) >"$at"
}

# try_all COLUMN DIR...: all that need no file system to themselves, so many at once.
try_all() {
    local program running=()
    for program in "${named[@]}"; do
        ! is_alone "$program" || continue
        # Of these only: leasehold runs in the background, too.
        while [ ${#running[@]} -ge "$at_once" ]; do
            wait -n "${running[@]}" || true
            mapfile -t running < <(for pid in "${running[@]}"; do ! kill -0 "$pid" 2>/dev/null || echo "$pid"; done)
        done
        try "$1" "$program" "${@:2}" &
        running+=($!)
    done
    [ ${#running[@]} = 0 ] || wait "${running[@]}" || true
}

# A file system of its own on a small disk, for those that are alone, one after the other.
try_alone() {
    local program small=("$scratch/small") wanted=()
    for program in "${alone[@]}"; do ! is_named "$program" || wanted+=("$program"); done
    [ ${#wanted[@]} -gt 0 ] || return 0
    losetup -f >/dev/null 2>&1 || { say "SKIPPED: ${wanted[*]}: a small disk needs loop devices" >&2 && return 0; }
    mkdir "$scratch/disk" "$scratch/small" "$scratch/second-small"
    truncate -s 1500M "$scratch/image"
    mkfs.ext4 -q -m 0 "$scratch/image"
    mount -o loop "$scratch/image" "$scratch/disk"
    export DISK=$scratch/disk
    if [ -n "${PLAIN:-}" ]; then
        mkdir "$DISK/plain"
        for program in "${wanted[@]}"; do try one "$program" "$DISK/plain"; done
        return
    fi
    begin small "$leasehold" up --data "$DISK/data" --mount "$scratch/small" --listen 127.0.0.1:14481
    join second-small "$DISK/data" 127.0.0.1:14481
    for program in "${wanted[@]}"; do
        [ "$program" = suspended_and_resumed ] || try one "$program" "$small"
        PID2=${pids[second-small]} try two "$program" "$small" "$scratch/second-small"
    done
    end second-small
    end small
}

# Served from another pid namespace, as from a container, and used from here.
try_apart() {
    local program=groups_and_waits_of_others
    is_named $program || return 0
    mkdir -p "$scratch/apart"
    mount --bind "$scratch/apart" "$scratch/apart"
    mount --make-shared "$scratch/apart"
    mkdir "$scratch/apart/mnt"
    begin apart unshare --pid --fork --kill-child --mount --propagation unchanged sh -c \
        'mount --make-private /proc; mount -t proc proc /proc; exec "$@"' - \
        "$leasehold" up --data "$scratch/data-apart" --mount "$scratch/apart/mnt" --listen 127.0.0.1:14482
    try apart $program "$scratch/apart/mnt"
    end apart "$(cat "/proc/${pids[apart]}/task/${pids[apart]}/children")"
}

cell() {
    local status took
    read -r status took 2>/dev/null <"$out/$1.$2" || { echo - && return; }
    case $status in
    0) echo "$took s" ;;
    77) echo skipped ;;
    *) echo "WRONG, $took s" ;;
    esac
}

# The table, what was not tried, and what was wrong: 1 if anything was.
tell() {
    local program column log wrong=() skipped=()
    printf '%-32s %14s %14s %14s\n' program one two apart
    for program in "${named[@]}"; do
        printf '%-32s %14s %14s %14s\n' "$program" "$(cell one "$program")" "$(cell two "$program")" "$(cell apart "$program")"
        for column in one two apart; do
            log=$out/$column.$program
            [ -e "$log" ] || continue
            case $(cut -d ' ' -f 1 "$log") in
            0 | 77) skipped+=("$(sed -n "s/^skip   /$program ($column): /p" "$log.log")") ;;
            *) wrong+=("$column.$program") ;;
            esac
        done
    done
    printf '%s\n' "${skipped[@]}" | sed '/^$/d; s/^/not tried: /'
    for log in "${wrong[@]}"; do printf -- '--- %s\n' "$log" && grep -v '^ok ' "$out/$log.log"; done
    [ ${#wrong[@]} = 0 ] || fail "wrong: ${wrong[*]}"
}

for program in "${named[@]}"; do [ -x "$programs/$program.py" ] || fail "there is no tests/programs/$program.py"; done
up_options=(--listen 127.0.0.1:14480)
start_mount
if [ -n "${PLAIN:-}" ]; then
    try_all one "$mnt"
    try_alone
    tell
    passed "on a plain directory"
    exit
fi
mkdir "$scratch/second"
join second "$data" 127.0.0.1:14480
try_all one "$mnt"
try_all two "$mnt" "$scratch/second"
try_apart
end second
stop_mount
fsck_clean
try_alone
tell
passed "${#named[@]} programs"
