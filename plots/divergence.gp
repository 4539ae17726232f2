# When does training break down: what overflows first, and what do loss and loss scale do then?
# Run: plots/plot divergence RUN... [-o divergence.svg] [--set by=lr] [--set log=yes]
# Reads: steps.csv
# Set: by=auto (columns and options that tell lines apart, comma between; auto: layout,dtype; what else differs is added)
# Set: log=auto (auto, yes, no: logarithmic axis of the loss; auto where it spans more than a factor of 10)
load 'plots/style.gp'
header = ',' . system('head -n 1 data.csv') . ','
y = 'loss'
do for [c in 'loss_scale max_abs max_score'] {
    if (strstrt(header, ',' . c . ',') > 0) {
        y = y . ' ' . c
    }
}
if (!series('step', y, set_by eq 'auto' ? 'layout dtype' : set_by, 'all', "-v spread=' (thin) and their median'")) {
    exit status 1
}
load 'series.gp'
# A long training is drawn in some 500 windows.
window = 1 + (longest - 1) / 500
if (!helper('divergence', sprintf("-v y='%s' -v window=%d", y, window))) {
    exit status 1
}
load 'divergence.gp'
# Every line has a colour and a marker of its own, in the order of the names; a ninth one has the first colour again, with dashes.
longest_text = 0
array ranked[n]
do for [i = 1:n] {
    ranked[sorted[i]] = i
    name[i] = name[i] . (fate[i] eq '' ? '' : ': ' . fate[i])
    longest_text = strlen(name[i]) > longest_text ? strlen(name[i]) : longest_text
}
colour_of(i) = shade(sorted[i])
faint(i) = 0xa0000000 + colour_of(i)
dashes_of(i) = dash(sorted[i], 1)
marker_of(i) = marker(sorted[i] + 3 * ((sorted[i] - 1) / 8))

# A panel for each column, below them the key of the lines and the key of the marks. All lengths are those of a page 900 wide.
count = words(shown)
panel_height = 150
between = 16
top = 90
key_top = top + count * (panel_height + between) + 54
key_columns = longest_text > 42 ? 1 : int(122 / (longest_text + 8.5))
key_rows = int(ceil(real(n) / key_columns))
key_height = 26 * key_rows + 8
page = key_top + key_height + 60
tall = page / 540.0
load 'plots/style.gp'
down(px) = 1 - px / real(page)
font_small = sprintf(',%g', small)
x_low = x_min < x_max ? x_min : x_min - around(x_min)
x_high = x_min < x_max ? x_max : x_max + around(x_max)
set xrange [x_low : x_high]
eval 'set xtics ' . (x_tics eq '' ? 'autofreq' : '(' . x_tics . ')')
set grid xtics
set lmargin at screen 0.1
set rmargin at screen any_limits ? 0.875 : 0.98
set key off
what(c) = c eq 'loss' ? 'loss (nats)' : c eq 'loss_scale' ? 'loss scale' : c eq 'max_abs' ? 'largest |x|' : 'largest |score|'
over(i) = 1.3 + 2 * (i - 0.5) / n
block(i, kind) = 5 * (i - 1) + kind
every = longest / window > 24 ? longest / window / 12 : 1
superscript(e) = e < 0 ? '⁻' . superscript(-e) : \
    (e > 9 ? superscript(e / 10) : '') . word('⁰ ¹ ² ³ ⁴ ⁵ ⁶ ⁷ ⁸ ⁹', e % 10 + 1)

