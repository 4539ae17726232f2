// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/model.h"
#include "harness/core/err.h"
#include "harness/core/init.h"
#include "harness/core/rng.h"

#include <assert.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t param_size(const struct nh_param *p)
{
    return (size_t)p->rows * (size_t)p->cols;
}

size_t nh_graph_parameters(const struct nh_graph *g)
{
    size_t n = 0;
    for (int p = 0; p < g->n_params; p++)
        n += param_size(&g->params[p]);
    return n;
}

/** Start values of a parameter, in double. */
static void start_values(const struct nh_config *config, const struct nh_param *p, double factor, double *w)
{
    for (int i = 0; i < p->n_parts * p->repeat; i++) {
        const struct nh_part *part = &p->part[i % p->n_parts];
        size_t n = (size_t)part->rows * (size_t)p->cols;
        if (part->std > 0)
            nh_draw(config, p->layer, part->tensor + i / p->n_parts * NH_TENSOR_STEP, part->std * factor, w, n);
        else
            for (size_t j = 0; j < n; j++)
                w[j] = part->start;
        w += n;
    }
}

/** Factor on the embedding tables that brings the embedding output of this batch to --embed-rms exactly, before rounding. */
static int embed_factor(const struct nh_config *config, const struct nh_graph *g, const int *tokens, double *factor)
{
    *factor = 1;
    if (config->embed_rms <= 0)
        return NH_OK;
    const struct nh_rec *r = &g->recs[0];
    const struct nh_param *e = &g->params[r->par[0]], *q = r->par[1] < 0 ? NULL : &g->params[r->par[1]];
    size_t cols = (size_t)e->cols;
    double *table = malloc(param_size(e) * sizeof *table), *positions = q ? malloc(param_size(q) * sizeof *positions) : NULL;
    if (!table || (q && !positions)) {
        free(table), free(positions);
        return nh_fail(NH_FAILED, "out of memory for the embedding table; try a smaller --vocab or --width");
    }
    start_values(config, e, 1, table);
    if (q)
        start_values(config, q, 1, positions);
    double sum = 0;
    for (int i = 0; i < g->rows; i++)
        for (size_t c = 0; c < cols; c++) {
            double x = r->u.embed.scale * table[(size_t)tokens[i] * cols + c];
            x += q ? positions[(size_t)(i % g->seq) * cols + c] : 0;
            sum += x * x;
        }
    *factor = config->embed_rms / sqrt(sum / ((double)g->rows * (double)cols));
    free(table), free(positions);
    return NH_OK;
}

static int set_weights(struct nh_model *m, const struct nh_config *config, const int *tokens)
{
    const struct nh_graph *g = m->graph;
    const struct nh_weight_source *source = config->weights;
    double factor;
    int status = embed_factor(config, g, tokens, &factor);
    if (status)
        return status;
    for (int i = 0; source && i < g->n_params; i++)
        m->core->take_param(m->exec, source, i);
#pragma omp parallel for schedule(dynamic) num_threads(config->threads)
    for (int i = 0; i < (source ? 0 : g->n_params); i++) {
        const struct nh_param *p = &g->params[i];
        double *w = malloc(param_size(p) * sizeof *w);
        if (!w)
            nh_no_memory(); /* the same size has just been had in the arena */
        start_values(config, p, p->role == NH_ROLE_EMBEDDING ? factor : 1, w);
        m->core->set_param(m->exec, i, w);
        free(w);
    }
    return NH_OK;
}

/** The tape of a model gets its numbers. */
static int fill(struct nh_model *m, const struct nh_config *config, const int *tokens, bool gradients)
{
    m->core = nh_core_for(m->graph);
    int status = m->core->create(&m->exec, m->graph, config->threads, gradients);
    if (status)
        return status;
    m->core->set_tokens(m->exec, tokens);
    return config->streamed ? NH_OK : set_weights(m, config, tokens);
}

static double variance(const struct nh_model *m, nh_val v, double *room)
{
    size_t n = (size_t)m->graph->rows * (size_t)m->graph->values[v].cols;
    m->core->read(m->exec, v, room);
    return gsl_stats_variance_with_fixed_mean(room, 1, n, gsl_stats_mean(room, 1, n));
}

/** Parameters with a measured start, from a forward pass of the twin to the tape g: they have the same steps and parameters. */
static void measure_starts(const struct nh_model *twin, const struct nh_config *config, double *room, struct nh_graph *g)
{
    const struct nh_graph *t = twin->graph;
    double sum = 0;
    twin->core->forward(twin->exec);
    for (int k = 1; k < t->n_steps - 1; k++) {
        const struct nh_step *s = &t->steps[k];
        for (int r = s->first_rec; r < s->end_rec; r++) {
            int p = t->recs[r].par[0];
            if (p >= 0 && t->params[p].profiled)
                g->params[p].part[0].start = config->layout->skip_start(sum);
        }
        assert(s->branch[0] >= 0);
        sum += variance(twin, s->branch[0], room);
    }
}

