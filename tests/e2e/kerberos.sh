#!/usr/bin/env bash
# Debian's smbclient with tickets of a MIT realm, made for this test on the loopback address: it works with every dialect and encryption type, and NTLM is off.
. "$(dirname "$0")/mounted.sh"
[ -z "${PLAIN:-}" ] || skip "nothing to see on a plain directory"
[ "$(id -u)" = 0 ] || skip "the users of SMB are others than this one, which wants root"
PATH=$PATH:/usr/sbin
for need in smbclient smbtorture krb5kdc kadmin.local kinit; do command -v $need >/dev/null || skip "$need is missing: install smbclient samba-testsuite krb5-kdc krb5-admin-server krb5-user"; done

# Ports that are free now. The loopback address alone.
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free) kdc_port=$(free)
realm=EXAMPLE.ORG host=files.example.org
export RUST_LOG=smb=info KRB5_CONFIG=$scratch/krb5.conf KRB5_KDC_PROFILE=$scratch/kdc.conf KRB5CCNAME=FILE:$scratch/cache
cat >"$KRB5_CONFIG" <<END
[libdefaults]
    default_realm = $realm
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    $realm = {
        kdc = 127.0.0.1:$kdc_port
    }
[domain_realm]
    .example.org = $realm
END
# What the client's says later is not for the realm.
cp "$KRB5_CONFIG" "$scratch/realm.conf"
cat >"$KRB5_KDC_PROFILE" <<END
[kdcdefaults]
    kdc_listen = 127.0.0.1:$kdc_port
    kdc_tcp_listen = 127.0.0.1:$kdc_port
[realms]
    $realm = {
        database_name = $scratch/principals
        key_stash_file = $scratch/stash
        acl_file = $scratch/acl
        supported_enctypes = aes256-cts-hmac-sha384-192:normal aes128-cts-hmac-sha256-128:normal aes256-cts:normal aes128-cts:normal
    }
[logging]
    kdc = FILE:$scratch/kdc.log
END
cat >"$scratch/smb.conf" <<END
[global]
realm = $realm
END
kdc_pid=
cleanup() { [ -z "$kdc_pid" ] || kill "$kdc_pid"; }
admin() { KRB5_CONFIG=$scratch/realm.conf kadmin.local -q "$*" >"$scratch/admin" 2>&1 && ! grep -qiE "^[a-z_]+: .*(fail|error|not )" "$scratch/admin" || fail "kadmin.local $*: $(cat "$scratch/admin")"; }
KRB5_CONFIG=$scratch/realm.conf kdb5_util create -s -P master -r "$realm" >"$scratch/admin" 2>&1 || fail "no realm: $(cat "$scratch/admin")"
for principal in anna bert anna/admin; do admin addprinc -pw secret "$principal"; done
for service in "cifs/$host" "cifs/other.example.org" "host/$host"; do admin addprinc -randkey "$service"; done
keytab=$scratch/keytab
admin ktadd -k "$keytab" "cifs/$host"
admin ktadd -k "$scratch/hosts" "host/$host"
KRB5_CONFIG=$scratch/realm.conf krb5kdc -n -P "$scratch/kdc.pid" >"$scratch/kdc.out" 2>&1 &
kdc_pid=$!
get_ticket() { rm -f "$scratch/cache"; echo secret | kinit "$@" >"$scratch/out" 2>&1; }
wait_until "a ticket" get_ticket anna

lh() { "$leasehold" "$@" --data "$data"; }
run() { timeout 60 smbclient -s "$scratch/smb.conf" -p "$port" -I 127.0.0.1 "$@" >"$scratch/out" 2>&1; }
# does WORDS NAME ARGS...: the client, with its ticket for that name, ends well.
does() { run --use-kerberos=required --use-krb5-ccache="$scratch/cache" "//$2/work" "${@:3}" || fail "$1: $(tail -5 "$scratch/out"; tail -3 "$log")"; ! grep -q NT_STATUS "$scratch/out" || fail "$1: $(cat "$scratch/out")"; }
# refuses WHY COMMAND...: the client is refused, and the log says why.
refuses() {
    local before
    before=$(wc -l <"$log")
    ! "${@:2}" || fail "not refused: $1"
    grep -q NT_STATUS_LOGON_FAILURE "$scratch/out" || fail "$1: another refusal: $(tail -3 "$scratch/out")"
    tail -n "+$((before + 1))" "$log" | grep -q "$1" || fail "the log does not say: $1: $(tail -3 "$log")"
}
kerberos() { run --use-kerberos=required --use-krb5-ccache="$scratch/cache" "$@"; }
password() { run --use-kerberos=off -U anna%secret "$@"; }

# What cannot be used is said before anything is made.
up() { timeout 60 "$leasehold" up --data "$data" --mount "$mnt" --smb "127.0.0.1:$port" "$@" >"$scratch/out" 2>&1; }
says() { grep -q "$1" "$scratch/out" || fail "not said: $1: $(cat "$scratch/out")"; }
! up --keytab "$scratch/hosts" || fail "it starts without a key of cifs"
says "no key of a principal cifs/HOST"
chmod 644 "$keytab"
! up --keytab "$keytab" || fail "it starts with a keytab that all may read"
says "chmod 600"
chmod 600 "$keytab"
! up --no-ntlm || fail "it starts without any way to log on"
[ ! -e "$data" ] || fail "a start that failed has left something behind"

