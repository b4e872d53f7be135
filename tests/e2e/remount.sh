#!/usr/bin/env bash
# One workload of tests/workload on a fresh mount: done, checked, and checked again after unmount, restart and remount.
# Usage: remount.sh WORKLOAD
name=${1:?which workload of tests/workload}
. "$(dirname "$0")/mounted.sh"
workload=$root/tests/workload/$name
mkdir "$scratch/state"

start_mount
mkdir "$mnt/w"
"$workload" work "$mnt/w" "$scratch/state" || fail "work on $mnt"
"$workload" check "$mnt/w" "$scratch/state" || fail "check before the remount"
worked=$((SECONDS - started_at))
remount
"$workload" check "$mnt/w" "$scratch/state" || fail "check after the remount"
stop_mount
fsck_clean
passed "worked and checked in $worked s, restarted in $up_ms ms"
