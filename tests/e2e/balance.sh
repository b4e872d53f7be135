#!/usr/bin/env bash
# Three machines that serve, and two servers of the directory. All work is in three directories of one of them, until one moves to the other by itself; a pinned one stays. Meanwhile the files are used on
# two machines. In the end all machines see one tree, and fsck of every server finds nothing.
. "$(dirname "$0")/machines.sh"
build 3
within "${WITHIN:-3600}"
for i in 1 2 3; do start "$i"; done
spread_over 2
files=${FILES:-1200}
work=(a b c)
for one in "${work[@]}"; do
    mkdir -m 755 "${mounts[1]}/$one"
    (cd "${mounts[1]}/$one" && seq "$files" | xargs touch)
done
sync "${mounts[1]}"
lh 2 pin /a >"$scratch/pin.log" 2>&1 || fail "/a cannot be pinned: $(cat "$scratch/pin.log")"
lh 3 balance --dry-run >"$scratch/balance.log" 2>&1 || fail "no balance: $(cat "$scratch/balance.log")"

# Every file is used on machine 1 or 2 within less than five minutes.
uses() {
    local i=$1
    while [ ! -e "$scratch/enough" ]; do
        for one in "${@:2}"; do (cd "${mounts[$i]}/$one" && seq "$files" | xargs touch) || return 1; done
        sync "${mounts[$i]}"
        sleep 60
    done
}
# Which server has a directory, and why.
where() { lh 1 map "/$1" --json | python3 -c 'import json, sys; s = json.load(sys.stdin)["servers"][0]; print(s["server"], s["regions"][0]["why"])'; }
moved() {
    local one
    for one in b c; do [ "$(where "$one")" != "1 balance" ] || return 0; done
    return 1
}
uses 1 a b &
first=$!
uses 2 c &
second=$!
# The servers are watched for five minutes first.
hang=900 wait_until "moved to server 1: /b or /c" moved
lh 1 map
lh 2 balance --dry-run
[ "$(where a)" = "0 None" ] || fail "/a is pinned, and moved: $(where a)"
sleep 60
touch "$scratch/enough"
wait "$first" && wait "$second" || fail "the files cannot be used"
[ "$(where b) $(where c)" != "1 balance 1 balance" ] || fail "both moved, which is too much"

whole_tree() { (cd "${mounts[$1]}" && find . -printf '%p %y %i %m %n %s %T@ %C@\n' | sort); }
for i in 1 2 3; do
    whole_tree "$i" >"$scratch/tree$i"
    cmp -s "$scratch/tree1" "$scratch/tree$i" || fail "machines 1 and $i differ: $(diff "$scratch/tree1" "$scratch/tree$i" | head -4)"
    lh "$i" fsck >"$scratch/fsck$i.log" 2>&1 || fail "fsck on machine $i: $(tail -5 "$scratch/fsck$i.log")"
done
[ "$(wc -l <"$scratch/tree1")" -gt $((3 * files)) ] || fail "files are missing"
stop_all
passed
