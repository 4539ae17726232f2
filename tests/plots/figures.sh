#!/usr/bin/env bash
# figures.sh: every figure on small results with nan, inf and zero, in every kind of file, whole and without a warning.
set -euo pipefail
root=$(dirname -- "$(realpath -- "$0")")/../..
# shellcheck source=tests/draw.sh
. "$root/tests/draw.sh"

# Of a figure: the file to draw, the column without which it is nothing, the settings.
figure_data() {
    settings=()
    case $1 in
    growth) file=layers column=rms ;;
    gradient) file=layers column=grad_rms ;;
    jacobian) file=layers column=jac_fro ;;
    depth-law) file=power column=rms ;;
    overflow) file=sites column=overflow ;;
    headroom) file=sites column=headroom_bits ;;
    divergence) file=training/steps column=loss ;;
    lr-sensitivity) file=rates/steps column=loss ;;
    curve) file=steps column=loss settings=(--set x=step --set y=loss --set file=steps) ;;
    *) die "figure $1 has no test" ;;
    esac
    file=$data/$file.csv
    rm -f config.csv
    [ ! -e "${file%/*}/config.csv" ] || cp "${file%/*}/config.csv" .
}

figures=()
for script in "$root"/plots/*.gp; do
    figure=$(basename "$script" .gp)
    [ "$figure" != style ] || continue
    [[ $(head -n 1 "$script") == '# '*'?' ]] || die "$figure.gp does not begin with its question"
    figures+=("$figure")
done

for figure in "${figures[@]}"; do
    figure_data "$figure"
    for ending in svg png pdf; do
        plot "$figure" "$file" -o "$figure.$ending" "${settings[@]}"
        [ "$(cat stdout)" = "$figure.$ending" ] || die "stdout is $(cat stdout)"
        whole "$figure.$ending"
    done

    # CR LF, a last line that is not ended, the header once more behind some rows: the same figure.
    sed 's/$/\r/' "$file" >crlf.csv
    plot "$figure" crlf.csv -o other.svg "${settings[@]}"
    cmp "$figure.svg" other.svg || die "$figure: CR LF makes a difference"
    { sed -n 1,20p "$file" && sed -n 1p "$file" && sed -n '21,$p' "$file" | head -c -1; } >again.csv
    plot "$figure" again.csv -o other.svg "${settings[@]}"
    cmp "$figure.svg" other.svg || die "$figure: a second header makes a difference"

    # Nothing finite: a warning and a whole figure. Nothing measured, no such column, no number: a sentence and no figure.
    for value in nan inf; do
        filled "$column" "$value" "$file" >none.csv
        for ending in svg png; do
            "$root/plots/plot" "$figure" none.csv -o "none.$ending" "${settings[@]}" >stdout 2>stderr ||
                die "$figure of $value ended with $?: $(cat stderr)"
            [ "$(cat stderr)" = "plot: warning: column $column has no finite value" ] || die "$figure of $value says: $(cat stderr)"
            whole "none.$ending"
        done
    done
    filled "$column" '' "$file" >none.csv
    refuses 1 "nothing was measured: every row of column $column is empty" "$figure" none.csv -o x.svg "${settings[@]}"
    sed "1s/\\b$column\\b/x$column/" "$file" >none.csv
    refuses 1 "no column $column" "$figure" none.csv -o x.svg "${settings[@]}"
    filled "$column" many "$file" >none.csv
    refuses 1 "column $column holds \"many\", which is no number" "$figure" none.csv -o x.svg "${settings[@]}"
    sed -n 1p "$file" >none.csv
    refuses 1 'have no row' "$figure" none.csv -o x.svg "${settings[@]}"
    : >none.csv
    refuses 1 'none.csv: empty' "$figure" none.csv -o x.svg "${settings[@]}"
    [ ! -e x.svg ] || die "a $figure that failed left a file"
done

says growth.svg no-norm sandwich sandwich-l post pre law 'no-norm: inf' 'pre: 0' 'RMS of the residual stream by depth'
plot growth "$data/layers.csv" --set log=no -o linear.svg
says linear.svg 'no-norm: inf' pre
silent linear.svg 'pre: 0'

# inf, nan and zero are told on a logarithmic axis. The exponents are those that the file was made with, over the depths at
# which all seeds are finite.
says gradient.svg 'no-norm: inf' 'no-norm: 0' 'pre: 0' 'L = 6, fp16, init unit, “edge cases, quoted”, mean and range of 1 to 2 seeds'
says depth-law.svg 'a 0.370 (law 0.500)' 'b 0.000' 'c 0.250 (law 0.250)' 'c: inf in 1 of 2 runs' \
    'fp16, init unit, 2 seeds (rings) and their mean'
grep -e ^run -e ',8,fp16' "$data/power.csv" >one-depth.csv
plot depth-law one-depth.csv -o one-depth.svg
says one-depth.svg a b c

# Of runs that differ in depth the deepest, or as asked. A name that does not fit into a panel is left out of its sentence.
python3 - "$data/layers.csv" >long.csv <<'EOF'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline='')))
at = {name: i for i, name in enumerate(rows[0])}
out = [rows[0]]
for depth, name in (6, ''), (8, ''), (8, ' of a name that is too long for a panel'):
    for r in rows[1:]:
        out.append([*r])
        out[-1][at['run']] += str(depth) + str(len(name))
        out[-1][at['layout']] += name
        out[-1][at['depth']] = depth
csv.writer(sys.stdout, lineterminator='\n').writerows(out)
EOF
for figure in growth gradient jacobian; do
    plot "$figure" long.csv -o long.svg
    grep -q 'L = 8, fp16, .*, deepest runs' long.svg || die "$figure does not draw the deepest runs"
    plot "$figure" long.csv --set depth=all -o long.svg
    grep -q '>no-norm, L 6' long.svg || die "$figure does not draw all depths"
    plot "$figure" long.csv --set depth=6 -o long.svg
    ! grep -q 'L [= ]*8' long.svg || die "$figure draws another depth"
    refuses 1 'no run has depth 4' "$figure" long.csv --set depth=4
done
plot jacobian long.csv -o long.svg
says long.svg 'no-norm: inf' inf

# Two streams, the second one thinner; one block a layer.
plot growth "$data/streams.csv" -o streams.svg
says streams.svg residual 'residual, stream 1' law
plot gradient "$data/streams.csv" -o streams.svg
says streams.svg 'residual, stream 1'
! grep -qE 'stroke-dasharray|213, *94, *0' streams.svg || die "a stream has dashes or a colour of its own"
plot jacobian "$data/streams.csv" -o streams.svg
says streams.svg block 'residual: 1.20, 31.00'
silent streams.svg attention FFN
says jacobian.svg attention FFN 'no-norm: nan, nan' 'post: 1.10, 29.70' 'no-norm: inf'

# Heat maps: what overflows first in the order of execution; a run without overflow; numbers in cells.
says overflow.svg 'a – first overflow: layer 2, attn residual' 'b – no overflow in 31000 values' 'makes NaN' 'sets rows to zero' \
    'inf or NaN passes through' 'L = 3, e4m10, init unit, worst of 2 seeds'
grep -q '> *20<' overflow.svg || die "the most of the seeds is not on the scale"
plot overflow "$data/sites.csv" --set direction=bwd -o bwd.svg
says bwd.svg 'a – first overflow: layer 2, ffn ffn_in'
grep -e ^run -e ',b,' "$data/sites.csv" >healthy.csv
plot overflow healthy.csv -o healthy.svg
says healthy.svg 'No overflow at any site, forward' 'b – no overflow in 31000 values' 'L = 3, e4m10, init unit, seed 0'
silent headroom.svg 'white: only zeros'
says headroom.svg 'a – first overflow: layer 2, attn residual' 'b – least: 9.5 bits, layer 3, attn residual' 11.4 overflow
# In another format: the twin's values, 2^20 at the residual add of layer 2; an fp32 run is its own twin; of others nothing is known.
awk -F, -v OFS=, 'NR == 1 { print $0, "max_abs_fp32" } NR > 1 { print $0, $12 == "residual" && $10 == 2 ? 1048576 : 8 }' healthy.csv >twin.csv
plot headroom twin.csv --set format=fp16 -o twin.svg
says twin.svg 'Headroom in fp16 by site and layer, forward' 'b – first that would overflow: layer 2, attn residual' 13.0
plot headroom twin.csv --set format=bf16 -o twin.svg
says twin.svg 'b – least: 108.0 bits, layer 2, attn residual'
sed 's/,e4m10,/,fp32,/' healthy.csv >wide.csv
plot headroom wide.csv --set format=fp8-e5m2 -o wide.svg
says wide.svg 'Headroom in fp8-e5m2 by site and layer, forward'
refuses 1 'run with --dtype fp32, or add headroom' headroom healthy.csv --set format=fp16 -o no.svg
refuses 1 'headroom is in own, fp16' headroom wide.csv --set format=e4m3 -o no.svg
plot headroom healthy.csv --set direction=bwd -o healthy.svg
says healthy.svg 'white: only zeros'
{ cat "$data/sites.csv" && sed '1d; s/,b,3,/,b,5,/; s/^r00000003/r00000004/; /,a,/d' "$data/sites.csv"; } >depths.csv
plot overflow depths.csv -o depths.svg
says depths.svg 'b, L 5 – no overflow in 31000 values' 'e4m10, init unit, deepest runs, worst of 2 seeds'
silent depths.svg 'b, L 3 – no overflow in 31000 values'
plot overflow depths.csv --set depth=3 -o depths.svg
cmp overflow.svg depths.svg || die "depth=3 draws another depth"
refuses 1 'no run has depth 4' overflow depths.csv --set depth=4
refuses 1 'no row of direction sideways' overflow "$data/sites.csv" --set direction=sideways

# By step: the overflows of all layers together; the scale stands there even if the first panel needs none. One step is enough.
python3 - "$data/sites.csv" >looks.csv <<'EOF'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline='')))
at = {name: i for i, name in enumerate(rows[0])}
out = [rows[0]]
for step in 0, 5, 10:
    for r in rows[1:]:
        r = [*r]
        r[at['step']] = step
        if r[at['layout']] == 'b' and step == 10:
            continue
        if r[at['layout']] == 'a':
            r[at['layout']] = 'c'
            if step == 0:
                for name in 'overflow', 'nan_made', 'propagated', 'zero_made':
                    r[at[name]] = 0
            elif step == 10 and r[at['site']] == 'residual' and r[at['sublayer']] == 'attn':
                r[at['overflow']] = 40
        out.append(r)
csv.writer(sys.stdout, lineterminator='\n').writerows(out)
EOF
plot overflow looks.csv --set over=step -o steps.svg
says steps.svg 'c – first overflow seen: step 5, layer 2, attn residual' 'b – no overflow in 62000 values' 'no such site or step' \
    'Overflows by site and step, forward' 'step of training (all layers together)' 'overflowed values'
grep -q '> *100<' steps.svg || die "the overflows of three layers are not added up"
plot headroom looks.csv --set over=step -o steps.svg
says steps.svg 'b – least: 9.5 bits, step 0, layer 3, attn residual' 'Headroom by site and step, forward'
plot overflow "$data/sites.csv" --set over=step -o steps.svg
refuses 1 'over=month: a heat map has its columns over layer or step' overflow "$data/sites.csv" --set over=month

# Any column against any other. A run that has diverged is not dropped from the mean.
says curve.svg 'pre: nan in 1 of 2 runs' pre sandwich 'loss by step' 'L = 12, fp16, init gpt2, mean and range of 2 seeds'
plot curve "$data/../csv/sweep_with_diverged.csv" --set x=seed --set y=final_loss -o sweep.svg
says sweep.svg 'pre: nan in 2 of 4 runs'
plot curve "$data/../csv/mixed_gap.csv" --set x=layer -o gap.svg
says gap.svg rms 'rms: nan'
"$root/plots/plot" curve "$data/../csv/all_nan.csv" --set x=step --set y=loss -o all.svg >stdout 2>stderr || die "no figure of nan alone"
[ "$(cat stderr)" = 'plot: warning: column loss has no finite value' ] || die "a figure of nan alone says: $(cat stderr)"
whole all.svg
says all.svg 'loss: nan'
plot curve "$data/layers.csv" --set x=rms --set y=grad_rms --set log=xy -o points.svg
says points.svg 'grad_rms by rms' 'no-norm: inf'
plot curve "$data/sites.csv" --set file=sites --set x=layer --set y=headroom_bits --set by=layout,site --set sublayer=attn -o sites.svg
says sites.svg 'a, residual' 'b, qkv' 'headroom_bits by layer, sublayer attn, direction fwd'
# Lines are told apart by the option lr, not by the rate of each step. No mean is that of the runs that are left.
mkdir rate
cp "$data/steps.csv" rate
{ echo run,option,value && sed '1d; s/,.*/,lr,0.1/' "$data/steps.csv" | sort -u; } >rate/config.csv
plot curve rate --set file=steps --set x=step --set y=loss --set by=lr,layout -o rate.svg
says rate.svg 'lr 0.1, pre' 'lr 0.1, sandwich'
printf '%s\n' run,layout,seed,step,loss 1,pre,0,0,4 2,pre,1,0,3 2,pre,1,1,2 >shorter.csv
awk -f "$root/plots/csv.awk" -f "$root/plots/runs.awk" -f "$root/plots/series.awk" -v x=step -v y=loss -v by=layout shorter.csv
grep -qx '1 NaN 2 2' series.dat || die "behind the end of a run there is a mean: $(cat series.dat)"
# A legend of numbers has their order, one of words that of the ends.
printf '%s\n' run,depth,step,loss 1,8,0,2 1,8,1,3 2,64,0,2 2,64,1,nan 3,128,0,2 3,128,1,5 >numbers.csv
plot curve numbers.csv --set x=step --set y=loss --set by=depth -o legend.svg
[ "$(grep -o '<text>L [0-9]*<' legend.svg | tr -dc '0-9\n' | xargs)" = '8 64 128' ] || die "a legend of numbers is out of order"
sed '1s/depth/layout/; s/,8,/,low,/; s/,64,/,middle,/; s/,128,/,high,/' numbers.csv >words.csv
plot curve words.csv --set x=step --set y=loss -o legend.svg
[ "$(grep -oE '<text>(low|middle|high)<' legend.svg | sed 's/<text>//; s/<//' | xargs)" = 'middle high low' ] ||
    die "a legend of words is out of order"

