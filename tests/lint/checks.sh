# shellcheck shell=bash
# tests/lint/checks.sh: the checks of the lint suite, one test each. Needs tests/lib/suites.sh.

lint_checks() {
    local found
    cd "$ROOT" || return
    mapfile -t found < <(find server handlers storage schemas deploy tests -name node_modules -prune -o -name '*.[ch]' -print)
    check "clang-format" clang-format --dry-run -Werror "${found[@]}"
    mapfile -t found < <(shell_scripts)
    check "shellcheck" shellcheck -x "${found[@]}"
    check "python compiles" "$PYTHON" -m compileall -q tests -x node_modules
    check "sizes" "$PYTHON" tests/lint/sizes.py
    check "arrows between rooms" "$PYTHON" tests/lint/arrows.py
    check "docs/configuration.md" "$PYTHON" tests/lint/configuration.py
    check "headers and scripts" "$PYTHON" tests/lint/headers.py
    check "packages are named once" packages_named_once
    check "symbols are defined once" symbols_defined_once
    check "openapi components = schemas" "$PYTHON" tests/lint/components.py
    check "redocly lint openapi.yaml" redocly lint --config tests/lint/redocly.yaml openapi.yaml
    check "spectral lint openapi.yaml" spectral lint --ruleset tests/lint/spectral.yaml --fail-severity warn openapi.yaml
    check "clang-tidy" tests/lint/tidy.sh "$BUILD_TEST"
}

shell_scripts() {
    grep -rlE '^#!.*\bbash$|^# shellcheck shell=bash' --exclude-dir=node_modules deploy tests .ci
}

packages_named_once() {
    local twice
    twice=$(grep -hv '^#' deploy/packages/* | sort | uniq -d)
    [[ -z $twice ]] || {
        echo "in two lists of deploy/packages: $twice"
        return 1
    }
}

# Two rooms with a function of one name link without a word, and one of them runs the other's.
symbols_defined_once() {
    local twice
    twice=$(nm -A --defined-only "$BUILD_TEST"/*.a | awk '$2 ~ /^[TDBR]$/ { print $3 }' | sort | uniq -d)
    [[ -z $twice ]] || {
        echo "in two rooms: $twice"
        return 1
    }
}
