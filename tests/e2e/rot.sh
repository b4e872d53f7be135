#!/usr/bin/env bash
# Three servers, a fourth machine that works. The disk of one server after the other changes what was written: bits, which are put right where they are, and whole sectors of rows, log and shares, before
# a start, and while it is up. Each server comes back by itself; no call fails, nothing that was promised is lost, all content is the same everywhere, fsck is clean.
. "$(dirname "$0")/machines.sh"
journal=$root/tests/workload/journal

# rot KIND COUNT FILE...: COUNT bits, or sectors, of what is not zeros in these files, are changed.
rot() {
    python3 - "$SEED" "$@" <<'PY'
import random, sys
seed, kind, count, *files = sys.argv[1:]
random.seed(seed + kind)
done = set()
def block(name, at):
    """Which block a byte is of. In a file of rows the sums of 256 blocks stand before them, 16 bytes each (node::store::blocks): a sum is its block's."""
    number, within = divmod(at, 4096)
    of_sums = name.endswith("rows") and number >= 2 and (number - 2) % 257 == 0
    return name, number + 1 + within // 16 if of_sums else number
for n in range(int(count)):
    name = random.choice(files)
    with open(name, "r+b") as file:
        data = file.read()
        sectors = [at for at in range(0, len(data), 512) if any(data[at:at + 512])]
        # One in a block: more than that is damage.
        while True:
            at = random.choice(sectors)
            if kind == "bits":
                at += random.randrange(min(512, len(data) - at))
            if block(name, at) not in done:
                break
        done.add(block(name, at))
        if kind == "bits":
            changed = bytes([data[at] ^ 1 << random.randrange(8)])
        else:
            changed = random.randbytes(min(512, len(data) - at))
        file.seek(at)
        file.write(changed)
PY
}

follower() { local at; at=$(leader); for i in 3 2 1; do [ "$i" = "$at" ] || { echo "$i"; return; }; done; }
quarantined() { find "$scratch/data$1" -maxdepth 1 -name "server.damaged-*" | wc -l; }
added_anew() {
    local tries
    for tries in $(seq $((hang * 5))); do
        [ "$(quarantined "$1")" = "$2" ] && lh "$1" scrub >/dev/null 2>&1 && { settled; return 0; }
        sleep 0.2
    done
    fail "hangs: machine $1 was not added anew for $hang s: $(tail -n 4 "$(machine_log "$1")")"
}
still_works() {
    kill -0 "$worker" 2>/dev/null && ! grep -q Error "$scratch/work/errors" || fail "a call failed on machine 4: $(tail -n 3 "$scratch/work/errors")"
}
scrubbed() { lh "$1" scrub >"$scratch/scrub.log" 2>&1; }
# As wait_until asks: with what is wrong said again.
scrubbed_well() { scrubbed "$1" || { cat "$scratch/scrub.log" && false; }; }

build 4
within "${WITHIN:-2000}"
SEED=${SEED:-$((RANDOM % 1000))}
say "SEED=$SEED"
for i in 1 2 3 4; do start "$i"; done
for i in 2 3; do lh 1 server add "machine$i" >"$scratch/add$i.log" 2>&1 || fail "server add: $(tail -n 2 "$scratch/add$i.log")"; done
settled
mkdir "${mounts[4]}/work" "$scratch/work" "${mounts[4]}/tree"
head -c 20000000 /dev/urandom >"$scratch/large"
cp "$scratch/large" "${mounts[4]}/large"
for n in $(seq 300); do echo "file $n" >"${mounts[4]}/tree/$n"; done
sync "${mounts[4]}/large" "${mounts[4]}/tree"
errors=$scratch/work/errors job env OPERATIONS=0 PAUSE=0.03 LARGEST=40000 SEED="$SEED" "$journal" work "${mounts[4]}/work" "$scratch/work"
worker=$job
sleep 2

# Bits, while a server is down: put right as they are come upon.
at=$(follower)
kill_machine "$at"
data=$scratch/data$at
rot bits 8 "$data/server/rows"
rot bits 1 "$(ls "$data"/server/log/*.log | tail -n 1)"
for small in machine.json machine.key machine.crt authority.crt; do rot bits 1 "$data/$small"; done
start "$at"
settled
scrubbed "$at" || fail "scrub of machine $at: $(cat "$scratch/scrub.log")"
[ "$(quarantined "$at")" = 0 ] || fail "single bits cost a server what it had: $(cat "$data"/server.damaged-*/why)"
still_works
say "bits of machine $at were put right"

# Sectors of the rows, while it is down; the founder has most to lose.
kill_machine 1
rot sectors 12 "$scratch/data1/server/rows"
start 1
added_anew 1 1
still_works
status=$("$leasehold" status --data "$scratch/data1")
grep -q 'is kept: .*server.damaged' <<<"$status" || fail "status does not say what was put aside: $status"
say "machine 1, whose rows were damaged when it started, was added anew"

# Of the log, likewise. In the middle: what is damaged at the end passes for what was being written.
at=$(follower)
kill_machine "$at"
before=$(quarantined "$at")
for segment in "$scratch/data$at"/server/log/*.log; do
    dd if=/dev/urandom of="$segment" bs=64 count=16 seek=3 conv=notrunc status=none
done
start "$at"
added_anew "$at" $((before + 1))
still_works
say "machine $at, whose log was damaged when it started, was added anew"

# The leader's rows, while it is up.
at=$(leader)
before=$(quarantined "$at") pid=${pids[at]}
rot sectors 12 "$scratch/data$at/server/rows"
scrubbed "$at" || true
added_anew "$at" $((before + 1))
kill -0 "$pid" || fail "machine $at ended"
still_works
say "machine $at, whose rows were damaged while it led, was added anew"

# Shares, while it is up: had again from the others.
at=$(follower)
# Of the large file: those of the journal come and go.
mapfile -t shares < <(find "$scratch/data$at/shares/shares" -type f -size +500k)
rot sectors 12 "${shares[@]}"
! scrubbed "$at" || fail "no share is damaged: $(cat "$scratch/scrub.log")"
wait_until "without damaged shares" scrubbed_well "$at"
say "shares of machine $at were had again"

still_works
kill -9 -- "-$worker" 2>/dev/null || true
wait "$worker" 2>/dev/null || true
unset "jobs[$worker]"
for i in 1 2 3 4; do
    "$journal" check "${mounts[i]}/work" "$scratch/work" >"$scratch/check.log" 2>&1 || fail "machine $i does not see what was promised: $(tail -n 4 "$scratch/check.log")"
    cmp "$scratch/large" "${mounts[i]}/large" || fail "machine $i has other content"
    [ "$(cat "${mounts[i]}"/tree/* | sort | sha256sum)" = "$(for n in $(seq 300); do echo "file $n"; done | sort | sha256sum)" ] || fail "machine $i has other files"
done
for i in 1 2 3; do
    wait_until "clean by fsck of machine $i" lh "$i" fsck
done
stop_all
passed "SEED=$SEED"
