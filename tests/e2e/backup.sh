#!/usr/bin/env bash
# Backups of a mount in use: made while a writer works, incremental, restored into new data directories that have exactly what was there; a restore that is killed leaves
# nothing that starts; backups by schedule.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "a plain directory has no backups"
backups=$scratch/backups writer=
cleanup() { [ -z "$writer" ] || kill "$writer" 2>/dev/null || true; }

back_up() { "$leasehold" backup "$backups" --data "$data" --json "$@"; }
figure() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; }
# What is to be there again: names, modes, times, targets, content.
tree() { (cd "$1" && find . ! -path './written*' -printf '%p %y %m %U:%G %s %T@ %l\n' | grep -v '^\. ' | sort; find . -type f ! -path './written*' -print0 | sort -z | xargs -0 sha256sum); }

start_mount
mkdir "$mnt/tree" "$mnt/written"
cp -r "$root/crates" "$mnt/tree/"
head -c 20000000 /dev/urandom >"$mnt/big"
ln -s tree/crates "$mnt/link" && ln "$mnt/big" "$mnt/hard" && chmod 600 "$mnt/big"
truncate -s 1G "$mnt/sparse"

# Works beside all of it; each file is whole and synced before the next one begins.
(for n in $(seq 100000); do
    head -c 30000 /dev/zero | tr '\0' "$(printf '\\%03o' $((n % 26 + 97)))" | dd of="$mnt/written/$n" bs=64k conv=fsync status=none
    [ "$n" -le 20 ] || rm "$mnt/written/$((n - 20))"
done) 2>/dev/null &
writer=$!
until [ -e "$mnt/written/5" ]; do sleep 0.05; done

tree "$mnt" >"$scratch/first.tree"
back_up >"$scratch/first.json"
say "first: $(tr -d '\n' <"$scratch/first.json")"
echo changed >>"$mnt/tree/crates/node/Cargo.toml"
rm -r "$mnt/tree/crates/sim" "$mnt/hard"
head -c 3000000 /dev/urandom >"$mnt/more"
tree "$mnt" >"$scratch/second.tree"
back_up >"$scratch/second.json"
say "second: $(tr -d '\n' <"$scratch/second.json")"
kill "$writer" && wait "$writer" 2>/dev/null || true
writer=
[ "$(figure "$scratch/first.json" new_bytes)" -gt 20000000 ] || fail "the first backup has not all content"
[ "$(figure "$scratch/second.json" new_bytes)" -lt 12000000 ] || fail "the second backup copied what was there"
stop_mount
fsck_clean
# Of a machine that is not up, too.
back_up >"$scratch/third.json"

restored() { # WHICH
    local which=$1 name
    name=$(figure "$scratch/$which.json" name)
    "$leasehold" restore "$backups" --data "$scratch/$which" --backup "$name" >"$scratch/restore.log" || fail "restoring $which: $(cat "$scratch/restore.log")"
    fsck_clean "$scratch/$which"
    start_mount "$scratch/$which" "$mnt"
    tree "$mnt" | diff "$scratch/$which.tree" - >"$scratch/$which.diff" || fail "$which is not as it was, see $scratch/$which.diff"
    # Whole files of the writer's: all but the last one, which may not have been synced.
    ls "$mnt/written" | sort -n | head -n -1 >"$scratch/whole"
    [ -s "$scratch/whole" ] || fail "$which has nothing of the writer's"
    while read -r n; do
        [ "$(tr -d "$(printf '\\%03o' $((n % 26 + 97)))" <"$mnt/written/$n" | wc -c) $(stat -c %s "$mnt/written/$n")" = "0 30000" ] || fail "$which: written/$n is not whole"
    done <"$scratch/whole"
    echo new >"$mnt/after" && sync "$mnt/after"
    stop_mount
    fsck_clean "$scratch/$which"
}
restored first
restored second
# Single directories and files, without a machine that is up.
mkdir "$scratch/alone"
"$leasehold" restore "$backups" --file tree --to "$scratch/alone/tree" --backup "$(figure "$scratch/first.json" name)" >"$scratch/restore.log" && diff <(grep -E '(^|  )\./tree' "$scratch/first.tree" | grep -v '^[^ ]* d ') <(tree "$scratch/alone" | grep -v '^[^ ]* d ') >"$scratch/alone.diff" || fail "a directory out of a backup is not as it was: $scratch/restore.log, $scratch/alone.diff"

# Killed at some moment it starts nothing, and can be run again.
for ms in 020 060 150; do
    timeout -s KILL "0.$ms" "$leasehold" restore "$backups" --data "$scratch/killed" >"$scratch/restore.log" 2>&1 && break
    if [ -e "$scratch/killed/restoring" ]; then
        ! "$leasehold" fsck --data "$scratch/killed" >"$scratch/restore.log" 2>&1 || fail "half a data directory was taken for one"
    fi
done
# `timeout` does not wait for what it kills, which a loaded machine ends later.
while pgrep -f -- "--data $scratch/killed" >/dev/null; do sleep 0.05; done
[ -e "$scratch/killed/format" ] && [ ! -e "$scratch/killed/restoring" ] || "$leasehold" restore "$backups" --data "$scratch/killed" >"$scratch/restore.log" || fail "it cannot be run again: $(cat "$scratch/restore.log")"
fsck_clean "$scratch/killed"
! "$leasehold" restore "$backups" --data "$scratch/killed" 2>"$scratch/restore.log" || fail "restored into a data directory that is in use"

# By schedule: one is due at once in a new directory, the next soon; two are kept.
log=$scratch/scheduled.log
"$leasehold" up --data "$data" --mount "$mnt" --backup "$scratch/scheduled" --backup-every 0.001 --backup-keep 2 >"$log" 2>&1 &
up_pid=$!
oldest='' names=()
for _ in $(seq $((hang * 10))); do
    mapfile -t names < <("$leasehold" restore "$scratch/scheduled" --list 2>>"$log")
    # One more than are kept is there for a moment.
    if [ ${#names[@]} = 2 ]; then
        [ "${oldest:=${names[0]}}" = "${names[0]}" ] || break
    fi
    sleep 0.1
done
[ ${#names[@]} = 2 ] && [ "${names[0]}" != "$oldest" ] || fail "hangs: no backups by schedule for $hang s: ${names[*]} since $oldest"
stop_mount
passed "$(figure "$scratch/first.json" ms) ms for the first backup, $(figure "$scratch/second.json" ms) ms for the second"
