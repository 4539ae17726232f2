# SPDX-License-Identifier: GPL-3.0-or-later
# series.awk -v x=COLUMN -v y='COLUMN...' -v by='COLUMN...' [-v SETTING=VALUE]... data.csv: rows to lines of a plot; behind
# csv.awk and runs.awk. Settings:
#   step=last|all|NUMBER   only the last step of each run, every step, or one
#   depth=deepest|all|NUMBER   of runs that differ in depth alone the deepest, every run, or those of one depth
#   where='COLUMN VALUE...'  only rows of these values; `layer last` is layer L, `sublayer last` the last one of a layer;
#                          stream and direction are asked for only where there is such a column
#   panel=COLUMN           a panel for each value of this column
#   style=mean|points|auto `points`: no means, each row a point; `auto`: so where x is measured and no key of the row
#   final=apart            the final row is no part of a line; with x=position it never is
#   spread=TEXT            stands in the title behind `N seeds`, in place of `mean and range of` before it
#   unique=yes             rows of one run at one x are refused
#   smooth=N               each finite value of a run becomes the mean of its last N, fewer behind its start, a nan or an inf
#
# A series is one value of the `by` columns (`auto`: layout, if there is such a column) and of what else differs between runs
# (see runs.awk); what is left, seeds, is averaged. A mean exists only where all its values are finite: a run that has diverged
# is not dropped from it. x may be `position`: where a row stands in the depth, in layers: attention half a layer before the
# FFN, layer 0 the stream as it enters.
#
# Writes series.dat: a block per panel and series, highest end first, one line per x: x, then per y column mean, least and
# greatest finite value, NaN where there is none (a column *_se: the standard error of the mean); runs.dat: the same
# blocks, one line per row: x and the first y; members.dat: number of a series, tab, one of its runs; and series.gp: what a
# figure must know, as gnuplot variables.

# Where the row at hand stands in the depth; "" for the final row.
function place(    sub_) {
    sub_ = field[column["sublayer"]]
    if (sub_ == "final")
        return ""
    return sub_ == "attn" ? field[column["layer"]] - 0.5 : field[column["layer"]]
}

function must_have(c) {
    if (!(c in column) && !(c in known_option))
        fail("the results have no column " c (n_options ? ", and no run has an option " c : ""))
}

# Do the conditions hold for the row at hand?
function wanted(r,    i) {
    for (i = 1; i < n_where; i += 2) {
        if (where_[i] ~ optional && !(where_[i] in column))
            continue
        if (where_[i] == "layer" && where_[i + 1] == "last") {
            if (field[column["layer"]] != of(r, "depth"))
                return 0
        } else if (where_[i] == "sublayer" && where_[i + 1] == "last") {
            if (place() "" != deepest[r, field[column["layer"]]] "")
                return 0
        } else if (get(r, where_[i]) != where_[i + 1]) {
            return 0
        }
    }
    return 1
}

# Takes v as the next value of a line of one run; the mean of the last `smooth` of them.
function smoothed(line, v,    i, m, total) {
    past[line, ++lasting[line] % smooth] = v
    m = lasting[line] < smooth ? lasting[line] : smooth
    for (i = 0; i < m; i++)
        total += past[line, (lasting[line] - i) % smooth]
    return total / m
}

