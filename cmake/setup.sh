# Sourced by demo.sh, test.sh, bench.sh and .ci/run: what they have in common. The including script has set -euo
# pipefail and stands in the root of the tree.
# shellcheck shell=bash

# One row for each thing the build needs: Debian or Ubuntu package, and how to see that it is there: a command or a
# header.
ov_needs='
build-essential  command cc
cmake            command cmake
ninja-build      command ninja
pkg-config       command pkg-config
check            header  check.h
libelf-dev       header  libelf.h
zlib1g-dev       header  zlib.h
libzstd-dev      header  zstd.h
liblz4-dev       header  lz4.h
libxxhash-dev    header  xxhash.h
uthash-dev       header  uthash.h
libcjson-dev     header  cjson/cJSON.h
valgrind         command valgrind
'

ov_present() { # command|header NAME
    case $1 in
    command) command -v "$2" >/dev/null ;;
    header) echo "#include <$2>" | cc -E -x c - -o /dev/null 2>/dev/null ;;
    esac
}

ov_missing() {
    local package kind name
    while read -r package kind name; do
        [ -z "$package" ] || ov_present "$kind" "$name" || printf '%s ' "$package"
    done <<<"$ov_needs"
}

# As root, or through sudo where it asks nothing.
ov_as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

ov_install() { # PACKAGE...
    command -v apt-get >/dev/null || return 1
    echo "installing: $*" >&2
    ov_as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 </dev/null &&
        ov_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 </dev/null
}

# Whether CMake finds a cuda.h that is new enough; says where it looked when it does not.
ov_cuda_found() {
    cmake ${CUDA_INCLUDE_DIR:+-DCUDA_INCLUDE_DIR="$CUDA_INCLUDE_DIR"} -P cmake/OvCuda.cmake >/dev/null 2>"$1"
}

# The distribution's own CUDA headers, where they are 12.4 or newer.
ov_install_cuda() {
    command -v apt-get >/dev/null || return 1
    ov_as_root apt-get update -qq >&2 </dev/null || return 1
    local package version
    for package in nvidia-cuda-dev nvidia-cuda-toolkit; do
        version=$(apt-cache policy "$package" 2>/dev/null | sed -n 's/.*Candidate: *//p')
        if [ -n "$version" ] && [ "$version" != '(none)' ] && dpkg --compare-versions "$version" ge 12.4; then
            ov_install "$package" && return 0
        fi
    done
    return 1
}

ov_setup() {
    local missing messages
    missing=$(ov_missing)
    if [ -n "$missing" ]; then
        # shellcheck disable=SC2086 # words are meant
        ov_install $missing || {
            echo "These packages (names of Debian and Ubuntu) are needed and could not be installed: $missing" >&2
            exit 1
        }
    fi
    messages=$(mktemp)
    if ! ov_cuda_found "$messages" && ! { ov_install_cuda && ov_cuda_found "$messages"; }; then
        cat "$messages" >&2
        rm -f "$messages"
        exit 1
    fi
    rm -f "$messages"
}

# ov_build PRESET : configures and builds into build/PRESET. Quiet unless it fails.
ov_build() {
    local preset=$1 log=build/$1.log cuda=(${CUDA_INCLUDE_DIR:+"-DCUDA_INCLUDE_DIR=$CUDA_INCLUDE_DIR"})
    mkdir -p build
    if ! { ov_run "$preset" cmake --preset "$preset" -G Ninja "${cuda[@]}" &&
        ov_run "$preset" cmake --build --preset "$preset"; } >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        echo "the build failed; all of its output is in $log" >&2
        return 1
    fi
}

# ov_run PRESET COMMAND... : sanitizers of older compilers cannot place their memory when addresses are randomised as
# widely as newer kernels do.
ov_run() {
    local preset=$1
    shift
    case $preset in
    asan | tsan) if setarch -R true 2>/dev/null; then set -- setarch -R "$@"; fi ;;
    esac
    "$@"
}

# Settings of whoever calls are no part of a test or a figure.
ov_clean_environment() {
    local name
    for name in $(compgen -e); do
        case $name in OVERSHOT_* | SIM_*) unset "$name" ;; esac
    done
    unset LD_PRELOAD
}
