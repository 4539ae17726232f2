// SPDX-License-Identifier: GPL-3.0-or-later
/** How large the residual stream is, and what the branches give to it. */
#include "probes/probe.h"

#include <math.h>

static double rms(struct nh_moments m)
{
    return sqrt(m.sum_sq / m.n);
}

static int measure(const struct nh_view *view, struct nh_rows *rows)
{
    const struct nh_model *m = view->model;
#pragma omp parallel for schedule(static) num_threads(view->config->threads)
    for (int k = view->from; k < view->to; k++) {
        const struct nh_step *s = &m->graph->steps[k / NH_STREAMS];
        int stream = k % NH_STREAMS;
        if (s->after[stream] < 0)
            continue;
        struct nh_moments x = m->core->moments(m->exec, s->after[stream]);
        nh_set(rows, k, NH_LAYERS_RMS, rms(x));
        if (!isnan(view->rms_theory[k]))
            nh_set(rows, k, NH_LAYERS_RMS_THEORY, view->rms_theory[k]);
        nh_set(rows, k, NH_LAYERS_MAX_ABS, x.max_abs);
        if (x.has_kurtosis)
            nh_set(rows, k, NH_LAYERS_KURTOSIS, x.kurtosis);
        if (x.has_token_cos)
            nh_set(rows, k, NH_LAYERS_TOKEN_COS, x.token_cos);
        if (s->branch[stream] >= 0)
            nh_set(rows, k, NH_LAYERS_BRANCH_RMS, rms(m->core->moments(m->exec, s->branch[stream])));
        if (stream == 0 && s->raw >= 0)
            nh_set(rows, k, NH_LAYERS_BRANCH_RAW_RMS, rms(m->core->moments(m->exec, s->raw)));
    }
    return 0;
}

const struct nh_probe nh_probe_rms = {
    .name = "rms",
    .what = "size of the residual stream and of the branches: root mean square over all tokens and channels, in double",
    .columns = "rms rms_theory max_abs kurtosis token_cos branch_rms branch_raw_rms",
    .by_default = true,
    .needs_law = true,
    .values = NH_READS_STEP,
    .measure = measure,
};
