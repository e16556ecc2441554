#!/usr/bin/env bash
# ./test.sh [ctest arguments] : installs what is missing, builds, runs the tests; the last line is "N passed, N failed".
# For instance: ./test.sh -L interpose        ./test.sh -R options --output-on-failure
# PRESET=asan ./test.sh : the same under another preset of CMakePresets.json.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
. cmake/setup.sh

preset=${PRESET:-default}
ov_setup
ov_clean_environment
if ! ov_build "$preset"; then
    echo '0 passed, 1 failed'
    exit 1
fi

log=build/$preset-tests.log
status=0
ov_run "$preset" ctest --test-dir "build/$preset" -j "$(nproc)" --output-on-failure "$@" </dev/null 2>&1 |
    tee "$log" || status=$?

# ctest counts a skipped test as passed, and one whose program is missing as failed.
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
counts=$(sed -n 's/.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\).*/\1 \2/p' "$log" | tail -n 1)
read -r failed total <<<"${counts:-1 1}"
[ "$status" = 0 ] || [ "$failed" != 0 ] || { failed=1 total=$((total + 1)); }
line="$((total - failed - skipped)) passed, $failed failed"
[ "$skipped" = 0 ] || line="$line, $skipped skipped"
echo "$line"
[ "$failed" = 0 ]