bool nh_measures_start(const struct nh_config *config)
{
    return config->layout->skip_start && !config->weights;
}

/** Every format starts from the same numbers, so they are measured in fp64, on weights that are not rounded. */
static int profile(struct nh_graph *g, const struct nh_config *config, const int *tokens)
{
    struct nh_config shadow;
    struct nh_model twin = {0};
    nh_config_shadow(&shadow, config);
    double *room = malloc((size_t)g->rows * (size_t)config->width * sizeof *room);
    int status = room ? nh_graph_build(&twin.graph, &shadow, g->batch, g->seq, g->vocab)
                      : nh_fail(NH_FAILED, "out of memory for a profile of the start; try a smaller --batch, --seq or --width");
    if (!status)
        status = fill(&twin, &shadow, tokens, false);
    if (!status)
        measure_starts(&twin, config, room, g);
    nh_model_destroy(&twin);
    free(room);
    return status;
}

int nh_model_create(struct nh_model *m, const struct nh_config *config, int batch, int seq, int vocab, const int *tokens,
                    bool gradients)
{
    *m = (struct nh_model){0};
    int status = nh_graph_build(&m->graph, config, batch, seq, vocab);
    if (!status && nh_measures_start(config))
        status = profile(m->graph, config, tokens);
    if (!status)
        status = fill(m, config, tokens, gradients);
    if (status)
        nh_model_destroy(m);
    return status;
}

void nh_model_destroy(struct nh_model *m)
{
    if (m->exec)
        m->core->destroy(m->exec);
    nh_graph_free(m->graph);
    *m = (struct nh_model){0};
}

double nh_model_forward(struct nh_model *m, const struct nh_config *config, void (*look)(void *arg, int step), void *arg)
{
    if (config->streamed)
        return m->core->forward_streamed(m->exec, config->weights, look, arg);
    return m->core->forward(m->exec);
}

void nh_model_masters(const struct nh_model *m, int param, double *w)
{
    const void *master = m->core->state(m->exec, param, NH_STATE_MASTER);
    if (!master) {
        m->core->read_param(m->exec, param, w);
        return;
    }
    for (size_t i = 0; i < param_size(&m->graph->params[param]); i++)
        w[i] = m->core->bits == 64 ? ((const double *)master)[i] : (double)((const float *)master)[i];
}

/** The same function with every format that of dtype. */
static void twin(struct nh_config *other, const struct nh_config *config, const char *dtype)
{
    *other = *config;
    nh_fmt_parse(&other->dtype, dtype);
    other->policy = nh_policies[0];
    other->accum = other->norm_stats = NH_WIDE_FP32;
    other->train.steps = 0;
    memset(other->role_format, 0, sizeof other->role_format);
    other->cast_before_gain = false;
}

void nh_config_shadow(struct nh_config *shadow, const struct nh_config *config)
{
    twin(shadow, config, "fp64");
}

void nh_config_wide(struct nh_config *wide, const struct nh_config *config)
{
    twin(wide, config, "fp32");
}

size_t nh_model_memory(const struct nh_graph *g, int threads, bool gradients)
{
    return nh_core_for(g)->memory(g, threads, gradients);
}

int nh_model_gram(const struct nh_model *m, double *gram)
{
    const struct nh_graph *g = m->graph;
    nh_val v = g->recs[0].out;
    size_t seq = (size_t)g->seq, width = (size_t)g->values[v].cols, n = (size_t)g->rows * width;
    double *x = malloc(n * sizeof *x);
    if (!x)
        return nh_fail(NH_FAILED, "out of memory for the law of the stream; try a smaller --seq or --width");
    m->core->read(m->exec, v, x);
    memset(gram, 0, seq * seq * sizeof *gram);
    for (size_t b = 0; b < (size_t)g->batch; b++)
        for (size_t t = 0; t < seq; t++)
            for (size_t u = 0; u <= t; u++) {
                const double *xt = x + (b * seq + t) * width, *xu = x + (b * seq + u) * width;
                double s = 0;
                for (size_t i = 0; i < width; i++)
                    s += xt[i] * xu[i];
                gram[t * seq + u] += s / (double)width / g->batch;
                gram[u * seq + t] = gram[t * seq + u];
            }
    free(x);
    return NH_OK;
}

void nh_model_cotangent(const struct nh_model *m, uint64_t seed, double *u)
{
    const struct nh_graph *g = m->graph;
    size_t n = (size_t)g->rows * (size_t)g->values[g->exit_value].cols;
    struct nh_rng_state state;
    gsl_rng rng = {nh_rng_type, &state};
    nh_rng_start(&rng, seed, UINT64_C(2) << 32, 0);
    for (size_t i = 0; i < n; i++)
        u[i] = nh_rng_normal(&rng);
}
