#!/usr/bin/env bash
# lists.sh ROOT: every source file is in its meson.build list, so that none is left out of the build unnoticed.
set -euo pipefail
cd -- "$1"
shopt -s nullglob
bad=0

# listed FILE WORD BUILD: BUILD has WORD between quotes.
listed() {
    grep -qF "'$2'" "$3" && return
    echo "$1 is not built: '$2' is missing in $3"
    bad=1
}

for file in layouts/*.c probes/*.c; do
    word=$(basename "$file" .c)
    [ "$word" = registry ] || listed "$file" "$word" "$(dirname "$file")/meson.build"
done
for file in harness/*/*.c; do
    grep -qF "harness/data/' + word" meson.build && [[ $file == harness/data/* ]] &&
        grep -qF "'$(basename "$file" .c)'" meson.build && continue
    listed "$file" "$file" meson.build
done
for file in results/*.c; do
    listed "$file" "$(basename "$file")" results/meson.build
done
for file in tests/*/test_*.c; do
    suite=$(basename "$(dirname "$file")")
    name=$(basename "$file" .c)
    listed "$file" "$suite/${name#test_}" tests/meson.build
done
for file in tests/{cli,plots}/*.sh; do
    suite=$(basename "$(dirname "$file")")
    listed "$file" "$suite/$(basename "$file" .sh)" tests/meson.build
done
for file in docs/*.md; do
    listed "$file" "$(basename "$file" .md)" tests/meson.build
done
for file in tests/fuzz/fuzz_*.c tests/bench/bench_*.c; do
    name=$(basename "$file" .c)
    listed "$file" "${name#*_}" tests/meson.build
done
exit "$bad"
