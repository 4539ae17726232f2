# How large is the gradient of the loss with respect to the residual stream, layer by layer?
# Run: plots/plot gradient RUN... [-o gradient.svg] [--set log=no] [--set depth=60] [--set step=0]
# Reads: layers.csv
# Set: log=yes (yes, no: logarithmic axis)
# Set: depth=deepest (deepest: of runs that differ in depth the deepest; all, or a number of layers)
# Set: step=last (last, or the number of a training step)
load 'plots/style.gp'
if (!series('position', 'grad_rms', 'layout depth dtype policy init label stream', set_step, "-v depth='" . set_depth . "'")) {
    exit status 1
}
load 'series.gp'
law = 0
legend(i) = name[i]
load 'plots/legend.gpi'

x_low = 0
x_high = x_max > 0 ? x_max : 1
logarithmic_x = 0
set xrange [x_low : x_high]
if (x_max <= 2) {
    set xtics 0.5
}
set title "RMS of the gradient with respect to the residual stream, by depth\n" . about
set xlabel 'layer l (behind the embedding at 0, after attention at l − ½, after the FFN at l)'
set ylabel 'RMS of dL/dx, loss scale divided out'

k = 1
panel = 1
logarithmic = set_log ne 'no'
from_zero = 1
telling = 1
line = 0.06
fitting = 70
load 'plots/lines.gpi'
eval 'plot ' . lines . keys
