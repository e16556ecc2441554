#!/bin/sh
# empty_root.sh LIBRARY: preloaded into /bin/true, in a root that holds nothing but that program, the C library and the
# library itself, nothing happens (sglang#36533, torch_memory_saver#108): status 0, not a word on standard error.
set -eu
library=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

if [ "$(id -u)" = 0 ] && chroot / true 2>/dev/null; then
    enter=chroot
elif unshare -r chroot / true 2>/dev/null; then
    enter="unshare -r chroot"
else
    echo "skipped: may not change the root here"
    exit 77
fi

mkdir "$root/bin"
cp "$library" "$root/libovershot.so"
for program in true env; do
    binary=/usr/bin/$program
    [ -e "$binary" ] || binary=/bin/$program
    cp "$binary" "$root/bin/$program"
    for needed in $(ldd "$root/bin/$program" |
        sed -n 's/^.*=> \(\/.*\) (0x.*/\1/p; s/^[[:space:]]*\(\/.*\) (0x.*/\1/p'); do
        mkdir -p "$root$(dirname "$needed")"
        cp -L "$needed" "$root$needed"
    done
done

$enter "$root" /bin/env /bin/true # the root itself is complete
status=0
said=$($enter "$root" /bin/env LD_PRELOAD=/libovershot.so /bin/true 2>&1) || status=$?
if [ $status != 0 ] || [ -n "$said" ]; then
    echo "status $status: $said" >&2
    exit 1
fi
# That it was loaded at all:
$enter "$root" /bin/env LD_PRELOAD=/libovershot.so LD_DEBUG=libs /bin/true 2>&1 |
    grep -q 'calling init: /libovershot.so'
