# SPDX-License-Identifier: GPL-3.0-or-later
# divergence.awk -v y='COLUMN...' -v window=STEPS data.csv: the runs of each series of series.awk step by step, and what befell
# them; behind csv.awk and runs.awk. A window of steps has their mean loss, last loss scale, largest of all else; nan where one
# of them is nan or inf.
#
# Writes COLUMN.dat for each column, five blocks a series, each line a step, a value, and 1 instead of 0 where it is nan:
#   0  the runs
#   1  their median, nan and inf above all values
#   2  from each last finite value of a run to the next one, which is not
#   3  the first forward overflow of each run
#   4  the steps that were skipped
# And divergence.gp: the numbers of the columns that tell something (a loss scale that is always 1 does not), a sentence on the
# first overflow of each series, maxima of the formats, options of the training.

BEGIN {
    file = ARGV[1]
    ny = split(y, want)
    read_options("config.csv")
    read_members()
    if (n_series > 24)
        fail(n_series " kinds of runs do not fit into one figure (at most 24); give fewer")
    csv_header(file)
    for (i = 1; i <= nf; i++)
        if (field[i] ~ /^overflow_/ && field[i] != "overflow_fwd")
            elsewhere[++n_elsewhere] = field[i]
    while (csv_row(file)) {
        r = run_name()
        meet(r)
        t = field[column["step"]] + 0
        if (counter("overflow_fwd") > 0 && (!(r in first) || t < first[r]))
            first[r] = t
        # Elsewhere than forward: where the overflows begin that have not ended yet.
        for (k = 1; k <= n_elsewhere; k++) {
            if (counter(elsewhere[k]) <= 0)
                delete begins[r, k]
            else if (!((r, k) in begins))
                begins[r, k] = t
            if (counter(elsewhere[k]) > 0)
                mended[r] = 1
        }
        t -= t % window
        if (!((r, t) in taken)) {
            taken[r, t] = 1
            step_of[r, ++rows[r]] = t
        }
        if (!(t in steps_seen)) {
            steps_seen[t] = 1
            steps[++n_steps] = t
        }
        if (counter("skipped") > 0)
            skipped[r, t] = any_skipped = 1
        for (k = 1; k <= ny; k++)
            take(r, t, k, field[column[want[k]]])
    }
    close(file)
    sort(steps, n_steps)

    out = "divergence.gp"
    print "array fate[" n_series "]" >out
    for (i = 1; i <= n_series; i++) {
        for (k = 1; k <= ny; k++)
            write_blocks(i, k, want[k] ".dat")
        printf "fate[%d] = %s\n", i, gp("overflow_fwd" in column ? fate(i) : "") >out
    }
    print "any_overflow = " any_overflow + 0 "; any_above = " any_above + 0 "; any_skipped = " any_skipped + 0 >out
    write_limits()
    told[1] = 1
    for (k = 1; k <= ny; k++)
        if (told[k] || want[k] == "loss_scale" && any_skipped)
            shown = shown k " "
    print "shown = " gp(shown) "; training = " gp(about_training()) >out
    close(out)
}

# Adds a value of run r to the window that begins at step t.
function take(r, t, k, v,    i) {
    if (v == "")
        return
    told[k] = told[k] || want[k] != "loss_scale" || v != 1
    i = r SUBSEP t SUBSEP k
    if (kind(v) != "finite" || i in value && value[i] == "nan")
        v = "nan"
    else if (want[k] == "loss")
        v = (sum[i] += v) / ++count[i]
    else if (want[k] ~ /^max_/ && i in value && value[i] + 0 > v + 0)
        v = value[i]
    value[i] = v
    if (v != "nan" && v + 0 > top[k])
        top[k] = v + 0
}

function counter(c) {
    return c in column ? field[column[c]] + 0 : 0
}

# Blocks end in two empty lines; one without data has a line of NaN.
function end_block(text, out) {
    printf "%s\n\n", (text == "" ? "NaN NaN 0\n" : text) >out
}

function write_blocks(i, k, out,    j, m, r, t, v, above, last, rise, cross, skip) {
    for (m = 1; m <= members[i]; m++) {
        r = member[i, m]
        last = ""
        above = 0
        for (j = 1; j <= rows[r]; j++) {
            t = step_of[r, j]
            if (!((r, t, k) in value))
                continue
            v = value[r, t, k]
            if (v != "nan") {
                above = 0
                last = t " " v " 0\n"
            } else {
                v = 0
                any_above = 1
                if (!above)
                    rise = rise last t " 0 1\n\n"
                above = 1
            }
            v = t " " v " " above "\n"
            printf "%s", v >out
            if (r in first && first[r] - first[r] % window == t)
                cross = cross v
            if ((r, t) in skipped)
                skip = skip v
        }
        print "" >out
        lost[r, k] = above
    }
    end_block("", out)
    for (j = 1; j <= n_steps; j++)
        printf "%s", median(i, k, steps[j]) >out
    end_block("", out)
    end_block(rise, out)
    end_block(cross, out)
    end_block(skip, out)
}

