#!/usr/bin/env bash
# Tests of the tests: on a plain directory, each workload's check must notice what is then spoilt there, and power cuts must
# catch a program that syncs nothing.
plain_disk=${TMPDIR:-/var/tmp}
export PLAIN=$plain_disk
. "$(dirname "$0")/mounted.sh"
export FILES=500 OPS=500 LINES_IN_ALL=4000 MOVES=5 OPERATIONS=100
work=$mnt

# spoilt WORKLOAD WHAT COMMAND...: done, checked, then spoilt by COMMAND in its directory: now the check must fail.
spoilt() {
    local workload=$root/tests/workload/$1 dir=$work/$1 state=$scratch/$1
    rm -rf "$dir" "$state" && mkdir "$dir" "$state"
    "$workload" work "$dir" "$state" >/dev/null 2>&1 && "$workload" check "$dir" "$state" >/dev/null 2>&1 || fail "$1 fails on $plain_disk itself"
    (cd "$dir" && "${@:3}" >/dev/null) || fail "$1: could not spoil it: ${*:3}"
    ! "$workload" check "$dir" "$state" >"$scratch/check.log" 2>&1 || fail "$1 does not notice $2"
}

spoilt git "a damaged pack" sh -c 'for f in clone/.git/objects/pack/*.pack; do chmod u+w "$f"; printf x | dd of="$f" bs=1 seek=5000 conv=notrunc status=none; done'
spoilt git "a changed file" sh -c 'echo more >>"$(find clone -name "file7.txt")"'
spoilt tar "a time off by a nanosecond" python3 -c 'import os; p = next(e.path for e in os.scandir(".") if e.is_file(follow_symlinks=False)); t = os.stat(p); os.utime(p, ns=(t.st_atime_ns, t.st_mtime_ns + 1))'
spoilt tar "a missing file" sh -c 'rm "$(find . -type f -links 1 | head -1)"'
spoilt tar "a hard link become a copy" sh -c 'f=$(find . -type f -links +1 | head -1) && cp -p "$f" "$f.copy" && mv "$f.copy" "$f"'
spoilt sqlite "a lost commit" python3 -c 'import sqlite3; d = sqlite3.connect("wal.db"); d.execute("DELETE FROM move WHERE process = 2 AND number = 4"); d.commit()'
spoilt sqlite "a page of zeros" dd if=/dev/zero of=delete.db bs=4096 seek=3 count=1 conv=notrunc status=none
spoilt append "a lost line" sed -i 1234d lines
spoilt append "a torn line" sed -i '1234s/.$//' lines
spoilt journal "a lost file" sh -c 'rm "$(find journal0 -path journal0/noise -prune -o -type f -print | head -1)"'
spoilt journal "a flipped byte" sh -c 'printf "\377" | dd of="$(find journal1 -path journal1/noise -prune -o -type f -size +1 -print | head -1)" bs=1 seek=600 conv=notrunc status=none'
spoilt journal "a name come back" touch journal0/n999999
spoilt open-files "a name come back" touch many-7
spoilt open-files "what was replaced" sh -c 'head -c 70000 /dev/zero >replaced'
[ ! -x "$root/target/tools/bin/fsx" ] || spoilt fsx "a changed byte" sh -c 'printf x >>small'

"$root/tests/e2e/programs.sh" >"$scratch/programs.log" 2>&1 || [ $? = 77 ] || fail "programs fail on $plain_disk itself: $(grep WRONG "$scratch/programs.log")"
[ "$(id -u)" = 0 ] && losetup -f >/dev/null 2>&1 || skip "power cuts: a loop device needs root (the rest passed)"
unset PLAIN
here=$root/tests/e2e/power-cut.sh
PLAIN=1 CUTS=5 OPERATIONS=60 "$here" >/dev/null || fail "power cuts fail on ext4 itself"
! PLAIN=1 LIE=1 CUTS=10 OPERATIONS=60 "$here" >"$scratch/lie.log" 2>&1 || fail "10 power cuts did not notice that nothing was synced"
grep -q 'facts do not hold' "$scratch/lie.log" || fail "power cuts failed for another reason: $(tail -3 "$scratch/lie.log")"
rm -rf "$(sed -n 's/^power-cut: kept for a look: //p' "$scratch/lie.log")"
export PLAIN=$plain_disk
passed