# Means of the last three points of each run, before those of the seeds; nan, inf and zero are none of them.
printf '%s\n' run,layout,seed,step,loss 1,pre,0,0,4 1,pre,0,1,2 1,pre,0,2,0 1,pre,0,3,1 1,pre,0,4,nan 1,pre,0,5,8 1,pre,0,6,6 \
    2,pre,1,0,2 2,pre,1,1,2 2,pre,1,2,2 2,pre,1,3,5 2,pre,1,4,2 2,pre,1,5,-inf 2,pre,1,6,2 >noisy.csv
awk -f "$root/plots/csv.awk" -f "$root/plots/runs.awk" -f "$root/plots/series.awk" -v x=step -v y=loss -v by=layout -v smooth=3 noisy.csv
printf '%s\n' '0 3 2 4' '1 2.5 2 3' '2 2 2 2' '3 2 1 3' '4 NaN 3 3' '5 NaN 8 8' '6 4.5 2 7' '' '' >want
cmp want series.dat || die "means of three points: $(cat series.dat)"
steps=(--set file=steps --set x=step --set y=loss)
plot curve noisy.csv "${steps[@]}" --set smooth=3 -o smooth.svg
says smooth.svg 'loss (mean of the last 3 steps)' 'pre: nan'
plot curve noisy.csv --set x=step --set y=loss --set smooth=3 -o smooth.svg
says smooth.svg 'loss (mean of the last 3 points)'
plot curve noisy.csv "${steps[@]}" -o rough.svg
plot curve noisy.csv "${steps[@]}" --set smooth=1 -o smooth.svg
cmp rough.svg smooth.svg || die "means of one point are not the points"
for wrong in 0 -3 2.5 many; do
    refuses 1 "smooth=$wrong: a whole number of points, 1 or more" curve noisy.csv "${steps[@]}" --set smooth=$wrong -o x.svg
