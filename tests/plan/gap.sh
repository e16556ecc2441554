#!/bin/sh
# gap.sh TOOL TRACE LIMIT : prints how many times the lower bound the plan takes. Exit status 1 above LIMIT.
set -eu
gap=$("$1" plan "$2" --json | grep -o '"gap": *[0-9.]*' | head -n 1 | grep -o '[0-9.]*$')
echo "$gap"
awk -v gap="$gap" -v limit="$3" 'BEGIN { exit !(gap >= 1 && gap <= limit) }'
