#!/usr/bin/env bash
# loop.sh PROGRAM: the loop of training, by what it writes: which batches a step has, what is held out, when a run has diverged.
# Weights that move by nothing (--lr 1e-30) show the losses of the data alone.
# shellcheck disable=SC2317,SC2329 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
# shellcheck disable=SC2034 # read by tap.sh
scratch=$PWD
# shellcheck source=tests/tap.sh
. "$(dirname -- "$(realpath -- "$0")")/../tap.sh"

small=(--depth 1 --width 16 --heads 2 --data uniform --vocab 32 --seq 16 --batch 8 --dtype fp32 --probes none)
still=("${small[@]}" --lr 1e-30)

# number FOLDER NAME: a number of run.json.
number() {
    sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$1/run.json"
}

# near A B SLACK
near() {
    awk -v a="$1" -v b="$2" -v e="$3" 'BEGIN { exit !(a != "" && b != "" && a - b <= e && b - a <= e) }' || say "$1 is not $2"
}

mean_of() {
    awk '{ s += $1 } END { printf "%.17g", s / NR }'
}

accumulated() {
    run 0 "${still[@]}" --steps 6 --out apart && run 0 "${still[@]}" --steps 2 --grad-accum 3 --out together || return
    near "$(column together/steps.csv loss | sed -n 1p)" "$(column apart/steps.csv loss | sed -n 1,3p | mean_of)" 1e-9 &&
        near "$(column together/steps.csv loss | sed -n 2p)" "$(column apart/steps.csv loss | sed -n 4,6p | mean_of)" 1e-9 || return
    [ "$(column together/steps.csv tokens | xargs)" = '384 768' ] || say "tokens $(column together/steps.csv tokens | xargs)"
}
check 'a step of three batches has the mean loss of the three that follow' accumulated

# 8 batches of 120 targets each, of the same distribution as those of the training: means of 960 that differ by some per cent.
held_out() {
    run 0 "${still[@]}" --steps 9 --val-every 4 --out held || return
    local losses
    losses=$(column held/steps.csv val_loss)
    [ "$(grep -n . <<<"$losses" | cut -d: -f1 | xargs)" = '1 5 9' ] || say "losses of what is held out: $losses" || return
    near "$(sed -n 1p <<<"$losses")" "$(sed -n 9p <<<"$losses")" 1e-9 &&
        near "$(sed -n 1p <<<"$losses")" "$(column held/steps.csv loss | sed -n 1,8p | mean_of)" 0.15 &&
        near "$(sed -n 9p <<<"$losses")" "$(number held val_loss)" 1e-9
}
check 'what is held out is measured every so many steps and at the last, as a mean over batches' held_out

# The bar is the first loss and 1; rates around 1 end on both sides of it.
diverged() {
    local lr start final status above=0
    for lr in 0.01 0.5 0.7 1 1.4 2 3; do
        run 0 "${small[@]}" --steps 10 --lr "$lr" --clip off --schedule constant --warmup 0 --out rate --force || return
        start=$(number rate start_loss) final=$(number rate final_loss) status=$(field rate status)
        near "$start" "$(column rate/steps.csv loss | head -n 1)" 1e-9 && near "$final" "$(column rate/steps.csv loss | tail -n 1)" 1e-9 ||
            return
        if awk -v a="$final" -v b="$start" 'BEGIN { exit !(a > b + 1) }'; then
            above=$((above + 1))
            [ "$status" = diverged ] || say "lr $lr: $status from $start to $final" || return
        else
            [ "$status" = ok ] || say "lr $lr: $status from $start to $final" || return
        fi
    done
    [ "$above" -gt 0 ] || say 'no rate ends above the bar'
}
check 'a run that ends more than 1 above its first loss has diverged' diverged

# With 20 steps the tail is 2 of them, with 15 also 2, with 10 one.
tails() {
    local steps n
    for steps in 20:2 15:2 10:1 1:1; do
        n=${steps#*:} steps=${steps%:*}
        run 0 "${still[@]}" --steps "$steps" --out tail --force || return
        near "$(number tail final_loss)" "$(column tail/steps.csv loss | tail -n "$n" | mean_of)" 1e-9 || return
    done
}
check 'the final loss is the mean over the last tenth of the steps' tails

# A window of 7 clean steps doubles the scale.
windows() {
    local scaled=("${small[@]/fp32/fp16}" --policy plain --scale-window 7 --lr 1e-6 --steps 20)
    run 0 "${scaled[@]}" --out whole || return
    [ "$(column whole/steps.csv loss_scale | uniq -c | awk '{ print $1 "x" $2 }' | xargs)" = '7x65536 7x131072 6x262144' ] ||
        say "$(column whole/steps.csv loss_scale | xargs)"
}
check 'a window of clean steps doubles the loss scale' windows

done_testing