done
refuses 1 'smooth=3 needs an x of many points a run, such as step; seed is the same in all of a run' \
    curve noisy.csv "${steps[@]}" --set x=seed --set smooth=3 -o x.svg
{ sed -n 1p noisy.csv && sed 1d noisy.csv | tac; } >backwards.csv
refuses 1 'smooth=3 needs the rows of each run in the order of step, but 6 is followed by 5' \
    curve backwards.csv "${steps[@]}" --set smooth=3 -o x.svg
refuses 2 'no setting "smooth=3"' growth "$data/layers.csv" --set smooth=3 -o x.svg

refuses 1 'more than one row at layer 1; choose with --set' curve "$data/layers.csv" --set x=layer
refuses 1 'no column nothing' curve "$data/layers.csv" --set y=nothing
refuses 1 'no column nothing' curve "$data/layers.csv" --set by=layout,nothing
refuses 1 'column layout holds "sandwich", which is no number' curve "$data/layers.csv" --set y=layout

# Training step by step: first overflows, maxima of the formats, a loss scale that is always 1, many steps, kinds of runs.
says divergence.svg 'Training step by step' 'L = 12, init gpt2, 1 to 3 seeds (thin) and their median' \
    'lr 0.1, warmup 2, schedule constant, optimizer adamw, clip 1, weight-decay 0, batch 4' \
    'pre, fp16: overflow at step 4–6 (2 of 3)' 'sandwich, fp16: overflow at step 5' 'sandwich, bf16: no overflow' \
    'loss (nats)' 'loss scale' 'largest |x|' 'largest |score|' 'fp16: 65504' 2¹⁶ 10⁵ \
    'first forward overflow' 'nan or inf begins' 'step skipped' 'largest value of the format'
