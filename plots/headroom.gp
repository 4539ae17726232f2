# How many bits of range are left at each stored value, in each layer?
# Run: plots/plot headroom RUN... [-o headroom.svg] [--set direction=bwd] [--set depth=60] [--set step=0] [--set over=step] [--set format=fp16]
# Reads: sites.csv
# Set: direction=fwd (fwd, bwd: gradients of activations, wgrad: gradients of weights)
# Set: depth=deepest (deepest: of runs that differ in depth the deepest; all, or a number of layers)
# Set: step=last (last, or the number of a training step)
# Set: over=layer (layer; step: every step that was looked at, over all layers)
# Set: format=own (own: what each value is stored in; fp16, bf16, fp8-e4m3, fp8-e5m2: what would be left there, by fp32 values)
load 'plots/style.gp'
axis = set_over
if (!helper('sites', sprintf("-v what=headroom -v direction='%s' -v depth='%s' -v step='%s' -v axis='%s' -v format='%s'", \
        set_direction, set_depth, set_step, axis, set_format))) {
    exit status 1
}
load 'sites.gp'

heading = 'Headroom ' . (set_format eq 'own' ? '' : 'in ' . set_format . ' ') . 'by site and ' . axis . ', ' . \
    (set_direction eq 'bwd' ? 'gradients of activations' : set_direction eq 'wgrad' ? 'gradients of weights' : 'forward')
logarithmic = 0
colour_low = value_min < 0 ? value_min : 0
colour_high = range
colour_title = 'bits left' . (value_max > range ? sprintf(' (%d and more)', range) : '')
numbers = 1
over_mark = 1
set palette defined (0 '#081d58', 0.25 '#225ea8', 0.5 '#41b6c4', 0.75 '#c7e9b4', 1 '#ffffe5')
load 'plots/heat.gpi'
