# SPDX-License-Identifier: GPL-3.0-or-later
# sensitivity.awk final.csv: how much the final loss depends on the learning rate, for each series of series.awk; behind csv.awk
# and runs.awk. The LR sensitivity of a seed (arXiv:2309.14322) is the mean over the rates of min(final loss, start) less the
# least of them; it needs a run at every rate of the series, and one that ends below its start.
#
# Writes sensitivity.dat, two blocks a series: rate and loss of the runs that end below their start, and of the others; and
# sensitivity.gp: what the legend says.

BEGIN {
    file = ARGV[1]
    read_options("config.csv")
    read_members()
    csv_header(file)
    while (csv_row(file)) {
        r = run_name()
        loss[r] = field[column["loss"]]
        censored[r] = field[column["censored"]]
        meet(r)
        n_rates += !(of(r, "lr") in any_rate)
        any_rate[of(r, "lr")] = 1
    }
    out = "sensitivity.gp"
    print "array sensitivity[" n_series "]" >out
    for (i = 1; i <= n_series; i++) {
        for (c = 0; c <= 1; c++) {
            print "NaN NaN" >"sensitivity.dat"
            for (m = 1; m <= members[i]; m++) {
                r = member[i, m]
                if (censored[r] == c && kind(loss[r]) == "finite")
                    print of(r, "lr"), loss[r] >"sensitivity.dat"
                any_censored += censored[r]
            }
            printf "\n\n" >"sensitivity.dat"
        }
        print "sensitivity[" i "] = " gp(sensitivity(i)) >out
    }
    print "any_censored = " (any_censored > 0) >out
    print "training = " gp(about_training()) >out
    close(out)
}

function sensitivity(i,    m, r, s, n, rates, rate, runs, sum, least, below, any_below, v, total, low, high) {
    for (m = 1; m <= members[i]; m++) {
        r = member[i, m]
        if (!(of(r, "lr") in rate)) {
            rate[of(r, "lr")] = 1
            rates++
        }
        s = of(r, "seed")
        v = loss[r] + 0
        sum[s] += v
        if (!runs[s]++ || v < least[s])
            least[s] = v
        below[s] += !censored[r]
        any_below += !censored[r]
    }
    for (s in runs)
        if (runs[s] == rates && below[s]) {
            v = sum[s] / rates - least[s]
            total += v
            if (!n++ || v < low)
                low = v
            if (n == 1 || v > high)
                high = v
        }
    if (rates == 1)
        return "one rate"
    if (n == 0)
        return any_below ? "no seed at all rates" : "never below the start"
    return sprintf("%.3f", total / n) (n > 1 ? sprintf(" (%.3f–%.3f)", low, high) : "") \
        (rates < n_rates ? ", " rates " of " n_rates " rates" : "")
}
