# shellcheck shell=bash
# deploy/lib/common.sh: steps with their time, errors that name the step, and processes known by pid and start time.
# Source it under `set -euo pipefail` after setting LOGS, the folder for the logs of the steps.

export LC_ALL=C.UTF-8
STEP=0

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

now_ms() {
    local t=${EPOCHREALTIME/./}
    printf '%s' "$((t / 1000))"
}

# seconds MS: "12.3".
seconds() {
    printf '%d.%d' "$(($1 / 1000))" "$((($1 % 1000) / 100))"
}

# step NAME COMMAND...: runs COMMAND in a subshell with its output in a log and prints the time it took. On failure
# prints the end of the log and exits. Never call it as a condition: that would switch `set -e` off inside.
step() {
    local name=$1 log t0 rc
    shift
    STEP=$((STEP + 1))
    mkdir -p "$LOGS"
    log=$LOGS/$(printf '%02d' "$STEP")-${name//[^A-Za-z0-9]/-}.log
    printf '%-58s' "$name"
    t0=$(now_ms)
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1 </dev/null
    rc=$?
    set -e
    if ((rc != 0)); then
        printf 'FAILED %s s\n' "$(seconds $(($(now_ms) - t0)))"
        tail -n 40 "$log" | sed 's/^/    /'
        die "step \"$name\" failed (exit $rc); its whole log is $log"
    fi
    printf 'ok %6s s\n' "$(seconds $(($(now_ms) - t0)))"
}

# start_time PID: when the process began, in clock ticks since boot; fails when it is gone or a zombie. A pid alone
# says nothing, since it is used again.
start_time() {
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    stat=${stat##*) }
    case $stat in Z* | X*) return 1 ;; esac
    # shellcheck disable=SC2086 # the fields are to be split
    set -- $stat
    printf '%s' "${20}"
}

# record_write FILE PID [KEY=VALUE...]: notes a process that was started here.
record_write() {
    local file=$1 pid=$2 start
    shift 2
    start=$(start_time "$pid") || return 1
    printf '%s\n' "pid=$pid" "start=$start" "$@" >"$file.new"
    mv "$file.new" "$file"
}

record_get() {
    [[ -r $1 ]] || return 0
    sed -n "s/^$2=//p" "$1" | head -n 1
}

# record_alive FILE: is the recorded process, and no other with its pid, still there?
record_alive() {
    local pid start
    pid=$(record_get "$1" pid)
    start=$(record_get "$1" start)
    [[ $pid =~ ^[1-9][0-9]*$ && -n $start && $(start_time "$pid") == "$start" ]]
}

# record_stop FILE SECONDS [SIGNAL]: signals the recorded process and waits; 1 when it is still there after SECONDS.
record_stop() {
    local file=$1 limit=$2 signal=${3:-TERM} end
    end=$(($(now_ms) + limit * 1000))
    if record_alive "$file"; then
        kill -s "$signal" "$(record_get "$file" pid)" 2>/dev/null || true
    fi
    while record_alive "$file"; do
        (($(now_ms) < end)) || return 1
        sleep 0.05
    done
    rm -f "$file"
}

# wait_for SECONDS COMMAND...: polls until COMMAND succeeds; 1 when it never does.
wait_for() {
    local end=$(($(now_ms) + $1 * 1000))
    shift
    until "$@" >/dev/null 2>&1; do
        (($(now_ms) < end)) || return 1
        sleep 0.05
    done
}

# detach LOG COMMAND...: starts COMMAND in its own session with no descriptor of ours but LOG; its pid is in DETACHED.
detach() {
    local log=$1 fd
    shift
    (
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            ((fd <= 2)) || eval "exec $fd>&-" 2>/dev/null || true
        done
        exec setsid "$@" </dev/null >>"$log" 2>&1
    ) &
    # shellcheck disable=SC2034 # for the caller
    DETACHED=$!
    disown "$DETACHED"
}

# one_at_a_time FILE: holds a lock until this script ends, so that two never work on the same installation.
one_at_a_time() {
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    flock -n 9 || {
        printf 'another run holds %s: waiting up to 10 minutes\n' "$1"
        flock -w 600 9 || die "another run still holds $1"
    }
}

need_root() {
    ((EUID == 0)) || die "run this as root: it installs packages and makes a system account"
}
