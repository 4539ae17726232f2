# How does the residual stream grow with depth?
# Run: plots/plot growth RUN... [-o growth.svg] [--set log=yes] [--set step=0]
# Reads: layers.csv
# Set: log=auto (auto, yes, no: logarithmic axis; auto where the values span more than a factor of 100)
# Set: step=last (last, or the number of a training step)
load 'plots/style.gp'
if (!series('position', 'rms rms_theory', 'layout depth dtype policy init label stream', set_step)) {
    exit status 1
}
load 'series.gp'

logarithmic = set_log eq 'yes' || (set_log eq 'auto' && y_max > 100 * y_pos)
is(x) = x == x
above = sum [i = 1:n] is(stop[i])
below = logarithmic ? sum [i = 1:n] is(zero[i]) : 0

# Room for the sentences above and below, in lines of text.
line = 0.06
if (logarithmic) {
    room = (y_max / y_pos) ** line
    set logscale y
    set yrange [y_pos / room ** (below + 0.5) / 1.2 : y_max * room ** (above + 0.5) * 1.2]
    set format y (y_max < 1e6 && y_pos > 1e-4 ? '%g' : '%.0e')
} else {
    set yrange [0 : (y_max > 0 ? y_max * (1.05 + line * above) : 1)]
}
set xrange [0 : (x_max > 0 ? x_max : 1)]
if (x_max <= 2) {
    set xtics 0.5
}

set title "RMS of the residual stream by depth\n" . about
set xlabel 'layer l (after attention at l − ½, after the FFN at l)'
set ylabel 'RMS'

# Where a curve stops being a number, or cannot stand on a logarithmic axis, a sentence says so.
tell(i, x, height, marker, what) = sprintf( \
    "set label name[%d] . ': ' . %s at first %g, graph %g %s offset character %d, 0 point pointtype %d pointsize 1.2 linecolor rgb %d noenhanced", \
    i, what, x, height, x > x_max / 2 ? 'right' : 'left', x > x_max / 2 ? -1 : 1, marker, shade(colour[i]))
above = 0
below = 0
do for [i = 1:n] {
    if (is(stop[i])) {
        eval tell(i, stop[i], 0.97 - line * above, 2, sprintf('stop_kind[%d]', i))
        above = above + 1
    }
    if (logarithmic && is(zero[i])) {
        eval tell(i, zero[i], 0.03 + line * below, 10, "'0'")
        below = below + 1
    }
}

# Theory lies thin and black on the broad coloured curve. Some twelve markers on each curve, those of different curves
# beside one another. What has no data is left out of the command: gnuplot reads even what an empty loop names.
drawn(y) = logarithmic && y <= 0 ? NaN : y
every = x_max > 6 ? int(x_max / 6) : 1
m(j) = int(word(with_rms, j))
t(j) = int(word(with_rms_theory, j))
band = n_runs == 1 ? '' : "for [j = 1:words(with_rms)] 'series.dat' index m(j) - 1 using 1:(drawn($3)):(drawn($4)) \
    with filledcurves fillcolor rgb shade(colour[m(j)]) fillstyle transparent solid 0.2 noborder notitle, "
curve = "for [j = 1:words(with_rms)] 'series.dat' index m(j) - 1 using 1:2 with lines \
    linewidth 2 dashtype dash(colour[m(j)], variant[m(j)]) linecolor rgb shade(colour[m(j)]) notitle, "
theory = with_rms_theory eq '' ? '' : "for [j = 1:words(with_rms_theory)] 'series.dat' index t(j) - 1 using 1:5 \
    with lines linewidth 1 dashtype (8, 6) linecolor rgb black notitle, "
marks = "for [j = 1:words(with_rms)] 'series.dat' index m(j) - 1 using 1:2 every every::(j * every / n) with points \
    pointtype marker(colour[m(j)]) pointsize 1.2 linecolor rgb shade(colour[m(j)]) notitle, "
keys = "for [i = 1:n] keyentry with linespoints linewidth 2 dashtype dash(colour[i], variant[i]) \
    pointtype marker(colour[i]) pointsize 1.2 linecolor rgb shade(colour[i]) title name[i]"
theory_key = theory eq '' ? '' : ", keyentry with lines linewidth 1 dashtype (8, 6) linecolor rgb black title 'theory'"
eval 'plot ' . (with_rms eq '' ? '' : band . curve) . theory . (with_rms eq '' ? '' : marks) . keys . theory_key
