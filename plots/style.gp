# SPDX-License-Identifier: GPL-3.0-or-later
# What all figures share. plots/plot sets `out`, the file to write; its ending picks the terminal.
set encoding utf8
if (out[strlen(out)-3:] eq '.svg') {
    set terminal svg size 900,540 font 'sans,15' background 'white' noenhanced
}
if (out[strlen(out)-3:] eq '.png') {
    set terminal pngcairo size 1350,810 font 'sans,17' linewidth 1.5 noenhanced
}
if (out[strlen(out)-3:] eq '.pdf') {
    set terminal pdfcairo size 6.5in,3.9in font 'sans,11' noenhanced
}
set output out

# Okabe and Ito's palette, told apart by colour-blind people; darker ones first, black is kept for theory. With the marker
# and the dashes that go with each, a figure reads in grey as well.
array palette[8] = [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x7f7f7f, 0xf0e442]
array markers[8] = [7, 5, 9, 11, 13, 6, 4, 8]
array dashes[5] = [1, 2, 4, 5, 3]
black = 0x000000
shade(i) = palette[(i - 1) % 8 + 1]
marker(i) = markers[(i - 1) % 8 + 1]
# A ninth layout takes the first colour again, with other dashes; so does the same layout under another setting.
dash(i, variant) = dashes[((i - 1) / 8 + variant - 1) % 5 + 1]

set datafile missing 'NaN'
set border 3 linewidth 0.8 linecolor rgb '#404040'
set tics nomirror out scale 0.6
set grid ytics linetype 1 linewidth 0.5 linecolor rgb '#e0e0e0'
set key outside right top vertical Left reverse samplen 2.5 spacing 1.15 noenhanced
set title noenhanced offset 0,-0.3

# True when series.awk (see there) has written series.dat and series.gp.
series(x, y, by, step) = system(sprintf("awk -f plots/csv.awk -f plots/series.awk -v x='%s' -v y='%s' -v by='%s' \
    -v step='%s' data.csv && echo done", x, y, by, step)) eq 'done'
