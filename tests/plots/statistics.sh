#!/usr/bin/env bash
# statistics.sh PROGRAM: the numbers that the figures' own scripts make of results, against numbers worked out by hand: means and
# their errors, medians, exponents, final losses and sensitivities. PROGRAM is not run.
# shellcheck disable=SC2317,SC2329 # functions are called by their names
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
plots=$here/../../plots
# shellcheck disable=SC2034 # read by tap.sh
scratch=$PWD
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

# awk_of SCRIPT... ARGS: the scripts of the figures behind csv.awk and runs.awk.
awk_of() {
    local scripts=()
    while [[ $1 == *.awk ]]; do
        scripts+=(-f "$plots/$1")
        shift
    done
    rm -f -- series.dat
    LC_ALL=C.UTF-8 awk -f "$plots/csv.awk" -f "$plots/runs.awk" "${scripts[@]}" "$@"
}

# same FILE LINE...: the file's lines, blank ones left out.
same() {
    diff <(printf '%s\n' "${@:2}") <(grep -v '^$' "$1")
}

# The first three layers of three seeds: mean, least and largest of jac_fro; of its errors the error of that mean, which is the
# root of the sum of squares over n: sqrt(9 + 16 + 144) / 3 = 13/3, sqrt(9 + 16) / 3 = 5/3 with an error of 0 among them.
errors() {
    printf '%s\n' run,layout,seed,layer,jac_fro,jac_fro_se r1,pre,0,1,1,3 r2,pre,1,1,2,4 r3,pre,2,1,6,12 \
        r1,pre,0,2,4,3 r2,pre,1,2,4,4 r3,pre,2,2,4,0 r1,pre,0,3,5,2 r2,pre,1,3,nan,1 r3,pre,2,3,7,2 >errors.csv
    awk_of series.awk -v x=layer -v y='jac_fro jac_fro_se' -v by=layout errors.csv || return
    same series.dat '1 3 1 6 4.33333333 3 12' '2 4 4 4 1.66666667 0 4' '3 NaN 5 7 1 1 2'
}
check 'the error of a mean is the root of the sum of squares over their number' errors

one_seed() {
    printf '%s\n' run,layout,seed,layer,jac_fro,jac_fro_se r1,pre,0,1,1,3 >one.csv
    awk_of series.awk -v x=layer -v y='jac_fro jac_fro_se' -v by=layout one.csv || return
    same series.dat '1 1 1 1 3 3 3'
}
check 'the error of one value is its own' one_seed

# medians of loss at three steps: RUNS values each; nan counts as above all
median_of() {
    local values=("$@") i
    {
        echo run,layout,seed,step,loss,overflow_fwd,skipped
        for i in "${!values[@]}"; do
            echo "r$i,pre,$i,0,${values[i]},0,0"
        done
    } >median.csv
    for i in "${!values[@]}"; do
        printf '1\tr%s\n' "$i"
    done >members.dat
    rm -f loss.dat
    awk_of divergence.awk -v y=loss -v window=1 median.csv || return
    # block 1; blocks end in a line of NaN and two blank ones
    awk '/^$/ { blank++; next } blank >= 2 { block++ } { blank = 0 } block == 1 && !/^NaN/' loss.dat
}

is_median() {
    local want=$1 got
    shift
    got=$(median_of "$@") || return
    [ "$got" = "$want" ] || say "the median of $* is $got"
}

medians() {
    is_median '0 5 0' 5 && is_median '0 3 0' 5 1 && is_median '0 3 0' 9 3 1 && is_median '0 4 0' 3 1 100 5 &&
        is_median '0 2.5 0' 4 1 3 2 && is_median '0 2 0' 2 2 8 1 5 && is_median '0 35 0' 10 20 30 40 50 60 &&
        is_median '0 9.5 0' 10 9 100 8
}
check 'the median of an even number is the mean of the middle two' medians

above() {
    is_median '0 7 0' nan 7 1 && is_median '0 0 1' nan nan 1 && is_median '0 0 1' nan 1 && is_median '0 0 1' inf 2 1 nan &&
        is_median '0 2.5 0' nan 2 3 1 && is_median '0 3 0' nan 3 nan 2 1
}
check 'nan and inf are above all values in a median' above

# y = 3 x^2 and x^-0.5 in the second; then two points; then one
exponents() {
    printf '%s\n' '1 3 0 0 1' '2 12 0 0 0.707106781' '4 48 0 0 0.5' '' '' '2 5 0 0 NaN' '8 10 0 0 NaN' '' '' '2 5 0 0 1' '' '' \
        '1 1 0 0 1' '2 NaN 0 0 2' '4 2 0 0 0' '16 4 0 0 1' '' '' '1 1 0 0 1' '10 10 0 0 1' '100 10 0 0 1' '' '' >fit.dat
    awk -f "$plots/fit.awk" fit.dat >fits || return
    same fits '2.000 -0.500' '0.500 NaN' 'NaN NaN' '0.500 0.000' '0.500 0.000'
}
check 'exponents by least squares in the logarithms, of what is positive' exponents

