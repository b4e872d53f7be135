#!/usr/bin/env bash
# A rolling upgrade of three servers and two mounts. The old program is this one; the new one is this one with --next-version, which makes it know one version more, with nothing new in it. Once there is
# another version, OLD=BINARY takes one that really is older, and this one is the new one as it is. While two machines work all the time, each server is started anew with the new program: no call
# fails, nothing that was promised is lost, and the version is raised with the last server, once that is not held to the old one, and not before. Who mounts goes on by the old version until it is started
# anew, too. Afterwards the old program starts nowhere.
. "$(dirname "$0")/machines.sh"
journal=$root/tests/workload/journal beat=$root/tests/workload/beat
# The newest that this program knows, as it says when it is asked for one that it does not.
newest=$({ "$leasehold" up --hold-version 65535 2>&1 || true; } | grep -o 'this leasehold knows version.*' | grep -o '[0-9]*$') || fail "$leasehold does not say which versions it knows"
next=()
[ -n "${OLD:-}" ] || { next=(--next-version) && newest=$((newest + 1)); }
last_version=$((newest - 1))
new=$leasehold lister=$leasehold
old_program() { leasehold=${OLD:-$new} options=(); }
new_program() { leasehold=$new options=("${next[@]}" "$@"); }

# What `leasehold status` of machine $1 says of versions: an expression on `use`.
status() { timeout 60 "$new" status --data "$scratch/data$1" --json >"$scratch/status$1" && python3 -c "import json, sys; use = json.load(open(sys.argv[1]))['version_in_use']; print($2)" "$scratch/status$1"; }

still_works() {
    local i
    for i in 4 5; do
        [ -z "${workers[i]:-}" ] && continue
        kill -0 "${workers[i]}" 2>/dev/null && kill -0 "${beaters[i]}" 2>/dev/null && ! grep -q Error "$scratch/${work[i]}"/*errors ||
            fail "a call failed on machine $i: $(tail -n 3 "$scratch/${work[i]}"/*errors)"
    done
}

# Waits until machine 4 has done something that began after now.
beats_again() {
    local since tries
    since=$(date +%s.%N)
    for tries in $(seq $((hang * 10))); do
        python3 - "$since" "$scratch/beats-4" <<'PY' && return 0
import os, sys
if not os.path.exists(sys.argv[2]):
    sys.exit(1)
lines = [line.split() for line in open(sys.argv[2]).read().splitlines()[-1:]]
sys.exit(not (lines and float(lines[0][0]) > float(sys.argv[1])))
PY
        still_works
        sleep 0.1
    done
    fail "hangs: machine 4 does nothing for $hang s: $(where_is "${pids[4]}")"
}

# The version that all servers say, or those that differ.
version() { for i in 1 2 3; do status "$i" 'use["cluster"]'; done | sort -u | tr '\n' ' '; }

# begin_work I NAME
begin_work() {
    local i=$1 state=$scratch/work-$1-$2
    mkdir -p "$state" "${mounts[i]}/work-$i-$2"
    errors=$state/errors job env OPERATIONS=0 PAUSE=0.03 LARGEST=40000 SEED="$i" "$journal" work "${mounts[i]}/work-$i-$2" "$state"
    workers[i]=$job work[i]=work-$i-$2
    errors=$state/beat-errors job "$beat" "${mounts[i]}/beat-$i" "$scratch/beats-$i"
    beaters[i]=$job
}

end_work() {
    local group
    for group in "${workers[$1]}" "${beaters[$1]}"; do
        kill -9 -- "-$group" 2>/dev/null || true
        wait "$group" 2>/dev/null || true
        unset "jobs[$group]"
    done
    done_work+=("${work[$1]}")
    unset "workers[$1]" "beaters[$1]"
}

promised() {
    local work at
    for work in "${done_work[@]}"; do
        for at in 1 4 5; do
            "$journal" check "${mounts[at]}/$work" "$scratch/$work" >"$scratch/check.log" 2>&1 ||
                fail "$work was promised what machine $at does not see: $(tail -n 4 "$scratch/check.log")"
        done
    done
}

workers=() beaters=() work=() done_work=()
build 5
within "${WITHIN:-2000}"
old_program
for i in 1 2 3 4 5; do start "$i"; done
for i in 2 3; do lh 1 server add "machine$i" >"$scratch/add$i.log" 2>&1 || fail "server add: $(tail -n 2 "$scratch/add$i.log")"; done
settled
for i in 4 5; do begin_work "$i" old; done
beats_again
anew() { stop "$1" && start "$1" && settled && beats_again; }
# The leader last: each start is of a server that the others can do without.
last=$(leader)
for i in $(for i in 1 2 3; do [ "$i" = "$last" ] || echo "$i"; done); do
    new_program
    anew "$i"
    say "machine $i is started anew; the version is $(version)"
    [ "$(status "$i" 'use["cluster"], use["known"]')" = "$last_version $newest" ] || fail "machine $i says $(status "$i" 'use')"
done
new_program --hold-version "$last_version"
anew "$last"
# A leader that is held knows of no newer version, so it waits for nothing. A leader that is back
# before the others miss it leads again, so it stays away until another leads.
another_leads() { [ "$(leader "$last")" != "$last" ]; }
while [ "$(leader)" = "$last" ]; do
    stop "$last"
    wait_until "another leader than machine $last" another_leads
    start "$last" && settled && beats_again
done
held() { [ "$(status "$(leader)" "any(w['kind'] == 'server_older' and w['speaks'] == $last_version for w in use['waits_for'])")" = True ]; }
wait_until "said: that machine $last is held" held
[ "$(version)" = "$last_version " ] || fail "raised though machine $last is held: $(version)"
new_program
anew "$last"
raised() { [ "$(version)" = "$newest " ] || { lh "$(leader)" status && false; }; }
wait_until "raised: the version" raised
beats_again
# Who mounts goes on as it is, and is named.
sleep 2
still_works
at=$(leader)
[[ "$(status "$at" 'use["older"]')" == *machine4*machine5* ]] || fail "the old machines are not named: $(lh "$at" status)"
for i in 4 5; do
    end_work "$i"
    stop "$i"
    start "$i"
    begin_work "$i" new
    beats_again
done
at=$(leader)
[ "$(status "$at" 'use["older"]')" = "[]" ] || fail "an old machine is named: $(lh "$at" status)"
sleep 1
still_works
for i in 4 5; do end_work "$i"; done
say "all promises are looked at"
promised
# Back to the old program: no server starts, and no machine gets a session. Both say why.
for i in 3 5; do
    stop "$i"
    old_program
    start_only "$i"
    wait_for_end "${pids[i]}" "the old program on machine $i"
    ! wait "${pids[i]}" || fail "the old program has ended well on machine $i"
    pids[i]=
    say "the old program on machine $i: $(tail -n 1 "$(machine_log "$i")")"
    new_program
    [ "$i" = 5 ] || [ -n "${OLD:-}" ] || grep -q "this leasehold knows version $last_version: install a newer one on this machine" "$scratch/machine3.log" || fail "the old server does not say what to do"
    [ "$i" = 3 ] || grep -q "this machine's leasehold is too old: it speaks version $last_version" "$(machine_log 5)" || fail "the old mount does not say what to do"
    start "$i"
done
settled
promised
lh "$(leader)" fsck >"$scratch/fsck.log" 2>&1 || fail "fsck of the leader: $(tail -n 5 "$scratch/fsck.log")"
stop_all
passed "from version $last_version to $newest"
