# How does any measured column depend on any other column or option?
# Run: plots/plot curve RESULTS... --set x=post-gain --set y=max_abs --set sublayer=ffn --set layer=last [-o curve.svg]
# Reads: {file}.csv
# Set: file=layers (which file of a run folder: layers, sites, steps, spectrum)
# Set: x=position (a column, an option, or position: layers, attention half a layer before the FFN)
# Set: y=rms (a column)
# Set: by=auto (columns and options that tell curves apart, comma between; auto: layout; what else differs is added)
# Set: layer=all (all, last, or a number: only the rows of this layer)
# Set: sublayer=all (all, in layers.csv but the final norm, or one of attn, ffn, block, embed, final, last: the layer's last)
# Set: site=all (all, or the rows of one site)
# Set: direction=fwd (fwd, bwd, wgrad, all: where the file has directions)
# Set: stream=0 (0, 1, all: where the file has streams)
# Set: step=last (last, all, or the number of a training step; with x=step all)
# Set: smooth=1 (each value the mean of the last so many points of its own run, over an x such as step; 1: as it is)
# Set: log=auto (no, x, y, xy; auto: where values are positive, span a factor of 100 and are not bits)
# Set: style=auto (mean: of runs with equal x, with their range; points: every row; auto: points where x is measured)
load 'plots/style.gp'
only(name, value) = value eq 'all' ? '' : name . ' ' . value . ' '
if (!series(set_x, set_y, set_by, set_step, sprintf("-v unique=yes -v smooth=%s -v style='%s' -v final=%s -v where='%s'", \
        set_smooth, set_style, set_sublayer eq 'all' && set_file eq 'layers' ? 'apart' : 'kept', \
        only('layer', set_layer) . only('sublayer', set_sublayer) . only('site', set_site) . only('direction', set_direction) . \
        only('stream', set_stream)))) {
    exit status 1
}
load 'series.gp'
law = 0
do for [i = 1:n] {
    if (name[i] eq '') {
        name[i] = set_y
    }
}
legend(i) = name[i]
load 'plots/legend.gpi'

asked(axis) = strstrt(set_log, axis) > 0
logarithmic_x = set_log eq 'auto' ? x_min > 0 && x_max > 100 * x_pos : asked('x')
if (logarithmic_x) {
    x_low = x_pos / 1.1
    x_high = (x_max > x_pos ? x_max : x_pos) * 1.1
    set logscale x
    set format x log_format(x_low, x_high)
    eval 'set xtics ' . (x_tics_log eq '' ? log_tics(x_low, x_high) : '(' . x_tics_log . ')')
} else {
    x_low = x_min < x_max ? x_min : x_min - around(x_min)
    x_high = x_min < x_max ? x_max : x_max + around(x_max)
    eval 'set xtics ' . (x_tics eq '' ? 'autofreq' : '(' . x_tics . ')')
}
set xrange [x_low : x_high]

told(name, value) = value eq 'all' ? '' : ', ' . name . ' ' . value
set title set_y . ' by ' . set_x . told('layer', set_layer) . told('sublayer', set_sublayer) . told('site', set_site) . \
    (set_file eq 'sites' ? told('direction', set_direction) : '') . (set_stream eq '0' ? '' : told('stream', set_stream)) . "\n" . about
set xlabel set_x eq 'position' ? 'layer l (after attention at l − ½, after the FFN at l)' : set_x
set ylabel set_y . (set_smooth eq '1' ? '' : \
    sprintf(' (mean of the last %s %s)', set_smooth, set_file eq 'steps' && set_x eq 'step' ? 'steps' : 'points'))

k = 1
panel = 1
logarithmic = set_log eq 'auto' ? y_min[1] >= 0 && y_max[1] > 100 * y_pos[1] && strstrt(set_y, '_bits') == 0 : asked('y')
from_zero = 0
telling = 1
line = 0.06
fitting = 70
load 'plots/lines.gpi'
if (logarithmic_x && x_min <= 0) {
    set label 'not shown: ' . set_x . ' ≤ 0' at graph 0.01, graph 0.03 left
}
eval 'plot ' . lines . keys