# the last tenth of 20 steps is 2 of them, of 15 also 2, of 10 one
final_losses() {
    {
        echo run,layout,seed,step,loss
        for run in a:20 b:15 c:10; do
            for ((t = 0; t < ${run#*:}; t++)); do
                echo "r${run%:*},pre,0,$t,$((100 - t * t))"
            done
        done
        printf '%s\n' rd,pre,0,0,4 rd,pre,0,1,6 re,pre,0,0,4 re,pre,0,1,nan rf,pre,0,0,4 rf,pre,0,1,4
    } >final_in.csv
    {
        echo run,option,value
        for run in a:20 b:15 c:10 d:2 e:2 f:2; do
            printf '%s\n' "r${run%:*},lr,0.1" "r${run%:*},steps,${run#*:}"
        done
    } >config.csv
    awk_of final.awk final_in.csv || return
    rm config.csv
    diff - <(sed 's/.*,\(r[a-f],\)/\1/; 1d' final.csv) <<'END'
ra,100,-242.5,0
rb,100,-82.5,0
rc,100,19,0
rd,4,4,1
re,4,4,1
rf,4,4,1
END
}
check 'final losses are means over the last tenth of the steps, at most the start' final_losses

# seed 0: (1 + 2 + 6) / 3 - 1 = 2; seed 1: (2 + 2 + 5) / 3 - 2 = 1; seed 2 lacks a rate; the mean is 1.5
sensitivities() {
    {
        echo layout,depth,seed,run,start,loss,censored
        printf '%s\n' pre,2,0,r00,6,1,0 pre,2,0,r01,6,2,0 pre,2,0,r02,6,6,1 pre,2,1,r10,6,2,0 pre,2,1,r11,6,2,0 pre,2,1,r12,6,5,0 \
            pre,2,2,r20,6,1,0 pre,2,2,r21,6,1,0
    } >final.csv
    {
        echo run,option,value
        for run in 00 01 02 10 11 12 20 21; do
            echo "r$run,lr,0.${run#?}1"
        done
    } >config.csv
    for run in 00 01 02 10 11 12 20 21; do
        printf '1\tr%s\n' "$run"
    done >members.dat
    awk_of sensitivity.awk final.csv || return
    rm config.csv
    grep -qxF "sensitivity[1] = '1.500 (1.000–2.000)'" sensitivity.gp || say "$(cat sensitivity.gp)"
}
check 'sensitivity of a seed is its mean loss over the rates above the least' sensitivities

# 4 layers of a site, two seeds: a cell has the worst; the first overflow is that of the lowest layer, in gradients of the highest
cells() {
    {
        echo run,layout,seed,step,layer,sublayer,site,direction,nan_made,propagated,overflow,headroom_bits
        printf '%s\n' r1,pre,0,0,1,attn,qkv,fwd,0,0,0,5 r1,pre,0,0,2,attn,qkv,fwd,0,0,3,-inf r1,pre,0,0,3,attn,qkv,fwd,0,2,1,-inf \
            r2,pre,1,0,1,attn,qkv,fwd,0,0,0,4.2 r2,pre,1,0,2,attn,qkv,fwd,0,0,8,-inf r2,pre,1,0,3,attn,qkv,fwd,0,0,0,7
    } >sites.csv
    local settings=(-v axis=layer -v step=last -v depth=deepest -v format=own)
    rm -f cells.dat
    awk_of sites.awk "${settings[@]}" -v what=overflow -v direction=fwd sites.csv || return
    grep -q "finding\[1\] = 'first overflow: layer 2, attn qkv'" sites.gp || say "$(cat sites.gp)" || return
    grep -qx '2 2 1 8' cells.dat && grep -qx '3 3 1 1' cells.dat || say "$(cat cells.dat)" || return
    rm -f cells.dat
    awk_of sites.awk "${settings[@]}" -v what=headroom -v direction=fwd sites.csv || return
    grep -qx '1 1 1 4.2' cells.dat || say "$(cat cells.dat)" || return # the text; the colour is that of 4.0
    grep -qx '1 1 1 4.0' cells.dat || say "$(cat cells.dat)" || return
    sed 's/,fwd,/,bwd,/' sites.csv >bwd.csv
    rm -f cells.dat
    awk_of sites.awk "${settings[@]}" -v what=overflow -v direction=bwd bwd.csv || return
    grep -q "finding\[1\] = 'first overflow: layer 3, attn qkv'" sites.gp || say "$(cat sites.gp)"
}
check 'cells of a heat map have the worst of the seeds, gradients are read from the last layer on' cells

done_testing
