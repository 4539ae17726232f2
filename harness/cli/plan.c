// SPDX-License-Identifier: GPL-3.0-or-later
/** What a run would take: memory, operations, time. */
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/core/memory.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool nh_run_needs(const struct nh_config *c, enum nh_needed what)
{
    bool needed = what == NH_NEEDED_BACKWARD && c->dump;
    for (int i = 0; nh_probes[i]; i++) {
        const struct nh_probe *p = nh_probes[i];
        bool reads = what == NH_NEEDED_SHADOW ? p->needs_shadow
                     : what == NH_NEEDED_WIDE ? p->needs_wide
                                              : p->gradients > (c->weights ? NH_GRADIENTS_WANTED : NH_GRADIENTS_NOT_READ);
        needed |= (c->probes >> i & 1) && reads;
    }
    return needed;
}

bool nh_run_is_streamed(const struct nh_config *c)
{
    bool streamed = c->weights && !c->train.steps && !c->dump;
    for (int i = 0; nh_probes[i]; i++)
        streamed = streamed && (!(c->probes >> i & 1) || nh_probes[i]->values != NH_READS_ANY);
    return streamed;
}

bool nh_run_needs_law(const struct nh_config *c)
{
    bool asked = false;
    for (int i = 0; nh_probes[i]; i++)
        asked |= (c->probes >> i & 1) && nh_probes[i]->needs_law;
    return asked && c->layout->law_term && !c->weights; /* it is of the start */
}

/** Multiply-adds times 2 per second of single-threaded products, from a short trial. */
static double product_rate(void)
{
    enum { N = 256, TRIALS = 8 };
    float *a = calloc(3 * N * N, sizeof *a);
    double best = (double)INFINITY;
    if (!a)
        nh_no_memory();
    for (int i = 0; i < TRIALS; i++) {
        double start = nh_seconds();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N, N, 1, a, N, a + N * N, N, 0, a + 2 * N * N, N);
        best = fmin(best, nh_seconds() - start);
    }
    free(a);
    return 2.0 * N * N * N / best;
}

/** How many of the steps are every-th ones or the last. */
static double due(int steps, int every)
{
    return every ? (steps - 1) / every + 1 + ((steps - 1) % every != 0) : 1;
}

/** Work of the whole run, in forward passes: the backward pass of a batch is two. */
static double passes(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    const struct nh_training *t = &c->train;
    double batches = t->steps ? (double)t->steps * t->grad_accum : 1, looks = 1, n = batches * (run->backward ? 3 : 1);
    if (t->steps > 1)
        looks = due(t->steps, t->probe_every) + (t->probe_every ? 0 : 1); /* the first step always */
    for (int i = 0; nh_probes[i]; i++)
        if (c->probes >> i & 1)
            n += nh_probes[i]->passes ? looks * nh_probes[i]->passes(c) : 0;
    return run->held_out ? n + NH_VALIDATION_BATCHES * due(t->steps, t->val_every) : n;
}

/** Seconds of a forward pass that are not spent in matrix products: every value goes through an operation, is rounded and counted, and
 *  every operation calls the threads together. Of small models that is most. */
static double pass_overhead(const struct nh_graph *g, int threads)
{
    const double by_value = 2e-9, by_operation = 5e-6; /* measured; docs/performance.md */
    double values = 0;
    for (const struct nh_rec *r = g->recs; r < g->recs + g->n_recs; r++) {
        values += (double)g->rows * g->values[r->out].cols;
        if (r->op == NH_OP_SDPA) /* scores and probabilities of the causal half */
            values += (double)g->rows * g->seq * r->u.sdpa.heads;
    }
    return values * by_value / threads + g->n_recs * by_operation;
}

/** What --dry-run prints: memory of the models, and an estimate of the time. */
static void estimate(const struct nh_run *run, const struct nh_graph *g, double bytes)
{
    const struct nh_config *c = &run->options.config;
    double forward = nh_graph_flops(g), all = passes(run) * forward;
    /* three quarters of the rate of bare products is what forward and backward reach; docs/performance.md */
    double time = all / (0.75 * product_rate() * c->threads), by_weight = 3e-9;
    time *= nh_core_for(g)->bits == 64 ? 2 : 1;
    time += passes(run) * pass_overhead(g, c->threads) + c->train.steps * (double)g->n_weights * by_weight / c->threads;
    printf("parameters  %zu\noperations  %.4g in matrix products, forward; %.4g in all, probes included\nmemory      %.1f MiB\n"
           "time        about %.1f s on %d threads\n", nh_graph_parameters(g), forward, all, bytes / 0x1p20, time, c->threads);
}

/** Bytes that probes and the law take beside the model. */
static double probe_memory(const struct nh_config *c, const struct nh_graph *g)
{
    enum { LAW_MATRICES = 10 };
    double bytes = nh_run_needs_law(c) ? LAW_MATRICES * sizeof(double) * (double)g->seq * g->seq : 0;
    for (int i = 0; nh_probes[i]; i++)
        if (c->probes >> i & 1 && nh_probes[i]->memory)
            bytes += nh_probes[i]->memory(c, g);
    return bytes;
}

int nh_run_plan(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    struct nh_config twin;
    struct nh_graph *g = NULL, *t = NULL;
    int status = nh_graph_build(&g, c, c->batch, c->seq, c->vocab);
    double need = 0;
    if (!status)
        need = (double)nh_model_memory(g, c->threads, run->backward) + probe_memory(c, g);
    for (enum nh_needed what = NH_NEEDED_SHADOW; what <= NH_NEEDED_WIDE && !status; what++) {
        bool measures = what == NH_NEEDED_SHADOW && nh_measures_start(c); /* a twin that comes and goes while models are made */
        if (!nh_run_needs(c, what) && !measures)
            continue;
        (what == NH_NEEDED_SHADOW ? nh_config_shadow : nh_config_wide)(&twin, c);
        status = nh_graph_build(&t, &twin, c->batch, c->seq, c->vocab);
        need += status ? 0 : (double)nh_model_memory(t, c->threads, false);
        nh_graph_free(t), t = NULL;
    }
    for (int i = 0; nh_probes[i] && !status; i++)
        if (c->probes >> i & 1 && nh_probes[i]->refuse)
            status = nh_probes[i]->refuse(c, g);
    char shortage[NH_SHORTAGE_SIZE];
    const bool is_short = !status && nh_memory_is_short(need, c->threads, shortage);
    if (!status && !is_short && c->dry_run && !nh_blas_take(1))
        nh_no_memory();
    if (!status && c->dry_run && nh_blas_take(1))
        estimate(run, g, need);
    nh_graph_free(g);
    if (is_short)
        return nh_fail(NH_FAILED, "this run %s try %s", shortage,
                       !c->weights    ? "a smaller --depth, --width, --batch or --seq, or --probes none"
                       : !c->streamed ? "--probes rms,overflow,headroom, which holds the weights of one operation at a time"
                                      : "a smaller --batch or --seq");
    return status;
}
