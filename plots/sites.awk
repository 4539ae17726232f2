# SPDX-License-Identifier: GPL-3.0-or-later
# sites.awk -v what=overflow|headroom -v direction=fwd|bwd|wgrad -v axis=layer|step -v step=last|NUMBER
# -v depth=deepest|all|NUMBER -v format=own|fp16|bf16|fp8-e4m3|fp8-e5m2 data.csv: rows of sites.csv to heat maps of site by layer, or by step of training (of all layers,
# whatever `step` says), one panel for each value of the run's keys; behind csv.awk and runs.awk. A cell has the overflows of
# all its layers, or their least headroom; of the seeds of a panel it shows the worst.
#
# Writes cells.dat: for each panel a block of each kind of mark (`kind_name` below), one line per rectangle of equal cells in
# a row, or per cell where the mark is a point or text: first and last column, row, value; and sites.gp: panels, rows and what
# their titles say.

# Makes the row of a site: behind the site before it in its sublayer, else before the others of its sublayer, else at the
# end, but the final ones stay last.
function row_of(name, before, sublayer,    i, k) {
    if (name in row)
        return
    for (i = 1; i <= rows; i++) {
        if (before != "" && row_name[i] == before) {
            i++
            break
        }
        if (before == "" && (index(row_name[i], sublayer SUBSEP) == 1 || index(row_name[i], "final" SUBSEP) == 1))
            break
    }
    for (k = ++rows; k > i; k--)
        row_name[k] = row_name[k - 1]
    row_name[i] = name
    row[name] = 1
}

# A count in words
function count_text(n) {
    return n < 1e6 ? n "" : sprintf("%.1f million", n / 1e6)
}