BEGIN {
    file = ARGV[1]
    if (smooth != "" && smooth !~ /^[1-9][0-9]*$/)
        fail("smooth=" smooth ": a whole number of points, 1 or more")
    ny = split(y, want, /[ ,]+/)
    n_where = split(where, where_)
    optional = "^(stream|direction)$"
    read_options("config.csv")
    csv_header(file)
    if (by == "auto")
        by = "layout" in column ? "layout" : ""
    nkeys = split(by, key, /[ ,]+/)
    if (x == "position")
        final = "apart"
    if (!("sublayer" in column) && x != "position")
        final = ""
    if (x == "position" || where ~ /last/)
        need["layer"] = need["sublayer"] = 1
    if (x != "position")
        need[x] = 1
    for (i = 1; i <= ny; i++)
        need[want[i]] = 1
    for (i = 1; i < n_where; i += 2)
        if (where_[i] !~ optional)
            need[where_[i]] = 1
    if (panel != "")
        need[panel] = 1
    if (step ~ /[0-9]/)
        need["step"] = 1
    for (i = 1; i <= nkeys; i++)
        if (i == 1 || unique != "")
            need[key[i]] = 1
    for (c in need)
        must_have(c)
    if (style == "auto" || style == "")
        points_only = !(x ~ /^(position|layer|depth|step|seed|stream|index)$/ || !(x in column)) && style == "auto"
    else
        points_only = style == "points"
    if (x == "step")
        step = "all"

    # Pass 1: the runs, the last step of each, the last sublayer of each layer.
    while (csv_row(file)) {
        r = run_name()
        meet(r)
        t = "step" in column ? field[column["step"]] + 0 : 0
        u = sample_of(r)
        if (!(u in last_step) || t > last_step[u])
            last_step[u] = t
        if (get(r, want[1]) != "" && (!(u in last_measured) || t > last_measured[u]))
            last_measured[u] = t
        if (where ~ /last/) {
            p = place()
            l = field[column["layer"]]
            if (p != "" && (!((r, l) in deepest) || p > deepest[r, l]))
                deepest[r, l] = p
        }
    }
    close(file)
    csv_line[file] = 0
    tell_apart(x)
    choose_depth(depth == "" ? "all" : depth)
    by_run = of(run[1], x) != "" && x != "seed"
    if (smooth > 1 && of(run[1], x) != "")
        fail("smooth=" smooth " needs an x of many points a run, such as step; " x " is the same in all of a run")

    # Pass 2: sums.
    csv_header(file)
    while (csv_row(file)) {
        r = run_name()
        t = "step" in column ? field[column["step"]] + 0 : 0
        u = sample_of(r)
        if (step == "last" || step == "" ? t != (u in last_measured ? last_measured[u] : last_step[u]) : step != "all" && t != step + 0)
            continue
        if (r in left_out || !wanted(r))
            continue
        any_row = 1
        ends = final == "apart" && field[column["sublayer"]] == "final"
        p = x == "position" ? place() : get(r, x)
        if (ends)
            p = 0
        else if (kind(p) == "text")
            fail("column " x " holds \"" p "\", which is no number")
        else if (kind(p) != "finite")
            continue
        s = ""
        for (i = 1; i <= nkeys; i++)
            s = s SUBSEP key_of(r, key[i])
        # Runs in which nothing was measured are no series.
        if (get(r, want[1]) == "")
            continue
        if (ends) {
            for (i = 1; i <= ny; i++) {
                v = get(r, want[i])
                if (v == "")
                    continue
                if (kind(v) != "finite")
                    final_bad[s, i] = 1
                final_count[s, i]++
                final_sum[s, i] += v
            }
            continue
        }
        p += 0
        for (i = 1; i <= nkeys; i++) {
            v = key_of(r, key[i])
            if (!((i, v) in seen)) {
                seen[i, v] = 1
                value[i, ++values[i]] = v
            }
        }
        if (!(s in runs)) {
            runs[s] = 0
            series[++n] = s
        }
        if (!((s, u) in run_of)) {
            run_of[s, u] = r
            runs[s]++
        }
        drawn[r] = 1
        q = panel == "" ? "" : get(r, panel)
        if (!(q in panel_of)) {
            panel_of[q] = ++panels
            panel_name[panels] = q
        }
        q = panel_of[q]
        if (unique != "" && !points_only && ((s, q, p, r) in taken))
            fail("run " (r ~ SUBSEP ? "of layout " of(r, "layout") : r) " has more than one row at " x " " p \
                "; choose with --set layer=, sublayer=, site= or direction=, or add a column to --set by=")
        if (smooth > 1 && (s, q, r) in last_x && p <= last_x[s, q, r])
            fail("smooth=" smooth " needs the rows of each run in the order of " x ", but " last_x[s, q, r] " is followed by " p)
        last_x[s, q, r] = p
        taken[s, q, p, r] = 1
        if (!((s, q, p, u) in counted)) {
            counted[s, q, p, u] = 1
            if (++runs_at[s, q, p] > n_runs)
                n_runs = runs_at[s, q, p]
        }
        at_key = points_only ? ++n_rows : p
        if (!((s, q, at_key) in at)) {
            at[s, q, at_key] = p
            run_at[at_key] = r
            xs[s, q, ++points[s, q]] = at_key
            if (!(p in x_seen)) {
                x_seen[p] = 1
                x_list[++n_x] = p
            }
            if (n_x == 1 || p < x_min)
                x_min = p
            if (n_x == 1 || p > x_max)
                x_max = p
            if (p > 0 && (!x_pos || p < x_pos))
                x_pos = p
        }
        seed_[get(r, "seed")] = 1
        step_[t] = 1
        for (i = 1; i <= ny; i++) {
            v = get(r, want[i])
            k = kind(v)
            if (k == "text")
                fail("column " want[i] " holds \"" v "\", which is no number")
            if (k == "")
                continue
            # Another run of the sample may have measured it before.
            c = s SUBSEP q SUBSEP p SUBSEP u SUBSEP i SUBSEP t
            if (!points_only && c in from_run && from_run[c] != r) {
                if (k == "finite" ? v + 0 != had[c] + 0 || kind(had[c]) != "finite" : k != kind(had[c]))
                    fail("runs " from_run[c] " and " r " are of one sample, but " want[i] " is " had[c] " and " v " at " x " " p \
                        "; give one of them, or tell them apart with --set by=")
                continue
            }
            from_run[c] = r
            had[c] = v
            if (k != "finite") {
                bad[s, q, at_key, i] = 1
                if (i == 1)
                    bad_at[s, q, p]++
                # Of inf and nan the one that comes first in depth is named; inf before nan at one place.
                if (i == 1 && !((s, q, u) in bad_run)) {
                    bad_run[s, q, u] = 1
                    bad_runs[s, q]++
                }
                if (i == 1 && (!((s, q) in stop) || p < stop[s, q] || (p == stop[s, q] && k != "nan"))) {
                    stop[s, q] = p
                    stop_kind[s, q] = k
                }
                lasting[s, q, r, i] = 0
                continue
            }
            v = smooth > 1 ? smoothed(s SUBSEP q SUBSEP r SUBSEP i, v + 0) : v + 0
            if (i == 1 && v <= 0 && (!((s, q) in zero) || p < zero[s, q])) {
                zero[s, q] = p
                zero_kind[s, q] = v < 0 ? "negative" : "0"
            }
            if (i == 1)
                row[s, q] = row[s, q] sprintf("%.9g %.9g\n", p, v)
            c = s SUBSEP q SUBSEP at_key SUBSEP i
            count[c]++
            sum[c] += want[i] ~ /_se$/ ? v * v : v
            if (count[c] == 1 || v < least[c])
                least[c] = v
            if (count[c] == 1 || v > most[c])
                most[c] = v
            has[s, q, i] = 1
            if (!has_y[i]++ || v > y_max[i])
                y_max[i] = v
            if (has_y[i] == 1 || v < y_min[i])
                y_min[i] = v
            if (v > 0 && (!has_pos[i]++ || v < y_pos[i]))
                y_pos[i] = v
        }
    }
    if (!any_row)
        fail("the results have no row" (step == "last" || step == "all" || step == "" ? "" : " of step " step) \
            (where == "" ? "" : " with " where))
    if (n == 0)
        fail("nothing was measured: every row of column " want[1] " is empty")
    if (!has_y[1])
        print "plot: warning: column " want[1] " has no finite value" >"/dev/stderr"

    # Where a series ends: the last mean, or above all others where it ends in inf or nan.
    for (i = 1; i <= n; i++) {
        s = series[i]
        end[s] = 0
        rank[s] = 0
        for (q = 1; q <= panels; q++) {
            m = points[s, q]
            for (j = 1; j <= m; j++)
                list[j] = xs[s, q, j]
            if (!points_only)
                sort(list, m)
            for (j = 1; j <= m; j++) {
                xs[s, q, j] = list[j]
                c = s SUBSEP q SUBSEP list[j] SUBSEP 1
                if (q == 1 && count[c])
                    end[s] = sum[c] / count[c]
            }
            if (q == 1 && m > 0)
                rank[s] = bad[c] || !count[c]
            if (m > longest)
                longest = m
        }
    }
    for (i = 2; i <= n; i++) {
        s = series[i]
        for (j = i - 1; j >= 1 && (rank[s] > rank[series[j]] || (rank[s] == rank[series[j]] && end[s] > end[series[j]])); j--)
            series[j + 1] = series[j]
        series[j + 1] = s
    }

    # Colours and markers by the first key, in order of its values, dashes by the other keys; where the first key has one
    # value only, colours by the others. A second stream has the colour and dashes of the first, and a thinner line.
    for (i = 1; i <= nkeys; i++) {
        for (j = 1; j <= values[i]; j++)
            list[j] = value[i, j]
        sort(list, values[i])
        for (j = 1; j <= values[i]; j++)
            order[i, list[j]] = j
        # Is the first key that differs one of numbers?
        if (values[i] > 1 && numbers == "") {
            numbers = 1
            for (j = 1; j <= values[i]; j++)
                numbers = numbers && kind(list[j]) == "finite"
        }
    }

    out = "series.gp"
    print "n = " n "; panels = " panels "; longest = " longest + 0 >out
    print "array name[n]; array colour[n]; array variant[n]; array thin[n]" >out
    print "array stop[n * panels]; array stop_kind[n * panels]; array zero[n * panels]; array zero_kind[n * panels]" >out
    print "array has[" ny " * panels]; array y_min[" ny "]; array y_max[" ny "]; array y_pos[" ny "]; array final[" ny " * n]" >out
    least_runs = n_runs
    if (x == "step") {
        for (s in runs)
            if (runs[s] < least_runs)
                least_runs = runs[s]
    } else {
        for (c in runs_at)
            if (runs_at[c] < least_runs)
                least_runs = runs_at[c]
    }
    for (i = 1; i <= n; i++) {
        s = series[i]
        split(substr(s, 2), part, SUBSEP)
        label = ""
        rest = ""
        thin = 0
        for (j = 1; j <= nkeys; j++)
            if (values[j] > 1 || j == 1) {
                if (key[j] == "stream")
                    thin = part[j] > 0
                else if (j > 1)
                    rest = rest SUBSEP order[j, part[j]]
                text = key_text(key[j], part[j])
                if (text != "")
                    label = label (label == "" ? "" : ", ") text
            }
        if (!(rest in variant_of))
            variant_of[rest] = ++variants
        series_rest[i] = rest
        printf "name[%d] = %s; thin[%d] = %d\n", i, gp(label), i, thin >out
        for (q = 1; q <= panels; q++) {
            j = (q - 1) * n + i
            # Where x is the same in all of a run, only the runs at this x are counted.
            if ((s, q) in stop) {
                m = by_run ? bad_at[s, q, stop[s, q]] : bad_runs[s, q]
                v = by_run ? runs_at[s, q, stop[s, q]] : runs[s]
                text = stop_kind[s, q] (m < v ? " in " m " of " v " runs" : "")
            }
            printf "stop[%d] = %s; stop_kind[%d] = %s; ", j, ((s, q) in stop ? stop[s, q] : "NaN"), j, gp((s, q) in stop ? text : "") >out
            printf "zero[%d] = %s; zero_kind[%d] = %s\n", j, ((s, q) in zero ? zero[s, q] : "NaN"), j, gp(zero_kind[s, q]) >out
        }
        for (k = 1; k <= ny; k++)
            printf "final[%d] = %s\n", (k - 1) * n + i,
                final_count[s, k] && !final_bad[s, k] ? sprintf("%.9g", final_sum[s, k] / final_count[s, k]) : "NaN" >out
    }
    # Variants in the order of their values, not of their ends.
    m = 0
    for (v in variant_of)
        list[++m] = v
    for (i = 2; i <= m; i++) {
        v = list[i]
        for (j = i - 1; j >= 1 && after(list[j], v); j--)
            list[j + 1] = list[j]
        list[j + 1] = v
    }
    for (i = 1; i <= m; i++)
        variant_of[list[i]] = i
    print "by_number = " numbers + 0 >out
    print "array sorted[n]" >out
    for (i = 1; i <= n; i++) {
        for (j = i - 1; j >= 1 && after(names(series[list[j]]), names(series[i])); j--)
            list[j + 1] = list[j]
        list[j + 1] = i
    }
    for (i = 1; i <= n; i++)
        print "sorted[" list[i] "] = " i >out
    for (i = 1; i <= n; i++) {
        split(substr(series[i], 2), part, SUBSEP)
        v = variant_of[series_rest[i]]
        printf "colour[%d] = %d; variant[%d] = %d\n", i, (values[1] > 1 ? order[1, part[1]] : v), i, (values[1] > 1 ? v : 1) >out
    }

    for (k = 1; k <= ny; k++) {
        for (q = 1; q <= panels; q++) {
            with = ""
            for (i = 1; i <= n; i++)
                if ((series[i], q, k) in has)
                    with = with (with ? " " : "") i
            print "has[" (k - 1) * panels + q "] = " gp(with) >out
        }
        printf "y_min[%d] = %.9g; y_max[%d] = %.9g; ", k, has_y[k] ? y_min[k] : 0, k, has_y[k] ? y_max[k] : 1 >out
        printf "y_pos[%d] = %.9g\n", k, has_pos[k] ? y_pos[k] : 1 >out
    }
    n_seeds = 0
    for (v in seed_) {
        n_seeds++
        seed = v
    }
    n_steps = 0
    for (v in step_) {
        n_steps++
        t = v
    }
    about = about_runs() (x == "step" || step == "all" ? "" : n_steps > 1 ? ", last step of each run" : t > 0 ? ", step " t : "") \
        (depth == "deepest" && n_left_out ? ", deepest runs" : "") \
        (points_only ? "" : n_runs > 1 ? ", " (spread == "" ? "mean and range of " : "") (least_runs < n_runs ? least_runs " to " : "") n_runs " seeds" spread : \
        n_seeds == 1 && seed != "" && x != "seed" ? ", seed " seed : "")
    print "about = " gp(substr(about, 3)) >out
    print "n_runs = " (points_only ? 1 : n_runs) >out
    printf "x_min = %.9g; x_max = %.9g; x_pos = %.9g\n", x_min, x_max, x_pos ? x_pos : 1 >out
    # Few values of x are the tics of its axis, where they do not stand too close.
    if (n_x <= 12) {
        sort(x_list, n_x)
        gap = gap_log = 1
        for (i = 1; i <= n_x; i++) {
            tics = tics (i > 1 ? ", " : "") sprintf("%.9g", x_list[i])
            if (i > 1 && (x_list[i] - x_list[i - 1]) / (x_max - x_min) < gap)
                gap = (x_list[i] - x_list[i - 1]) / (x_max - x_min)
            if (i > 1 && x_list[i - 1] > 0 && log(x_list[i] / x_list[i - 1]) / log(x_max / x_pos) < gap_log)
                gap_log = log(x_list[i] / x_list[i - 1]) / log(x_max / x_pos)
        }
    }
    print "x_tics = " gp(gap > 0.045 ? tics : "") "; x_tics_log = " gp(gap_log > 0.045 ? tics : "") >out
    print "points_only = " points_only + 0 >out
    print "array panel_name[panels]" >out
    for (q = 1; q <= panels; q++)
        print "panel_name[" q "] = " gp(panel_name[q]) >out
    close(out)

    for (i = 1; i <= n; i++)
        for (j = 1; j <= n_all_runs; j++)
            if ((series[i], sample_of(run[j])) in run_of && run_of[series[i], sample_of(run[j])] == run[j])
                print i "\t" run[j] >"members.dat"

    for (q = 1; q <= panels; q++)
        for (i = 1; i <= n; i++) {
            s = series[i]
            if (!points[s, q])
                print "NaN" >"series.dat"
            for (j = 1; j <= points[s, q]; j++) {
                if (points_only && j > 1 && run_at[xs[s, q, j]] != run_at[xs[s, q, j - 1]])
                    print "" >"series.dat"
                printf "%.9g", at[s, q, xs[s, q, j]] >"series.dat"
                for (k = 1; k <= ny; k++) {
                    c = s SUBSEP q SUBSEP xs[s, q, j] SUBSEP k
                    if (!count[c])
                        printf " NaN NaN NaN" >"series.dat"
                    else
                        printf " %s %.9g %.9g", (bad[c] || missing(s, q, xs[s, q, j]) ? "NaN" : \
                            sprintf("%.9g", (want[k] ~ /_se$/ ? sqrt(sum[c]) : sum[c]) / count[c])), least[c], most[c] >"series.dat"
                }
                printf "\n" >"series.dat"
            }
            printf "\n\n" >"series.dat"
            printf "%s\n\n", (s, q) in row ? row[s, q] : "NaN NaN\n" >"runs.dat"
        }
}

# Has a run of the series ended before this step?
function missing(s, q, p) {
    return x == "step" && !points_only && runs_at[s, q, p] < runs[s]
}

# The ranks of a series among the values of each key.
function names(s,    j, part, ranks) {
    split(substr(s, 2), part, SUBSEP)
    for (j = 1; j <= nkeys; j++)
        ranks = ranks SUBSEP order[j, part[j]]
    return ranks
}

# Does the list of ranks a come after b?
function after(a, b,    n, i, u, v) {
    n = split(a, u, SUBSEP)
    split(b, v, SUBSEP)
    for (i = 1; i <= n; i++)
        if (u[i] != v[i])
            return u[i] + 0 > v[i] + 0
    return 0
}
