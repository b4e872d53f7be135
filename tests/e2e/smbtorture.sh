#!/usr/bin/env bash
# Samba's smbtorture against `leasehold up --smb`. Each case ends as tests/smbtorture/expected.txt
# says, where each that does not pass has its reason. CASES=SUITE... runs some. WRITE=1 writes the
# outcomes into that file, and keeps reasons. SLOW=1 runs those too that sleep long.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
[ "$(id -u)" = 0 ] || skip "the users of SMB are others than this one, which wants root"
command -v smbtorture >/dev/null || skip "smbtorture is missing: install samba-testsuite"
case $(smbtorture -V 2>&1) in *" 4.17."*) ;; *) skip "tests/smbtorture/expected.txt is of smbtorture 4.17, and here is another" ;; esac

# Some cases take port 445 for granted. All of 127.0.0.0/8 is the loopback's.
address=127.$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1)).$((RANDOM % 254 + 1))
up_options=(--smb "$address:445")
lh() { "$leasehold" "$@" --data "$data"; }
start_mount
echo secret | lh user add root --uid 0 >/dev/null
echo secret | lh user add anna --uid 1000 >/dev/null
# Cases mostly wait. Each worker has a share, since the cases of one suite use the same names.
shares=${SHARES:-9}
for share in $(seq "$shares"); do
    mkdir -m 777 "$mnt/t$share"
    lh share add "t$share" "/t$share" >/dev/null
done
mkdir -m 777 "$mnt/continuous"
lh share add continuous /continuous --continuous >/dev/null
mkdir -m 777 "$mnt/hideunread"
lh share add hideunread /hideunread --hide-unreadable >/dev/null
mkdir "$scratch/torture"
# shellcheck disable=SC2086 # CASES are several words.
TMPDIR=$scratch/torture "$root/tests/smbtorture/run" "$address" "$mnt" "$shares" ${WRITE:+--write} ${SLOW:+--slow} ${CASES:-} || fail "$(grep -c panicked "$log") panics; the cases are above"
! grep -q panicked "$log" || fail "the server panicked: $(grep -A1 panicked "$log")"
stop_mount
fsck_clean
