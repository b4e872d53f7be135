#!/usr/bin/env bash
# Ordinary restarts of three servers, one after another: each machine is a server afterwards, and has noted that. `up` comes right after `down`, and even before its end.
# In some rounds the server takes its time to start (by strace, if there is one): news of the other servers come before it runs. ROUNDS=30 makes it longer.
. "$(dirname "$0")/machines.sh"
within "${WITHIN:-1200}"
build 3

# In place of that of machines.sh: with $slow the server's start is held up before it listens.
slow=
eval "plainly_$(declare -f starts_by)"
starts_by() {
    plainly_starts_by "$@"
    [ -z "$slow" ] || command=(strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=listen -e "inject=listen:delay_enter=700000" "${command[@]}")
}

for i in 1 2 3; do start "$i"; done
for i in 2 3; do lh 1 server add "machine$i"; done
settled
members=()

# The number in the group that a machine has noted for its next start.
noted() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1], "rb").read().split(b"\nchecksum ")[0])["member"])' "$scratch/data$1/cluster.json"; }
role() { lh "$1" status --json | python3 -c 'import json, sys; s = json.load(sys.stdin); print("lacks" if s.get("lacks_server") else s["role"])'; }
serves() { case $(role "$1") in leader | follower) ;; *) return 1 ;; esac; }
addresses() { lh "$1" server list --json | python3 -c 'import json, sys; print(*sorted(s["machine"] for s in json.load(sys.stdin) if s["addresses"]))'; }

for i in 1 2 3; do
    members[i]=$(noted "$i")
    [ "${members[i]}" != None ] || fail "machine $i has not noted that it serves"
done

# The others work meanwhile, so that there are news all the time.
for i in 1 2 3; do
    mkdir "${mounts[i]}/of$i"
    job sh -c 'n=0; while :; do n=$((n + 1)); echo $n >"$1/$((n % 20))"; sync "$1/$((n % 20))"; done 2>/dev/null' - "${mounts[i]}/of$((i % 3 + 1))"
done
for round in $(seq "${ROUNDS:-12}"); do
    i=$((round % 3 + 1)) pid=${pids[round % 3 + 1]} context="round $round, machine $((round % 3 + 1))"
    if [ $((round % 4)) = 0 ]; then
        # The old process has yet to unmount, and to let go of the data directory.
        kill -TERM "$pid"
    else
        lh "$i" down >"$scratch/down" || fail "down: $(cat "$scratch/down")"
        [ "$(noted "$i")" = "${members[i]}" ] || fail "down leaves the note that the machine is member $(noted "$i")"
    fi
    [ $((round % 2)) = 0 ] || ! command -v strace >/dev/null || slow=1
    start "$i"
    slow=
    wait "$pid" || fail "the old process ended with status $?, see $(machine_log "$i")"
    [ "$(noted "$i")" = "${members[i]}" ] || fail "up leaves the note that the machine is member $(noted "$i")"
    serves "$i" || fail "the machine is no server: $(lh "$i" status)"
    settled
    [ "$(noted "$i")" = "${members[i]}" ] || fail "the machine has noted later that it is member $(noted "$i")"
    [ "$(addresses "$i")" = "1 2 3" ] || fail "only of machines $(addresses "$i") the addresses are known"
done
context=
end_jobs

stop_all
passed "${ROUNDS:-12} restarts"
