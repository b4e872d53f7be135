#!/usr/bin/env bash
# The Debian package: built of the binary that is tested, installed into a root of its own, used there, removed and purged.
[ -n "${ALONE:-}" ] || ! unshare --net --mount true 2>/dev/null || ALONE=1 exec unshare --net --mount sh -c 'ip link set lo up && exec "$0"' "$0"
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "is about leasehold itself"
[ "$(id -u)" = 0 ] && [ -n "${ALONE:-}" ] || skip "a root of its own wants root"
for tool in dpkg dpkg-deb objdump strip; do command -v $tool >/dev/null || skip "$tool is missing"; done
dpkg -s fuse3 >"$scratch/out" 2>&1 || skip "the package fuse3, which ours depends on, is not installed: $(tail -n 1 "$scratch/out")"

# The machine's own root, whose changes are seen by nobody else and kept in memory; data is on the disk.
layer=$scratch/layer r=$scratch/root
mkdir -p "$layer" "$r" "$scratch/lib"
mount -t tmpfs -o size=512m tmpfs "$layer"
mkdir "$layer/upper" "$layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$r" 2>"$scratch/out" || skip "no overlay here: $(cat "$scratch/out")"
mount --rbind /proc "$r/proc"
mount --rbind /dev "$r/dev"
mount -t tmpfs tmpfs "$r/run"
mount -t tmpfs tmpfs "$r/tmp"
mkdir -p "$r/var/lib/leasehold" "$r/srv/home"
mount --bind "$scratch/lib" "$r/var/lib/leasehold"
inside() { env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$r" "$@"; }
d=/var/lib/leasehold/home
cleanup() {
    inside leasehold down --data "$d" >/dev/null 2>&1
    umount -R "$r" && umount "$layer"
}
# What differs from the machine's own root, dpkg's own notes aside; whiteouts of what was there are among it.
changes() { (cd "$layer/upper" && find . \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./root \) -prune -o \( ! -type d -o -name '*leasehold*' \) ! -path ./var/lib/leasehold -print); }

LEVEL=0 "$root/packaging/deb/build" "$leasehold" "$scratch/deb" >"$scratch/out" 2>&1 || fail "the package is not built: $(cat "$scratch/out")"
deb=$(tail -n 1 "$scratch/out")
cp "$deb" "$r/tmp/leasehold.deb"
[ "$(stat -c %s "${deb%.deb}.debug")" -gt 1000000 ] || fail "the debug file has nothing in it"
[ -z "$(changes)" ] || fail "changed before there is a package: $(changes)"
# Triggers (the index of all man pages) are the machine's own affair, and take longer than all of this.
inside dpkg --no-triggers -i /tmp/leasehold.deb >"$scratch/out" 2>&1 || fail "not installed: $(cat "$scratch/out")"
said=$(inside leasehold --version) || fail "what was installed does not run"
[ "$said" = "$("$leasehold" --version)" ] || fail "another version: $said"
[ "$(changes | wc -l)" -gt 50 ] || fail "hardly anything was installed: $(changes)"
say "installed: $(stat -c %s "$deb" | numfmt --to=iec) of $said"

inside leasehold up --background --data "$d" --mount /srv/home --listen 127.0.0.1:4470 >"$scratch/out" 2>&1 || fail "up: $(cat "$scratch/out")"
inside sh -c 'echo kept >/srv/home/file && cat /srv/home/file' >"$scratch/out" 2>&1 && grep -qx kept "$scratch/out" || fail "work in it: $(cat "$scratch/out")"
inside leasehold down --data "$d" >"$scratch/out" 2>&1 || fail "down: $(cat "$scratch/out")"
inside mount -t leasehold -o listen=127.0.0.1:4470 "$d" /srv/home >"$scratch/out" 2>&1 || fail "mount(8): $(cat "$scratch/out")"
[ "$(inside cat /srv/home/file)" = kept ] || fail "what was written is not there by mount(8)"
inside leasehold down --data "$d" >"$scratch/out" 2>&1 || fail "down: $(cat "$scratch/out")"
say "up, down, mount(8)"
inside env ALONE=1 LEASEHOLD=/usr/bin/leasehold TMPDIR=/var/lib/leasehold "$root/tests/e2e/readme.sh" >"$scratch/out" 2>&1 || fail "README's commands: $(tail -n 30 "$scratch/out")"
say "README's commands, as root and as a user"

pages=0
for page in "$r"/usr/share/man/man1/leasehold*.gz "$r"/usr/share/man/man8/mount.leasehold.8.gz; do
    pages=$((pages + 1))
    if command -v mandoc >/dev/null; then
        # Of style it may say what it will.
        gzip -dc "$page" | mandoc -T lint -W error >"$scratch/out" 2>&1 || fail "${page##*/}: $(cat "$scratch/out")"
    fi
    if command -v groff >/dev/null; then
        gzip -dc "$page" | groff -man -Tutf8 -ww -P-cbou >"$scratch/page" 2>"$scratch/out" || fail "${page##*/}: $(cat "$scratch/out")"
        [ ! -s "$scratch/out" ] || fail "${page##*/}: $(cat "$scratch/out")"
        grep -q NAME "$scratch/page" || fail "${page##*/} has no NAME"
    fi
done
[ $pages -gt 30 ] || fail "$pages man pages"
command -v mandoc >/dev/null || command -v groff >/dev/null || say "SKIPPED: man pages are not rendered, since neither mandoc nor groff is here"

inside bash -c '. /usr/share/bash-completion/completions/leasehold && COMP_WORDS=(leasehold stat) COMP_CWORD=1 && _leasehold leasehold stat leasehold && printf "%s\n" "${COMPREPLY[@]}"' >"$scratch/out" 2>&1
grep -qx status "$scratch/out" || fail "bash completes nothing: $(cat "$scratch/out")"
for shell in zsh fish; do
    if command -v $shell >/dev/null; then
        inside $shell -n "/usr/share/$([ $shell = zsh ] && echo zsh/vendor-completions/_leasehold || echo fish/vendor_completions.d/leasehold.fish)" 2>"$scratch/out" || fail "$shell: $(cat "$scratch/out")"
    fi
done
if command -v systemd-analyze >/dev/null; then
    inside systemd-analyze verify --man=no leasehold@home.service >"$scratch/out" 2>&1 || fail "the unit: $(cat "$scratch/out")"
    [ ! -s "$scratch/out" ] || fail "the unit: $(cat "$scratch/out")"
else
    say "SKIPPED: the unit is not verified, since systemd-analyze is not here"
fi
for text in copyright changelog.gz changelog.Debian.gz; do
    [ -s "$r/usr/share/doc/leasehold/$text" ] || fail "no $text"
done
gzip -dc "$r/usr/share/doc/leasehold/third-party-notices.gz" >"$scratch/notices"
for crate in redb ring rustls fuser; do
    grep -q "^$crate [0-9]" "$scratch/notices" || fail "no notice of $crate"
done
say "$pages man pages, completions, the unit, notices"

inside dpkg --no-triggers -r leasehold >"$scratch/out" 2>&1 || fail "not removed: $(cat "$scratch/out")"
# Nothing asks for the rest once no file for purging is left.
inside dpkg --no-triggers --purge leasehold >"$scratch/out" 2>&1 || fail "not purged: $(cat "$scratch/out")"
[ -z "$(changes)" ] || fail "left behind, or taken away: $(changes)"
LEASEHOLD_DATA=$scratch/lib/home "$leasehold" fsck >"$scratch/out" 2>&1 || fail "the data directory after the purge: $(tail -n 5 "$scratch/out")"
passed "built, installed, used, removed"
