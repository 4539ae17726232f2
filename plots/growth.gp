# How does the residual stream grow with depth?
# Run: plots/plot growth RUN... [-o growth.svg] [--set log=yes] [--set depth=60] [--set step=0]
# Reads: layers.csv
# Set: log=auto (auto, yes, no: logarithmic axis; auto where the values span more than a factor of 100)
# Set: depth=deepest (deepest: of runs that differ in depth the deepest; all, or a number of layers)
# Set: step=last (last, or the number of a training step)
load 'plots/style.gp'
if (!series('position', 'rms rms_theory', 'layout depth dtype policy init label stream', set_step, "-v depth='" . set_depth . "'")) {
    exit status 1
}
load 'series.gp'
law = 2
legend(i) = name[i]
load 'plots/legend.gpi'

x_low = 0
x_high = x_max > 0 ? x_max : 1
logarithmic_x = 0
set xrange [x_low : x_high]
if (x_max <= 2) {
    set xtics 0.5
}
set title "RMS of the residual stream by depth\n" . about
set xlabel 'layer l (after attention at l − ½, after the FFN at l)'
set ylabel 'RMS'

k = 1
panel = 1
logarithmic = set_log eq 'yes' || (set_log eq 'auto' && y_max[1] > 100 * y_pos[1])
from_zero = 1
telling = 1
line = 0.06
fitting = 70
load 'plots/lines.gpi'
eval 'plot ' . lines . keys
