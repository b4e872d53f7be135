#!/usr/bin/env bash
# Nobody but their owner reads what servers and machines leave on disks, from the first byte on, asks at their sockets or keeps them from starting: with the most careless umask that there is,
# and where an earlier leasehold (or somebody) has left wider modes. No content of a file stands on a disk as it was written.
. "$(dirname "${BASH_SOURCE[0]}")/machines.sh"
umask 000
within 400
marker=plain-as-it-was-written

# What others may do something with, below the directories that are there by now.
open_to_others() {
    find "$scratch"/data[0-9] "$scratch"/kept "$scratch"/parcel* \
        \( -type d ! -perm 700 -o \( -type f -o -type s \) ! -perm 600 \) -printf '%m %p\n' 2>/dev/null || true
}
# Also what is only there for a moment.
watch() { while sleep 0.02; do open_to_others >>"$scratch/seen"; done; }
export scratch
export -f watch open_to_others

build 3
job bash -c watch
for i in 1 2 3; do start "$i"; done
lh 1 server add machine2 >/dev/null
lh 1 server add machine3 >/dev/null
settled

# So many bytes of it. Not through a pipe: whoever writes to one that ends is killed.
marked() { head -c "$1" < <(yes "$marker"); }
write() {
    mkdir -p "$1"
    for i in $(seq 20); do echo "$marker" >"$1/small$i"; done
    marked 3000 >"$1/inline"
    marked 3000000 >"$1/large"
    marked 9000 | dd of="$1/synced" conv=fsync bs=9000 status=none
    sync "${mounts[1]}"
}
write "${mounts[1]}/dir"
write "${mounts[2]}/dir2"
lh 1 backup "$scratch/kept" >/dev/null
lh 1 backup "$scratch/kept" >/dev/null
lh 1 shares export "$scratch/parcel1" >/dev/null
lh 1 scrub >/dev/null
lh 1 fsck >"$scratch/fsck.log" || fail "fsck is not clean: $(tail -n 3 "$scratch/fsck.log")"

# A server dies, and a machine that was cut off has something to salvage.
kill_machine 3
umount -l "${mounts[3]}"
write "${mounts[1]}/dir4"
start 3
before=$(sha256sum <"$scratch/data1/authority.crt")
lh 1 server remove machine2 >/dev/null
# It has had the key that certifies machines: all have certificates by another one, and notice nothing.
renewed() { [ "$(sha256sum <"$scratch/data$1/authority.crt")" != "$before" ]; }
for i in 1 2 3; do wait_until "machine $i has a certificate by another authority" renewed "$i"; done
has_no_keys() { [ ! -e "$scratch/data2/authority.key" ] && [ ! -e "$scratch/data2/server" ]; }
wait_until "the removed server has nothing of what servers have" has_no_keys
before=$(sha256sum <"$scratch/data1/authority.crt")
lh 1 authority renew 2>/dev/null
for i in 1 2 3; do wait_until "machine $i has a certificate by the next authority" renewed "$i"; done
cat "${mounts[2]}/dir/small1" >/dev/null
cut 2
echo "$marker" >"${mounts[2]}/dir2/small1" &
for _ in $(seq 60); do
    timeout 5 sh -c "echo other >'${mounts[1]}/dir2/small1'" && break
    sleep 1
done
mend 2
for _ in $(seq 60); do
    [ ! -e "$scratch/data2/salvage" ] || break
    sleep 1
done
[ -e "$scratch/data2/salvage" ] || say "nothing was salvaged"

found=$(grep -rl "$marker" "$scratch"/data[13] "$scratch"/kept "$scratch"/parcel1 || true)
[ -z "$found" ] || fail "content can be read in $found"
[ ! -s "$scratch/seen" ] || fail "open to others: $(sort -u "$scratch/seen" | head)"
for file in rows log leases.sqlite lock control; do
    find "$scratch/data1" -name "*$file*" | grep -q . || fail "no $file was looked at"
done

# Somebody else, with all that he can do.
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
! as_nobody ls "$scratch/data1" 2>/dev/null || fail "nobody can list a data directory"
! as_nobody flock -n "$scratch/data1/lock" true 2>/dev/null || fail "nobody can lock a data directory"
# Even where the way to it and the socket are open.
chmod 755 "$scratch/data1"
chmod 666 "$scratch/data1/control"
# He becomes nobody by itself: python may be where nobody else gets.
heard=$(python3 - "$scratch/data1/control" <<'PY'
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
try:
    s.connect(sys.argv[1])
    s.sendall(b'"Status"\n')
    print(s.recv(1000).decode())
except OSError:
    pass
PY
)
[ -z "$heard" ] || fail "nobody was answered: $heard"
lh 1 status >/dev/null || fail "its owner is not answered"

# What is open by now is closed by the next start.
stop_all
chmod -R a+rwX "$scratch"/data[0-9]
chmod 755 "$scratch/data1/shares/shares/"*
chmod 700 "$scratch"/data1/server
start_only 1
start_only 3
wait_for 1
wait_for 3
start 2
found=$(open_to_others)
[ -z "$found" ] || fail "still open to others: $(head <<<"$found")"
cmp <(marked 3000000) "${mounts[3]}/dir/large"
end_jobs
stop_all
passed
