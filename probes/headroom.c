// SPDX-License-Identifier: GPL-3.0-or-later
/** What would leave a narrower format: the largest value of every site in an fp32 twin of the run, where nothing overflows and so
 *  nothing is lost behind an overflow. The twin's counters are read when the results are written; here it is only asked for. */
#include "probes/probe.h"

static int measure(const struct nh_view *view, struct nh_rows *rows)
{
    (void)view;
    rows->sites = true;
    return NH_OK;
}

static int refuse(const struct nh_config *config, const struct nh_graph *g)
{
    (void)g;
    if (config->train.steps)
        return nh_fail(NH_USAGE, "the probe headroom looks at one pass, of which its twin runs beside it; leave it out of --probes, or "
                                 "--steps");
    return NH_OK;
}

/** The twin. */
static double passes(const struct nh_config *config)
{
    (void)config;
    return 1;
}

const struct nh_probe nh_probe_headroom = {
    .name = "headroom",
    .what = "largest value of every site in an fp32 twin of the run: bits of headroom in other formats, and what would overflow there",
    .columns = "max_abs_fp32 of sites.csv",
    .needs_wide = true,
    .values = NH_READS_NONE,
    .passes = passes,
    .refuse = refuse,
    .measure = measure,
};
