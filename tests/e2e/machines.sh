# Several machines: sourced, in place of mounted.sh, by the scripts of this directory that test many.
#
#   build N         makes machines 1 to N: network namespaces, each with a veth link to a bridge in a hub's namespace
#   disk I SIZE     gives it a disk of its own, before its first start
#   clocks[I]=S     its clock that leases count in is S seconds ahead from its next start on
#   start I         starts leasehold there, called machineI, and waits until it is mounted on ${mounts[I]}: the server in machine 1 (`up`), a mount in the others
#   stop I          by SIGTERM: must unmount and end with status 0
#   kill_machine I  kill -9 of its leasehold: leaves a dead mount behind, which the next start has to cope with
#   pause I, go_on I   SIGSTOP, SIGCONT
#   cut I, mend I   its link, at the hub's end
#   cut_to I, cut_from I   one way: nothing gets from the server to it, or nothing from it to the server; mend I ends both
#   wire I ARGS..., unwire I   its link goes through tests/e2e/wire (loss, delay, duplication, reordering)
#   on I COMMAND... runs COMMAND in its network, with its data directory in $DATA
#   leader [NOT]    which machine leads, as any that is up and is not NOT says
#   settled [N]     waits until N servers (3) vote, have all that there is and have been heard of
#   job COMMAND...  runs COMMAND in a process group of its own, ended at exit whatever happens; leaves the group in $job;
#                   what it says of errors goes to a file of its own, or to the one that is named: errors=FILE job COMMAND...
#   join_jobs       waits for all of them; 1 if one fails, with what these said in $joined
#   spread_over N   machines 2 and 3 become servers, too, and the directory gets N servers on the three
#   moving [PATH...]   from here on regions go from one of those to another all the time: these, or any; still ends it, and leaves how many in $moved and $tried
#   maybe_moving    both, if MOVING=N is set: a script whose machines 1 to 3 may be servers then runs with N servers of the directory
#   within SECONDS  the whole test, ten times what it takes: afterwards it is said where all hang, and all of leasehold is killed, so that every call fails
#
# All mounts are in the mount namespace of the test, below $scratch: `nsenter --net` and not `ip netns exec`, which makes a new one.
. "$(dirname "${BASH_SOURCE[0]}")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "wants several machines, which a plain directory has not"
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || PATH=$PATH:/usr/sbin:/sbin
command -v ip >/dev/null || fail "ip is missing: install iproute2"

# Namespaces are the whole machine's: the number of this process keeps runs apart. Addresses are of the namespaces, and need not differ.
net=lh$$
machines=0 pids=() mounts=() disks=() begun_at=() started_ms=
# Of every leasehold that is started from here on.
options=()
job_count=0 joined=
declare -A jobs=() job_errors=() wire_pids=() clocks=()

address() { echo "10.77.0.$1"; }
hub() { ip -n "$net-hub" "$@"; }
inside() { ip -n "$net-$1" "${@:2}"; }
on() { DATA=$scratch/data$1 nsenter --net="/run/netns/$net-$1" -- "${@:2}"; }
lh() { on "$1" "$leasehold" "${@:2}" --data "$scratch/data$1"; }
machine_log() { echo "$scratch/machine$1.log"; }

# Locally administered, and known beforehand: a one-way cut is a wrong entry among the neighbours.
mac() { printf '02:00:00:00:00:%02x' "$1"; }

new_namespace() {
    ip netns add "$1"
    # No chatter of IPv6 on links that tests cut and count on.
    nsenter --net="/run/netns/$1" -- sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6' 2>/dev/null || true
    ip -n "$1" link set lo up
}

build() {
    local i
    machines=$1
    ip netns add "$net-hub" 2>"$scratch/netns.log" || skip "no network namespaces here: $(cat "$scratch/netns.log")"
    ip netns del "$net-hub"
    new_namespace "$net-hub"
    hub link add name bridge type bridge 2>"$scratch/netns.log" || skip "no bridges here: $(cat "$scratch/netns.log")"
    hub link set bridge up
    for i in $(seq "$machines"); do
        new_namespace "$net-$i"
        hub link add name "port$i" type veth peer name eth0 address "$(mac "$i")" netns "$net-$i"
        hub link set "port$i" master bridge up
        inside "$i" addr add "$(address "$i")/24" dev eth0
        inside "$i" link set eth0 up
        mounts[i]=$scratch/m$i
        mkdir "${mounts[i]}"
    done
}

