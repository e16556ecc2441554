#!/bin/sh
# readme_options.sh TOOL README [--write] : whether the table of options in README is what `TOOL options` says; with
# --write it is made so. A row is an option's name, its default and the first line of its description.
set -eu
tool=$1 readme=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$tool" options | awk '
    function finish() { if (name != "") printf "| `%s` | %s | %s |\n", name, standard, help; name = "" }
    BEGIN { print "| variable | default | what it is |"; print "| --- | --- | --- |" }
    /^OVERSHOT_[A-Z_]+ \(default: / { finish(); name = $1; standard = $0; help = ""
                   sub(/^.*\(default: /, "", standard); sub(/\)$/, "", standard); next }
    name != "" && /^    / && help !~ /\.$/ { sub(/^ */, ""); help = help (help == "" ? "" : " ") $0 }
    END { finish() }' >"$work/table"
[ "$(wc -l <"$work/table")" -gt 3 ] || {
    echo "$tool options lists nothing" >&2
    exit 1
}
awk -v table="$work/table" '
    /^<!-- end of options/ { inside = 0 }
    !inside { print }
    /^<!-- options:/ { inside = found = 1; while ((getline line <table) > 0) print line }
    END { exit !found }' "$readme" >"$work/readme" || {
    echo "$readme has no place for the table" >&2
    exit 1
}
if [ "${3:-}" = --write ]; then
    cat "$work/readme" >"$readme"
else
    diff -u "$readme" "$work/readme" || {
        echo "the table of options in $readme is out of date: $0 $1 $2 --write" >&2
        exit 1
    }
fi
