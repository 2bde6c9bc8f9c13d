# shellcheck shell=bash
# deploy/lib/build.sh: the one way to build, incremental.

# configure_with FOLDER TYPE [CMAKE-OPTION...]
configure_with() {
    local folder=$1 type=$2 home
    shift 2
    # A cache that was made in another clone is of no use here, and CMake refuses it.
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
    if [[ -n $home && $home != "$ROOT" ]]; then
        rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
    fi
    cmake -S "$ROOT" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE="$type" "$@"
}

# build_with FOLDER TYPE [CMAKE-OPTION...]
build_with() {
    configure_with "$@"
    cmake --build "$1"
}

# build_release FOLDER
build_release() {
    build_with "$1" Release
}