within() {
    # By what is noted in files, since machines start and end meanwhile.
    (
        exec >/dev/null
        # Its own end is the sleep's, which would keep what reads the test's errors waiting.
        sleep "$1" 2>/dev/null &
        trap 'kill $! && exit' TERM
        wait $!
        trap - TERM
        echo "after $1 s" >"$scratch/overdue"
        { echo "$name: hangs: not at its end after $1 s${context:+ ($context)}" && where_all_are; } >&2
        exec 2>/dev/null
        for pid in "$scratch"/pid*; do kill -9 "$(cat "$pid")"; done
        for mount in "$scratch"/m[0-9]*; do umount -f "$mount"; done
        kill -TERM $$
    ) &
    watchdog=$!
}

is_up() { grep -qs '^mounted on ' "$(machine_log "$1")" && grep -q " ${mounts[$1]} " /proc/self/mountinfo; }

# start I [ARGS...]: the milliseconds that it took are left in $started_ms. In two steps for machines that cannot do without each other.
start() {
    start_only "$@"
    wait_for "$1"
}

# How machine I is started, with the arguments of start: left in $command. Scripts may have another way.
starts_by() {
    local i=$1
    command=("$leasehold" mount --data "$scratch/data$i" "${mounts[i]}")
    if [ "$i" = 1 ]; then
        command=("$leasehold" up --data "$scratch/data1" --mount "${mounts[1]}" --listen "$(address 1):4470")
        [ -n "$(ls -A "$scratch/data1" 2>/dev/null)" ] || command+=(--name machine1)
    elif [ -z "$(ls -A "$scratch/data$i" 2>/dev/null)" ]; then
        command+=(--join "$(lh 1 invite --address "$(address 1):4470" "${@:2}")" --name "machine$i")
    fi
}

start_only() {
    local i=$1 log command
    log=$(machine_log "$i")
    begun_at[$i]=$(date +%s%N)
    starts_by "$@"
    [ -z "${clocks[$i]:-}" ] || command=(unshare --time --boottime "${clocks[$i]}" "${command[@]}")
    # Emptied here, not by the redirection below, which happens later in a process of its own.
    [ ! -e "$log" ] || { cat "$log" >>"$log.before" && : >"$log"; }
    nsenter --net="/run/netns/$net-$i" -- "${command[@]}" "${options[@]}" >"$log" 2>&1 &
    pids[i]=$!
    echo $! >"$scratch/pid$i"
}

wait_for() {
    local i=$1 log
    log=$(machine_log "$i")
    until is_up "$i"; do
        kill -0 "${pids[i]}" 2>/dev/null || { pids[i]=; fail "machine $i ended by itself, see $log: $(tail -n 3 "$log")"; }
        [ $((($(date +%s%N) - begun_at[i]) / 1000000000)) -lt "$hang" ] || fail "hangs: machine $i has not mounted after $hang s, see $log: $(where_is "${pids[i]}")"
        sleep 0.02
    done
    timeout "$hang" stat "${mounts[i]}/." >/dev/null || fail "hangs: machine $i says that it is mounted and does not answer for $hang s: $(where_is "${pids[i]}")"
    started_ms=$((($(date +%s%N) - begun_at[i]) / 1000000))
}

stop() {
    local status=0 pid=${pids[$1]}
    kill -TERM "$pid"
    wait_for_end "$pid" "machine $1 after SIGTERM"
    wait "$pid" || status=$?
    pids[$1]=
    # The last servers that end have no majority any more: what is left then is kept for the next start (left.sh).
    [ $status -ne 2 ] || [ -z "${all_end:-}" ] || ! grep -q "they are kept in" "$(machine_log "$1")" || status=0
    [ $status -eq 0 ] || fail "machine $1 ended with status $status after SIGTERM, see $(machine_log "$1")"
    ! grep -q " ${mounts[$1]} " /proc/self/mountinfo || fail "${mounts[$1]} is still mounted after SIGTERM"
}