BEGIN {
    file = ARGV[1]
    most_panels = 24
    if (axis !~ /^(layer|step)$/)
        fail("over=" axis ": a heat map has its columns over layer or step")
    # Another format: what would be left of it above the largest value in fp32, that of an fp32 twin or of an fp32 run.
    limit["fp16"] = 65504
    limit["bf16"] = 3.3895313892515355e38
    limit["fp8-e4m3"] = 448
    limit["fp8-e5m2"] = 57344
    other = what == "headroom" && format != "own"
    if (other && !(format in limit))
        fail("format=" format ": headroom is in own, fp16, bf16, fp8-e4m3 or fp8-e5m2")
    if (other && direction != "fwd")
        fail("headroom in another format is of the forward direction")
    value_column = what == "overflow" ? "overflow" : other ? "max_abs" : "headroom_bits"
    n_needed = split("layer sublayer site direction nan_made propagated overflow " value_column, needed)
    kinds = split("same value over passed only_zeros nan_made zero_made overflowed text", kind_name)
    nkeys = split("layout depth dtype policy init label", key)
    read_options("config.csv")

    # Pass 1: runs, their last step, the deepest of each kind.
    csv_header(file)
    for (i = 1; i <= n_needed; i++)
        if (!(needed[i] in column))
            fail("the results have no column " needed[i])
    c_layer = column["layer"]
    c_sublayer = column["sublayer"]
    c_site = column["site"]
    c_direction = column["direction"]
    c_step = "step" in column ? column["step"] : 0
    c_zero = "zero_made" in column ? column["zero_made"] : 0
    c_total = "total" in column ? column["total"] : 0
    c_wide = "max_abs_fp32" in column ? column["max_abs_fp32"] : 0
    while (csv_row(file)) {
        if (field[c_direction] != direction)
            continue
        r = run_name()
        meet(r)
        t = c_step ? field[c_step] + 0 : 0
        if (!(r in last_step) || t > last_step[r])
            last_step[r] = t
        if (!(t in column_of)) {
            column_of[t] = 1
            looks[++n_looks] = t
        }
    }
    close(file)
    csv_line[file] = 0
    sort(looks, n_looks)
    for (i = 1; i <= n_looks; i++)
        column_of[looks[i]] = i - 1
    if (n_all_runs == 0)
        fail("the results have no row of direction " direction)
    tell_apart("")
    choose_depth(depth)
    for (i = 1; i <= n_all_runs; i++) {
        r = run[i]
        if (r in left_out)
            continue
        drawn[r] = 1
        v = of(r, "seed")
        n_seeds += !(v in seeds)
        seeds[v] = 1
        seed = v
        p = ""
        for (j = 1; j <= nkeys; j++) {
            v = of(r, key[j])
            p = p SUBSEP v
            if (!((j, v) in seen)) {
                seen[j, v] = 1
                value[j, ++values[j]] = v
            }
        }
        if (!(p in panel_of)) {
            panel_of[p] = ++panels
            panel[panels] = p
        }
        of_panel[r] = panel_of[p]
        if (!((p, sample_of(r)) in counted) && ++runs[panel_of[p]] > n_runs)
            n_runs = runs[panel_of[p]]
        counted[p, sample_of(r)] = 1
    }
    if (panels > most_panels)
        fail(panels " kinds of runs do not fit on a page (at most " most_panels "); give fewer, or choose with --set depth=")

    # Pass 2: cells.
    csv_header(file)
    while (csv_row(file)) {
        if (field[c_direction] != direction)
            continue
        r = run_name()
        if (!(r in drawn))
            continue
        t = c_step ? field[c_step] + 0 : 0
        if (axis == "layer" && (step == "last" ? t != last_step[r] : t != step + 0))
            continue
        n_rows_read++
        steps[t] = 1
        p = of_panel[r]
        l = field[c_layer] + 0
        x = axis == "layer" ? l : column_of[t]
        s = field[c_sublayer] SUBSEP field[c_site]
        g = r SUBSEP l SUBSEP field[c_sublayer]
        row_of(s, last_site[g], field[c_sublayer])
        last_site[g] = s
        if (x > last[p])
            last[p] = x
        i = p SUBSEP s SUBSEP x
        if (!(i in there)) {
            there[i] = 1
            if (!((p, s) in turn))
                turn[p, s] = ++turns[p]
        }
        for (j = 5; j <= n_needed; j++) {
            v = field[column[needed[j]]]
            if (kind(v) == "text")
                fail("column " needed[j] " holds \"" v "\", which is no number")
        }
        o = field[column["overflow"]] + 0
        if (other) { # of values in fp32 there is nothing to tell but their size
            v = c_wide ? field[c_wide] : ""
            if (v == "" && of(r, "dtype") ~ /^fp(32|64)$/)
                v = field[column["max_abs"]]
            if (v == "" || kind(v) != "finite")
                continue
            if (v + 0 == 0) {
                measured = any_finite = only_zeros[i] = 1
                continue
            }
            field[column[value_column]] = log(limit[format] / v) / log(2)
            o = v + 0 > limit[format]
            field[column["nan_made"]] = field[column["propagated"]] = 0
            if (c_zero)
                field[c_zero] = 0
        }
        if (c_total)
            total[p] += field[c_total]
        if (o > 0) {
            over[i] = 1
            # What came first in the order of execution.
            j = direction == "bwd" ? -1 : 1
            if (!(p in first) || earlier(p, axis == "step" ? t : 0, j * l, j * turn[p, s])) {
                first[p] = place_text(t, l)
                first_step[p] = axis == "step" ? t : 0
                first_layer[p] = j * l
                first_turn[p] = j * turn[p, s]
            }
        }
        if (field[column["nan_made"]] + 0 > 0)
            nan_made[i] = 1
        if (c_zero && field[c_zero] + 0 > 0)
            zero_made[i] = 1
        if (field[column["propagated"]] + 0 > 0)
            passed[i] = 1
        v = field[column[value_column]]
        if (v == "")
            continue
        measured = 1
        if (kind(v) != "finite") {
            if (kind(v) == "inf")
                only_zeros[i] = 1
            continue
        }
        v += 0
        any_finite = 1
        if (what == "overflow") {
            v = amount[r, i] += v
            if (v > 0 && (!(i in cell) || v > cell[i]))
                cell[i] = v
        } else if (!(i in cell) || v < cell[i]) {
            cell[i] = v
        }
        if (what != "overflow" && (!(p in least) || v < least[p])) {
            least[p] = v
            least_at[p] = place_text(t, l)
        }
    }
    if (!n_rows_read)
        fail("the results have no row of step " step)
    if (!measured)
        fail(other ? "the largest values in fp32 are not known: run with --dtype fp32, or add headroom to --probes" : \
            "nothing was measured: every row of column " value_column " is empty")
    if (!any_finite)
        print "plot: warning: column " value_column " has no finite value" >"/dev/stderr"

    # Panels in order of their keys.
    for (i = 1; i <= nkeys; i++) {
        for (j = 1; j <= values[i]; j++)
            list[j] = value[i, j]
        sort(list, values[i])
        for (j = 1; j <= values[i]; j++)
            order[i, list[j]] = j
    }
    for (i = 1; i <= panels; i++) {
        split(substr(panel[i], 2), part, SUBSEP)
        rank[i] = ""
        title[i] = ""
        for (j = 1; j <= nkeys; j++) {
            rank[i] = rank[i] sprintf("%06d", order[j, part[j]])
            if (j == 1 || values[j] > 1) {
                text = key_text(key[j], part[j])
                if (text != "")
                    title[i] = title[i] (title[i] == "" ? "" : ", ") text
            }
        }
        for (j = i - 1; j >= 1 && rank[place[j]] > rank[i]; j--)
            place[j + 1] = place[j]
        place[j + 1] = i
    }

    # Rectangles.
    for (k = 1; k <= panels; k++) {
        p = place[k]
        if (last[p] > last_column)
            last_column = last[p]
        for (m = 1; m <= kinds; m++) {
            some[k, m] = 0
            for (y = 1; y <= rows; y++) {
                from = -1
                for (x = 0; x <= last[p] + 1; x++) {
                    v = mark(p SUBSEP row_name[y] SUBSEP x, kind_name[m])
                    if (from >= 0 && (v "" != held "" || kind_name[m] ~ /made|flowed|text/)) {
                        printf "%d %d %d %s\n", from, x - 1, y, held >"cells.dat"
                        some[k, m]++
                        from = -1
                    }
                    if (v != "" && from < 0) {
                        from = x
                        held = v
                    }
                    if (kind_name[m] == "value" && v != "") {
                        if (!bottom_seen++ || v + 0 < bottom)
                            bottom = v + 0
                        if (bottom_seen == 1 || v + 0 > top)
                            top = v + 0
                        all_values[++n_values] = v + 0
                    }
                }
            }
            printf "%s\n\n", some[k, m] ? "" : "NaN NaN NaN NaN\n" >"cells.dat"
        }
    }
    # Three cells of four are within the range of colours, a power of two.
    for (range = 8; range < 1024; range *= 2) {
        m = 0
        for (i = 1; i <= n_values; i++)
            m += all_values[i] <= range
        if (m >= 0.75 * n_values)
            break
    }

    out = "sites.gp"
    print "panels = " panels "; rows = " rows "; last_column = " last_column + 0 "; n_runs = " n_runs >out
    printf "value_min = %.9g; value_max = %.9g; range = %d\n", bottom_seen ? bottom : 0, bottom_seen ? top : 0, range >out
    print "array panel_name[panels]; array finding[panels]; array row_name[rows]; array group[rows]; array some[panels * " kinds "]" >out
    for (k = 1; k <= panels; k++) {
        p = place[k]
        if (p in first)
            text = (other ? "first that would overflow" : "first overflow") (axis == "step" ? " seen" : "") ": " first[p]
        else
            text = "no overflow" (c_total && !other ? " in " count_text(total[p]) " values" : "")
        if (what == "headroom" && !(p in first))
            text = p in least ? sprintf("least: %.1f bits, %s", least[p], least_at[p]) : "no finite value"
        printf "panel_name[%d] = %s; finding[%d] = %s\n", k, gp(title[p]), k, gp(text) >out
        for (m = 1; m <= kinds; m++)
            print "some[" (k - 1) * kinds + m "] = " some[k, m] >out
    }
    for (y = 1; y <= rows; y++) {
        split(row_name[y], part, SUBSEP)
        printf "row_name[%d] = %s; group[%d] = %s\n", y, gp(part[2]), y, gp(part[1]) >out
    }
    print "array look[" n_looks "]" >out
    for (i = 1; i <= n_looks; i++)
        print "look[" i "] = " looks[i] >out
    n_steps = 0
    for (v in steps) {
        n_steps++
        t = v
    }
    about = about_runs() (axis == "step" ? "" : n_steps > 1 ? ", last step of each run" : t > 0 ? ", step " t : "") \
        (depth == "deepest" && n_left_out ? ", deepest runs" : "") \
        (n_runs > 1 ? ", worst of " n_runs " seeds" : n_seeds == 1 && seed != "" ? ", seed " seed : "")
    print "about = " gp(substr(about, 3)) "; training = " gp(about_training()) >out
    close(out)
}

