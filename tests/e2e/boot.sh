#!/usr/bin/env bash
# How a machine starts and ends where nobody sits before it: by /etc/fstab, by a service manager, in the background; with its server away; with its terminal closed.
[ -n "${ALONE:-}" ] || ! unshare --net --mount true 2>/dev/null || ALONE=1 exec unshare --net --mount sh -c 'ip link set lo up && exec "$0"' "$0"
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "is about leasehold itself"
[ "$(id -u)" = 0 ] || skip "mount(8) wants root"
export HOME=$scratch/home PATH=$scratch/bin:$PATH
mkdir -p "$HOME" "$scratch/bin" "$scratch/upper" "$scratch/work"
ln -s "$leasehold" "$scratch/bin/leasehold"
second=$scratch/second away=$scratch/away
cleanup() { for i in "$data" "$second"; do leasehold down --data "$i"; done >/dev/null 2>&1; }
is_here() { findmnt --noheadings --types fuse.leasehold --mountpoint "$mnt" >/dev/null; }

# A helper beside this machine's own, seen by nobody else.
sbin=$(readlink -f /sbin)
mount -t overlay overlay -o "lowerdir=$sbin,upperdir=$scratch/upper,workdir=$scratch/work" "$sbin" 2>"$scratch/out" || skip "no overlay here: $(cat "$scratch/out")"
cp "$root/packaging/mount.leasehold" "$sbin/"
ln -s "$leasehold" "$sbin/leasehold"
echo "$data $mnt leasehold _netdev,nofail,listen=127.0.0.1:4470 0 0" >"$scratch/fstab"
mount -a -T "$scratch/fstab" || fail "mount -a ended with $?"
is_here || fail "mount -a has mounted nothing"
echo kept >"$mnt/file"
mount -a -T "$scratch/fstab" || fail "mount -a ended with $?, with all that is mounted"
umount "$mnt" && mount "$mnt" -T "$scratch/fstab" || fail "umount and mount ended with $?"
[ "$(cat "$mnt/file")" = kept ] || fail "what was written before is not there"
leasehold invite --data "$data" --address 127.0.0.1:4470 >"$scratch/token"
leasehold down --data "$data" >"$scratch/out" || fail "down: $(cat "$scratch/out")"
! is_here || fail "down has unmounted nothing"
say "fstab: mounted, mounted again, unmounted"

# What systemd does: a socket, and READY=1 there when it is mounted.
cat >"$scratch/manager" <<'P'
import os, signal, socket, subprocess, sys, time
where, command = sys.argv[1], sys.argv[2:]
ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ear.bind(where)
ear.settimeout(300)
process = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": where}, stdout=subprocess.DEVNULL)
def told(word):
    while True:
        said = ear.recv(4096).decode().split("\n")
        if word in said:
            return said
said = told("READY=1")
mount = command[command.index("--mount") + 1]
assert os.path.ismount(mount) and "STATUS=mounted on " + mount in said, said
# Its terminal is closed: that ends nothing.
process.send_signal(signal.SIGHUP)
time.sleep(0.5)
assert process.poll() is None and os.listdir(mount) == ["file"]
process.send_signal(signal.SIGTERM)
told("STOPPING=1")
assert process.wait(300) == 0 and not os.path.ismount(mount)
P
python3 "$scratch/manager" "$scratch/notify" leasehold up --data "$data" --mount "$mnt" --listen 127.0.0.1:4470 || fail "a service manager is not told how it stands"
say "a service manager is told"

# Its server is away: a start says so, mounts when it is there, and ends at once when it is told to.
start_mount() { leasehold up --data "$data" --mount "$mnt" --listen 127.0.0.1:4470 --background >"$scratch/out" || fail "$(cat "$scratch/out")"; }
start_mount
mkdir "$away"
leasehold mount --background --join "$(cat "$scratch/token")" --name second --data "$second" "$away" >"$scratch/out" || fail "$(cat "$scratch/out")"
leasehold down --data "$second" >"$scratch/out" || fail "$(cat "$scratch/out")"
leasehold down --data "$data" >"$scratch/out" || fail "$(cat "$scratch/out")"
leasehold mount --data "$second" "$away" >"$scratch/second.log" 2>&1 &
waits=$!
wait_until "it is said that the server is away" grep -q "cannot be reached" "$scratch/second.log"
kill -INT "$waits"
wait_for_end "$waits" "a start without a server, after SIGINT"
leasehold mount --data "$second" "$away" >"$scratch/second.log" 2>&1 &
waits=$!
wait_until "it is said that the server is away" grep -q "cannot be reached" "$scratch/second.log"
start_mount
wait_until "it is mounted now that the server is there" grep -q "^mounted on" "$scratch/second.log"
[ "$(cat "$away/file")" = kept ] || fail "it shows something else"
kill -INT "$waits" && wait "$waits" || fail "it ended with $?: $(cat "$scratch/second.log")"
say "a server that is away is waited for"

if command -v systemd-analyze >/dev/null; then
    sed "s#/usr/bin/leasehold#$scratch/bin/leasehold#" "$root/packaging/systemd/leasehold@.service" >"$scratch/leasehold@.service"
    systemd-analyze verify --man=no "$scratch/leasehold@home.service" >"$scratch/out" 2>&1 || fail "the unit: $(cat "$scratch/out")"
    [ ! -s "$scratch/out" ] || fail "the unit: $(cat "$scratch/out")"
else
    say "SKIPPED: the unit is not verified, since systemd-analyze is not here"
fi
passed "fstab, service manager, server away"
