#!/bin/sh
# test_tools.sh CASE : one case of the tests of `overshot` and overshot-wrap.sh. Exit status 0, 1 or 77 (skipped).
set -eu

tool=$OVERSHOT_TOOL wrap=$OVERSHOT_WRAP probe=$OVERSHOT_PROBE static=$OVERSHOT_STATIC
source=$OVERSHOT_SOURCE build=$OVERSHOT_BUILD libdir=$OVERSHOT_LIBDIR
unset OVERSHOT_TOOL OVERSHOT_WRAP OVERSHOT_PROBE OVERSHOT_STATIC OVERSHOT_SOURCE OVERSHOT_BUILD OVERSHOT_LIBDIR LD_PRELOAD

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# check STATUS OUTPUT ERRORS [VARIABLE=VALUE...] COMMAND... : runs it; patterns are those of `case`.
check() {
    want_status=$1 want_output=$2 want_errors=$3
    shift 3
    status=0
    env "$@" >"$work/output" 2>"$work/errors" || status=$?
    output=$(cat "$work/output") errors=$(cat "$work/errors")
    good=yes
    [ "$status" = "$want_status" ] || good=no
    # shellcheck disable=SC2254 # patterns are meant
    case $output in $want_output) ;; *) good=no ;; esac
    # shellcheck disable=SC2254
    case $errors in $want_errors) ;; *) good=no ;; esac
    [ $good = yes ] || {
        printf 'command: %s\nstatus %s, expected %s\noutput: %s\n  expected: %s\nerrors: %s\n  expected: %s\n' \
            "$*" "$status" "$want_status" "$output" "$want_output" "$errors" "$want_errors" >&2
        exit 1
    }
}

case_run_preloads_the_library() {
    check 0 '' 'probe loaded' "$tool" run --library "$probe" -- /bin/true
    check 0 '' 'probe loaded' OVERSHOT_LIBRARY="$probe" "$tool" run true
}

case_run_sets_the_environment() {
    # shellcheck disable=SC2016
    check 0 '5.5G 1 off unset 0,2' '*' "$tool" run --library="$probe" --budget=5.5G --summary --mode off --devices 0,2 -- \
        sh -c 'echo "$OVERSHOT_BUDGET $OVERSHOT_SUMMARY $OVERSHOT_MODE ${OVERSHOT_RING-unset} $OVERSHOT_DEVICES"'
    # shellcheck disable=SC2016
    check 0 '2G 64M' '*' OVERSHOT_BUDGET=1G OVERSHOT_RING=64M "$tool" run --library="$probe" --budget=2G \
        sh -c 'echo "$OVERSHOT_BUDGET $OVERSHOT_RING"'
}

case_run_leaves_the_programs_words_alone() {
    # shellcheck disable=SC2016
    check 0 '--budget=1|a b||-x|*|' '*' "$tool" run --library "$probe" sh -c 'printf "%s|" "$@"' sh --budget=1 'a b' '' -x '*'
    check 0 '--help' '*' "$tool" run --library "$probe" -- printf %s --help
}

case_run_passes_the_programs_status_on() {
    check 7 '' '*' "$tool" run --library "$probe" sh -c 'exit 7'
    # shellcheck disable=SC2016
    check 143 '' '*' sh -c '"$@"; exit $?' sh "$tool" run --library "$probe" sh -c 'kill -TERM $$'
}

case_run_reports_programs_that_cannot_run() {
    check 127 '' 'overshot: no-such-program: not found' "$tool" run --library "$probe" no-such-program
    check 127 '' 'overshot: ./none: not found' "$tool" run --library "$probe" ./none
    echo 'x' >plain
    check 126 '' 'overshot: ./plain: not executable' "$tool" run --library "$probe" ./plain
    check 126 '' 'overshot: plain: not executable' PATH="$work" "$tool" run --library "$probe" plain
    mkdir folder
    check 127 '' 'overshot: ./folder: not found' "$tool" run --library "$probe" ./folder
    printf '#!/no/such/interpreter\n' >script
    chmod +x script
    check 127 '' '*its interpreter was not found' "$tool" run --library "$probe" ./script
}

