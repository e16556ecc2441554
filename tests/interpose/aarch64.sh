#!/bin/sh
# aarch64.sh SOURCE_ROOT CUDA_INCLUDE_DIR FOLDER: cross-builds the shim with the recording engine, the driver without a
# device and test programs for aarch64, and runs them under qemu-user. Skipped without the cross compiler; without qemu
# it only builds.
set -eu
source=$1 include=$2 folder=$3
compiler=aarch64-linux-gnu-gcc
if ! command -v $compiler >/dev/null; then
    echo "skipped: no $compiler here"
    exit 77
fi
tests=$source/tests/interpose
rm -rf "$folder"
mkdir -p "$folder/driver"
cd "$folder"

flags="-std=gnu11 -O2 -g -fPIC -isystem $include -Wall -Wextra -Wshadow -Wconversion -Werror"
shared="$compiler $flags -shared"
# shellcheck disable=SC2086
{
    $shared -fvisibility=hidden -ftls-model=initial-exec -Wl,-z,nodelete \
        -Wl,--version-script="$source/shim/export.map" \
        "$source"/shim/*.c "$source"/shim/*.S "$tests/record_engine.c" -o libovershot_recorded.so
    $shared -Wl,-soname,libcuda.so.1 "$tests/fake_driver.c" "$tests/fake_rows.c" -o driver/libcuda.so.1 -ldl
    $shared "$tests/strangers.c" -o libstrangers.so
    $shared "$tests/chain.c" -o libchain.so -ldl
    $shared "$tests/plugin.c" driver/libcuda.so.1 -o libplugin.so
    $compiler $flags -rdynamic "$tests/t_lookup.c" -o t_lookup -ldl -lpthread
    for program in t_paths t_launch t_copy t_life; do
        $compiler $flags -rdynamic "$tests/$program.c" -o $program -Wl,--no-as-needed driver/libcuda.so.1 -ldl -lpthread
    done
}
echo "built"
if ! command -v qemu-aarch64 >/dev/null; then
    echo "not run: no qemu-aarch64 here"
    exit 0
fi

count=0
run() {
    program=$1 case=$2
    shift 2
    rm -f record
    if ! qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_PRELOAD="$folder/libovershot_recorded.so" \
        -E LD_LIBRARY_PATH="$folder/driver:$folder" -E RECORD_FILE="$folder/record" "$@" "./$program" "$case"; then
        echo "failed: $program $case" >&2
        exit 1
    fi
    count=$((count + 1))
}
for case in foreign_names same_name_elsewhere no_error_after_hit error_after_miss nothing_without_driver versioned \
    next_from_here threads program_handle; do
    run t_lookup $case
done
for case in every_row proc_address_v1 proc_address_v2 runtime_library_sequence old_names failed_proc_address; do
    run t_paths $case
done
for case in kernel kernel_ptsz cooperative ex programmatic legacy; do
    run t_launch $case
done
for case in generic two_dimensional three_dimensional batch batch_3d; do
    run t_copy $case
done
run t_life self_lookup -E FAKE_SELF=1
run t_life nested -E FAKE_NEST=1
run t_life concurrent_start -E RECORD_SLOW=100
run t_life fork_after_start
run t_life exit_thread
echo "$count cases passed under qemu-aarch64"
