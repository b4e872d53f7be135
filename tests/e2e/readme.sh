#!/usr/bin/env bash
# Every command of README.md, as a newcomer copies it: with an empty home. What the first ones print is what README says that they print. Of benchmarks, which take long, only that there are such.
# With LEASEHOLD=BINARY that stands for `cargo run --release --`.
# In a network of its own, where the port is free.
[ -n "${ALONE:-}" ] || ! unshare --net true 2>/dev/null || ALONE=1 exec unshare --net sh -c 'ip link set lo up && exec "$0"' "$0"
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "is about leasehold itself"
cd "$root"
export HOME=$scratch/home CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
mkdir -p "$HOME" "$scratch/bin"
# "How leasehold gets on the PATH" is the newcomer's; here it is the one that was built.
ln -s "$leasehold" "$scratch/bin/leasehold"
PATH=$scratch/bin:$PATH
port=4470
up=
# All at once: the last of several servers cannot end in order without the others.
cleanup() {
    for each in second third; do LEASEHOLD_DATA=$HOME/$each leasehold down & done
    [ -z "$up" ] || { kill -INT "$up" && wait "$up"; }
    wait
} >/dev/null 2>&1

# Lines of console blocks that are commands, without their comments: the prompt, a tab, the command.
commands() {
    awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on' README.md |
        sed -nE 's/^((first|second|third)?\$) /\1\t/p' | sed -E 's/  +\(.*$//'
}
commands >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -ge 10 ] || fail "README.md has hardly any commands: $(cat "$scratch/commands")"

# says FILE LINE: README says that this comes; paths and times may be others.
printed_as_said() {
    local line
    while read -r line; do
        line=${line//\~/$HOME}
        grep -qF -- "${line%% (*}" "$1" || fail "README says '$line', and it is not what came: $(cat "$1")"
    done < <(awk -v command="$2" '/^```/ || /\$ / { on = 0 } on { print } index($0, "$ " command) { on = 1 }' README.md | grep -v '^lease1\|^connected to')
}

token= ran=0 others=0
while IFS=$'\t' read -r prompt line; do
    ran=$((ran + 1))
    context=$line
    command=${line/#cargo run --release -- /leasehold }
    [ -n "${LEASEHOLD:-}" ] || command=$line
    command=${command//\~/$HOME}
    case $line in
    *" up "*)
        # The address may be taken on this machine; then README's machine is alone, which it says.
        $command >"$scratch/up.out" 2>&1 &
        up=$!
        wait_until "it is mounted" grep -q '^Ctrl-C' "$scratch/up.out"
        printed_as_said "$scratch/up.out" "$line"
        echo kept >"$HOME/Leasehold/file"
        ;;
    *" simulate "*)
        kill -INT "$up" && wait "$up" || fail "it ended with $?: $(cat "$scratch/up.out")"
        up=
        $command >"$scratch/out" 2>&1 || fail "$(cat "$scratch/out")"
        grep -q "nothing wrong" "$scratch/out" || fail "$(cat "$scratch/out")"
        ;;
    "leasehold invite") token=$($command --address "127.0.0.1:$port") || fail "no token" ;;
    *" --join "*)
        other=${prompt%\$} there=$HOME/${prompt%\$}
        command=$(sed "s/lease1-[^ ]*/$token/; s#$HOME/Leasehold#$there-mount#" <<<"$command")
        # All are on one machine here, so each listens at a port of its own.
        others=$((others + 1))
        LEASEHOLD_DATA=$there $command --name "$other" --listen "127.0.0.1:$((port + others))" --background >"$scratch/out" 2>&1 || fail "$(cat "$scratch/out")"
        [ "$(cat "$there-mount/file")" = kept ] || fail "the $other machine does not see what the first has written"
        ;;
    "leasehold server "*)
        $command >"$scratch/out" 2>&1 || fail "$(cat "$scratch/out")"
        printed_as_said "$scratch/out" "$line"
        ;;
    "cargo install "*)
        # LEASEHOLD stands for what that would build.
        [ -n "${LEASEHOLD:-}" ] || $command --quiet --root "$scratch/installed" || fail "it cannot be installed"
        [ -f "$(sed -n 's/.*--path \([^ ]*\).*/\1/p' <<<"$command")/Cargo.toml" ] || fail "there is nothing to install"
        [ -n "${LEASEHOLD:-}" ] || [ -x "$scratch/installed/bin/leasehold" ] || fail "it does not install leasehold"
        ;;
    ./test) [ -x test ] || fail "it is not there" ;;
    *"leasehold bench "*) $command --help >"$scratch/out" 2>&1 || fail "$(cat "$scratch/out")" ;;
    *) fail "nobody has thought of this command" ;;
    esac
done <"$scratch/commands"
context=
[ -n "$token" ] || fail "nobody was invited"
# Commands in the table: each is one that there is.
while read -r words; do
    leasehold $words --help >"$scratch/out" 2>&1 || fail "README's table has 'leasehold $words': $(cat "$scratch/out")"
done < <(grep -o '^| `leasehold [a-z ]*' README.md | sed 's/^| `leasehold //; s/ *$//' | sort -u)
# And as a user, who has his own tree. Root's is closed to him, perhaps, and its binary with it.
if [ "$(id -u)" = 0 ]; then
    [ -u "$(command -v fusermount3)" ] || fail "fusermount3 is not setuid root here, so no user can mount"
    mkdir -p "$scratch/tree/crates/leasehold" "$scratch/tree/tests" "$scratch/tmp"
    cp -r README.md test "$scratch/tree" && cp -r tests/e2e "$scratch/tree/tests" && cp crates/leasehold/Cargo.toml "$scratch/tree/crates/leasehold"
    install -m 755 "$leasehold" "$scratch/leasehold" && chown nobody "$scratch/tmp"
    # Root's machines have the ports until they end.
    cleanup
    up=
    unshare -m sh -c "$fuse_for_all"' && LEASEHOLD="$1/leasehold" TMPDIR="$1/tmp" exec setpriv --reuid=nobody --regid=nogroup --clear-groups "$1/tree/tests/e2e/readme.sh"' - "$scratch" || fail "a user gets no further"
fi
passed "$ran commands of README"
