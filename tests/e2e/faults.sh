#!/usr/bin/env bash
# Five machines of which some die, stop, are cut off or thrown out, on links that lose frames, while all work and a journal notes what each was promised.
# What an fsync answered for is there, whoever asked; nobody ever sees what was before; calls fail only on the machine that is at fault; what it could
# not get applied is its salvage; fsck is clean. PARTS="expelled restarted" runs only those (lossy, killed, dead, expelled, restarted).
. "$(dirname "$0")/machines.sh"
shared=$root/tests/shared journal=$root/tests/workload/journal
read -ra parts <<<"${PARTS:-lossy killed dead expelled restarted}"
# A session's term: what a machine held that is gone, or gone silent, is free for the others after it, and a little.
term=30 slack=${SLACK:-10}
declare -A journals=() writers=()

# A journal of its own in each machine, that goes on until it is ended or a call fails. At a pace at which what it was promised can be looked at soon.
begin_journal() {
    local i=$1 dir=$2 state=$scratch/$2-$1
    mkdir -p "${mounts[i]}/$dir-$i" "$state"
    errors=$state/errors job env OPERATIONS=0 PAUSE=0.03 LARGEST=40000 SEED="$((SEED * 10 + i))" "$journal" work "${mounts[i]}/$dir-$i" "$state"
    journals[$i]=$dir writers[$i]=$job
}

# still_works I [SECONDS]: its journal has had no error, and goes on: it does something within that time, or hangs.
still_works() {
    local most=${2:-$hang} state=$scratch/${journals[$1]}-$1 before now tries
    kill -0 "${writers[$1]}" 2>/dev/null || fail "a call failed on machine $1, that was not at fault: $(tail -n 3 "$state/errors")"
    ! grep -q Error "$state/errors" || fail "a call failed on machine $1, that was not at fault: $(tail -n 3 "$state/errors")"
    before=$(du -bc "$state" | tail -n 1)
    for tries in $(seq $((most * 10))); do
        now=$(du -bc "$state" | tail -n 1)
        [ "$now" = "$before" ] || return 0
        sleep 0.1
    done
    fail "hangs: machine $1 does nothing for $most s: $(where_is "${pids[$1]}"; where_is "${writers[$1]}")"
}

# end_journal I: whatever it is at; its processes must be gone before its facts are read.
end_journal() {
    kill -9 -- "-${writers[$1]}" 2>/dev/null || true
    wait "${writers[$1]}" 2>/dev/null || true
    unset "jobs[${writers[$1]}]" "writers[$1]"
}

# facts I BY: all that the journal of machine I was promised, as machine BY sees it.
facts() {
    "$journal" check "${mounts[$2]}/${journals[$1]}-$1" "$scratch/${journals[$1]}-$1" >"$scratch/check.log" 2>&1 ||
        fail "machine $1 was promised what machine $2 does not see: $(tail -n 4 "$scratch/check.log")"
}

# answers I SECONDS WHAT...: a command that ends well within that time; what it took is left in $took.
answers() {
    local i=$1 most=$2 since status=0
    since=$(date +%s%N)
    timeout -s KILL "$((most + 20))" "${@:3}" >"$scratch/answer" 2>&1 || status=$?
    took=$((($(date +%s%N) - since) / 1000000))
    [ $status = 0 ] || fail "machine $i: ${*:3}: status $status after $took ms: $(tail -n 2 "$scratch/answer")"
    [ $took -le $((most * 1000)) ] || fail "machine $i: ${*:3}: took $took ms, more than $most s"
}

# comes_back I: a machine that was cut off can be used again at once, by itself; calls that waited meanwhile may have failed.
comes_back() {
    local tries
    for tries in $(seq $((hang * 10))); do
        timeout -s KILL 60 sh -c "echo again >'${mounts[$1]}/back-$1' && ls '${mounts[$1]}'" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    fail "hangs: machine $1 cannot be used $hang s after it was repaired: $(where_is "${pids[$1]}")"
}

