#!/usr/bin/env bash
# Servers as anybody starts them: each listens at the same port of all its addresses, of which the first and the last are every machine's. One of three that comes back is found by the
# others, who do not take themselves for it; and when the whole office gets other addresses it is enough to say where one server is, once.
. "$(dirname "$0")/machines.sh"
within 1200
subnet=10.77.0
address() { echo "$subnet.$1"; }
build 4
# As each machine has one whose containers have a network of their own: all servers have the same, and it is good for nothing. It comes first, since the loopback does. For the fourth
# machine nobody answers there.
for i in 1 2 3; do inside "$i" addr add 172.17.0.1/32 dev lo; done
inside 4 route add 172.17.0.0/16 dev eth0

# In place of that of machines.sh, where the first listens at one address and the others at any port.
starts_by() {
    local i=$1
    if [ "$i" != 1 ] && [ ! -e "$scratch/data$i" ]; then
        on "$i" "$leasehold" join --data "$scratch/data$i" --name "machine$i" "$(lh 1 invite --address "$(address 1):4470")"
    fi
    command=("$leasehold" up --data "$scratch/data$i" --mount "${mounts[i]}" "${@:2}")
}

for i in 1 2 3 4; do start "$i"; done
for i in 2 3; do lh 1 server add "machine$i"; done
settled
for i in 1 2 3 4; do mkdir "${mounts[i]}/of$i" && echo "$i" >"${mounts[i]}/of$i/written" && sync "${mounts[i]}/of$i/written"; done

# Whoever leads while the first is away looks for it at all its addresses, of which the last is its own, too.
kill_machine 1
began=$(date +%s%N)
echo now >"${mounts[4]}/of4/now"
timeout "$hang" sync "${mounts[4]}/of4/now" || fail "with the leader gone nothing becomes durable"
echo "a leader's death: $((($(date +%s%N) - began) / 1000000)) ms until another machine's file is durable"
sleep 4
start 1
first=$(leader) && other=$((5 - first))
[ "$first" != 1 ] || fail "the server that was away leads"
sleep 2
kill_machine "$other"
echo again >"${mounts[first]}/of$first/again"
timeout "$hang" sync "${mounts[first]}/of$first/again" || fail "two of three servers are up, and nothing becomes durable"
start "$other"
settled
echo "a server that comes back is found at its own addresses only"

for i in 4 3 2 1; do stop "$i"; done
subnet=10.78.0
for i in 1 2 3 4; do
    inside "$i" addr flush dev eth0
    inside "$i" addr add "$(address "$i")/24" dev eth0
done
start_only 1
for i in 2 3 4; do start_only "$i" --at "$(address 1):4470"; done
for i in 1 2 3 4; do wait_for "$i"; done
settled
for i in 1 2 3 4; do
    for of in 1 2 3 4; do [ "$(cat "${mounts[i]}/of$of/written")" = "$of" ] || fail "machine $i reads something else of $of"; done
done
for i in 4 3 2; do
    stop "$i"
    start "$i"
done
settled
[ "$(cat "${mounts[4]}/of1/written")" = 1 ] || fail "a machine does not find servers that have moved once it was told"
echo "all machines have moved"

# Once more, and nobody is told anything: they find each other by multicast, and so does a machine whose token has addresses of before.
token=$(lh 1 invite --address "$(address 1):4470")
for i in 4 3 2 1; do stop "$i"; done
subnet=10.79.0
for i in 1 2 3 4; do
    inside "$i" addr flush dev eth0
    inside "$i" addr add "$(address "$i")/24" dev eth0
done
inside 4 route add 172.17.0.0/16 dev eth0
for i in 1 2 3 4; do start_only "$i"; done
for i in 1 2 3 4; do wait_for "$i"; done
settled
[ "$(cat "${mounts[4]}/of1/written")" = 1 ] || fail "a machine that found its servers reads something else"
on 4 "$leasehold" join --data "$scratch/late" --name late "$token" || fail "a machine with a token of before does not find the cluster"
echo "all machines have moved, and have found each other"
stop_all
