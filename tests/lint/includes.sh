#!/usr/bin/env bash
# includes.sh ROOT: includes point one way only. The first rule that fits a file counts: it may include what is named, and
# from its own folder *.h and *.inc where the rule says "own".
set -euo pipefail
cd -- "$1"
shopt -s nullglob

rules='
layouts/layout.h    harness/core/*.h
layouts/registry.c  layouts/layout.h layouts/layouts.inc
layouts/*.c         layouts/layout.h
probes/probe.h      harness/core/*.h results/schema.h
probes/registry.c   probes/probe.h probes/probes.inc
probes/*.c          probes/probe.h harness/core/err.h harness/core/rng.h
results/*           own results/schema.def harness/core/err.h
harness/core/*      own layouts/layout.h
harness/data/*      own harness/core/*.h results/file.h results/input.h data_sources.inc
harness/io/*        own harness/core/err.h results/file.h results/input.h
harness/hf/*        own harness/core/*.h harness/io/*.h results/file.h results/input.h results/number.h
harness/cli/*       own harness/core/*.h harness/data/*.h harness/hf/*.h harness/io/*.h results/*.h layouts/layout.h probes/probe.h
'
bad=0

# allowed FILE INCLUDED
allowed() {
    local pattern targets target
    while read -r pattern targets; do
        # shellcheck disable=SC2053 # the right side is a pattern
        [[ -n $pattern && $1 == $pattern ]] || continue
        set -f
        for target in $targets; do
            # shellcheck disable=SC2053
            if [[ $2 == $target || ($target == own && $2 == ${1%/*}/*.@(h|inc)) ]]; then
                set +f
                return 0
            fi
        done
        set +f
        return 1
    done <<<"$rules"
    return 1
}

seen=0
for file in harness/*/*.[ch] layouts/*.[ch] probes/*.[ch] results/*.[ch]; do
    while IFS=: read -r line included; do
        seen=$((seen + 1))
        if ! allowed "$file" "$included"; then
            echo "$file:$line: must not include \"$included\""
            bad=1
        fi
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file" | sed -E 's/^([0-9]+):[^"]*"([^"]*)".*/\1:\2/')
done
if [ "$seen" -eq 0 ]; then
    echo "no #include line found: wrong folder?"
    bad=1
fi
exit "$bad"
