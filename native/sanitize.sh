#!/usr/bin/env bash
# Builds native/ with one of GCC's sanitizers into an environment of its own and runs the tests that reach it.
#   native/sanitize.sh address      out-of-bounds and freed memory, and undefined behaviour
#   native/sanitize.sh thread       data races
# An argument after the first replaces the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
shift
tests=("${@:-tests/device/ops}")
home=build/sanitize-$kind
library() { readlink -f "$(${CXX:-g++} -print-file-name="$1")"; }
case $kind in
    address) preload="$(library libasan.so) $(library libubsan.so)" ;;
    thread) preload=$(library libtsan.so) ;;
    *) echo "usage: native/sanitize.sh address|thread [TEST...]" >&2; exit 2 ;;
esac

# What Ratoon depends on comes from .venv; Ratoon itself is installed again, instrumented.
if [ ! -e "$home/bin/python" ]; then
    .venv/bin/python -m venv "$home"
    .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$("$home/bin/python" -c \
        'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
fi
"$home/bin/pip" install --quiet --no-deps --force-reinstall --config-settings=build-dir="$home/build" \
    --config-settings=cmake.define.RATOON_SANITIZE="$kind" .

# Leaks are the interpreter's. libstdc++ comes first, or exceptions could not be intercepted.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export LD_PRELOAD="$preload $(library libstdc++.so)"
exec "$home/bin/python" -m pytest -p no:cacheprovider -x "${tests[@]}"