# Each has a file of its own here, which the others are to change while it is away; it has all in its caches, and a descriptor open.
prepare() {
    local i
    for i in "$@"; do
        echo "before" >"${mounts[i]}/held-$i"
        echo "kept" >"${mounts[i]}/kept-$i"
        mkdir "${mounts[i]}/dir-$i"
        touch "${mounts[i]}/dir-$i/old"
        # What only its cache has: no fsync.
        sync "${mounts[i]}/kept-$i"
        cat "${mounts[i]}/held-$i" >/dev/null
        ls -l "${mounts[i]}/dir-$i" >/dev/null
    done
}

# No old data: of what was changed while it was away, on the first look.
sees_new() {
    local i=$1
    [ "$(cat "${mounts[i]}/held-$i")" = after ] || fail "machine $i reads what was before: $(cat "${mounts[i]}/held-$i")"
    [ "$(ls "${mounts[i]}/dir-$i")" = new ] || fail "machine $i lists what was before: $(ls "${mounts[i]}/dir-$i")"
    ! [ -e "${mounts[i]}/gone-$i" ] || fail "machine $i sees a name that was removed"
    [ "$(stat -c %a "${mounts[i]}/held-$i")" = 600 ] || fail "machine $i sees the old mode"
}

# late_files I: written there and not synced, right before something happens to it.
late_files() {
    local n
    for n in $(seq 20); do echo "not synced $n" >"${mounts[$1]}/late-$1-$n"; done
}

# nothing_in_silence I: each of its late files is there for the others, or is what salvage restores.
nothing_in_silence() {
    local i=$1 n number restored=$scratch/restored$1
    lh "$i" salvage list >"$scratch/salvage$i" || true
    rm -rf "$restored"
    mkdir "$restored"
    # Each session's in a place of its own: two may have had the same file.
    for number in $(sed -n 's/^\([0-9]\+\) of .*/\1/p' "$scratch/salvage$i"); do
        lh "$i" salvage restore "$number" --to "$restored/$number" >"$scratch/restore.log" 2>&1 || fail "machine $i: salvage restore $number: $(tail -n 3 "$scratch/restore.log")"
    done
    for n in $(seq 20); do
        [ "$(cat "${mounts[1]}/late-$i-$n" 2>/dev/null)" = "not synced $n" ] || grep -qsFx "not synced $n" "$restored"/*/"late-$i-$n" ||
            fail "machine $i: late-$i-$n is neither there nor restored, see $scratch/salvage$i and $restored"
    done
    say "machine $i: $(grep -c '^ ' "$scratch/salvage$i") things in its salvage"
}

# Links that lose a third of all frames, that duplicate, delay and reorder: everything goes on, slowly, and no call fails.
part_lossy() {
    wire 2 --loss 30 --seed "$SEED"
    wire 3 --delay 3 --jitter 4 --duplicate 10 --reorder 20 --loss 2 --seed "$SEED"
    mkdir -m 755 "${mounts[1]}"/{lossy,bad,lossy-{seen,mail,lines}}
    # Small files: a connection that loses so much carries some kilobytes a second.
    SAVES=${LOSSY_SAVES:-2} job "$shared/save" "${mounts[2]}/lossy" "${mounts[1]}/lossy"
    ROUNDS=${BAD_ROUNDS:-20} job "$shared/seen" "${mounts[3]}/bad" "${mounts[4]}/bad"
    ROUNDS=${LOSSY_ROUNDS:-1} SEED=$SEED job "$shared/seen" "${mounts[2]}/lossy-seen" "${mounts[4]}/lossy-seen"
    MAILS=${LOSSY_MAILS:-2} job "$shared/maildir" "${mounts[4]}/lossy-mail" "${mounts[2]}/lossy-mail"
    LINES=${LOSSY_LINES:-40} job "$shared/append" "${mounts[2]}/lossy-lines" "${mounts[4]}/lossy-lines"
    for work in seen save maildir append; do join_only "$shared/$work"; done
    unwire 2
    unwire 3
    # A link that has lost a few in a row waits before it tries again.
    for i in 2 3 4; do still_works "$i" 30; done
}

# The jobs that are no journals, ended.
end_only() {
    local group
    for group in "${!jobs[@]}"; do
        case ${jobs[$group]} in
        "$1 "*) kill -9 -- "-$group" 2>/dev/null || true; wait "$group" 2>/dev/null || true; unset "jobs[$group]" ;;
        esac
    done
}

# The same, waited for.
join_only() {
    local group
    for group in "${!jobs[@]}"; do
        case ${jobs[$group]} in
        "$1 "*) wait "$group" || fail "${jobs[$group]}: status $?"; unset "jobs[$group]" ;;
        esac
    done
}

# Machine 2 is killed while a notice of it waits in the kernel for a page, whose read waits for machine 3, which is stopped. It must go all the same, and its mount with it.
part_killed() {
    local n tries notice=no
    head -c 3000000 /dev/urandom >"${mounts[1]}/read-and-written"
    for n in 1 2 3 4; do
        job python3 -Sc 'import os, random, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
while True: os.pread(fd, 10, random.randrange(3000000))' "${mounts[2]}/read-and-written"
    done
    job python3 -Sc 'import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
while True: os.pwrite(fd, b"x" * 100, 2000000), os.pread(fd, 10, 100)' "${mounts[3]}/read-and-written"
    for tries in $(seq 30); do
        sleep 0.2
        pause 3
        sleep 0.3
        ! cat "/proc/${pids[2]}/task"/*/stack 2>/dev/null | grep -q fuse_reverse_inval_inode || { notice=yes && break; }
        go_on 3
    done
    say "2 killed, a notice under way: $notice"
    kill_machine 2
    ! cat "${mounts[2]}/read-and-written" >/dev/null 2>&1 || fail "a mount without its process answers"
    go_on 3
    end_only python3
    end_journal 2
    start 2
    facts 2 1
    begin_journal 2 after-kill
}

