#!/usr/bin/env bash
# What is stored at a server, seen from outside: files are made, and their shares leased; deleted, they are gone from the disk; a parcel brings lost content back; a key has shares of its own, within its quota,
# which outlive the files and are gone when it lets go of them.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "a plain directory has no shares"
shares() { "$leasehold" shares "$@" --data "$data"; }
gc() { "$leasehold" gc "$@" --data "$data"; }
# figure EXPRESSION: of the JSON on standard input, which is `r`.
figure() { python3 -c 'import json,sys; r = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
stored() { shares usage --json | figure 'r["stored"]["bytes"]'; }
on_disk() { du -sk "$data/shares/shares" | cut -f 1; }
# eventually COMMAND...: until it succeeds.
eventually() { for _ in $(seq $((hang * 10))); do ! "$@" || return 0; sleep 0.1; done; fail "hangs: not within $hang s: $* ($(shares usage 2>&1; gc --dry-run 2>&1; gc status 2>&1))"; }
is_empty() { [ "$(stored)" = 0 ] && [ "$(on_disk)" -lt 3000 ]; }

# Of its own: the usual port is another script's that runs beside this one.
up_options=(--listen 127.0.0.1:14470)
start_mount
mkdir "$mnt/tree"
for n in $(seq 30); do head -c 500000 /dev/urandom >"$mnt/tree/$n"; done
sync "$mnt/tree"/*
(cd "$mnt/tree" && sha256sum ./*) >"$scratch/sums"
all_leased() { [ "$(shares usage --json | figure 'sum(a["bytes"] for a in r["accounts"] if a["account"] == "cluster")')" -ge 15000000 ]; }
eventually all_leased
status_is_usage() { [ "$(shares status --json | figure 'r["hosts"][0]["store"]["stable"]["bytes"]')" = "$(stored)" ]; }
eventually status_is_usage
# Its own only: what was leased while it was uploaded has been let go.
leased_to_files() {
    shares leases /tree --json >"$scratch/leases"
    [ "$(figure 'all(s["referenced"] and s["standing"] == "sound" and [l["account"] for l in s["leases"]] == ["cluster"] and 30 * 86400 < s["leases"][0]["ends"] - r["now"] <= 31 * 86400 for s in r["shares"]) and len(r["shares"]) > 0' <"$scratch/leases")" = True ]
}
eventually leased_to_files
one=$(shares leases /tree/7 --json | figure 'r["shares"][0]["share"]')
grep -q "files of the cluster" <<<"$(shares leases "$one")" || fail "no lease of $one"

# A key, within its quota.
key=$(shares account key "$scratch/key" 2>/dev/null || "$leasehold" shares account key "$scratch/key")
shares account add guest "$key" --quota 1500000 >/dev/null
head -c 1000000 /dev/urandom >"$scratch/its"
its=$(shares put "$scratch/its" --key "$scratch/key")
! shares put "$scratch/its" --key "$scratch/key" 2>"$scratch/refused" || fail "more than its quota was stored"
grep -q quota "$scratch/refused" || fail "refused otherwise: $(cat "$scratch/refused")"
shares get "$its" --key "$scratch/key" | cmp - "$scratch/its" || fail "what the key has stored is not what it reads"
[ "$(shares list --renew --key "$scratch/key")" = "$its" ] || fail "the key's shares: $(shares list --key "$scratch/key")"

# Content that is lost comes back with a parcel.
shares export "$scratch/parcel" >/dev/null || fail "not everything could be exported"
[ "$(shares export "$scratch/one" /tree/7 "$its" --json | figure 'r["leases"]')" -ge 2 ] || fail "leases were not exported"
file=$(find "$data/shares/shares" -name "$one")
rm "$file"
shares import "$scratch/parcel" >"$scratch/import.log" || fail "not everything could be taken in: $(cat "$scratch/import.log")"
drop_caches
(cd "$mnt/tree" && sha256sum --quiet -c "$scratch/sums") || fail "content is not as it was"
! shares import "$scratch/key" 2>/dev/null || fail "something that is no parcel was taken in"

# Nothing that is needed goes; what is deleted does.
# What a slow machine flushed of a file that was half written goes first.
nothing_else() {
    gc --dry-run --json >"$scratch/dry"
    [ "$(figure 'r["needed"]["bytes"] >= 15000000 and r["goes"]["bytes"] == 0 and [k["bytes"] for k in r["stays"] if k["by"] == "lease" and k["account"] == "key" and k["name"] == "guest"] == [1000000]' <"$scratch/dry")" = True ]
}
eventually nothing_else
gc >/dev/null
(cd "$mnt/tree" && sha256sum --quiet -c "$scratch/sums") || fail "gc took what is needed"
rm -r "$mnt/tree" && sync "$mnt"
only_its() { [ "$(stored)" = 1000000 ]; }
eventually only_its
shares get "$its" --key "$scratch/key" | cmp - "$scratch/its" || fail "what the key has stored went with the files"
shares drop "$its" --key "$scratch/key"
eventually is_empty
gc status >"$scratch/deleted"
grep -q "^deleted" "$scratch/deleted" || fail "gc status does not say what was deleted: $(cat "$scratch/deleted")"
# What a key does not renew is ended for it, or by itself.
swept=$(shares put "$scratch/its" --key "$scratch/key")
shares discover >/dev/null || fail "the store could not be looked through"
sleep 2
grep -q "^0 leases of guest" <<<"$(shares account sweep guest --unrenewed 1)" || fail "what was renewed was swept"
[ "$(shares list --key "$scratch/key")" = "$swept" ] || fail "the lease of $swept is gone"
grep -q "^1 leases of guest" <<<"$(shares account sweep guest --unrenewed 0)" || fail "what was not renewed was not swept"
[ -z "$(shares list --key "$scratch/key")" ] || fail "the lease of $swept is still there"
shares put "$scratch/its" --key "$scratch/key" >/dev/null
stop_mount
up_options+=(--expire-leases after=0.00001)
start_mount
has_expired() { gc >/dev/null; [ -z "$(shares list --key "$scratch/key")" ]; }
eventually has_expired
shares account remove guest >/dev/null
! shares list --key "$scratch/key" 2>/dev/null || fail "an account that has ended was let in"
stop_mount
fsck_clean
passed "$(on_disk) KiB are left of 16 MB"
