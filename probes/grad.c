// SPDX-License-Identifier: GPL-3.0-or-later
/** How large the gradient with respect to the residual stream is. */
#include "probes/probe.h"

#include <math.h>

static int measure(const struct nh_view *view, struct nh_rows *rows)
{
    const struct nh_model *m = view->model;
#pragma omp parallel for schedule(static) num_threads(view->config->threads)
    for (int k = 0; k < rows->n; k++) {
        nh_val x = m->graph->steps[k / NH_STREAMS].after[k % NH_STREAMS];
        if (x < 0)
            continue;
        double n = (double)m->graph->rows * (double)m->graph->values[x].cols;
        nh_set(rows, k, NH_LAYERS_GRAD_RMS, sqrt(m->core->grad_sum_sq(m->exec, x) / n) / view->loss_scale);
    }
    return 0;
}

const struct nh_probe nh_probe_grad = {
    .name = "grad",
    .what = "gradient of the loss (or of a random cotangent) with respect to the stream, unscaled: root mean square",
    .columns = "grad_rms",
    .by_default = true,
    .gradients = NH_GRADIENTS_NEEDED,
    .measure = measure,
};
