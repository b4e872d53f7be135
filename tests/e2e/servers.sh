#!/usr/bin/env bash
# Five machines, three of which serve, and four servers of the directory on those three. People's programs work on all five mounts in directories whose regions go from server to server all the time. Meanwhile
# the machine that leads is killed, and later another one. Every read is checked; in the end all machines see one tree, and fsck of every server finds nothing.
. "$(dirname "$0")/machines.sh"
shared=$root/tests/shared
build 5
within "${WITHIN:-1800}"
for i in 1 2 3 4 5; do start "$i"; done
spread_over 4
lh 1 map >"$scratch/map.log" || fail "no map: $(cat "$scratch/map.log")"
[ "$(grep -c '^[0-3] ' "$scratch/map.log")" = 4 ] || fail "there are not four servers: $(cat "$scratch/map.log")"
work=(seen exercise save onlookers git cross locks sqlite)
for one in "${work[@]}"; do mkdir "${mounts[1]}/$one" && chmod 755 "${mounts[1]}/$one"; done
lh 1 delegate /exercise 2 >"$scratch/delegate.log" 2>&1 || fail "/exercise cannot be delegated: $(cat "$scratch/delegate.log")"
lh 1 map >"$scratch/map.log"
lh 1 map --json | python3 -c 'import json, sys; sys.exit("/exercise" not in [r["path"] for r in json.load(sys.stdin)["servers"][2]["regions"]])' || fail "server 2 does not manage /exercise: $(cat "$scratch/map.log")"
moving "${work[@]/#//}"

on_mounts() {
    local program=$1 tops=() i
    shift
    for i in "$@"; do tops+=("${mounts[i]}/$program"); done
    job "$shared/$program" "${tops[@]}"
}
failed=()
run() {
    local began=$SECONDS
    "$@"
    say "$*: $((SECONDS - began)) s, moves: $(cat "$scratch/moves")"
}
first() {
    ROUNDS=${ROUNDS:-60} on_mounts seen 1 2 3 4 5
    OPS=${OPS:-300} on_mounts exercise 4 5
    SAVES=${SAVES:-20} on_mounts save 2 4
    TURNS=${TURNS:-300} on_mounts onlookers 3 5 1 2
    join_work "seen exercise save onlookers"
}
second() {
    PUSHES=${PUSHES:-3} on_mounts git 2 5
    FOR=${FOR:-10} on_mounts cross 2 3
    TURNS=${TURNS:-60} on_mounts locks 3 4
    MOVES=${MOVES:-20} on_mounts sqlite 1 5
    join_work "git cross locks sqlite"
}
join_work() { join_jobs || failed+=("$1: $joined"); }
run first
run second

# Names across servers: every rename, link and exchange between two directories of different servers.
mkdir "${mounts[4]}/seen/a" "${mounts[4]}/save/b"
echo one >"${mounts[4]}/seen/a/one"
mv "${mounts[5]}/seen/a/one" "${mounts[5]}/save/b/two" || failed+=("a file cannot be renamed from server to server")
[ "$(cat "${mounts[4]}/save/b/two")" = one ] || failed+=("what was renamed from server to server is not there")
ln "${mounts[4]}/save/b/two" "${mounts[4]}/exercise/three" || failed+=("a file cannot be linked across servers")
mv "${mounts[4]}/seen/a" "${mounts[4]}/save/b/below" || failed+=("a directory cannot be renamed from server to server")
! mv "${mounts[5]}/save/b" "${mounts[5]}/save/b/below/itself" 2>"$scratch/loop.log" || failed+=("a directory went below itself")

# The machine that leads dies, and comes back; then another one.
for round in 1 2; do
    dead=$(leader)
    kill_machine "$dead"
    other=$((dead % 3 + 1))
    # Nobody leads yet, and a request for the leader waits for the next one.
    lh "$other" machines >"$scratch/machines.log" 2>&1 || failed+=("machine $other cannot ask the leader after machine $dead: $(cat "$scratch/machines.log")")
    for i in 4 5; do
        timeout "$hang" sh -c "echo $round >'${mounts[$i]}/git/after-$round-$i' && sync '${mounts[$i]}/git/after-$round-$i'" || failed+=("machine $i cannot write after machine $dead died")
    done
    umount -l "${mounts[dead]}" 2>/dev/null || true
    start "$dead"
    settled 3
    say "machine $dead died and came back; moves: $(cat "$scratch/moves")"
done

still
[ "$moved" -ge "${MOVED_MIN:-10}" ] || failed+=("only $moved of $tried regions moved")

whole_tree() { (cd "${mounts[$1]}" && find . -printf '%p %y %i %m %n %U %G %s %T@ %C@ %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k 2); }
for i in 1 2 3 4 5; do
    whole_tree "$i" >"$scratch/tree$i"
    cmp -s "$scratch/tree1" "$scratch/tree$i" || failed+=("in the end machines 1 and $i differ: $(diff "$scratch/tree1" "$scratch/tree$i" | head -4)")
done
for i in 1 2 3; do
    lh "$i" fsck >"$scratch/fsck$i.log" 2>&1 || failed+=("fsck on machine $i: $(tail -5 "$scratch/fsck$i.log")")
done
lh 1 map

# All comes home, and one server is enough again: for a backup, say.
home() { lh 1 delegate "/$1" 0 >"$scratch/home.log" 2>&1 || grep -q "at that server already" "$scratch/home.log"; }
for one in "${work[@]}"; do wait_until "home: /$one" home "$one"; done
cmp -s <(whole_tree 5) "$scratch/tree1" || failed+=("at home, the tree is not what it was")

# A machine that serves no more leaves every server's group, also those that it leads, and a machine that serves anew gets into each.
leaves() { lh 1 delegate "/$1" "$2" >"$scratch/delegate.log" 2>&1; }
wait_until "at server 1 again: /seen" leaves seen 1
dead=$(leader)
lh "$dead" drain "machine$dead" --yes >"$scratch/drain.log" 2>&1 || fail "machine$dead cannot be drained: $(tail -3 "$scratch/drain.log")"
other=$((dead % 3 + 1))
lh "$other" server remove "machine$dead" --yes >"$scratch/remove.log" 2>&1 || fail "machine$dead cannot be removed: $(tail -3 "$scratch/remove.log")"
members() { lh "$other" map --json >"$scratch/map.json" && python3 -c 'import json, sys; print(*[sorted(s["members"]) for s in json.load(open(sys.argv[1]))["servers"]], sep="\n")' "$scratch/map.json"; }
! members | grep -q "machine$dead" || failed+=("machine$dead is no server any more, and is a member: $(members)")
lh "$other" server add machine4 >"$scratch/add.log" 2>&1 || fail "machine4 does not serve: $(cat "$scratch/add.log")"
all_have() { [ "$(members | grep -c machine4)" = 4 ]; }
wait_until "member of all four servers: machine4" all_have
cmp -s <(whole_tree 5) "$scratch/tree1" || failed+=("with another machine as a server, the tree is not what it was")
[ ${#failed[@]} -eq 0 ] || fail "$(printf '%s\n' "${failed[@]}")"
stop_all
passed "$moved moves"
