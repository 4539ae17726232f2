# SPDX-License-Identifier: GPL-3.0-or-later
# What all figures share. plots/plot sets `out`, the file to write; its ending picks the terminal. A figure that needs more
# room than the usual page sets `tall` (times the usual height) and loads this file again.
set encoding utf8
# Markers and dashes of one size in all terminals, a small font; key_row: height of a line of the legend, in pages of the usual
# height.
point = 1
dash_of_law = '(8, 6)'
key_row = 0.038
if (!exists('tall')) {
    tall = 1
}
set output
if (out[strlen(out)-3:] eq '.svg') {
    point = 0.65
    key_row = 0.05
    small = 13
    set terminal svg size 900,540*tall font 'sans,15' background 'white' noenhanced
}
if (out[strlen(out)-3:] eq '.png') {
    dash_of_law = '(12, 9)'
    small = 15
    set terminal pngcairo size 1350,810*tall font 'sans,17' linewidth 1.5 dashlength 0.7 noenhanced
}
if (out[strlen(out)-3:] eq '.pdf') {
    small = 10
    set terminal pdfcairo size 6.5,3.9*tall font 'sans,11' pointscale 0.45 noenhanced
}
set output out

# Okabe and Ito's palette, told apart by colour-blind people; darker ones first, black is kept for the law. With the marker
# and the dashes that go with each, a figure reads in grey as well.
array palette[8] = [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x7f7f7f, 0xf0e442]
array markers[8] = [7, 5, 9, 11, 13, 6, 4, 8]
array dashes[5] = [1, 2, 4, 5, 3]
black = 0x000000
shade(i) = palette[(i - 1) % 8 + 1]
marker(i) = markers[(i - 1) % 8 + 1]
# A ninth layout takes the first colour again, with other dashes; so does the same layout under another setting.
dash(i, variant) = dashes[((i - 1) / 8 + variant - 1) % 5 + 1]

set border 3 linewidth 0.8 linecolor rgb '#404040'
set tics nomirror out scale 0.6
set format '%g'
set grid ytics linetype 1 linewidth 0.5 linecolor rgb '#e0e0e0'
set key outside right top vertical Left reverse samplen 4 spacing 1.15 noenhanced
set title noenhanced offset 0,-0.3

# What an axis shows on either side of a value that is the only one on it.
around(v) = abs(v) > 2 ? abs(v) / 2.0 : 1.0

# v times e^f, between 1e-307 and 1e307: the ends of a logarithmic axis (gnuplot itself goes a little beyond them).
scaled(v, f) = exp(log(v) + f > 706.8 ? 706.8 : log(v) + f < -706.8 ? -706.8 : log(v) + f)

# Tics of a logarithmic axis from `low` to `high`, for `set xtics` or `set ytics`: several to a decade where decades are few.
decade(e, dense) = sprintf(dense ? '1e%d, 1.5e%d, 2e%d, 3e%d, 4e%d, 5e%d, 7e%d' : '1e%d, 2e%d, 5e%d', e, e, e, e, e, e, e)
decades(e, last, dense) = decade(e, dense) . (e < last ? ', ' . decades(e + 1, last, dense) : '')
log_tics(low, high) = high / 1000 > low ? 'autofreq' : '(' . decades(floor(log10(low)), floor(log10(high)), high / 8 < low) . ')'
log_format(low, high) = high < 1e6 && (high / 1000 > low ? 10 ** ceil(log10(low)) : low) > 0.9e-4 ? '%g' : '%.0e'

# Runs an awk script on a table; true when it has written what it is there for. `series` writes series.dat and series.gp.
if (!exists('table')) {
    table = 'data.csv'
}
helper(script, settings) = system('LC_ALL=C awk -f plots/csv.awk -f plots/runs.awk -f plots/' . script . '.awk ' . settings . \
    ' ' . table . ' && echo done') eq 'done'
series(x, y, by, step, more) = helper('series', sprintf("-v x='%s' -v y='%s' -v by='%s' -v step='%s' %s", x, y, by, step, more))
