# How far does each sublayer's Jacobian stretch the stream, on average and in the worst direction?
# Run: plots/plot jacobian RUN... [-o jacobian.svg] [--set log=yes] [--set depth=60] [--set step=0]
# Reads: layers.csv
# Set: log=auto (auto, yes, no: logarithmic axes; auto where the values span more than a factor of 5)
# Set: depth=deepest (deepest: of runs that differ in depth the deepest; all, or a number of layers)
# Set: step=last (last, or the number of a training step)
load 'plots/style.gp'
if (!series('layer', 'jac_fro jac_spec jac_fro_se', 'layout depth dtype policy init label', set_step, \
        "-v panel=sublayer -v final=apart -v where='stream 0' -v depth='" . set_depth . "'")) {
    exit status 1
}
load 'series.gp'

x_low = 0
x_high = x_max > 0 ? x_max : 1
logarithmic_x = 0
set xrange [x_low : x_high]
if (x_high * panels <= 16) {
    set xtics 1
}
law = 0
from_zero = 0
is_final(i, k) = final[(k - 1) * n + i] == final[(k - 1) * n + i]
number(v) = v == v ? sprintf(abs(v) < 100 ? '%.2f' : '%.3g', v) : 'nan'
ends = 0
do for [i = 1:n] {
    ends = ends || is_final(i, 1) || is_final(i, 2)
}
legend(i) = name[i] . (ends ? sprintf(': %s, %s', number(final[i]), number(final[n + i])) : '')

# Kinds of sublayers side by side, a row for each norm, the key below.
array order[panels]
placed = 0
do for [kind in 'attn ffn block'] {
    do for [p = 1:panels] {
        if (panel_name[p] eq kind) {
            placed = placed + 1
            order[placed] = p
        }
    }
}
what(p) = panel_name[p] eq 'attn' ? 'attention' : panel_name[p] eq 'ffn' ? 'FFN' : panel_name[p]
load 'plots/legend.gpi'
legend_columns = longest_text > 44 ? 1 : int(106 / (longest_text + 8.5))
legend_rows = int(ceil(real(n + 1) / legend_columns))
tall = 1.26 + key_row * (legend_rows + 2 * ends)
load 'plots/style.gp'
legend_top = (0.03 + key_row * (legend_rows + 2 * ends)) / tall
set multiplot title "Jacobian of each sublayer, d x_k / d x_(k−1)\n" . about noenhanced
left = 0.11
beside = 0.025
below_ = 0.035
top = 1 - 0.20 / tall
high_ = (top - legend_top - 0.17 / tall - below_) / 2
wide = (0.98 - left - beside * (placed - 1)) / placed
set key off
line = 0.047 / (high_ * tall)
fitting = 70 / placed
do for [k = 1:2] {
    logarithmic = set_log eq 'yes' || (set_log eq 'auto' && y_max[k] > 5 * y_pos[k])
    do for [place = 1:placed] {
        panel = order[place]
        telling = k == 1
        set lmargin at screen left + (place - 1) * (wide + beside)
        set rmargin at screen left + (place - 1) * (wide + beside) + wide
        set tmargin at screen top - (k - 1) * (high_ + below_)
        set bmargin at screen top - (k - 1) * (high_ + below_) - high_
        load 'plots/lines.gpi'
        set title k == 1 ? what(panel) : ''
        set format x k == 2 ? '%g' : ''
        set xlabel k == 2 ? 'layer' : '' offset 0,0.5
        set ylabel place > 1 ? '' : k == 1 ? 'Frobenius norm / √n' : 'largest singular value'
        if (place > 1) {
            set format y ''
        }
        # Standard errors where they can be seen, and a line where nothing is stretched.
        seen = logarithmic ? '$8 > 0.02 * $2' : sprintf('$8 > %.9g', 0.008 * (high - low))
        with_error = k > 1 ? '' : system(sprintf("awk -v from=%d -v n=%d 'NF == 0 { block += ++blank %% 2 == 0; next } \
            { i = block - from + 1; blank = 0 } i >= 1 && i <= n && !(i in told) && $8 !~ /NaN/ && %s { told[i]; print i }' \
            series.dat", (panel - 1) * n, n, seen))
        bars = with_error eq '' ? '' : "for [i in with_error] 'series.dat' index block(int(i)) \
            using 1:(can($2 - $8)):(0):(2 * $8) every every::(int(i) * every / n % every) with vectors nohead linewidth 1 \
            linecolor rgb shade(colour[int(i)]) notitle, "
        eval 'plot ' . bars . lines . '1 with lines linewidth 1 dashtype 3 linecolor rgb black notitle'
    }
}

# The key is a panel without axes.
set lmargin at screen left
set rmargin at screen 0.98
set tmargin at screen legend_top
set bmargin at screen 0.01
unset label
unset border
unset tics
unset grid
unset logscale
set title ''
set xlabel ''
set ylabel ''
set xrange [0:1]
set yrange [0:1]
set key inside center center vertical Left reverse maxrows legend_rows
if (ends) {
    set key title 'layout: end to end, Frobenius norm / √n and largest singular value'
}
eval 'plot 2 notitle, ' . keys . ", keyentry with lines linewidth 1 dashtype 3 linecolor rgb black title '1: keeps lengths'"
unset multiplot