# Short trainings that end at once, alone and together: a loss scale that is 1 and skips, one step, values at the ends of fp64.
cat >ends.csv <<'EOF'
run,label,layout,depth,dtype,policy,init,seed,step,loss,lr,grad_norm,loss_scale,skipped,overflow_fwd,overflow_bwd,max_abs,max_score
r00000001,,pre,1,fp32,plain,normal,0,0,3.465194378580366,0.001,1.5,1,0,0,0,0.0556,0.0175
r00000001,,pre,1,fp32,plain,normal,0,1,300919.890625,0.001,4849497.6,1,0,0,0,194433138688,6256022.5
r00000001,,pre,1,fp32,plain,normal,0,2,nan,0.001,nan,1,1,0,0,112983465984,10194253
r00000002,,pre,1,fp32,plain,unit,0,0,16055.87827845982,3e+38,8181.2,1,0,0,0,4.85,2.56
r00000002,,pre,1,fp32,plain,unit,0,1,nan,3e+38,nan,1,1,3659,0,inf,nan
r00000003,,pre,1,fp64,plain,unit,0,0,3.5,0.001,1,1,0,0,0,4,2
r00000004,,no-norm,1,fp64,plain,unit,0,0,4.0637725469703864e+150,1e+200,7.8e+149,1,0,0,0,5.8e+150,2.9650814395954336e+300
r00000004,,no-norm,1,fp64,plain,unit,0,1,nan,1e+200,nan,1,1,2888,0,5.1e+199,inf
r00000005,,no-norm,1,fp64,plain,normal,0,0,nan,1,nan,1,1,144,0,3.530835915165392e+306,inf
r00000006,,pre,1,fp64,plain,normal,1,0,3.4657359027997265,1,3425695.8,1,0,0,0,1.0771353730361871e-295,0
EOF
for run in 1 2 3 4 5 6; do
    printf '%s\n' run,option,value "r0000000$run,lr,1e-$run" "r0000000$run,steps,3"
