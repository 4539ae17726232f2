# SPDX-License-Identifier: GPL-3.0-or-later
# series.awk -v x=COLUMN -v y='COLUMN...' -v by='COLUMN...' [-v step=last|NUMBER] data.csv: rows to lines of a plot.
#
# A series is one value of the `by` columns; what is left (seeds) is averaged. x may be `position`: where a row stands in
# the depth, in layers: attention half a layer before the FFN, layer 0 the stream as it enters, the final norm left out.
# Only the last step of each run counts, or the one that is asked for. Runs of a series with equal seeds differ in something
# that is not in `by`; then they are not averaged, but told apart by their run names.
#
# Writes series.dat: a block per series, highest end first, one line per x: x, then per y column mean, least and greatest
# finite value, NaN where there is none; and series.gp: what a figure must know, as gnuplot variables (with_COLUMN: the
# series that have any finite value of that column).

# 'text' as gnuplot writes a string
function gp(text) {
    gsub(/'/, "''", text)
    gsub(/[\r\n]/, " ", text)
    return "'" text "'"
}

function place(    sub_) {
    if (x != "position")
        return field[column[x]]
    sub_ = field[column["sublayer"]]
    if (sub_ == "final")
        return ""
    return sub_ == "attn" ? field[column["layer"]] - 0.5 : field[column["layer"]]
}

# Sorts list[1..n]: numbers by value, other text by character.
function sort(list, n,    i, j, v) {
    for (i = 2; i <= n; i++) {
        v = list[i]
        for (j = i - 1; j >= 1 && (kind(v) == "finite" && kind(list[j]) == "finite" ? list[j] + 0 > v + 0 : list[j] "" > v ""); j--)
            list[j + 1] = list[j]
        list[j + 1] = v
    }
}

BEGIN {
    file = ARGV[1]
    ny = split(y, want)
    nkeys = split(by, key)
    csv_header(file)
    if (x != "position")
        need[x] = 1
    else
        need["layer"] = need["sublayer"] = 1
    for (i = 1; i <= ny; i++)
        need[want[i]] = 1
    need[key[1]] = need["run"] = need["seed"] = need["step"] = 1
    for (c in need)
        if (!(c in column))
            fail("the results have no column " c)

    # Pass 1: the last step of each run; runs that must be told apart.
    while (csv_row(file)) {
        r = field[column["run"]]
        t = field[column["step"]] + 0
        if (!(r in last_step) || t > last_step[r])
            last_step[r] = t
        g = field[column["seed"]]
        for (i = 1; i <= nkeys; i++)
            g = g SUBSEP (key[i] in column ? field[column[key[i]]] : "")
        if (g in seed_run && seed_run[g] != r)
            by_run = 1
        seed_run[g] = r
    }
    close(file)
    csv_line[file] = 0
    if (by_run)
        key[++nkeys] = "run"

    # Pass 2: sums.
    csv_header(file)
    while (csv_row(file)) {
        r = field[column["run"]]
        t = field[column["step"]] + 0
        if (step == "last" || step == "" ? t != last_step[r] : t != step + 0)
            continue
        p = place()
        if (kind(p) != "finite")
            continue
        p += 0
        s = ""
        for (i = 1; i <= nkeys; i++) {
            v = key[i] in column ? field[column[key[i]]] : ""
            s = s SUBSEP v
            if (!((i, v) in seen)) {
                seen[i, v] = 1
                value[i, ++values[i]] = v
            }
        }
        if (!(s in points)) {
            points[s] = 0
            series[++n] = s
        }
        if (!((s, r) in run_of)) {
            run_of[s, r] = 1
            runs[s]++
        }
        if (!((s, p) in at)) {
            at[s, p] = 1
            xs[s, ++points[s]] = p
            if (n_x++ == 0 || p < x_min)
                x_min = p
            if (n_x == 1 || p > x_max)
                x_max = p
        }
        seeds[field[column["seed"]]] = 1
        steps[t] = 1
        for (i = 1; i <= ny; i++) {
            v = field[column[want[i]]]
            k = kind(v)
            if (k == "text")
                fail("column " want[i] " holds \"" v "\", which is no number")
            if (k != "finite") {
                # Of inf and nan the one that comes first in depth is named; inf before nan at one place.
                if (i == 1 && k != "" && !((s, r) in bad)) {
                    bad[s, r] = 1
                    bad_runs[s]++
                }
                if (i == 1 && k != "" && (!(s in stop) || p < stop[s] || (p == stop[s] && k != "nan"))) {
                    stop[s] = p
                    stop_kind[s] = k
                }
                continue
            }
            v += 0
            if (i == 1 && v == 0 && (!(s in zero) || p < zero[s]))
                zero[s] = p
            count[s, p, i]++
            sum[s, p, i] += v
            if (count[s, p, i] == 1 || v < least[s, p, i])
                least[s, p, i] = v
            if (count[s, p, i] == 1 || v > most[s, p, i])
                most[s, p, i] = v
            has[s, i] = 1
            if (!has_y++ || v > y_max)
                y_max = v
            if (has_y == 1 || v < y_min)
                y_min = v
            if (v > 0 && (!has_pos++ || v < y_pos))
                y_pos = v
        }
    }
    if (n == 0)
        fail(step == "last" || step == "" ? "the results have no row" : "the results have no row of step " step)

    # Where a series ends: the last finite value, or above all others where it ends in inf or nan.
    for (i = 1; i <= n; i++) {
        s = series[i]
        m = points[s]
        for (j = 1; j <= m; j++)
            list[j] = xs[s, j]
        sort(list, m)
        end[s] = 0
        for (j = 1; j <= m; j++) {
            xs[s, j] = list[j]
            if (count[s, list[j], 1])
                end[s] = sum[s, list[j], 1] / count[s, list[j], 1]
        }
        rank[s] = !count[s, list[m], 1]
    }
    for (i = 2; i <= n; i++) {
        s = series[i]
        for (j = i - 1; j >= 1 && (rank[s] > rank[series[j]] || (rank[s] == rank[series[j]] && end[s] > end[series[j]])); j--)
            series[j + 1] = series[j]
        series[j + 1] = s
    }

    # Colours and markers by the first key, in order of its values, dashes by the other keys; where the first key has one
    # value only, colours by the others.
    for (i = 1; i <= nkeys; i++) {
        for (j = 1; j <= values[i]; j++)
            list[j] = value[i, j]
        sort(list, values[i])
        for (j = 1; j <= values[i]; j++)
            order[i, list[j]] = j
        if (i > 1 && values[i] == 1 && list[1] != "")
            fixed[key[i]] = list[1]
    }

    out = "series.gp"
    print "n = " n >out
    print "array name[n]; array colour[n]; array variant[n]; array stop[n]; array stop_kind[n]; array zero[n]" >out
    for (i = 1; i <= n; i++) {
        s = series[i]
        split(substr(s, 2), part, SUBSEP)
        label = part[1]
        rest = ""
        for (j = 2; j <= nkeys; j++)
            if (values[j] > 1) {
                rest = rest SUBSEP part[j]
                if (part[j] != "" && !(key[j] == "stream" && part[j] == 0))
                    label = label ", " (key[j] ~ /^(dtype|label|init|policy)$/ ? "" : (key[j] == "depth" ? "L" : key[j]) " ") part[j]
            }
        if (!(rest in variant_of))
            variant_of[rest] = ++variants
        printf "name[%d] = %s; colour[%d] = %d; variant[%d] = %d\n", i, gp(label), i,
            (values[1] > 1 ? order[1, part[1]] : variant_of[rest]), i, (values[1] > 1 ? variant_of[rest] : 1) >out
        if (runs[s] > n_runs)
            n_runs = runs[s]
        printf "stop[%d] = %s; stop_kind[%d] = %s; zero[%d] = %s\n", i, s in stop ? stop[s] : "NaN", i,
            gp(stop_kind[s] (bad_runs[s] < runs[s] ? " in " bad_runs[s] " of " runs[s] " runs" : "")), i, s in zero ? zero[s] : "NaN" >out
    }
    for (k = 1; k <= ny; k++)
        for (i = 1; i <= n; i++)
            if ((series[i], k) in has)
                with[k] = with[k] (with[k] ? " " : "") i
    n_seeds = 0
    for (v in seeds) {
        n_seeds++
        seed = v
    }
    n_steps = 0
    for (v in steps) {
        n_steps++
        t = v
    }
    about = ("depth" in fixed ? ", L = " fixed["depth"] : "") ("dtype" in fixed ? ", " fixed["dtype"] : "") \
        ("policy" in fixed && fixed["policy"] != "plain" ? ", policy " fixed["policy"] : "") \
        ("init" in fixed ? ", init " fixed["init"] : "") \
        (n_steps > 1 ? ", last step of each run" : t > 0 ? ", step " t : "") \
        (n_runs > 1 ? ", mean and range of " n_runs " seeds" : n_seeds == 1 ? ", seed " seed : "")
    print "about = " gp(substr(about, 3)) >out
    print "n_runs = " n_runs >out
    printf "x_min = %.9g; x_max = %.9g\n", x_min, x_max >out
    printf "y_min = %.9g; y_max = %.9g; y_pos = %.9g\n", has_y ? y_min : 0, has_y ? y_max : 1, has_pos ? y_pos : 1 >out
    for (i = 1; i <= ny; i++)
        print "with_" want[i] " = " gp(with[i]) >out
    close(out)

    out = "series.dat"
    for (i = 1; i <= n; i++) {
        s = series[i]
        for (j = 1; j <= points[s]; j++) {
            p = xs[s, j]
            printf "%.9g", p >out
            for (k = 1; k <= ny; k++)
                if (count[s, p, k])
                    printf " %.9g %.9g %.9g", sum[s, p, k] / count[s, p, k], least[s, p, k], most[s, p, k] >out
                else
                    printf " NaN NaN NaN" >out
            printf "\n" >out
        }
        printf "\n\n" >out
    }
    close(out)
}
