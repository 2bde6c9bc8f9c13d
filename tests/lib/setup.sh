# shellcheck shell=bash
# tests/lib/setup.sh: what the suites stand on: scratch folder, packages, builds, node tools, account, engine. Each is set
# up once, when the first suite asks for it. Needs the libraries of deploy/lib.

TEST_ACCOUNT=cloister-test
BUILD_RELEASE=$ROOT/build
BUILD_TEST=$ROOT/build-test
BUILD_ASAN=$ROOT/build-asan
BUILD_TSAN=$ROOT/build-tsan
BUILD_FUZZ=$ROOT/build-fuzz
NODE_MODULES=$ROOT/tests/node_modules

# setup_scratch: everything a run writes outside the build folders is below SCRATCH. The path is short, since sockets live
# in it, and open to the test account.
setup_scratch() {
    SCRATCH=$(mktemp -d /tmp/clo-XXXXXX)
    chmod 0755 "$SCRATCH"
    COUNTS=$SCRATCH/counts
    : >"$COUNTS"
    export SCRATCH COUNTS
    mkdir -p "$ROOT/build"
    one_at_a_time "$ROOT/build/tests.lock"
    rm -rf "$LOGS"
}

teardown() {
    local rc=$? mount
    set +e
    if [[ -e $SCRATCH/engine/record ]]; then
        engine_stop "$SCRATCH/engine/record"
    fi
    while read -r mount; do
        umount -l "$mount"
    done < <(awk -v dir="$SCRATCH/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r)
    rm -rf --one-file-system "$SCRATCH"
    exit "$rc"
}

# once NAME COMMAND...: a step that other suites of this run may have done already.
once() {
    local mark=$SCRATCH/done-${1//[^A-Za-z0-9]/-}
    [[ -e $mark ]] && return 0
    step "$@"
    : >"$mark"
}

need_packages() {
    once "install packages" packages_install build run test
}

need_release() {
    need_packages
    once "build (Release)" build_release "$BUILD_RELEASE"
}

need_test_build() {
    need_packages
    once "build (Debug, with tests)" build_with "$BUILD_TEST" Debug -DCLOISTER_TESTS=ON
}

need_asan_build() {
    need_packages
    once "build (ASan and UBSan, with tests)" build_with "$BUILD_ASAN" Debug -DCLOISTER_TESTS=ON \
        -DCLOISTER_SANITIZE=address,undefined
}

need_tsan_build() {
    need_packages
    once "build (TSan, the server and tests/threads)" build_threads "$BUILD_TSAN"
}

build_threads() {
    configure_with "$1" Debug -DCLOISTER_TESTS=ON -DCLOISTER_SANITIZE=thread
    cmake --build "$1" --target threads cloister
}

need_fuzz_build() {
    need_packages
    once "build (clang, ASan, UBSan and coverage, tests/fuzz)" build_fuzz "$BUILD_FUZZ"
}

build_fuzz() {
    configure_with "$1" Debug -DCMAKE_C_COMPILER=clang -DCLOISTER_FUZZ=ON
    cmake --build "$1" --target fuzz
}

need_node() {
    need_packages
    once "node tools of tests/package-lock.json" install_node_tools
    export PATH=$NODE_MODULES/.bin:$PATH
}

# install_node_tools: exactly what the lock file says, a Node among it, since Debian's is too old for the tools.
install_node_tools() {
    local stamp=$NODE_MODULES/.lock-sha256 want node
    want=$(sha256sum "$ROOT/tests/package-lock.json" | cut -d ' ' -f 1)
    if [[ $(cat "$stamp" 2>/dev/null) != "$want" ]]; then
        npm ci --prefix "$ROOT/tests" --no-audit --no-fund --ignore-scripts
        printf '%s\n' "$want" >"$stamp"
    fi
    for node in "$NODE_MODULES"/node-linux-*/bin/node; do
        ln -sf "$node" "$NODE_MODULES/.bin/node"
    done
    "$NODE_MODULES/.bin/node" --version
}

need_account() {
    need_packages
    once "account $TEST_ACCOUNT" make_test_account
}

make_test_account() {
    getent group docker >/dev/null || groupadd --system docker
    id -u "$TEST_ACCOUNT" >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$TEST_ACCOUNT"
    usermod --append --groups docker "$TEST_ACCOUNT"
}

# need_engine: the one of DOCKER_HOST or the standard socket; else one of this run alone, which ends with it.
need_engine() {
    need_packages
    if ! engine_answers "$(engine_socket)"; then
        [[ -z ${DOCKER_HOST:-} ]] || die "no engine answers on $DOCKER_HOST, which DOCKER_HOST names"
        once "engine of this run" start_test_engine
        export DOCKER_HOST=unix://$SCRATCH/engine/docker.sock
    else
        DOCKER_HOST=unix://$(engine_socket)
        export DOCKER_HOST
    fi
}

start_test_engine() {
    local dir=$SCRATCH/engine
    mkdir -p "$dir"
    engine_start "$dir/record" "$dir/docker.sock" "$LOGS/engine.log" "$dir/data" "$dir/exec" "$dir/pid"
}

need_images() {
    need_release
    need_test_build
    need_engine
    once "worker image" "$ROOT/deploy/worker/image" "$BUILD_RELEASE/deploy/worker/cloister-worker" cloister-worker:test
    if [[ -x $ROOT/tests/workers/images ]]; then
        once "images of hostile workers" "$ROOT/tests/workers/images" "$BUILD_TEST/tests/workers/hostile"
    fi
}