done >config.csv
for runs in '[12]' 3 5 '[1-6]'; do
    grep -e ^run -e "^r0000000$runs" ends.csv >some.csv
    for figure in divergence lr-sensitivity 'curve --set x=step --set file=steps --set y=max_abs' 'curve --set x=loss_scale --set file=steps --set y=grad_norm'; do
        # shellcheck disable=SC2086 # words
        "$root/plots/plot" $figure some.csv -o ends.svg >stdout 2>stderr || die "$figure of $runs ended with $?: $(cat stderr)"
        ! grep -v '^plot: warning: column [a-z_]* has no finite value$' stderr || die "$figure of $runs complains"
        whole ends.svg
    done
done
rm config.csv

training=$data/training/steps.csv
grep -e ^run -e ',bf16,' "$training" >bf16.csv
plot divergence bf16.csv -o bf16.svg
says bf16.svg 'sandwich: no overflow' 'L = 12, bf16, init gpt2, seed 0'
silent bf16.svg 'loss scale' 'first forward overflow' 'nan or inf begins' 'step skipped' 'largest value of the format'
awk -F , 'NR == 1 || $9 == 0' "$training" >first.csv
plot divergence first.csv -o first.svg
filled max_score '' "$training" >scoreless.csv
plot divergence scoreless.csv --set log=yes -o scoreless.svg
says scoreless.svg 'largest |x|'
silent scoreless.svg 'largest |score|'
plot divergence "$data/steps.csv" -o old.svg
says old.svg pre 'loss scale'
silent old.svg 'largest |x|'
plot divergence "$data/training" --set by=lr,layout -o by.svg
says by.svg 'lr 0.1, pre, fp16: overflow at step 4–6 (2 of 3)'
python3 - "$training" config.csv <<'EOF'
import csv, sys
rows = [r for r in csv.reader(open(sys.argv[1], newline='')) if r[0] in ('run', 'r000000b0')]
at = {name: i for i, name in enumerate(rows[0])}
def write(file, rows):
    csv.writer(open(file, 'w', newline=''), lineterminator='\n').writerows(rows)
