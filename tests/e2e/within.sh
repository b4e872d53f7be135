#!/usr/bin/env bash
# Within five seconds everything is durable, names and content alike: what was closed longer ago when the machine is killed is there, whole.
. "$(dirname "$0")/mounted.sh"
rounds=${ROUNDS:-4} bound=${BOUND:-5.5}
start_mount
for round in $(seq "$rounds"); do
    dir=$mnt/round$round closed=$scratch/closed$round
    mkdir "$dir"
    # Files of all sizes, as they are closed: when, which, and the hash of what is in it.
    python3 - "$dir" "$closed" "$round" 2>/dev/null <<'P' &
import hashlib, os, random, sys, time
top, closed, seed = sys.argv[1:]
rng = random.Random(seed)
with open(closed, "w", buffering=1) as log:
    for n in range(10**6):
        data = rng.randbytes(rng.choice([1, 100, 5000, 70000, 1 << 20, 6 << 20]))
        name = "%s/%d" % (top, n)
        with open(name + ".new" if n % 3 == 0 else name, "wb") as f:
            f.write(data)
        if n % 3 == 0:
            os.rename(name + ".new", name)
        log.write("%f %d %s\n" % (time.clock_gettime(time.CLOCK_MONOTONIC), n, hashlib.sha256(data).hexdigest()))
        time.sleep(0.05)
P
    writer=$!
    sleep "$((8 + round))"
    killed=$(python3 -c 'import time; print(time.clock_gettime(time.CLOCK_MONOTONIC))')
    [ -z "${PLAIN:-}" ] || kill "$writer"
    kill_mount
    { kill -9 "$writer"; wait "$writer"; } 2>/dev/null || true
    start_mount
    python3 - "$dir" "$closed" "$killed" "$bound" <<'P' || fail "round $round: what was closed $bound s before the kill is not there"
import hashlib, sys
top, closed, killed, bound = sys.argv[1:]
checked = 0
for line in open(closed):
    if not line.endswith("\n"): continue
    when, n, digest = line.split()
    if float(when) > float(killed) - float(bound): continue
    checked += 1
    try: found = hashlib.sha256(open("%s/%s" % (top, n), "rb").read()).hexdigest()
    except OSError as error: found = error
    if found != digest: sys.exit("%s, closed %.2f s before: %s" % (n, float(killed) - float(when), found))
if checked < 20: sys.exit("only %d files were closed before" % checked)
P
done
stop_mount
fsck_clean
passed "$rounds kills"
