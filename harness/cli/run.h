// SPDX-License-Identifier: GPL-3.0-or-later
/** A run in its parts: cmd_run.c goes through them, record.c writes the files, report.c prints the short table. */
#ifndef NH_RUN_H
#define NH_RUN_H

#include "harness/cli/options.h"
#include "harness/data/data.h"
#include "probes/probe.h"

/** Changes with every change that moves a number of the results: part of the name of a run. */
#define NH_NUMERICS_VERSION 1

enum nh_run_status { NH_RUN_OK, NH_RUN_OVERFLOWED, NH_RUN_DIVERGED };
extern const char *const nh_run_status_names[];

struct nh_run {
    struct nh_options options;
    struct nh_data *data;
    struct nh_model model, shadow; /**< shadow.graph is NULL where no probe needs it */
    struct nh_rows rows;
    double *rms_theory; /**< per row; nan = none */
    double loss, loss_scale, wall_s;
    bool backward;
    enum nh_run_status status;
    char id[9], *dir;
};

/** Makes the folder of the run and writes its files; run.json comes last. */
int nh_record_run(const struct nh_run *run);

/** NH_OK and *finished where the folder is free or holds this very run, finished; NH_USAGE where it holds another one. */
int nh_record_find(const struct nh_run *run, bool *finished);

/** The short table on stdout. */
void nh_report_run(const struct nh_run *run);

/** log2 of the format's maximum over the largest |x|: -inf behind an overflow, inf for a tensor of zeros, nan where there is
 *  nothing but NaN. */
double nh_headroom_bits(const struct nh_fmt *format, const struct nh_counts *c);

/** The format that values of a site are rounded to in a direction. */
const struct nh_fmt *nh_site_format(const struct nh_graph *g, int site, enum nh_direction direction);

#endif