# Where the row at hand stands
function place_text(t, l) {
    return (axis == "step" ? "step " t ", " : "") "layer " l ", " \
        (field[c_sublayer] == field[c_site] ? "" : field[c_sublayer] " ") field[c_site]
}

# Does this come before the first overflow that a panel has had so far?
function earlier(p, t, l, turn_) {
    return t != first_step[p] ? t < first_step[p] : l != first_layer[p] ? l < first_layer[p] : turn_ < first_turn[p]
}

# What stands in a cell as a mark of one kind; "" for nothing. Headroom is rounded to half a bit, so that equal
# neighbours are one rectangle.
function mark(i, what_,    v) {
    if (what_ == "same")
        return i in there ? 1 : ""
    if (what_ ~ /^over/)
        return i in over ? 1 : ""
    if (what_ == "nan_made")
        return i in nan_made ? 1 : ""
    if (what_ == "zero_made")
        return i in zero_made ? 1 : ""
    if (what_ == "passed")
        return i in passed && !(i in over) ? 1 : ""
    if (what_ == "only_zeros")
        return i in only_zeros && !(i in cell) && !(i in over) && !(i in passed) ? 1 : ""
    if (!(i in cell) || (what != "overflow" && i in over))
        return ""
    if (what_ == "text")
        return sprintf(cell[i] > -9.95 && cell[i] < 99.95 ? "%.1f" : "%.0f", cell[i])
    return what == "overflow" ? cell[i] : sprintf("%.1f", int(cell[i] * 2 + 0.5) / 2)
}
