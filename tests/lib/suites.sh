# shellcheck shell=bash
# tests/lib/suites.sh: the suites, their counts, and the last line. Needs setup.sh.
#
# A program of a suite adds lines "passed failed skipped" to the file $COUNTS. A suite that could not be set up, or that
# counted nothing, is one failure, so that no test can go missing in silence.

PYTHON=/usr/bin/python3

run_suite() {
    local suite=$1 before after rc t0
    printf '\n== %s\n' "$suite"
    t0=$(now_ms)
    before=$(wc -l <"$COUNTS")
    set +e
    (
        set -e
        "suite_${suite//-/_}"
    )
    rc=$?
    set -e
    after=$(wc -l <"$COUNTS")
    if ((rc != 0)) && ! tail -n +$((before + 1)) "$COUNTS" | awk '$2 > 0 { found = 1 } END { exit !found }'; then
        count 0 1 0
        printf 'suite %s FAILED: its set-up or its runner ended with %s\n' "$suite" "$rc"
    elif ((after == before)); then
        count 0 1 0
        printf 'suite %s FAILED: it ran no test\n' "$suite"
    fi
    printf -- '-- %s: %s in %s s\n' "$suite" "$(totals $((before + 1)))" "$(seconds $(($(now_ms) - t0)))"
}

count() {
    printf '%s %s %s\n' "$1" "$2" "$3" >>"$COUNTS"
}

# totals FIRST: the sum of the counts from line FIRST on.
totals() {
    tail -n "+$1" "$COUNTS" | awk '{ p += $1; f += $2; s += $3 }
        END { printf "%d passed, %d failed, %d skipped\n", p, f, s }'
}

summary() {
    local line
    line=$(totals 1)
    printf '\nall in %s s\n%s\n' "$(seconds $(($(now_ms) - $1)))" "$line"
    [[ $line == [1-9]*" passed, 0 failed, "* ]] || exit 1
    [[ ${TEST_STRICT:-} != 1 || $line == *", 0 skipped" ]] || exit 1
}

# check NAME COMMAND...: one test that is a command; its output is shown when it fails.
check() {
    local name=$1 log t0 rc
    shift
    log=$LOGS/check-${name//[^A-Za-z0-9]/-}.log
    mkdir -p "$LOGS"
    t0=$(now_ms)
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1 </dev/null
    rc=$?
    set -e
    if ((rc == 0)); then
        count 1 0 0
        printf '%-58sok %6s s\n' "$name" "$(seconds $(($(now_ms) - t0)))"
    else
        count 0 1 0
        printf '%-58sFAILED %s s\n' "$name" "$(seconds $(($(now_ms) - t0)))"
        head -n 60 "$log" | sed 's/^/    /'
    fi
}

suite_lint() {
    need_test_build
    need_node
    lint_checks
}

suite_unit() {
    need_test_build
    need_account
    need_engine
    "$PYTHON" "$ROOT/tests/lib/run_unit.py" --build "$BUILD_TEST" --counts "$COUNTS"
}

suite_asan() {
    need_asan_build
    need_account
    need_engine
    "$PYTHON" "$ROOT/tests/lib/run_unit.py" --build "$BUILD_ASAN" --counts "$COUNTS" --sanitizer
}

# A report of the sanitizer makes a program end with 66; the server's are looked for when a test is over.
suite_threads() {
    local source name
    need_images
    need_account
    need_tsan_build
    for source in "$ROOT"/tests/threads/*.c; do
        name=$(basename "$source" .c)
        check "threads of $name" timeout 120 "$BUILD_TSAN/tests/threads/threads_$name"
    done
    CLOISTER_BINARY=$BUILD_TSAN/cloister CLOISTER_SANITIZED=1 \
        "$PYTHON" "$ROOT/tests/lib/run_integration.py" --counts "$COUNTS" --logs "$LOGS/tsan" test_routing
    CLOISTER_BINARY=$BUILD_TSAN/cloister CLOISTER_SANITIZED=1 \
        "$PYTHON" "$ROOT/tests/lib/run_integration.py" --counts "$COUNTS" --logs "$LOGS/tsan" \
        --pattern ServerStopped test_crash
    CLOISTER_BINARY=$BUILD_TSAN/cloister CLOISTER_SANITIZED=1 \
        "$PYTHON" "$ROOT/tests/lib/run_integration.py" --counts "$COUNTS" --logs "$LOGS/tsan" \
        --pattern TestEarly test_hostile
}

suite_fuzz() {
    need_fuzz_build
    rm -rf "$LOGS/findings"
    "$PYTHON" "$ROOT/tests/lib/run_fuzz.py" --build "$BUILD_FUZZ" --counts "$COUNTS" --findings "$LOGS/findings" \
        --seconds "$((${LONG:-0} ? 1200 : 8))"
}

suite_integration() {
    need_images
    need_node
    need_account
    CLOISTER_BINARY=$BUILD_RELEASE/cloister CLOISTER_TEST_BUILD=$BUILD_TEST \
        "$PYTHON" "$ROOT/tests/lib/run_integration.py" --counts "$COUNTS" ${LONG:+--timeout 3600}
}

# Each answer held against openapi.yaml on its way.
suite_contract() {
    need_images
    need_node
    need_account
    CLOISTER_BINARY=$BUILD_RELEASE/cloister CLOISTER_PROXY=1 \
        "$PYTHON" "$ROOT/tests/lib/run_integration.py" --counts "$COUNTS" --logs "$LOGS/contract" \
        test_turns test_routing test_keys
}

# The tests that measure, or that repeat for long, run with the release build only, unless there are hours.
ASAN_MODULES=(test_turns test_keys test_http test_desync test_hostile test_crash)

suite_integration_asan() {
    local modules=()
    [[ -n ${LONG:-} ]] || modules=("${ASAN_MODULES[@]}")
    need_images
    need_asan_build
    need_node
    need_account
    CLOISTER_BINARY=$BUILD_ASAN/cloister CLOISTER_SANITIZED=1 \
        "$PYTHON" "$ROOT/tests/lib/run_integration.py" --counts "$COUNTS" ${LONG:+--timeout 3600} "${modules[@]}"
}

suite_deploy() {
    need_release
    need_engine
    "$PYTHON" "$ROOT/tests/lib/run_integration.py" --counts "$COUNTS" --folder "$ROOT/tests/deploy" --jobs 1 --timeout 600
}
