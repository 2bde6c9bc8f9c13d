# shellcheck shell=bash
# deploy/lib/demo.sh: the demo key and the first turn of deploy/up. Needs common.sh and service.sh.
#
# demo.env is for the command line, demo.curl for `curl -K`, so that the key is neither on the screen nor in a list of
# processes.

# demo_key_works: does the server take the key that is there?
demo_key_works() {
    [[ -r $UP_BUILD/demo.env && -r $UP_BUILD/demo.curl ]] || return 1
    grep -qx "CLOISTER_URL=$(service_url)" "$UP_BUILD/demo.env" || return 1
    grep -qF "Bearer $(record_get "$UP_BUILD/demo.env" CLOISTER_KEY)\"" "$UP_BUILD/demo.curl" || return 1
    [[ $(curl -s -o /dev/null -w '%{http_code}' --max-time 10 -K "$UP_BUILD/demo.curl" "$(service_url)/v1/channels") == 200 ]]
}

# demo_key: keeps a key that works; else makes one and revokes the demo keys before it.
demo_key() {
    local key id old
    if demo_key_works; then
        echo "the key in $UP_BUILD/demo.env works"
        return 0
    fi
    mapfile -t old < <(cli key list | awk '$2 == "demo" { print $1 }')
    key=$(cli key create demo --scope turns --scope turns:read --scope channels --channel 'demo:*')
    [[ $key == clo_* ]] || {
        echo "the command line gave no key"
        return 1
    }
    (
        umask 077
        rm -f "$UP_BUILD/demo.env" "$UP_BUILD/demo.curl"
        printf 'CLOISTER_URL=%s\nCLOISTER_KEY=%s\n' "$(service_url)" "$key" >"$UP_BUILD/demo.env"
        printf 'silent\nshow-error\nheader = "Authorization: Bearer %s"\n' "$key" >"$UP_BUILD/demo.curl"
    )
    for id in "${old[@]}"; do
        cli key revoke "$id"
    done
}

# demo_turn: the first turn, through the command line as a user has it: it reads build/demo.env beside itself.
demo_turn() {
    "$UP_BUILD/cloister" turn --json demo:hello 'Hello from deploy/up' >"$UP_BUILD/demo.json"
    cat "$UP_BUILD/demo.json"
    [[ $(demo_field status) == succeeded ]] || {
        echo "the turn ended as $(demo_field status)"
        return 1
    }
}

# demo_field NAME: the first string of that name in the turn.
demo_field() {
    grep -o "\"$1\": *\"[^\"]*\"" "$UP_BUILD/demo.json" | head -n 1 | sed 's/.*: *"\(.*\)"/\1/'
}

demo_summary() {
    local url
    url=$(service_url)
    cat <<EOF

The reply, from a sealed container: $(demo_field text)

Next (the key is in $UP_BUILD/demo.env and demo.curl, both for root alone):

curl -K $UP_BUILD/demo.curl $url/v1/turns --json '{"channel":"demo:hello","speaker":{"id":"u1","name":"Ada"},"text":"Hello again"}'
curl -K $UP_BUILD/demo.curl $url/v1/turns/$(demo_field id)
curl -K $UP_BUILD/demo.curl $url/v1/channels
EOF
}