stop_all() {
    local i all_end=1
    for i in $(seq "$machines" -1 1); do
        [ -z "${pids[i]:-}" ] || stop "$i"
    done
}

kill_machine() {
    local pid=${pids[$1]} tries
    kill -9 "$pid"
    # Not `wait` alone: a thread that the kernel holds up (a notice that waits for a page of a call that waits for us) would keep it here for ever.
    for tries in $(seq $((hang * 20))); do
        [ "$(ls "/proc/$pid/task" 2>/dev/null | wc -l)" -gt 1 ] || break
        sleep 0.05
    done
    [ "$(ls "/proc/$pid/task" 2>/dev/null | wc -l)" -le 1 ] || fail "hangs: machine $1 is not gone $hang s after kill -9: $(where_is "$pid")"
    wait "$pid" 2>/dev/null || true
    pids[$1]=
}

pause() { kill -STOP "${pids[$1]}"; }
go_on() { kill -CONT "${pids[$1]}"; }

cut() { hub link set "port$1" down; }
# To a neighbour that is not there: silently lost, as on a wire (a blackhole route would tell the sender).
cut_to() { inside 1 neigh replace "$(address "$1")" lladdr 02:00:00:00:ff:ff nud permanent dev eth0; }
cut_from() { inside "$1" neigh replace "$(address 1)" lladdr 02:00:00:00:ff:ff nud permanent dev eth0; }
mend() {
    hub link set "port$1" up
    inside 1 neigh del "$(address "$1")" dev eth0 2>/dev/null || true
    inside "$1" neigh del "$(address 1)" dev eth0 2>/dev/null || true
}

# Between a machine's port and the bridge: the other machines' frames do not come by it.
wire() {
    local i=$1
    hub link set "port$i" nomaster
    hub link add name "near$i" type veth peer name "far$i"
    hub link set "near$i" master bridge up
    hub link set "far$i" up
    nsenter --net="/run/netns/$net-hub" -- python3 "$root/tests/e2e/wire" "port$i" "far$i" "${@:2}" >"$scratch/wire$i.log" 2>&1 &
    wire_pids[$i]=$!
    until grep -qs '^forwarding' "$scratch/wire$i.log"; do
        kill -0 "${wire_pids[$i]}" 2>/dev/null || fail "no wire for machine $i: $(cat "$scratch/wire$i.log")"
        sleep 0.02
    done
}

unwire() {
    [ -n "${wire_pids[$1]:-}" ] || return 0
    kill -TERM "${wire_pids[$1]}"
    wait "${wire_pids[$1]}" || fail "the wire of machine $1 failed: $(cat "$scratch/wire$1.log")"
    unset "wire_pids[$1]"
    hub link del "near$1"
    hub link set "port$1" master bridge
}

# Machine numbers are those of the machines here: they joined in that order. $lister is asked with, where that is not the program under test.
any_server() {
    local i
    for i in $(seq "$machines"); do
        [ "$i" != "${1:-}" ] && [ -n "${pids[i]:-}" ] && timeout 60 "${lister:-$leasehold}" server list --data "$scratch/data$i" --json >"$scratch/servers" 2>/dev/null && return 0
    done
    return 1
}

leader() {
    local tries
    for tries in $(seq $((hang * 10))); do
        any_server "${1:-}" && python3 -c 'import json, sys; print([s["machine"] for s in json.load(open(sys.argv[1])) if s["leads"]][0])' "$scratch/servers" 2>/dev/null && return 0
        sleep 0.1
    done
    fail "hangs: no leader for $hang s: $(cat "$scratch/servers" 2>/dev/null; tail -qn 2 "$scratch"/machine*.log)"
}

settled() {
    local tries
    for tries in $(seq $((hang * 10))); do
        any_server && python3 -c 'import json, sys; s = json.load(open(sys.argv[1])); sys.exit(not (len(s) == int(sys.argv[2]) and all(x["votes"] and x["behind"] is not None and x["behind"] < 50 and (x["leads"] or (x["heard_ms"] or 0) < 5000) for x in s)))' "$scratch/servers" "${1:-3}" && return 0
        sleep 0.1
    done
    fail "hangs: the servers have not settled within $hang s: $(cat "$scratch/servers"; tail -qn 2 "$scratch"/machine*.log)"
}

