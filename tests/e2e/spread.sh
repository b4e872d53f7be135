#!/usr/bin/env bash
# Five servers, and content that is spread by policy: code=2+1 in one directory, copies=2 in another. Any one server is killed while content is written, read, repaired and deleted: content is always
# what it was, every share comes to be where it is to be, and when all is deleted nothing of it is left on any disk.
. "$(dirname "$0")/machines.sh"
build 5
within "${WITHIN:-2000}"
SEED=${SEED:-$((RANDOM % 1000))}
say "SEED=$SEED"
RANDOM=$SEED

# Names of the files of shares on machine $1's disk.
names() { find "$scratch/data$1/shares/shares" -type f -printf '%f %s\n' 2>/dev/null || true; }

# Whether what is kept is as it is to be: of each share three fragments, or two copies, at hosts of their own. Otherwise what is not. How many bytes there are of each goes to $scratch/kept.
spread() {
    for i in 1 2 3 4 5; do names "$i" | sed "s/^/$i /"; done >"$scratch/names"
    python3 - "$scratch/names" "$scratch/kept" <<'PY'
import collections, sys
kept, bytes = collections.defaultdict(list), collections.Counter()
for line in open(sys.argv[1]):
    host, name, size = line.split()
    # Sixteen random digits, a mark, how it is spread, which fragment.
    assert name[16:28] == b"spread".hex(), name
    kept[name[:30]].append((name[30:], host))
    bytes[name[28:30]] += int(size)
wrong = []
for name, places in kept.items():
    hosts = {host for _, host in places}
    fragments = sorted(number for number, _ in places)
    good = {"21": fragments == ["01", "02", "03"] and len(hosts) == 3, "02": len(places) == len(hosts) == 2}
    # All that is there is of one of the two policies: what is too small for fragments is in copies.
    if not good.get(name[28:30]):
        wrong.append(f"{name}: {sorted(places)}")
print(bytes["21"], bytes["02"], file=open(sys.argv[2], "w"))
sys.exit("\n".join(wrong[:3]) if wrong else 0)
PY
}

well_spread() {
    wait_until "where they are to be: all shares" spread
}

# write I NAME: some files in both directories, small, middling and large; and what they are.
write() {
    local dir size
    for dir in coded twice; do
        for size in 9000 70000 1300000 5000001; do
            head -c "$size" /dev/urandom >"$scratch/new"
            cp "$scratch/new" "${mounts[$1]}/$dir/$2-$size" && sync "${mounts[$1]}/$dir/$2-$size" || fail "$dir/$2-$size could not be written on machine $1"
            mv "$scratch/new" "$scratch/as-it-was/$dir/$2-$size"
        done
    done
}

# All of it, as machine $1 sees it.
compare() {
    diff -rq "$scratch/as-it-was" "${mounts[$1]}" >"$scratch/diff" 2>&1 || fail "$2: machine $1 does not see what was written: $(head -n 3 "$scratch/diff")"
}

for i in 1 2 3 4; do disk "$i" 4G; done
disk 5 16G
for i in 1 2 3 4 5; do start "$i"; done
for i in 2 3 4 5; do lh 1 server add "machine$i" >"$scratch/add$i.log" 2>&1 || fail "server add: $(tail -n 2 "$scratch/add$i.log")"; done
settled 5
weighed() { lh 2 server list >"$scratch/servers" && cat "$scratch/servers" && [ "$(grep -c '(3 GiB)' "$scratch/servers")$(grep -c '(15 GiB)' "$scratch/servers")" = 41 ]; }
wait_until "as disks are: weights" weighed
mkdir "${mounts[1]}"/{coded,twice} "$scratch"/as-it-was{,/coded,/twice}
lh 1 policy set "${mounts[1]}/coded" code=2+1 2>"$scratch/policy.log" || fail "no policy: $(cat "$scratch/policy.log")"
lh 1 policy set "${mounts[1]}/twice" copies=2 || fail "no policy"
! lh 1 policy set "${mounts[1]}/twice" code=1+1 2>/dev/null || fail "a policy that there is not was set"
mkdir "${mounts[4]}/coded/below"
got=$("$leasehold" policy get "${mounts[4]}/coded/below")
[ "$got" = "code=2+1" ] || fail "what is made in a directory has not its policy: $got"
rmdir "${mounts[4]}/coded/below"
write 4 first
well_spread
# Three copies each on 4, 4, 4, 4 and 16 GiB: 8, but for what ext4 needs itself.
size_is_known() {
    size=$(df --output=size -BM "${mounts[4]}" | tail -n 1 | tr -d ' M')
    echo "it has $size MiB"
    [ "$size" -gt 7200 ] && [ "$size" -lt 8192 ]
}
wait_until "as large as its disks allow" size_is_known
for i in 1 2 3 4 5; do names "$i" | python3 -c 'import sys; print(sum(int(line.split()[1]) for line in sys.stdin))' >"$scratch/on$i"; done
[ "$(cat "$scratch/on5")" -gt $((($(cat "$scratch"/on[1-4] | tr '\n' '+')0) / 4)) ] || fail "the largest disk has not more than others: $(cat "$scratch"/on?)"
say "$(cat "$scratch"/on? | tr '\n' ' ')bytes on disks of 4, 4, 4, 4 and 16 GiB"
read -r coded twice <"$scratch/kept"
plain=$(cat "$scratch"/as-it-was/coded/* | wc -c)
say "$plain bytes: $coded in fragments with parity, $twice in two copies with what is too small for them"
[ "$coded" -gt $((plain * 140 / 100)) ] && [ "$coded" -lt $((plain * 165 / 100)) ] || fail "fragments take $coded bytes of $plain"
compare 5 "before anything fails"

# meanwhile WHAT...: a part of this script, in the middle of which machine $victim is killed.
meanwhile() {
    local part
    "$@" &
    part=$!
    sleep "0.$((1 + RANDOM % 4))"
    kill_machine "$victim"
    wait "$part" || fail "with machine $victim killed meanwhile: $*"
}

for kind in write read repair; do
    victim=$((2 + RANDOM % 2))
    case $kind in
    write) meanwhile write 4 "while-$victim-dies" ;;
    read) meanwhile compare 1 "with machine $victim killed" ;;
    repair)
        # What it missed is on its way to it.
        kill_machine "$victim"
        write 5 "while-$victim-misses-it"
        start "$victim"
        kill_machine "$victim"
        compare 4 "with machine $victim killed while it was repaired" ;;
    esac
    start "$victim"
    settled 5
    well_spread
    compare "$victim" "after machine $victim is back ($kind)"
    say "$kind: machine $victim was killed, came back and has what it is to have"
done
# A disk that is lost: another host's fragments are made anew, too.
kill_machine 3
rm -rf "$scratch/data3/shares"
usual=$(declare -f starts_by)
starts_by() { command=("$leasehold" up --data "$scratch/data$1" --mount "${mounts[$1]}" --accept-older-state); }
start 3
eval "$usual"
settled 5
well_spread
compare 3 "with all that machine 3 had made anew"
for i in 1 2 3 4 5; do lh "$i" fsck >"$scratch/fsck$i.log" 2>&1 || fail "fsck of machine $i: $(tail -n 3 "$scratch/fsck$i.log")"; done
victim=2
meanwhile rm -rf "${mounts[4]}"/{coded,twice}
sync "${mounts[4]}"
start 2
none_left() { for i in 1 2 3 4 5; do names "$i"; done >"$scratch/left" && ! grep -m 3 . "$scratch/left"; }
wait_until "gone: the files of shares of what was deleted" none_left
stop_all
passed "$plain bytes took $coded"
