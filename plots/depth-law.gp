# How does the RMS at the end of the residual stream grow with the number of layers, and what does the law say?
# Run: plots/plot depth-law RUN... [-o depth-law.svg] [--set step=0]
# Reads: layers.csv
# Set: step=last (last, or the number of a training step)
load 'plots/style.gp'
if (!series('depth', 'rms rms_theory', 'layout dtype policy init label', set_step, \
        "-v where='layer last sublayer last stream 0' -v spread=' (rings) and their mean'")) {
    exit status 1
}
load 'series.gp'
law = 2
fits = system('LC_ALL=C awk -f plots/fit.awk series.dat')
fitted(i, j) = word(fits, 2 * i - 2 + j)
legend(i) = fitted(i, 1) eq 'NaN' ? name[i] : \
    name[i] . ' ' . fitted(i, 1) . (fitted(i, 2) eq 'NaN' ? '' : ' (law ' . fitted(i, 2) . ')')
load 'plots/legend.gpi'

logarithmic_x = 1
x_low = x_pos / 1.1
x_high = x_max * 1.1
set xrange [x_low : x_high]
set logscale x
eval 'set xtics ' . (x_tics_log eq '' ? log_tics(x_low, x_high) : '(' . x_tics_log . ')')
set title "Final RMS of the residual stream by number of layers\n" . about . "\nin the key: exponent fitted (exponent of the law)"
set xlabel 'L, layers (logarithmic)'
set ylabel 'RMS after the last sublayer (logarithmic)'

k = 1
panel = 1
logarithmic = 1
from_zero = 0
telling = 1
line = 0.06
fitting = 70
load 'plots/lines.gpi'

# Every seed is a small ring.
seeds = n_runs == 1 || shown eq '' ? '' : "for [j = 1:words(shown)] 'runs.dat' index block(m(j)) using 1:(can($2)) with points \
    pointtype 6 pointsize 0.6 * point linecolor rgb shade(colour[m(j)]) notitle, "
lines = (shown eq '' ? nothing : curve) . laws . seeds . (shown eq '' ? '' : marks)
eval 'plot ' . lines . keys
