#!/usr/bin/env bash
# pike, the suite of an SMB server's makers, against `leasehold up --smb`. Each case ends as tests/pike/expected.txt says, where
# each that does not pass has its reason. CASES=CASE... runs some. WRITE=1 writes the outcomes into that file, and keeps reasons.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
[ "$(id -u)" = 0 ] || skip "the users of SMB are others than this one, which wants root"

. "$root/tests/pike/environment"

# Some cases take port 445 for granted. All of 127.0.0.0/8 is the loopback's.
address=127.$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1))
up_options=(--smb "$address:445")
lh() { "$leasehold" "$@" --data "$data"; }
start_mount
echo secret | lh user add root --uid 0 >/dev/null
mkdir -m 777 "$mnt/pike"
# Without --continuous the cases of persistent handles skip themselves.
lh share add pike /pike --continuous >/dev/null
mkdir "$scratch/pike"
# shellcheck disable=SC2086 # CASES are several words.
TMPDIR=$scratch/pike "$root/tests/pike/run" "$environment/bin/python" "$address" pike ${WRITE:+--write} ${CASES:-} || fail "$(grep -c panicked "$log") panics; the cases are above"
! grep -q panicked "$log" || fail "the server panicked: $(grep -A1 panicked "$log")"
stop_mount
fsck_clean
