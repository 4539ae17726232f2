// SPDX-License-Identifier: GPL-3.0-or-later
/** The probes and the law, asked about the passes that have just run. */
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/core/law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** The layout's law on the measured input, by row. */
static int law(struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    const struct nh_graph *g = run->model.graph;
    int n_rows = g->n_steps * NH_STREAMS, status = NH_OK;
    run->rms_theory = malloc((size_t)n_rows * sizeof *run->rms_theory);
    if (!run->rms_theory)
        return nh_fail(NH_FAILED, "out of memory for the law of the stream; try a smaller --depth");
    for (int k = 0; k < n_rows; k++)
        run->rms_theory[k] = (double)NAN;
    if (!nh_run_needs_law(c))
        return NH_OK; /* so it is with weights that are no start */
    double *gram = malloc((size_t)g->seq * (size_t)g->seq * sizeof *gram);
    double *rms = malloc(2 * (size_t)n_rows * sizeof *rms); /* of either stream */
    status = gram && rms ? nh_model_gram(&run->model, gram) : nh_fail(NH_FAILED, "out of memory for the law; try a smaller --seq");
    if (!status)
        status = nh_law_rms(c, gram, rms, rms + n_rows);
    /* neither the embedding nor what the final norm gives is in the law */
    for (int k = NH_STREAMS; k < n_rows - NH_STREAMS && !status; k++) {
        int step = k / NH_STREAMS, sublayer = c->layout->block ? 2 * step - 1 : step - 1;
        run->rms_theory[k] = rms[k % NH_STREAMS * n_rows + sublayer];
    }
    free(gram), free(rms);
    return status;
}

int nh_measure_begin(struct nh_run *run)
{
    struct nh_rows *rows = &run->rows;
    rows->n = run->model.graph->n_steps * NH_STREAMS;
    rows->cells = calloc((size_t)rows->n * NH_COLUMN_COUNT, sizeof *rows->cells);
    rows->measured = calloc((size_t)rows->n * NH_COLUMN_COUNT, sizeof *rows->measured);
    if (!rows->cells || !rows->measured)
        return nh_fail(NH_FAILED, "out of memory for the result rows; try a smaller --depth");
    return law(run);
}

static struct nh_view view_of(const struct nh_run *run, int from, int to)
{
    return (struct nh_view){.config = &run->options.config, .model = &run->model, .rms_theory = run->rms_theory,
                            .shadow = run->shadow.graph ? &run->shadow : NULL, .counts = run->counts, .backward = run->backward,
                            .loss_scale = run->loss_scale / run->options.config.train.grad_accum, .from = from, .to = to};
}

void nh_measure_step(void *arg, int step)
{
    struct nh_run *run = arg;
    const struct nh_view view = view_of(run, step * NH_STREAMS, (step + 1) * NH_STREAMS);
    for (int i = 0; nh_probes[i]; i++)
        if ((run->options.config.probes >> i & 1) && nh_probes[i]->values == NH_READS_STEP)
            nh_probes[i]->measure(&view, &run->rows);
}

int nh_measure(struct nh_run *run)
{
    struct nh_rows *rows = &run->rows;
    const struct nh_view view = view_of(run, 0, rows->n);
    const bool streamed = run->options.config.streamed; /* then some have been asked on the way */
    int status = NH_OK;
    free(rows->spectrum);
    rows->spectrum = NULL, rows->n_spectrum = 0, rows->sites = false;
    if (!streamed)
        memset(rows->measured, 0, (size_t)rows->n * NH_COLUMN_COUNT * sizeof *rows->measured);
    for (int i = 0; nh_probes[i] && !status; i++)
        if ((run->options.config.probes >> i & 1) && !(streamed && nh_probes[i]->values == NH_READS_STEP))
            status = nh_probes[i]->measure(&view, rows);
    return status;
}
