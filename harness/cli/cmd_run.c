// SPDX-License-Identifier: GPL-3.0-or-later
/** harness run: initialise a model, feed it one batch, forward, backward, probes, results. */
#include "harness/cli/cli.h"
#include "harness/cli/run.h"
#include "harness/core/err.h"
#include "harness/core/law.h"
#include "harness/core/rng.h"
#include "harness/core/threads.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const nh_run_status_names[] = {"ok", "overflowed", "diverged"};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/** A line of talk about what is going on, on a terminal only. */
static void stage(const char *what)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s%s", what, *what ? " ..." : "");
}

static bool any_probe(const struct nh_config *c, bool shadow)
{
    for (int i = 0; nh_probes[i]; i++)
        if (c->probes >> i & 1 && (shadow ? nh_probes[i]->needs_shadow : nh_probes[i]->needs_backward))
            return true;
    return false;
}

/** Opens the data, takes the sizes that are up to it, and names the run and its folder. */
static int begin(struct nh_run *run)
{
    struct nh_config *c = &run->options.config;
    struct nh_data_request request = {.seq = c->seq, .batch = c->batch, .vocab = c->vocab, .seed = c->data_seed,
                                      .image_grid = c->image_grid, .image_levels = c->image_levels};
    int status = nh_data_open(&run->data, c->data, &request);
    if (status)
        return status;
    c->seq = run->data->seq, c->batch = run->data->batch, c->vocab = run->data->vocab;
    if (c->window >= c->seq)
        return nh_fail(NH_USAGE, "--window %d has no effect on sequences of %d tokens; leave it out or take a smaller one", c->window,
                       c->seq);
    char extra[64];
    snprintf(extra, sizeof extra, "%016llx/%d", (unsigned long long)run->data->digest, NH_NUMERICS_VERSION);
    nh_options_hash(&run->options, extra, run->id);
    if (c->out)
        run->dir = strdup(c->out);
    else if (asprintf(&run->dir, "results/runs/%s-L%d-%s-s%llu-%s", c->layout->name, c->depth, c->dtype.name,
                      (unsigned long long)c->seed, run->id) < 0)
        run->dir = NULL;
    return run->dir ? NH_OK : nh_fail(NH_FAILED, "out of memory");
}

/** Multiply-adds times 2 per second of single-threaded products, from a short trial. */
static double product_rate(void)
{
    enum { N = 256, TRIALS = 8 };
    float *a = calloc(3 * N * N, sizeof *a);
    double best = (double)INFINITY;
    if (!a)
        abort();
    for (int i = 0; i < TRIALS; i++) {
        double start = seconds();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N, N, 1, a, N, a + N * N, N, 0, a + 2 * N * N, N);
        best = fmin(best, seconds() - start);
    }
    free(a);
    return 2.0 * N * N * N / best;
}

/** What --dry-run prints: memory of the models, and an estimate of the time. */
static void estimate(const struct nh_run *run, const struct nh_graph *g, double bytes)
{
    const struct nh_config *c = &run->options.config;
    double forward = nh_graph_flops(g), passes = run->backward ? 3 : 1;
    for (int i = 0; nh_probes[i]; i++)
        if (c->probes >> i & 1)
            passes += nh_probes[i]->passes ? nh_probes[i]->passes(c) : 0;
    /* three quarters of the rate of bare products is what forward and backward reach; docs/performance.md */
    double time = passes * forward / (0.75 * product_rate() * c->threads);
    time *= nh_core_for(g)->bits == 64 ? 2 : 1;
    printf("parameters  %zu\noperations  %.4g in matrix products, forward; %.4g in all, probes included\nmemory      %.1f MiB\n"
           "time        about %.1f s on %d threads\n", nh_graph_parameters(g), forward, passes * forward, bytes / 0x1p20, time,
           c->threads);
}

/** True where some probe asks for the law and the layout has one. */
static bool wants_law(const struct nh_config *c)
{
    bool asked = false;
    for (int i = 0; nh_probes[i]; i++)
        asked |= (c->probes >> i & 1) && nh_probes[i]->needs_law;
    return asked && c->layout->law_term;
}

/** Bytes that probes and the law take beside the model. */
static double probe_memory(const struct nh_config *c, const struct nh_graph *g)
{
    enum { LAW_MATRICES = 8 };
    double bytes = wants_law(c) ? LAW_MATRICES * sizeof(double) * (double)g->seq * g->seq : 0;
    for (int i = 0; nh_probes[i]; i++)
        if (c->probes >> i & 1 && nh_probes[i]->memory)
            bytes += nh_probes[i]->memory(c, g);
    return bytes;
}

