#!/bin/sh
# old_glibc.sh LIBC MAX OUTPUT READELF CC... : makes OUTPUT, a shared library for linking only, that offers the symbols
# of LIBC (a libc.so.6) at their newest version up to glibc MAX. See OvOldGlibc.cmake.
set -eu

libc=$1 max=$2 output=$3 readelf=$4
shift 4

mkdir -p "$(dirname "$output")"
source=$output.s
map=$output.map

"$readelf" --dyn-syms --wide "$libc" | awk -v max="$max" -v source="$source" -v map="$map" '
function number(version,    part) {
    sub(/^GLIBC_/, "", version)
    split(version, part, ".")
    return part[1] * 1000000 + part[2] * 1000 + part[3]
}
$7 != "UND" && $7 != "ABS" && $4 != "TLS" && $8 ~ /@GLIBC_[0-9]/ {
    split($8, part, /@+/)
    name = part[1]
    version = number(part[2])
    if (version > number(max) || version <= best[name]) {
        next
    }
    best[name] = version
    node[name] = part[2]
    kind[name] = $4 == "OBJECT" ? "object" : "function"
}
END {
    for (name in node) {
        print ".globl " name "\n.type " name ",%" kind[name] "\n" name ": .skip 16\n.size " name ", 16" >source
        names[node[name]] = names[node[name]] " " name ";"
        found++
    }
    for (version in names) {
        print version " { global:" names[version] " };" >map
    }
    print ".section .note.GNU-stack,\"\",%progbits" >source
    exit found < 1000
}'
"$@" -shared -nostdlib -Wl,-soname,libc.so.6 -Wl,--version-script="$map" -o "$output" "$source"