# At once: 2 is killed, 3 is stopped, 4 is cut off, 5 only hears nothing or is not heard. The others wait at most a term for what these held.
part_dead() {
    local i holder one_way=cut_to
    [ $((SEED % 2)) = 0 ] || one_way=cut_from
    prepare 2 3 4 5
    for i in 2 3 4 5; do echo x >"${mounts[i]}/gone-$i" && sync "${mounts[i]}/gone-$i"; done
    for i in 3 4 5; do late_files "$i"; done
    kill_machine 2
    pause 3
    cut 4
    $one_way 5
    say "2 killed, 3 stopped, 4 cut, 5 $one_way"
    local since=$SECONDS
    for i in 2 3 4 5; do
        answers 1 $((term + slack)) sh -c "echo after >'${mounts[1]}/held-$i' && chmod 600 '${mounts[1]}/held-$i' && mv '${mounts[1]}/dir-$i/old' '${mounts[1]}/dir-$i/new' && rm '${mounts[1]}/gone-$i'"
        sync "${mounts[1]}/held-$i"
    done
    [ $((SECONDS - since)) -le $((term + slack)) ] || fail "what four machines held was had after $((SECONDS - since)) s"
    say "what they held was had after $((SECONDS - since)) s"
    still_works 1
    lh 1 status >"$scratch/status" || fail "status"
    go_on 3
    mend 4
    mend 5
    # The first look of a machine that was stopped: it may fail (it was cut off), it may not be old.
    for i in 3 4 5; do
        comes_back "$i"
        sees_new "$i"
    done
    for i in 2 3 4 5; do end_journal "$i"; done
    start 2
    sees_new 2
    for i in 2 3 4 5; do facts "$i" 1; facts "$i" "$i"; done
    for i in 2 3 4 5; do
        [ "$(cat "${mounts[1]}/kept-$i")" = kept ] || fail "what machine $i synced is lost"
    done
    for i in 3 4 5; do nothing_in_silence "$i"; done
    for i in 2 3 4 5; do begin_journal "$i" second; done
}

