#!/usr/bin/env bash
# Samba's smbtorture against two machines of one cluster: its suites of leases, oplocks, share modes and locks, with the
# connections of each case at the two in turn. Each case ends as tests/smbtorture/expected-two.txt says, where each that does not
# pass has its reason. CASES=SUITE... runs some. WRITE=1 writes the outcomes into that file, and keeps reasons.
. "$(dirname "$0")/machines.sh"
command -v smbtorture >/dev/null || skip "smbtorture is missing: install samba-testsuite"
case $(smbtorture -V 2>&1) in *" 4.17."*) ;; *) skip "tests/smbtorture/expected-two.txt is of smbtorture 4.17, and here is another" ;; esac

# In place of that of machines.sh, where no machine serves SMB.
starts_by() {
    local i=$1
    command=("$leasehold" up --data "$scratch/data$i" --mount "${mounts[i]}" --smb "$(address "$i"):445")
    if [ "$i" = 1 ]; then
        command+=(--listen "$(address 1):4470" --name machine1)
    else
        on "$i" "$leasehold" join --data "$scratch/data$i" --name "machine$i" "$(lh 1 invite --address "$(address 1):4470")" >/dev/null
    fi
}

within "${WITHIN:-800}"
build 2
for i in 1 2; do
    start "$i"
    echo secret | lh "$i" user add root --uid 0 >/dev/null
done
# Cases mostly wait. Each worker has a share, since the cases of one suite use the same names.
shares=${SHARES:-9}
for share in $(seq "$shares"); do
    mkdir -m 777 "${mounts[1]}/t$share"
    for i in 1 2; do lh "$i" share add "t$share" "/t$share" >/dev/null; done
done
mkdir "$scratch/torture"
panics() { cat "$(machine_log 1)" "$(machine_log 2)" | grep -A1 panicked; }
# The proxies listen on the loopback of the first machine's network.
# shellcheck disable=SC2086 # CASES are several words.
TMPDIR=$scratch/torture on 1 "$root/tests/smbtorture/run" "$(address 1),$(address 2)" "${mounts[1]}" "$shares" ${WRITE:+--write} ${CASES:-} || fail "the cases are above; panics: $(panics)"
! panics || fail "a server panicked"
stop_all
fsck_clean "$scratch/data1"
passed
