# shellcheck shell=bash
# deploy/lib/demo.sh: the demo key and the first turn of deploy/up. Needs service.sh.
#
# demo.env is for the command line, demo.curl for `curl -K`, so that the key is neither on the screen nor in a list of
# processes.

# demo_key_works: does the server take the key that is there?
demo_key_works() {
    [[ -r $UP_DEMO/demo.env && -r $UP_DEMO/demo.curl ]] || return 1
    grep -qx "CLOISTER_URL=$(service_url)" "$UP_DEMO/demo.env" || return 1
    [[ $(curl -s -o /dev/null -w '%{http_code}' --max-time 10 -K "$UP_DEMO/demo.curl" "$(service_url)/v1/channels") == 200 ]]
}

# demo_key: keeps a key that works; else makes one and revokes the demo keys before it.
demo_key() {
    local key id old
    if demo_key_works; then
        echo "the key in $UP_DEMO/demo.env works"
        return 0
    fi
    mapfile -t old < <(cli key list --json | demo_key_ids)
    key=$(cli key create demo --scope turns --scope turns:read --scope channels --channel 'demo:*')
    [[ $key == clo_* ]] || {
        echo "the command line gave no key"
        return 1
    }
    (
        umask 077
        mkdir -p "$UP_DEMO"
        rm -f "$UP_DEMO/demo.env" "$UP_DEMO/demo.curl"
        printf 'CLOISTER_URL=%s\nCLOISTER_KEY=%s\n' "$(service_url)" "$key" >"$UP_DEMO/demo.env"
        printf 'header = "Authorization: Bearer %s"\n' "$key" >"$UP_DEMO/demo.curl"
    )
    for id in "${old[@]}"; do
        cli key revoke "$id"
    done
}