# Thrown out while it writes: refused at once, and the others have what it held at once; what it had not got applied is its salvage.
part_expelled() {
    local tries
    echo mine >"${mounts[4]}/expelled-file"
    sync "${mounts[4]}/expelled-file"
    rm -f "${mounts[4]}"/late-4-*
    late_files 4
    lh 1 expel machine4 >"$scratch/expel.log" 2>&1 || fail "expel: $(cat "$scratch/expel.log")"
    answers 1 5 sh -c "echo theirs >'${mounts[1]}/expelled-file'"
    lh 1 machines --json | python3 -c 'import json, sys; sys.exit(not any(m["name"] == "machine4" and m["expelled"] for m in json.load(sys.stdin)))' || fail "machines does not say that it is expelled"
    # Its writer is refused, soon.
    wait_until "refused: the writer of an expelled machine" grep -q Error "$scratch/${journals[4]}-4/errors"
    ! timeout -s KILL 20 sh -c "echo no >'${mounts[4]}/expelled-file' && sync '${mounts[4]}/expelled-file'" 2>/dev/null || fail "an expelled machine writes"
    [ "$(cat "${mounts[1]}/expelled-file")" = theirs ] || fail "an expelled machine changed a file: $(cat "${mounts[1]}/expelled-file")"
    end_journal 4
    facts 4 1
    # What is kept is written down in the background, and listed when all of it is.
    for tries in $(seq $((hang * 10))); do
        [ -z "$(lh 4 salvage list)" ] || break
        sleep 0.1
    done
    nothing_in_silence 4
    for i in 2 3 5; do still_works "$i"; done
    kill_machine 4
}

# The server is killed under load, twice: leases survive, no call of anybody fails.
part_restarted() {
    local round i n
    for i in 2 3 5; do
        mkdir "${mounts[i]}/private-$i"
        echo "cached $i" >"${mounts[i]}/private-$i/cached"
        sync "${mounts[i]}/private-$i/cached"
        lh "$i" salvage list >"$scratch/salvage$i" || true
    done
    for round in 1 2; do
        # On the way to it is a directory that all of them have changed: who asks about what has just passed to and fro is told it some times before he gets the lease, and who only
        # passes through does not ask for some seconds, and then does.
        for _ in 1 2 3 4 5; do
            for i in 2 3 5; do
                stat "${mounts[i]}" "${mounts[i]}/private-$i" >/dev/null
                cat "${mounts[i]}/private-$i/cached" >/dev/null
            done
        done
        kill_machine 1
        # Its own mount is dead with it.
        end_journal 1
        sleep "$((RANDOM % 3)).5"
        # What they hold they go on with while there is no server.
        for i in 2 3 5; do answers "$i" 2 cat "${mounts[i]}/private-$i/cached"; done
        start 1
        say "the server restarted in $started_ms ms"
        facts 1 2
        begin_journal 1 "restart$round"
        for i in 2 3 5; do
            still_works "$i"
            answers "$i" 10 sh -c "echo 'round $round of $i' >>'${mounts[i]}/common'"
        done
        [ "$(wc -l <"${mounts[1]}/common")" = $((round * 3)) ] || fail "lines of $round rounds: $(cat "${mounts[1]}/common")"
        for i in 2 3 5; do
            [ "$(cat "${mounts[1]}/private-$i/cached")" = "cached $i" ] || fail "not seen after the restart: private-$i/cached"
            lh "$i" salvage list >"$scratch/salvage$i.restart$round" || cmp -s "$scratch/salvage$i" "$scratch/salvage$i.restart$round" || fail "machine $i has salvage from a restart of the server: $(tail -3 "$scratch/salvage$i.restart$round")"
        done
    done
}

build 5
within "${WITHIN:-2000}"
SEED=${SEED:-$((RANDOM % 1000))}
say "SEED=$SEED"
for i in 1 2 3 4 5; do start "$i"; done
for i in 1 2 3 4 5; do begin_journal "$i" first; done
sleep 2
for part in "${parts[@]}"; do
    began=$SECONDS
    "part_$part"
    say "$part: $((SECONDS - began)) s"
done

# In the end: everything that anybody was promised, as anybody sees it, and the server's own check.
for i in "${!writers[@]}"; do still_works "$i"; done
for i in "${!writers[@]}"; do end_journal "$i"; done
say "all promises are looked at"
for i in "${!journals[@]}"; do
    facts "$i" 1
    facts "$i" $((i % 2 == 0 ? 5 : 2))
done
lh 1 fsck >"$scratch/fsck.log" 2>&1 || fail "fsck of the running server: $(tail -n 5 "$scratch/fsck.log")"
stop_all
fsck_clean "$scratch/data1"
passed "${parts[*]}; SEED=$SEED"
