# shellcheck shell=bash
# deploy/lib/packages.sh: Debian packages, only those that are missing.

# packages_missing LIST...: the names of deploy/packages/LIST that are not installed.
packages_missing() {
    local list name
    for list in "$@"; do
        while read -r name; do
            [[ -z $name || $name == \#* ]] && continue
            package_there "$name" || printf '%s\n' "$name"
        done <"$ROOT/deploy/packages/$list"
    done
    # An engine on a kernel with AppArmor cannot start a container without its parser.
    if [[ " $* " == *" run "* && $(cat /sys/module/apparmor/parameters/enabled 2>/dev/null) == Y ]] &&
        ! command -v apparmor_parser >/dev/null; then
        printf 'apparmor\n'
    fi
    # npm of Debian brings its node; both are only to fetch what tests/package-lock.json pins.
    if [[ " $* " == *" test "* ]] && ! command -v npm >/dev/null; then
        printf 'npm\n'
    fi
}

package_there() {
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# packages_install LIST...
packages_install() {
    local missing
    mapfile -t missing < <(packages_missing "$@")
    if ((${#missing[@]} == 0)); then
        echo "nothing is missing"
        return 0
    fi
    echo "missing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    without_services apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# without_services COMMAND...: keeps a package's script from starting its service where no systemd runs, since nobody
# would own what it leaves behind. On a machine with systemd, or with a policy of its own, nothing is changed.
without_services() {
    local policy=/usr/sbin/policy-rc.d rc=0
    if [[ -d /run/systemd/system || -e $policy ]]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@" || rc=$?
    rm -f "$policy"
    return "$rc"
}
