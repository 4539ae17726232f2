# How much does the final loss depend on the learning rate, and up to which rate does training survive?
# Run: plots/plot lr-sensitivity SWEEP... [-o lr-sensitivity.svg] [--set by=layout,qk-norm]
# Reads: steps.csv
# Set: by=auto (columns and options that tell lines apart, comma between; auto: layout,dtype; what else differs is added)
load 'plots/style.gp'
if (!helper('final', '')) {
    exit status 1
}
table = 'final.csv'
if (!series('lr', 'loss start', set_by eq 'auto' ? 'layout dtype' : set_by, '', "-v spread=' (rings) and their mean'")) {
    exit status 1
}
load 'series.gp'
if (!helper('sensitivity', '')) {
    exit status 1
}
load 'sensitivity.gp'
law = 0
legend(i) = name[i] . ': ' . sensitivity[i]
load 'plots/legend.gpi'
do for [i = 1:n] {
    entry[sorted[i]] = i
}

# Below the plot its key and what it means. All lengths are those of a page 900 wide.
key_columns = longest_text > 42 ? 1 : int(122 / (longest_text + 8.5))
key_rows = int(ceil(real(n) / key_columns))
key_top = 530
page = key_top + 32 + 23 * key_rows + 56
tall = page / 540.0
load 'plots/style.gp'
down(px) = 1 - px / real(page)
font_small = sprintf(',%g', small)
set lmargin at screen 0.09
set rmargin at screen 0.97
set tmargin at screen down(90)
set bmargin at screen down(key_top - 76)
set key at screen 0.5, screen down(key_top) center top vertical Left reverse maxrows key_rows font font_small \
    title 'LR sensitivity of each line' . (n_runs > 1 ? ' (mean of the seeds, and their range)' : '')

logarithmic_x = 1
x_low = x_pos / 1.3
x_high = (x_max > x_pos ? x_max : x_pos) * 1.3
set xrange [x_low : x_high]
set logscale x
eval 'set xtics ' . (x_tics_log eq '' ? log_tics(x_low, x_high) : '(' . x_tics_log . ')')
set title "Final loss by learning rate\n" . about . "\n" . training
set xlabel 'learning rate (logarithmic)'
set ylabel 'final loss (nats)'

k = 1
panel = 1
logarithmic = 0
from_zero = 0
telling = 0
line = 0
fitting = 0
load 'plots/lines.gpi'
definition = 'LR sensitivity (arXiv:2309.14322): mean over the learning rates of min(final loss, loss at the start) − least final loss.'
censoring = any_censored ? ' ×: nan, inf or not below the start; counts as the loss at the start.' : ''
set label definition . "\nFinal loss: mean over the last tenth of the steps." . censoring \
    at screen 0.5, screen down(page - 34) center font font_small
if (has[2] ne '') {
    set object rectangle from graph 0, first y_min[2] to graph 1, first y_max[2] behind fillcolor rgb '#d8d8d8' \
        fillstyle solid border rgb '#d8d8d8'
    set label 'loss at the start' at graph 0.01, first y_max[2] left offset 0,0.7 font font_small
}
# Lines are set apart a little, so that the runs of several at one rate stand side by side.
beside(x, i) = x * (x_high / x_low) ** (0.007 * (sorted[i] - 0.5 * (n + 1)))
dashes_of(i) = dash(colour[i], variant[i])
means = "for [i = 1:n] 'series.dat' index i - 1 using (beside($1, i)):2 with linespoints linewidth 2 dashtype dashes_of(i) \
    pointtype marker_of(i) pointsize size(i) linecolor rgb shade(colour[i]) notitle, "
runs(kind, style) = sprintf("for [i = 1:n] 'sensitivity.dat' index 2 * (i - 1) + %d using (beside($1, i)):2 with points %s \
    linecolor rgb shade(colour[i]) notitle, ", kind, style)
eval 'plot ' . (shown eq '' ? nothing : means) . runs(0, 'pointtype 6 pointsize 0.6 * point') . \
    runs(1, 'pointtype 2 pointsize 1.6 * point linewidth 1.5') . keys
