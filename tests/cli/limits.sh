#!/usr/bin/env bash
# limits.sh PROGRAM: under a limit on memory a run is refused with a number, and under that number it runs.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
here=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$scratch"
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
model=(run --depth 2 --width 64 --heads 4 --data zipf --vocab 256 --seq 32 --batch 8 --threads 2)

# under OPTION KIBIBYTES WORD...: the program with such a limit
under() {
    (ulimit "$1" "$2" && exec "$program" "${@:3}") >out 2>err
}

# number_that_does OPTION
number_that_does() {
    local option=$1 limit=300000 status=0 needed
    if ! under "$option" "$limit" --version; then
        echo 'this build does not start under such a limit' && return 77
    fi
    under "$option" "$limit" "${model[@]}" --out refused || status=$?
    cat err
    [ "$status" -eq 1 ] && [ ! -e refused ] && [ "$(wc -l <err)" -eq 1 ] || return
    needed=$(sed -n "s/^harness: .* raise it with ulimit $option \([0-9]*\), or .*/\1/p" err)
    [ "$needed" -gt "$limit" ] || return
    under "$option" "$needed" "${model[@]}" --out taken || { cat err && return 1; }
    [ -e taken/run.json ]
}
check 'a limit on address space is told with the number that does' number_that_does -v

done_testing
