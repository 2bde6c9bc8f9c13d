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
    mapfile -t old < <(cli key list --json | demo_keys_in_force)
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

# demo_keys_in_force: of a list of keys as the command line prints it, one member a line, the ids of those named demo.
demo_keys_in_force() {
    awk -F '"' '
        $2 == "id" { id = $4 }
        $2 == "name" { demo = $4 == "demo" && NF == 5 }
        $2 == "revoked_ms" && $3 ~ /^: 0,?$/ && demo { print id }'
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

# demo_field NAME: a string of the turn, which the command line prints one member a line.
demo_field() {
    awk -F '"' -v name="$1" '$2 == name && !found { print $4; found = 1 }' "$UP_BUILD/demo.json"
}

demo_reply() {
    awk -F '"' '$2 == "reply" { reply = 1 } reply && $2 == "text" { print $4; reply = 0 }' "$UP_BUILD/demo.json"
}

demo_summary() {
    local url
    url=$(service_url)
    cat <<EOF

The reply, from a sealed container: $(demo_reply)

Next (the key is in $UP_BUILD/demo.env and demo.curl, both for root alone):

curl -K $UP_BUILD/demo.curl $url/v1/turns --json '{"channel":"demo:hello","speaker":{"id":"u1","name":"Ada"},"text":"Hello again"}'
curl -K $UP_BUILD/demo.curl $url/v1/turns/$(demo_field id)
curl -K $UP_BUILD/demo.curl $url/v1/channels
EOF
}
