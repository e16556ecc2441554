#!/bin/sh
# check_library.sh LIBRARY DRIVER_API_DEF GLIBC_MAX READELF CC... : what a library that is preloaded into strangers
# may be:
#   - it needs nothing but libc (and the dynamic linker) at load time;
#   - it refers to no symbol of a glibc newer than GLIBC_MAX;
#   - it has lazy binding, so that functions which an old glibc keeps elsewhere are looked for only when they are called;
#   - it exports exactly dlsym, the OV_HOOK rows of DRIVER_API_DEF and the rows of nvml_api.def beside it (dlvsym may be
#     exported, too).
# Prints every offence; exit status 1 if there is one.
set -eu
LC_ALL=C
export LC_ALL

library=$1 rows=$2 max=$3 readelf=$4
shift 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

offence() {
    echo "$library: $*" >&2
    status=1
}

"$readelf" --dynamic --wide "$library" >"$work/dynamic"
sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' "$work/dynamic" >"$work/needed"
while read -r needed; do
    case $needed in
    libc.so.6 | ld-linux-x86-64.so.2 | ld-linux-aarch64.so.1) ;;
    *) offence "needs $needed" ;;
    esac
done <"$work/needed"
if grep -Eq 'BIND_NOW|\(FLAGS_1\).*NOW' "$work/dynamic"; then
    offence "is bound when loaded (-z now); it has to be bound lazily"
fi
# Not in libc.so.6 before 2.34: the dl and pthread functions, less those that a program without threads needed, too.
"$readelf" --relocs --wide "$library" | awk '$3 !~ /JU?MP_SLOT?$/ && $5 ~ /@GLIBC_/ { sub(/@.*/, "", $5); print $5 }' | sort -u |
    grep -E '^(dl(open|close|error|addr1?|info|mopen|v?sym)|sem_.*|pthread_.*)$' |
    grep -vE '^pthread_(attr_.*|cond_.*|condattr_.*|equal|exit|self|[gs]etschedparam|mutex_(init|destroy|lock|unlock)|setcancel.*)$' \
        >"$work/eager" || true
while read -r name; do
    offence "refers to $name other than through the procedure linkage table, so that it is looked for when loaded"
done <"$work/eager"
if grep -q TEXTREL "$work/dynamic"; then
    offence "has text relocations"
fi

"$readelf" --version-info --wide "$library" | grep -o 'Name: GLIBC_[0-9.]*' | sort -u | sed 's/.*GLIBC_//' |
    awk -F. -v max="$max" 'BEGIN { split(max, m, ".") } $1 > m[1] || ($1 == m[1] && $2 > m[2])' >"$work/newer"
while read -r version; do
    offence "refers to GLIBC_$version:" "$("$readelf" --dyn-syms --wide "$library" |
        awk -v suffix="@GLIBC_$version" 'index($8, suffix) && substr($8, index($8, suffix)) == suffix { printf " %s", $8 }')"
done <"$work/newer"

"$readelf" --dyn-syms --wide "$library" |
    awk '$7 != "UND" && ($5 == "GLOBAL" || $5 == "WEAK") { sub(/@.*/, "", $8); print $8 }' | sort -u >"$work/exported"
{
    echo '#define OV_HOOK(name, ...) @name'
    echo '#define OV_CALL(...)'
    echo '#define OV_NVML_HOOK(name, ...) @name'
    echo "#include \"$rows\""
    echo "#include \"$(dirname "$rows")/nvml_api.def\""
} | "$@" -E -P -x c - | grep -oE '@ ?(cu|nvml)[A-Z][A-Za-z0-9_]*' | tr -d '@ ' | sort -u >"$work/rows"
[ -s "$work/rows" ] || offence "no OV_HOOK rows found in $rows"
for name in $(grep -vxE 'dlsym|dlvsym' "$work/exported" | comm -23 - "$work/rows"); do
    offence "exports $name, which is neither dlsym, dlvsym nor a row of $rows or nvml_api.def"
done
for name in $(comm -13 "$work/exported" "$work/rows") $(grep -qx dlsym "$work/exported" || echo dlsym); do
    offence "does not export $name"
done

exit $status