up_options=(--smb "127.0.0.1:$port" --keytab "$keytab" --no-ntlm)
start_mount
mkdir "$mnt/work"
chown 1000:1000 "$mnt/work"
lh user add anna --uid 1000 --no-password </dev/null >/dev/null
lh share add work /work >/dev/null

head -c 5000000 /dev/urandom >"$scratch/large"
for dialect in SMB2_02 SMB2_10 SMB3_00 SMB3_02 SMB3_11; do
    for how in sign encrypt; do
        case "$how$dialect" in encryptSMB2_*) continue ;; esac
        context="$dialect $how"
        at=($host -m "$dialect" --client-protection="$how")
        does "put" "${at[@]}" -c "mkdir d; cd d; put $scratch/large large; ls"
        grep -q "large .* 5000000" "$scratch/out" || fail "not listed: $(cat "$scratch/out")"
        [ "$(stat -c %u "$mnt/work/d/large")" = 1000 ] || fail "the file is another's"
        cmp "$scratch/large" "$mnt/work/d/large" || fail "the mount has other bytes"
        does "get" "${at[@]}" -c "get d\\large $scratch/got; del d\\large; rmdir d"
        cmp "$scratch/large" "$scratch/got" || fail "the client got other bytes"
    done
done
# Ciphers of 256 bits take the whole session key.
for cipher in aes-256-gcm aes-256-ccm aes-128-ccm; do
    context=$cipher
    does "encrypted" $host --option="client smb3 encryption algorithms=$cipher" --client-protection=encrypt -c ls
done
# Each encryption type, of the ticket's session key and of the service's.
for type in aes256-cts-hmac-sha384-192 aes128-cts-hmac-sha256-128 aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96; do
    context=$type
    sed -i "/enctypes/d; s/^\[libdefaults\]/&\n    permitted_enctypes = $type/" "$KRB5_CONFIG"
    admin ktadd -e "$type:normal" -k "$keytab" "cifs/$host"
    get_ticket anna || fail "no ticket: $(cat "$scratch/out")"
    # The keytab is read anew.
    does "the type" $host -c ls
    klist -e >"$scratch/out"
    grep -A1 "cifs/$host" "$scratch/out" | grep -q "$type" || fail "another type: $(cat "$scratch/out")"
done
sed -i /enctypes/d "$KRB5_CONFIG"
context="refusals"
admin modprinc -maxlife "1 day" "cifs/$host"
get_ticket anna
refuses "NTLM is switched off" password //$host/work -c ls
refuses "another service" kerberos //other.example.org/work -c ls
get_ticket anna/admin
refuses "no user's principal" kerberos //$host/work -c ls
get_ticket bert
refuses "no such user.*bert\|bert.*no such user" kerberos //$host/work -c ls
get_ticket anna
does "the ticket" $host -c ls
# The service has a new key, which its keytab has not.
cp "$keytab" "$scratch/old"
admin cpw -randkey "cifs/$host"
get_ticket anna
refuses "no key of the ticket's version" kerberos //$host/work -c ls
admin ktadd -k "$keytab" "cifs/$host"
get_ticket anna
does "the new key" $host -c ls

# Tickets of four seconds, and sessions that outlive them: signed, encrypted, and neither asked for. Samba takes Kerberos for no
# address, so the name is one, for the case alone.
context="tickets that end"
printf '127.0.0.1 localhost %s\n' "$host" >"$scratch/hosts.names"
printf '[global]\nrealm = %s\nsmb ports = %s\n' "$realm" "$port" >"$scratch/torture.conf"
cases=(expire1n expire1s expire1e expire2s expire2e expire_disconnect) running=()
# They mostly sleep.
for case in "${cases[@]}"; do
    unshare -m sh -c 'mount --bind "$1" /etc/hosts && shift && exec "$@"' - "$scratch/hosts.names" \
        timeout 240 smbtorture -s "$scratch/torture.conf" --use-kerberos=required -U "anna@$realm%secret" "//$host/work" "smb2.session.$case" >"$scratch/$case" 2>&1 &
    running+=($!)
done
wait "${running[@]}" || true
for case in "${cases[@]}"; do
    grep -q "^success: $case" "$scratch/$case" || fail "smb2.session.$case: $(tail -n 12 "$scratch/$case"; tail -n 3 "$log")"
done
lh user remove anna >/dev/null
refuses "the user is unknown" kerberos //$host/work -c ls
! grep -qiE "secret|EncryptionKey|session_key" "$log" || fail "the log has a secret"
stop_mount

# Both ways at once.
context="with NTLM"
up_options=(--smb "127.0.0.1:$port" --keytab "$keytab")
start_mount
echo secret | lh user add anna --uid 1000 >/dev/null
does "a ticket" $host -c ls
password //$host/work -c ls || fail "a password: $(cat "$scratch/out")"
run --use-kerberos=off -U anna%wrong //$host/work -c ls && fail "a wrong password"
stop_mount
fsck_clean
passed
