#!/usr/bin/env bash
# headers.sh ROOT BUILD COMPILER...: each header compiles alone.
set -euo pipefail
root=$1
build=$2
shift 2
cd -- "$root"
shopt -s nullglob
bad=0
for header in harness/*/*.h layouts/*.h probes/*.h results/*.h; do
    if ! "$@" -std=c17 -D_GNU_SOURCE -DNH_REAL_BITS=32 -Wall -Wextra -Werror -I. -I"$build" -fsyntax-only -x c \
        -include "$header" /dev/null; then
        echo "$header does not compile alone"
        bad=1
    fi
done
exit "$bad"