# The line of the median at a step that all runs have; one whose values end in nan has them at later steps too.
function median(i, k, t,    m, n, r, v, high) {
    for (m = 1; m <= members[i]; m++) {
        r = member[i, m]
        v = (r, t, k) in value ? value[r, t, k] : lost[r, k] && t > step_of[r, rows[r]] ? "nan" : ""
        if (v == "")
            return ""
        if (v != "nan")
            list[++n] = v
    }
    sort(list, n)
    high = int(members[i] / 2) + 1
    return t " " (high > n ? "0 1\n" : sprintf("%.9g 0\n", (list[int((members[i] + 1) / 2)] + list[high]) / 2))
}

# Takes note of step t of a run of the kind k: how many runs there are of it, from which step to which.
function note(k, t) {
    if (!noted[k]++ || t < from[k])
        from[k] = t
    if (noted[k] == 1 || t > to[k])
        to[k] = t
}

# When the runs of a series first overflow; of a run without a forward overflow that ends in others, when these began, and where.
function fate(i,    m, k, r, text, best, any_mended) {
    split("", noted)
    for (m = 1; m <= members[i]; m++) {
        r = member[i, m]
        if (r in first) {
            note("", first[r])
            any_overflow = 1
            continue
        }
        any_mended += r in mended
        best = 0
        for (k = 1; k <= n_elsewhere; k++)
            if ((r, k) in begins && (!best || begins[r, k] < begins[r, best]))
                best = k
        if (best)
            note(elsewhere[best], begins[r, best])
    }
    text = befell("", "overflow", members[i])
    for (k = 1; k <= n_elsewhere; k++)
        text = text befell(elsewhere[k], (text == "" ? "" : ", ") "overflow in " \
            (elsewhere[k] == "overflow_bwd" ? "gradients" : substr(elsewhere[k], 10)), members[i])
    return text != "" ? text : any_mended ? "no forward overflow" : "no overflow"
}

function befell(k, text, n) {
    return !noted[k] ? "" : text " at step " from[k] (to[k] > from[k] ? "–" to[k] : "") (n > 1 ? " (" noted[k] " of " n ")" : "")
}

# The format that a run stores a column's values in: its role's own, or the run's; of the policies only Apex's O1 has
# another stream.
function format_of(r, c,    role, own) {
    role = c == "max_abs" ? "residual" : "matmul-out"
    own = of(r, "policy") == "amp-o1" && role == "residual" ? "fp32" : "dtype"
    if (match("," of(r, "roles"), "," role "=[^,]*"))
        own = substr(of(r, "roles"), RSTART + length(role) + 1, RLENGTH - length(role) - 2)
    return own == "dtype" ? of(r, "dtype") : own
}

# The largest finite value of a format
function maximum(format,    bits) {
    if (format == "fp8-e4m3")
        return 448
    split(format in bits_of ? bits_of[format] : format, bits, /[em]/)
    return (2 - 2 ^ -bits[3]) * 2 ^ (2 ^ (bits[2] - 1) - 1)
}

# Maxima of the formats in use that lie within a factor of 1000 of the values, in ascending order
function write_limits(    k, i, m, n, f, v, format, line, any) {
    split("fp16=e5m10 bf16=e8m7 fp32=e8m23 fp64=e11m52 tf32=e8m10 fp8-e5m2=e5m2", named, /[ =]/)
    for (i = 1; i in named; i += 2)
        bits_of[named[i]] = named[i + 1]
    for (k = 1; k <= ny; k++) {
        split("", format)
        n = 0
        for (i = 1; i <= n_series && want[k] ~ /^max_/; i++)
            for (m = 1; m <= members[i]; m++) {
                f = format_of(member[i, m], want[k])
                v = f == "" ? "" : sprintf("%.9g", maximum(f))
                if (v == "" || v in format || v + 0 > 1000 * top[k])
                    continue
                format[v] = f
                list[++n] = v
            }
        sort(list, n)
        line = ""
        for (i = 1; i <= n; i++)
            line = line list[i] " " format[list[i]] " "
        print "limits_" want[k] " = " gp(line) >out
        any += n
    }
    print "any_limits = " (any > 0) >out
}
