#!/usr/bin/env bash
# Samba's smbtorture against `leasehold up --smb`. Each case ends as tests/smbtorture/expected.txt
# says, where each that does not pass has its reason. CASES=SUITE... runs some. WRITE=1 writes the
# outcomes into that file, and keeps reasons. SLOW=1 runs those too that sleep long.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
[ "$(id -u)" = 0 ] || skip "the users of SMB are others than this one, which wants root"
command -v smbtorture >/dev/null || skip "smbtorture is missing: install samba-testsuite"
case $(smbtorture -V 2>&1) in *" 4.17."*) ;; *) skip "tests/smbtorture/expected.txt is of smbtorture 4.17, and here is another" ;; esac

# The loopback address alone.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
up_options=(--smb "127.0.0.1:$port")
lh() { "$leasehold" "$@" --data "$data"; }
start_mount
echo secret | lh user add root --uid 0 >/dev/null
# Cases mostly wait. Each worker has a share, since the cases of one suite use the same names.
workers=${WORKERS:-8}
for share in $(seq "$workers"); do
    mkdir -m 777 "$mnt/t$share"
    lh share add "t$share" "/t$share" >/dev/null
done
mkdir "$scratch/torture"
# shellcheck disable=SC2086 # CASES are several words.
TMPDIR=$scratch/torture "$root/tests/smbtorture/run" "$port" "$workers" ${WRITE:+--write} ${SLOW:+--slow} ${CASES:-} || fail "$(grep -c panicked "$log") panics; the cases are above"
! grep -q panicked "$log" || fail "the server panicked: $(grep -A1 panicked "$log")"
stop_mount
fsck_clean