set multiplot
do for [place = 1:count] {
    k = int(word(shown, place))
    c = word(y, k)
    is_scale = c eq 'loss_scale'
    limits = value('limits_' . c)
    logarithmic = k > 1 || set_log eq 'yes' || (set_log eq 'auto' && y_max[k] > 10 * y_pos[k])
    low = logarithmic ? y_pos[k] : y_min[k]
    high = y_max[k] > low ? y_max[k] : low
    do for [j = 1:words(limits):2] {
        high = real(word(limits, j)) > high ? real(word(limits, j)) : high
    }
    if (high == low) {
        margin = around(high)
        low = logarithmic ? low / 2.0 : low - margin
        high = logarithmic ? high * 2.0 : high + margin
    }
    y_top = high
    # Room at the upper edge for nan and inf, set apart a little as well.
    if (logarithmic) {
        room = 0.05 * (log(high) - log(low))
        low = scaled(low, -room)
        edge(i) = scaled(y_top, room * over(i))
        high = scaled(high, 4 * room)
        base = is_scale ? 2.0 : 10.0
        set logscale y base
        from = int(ceil(log(low) / log(base)))
        to = int(floor(log(high) / log(base)))
        set format y log_format(low, high)
        if (is_scale || to - from > 2) {
            set ytics ()
            do for [e = from:to:1 + (to - from) / 5] {
                set ytics add (sprintf('%d', base) . superscript(e) base ** e)
            }
        } else {
            eval 'set ytics ' . log_tics(low, high)
        }
    } else {
        room = 0.05 * (high - low)
        low = low - room
        edge(i) = y_top + room * over(i)
        high = high + 4 * room
        unset logscale y
        set ytics autofreq
        set format y '%g'
    }
    set yrange [low : high]
    set tmargin at screen down(top + (place - 1) * (panel_height + between))
    set bmargin at screen down(top + (place - 1) * (panel_height + between) + panel_height)
    set format x place == count ? '%g' : ''
    set xlabel place == count ? 'step' : ''
    unset label
    unset arrow
    if (place == 1) {
        set label "Training step by step\n" . about . (window > 1 ? sprintf(', windows of %d steps', window) : '') . \
            "\n" . training at screen 0.5, screen down(22) center
    }
    set label what(c) at screen 0.02, graph 0.5 center rotate
    said_at = -1
    do for [j = 1:words(limits):2] {
        limit = real(word(limits, j))
        eval 'set arrow from graph 0, first limit to graph 1, first limit nohead linewidth 1 linecolor rgb black dashtype ' . \
            dash_of_law
        height = (log(limit) - log(low)) / (log(high) - log(low))
        said_at = height > said_at + 0.13 ? height : said_at + 0.13
        set label sprintf('%s: %.5g', word(limits, j + 1), limit) at graph 1.01, graph said_at left font font_small
    }
    # Lines of the loss scale often lie on one another: they are set apart a little, less than a power of two.
    if (is_scale) {
        spread = 0.06 * log(high / low) / log(2) < 0.6 ? 0.06 * log(high / low) / log(2) : 0.6
    }
    apart(i) = is_scale ? 2 ** (spread * (i - 0.5 * (n + 1)) / n) : 1
    at(v, above, i) = above > 0 ? edge(i) : logarithmic && v <= 0 ? NaN : v * apart(i)
    finite(v, above, i) = above > 0 ? NaN : at(v, 0, i)
    of = "for [i = 1:n] c . '.dat' index block(i, "
    cross = of . '3) using 1:(at($2, $3, i)) with points '
    eval 'plot ' . \
        (n_runs > 1 ? of . '0) using 1:(finite($2, $3, i)) with lines linewidth 1 linecolor rgb faint(i), ' : '') . \
        of . '1) using 1:(finite($2, $3, i)) with lines linewidth 2 dashtype dashes_of(i) linecolor rgb colour_of(i), ' . \
        of . '1) using 1:(finite($2, $3, i)) every every::(i * every / n % every) with points pointtype marker_of(i) \
            pointsize point linecolor rgb colour_of(i), ' . \
        of . '2) using 1:(at($2, $3, i)) with lines linewidth 1 dashtype 3 linecolor rgb colour_of(i), ' . \
        of . '2) using 1:($3 > 0 ? edge(i) : NaN) with points pointtype 6 pointsize 2 * point linewidth 1.5 \
            linecolor rgb colour_of(i), ' . \
        (is_scale ? of . '4) using 1:(at($2, $3, i)) with points pointtype 10 pointsize 1.2 * point linecolor rgb colour_of(i), ' : '') . \
        cross . 'pointtype 7 pointsize 1.3 * point linecolor rgb "white", ' . \
        cross . 'pointtype 2 pointsize 1.3 * point linewidth 2 linecolor rgb black'
}

# The keys are panels without axes.
unset label
unset arrow
unset border
unset tics
unset grid
unset logscale
set xlabel ''
set lmargin at screen 0.02
set rmargin at screen 0.98
set xrange [0:1]
set yrange [0:1]
set tmargin at screen down(key_top)
set bmargin at screen down(key_top + key_height)
set key inside center center vertical Left reverse maxrows key_rows font font_small
plot 2 notitle, for [i = 1:n] keyentry with linespoints linewidth 2 dashtype dashes_of(ranked[i]) pointtype marker_of(ranked[i]) \
    pointsize point linecolor rgb colour_of(ranked[i]) title name[ranked[i]]
set tmargin at screen down(key_top + key_height)
set bmargin at screen down(page - 10)
set key inside center center horizontal Left reverse font font_small
mark(is_there, text, style) = is_there ? ', keyentry with ' . style . " linecolor rgb black title '" . text . "'" : ''
eval 'plot 2 notitle' . \
    mark(any_overflow, 'first forward overflow', 'points pointtype 2 pointsize 1.3 * point linewidth 2') . \
    mark(any_above, 'nan or inf begins', 'points pointtype 6 pointsize 2 * point linewidth 1.5') . \
    mark(any_skipped, 'step skipped', 'points pointtype 10 pointsize 1.2 * point') . \
    mark(any_limits, 'largest value of the format', 'lines linewidth 1 dashtype ' . dash_of_law)
unset multiplot