def like(name, **cells):
    changed = [[*r] for r in rows[1:]]
    for r in changed:
        r[0] = name
        for column, value in cells.items():
            r[at[column]] = value
    return changed
write('many.csv', rows[:1] + sum((like(f'{i:08x}', depth=i) for i in range(1, 26)), []))
write('formats.csv', rows[:1] + like('1', dtype='fp8-e4m3') + like('2', dtype='e5m2') + like('3', policy='amp-o1', dtype='e4m3') +
      like('4', dtype='bf16'))
write('config.csv', [['run', 'option', 'value'], ['4', 'roles', 'norm-in=fp32,matmul-out=e4m10,residual=fp16']])
long = [[*rows[1 + i // 200]] for i in range(2000)]
for step, r in enumerate(long):
    r[at['step']] = step
write('long.csv', rows[:1] + long)
EOF
refuses 1 '25 kinds of runs do not fit into one figure' divergence many.csv -o x.svg
plot divergence formats.csv -o formats.svg
says formats.svg 'fp8-e4m3: 448' 'e5m2: 57344' 'e4m3: 240' 'fp16: 65504' 'e4m10: 255.88'
plot divergence long.csv -o long.svg
says long.svg 'sandwich: overflow at step 1000' 'L = 12, fp16, init gpt2, seed 0, windows of 4 steps'

# Final loss by learning rate. Of pre: (2 + 1.5 + 4) / 3 - 1.5 = 1 and (2 + 1.7 + 4) / 3 - 1.7 = 0.867.
says lr-sensitivity.svg 'Final loss by learning rate' 'L = 6, fp16, init gpt2, 1 to 2 seeds (rings) and their mean' 'warmup 4' \
    'pre: 0.933 (0.867–1.000)' 'sandwich: 0.100' 'post: 0.750, 2 of 3 rates' 'no-norm: never below the start' 'loss at the start' \
    'LR sensitivity of each line (mean of the seeds, and their range)'
grep -q 'LR sensitivity (arXiv:2309.14322): mean over the learning rates of' lr-sensitivity.svg || die "no definition of the sensitivity"
rates=$data/rates/steps.csv
cp "$data/rates/config.csv" .
grep -e ^run -e ',sandwich,' "$rates" >alone.csv
plot lr-sensitivity alone.csv -o alone.svg
says alone.svg 'sandwich: 0.100' 'LR sensitivity of each line' 'L = 6, fp16, init gpt2, seed 0'
silent alone.svg 'LR sensitivity of each line (mean of the seeds, and their range)'
! grep -q '×' alone.svg || die "a mark is told that is not there"
grep -e ^run -e '^r0000000[16],' "$rates" >rate.csv
plot lr-sensitivity rate.csv -o alone.svg
says alone.svg 'pre: no seed at all rates'
grep -e ^run -e '^r0000000[14],' "$rates" >rate.csv
plot lr-sensitivity rate.csv -o alone.svg
says alone.svg 'pre: one rate'
sed -i 's/^\(r0000000[1-3],qk-norm\),off/\1,on/' config.csv
cp "$rates" by.csv
plot lr-sensitivity by.csv -o qk.svg
says qk.svg 'pre, qk-norm on: 1.000' 'pre, qk-norm off: 0.867'
rm config.csv
refuses 1 'no run has options lr and steps: config.csv is missing' lr-sensitivity by.csv -o x.svg

# Options come from config.csv beside the results; runs that differ in one are told apart by it, and the title names those
# that are not usual.
for gain in 8 64; do
    mkdir -p "gains/$gain"
    python3 - "$data/power.csv" "$gain" "gains/$gain" <<'EOF'
import csv, sys
path, gain, folder = sys.argv[1:]
rows = [r for r in csv.reader(open(path, newline='')) if r[2] in ('layout', 'a')]
named = [rows[0]] + [[gain + r[0]] + r[1:] for r in rows[1:]]
options = [[run, *o] for run in sorted({r[0] for r in named[1:]}) for o in (('post-gain', gain), ('qk-init', '0'))]
csv.writer(open(folder + '/layers.csv', 'w', newline='')).writerows(named)
csv.writer(open(folder + '/config.csv', 'w', newline='')).writerows([['run', 'option', 'value']] + options)
EOF
done
plot depth-law gains -o gains.svg
says gains.svg 'a, post-gain 8 0.370 (law 0.500)' 'a, post-gain 64 0.370 (law 0.500)' 'fp16, init unit, qk-init 0, 2 seeds (rings) and their mean'
plot curve gains --set x=post-gain --set by=layout,depth --set layer=last --set sublayer=last -o gains.svg
says gains.svg 'a, L 4' 'a, L 64' 'rms by post-gain, layer last, sublayer last'
plot curve gains/8 --set x=depth --set by=qk-init --set layer=last --set sublayer=ffn -o gains.svg
says gains.svg 'qk-init 0' 'fp16, init unit, post-gain 8, mean and range of 2 seeds'
plot curve gains gains/8 gains/8/layers.csv --set x=depth --set by=post-gain --set layer=last --set sublayer=ffn -o twice.svg
says twice.svg 'post-gain 8' 'post-gain 64'
refuses 1 'no run has an option nothing' curve gains --set x=nothing

# A run folder and another order of columns, spread over two files: the same figure.
mkdir 'a run' runs runs/one
{
    sed -n 1p "$data/layers.csv"
    grep ',sandwich,' "$data/layers.csv"
} >'a run/layers.csv'
python3 - "$data/layers.csv" runs/one/layers.csv <<'EOF'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline='')))
csv.writer(open(sys.argv[2], 'w', newline='')).writerows(r[::-1] for r in rows if 'sandwich' not in r)
EOF
plot growth 'a run' runs -o 'an other.svg'
cmp growth.svg 'an other.svg' || die "the same rows in two files give another figure"

refuses 2 'there is no figure "shrink".*' shrink "$data/layers.csv"
refuses 2 'growth .*How does' shrink "$data/layers.csv"
refuses 2 'which results' growth
refuses 2 '.svg, .png or .pdf' growth "$data/layers.csv" -o x.jpeg
refuses 2 'no setting "colour=red"' growth "$data/layers.csv" --set colour=red
refuses 1 'nowhere: no CSV file' growth nowhere
{ cat "$data/layers.csv" && sed '1s/^run,label/label,run/' "$data/layers.csv"; } >headers.csv
refuses 1 'headers.csv:86: another header line' growth headers.csv -o x.svg
sed 's/,rms,/,rsm,/' "$data/layers.csv" >misnamed.csv
refuses 1 'no column rms' growth misnamed.csv -o x.svg
sed '5s/,[^,]*$//' "$data/layers.csv" >short.csv
refuses 1 'short.csv:5: 31 fields' growth short.csv -o x.svg
refuses 1 'cannot be written' growth "$data/layers.csv" -o no/folder/x.svg
[ ! -e x.svg ] || die "a figure that failed left a file"
