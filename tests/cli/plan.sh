#!/usr/bin/env bash
# plan.sh PROGRAM: what --dry-run tells of a run, against sums worked out by hand.
# shellcheck disable=SC2317,SC2329 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
printf "%s\n" "0 1 2 3 4 5 6 31" "7 6 5 4 3 2 1 0" >ids
scratch=$PWD
# shellcheck source=tests/tap.sh
. "$(dirname -- "$(realpath -- "$0")")/../tap.sh"

small=(--dry-run --depth 2 --width 16 --heads 2 --vocab 32 --seq 8 --batch 2 --data)

# Of 16 rows: q, k and v 2 x 16 x 16 x 48, output 2 x 16 x 16 x 16, FFN 2 x (2 x 16 x 16 x 64), the causal half of q.k and p.v
# 2 x 16 x 8 x 16, all of that twice; the head 2 x 16 x 16 x 32.
forward=221184

# plan PARAMETERS PASSES DATA OPTIONS...: so many weights, and work of so many forward passes in all.
plan() {
    local parameters=$1 passes=$2 want
    shift 2
    run 0 "${small[@]}" "$@" || return
    want=$(LC_ALL=C awk -v f="$forward" -v n="$passes" 'BEGIN { printf "%.4g in matrix products, forward; %.4g in all", f, n * f }')
    grep -q "^operations  $want" out || say "not $want: $(cat out)" || return
    grep -q "^parameters  $parameters$" out || say "not $parameters parameters: $(cat out)"
}

# two tables of 32 x 16, and twice q, k, v, output, FFN, two gains; a final gain
check 'a forward pass' plan 7248 1 tokens:ids --probes none
check 'a backward pass is two' plan 7248 3 tokens:ids --probes grad
check 'steps are forward and backward passes' plan 7248 30 tokens:ids --probes none --steps 10
check 'batches of a step count' plan 7248 90 tokens:ids --probes none --steps 10 --grad-accum 3
check 'eight batches of what is held out, behind the last step' plan 7248 38 uniform --probes none --steps 10
check 'and every so many steps: 0, 4, 8, 9' plan 7248 62 uniform --probes none --steps 10 --val-every 4
check 'and where the last step is such a one: 0, 3, 6, 9' plan 7248 62 uniform --probes none --steps 10 --val-every 3
check 'samples and iterations of the Jacobians, twice' plan 7248 21 uniform --probes jacobian --jac-samples 4 --jac-iterations 3
check 'a probe with a twin looks at steps 0, 5, 10' plan 7248 47 uniform --probes error --steps 11 --probe-every 5
check 'a probe with a twin looks at steps 0, 5, 10, 11' plan 7248 52 uniform --probes error --steps 12 --probe-every 5
check 'a probe with a twin looks at the first and the last step' plan 7248 48 uniform --probes error --steps 12
check 'a probe with a twin looks at the one step' plan 7248 13 uniform --probes error --steps 1

done_testing