spread_over() {
    local n
    for n in 2 3; do lh 1 server add "machine$n" >"$scratch/add.log" 2>&1 || fail "machine$n does not serve: $(cat "$scratch/add.log")"; done
    settled 3
    directory_servers=$1
    for n in $(seq 2 "$1"); do
        mkdir "${mounts[1]}/begins-$n"
        lh 1 delegate "/begins-$n" >"$scratch/delegate.log" 2>&1 || fail "no new server of the directory: $(cat "$scratch/delegate.log")"
        rmdir "${mounts[1]}/begins-$n"
    done
}

moving() {
    echo "0 0" >"$scratch/moves"
    LEASEHOLD=$leasehold setsid "$root/tests/e2e/mover" "$scratch" "$net" "$directory_servers" "${mounts[1]}" "$@" &
    mover=$!
}

still() {
    touch "$scratch/enough"
    wait "$mover" || true
    rm "$scratch/enough"
    read -r moved tried <"$scratch/moves"
    say "$moved of $tried regions moved; the others: $(sort "$scratch/stayed.log" 2>/dev/null | uniq -c | sort -rn | head -3 | tr '\n' ';')"
}

maybe_moving() { [ -z "${MOVING:-}" ] || { spread_over "$MOVING" && moving; }; }
maybe_still() { [ -z "${MOVING:-}" ] || still; }

job() {
    job_count=$((job_count + 1))
    local to=${errors:-$scratch/errors-$job_count}
    setsid "$@" 2>"$to" &
    job=$!
    jobs[$job]=$* job_errors[$job]=$to
}

# end_jobs: kill -9; what they return does not count.
end_jobs() {
    local group
    for group in "${!jobs[@]}"; do kill -9 -- "-$group"; done 2>/dev/null || true
    for group in "${!jobs[@]}"; do wait "$group" || true; done 2>/dev/null
    jobs=()
}

join_jobs() {
    local group status failed=()
    for group in "${!jobs[@]}"; do
        status=0
        wait "$group" || status=$?
        cat "${job_errors[$group]}" >&2
        [ $status = 0 ] || failed+=("${jobs[$group]%% *} (status $status): $(tail -n 4 "${job_errors[$group]}")")
        unset "jobs[$group]"
    done
    joined=$(printf '%s; ' "${failed[@]}")
    [ ${#failed[@]} = 0 ] || { say "FAILED: $joined" >&2 && return 1; }
}

disk() {
    losetup -f >/dev/null 2>&1 || skip "disks of their own need root and loop devices"
    mkdir "$scratch/data$1"
    truncate -s "$2" "$scratch/image$1"
    mkfs.ext4 -q -m 0 "$scratch/image$1"
    mount -o loop "$scratch/image$1" "$scratch/data$1"
    rmdir "$scratch/data$1/lost+found"
    disks+=("$scratch/data$1")
}

cleanup() {
    [ -z "${mover:-}" ] || kill -9 -- "-$mover" 2>/dev/null || true
    local i
    {
        for i in "${disks[@]}"; do umount -l "$i"; done
        [ -z "${watchdog:-}" ] || kill -9 "$watchdog"
        # Mounts first: a process that waits for one cannot be ended before it, not even by SIGKILL.
        for i in "${!pids[@]}"; do [ -z "${pids[i]}" ] || kill -9 "${pids[i]}"; done
        for i in "${!wire_pids[@]}"; do kill -9 "${wire_pids[$i]}"; done
        for i in "${!mounts[@]}"; do
            # By force first: ends all calls that wait for an answer.
            umount -f "${mounts[i]}"
            while grep -q " ${mounts[i]} " /proc/self/mountinfo; do umount -l "${mounts[i]}" || break; done
        done
        end_jobs
        wait
        for i in hub $(seq "$machines"); do ip netns del "$net-$i"; done
    } 2>/dev/null
    [ "${status:-0}" = 0 ] || [ "$status" = 77 ] || tail -n 8 "$scratch"/machine*.log >&2
}
