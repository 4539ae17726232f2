# SPDX-License-Identifier: GPL-3.0-or-later
# Which runs are drawn as one line or one panel; behind csv.awk. `key[1..nkeys]` are the columns whose values tell lines
# apart. A column that the results do not have is looked up among the run's options in config.csv, where there is one.

# An expression of gnuplot that is the text; gnuplot reads '' at the start of a string as the end of it, and runs what stands between
# backquotes in "".
function gp(text) {
    text = visible(text)
    gsub(/'/, "' . \"'\" . '", text)
    return "'" text "'"
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

# The keys that every row repeats.
BEGIN {
    n_of_run = split("layout depth dtype policy init label seed", of_run)
}

# The name of the run that the row at hand belongs to.
function run_name(    i, r) {
    if ("run" in column)
        return field[column["run"]]
    for (i = 1; i <= n_of_run; i++)
        r = r SUBSEP (of_run[i] in column ? field[column[of_run[i]]] : "")
    return r
}

# What is counted: runs of one model, data and seed that differ in what they measure are one sample.
function sample_of(r) {
    return (r, "sample") in option ? option[r, "sample"] : r
}

function read_options(file,    r, o) {
    if ((getline o <file) < 0)
        return
    close(file)
    csv_header(file)
    if (!("run" in column && "option" in column && "value" in column))
        return
    while (csv_row(file)) {
        r = field[column["run"]]
        o = field[column["option"]]
        if (!(o in known_option)) {
            known_option[o] = 1
            option_name[++n_options] = o
        }
        option[r, o] = field[column["value"]]
    }
    close(file)
}

# A run's value of a column that is the same in all its rows, or of an option.
function of(r, c) {
    return (r, c) in run_value ? run_value[r, c] : (r, c) in option ? option[r, c] : ""
}

# The value of a column in the row at hand, which belongs to run r.
function get(r, c) {
    return c in column ? field[column[c]] : of(r, c)
}

# The value that tells the line of the row at hand apart. An option goes before a column of that name: lr is that of the run.
function key_of(r, c) {
    return (r, c) in option ? option[r, c] : get(r, c)
}

# Takes note of the run of the row at hand.
function meet(r,    i) {
    if (r in met)
        return
    met[r] = 1
    run[++n_all_runs] = r
    for (i = 1; i <= n_of_run; i++)
        if (of_run[i] in column)
            run_value[r, of_run[i]] = field[column[of_run[i]]]
}

# Adds to the keys whatever else differs between the runs, but what is on the x axis, seeds, and what changes no number; nor
# what only some runs have, like a layout's own knobs.
# Where runs of one seed are still left together, labels and the order of data are added as well, and at last their names.
function tell_apart(x,    i, j, c, g, r, v, is_key, round, clash, first, varies, n, sample, met_sample) {
    for (i = 1; i <= nkeys; i++)
        is_key[key[i]] = 1
    # What tells runs of one sample apart is only what was measured: one of them stands for all.
    for (i = 1; i <= n_all_runs; i++)
        if (!met_sample[sample_of(run[i])]++)
            sample[++n] = run[i]
    for (round = 1; round <= 2; round++)
        for (j = 1; j <= n_of_run + n_options; j++) {
            c = j <= n_of_run ? of_run[j] : option_name[j - n_of_run]
            if (c in is_key || c == x || c == "seed" || c == "sample" || c ~ /^(label|data-seed|probes|spectrum|(probe|val|checkpoint)-every)$/ && round == 1)
                continue
            if (round == 1) {
                varies = 0
                v = ""
                for (i = 1; i <= n && !varies; i++) {
                    g = of(sample[i], c)
                    varies = v != "" && g != "" && g != v
                    if (g != "")
                        v = g
                }
            } else {
                varies = 0
                split("", first)
                for (i = 1; i <= n; i++) {
                    g = group(sample[i], x)
                    if (!(g in first))
                        first[g] = sample[i]
                    else if (of(sample[i], c) != of(first[g], c))
                        varies = 1
                }
            }
            if (varies) {
                is_key[c] = 1
                key[++nkeys] = c
            }
        }
    split("", first)
    for (i = 1; i <= n; i++) {
        r = sample[i]
        if (group(r, x) in first)
            clash = 1
        first[group(r, x)] = r
    }
    for (i = 1; i <= n_all_runs; i++)
        run_value[run[i], "run"] = run[i]
    if (clash)
        key[++nkeys] = "run"
}

function group(r, x,    j, g) {
    g = of(r, x) SUBSEP of(r, "seed")
    for (j = 1; j <= nkeys; j++)
        g = g SUBSEP of(r, key[j])
    return g
}

# Takes note in left_out[RUN] of the runs that are not drawn: depth is `all`, a number of layers, or `deepest`: of runs that
# differ in depth alone the deepest.
function choose_depth(depth,    i, j, r, most, alike) {
    for (i = 1; i <= n_all_runs; i++) {
        r = run[i]
        for (j = 1; j <= nkeys; j++)
            if (key[j] != "depth")
                alike[r] = alike[r] SUBSEP of(r, key[j])
        if (of(r, "depth") + 0 > most[alike[r]])
            most[alike[r]] = of(r, "depth") + 0
    }
    for (i = 1; i <= n_all_runs; i++) {
        r = run[i]
        if (depth == "deepest" ? of(r, "depth") + 0 < most[alike[r]] : depth != "all" && of(r, "depth") != depth) {
            left_out[r] = 1
            n_left_out++
        }
    }
    if (n_left_out && n_left_out == n_all_runs)
        fail("no run has depth " depth)
}

# How a key's value is written in a legend; "" where it need not be.
function key_text(c, v) {
    if (v == "" || (c == "stream" && v == 0))
        return ""
    if (c ~ /^(layout|dtype|label|init|policy|sublayer|site)$/)
        return v
    return (c == "depth" ? "L" : c) " " v
}

# Options that the title tells where they are not what a run has by itself.
BEGIN {
    n_usual = split("post-gain=1 branch-init=own embed-rms=own qk-init=1 qk-norm=off norm=rms ffn=gelu branches=attn,ffn " \
        "accum=fp32 norm-stats=fp32 width=128 tie=off bias=off", usual)
}

# What is the same in all drawn runs (drawn[RUN]), for the title; not what the legend says (the first key).
function about_runs(    i, c, v, neutral, text) {
    for (i = 1; i <= split("depth dtype policy init label", list_); i++) {
        c = list_[i]
        v = common(c)
        if (v != "" && c != key[1] && !(c == "policy" && v == "plain"))
            text = text ", " (c == "depth" ? "L = " v : c == "dtype" ? v : c == "label" ? "“" v "”" : c " " v)
    }
    for (i = 1; i <= n_usual; i++) {
        c = neutral = usual[i]
        sub(/=.*/, "", c)
        sub(/^[^=]*=/, "", neutral)
        v = common(c)
        if (v != "" && v != neutral && c != key[1])
            text = text ", " c " " v
    }
    return text
}

# The options of the training that all drawn runs share, for a title
function about_training(    i, n, c, v, text) {
    n = split("lr warmup schedule optimizer clip weight-decay batch", list_)
    for (i = 1; i <= n; i++) {
        v = common(list_[i])
        if (v != "")
            text = text (text == "" ? "" : ", ") list_[i] " " v
    }
    return text
}

# The runs of each series, as series.awk has written them: member[SERIES, 1..members[SERIES]]
function read_members(    part) {
    while ((getline <"members.dat") > 0) {
        split($0, part, "\t")
        n_series = part[1]
        member[n_series, ++members[n_series]] = part[2]
        drawn[part[2]] = 1
    }
}

# The value that a column or option has in all drawn runs; "" where they differ.
function common(c,    i, n, v) {
    for (i = 1; i <= n_all_runs; i++)
        if (run[i] in drawn) {
            if (n++ && of(run[i], c) != v)
                return ""
            v = of(run[i], c)
        }
    return v
}
