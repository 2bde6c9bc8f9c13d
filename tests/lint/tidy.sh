#!/usr/bin/env bash
# tests/lint/tidy.sh BUILD [FILE...]: clang-tidy over the project's own files as BUILD compiles them; all by default.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
shift
cd "$ROOT"

tidy() {
    local file=$1 options=(--extra-arg-before=-Wno-unknown-warning-option)
    # base/err.c defines what analyzer.h puts macros over.
    if [[ $file != server/base/err.c ]]; then
        options+=(--extra-arg-before=-include --extra-arg-before="$ROOT/tests/lint/analyzer.h")
    fi
    local output
    # The path to a finding is long; the line that names it is enough, and running this again shows the rest.
    output=$(clang-tidy --quiet -p "$build" "${options[@]}" "$file" 2>/dev/null) || {
        grep -E ' (error|warning): ' <<<"${output//"$ROOT/"/}" || printf '%s: clang-tidy failed\n' "$file"
        exit 1
    }
}
export -f tidy
export ROOT build

if (($# == 0)); then
    mapfile -t files < <(find server handlers storage schemas deploy -name '*.c' 2>/dev/null | sort)
    set -- "${files[@]}"
fi
# A file that is not compiled has no place in the tree, and clang-tidy would guess its flags.
for file in "$@"; do
    grep -qF "\"file\": \"$ROOT/$file\"" "$build/compile_commands.json" || {
        printf '%s is not compiled\n' "$file"
        exit 1
    }
done
# shellcheck disable=SC2016 # for the inner shell
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" bash -c 'tidy "$1"' tidy
