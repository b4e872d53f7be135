#!/usr/bin/env bash
# pike, the suite of an SMB server's makers, against `leasehold up --smb`. Each case ends as tests/pike/expected.txt says, where
# each that does not pass has its reason. CASES=CASE... runs some. WRITE=1 writes the outcomes into that file, and keeps reasons.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
[ "$(id -u)" = 0 ] || skip "the users of SMB are others than this one, which wants root"

# The versions of tests/pike/requirements.txt, once, in a virtual environment of their own.
wants=$root/tests/pike/requirements.txt environment=$root/target/tools/pike
if ! cmp -s "$wants" "$environment/installed"; then
    rm -rf "$environment"
    python3 -m venv "$environment" >"$scratch/venv" 2>&1 || skip "python3 has no venv: $(tail -n 1 "$scratch/venv")"
    "$environment/bin/pip" install -q --disable-pip-version-check -r "$wants" >"$scratch/pip" 2>&1 || skip "pike cannot be had: $(tail -n 1 "$scratch/pip")"
    cp "$wants" "$environment/installed"
fi

# Some cases take port 445 for granted. All of 127.0.0.0/8 is the loopback's.
address=127.$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1))
up_options=(--smb "$address:445")
lh() { "$leasehold" "$@" --data "$data"; }
start_mount
echo secret | lh user add root --uid 0 >/dev/null
mkdir -m 777 "$mnt/pike"
lh share add pike /pike >/dev/null
mkdir "$scratch/pike"
# shellcheck disable=SC2086 # CASES are several words.
TMPDIR=$scratch/pike "$root/tests/pike/run" "$environment/bin/python" "$address" pike ${WRITE:+--write} ${CASES:-} || fail "$(grep -c panicked "$log") panics; the cases are above"
! grep -q panicked "$log" || fail "the server panicked: $(grep -A1 panicked "$log")"
stop_mount
fsck_clean
