#!/usr/bin/env bash
# Metrics and the live view say what was done on a mount, exactly where that can be.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"

up_options=(--metrics 127.0.0.1:0)
start_mount
url=$(sed -n 's/^metrics are at //p' "$log")
[ -n "$url" ] || fail "up does not say where metrics are"

# scrape FILE [URL]
scrape() { python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "${2:-$url}" >"$1"; }
# value FILE METRIC: what a scrape has of it, 0 if nothing.
value() { awk -v metric="$2" '$1 == metric { found = $2 } END { print found + 0 }' "$1"; }
operations() { value "$1" "leasehold_operations_total{kind=\"$2\",door=\"fuse\"}"; }
# grew FROM TO KIND N: as many operations of that kind as were done.
grew() {
    local by=$(($(operations "$2" "$3") - $(operations "$1" "$3")))
    [ "$by" = "$4" ] || fail "$3: $by operations were counted, $4 were done"
}

scrape "$scratch/before"
mkdir "$mnt/d"
python3 - "$mnt/d" <<'WORK'
import os, sys
os.chdir(sys.argv[1])
for n in range(20):
    fd = os.open("file%d" % n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.write(fd, b"content")
    if n < 3:
        os.fsync(fd)
    os.close(fd)
for n in range(5):
    os.rename("file%d" % n, "renamed%d" % n)
for n in range(7):
    os.unlink("file%d" % (n + 5))
os.symlink("nowhere", "symlink")
WORK
scrape "$scratch/after"
for done in mkdir:1 create:20 write:20 fsync:3 rename:5 unlink:7 symlink:1 link:0; do
    grew "$scratch/before" "$scratch/after" "${done%:*}" "${done#*:}"
done
latency='leasehold_operation_seconds_count{kind="create",door="fuse"}'
[ "$(value "$scratch/after" "$latency")" = "$(operations "$scratch/after" create)" ] || fail "not as many latencies as creates"
[ "$(value "$scratch/after" leasehold_log_flushes_total)" -gt "$(value "$scratch/before" leasehold_log_flushes_total)" ] || fail "three fsyncs flushed no log"
[ "$(value "$scratch/after" leasehold_client_leases)" -gt 0 ] || fail "no leases are held"
[ "$(value "$scratch/after" leasehold_server_sessions)" = 1 ] || fail "not one session"
! scrape "$scratch/none" "${url%metrics}other" 2>/dev/null || fail "something else than /metrics is answered"
if command -v promtool >/dev/null; then
    promtool check metrics <"$scratch/after" >"$scratch/promtool" 2>&1 || fail "promtool: $(cat "$scratch/promtool")"
fi

# Somebody is busy in one directory while somebody else looks.
python3 -c 'import os, sys
path = os.path.join(sys.argv[1], "busy")
os.mkdir(path)
while not os.path.exists(os.path.join(sys.argv[1], "enough")):
    os.close(os.open(os.path.join(path, "file"), os.O_CREAT | os.O_WRONLY))
    os.unlink(os.path.join(path, "file"))' "$mnt/d" &
busy=$!
cleanup() { kill "$busy"; } 2>/dev/null
wait_until "busy" test -d "$mnt/d/busy"
"$leasehold" top --once --json --data "$data" >"$scratch/top.json" || fail "top --once --json"
python3 - "$scratch/top.json" <<'CHECK' || fail "top --once --json says otherwise: $(cat "$scratch/top.json")"
import json, sys
top = json.load(open(sys.argv[1]))
busiest = top["directories"][0]
assert busiest["path"] == "/d/busy" and busiest["per_s"] > 1, busiest
create = next(of for of in top["operations"] if of["kind"] == "create")
assert create["door"] == "fuse" and create["per_s"] > 1 and 0 < create["mean_ms"] < 1000, create
assert len(top["machines"]) == 1 and top["machines_unknown"] is None, top["machines"]
CHECK
"$leasehold" top --once --data "$data" >"$scratch/top.txt" || fail "top --once"
grep -q '/d/busy$' "$scratch/top.txt" || fail "top --once does not show the busy directory: $(cat "$scratch/top.txt")"

# On a terminal: it draws, also on another size, ends by q, and leaves the terminal as that was.
python3 - "$leasehold" "$data" "$scratch/screen" <<'TERMINAL' || fail "top on a terminal"
import fcntl, os, pty, select, signal, struct, subprocess, sys, termios, time
program, data, screen = sys.argv[1:]

def end(how):
    main, sub = pty.openpty()
    resize = lambda lines, columns: fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    resize(24, 80)
    was = termios.tcgetattr(sub)
    top = subprocess.Popen([program, "top", "--data", data], stdin=sub, stdout=sub, stderr=sub, start_new_session=True)
    seen = b""
    def read_until(what):
        nonlocal seen
        until = time.time() + 60
        while what not in seen:
            assert time.time() < until and top.poll() is None, (what, top.poll(), seen[-2000:])
            if select.select([main], [], [], 0.1)[0]:
                seen += os.read(main, 1 << 16)
    read_until(b"/d/busy")
    assert b"\x1b[?1049h" in seen and termios.tcgetattr(sub) != was, "no screen of its own"
    open(screen, "wb").write(seen)
    seen = b""
    resize(30, 100)
    top.send_signal(signal.SIGWINCH)
    read_until(b"q ends")
    how(main, top)
    until = time.time() + 30
    while top.poll() is None and time.time() < until:
        if select.select([main], [], [], 0.05)[0]:
            seen += os.read(main, 1 << 16)
    while select.select([main], [], [], 0.1)[0]:
        seen += os.read(main, 1 << 16)
    assert top.poll() == 0, top.poll()
    assert termios.tcgetattr(sub) == was, "the terminal is not as it was"
    assert b"\x1b[?1049l" in seen and b"\x1b[?25h" in seen, seen[-200:]

end(lambda main, top: os.write(main, b"q"))
end(lambda main, top: os.write(main, b"\x03"))
end(lambda main, top: top.send_signal(signal.SIGTERM))
TERMINAL
touch "$mnt/d/enough"
wait_for_end "$busy" "the busy one"
cleanup() { :; }
stop_mount
! scrape "$scratch/none" 2>/dev/null || fail "metrics of a machine that has ended"
[ "$("$leasehold" top --once --data "$data" 2>&1 >/dev/null)" != "" ] || fail "top of a machine that is not up says nothing"
fsck_clean
passed "$(wc -l <"$scratch/after") lines scraped"
