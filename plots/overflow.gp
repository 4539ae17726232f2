# Where does the format overflow: at which stored value, in which layer, how often?
# Run: plots/plot overflow RUN... [-o overflow.svg] [--set direction=bwd] [--set depth=60] [--set step=0] [--set over=step]
# Reads: sites.csv
# Set: direction=fwd (fwd, bwd: gradients of activations, wgrad: gradients of weights)
# Set: depth=deepest (deepest: of runs that differ in depth the deepest; all, or a number of layers)
# Set: step=last (last, or the number of a training step)
# Set: over=layer (layer; step: every step that was looked at, over all layers)
load 'plots/style.gp'
axis = set_over
if (!helper('sites', sprintf("-v what=overflow -v direction='%s' -v depth='%s' -v step='%s' -v axis='%s'", \
        set_direction, set_depth, set_step, axis))) {
    exit status 1
}
load 'sites.gp'

heading = (value_max > 0 ? 'Overflows by site and ' . axis . ', ' : 'No overflow at any site, ') . \
    (set_direction eq 'bwd' ? 'gradients of activations' : set_direction eq 'wgrad' ? 'gradients of weights' : 'forward')
logarithmic = 1
colour_low = 1
colour_high = value_max > 10 ? value_max : 10
colour_title = 'overflowed values'
numbers = 0
over_mark = 0
set palette defined (0 '#fdbe85', 0.35 '#f16913', 0.7 '#b02d03', 1 '#4a0f02')
load 'plots/heat.gpi'
