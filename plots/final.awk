# SPDX-License-Identifier: GPL-3.0-or-later
# final.awk data.csv: rows of steps.csv to final.csv, one row a run; behind csv.awk and runs.awk. `start` is the loss of the first
# step; `loss` the mean over the last tenth of the steps that the run was to have (its option `steps`), or the start where
# that is not finite or not below it; `censored` is then 1.

BEGIN {
    file = ARGV[1]
    read_options("config.csv")
    csv_header(file)
    for (i = 1; i <= split("step loss", need); i++)
        if (!(need[i] in column))
            fail("the results have no column " need[i])
    if (!("lr" in known_option && "steps" in known_option))
        fail("no run has options lr and steps: config.csv is missing beside the results")
    while (csv_row(file)) {
        r = run_name()
        meet(r)
        v = field[column["loss"]]
        k = kind(v)
        if (k == "text")
            fail("column loss holds \"" v "\", which is no number")
        if (k == "")
            continue
        t = field[column["step"]] + 0
        if (!(r in start))
            start[r] = v
        steps = of(r, "steps")
        if (t >= steps - int((steps + 9) / 10)) {
            bad[r] += k != "finite"
            sum[r] += v
            count[r]++
        }
    }
    out = "final.csv"
    for (i = 1; i <= n_of_run; i++)
        printf "%s,", of_run[i] >out
    print "run,start,loss,censored" >out
    for (i = 1; i <= n_all_runs; i++) {
        r = run[i]
        v = count[r] && !bad[r] ? sprintf("%.9g", sum[r] / count[r]) : "nan"
        censored = kind(v) == "nan" || kind(start[r]) == "finite" && v + 0 >= start[r] + 0
        for (j = 1; j <= n_of_run; j++)
            printf "%s,", csv_quote(of(r, of_run[j])) >out
        printf "%s,%s,%s,%d\n", r, start[r], censored ? start[r] : v, censored >out
    }
    close(out)
}