case_run_refuses_bad_options() {
    check 125 '' 'overshot run: --budget=5X is not accepted; it takes a size*' "$tool" run --budget=5X true
    check 125 '' '*--mode=fast is not accepted; it takes one of auto, off, resident*' "$tool" run --mode=fast true
    check 125 '' '*unrecognized option*--bugdet*' "$tool" run --bugdet=5G true
    check 125 '' '*no program is named*' "$tool" run --budget=5G
    check 125 '' '*no program is named*' "$tool" run
}

case_run_says_when_there_is_no_library() {
    mkdir bin
    cp "$tool" bin/overshot
    check 125 '' 'overshot: libovershot.so was not found*--library*' bin/overshot run true
    check 125 '' 'overshot: /no/lib.so: No such file*' bin/overshot run --library=/no/lib.so true
    mkdir 'a b'
    cp "$probe" 'a b/lib.so'
    check 125 '' '*a b/lib.so cannot be preloaded*' bin/overshot run --library='a b/lib.so' true
}

case_run_finds_the_library_in_every_layout() {
    for place in bin shim lib lib64 "$libdir"; do
        rm -rf tree
        mkdir -p tree/bin "tree/$place"
        cp "$tool" tree/bin/overshot
        cp "$probe" "tree/$place/libovershot.so"
        # shellcheck disable=SC2016
        check 0 "$work/tree/$place/libovershot.so" 'probe loaded*' tree/bin/overshot run sh -c 'echo "$LD_PRELOAD"'
    done
}

case_run_keeps_other_preloads() {
    cp "$probe" other.so
    # shellcheck disable=SC2016
    check 0 "$work/other.so:$probe" '*' LD_PRELOAD="$work/other.so" "$tool" run --library "$probe" sh -c 'echo "$LD_PRELOAD"'
    # shellcheck disable=SC2016
    check 0 "$probe" '*' "$tool" run --library "$probe" "$tool" run --library "$probe" sh -c 'echo "$LD_PRELOAD"'
}

case_run_warns_of_programs_it_cannot_reach() {
    check 0 'static program ran' 'overshot: *runs without overshot*statically linked' "$tool" run --library "$probe" "$static"
}

case_commands_and_help() {
    check 0 '*Commands:*run *options *env-example *' '' "$tool" --help
    check 0 '*--budget=SIZE*--summary*' '' "$tool" run --help
    check 0 'overshot [0-9]*.[0-9]*.[0-9]*' '' "$tool" --version
    check 125 '' '*no command is named "fly"*' "$tool" fly
    check 125 '' '*Usage:*' "$tool"
    check 125 '' 'overshot: overshot options: unexpected "x"' "$tool" options x
    check 125 '' 'overshot: overshot env-example: unexpected "x"' "$tool" env-example x
}

case_env_example_is_current() {
    "$tool" env-example >made
    diff -u "$source/env.example" made >&2 || {
        echo 'env.example is out of date: overshot env-example > env.example' >&2
        exit 1
    }
}

case_env_example_can_be_sourced() {
    "$tool" env-example | sed 's/^#OVERSHOT/OVERSHOT/' >all
    # shellcheck disable=SC2016
    check 0 'auto 1G warn' '' sh -c 'set -aeu; . ./all; echo "$OVERSHOT_BUDGET $OVERSHOT_GPU_RESERVE $OVERSHOT_LOG"'
}

case_options_describes_every_row() {
    "$tool" options >manual
    "$tool" env-example >example
    rows=0
    sed -n 's/^OV_OPTION(\([A-Z_]*\),.*/\1/p' "$source/runtime/options.def" >names
    while read -r name; do
        rows=$((rows + 1))
        grep -q "^OVERSHOT_$name (default: " manual || { echo "no $name in the manual" >&2; exit 1; }
        grep -q "^#OVERSHOT_$name=" example || { echo "no $name in env.example" >&2; exit 1; }
    done <names
    [ $rows -ge 15 ]
    awk 'length > 100 { bad = 1 } END { exit bad }' manual
}

case_wrap_preloads_the_library() {
    check 0 'hello world' 'probe loaded' OVERSHOT_LIBRARY="$probe" "$wrap" /bin/echo hello world
    # shellcheck disable=SC2016
    check 0 "$probe" '*' OVERSHOT_LIBRARY="$probe" LD_PRELOAD="$probe" "$wrap" sh -c 'echo "$LD_PRELOAD"'
    # shellcheck disable=SC2016
    check 7 'a b||*|' '*' OVERSHOT_LIBRARY="$probe" "$wrap" sh -c 'printf "%s|" "$@"; exit 7' sh 'a b' '' '*'
}

