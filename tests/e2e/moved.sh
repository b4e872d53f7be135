#!/usr/bin/env bash
# A directory is moved by the server for a machine that hears of it late: what another machine has seen of it by then, programs on the first one must see, too, and its kernel must
# not answer from what it was told before.
. "$(dirname "$0")/machines.sh"
within 600
build 2
start 1
start 2
one=${mounts[1]} two=${mounts[2]}
mkdir "$one/from" "$one/to" "$one/from/dir"
# Machine 2 has integers of both directories, and so need not ask for leases to write before it asks for the move.
touch "$two/from/file" "$two/to/file"
sync "$two/to/file"
look() { stat "$1/from/dir" >/dev/null && ! stat "$1/to/dir" 2>/dev/null; }
# Both have leases to read; and what was taken back from a kernel longer than 10 s ago it may keep again.
for i in 1 2; do look "$two" && look "$one"; done
sleep 11
look "$two" && look "$one" && look "$two"
wire 2 --delay 250
python3 - "$one" "$two" <<'PYTHON' || fail "machine 2 does not see what machine 1 has seen"
import os, sys, threading, time

one, two = sys.argv[1:]
mover = threading.Thread(target=os.rename, args=(f"{two}/from/dir", f"{two}/to/dir"))
mover.start()
while mover.is_alive() and not os.path.isdir(f"{one}/to/dir"):
    time.sleep(0.01)
if not mover.is_alive():
    sys.exit("the answer came too early for this to show anything")
seen = {}
looks = [threading.Thread(target=lambda name=name: seen.update({name: os.path.isdir(f"{two}/{name}/dir")})) for name in ("from", "to")]
for thread in looks:
    thread.start()
for thread in looks + [mover]:
    thread.join()
print(seen)
sys.exit(seen != {"from": False, "to": True})
PYTHON
unwire 2
stop 2
stop 1
