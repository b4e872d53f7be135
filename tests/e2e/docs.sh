#!/usr/bin/env bash
# The documents are true: links lead somewhere, commands have the options that they are shown with, messages are what the program says, and docs/three-machines.md goes as it says on three machines.
# This much needs no root.
root=$(cd "$(dirname "$0")/../.." && pwd)
"$root/tests/e2e/documents" "${LEASEHOLD:-$root/target/release/leasehold}" "$root" || { echo "docs: FAILED: the documents are not true" >&2; exit 1; }
. "$(dirname "$0")/machines.sh"
cd "$root"

within "${WITHIN:-600}"
build 3
names=(- first second third)
for i in 1 2 3; do
    mkdir -p "$scratch/home$i" "$scratch/bin"
    mounts[i]=$scratch/home$i/Leasehold
done
ln -s "$leasehold" "$scratch/bin/leasehold"
unset LEASEHOLD_DATA XDG_DATA_HOME
export PATH=$scratch/bin:$PATH

# as I COMMAND: as typed on machine I, with its host name and a home of its own.
as() {
    HOME=$scratch/home$1 nsenter --net="/run/netns/$net-$1" -- unshare --uts -- sh -c 'hostname "$0" && exec bash -c "$1"' "${names[$1]}" "$2"
}

# Each line of a console block: a prompt's machine or `said`, a tab, the command or what it prints.
awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on' docs/three-machines.md |
    sed -E 's/^first\$ /1\t/; t; s/^second\$ /2\t/; t; s/^third\$ /3\t/; t; s/^/said\t/' >"$scratch/lines"
[ "$(grep -c '^[123]' "$scratch/lines")" -ge 20 ] || fail "docs/three-machines.md has hardly any commands: $(cat "$scratch/lines")"

token='' ran=0 machine='' line=''
: >"$scratch/out"
while IFS=$'\t' read -r who text <&3; do
    if [ "$who" = said ]; then
        expected=${text//\~/$scratch/home$machine}
        # Dots stand for what differs from run to run.
        pattern=$(sed -E 's/[][\\.^$*+?(){}|]/\\&/g; s/\\\.\\\.\\\./.*/g; s/ +/ +/g' <<<"$expected")
        # How others stand is known a moment later.
        for _ in $(seq 120); do
            ! grep -qE -- "^$pattern\$" "$scratch/out" || break
            [[ $line == "leasehold machines" || $line == "leasehold server list" ]] || break
            sleep 0.5
            as "$machine" "$line" >"$scratch/out" 2>&1 </dev/null || true
        done
        grep -qE -- "^$pattern\$" "$scratch/out" || fail "after '$line' on ${names[$machine]} the document has '$text', and this came: $(cat "$scratch/out")"
        continue
    fi
    machine=$who line=$text ran=$((ran + 1))
    context="$line on ${names[$machine]}"
    if [ "$line" = "reboot -f" ]; then
        kill_machine "$machine"
        umount -l "${mounts[machine]}"
        continue
    fi
    as "$machine" "${line//lease1-.../$token}" >"$scratch/out" 2>&1 </dev/null || fail "it ended with $?: $(cat "$scratch/out")"
    case $line in
    *"leasehold invite"*) token=$(grep '^lease1-' "$scratch/out") || fail "no token: $(cat "$scratch/out")" ;;
    *--background*) pids[machine]=$(sed -n 's/^in the background: process \([0-9]*\),.*/\1/p' "$scratch/out") ;;
    *"leasehold down"*) pids[machine]='' ;;
    esac
done 3<"$scratch/lines"
context=
passed "$ran commands of docs/three-machines.md"
