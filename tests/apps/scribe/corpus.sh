#!/bin/sh
# Makes corpus.txt, the text scribe's model is trained on: the King James Version (1611, public domain) as the Debian
# packages bible-kjv and bible-kjv-text ship it. Chapters are headed "Genesis 1", verses are one line each: "1 In the ...".
# Usage: corpus.sh [OUTPUT]      needs apt-get, dpkg-deb; installs nothing
set -eu

output=${1:-corpus.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

(cd "$work" && apt-get -qq download bible-kjv bible-kjv-text 2>/dev/null) || {
    echo "corpus.sh: cannot download the packages bible-kjv and bible-kjv-text (apt-get update?)" >&2
    exit 1
}
for package in "$work"/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done

# The tool wraps at the width it is given; a width above the longest verse keeps one verse on one line. Blank lines around
# the chapter headings are squeezed, the two columns of indentation dropped.
"$work/root/usr/bin/bible" -p "$work/root/usr/lib" -l2000 'gen1:1-rev22:21' </dev/null |
    tr -d '\r' | LC_ALL=C tr -cd '\n -~' | sed -e 's/^ *//' -e 's/ *$//' | cat -s | sed -e '1{/^$/d}' >"$output"

# Headings of numbered books ("1 Samuel 3") look like verses; they end in a number and have no full stop.
verses=$(grep '^[0-9][0-9]* ' "$output" | grep -vc '^[123] [A-Z][a-z]* [0-9]*$')
if [ "$verses" -ne 31102 ]; then
    echo "corpus.sh: $verses verses in $output, expected 31102" >&2
    exit 1
fi
echo "$output: $(wc -c <"$output") bytes, $verses verses"