/** Refuses what cannot fit, before anything is allocated or written; with --dry-run tells what it would take. */
static int check_size(const struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    struct nh_config twin;
    struct nh_graph *g = NULL, *t = NULL;
    nh_config_shadow(&twin, c);
    int status = nh_graph_build(&g, c, c->batch, c->seq, c->vocab);
    double need = 0, have = (double)nh_memory_available();
    if (!status)
        need = (double)nh_model_memory(g, c->threads, run->backward) + probe_memory(c, g);
    if (!status && any_probe(c, true)) {
        status = nh_graph_build(&t, &twin, c->batch, c->seq, c->vocab);
        need += status ? 0 : (double)nh_model_memory(t, c->threads, false);
    }
    for (int i = 0; nh_probes[i] && !status; i++)
        if (c->probes >> i & 1 && nh_probes[i]->refuse)
            status = nh_probes[i]->refuse(c, g);
    if (!status && c->dry_run)
        estimate(run, g, need);
    nh_graph_free(g), nh_graph_free(t);
    if (!status && need > have)
        return nh_fail(NH_FAILED, "this run needs %.1f GiB of memory and %.1f GiB are free; try a smaller --depth, --width, --batch or "
                                  "--seq, or --probes none", need / 0x1p30, have / 0x1p30);
    return status;
}

static int make_models(struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    int *tokens = malloc((size_t)c->batch * (size_t)c->seq * sizeof *tokens);
    if (!tokens)
        return nh_fail(NH_FAILED, "out of memory for a batch; try a smaller --batch");
    int status = nh_data_batch(run->data, 0, tokens);
    if (!status)
        status = nh_model_create(&run->model, c, c->batch, c->seq, c->vocab, tokens, run->backward);
    if (!status && any_probe(c, true)) {
        struct nh_config twin;
        nh_config_shadow(&twin, c);
        status = nh_model_create(&run->shadow, &twin, c->batch, c->seq, c->vocab, tokens, false);
    }
    free(tokens);
    return status;
}

static void run_models(struct nh_run *run)
{
    const struct nh_config *c = &run->options.config;
    const struct nh_model *m = &run->model;
    stage("forward");
    run->loss = m->core->forward(m->exec);
    if (run->shadow.graph)
        run->shadow.core->forward(run->shadow.exec);
    run->loss_scale = 1;
    if (!run->backward)
        return;
    stage("backward");
    if (c->cotangent_random) {
        size_t n = (size_t)m->graph->rows * (size_t)c->width;
        double *u = malloc(n * sizeof *u);
        if (!u)
            abort(); /* beside an arena a thousand times as large */
        nh_model_cotangent(m, c->seed, u);
        m->core->backward(m->exec, 1, u); /* unit variance needs no scale, and times 65536 it would leave fp16 */
        free(u);
    } else {
        run->loss_scale = strcmp(c->dtype.name, "fp16") == 0 ? 65536 : 1;
        m->core->backward(m->exec, run->loss_scale, NULL);
    }
}

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
    if (!wants_law(c))
        return NH_OK;
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

static int run_probes(struct nh_run *run)
{
    struct nh_rows *rows = &run->rows;
    rows->n = run->model.graph->n_steps * NH_STREAMS;
    rows->cells = calloc((size_t)rows->n * NH_COLUMN_COUNT, sizeof *rows->cells);
    rows->measured = calloc((size_t)rows->n * NH_COLUMN_COUNT, sizeof *rows->measured);
    if (!rows->cells || !rows->measured)
        return nh_fail(NH_FAILED, "out of memory for the result rows; try a smaller --depth");
    struct nh_view view = {.config = &run->options.config, .model = &run->model, .rms_theory = run->rms_theory,
                           .shadow = run->shadow.graph ? &run->shadow : NULL, .loss_scale = run->loss_scale};
    int status = NH_OK;
    for (int i = 0; nh_probes[i] && !status; i++)
        if (run->options.config.probes >> i & 1) {
            stage(nh_probes[i]->name);
            status = nh_probes[i]->measure(&view, rows);
        }
    return status;
}

static enum nh_run_status judge(const struct nh_run *run)
{
    if (!isfinite(run->loss))
        return NH_RUN_DIVERGED;
    return run->model.core->first(run->model.exec, NH_FWD).kind != NH_NO_OFFENCE ? NH_RUN_OVERFLOWED : NH_RUN_OK;
}

static int run_all(struct nh_run *run, double start)
{
    const struct nh_config *c = &run->options.config;
    bool finished = false;
    int status = begin(run);
    if (!status && !c->force && !c->dry_run)
        status = nh_record_find(run, &finished);
    if (status)
        return status;
    if (finished) {
        printf("%s is there already, finished; --force runs it again\n", run->dir);
        return NH_OK;
    }
    run->backward = any_probe(c, false);
    status = check_size(run);
    if (status || c->dry_run)
        return status;
    if (c->seq == 1)
        fprintf(stderr, "harness: with --seq 1 no token has a next one, so the loss and all gradients are 0\n");
    nh_threads_start(c->threads);
    stage("model");
    status = make_models(run);
    if (status)
        return status;
    run_models(run);
    status = law(run);
    if (!status)
        status = run_probes(run);
    stage("");
    if (status)
        return status;
    run->status = judge(run);
    run->wall_s = seconds() - start;
    status = nh_record_run(run);
    if (!status)
        nh_report_run(run);
    return status;
}

int nh_cmd_run(int argc, char **argv)
{
    double start = seconds();
    struct nh_run run = {0};
    int status = nh_options_parse(&run.options, argc, argv);
    if (!status)
        status = run_all(&run, start);
    nh_model_destroy(&run.model), nh_model_destroy(&run.shadow);
    nh_data_close(run.data);
    free(run.rows.cells), free(run.rows.measured), free(run.rows.spectrum), free(run.rms_theory), free(run.dir);
    return status;
}
