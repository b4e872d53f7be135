#!/usr/bin/env bash
# Debian's smbclient against `leasehold up --smb`: every dialect, signed and encrypted; what is refused; and the same files on the mount.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
[ "$(id -u)" = 0 ] || skip "the users of SMB are others than this one, which wants root"
command -v smbclient >/dev/null || skip "smbclient is missing: install it"

# A port that is free now. The loopback address alone.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
up_options=(--smb "127.0.0.1:$port")
lh() { "$leasehold" "$@" --data "$data"; }
# The clients of this test read no configuration of the machine's.
: >"$scratch/smb.conf"
client() { timeout 60 smbclient -s "$scratch/smb.conf" -p "$port" -U "anna%${PASSWORD:-secret}" "$@" 2>&1; }
# does WORDS ARGS...: the client ends well; says them otherwise.
does() { client "${@:2}" >"$scratch/out" || fail "$1: $(tail -5 "$scratch/out")"; ! grep -q NT_STATUS "$scratch/out" || fail "$1: $(grep NT_STATUS "$scratch/out")"; }
# refuses STATUS ARGS...
refuses() { ! client "${@:2}" >"$scratch/out" || grep -q NT_STATUS "$scratch/out" || fail "not refused: ${*:2}"; grep -q "$1" "$scratch/out" || fail "not $1: $(tail -3 "$scratch/out")"; }

start_mount
mkdir "$mnt/work" "$mnt/closed" "$mnt/read"
chown 1000:1000 "$mnt/work"
chmod 700 "$mnt/closed"
echo there >"$mnt/read/file"
echo secret | lh user add anna --uid 1000 >/dev/null
! lh user list | grep -q secret || fail "the list of users has a password"
[ "$(stat -c %a "$data/smb-users.json")" = 600 ] || fail "others can read the users' file"
lh share add work /work >/dev/null
lh share add closed /closed >/dev/null
lh share add read /read --read-only >/dev/null
lh share add locked /work --encrypt >/dev/null
! lh share add none /none 2>"$scratch/out" || fail "a directory is shared that is not there"
grep -q "no directory /none" "$scratch/out" || fail "not said why: $(cat "$scratch/out")"
! lh share add none none 2>/dev/null || fail "a path of nowhere is shared"

does "the shares" -L 127.0.0.1
for share in work closed read 'IPC\$'; do grep -qE "^\s+$share " "$scratch/out" || fail "$share is not listed: $(cat "$scratch/out")"; done

PASSWORD=wrong refuses NT_STATUS_LOGON_FAILURE //127.0.0.1/work -c ls
timeout 60 smbclient -s "$scratch/smb.conf" -p "$port" -N //127.0.0.1/work -c ls >"$scratch/out" 2>&1 && fail "nobody got in: $(cat "$scratch/out")"
refuses NT_STATUS_BAD_NETWORK_NAME //127.0.0.1/none -c ls
refuses NT_STATUS_ACCESS_DENIED //127.0.0.1/closed -c ls

head -c 5000000 /dev/urandom >"$scratch/large"
for dialect in SMB2_02 SMB2_10 SMB3_00 SMB3_02 SMB3_11; do
    context=$dialect
    for how in "" encrypt; do
        case "$how$dialect" in encryptSMB2_*) continue ;; esac
        at=(//127.0.0.1/work -m "$dialect" ${how:+--client-protection=$how})
        does "put" "${at[@]}" -c "mkdir d; cd d; put $scratch/large large; ls"
        grep -q "large .* 5000000" "$scratch/out" || fail "not listed: $(cat "$scratch/out")"
        cmp "$scratch/large" "$mnt/work/d/large" || fail "the mount has other bytes"
        does "get" "${at[@]}" -c "get d\\large $scratch/got"
        cmp "$scratch/large" "$scratch/got" || fail "the client got other bytes"
        does "rename" "${at[@]}" -c "rename d\\large d\\moved; ls d\\moved"
        [ "$(ls "$mnt/work/d")" = moved ] || fail "not renamed"
        # Names are found whatever their case.
        does "delete" "${at[@]}" -c "del D\\MOVED; rmdir d"
        [ -z "$(ls "$mnt/work")" ] || fail "left: $(ls "$mnt/work")"
    done
done
context=
echo from the mount >"$mnt/work/file"
chown 1000 "$mnt/work/file"
does "a file of the mount" //127.0.0.1/work -c "get file $scratch/got"
cmp "$mnt/work/file" "$scratch/got" || fail "the client got other bytes than the mount has"
does "reading" //127.0.0.1/read -c "get file $scratch/got"
refuses NT_STATUS_ //127.0.0.1/read -c "put $scratch/got other"
refuses NT_STATUS_ACCESS_DENIED //127.0.0.1/locked -m SMB2_10 -c ls
does "encrypted" //127.0.0.1/locked -c ls
lh smb status >"$scratch/out" || fail "smb status: $(cat "$scratch/out")"
lh user remove anna >/dev/null
refuses NT_STATUS_LOGON_FAILURE //127.0.0.1/work -c ls
stop_mount
fsck_clean

# docs/smb.md goes as it says, in an empty home and at a port that is free.
context="docs/smb.md"
mkdir -p "$scratch/home/bin"
ln -s "$leasehold" "$scratch/home/bin/leasehold"
awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on' "$(dirname "$0")/../../docs/smb.md" | sed "s/^\\$ //; s/4450/$port/" >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -ge 5 ] || fail "hardly any commands: $(cat "$scratch/commands")"
HOME=$scratch/home PATH=$scratch/home/bin:$PATH timeout 120 env -u LEASEHOLD_DATA -u XDG_DATA_HOME bash -ec ". $scratch/commands" >"$scratch/out" 2>&1 || went=$?
HOME=$scratch/home "$leasehold" down --data "$scratch/home/.local/share/leasehold" >/dev/null 2>&1
[ -z "${went:-}" ] || fail "its commands end with $went: $(cat "$scratch/out")"
