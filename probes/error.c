// SPDX-License-Identifier: GPL-3.0-or-later
/** How far rounding has moved the stream: against a twin of the same model in fp64 that starts from unrounded weights. */
#include "probes/probe.h"

#include <math.h>
#include <stdlib.h>

static int measure(const struct nh_view *view, struct nh_rows *rows)
{
    const struct nh_model *m = view->model, *t = view->shadow;
    size_t n = (size_t)m->graph->rows * (size_t)m->graph->values[m->graph->steps[0].after[0]].cols;
    double *x = malloc(2 * n * sizeof *x), *y = x + n;
    if (!x)
        return nh_fail(NH_FAILED, "out of memory in the error probe; try --probes without error");
    for (int k = 0; k < rows->n; k++) {
        nh_val v = m->graph->steps[k / NH_STREAMS].after[k % NH_STREAMS];
        nh_val w = t->graph->steps[k / NH_STREAMS].after[k % NH_STREAMS];
        if (v < 0)
            continue;
        m->core->read(m->exec, v, x);
        t->core->read(t->exec, w, y);
        double difference = 0, norm = 0;
        for (size_t i = 0; i < n; i++) {
            difference += (x[i] - y[i]) * (x[i] - y[i]);
            norm += y[i] * y[i];
        }
        if (norm != 0) /* nothing is relative to zero */
            nh_set(rows, k, NH_LAYERS_REL_ERR, sqrt(difference / norm));
    }
    free(x);
    return NH_OK;
}

/** The twin, whose products take twice as long. */
static double passes(const struct nh_config *config)
{
    (void)config;
    return 2;
}

const struct nh_probe nh_probe_error = {
    .name = "error",
    .what = "relative error of the stream, ||x - x64|| / ||x64||, against an fp64 twin that runs beside it",
    .columns = "rel_err",
    .needs_shadow = true,
    .passes = passes,
    .measure = measure,
};
