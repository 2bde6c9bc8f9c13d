# shellcheck shell=bash
# deploy/lib/engine.sh: finds the container engine, or starts one, detached. Needs common.sh.

# engine_socket: the path of the socket that DOCKER_HOST names, or the standard one.
engine_socket() {
    case ${DOCKER_HOST:-} in
    '') printf '/var/run/docker.sock' ;;
    unix:///*) printf '%s' "${DOCKER_HOST#unix://}" ;;
    *) die "DOCKER_HOST is \"$DOCKER_HOST\": only a local engine can be used (unix:///path/of/the.sock)" ;;
    esac
}

# engine_answers SOCKET
engine_answers() {
    [[ $(curl -s --max-time 5 --unix-socket "$1" http://engine/_ping 2>/dev/null) == OK ]]
}

# engine_image_id SOCKET TAG: "sha256:…", or nothing when there is no such image.
engine_image_id() {
    curl -s --max-time 10 --unix-socket "$1" "http://engine/images/$2/json" | sed -n 's/^{"Id":"\([^"]*\)".*/\1/p'
}

# socket_dead SOCKET: nobody listens there any more (curl's 7: connection refused).
socket_dead() {
    local rc=0
    [[ -S $1 ]] || return 1
    curl -s --max-time 2 --unix-socket "$1" http://engine/ >/dev/null 2>&1 || rc=$?
    ((rc == 7))
}

# engine_clear_stale FILE...: pid files and sockets that dead engines left behind stop the next start (docker.md 22).
# What belongs to a live process stays; one that is just dying with its engine gets two seconds to be gone, since the next
# engine would wait for it in vain.
engine_clear_stale() {
    local file pid
    for file in "$@"; do
        if [[ -S $file ]]; then
            if socket_dead "$file"; then rm -f "$file"; fi
        elif [[ -f $file ]]; then
            pid=$(head -n 1 "$file")
            if wait_for 2 no_engine_process "$pid"; then rm -f "$file"; fi
        fi
    done
}

# no_engine_process PID: it is no live dockerd or containerd (a zombie is not live).
no_engine_process() {
    [[ $1 =~ ^[1-9][0-9]*$ ]] && start_time "$1" >/dev/null || return 0
    case $(cat "/proc/$1/comm" 2>/dev/null) in dockerd | containerd) return 1 ;; esac
}

# engine_cgroups: an engine needs the control groups mounted; a bare machine may not have done that.
engine_cgroups() {
    mountpoint -q /sys/fs/cgroup && return 0
    mkdir -p /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup
}

# engine_start RECORD SOCKET LOG DATA EXEC PIDFILE: starts dockerd and waits until it answers. No container of ours has a
# network, so no bridge and no packet filter are needed. After a kill the first tries can fail: five at most.
engine_start() {
    local record=$1 socket=$2 log=$3 data=$4 exec_root=$5 pidfile=$6 attempt end options=()
    engine_cgroups
    getent group docker >/dev/null || groupadd --system docker
    for attempt in 1 2 3 4 5; do
        engine_clear_stale "$pidfile" "$socket" "$exec_root"/containerd/containerd{.pid,.sock,-debug.sock} \
            /run/containerd/containerd.sock
        echo "try $attempt: dockerd on $socket"
        detach "$log" dockerd --host "unix://$socket" --data-root "$data" --exec-root "$exec_root" \
            --pidfile "$pidfile" --group docker --bridge=none --iptables=false "${options[@]}"
        record_write "$record" "$DETACHED" || true
        end=$(($(now_ms) + 60000))
        while record_alive "$record" && (($(now_ms) < end)); do
            if engine_answers "$socket"; then
                return 0
            fi
            sleep 0.1
        done
        record_stop "$record" 20 || record_stop "$record" 5 KILL || return 1
        if tail -n 20 "$log" | grep -q 'error initializing graphdriver'; then
            options=(--storage-driver vfs)
        fi
    done
    tail -n 20 "$log"
    echo "no engine came up on $socket; its log is $log"
    return 1
}

# engine_stop RECORD: stops the engine that engine_start recorded, and with it its containers; nothing else.
engine_stop() {
    record_stop "$1" 40 || record_stop "$1" 10 KILL
}
