# shellcheck shell=bash
# deploy/lib/service.sh: where an installation lives, and its server process. Needs common.sh and engine.sh.
#
# Every place can be set from outside, so that a second installation (the tests') touches nothing of the first.

UP_BUILD=${UP_BUILD:-$ROOT/build}
UP_PREFIX=${UP_PREFIX:-/usr/local}
UP_ETC=${UP_ETC:-/etc/cloister}
UP_STATE=${UP_STATE:-/var/lib/cloister}
UP_RUN=${UP_RUN:-/run/cloister}
UP_LOG=${UP_LOG:-/var/log/cloister}
UP_LISTEN=${UP_LISTEN:-127.0.0.1:8080}
UP_ACCOUNT=cloister
UP_IMAGE=${UP_IMAGE:-cloister-worker:local}

# shellcheck disable=SC2034 # for deploy/up and deploy/down
ENGINE_RECORD=$UP_RUN/engine.pid
CONFIG=$UP_ETC/cloister.yaml
BINARY=$UP_PREFIX/bin/cloister
SERVER_RECORD=$UP_RUN/server.pid

# as_account COMMAND...: as the service's account, with its groups and none of our environment.
as_account() {
    setpriv --reuid="$UP_ACCOUNT" --regid="$UP_ACCOUNT" --init-groups --inh-caps=-all \
        env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/nonexistent LC_ALL=C.UTF-8 "$@"
}

# cli ARGUMENTS...: the installed command line, with this installation's configuration.
cli() {
    as_account "$BINARY" "$@" --config "$CONFIG"
}

sha256_of() {
    sha256sum "$1" | cut -d ' ' -f 1
}

# config_value KEY DEFAULT: a plain value of the first level of the configuration.
config_value() {
    local value
    value=$(sed -n 's/^'"$1"':[[:space:]]*["'\'']\{0,1\}\([^"'\''#[:space:]]*\).*/\1/p' "$CONFIG" 2>/dev/null | head -n 1)
    printf '%s' "${value:-$2}"
}

# service_engine: the engine's socket: the configuration's, once there is one; else that of DOCKER_HOST.
service_engine() {
    local wanted configured
    wanted=$(engine_socket)
    if [[ -e $CONFIG ]]; then
        configured=$(config_value engine_socket /var/run/docker.sock)
        [[ -z ${DOCKER_HOST:-} || $wanted == "$configured" ]] ||
            die "DOCKER_HOST names $wanted, but $CONFIG has engine_socket $configured: make them agree"
        wanted=$configured
    fi
    printf '%s' "$wanted"
}

service_listen() {
    config_value listen 127.0.0.1:8080
}

service_url() {
    printf 'http://%s' "$(service_listen)"
}

service_ready() {
    [[ $(curl -s -o /dev/null -w '%{http_code}' --max-time 5 "$(service_url)/readyz") == 200 ]]
}

# service_fingerprint: what a running server was started from. When it changes, the server is to be restarted.
service_fingerprint() {
    printf '%s\n' "binary=$(sha256_of "$BINARY")" "config=$(sha256_of "$CONFIG")" \
        "image=$(engine_image_id "$(service_engine)" "$(config_value image cloister-worker:local)")"
}

# service_is_current: the recorded server lives, was started from what is installed now, and answers.
service_is_current() {
    record_alive "$SERVER_RECORD" &&
        [[ $(sed -n '/^\(binary\|config\|image\)=/p' "$SERVER_RECORD") == "$(service_fingerprint)" ]] &&
        wait_for 10 service_ready
}

# service_stop: SIGTERM; then running turns have the drain time, and a minute more is for removing their containers.
service_stop() {
    local drain_ms limit
    drain_ms=$(sed -n 's/^[[:space:]]*drain_ms:[[:space:]]*\([0-9]\{1,\}\).*/\1/p' "$CONFIG" 2>/dev/null | head -n 1)
    limit=$((${drain_ms:-30000} / 1000 + 60))
    record_stop "$SERVER_RECORD" "$limit" || {
        echo "the server (pid $(record_get "$SERVER_RECORD" pid)) did not end within $limit s of SIGTERM"
        return 1
    }
}

# service_port_free: fails, and says who is there, when another program listens on our port.
service_port_free() {
    local holder
    holder=$(ss -Hltnp "sport = :$(service_listen | sed 's/.*://')")
    [[ -z $holder ]] && return 0
    echo "the port of $(service_listen) is in use by $(sed -n 's/.*users:((\(.*\)))/\1/p' <<<"$holder" | head -n 1)"
    echo "stop that program, or set another address at \"listen\" in $CONFIG"
    return 1
}

# service_start: leaves a current server running; restarts gracefully one that is not.
service_start() {
    local log=$UP_LOG/cloister.log fingerprint
    if service_is_current; then
        echo "already running from this build and configuration (pid $(record_get "$SERVER_RECORD" pid))"
        return 0
    fi
    service_stop
    service_port_free
    mapfile -t fingerprint < <(service_fingerprint)
    install -m 0640 -o root -g "$UP_ACCOUNT" /dev/null "$log.new"
    [[ -e $log ]] || mv "$log.new" "$log"
    rm -f "$log.new"
    detach "$log" setpriv --reuid="$UP_ACCOUNT" --regid="$UP_ACCOUNT" --init-groups --inh-caps=-all \
        env -i PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8 "$BINARY" serve --config "$CONFIG"
    record_write "$SERVER_RECORD" "$DETACHED" "${fingerprint[@]}" || {
        tail -n 20 "$log"
        echo "the server ended at once; its log is $log"
        return 1
    }
}

# service_wait_ready: until /readyz says 200; ends early, with the end of the log, when the server dies.
service_wait_ready() {
    local end=$(($(now_ms) + 60000))
    until service_ready; do
        if ! record_alive "$SERVER_RECORD" || (($(now_ms) >= end)); then
            curl -s --max-time 5 "$(service_url)/readyz" || true
            tail -n 20 "$UP_LOG/cloister.log"
            echo "the server did not get ready; its log is $UP_LOG/cloister.log"
            return 1
        fi
        sleep 0.05
    done
}
