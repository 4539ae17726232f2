# SPDX-License-Identifier: GPL-3.0-or-later
# fit.awk series.dat: the exponent b of y = a x^b by least squares in the logarithms, for each block that series.awk has
# written, of its first and of its second y: two words a block, NaN where fewer than two different x have a positive mean.
# The second y is fitted on the same x as the first.

function slope(n, sx, sy, sxx, sxy,    b) {
    if (n < 2 || n * sxx - sx * sx <= 1e-12 * n * sxx)
        return "NaN"
    b = sprintf("%.3f", (n * sxy - sx * sy) / (n * sxx - sx * sx))
    return b == "-0.000" ? "0.000" : b
}

function finish() {
    printf "%s %s\n", slope(n, sx, sy, sxx, sxy), slope(m, tx, ty, txx, txy)
    n = sx = sy = sxx = sxy = m = tx = ty = txx = txy = 0
}

NF == 0 {
    if (++blank == 2)
        finish()
    next
}

{
    blank = 0
    if ($1 ~ /NaN/ || $1 <= 0 || $2 ~ /NaN/ || $2 <= 0)
        next
    u = log($1)
    v = log($2)
    n++
    sx += u
    sy += v
    sxx += u * u
    sxy += u * v
    if ($5 ~ /NaN/ || $5 == "" || $5 <= 0)
        next
    v = log($5)
    m++
    tx += u
    ty += v
    txx += u * u
    txy += u * v
}