case_wrap_finds_the_library_in_every_layout() {
    for place in bin shim lib lib64 lib/x86_64-linux-gnu; do
        rm -rf tree
        mkdir -p tree/bin "tree/$place"
        cp "$wrap" tree/bin/overshot-wrap
        cp "$probe" "tree/$place/libovershot.so"
        # shellcheck disable=SC2016
        check 0 "$work/tree/$place/libovershot.so" 'probe loaded*' tree/bin/overshot-wrap sh -c 'echo "$LD_PRELOAD"'
    done
    ln -s ../tree/bin/overshot-wrap tree/link
    mkdir elsewhere
    ln -s ../tree/bin/overshot-wrap elsewhere/wrapped
    check 0 '' 'probe loaded' elsewhere/wrapped /bin/true
}

case_wrap_reports_errors() {
    check 125 '' 'overshot-wrap: usage: *' "$wrap"
    check 125 '' 'overshot-wrap: OVERSHOT_LIBRARY=/no/lib.so: no such file' OVERSHOT_LIBRARY=/no/lib.so "$wrap" true
    check 127 '' 'overshot-wrap: no-such-program: not found' OVERSHOT_LIBRARY="$probe" "$wrap" no-such-program
    echo x >plain
    check 126 '' 'overshot-wrap: ./plain: not executable' OVERSHOT_LIBRARY="$probe" "$wrap" ./plain
    mkdir bin
    cp "$wrap" bin/
    check 125 '' 'overshot-wrap: libovershot.so was not found*' bin/overshot-wrap.sh true
}

case_wrap_works_in_other_shells() {
    for shell in dash 'bash --posix' 'busybox sh'; do
        if command -v "${shell%% *}" >/dev/null; then
            # shellcheck disable=SC2086 # words are meant
            check 0 'x' 'probe loaded' OVERSHOT_LIBRARY="$probe" $shell "$wrap" /bin/echo x
        fi
    done
}

case_installed_tools_work() {
    DESTDIR=$work/root cmake --install "$build" --prefix /opt/overshot >install.log 2>&1 || {
        cat install.log >&2
        exit 1
    }
    bin=$work/root/opt/overshot/bin
    check 0 '*' '' "$bin/overshot" --version
    if [ -e "$work/root/opt/overshot/$libdir/libovershot.so" ]; then
        # shellcheck disable=SC2016
        check 0 "$work/root/opt/overshot/$libdir/libovershot.so" '*' "$bin/overshot" run --mode=off -- sh -c 'echo "$LD_PRELOAD"'
        check 0 'ok' '*' "$bin/overshot-wrap" /bin/echo ok
    fi
}

case_library_check_finds_offences() {
    checker=$source/cmake/check_library.sh
    cat >lib.c <<'END'
#include <pthread.h>
#include <dlfcn.h>
#include <math.h>
void *dlsym(void *restrict handle, const char *restrict name) { return handle ? (void *)name : 0; }
int cuInit(unsigned flags) { return (int)flags; }
#ifdef BAD
int cuBad(void) { return 0; }
int stray(double x) { return (int)lgamma(x); }
void *(*opener)(const char *, int) = dlopen;
#endif
END
    echo 'OV_HOOK(cuInit, REQUIRED, (unsigned flags), (flags))' >rows.def
    : >nvml_api.def
    cc -shared -fPIC -nostdlib -fno-stack-protector -o good.so lib.c
    check 0 '' '' "$checker" good.so "$work/rows.def" 2.28 readelf cc
    cc -shared -fPIC -DBAD -Wl,--no-as-needed,-z,now -o bad.so lib.c -lm
    check 1 '' '*needs libm*bound when loaded*refers to dlopen other than*refers to GLIBC_2.*exports cuBad,*exports stray,*' \
        "$checker" bad.so "$work/rows.def" 2.2 readelf cc
    echo 'OV_HOOK(cuGone, REQUIRED, (void), ())' >>rows.def
    check 1 '' '*does not export cuGone' "$checker" good.so "$work/rows.def" 2.28 readelf cc
    echo 'OV_NVML_HOOK(nvmlGone, gone)' >nvml_api.def
    check 1 '' '*does not export cuGone*does not export nvmlGone' "$checker" good.so "$work/rows.def" 2.28 readelf cc
}

"$1"
