// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/check_laws.h"

#include "harness/core/err.h"
#include "harness/core/law.h"
#include "harness/core/model.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/** Where the gradient is read: at the start, and at each quarter of the depth. */
enum { QUARTERS = 4 };

static double *numbers(size_t n)
{
    double *p = calloc(n, sizeof *p);
    if (!p)
        nh_no_memory(); /* some vectors of the stream's size, beside an arena a thousand times as large */
    return p;
}

/** A model of one seed, on one thread, with no token twice in its batch. */
static int make_model(struct nh_model *m, struct nh_config *c, bool gradients)
{
    const int n = c->batch * c->seq;
    int *tokens = malloc((size_t)n * sizeof *tokens);
    if (!tokens)
        nh_no_memory();
    for (int i = 0; i < n; i++)
        tokens[i] = i;
    c->threads = 1, c->vocab = n;
    const int status = nh_model_create(m, c, c->batch, c->seq, c->vocab, tokens, gradients);
    if (!status)
        m->core->forward(m->exec);
    free(tokens);
    return status;
}

static double mean_square(const struct nh_model *m, nh_val v)
{
    const struct nh_moments x = m->core->moments(m->exec, v);
    return x.sum_sq / x.n;
}

static int run_forward(const struct nh_config *config, uint64_t seed, int back, int stream, double *rms, double *law)
{
    struct nh_config c = *config;
    struct nh_model m;
    c.seed = seed;
    int status = make_model(&m, &c, false);
    if (status)
        return status;
    const int step = m.graph->n_steps - 2 - back; /* the last step is the exit */
    const int sublayer = c.layout->block ? 2 * step - 1 : step - 1;
    const nh_val x = m.graph->steps[step].after[stream];
    assert(step > 0 && x >= 0);
    double *gram = numbers((size_t)c.seq * (size_t)c.seq), *laws = numbers(4 * (size_t)c.depth);
    status = nh_model_gram(&m, gram);
    if (!status)
        status = nh_law_rms(&c, gram, laws, laws + 2 * c.depth);
    *rms = sqrt(mean_square(&m, x));
    *law = laws[stream * 2 * c.depth + sublayer];
    free(gram), free(laws);
    nh_model_destroy(&m);
    return status;
}

/** Mean of x[0..n) and, where se is given, its standard error. */
static double mean_of(const double *x, int n, double *se)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] / n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - sum) * (x[i] - sum);
    if (se)
        *se = n > 1 ? sqrt(squares / (n - 1.0) / n) : 0;
    return sum;
}

int nh_check_law(const struct nh_config *config, int seeds, int back, int stream, struct nh_law_check *out)
{
    double *rms = numbers((size_t)seeds), *law = numbers((size_t)seeds);
    int status = NH_OK;
#pragma omp parallel for schedule(dynamic) num_threads(config->threads)
    for (int i = 0; i < seeds; i++) {
        const int one = run_forward(config, (uint64_t)i, back, stream, &rms[i], &law[i]);
        if (one) {
#pragma omp critical(nh_check_laws_status)
            status = one;
        }
    }
    out->rms = mean_of(rms, seeds, &out->se);
    out->law = mean_of(law, seeds, NULL);
    free(rms), free(law);
    return status ? nh_fail(status, "out of memory in a check of the laws") : NH_OK;
}

/** log(q_L/q_0), and log G at the start and at each quarter of the depth; up to a constant of the seed's. */
struct backward {
    double growth, g[QUARTERS + 1];
};

static int run_backward(const struct nh_config *config, uint64_t seed, struct backward *out)
{
    struct nh_config c = *config;
    struct nh_model m;
    c.seed = seed;
    const int status = make_model(&m, &c, true);
    if (status)
        return status;
    const struct nh_graph *g = m.graph;
    const int sublayers = g->n_steps - 2; /* neither the embedding nor the exit */
    const size_t n = (size_t)g->rows * (size_t)g->values[g->exit_value].cols;
    double *u = numbers(n);
    nh_model_cotangent(&m, seed, u); /* as --cotangent random */
    m.core->backward(m.exec, 1, u);
    for (int i = 0; i <= QUARTERS; i++) {
        const int step = c.depth * i / QUARTERS * (sublayers / c.depth);
        out->g[i] = log(m.core->grad_sum_sq(m.exec, g->steps[step].after[0]));
    }
    out->growth = log(mean_square(&m, g->steps[sublayers].after[0]) / mean_square(&m, g->steps[0].after[0]));
    free(u);
    nh_model_destroy(&m);
    return NH_OK;
}

int nh_check_gradient(const struct nh_config *config, int seeds, struct nh_gradient_check *out)
{
    assert(config->depth >= QUARTERS);
    struct backward *b = calloc((size_t)seeds, sizeof *b);
    double *x = numbers((size_t)seeds);
    int status = NH_OK;
    if (!b)
        nh_no_memory();
#pragma omp parallel for schedule(dynamic) num_threads(config->threads)
    for (int i = 0; i < seeds; i++) {
        const int one = run_backward(config, (uint64_t)i, &b[i]);
        if (one) {
#pragma omp critical(nh_check_laws_status)
            status = one;
        }
    }
    for (int i = 0; i < seeds; i++)
        x[i] = b[i].growth;
    out->growth = exp(mean_of(x, seeds, NULL));
    for (int i = 0; i < seeds; i++)
        x[i] = b[i].g[0] - b[i].g[QUARTERS];
    out->ratio = exp(mean_of(x, seeds, &out->se));
    out->falls = true;
    for (int k = 1; k <= QUARTERS; k++) {
        for (int i = 0; i < seeds; i++)
            x[i] = b[i].g[k - 1] - b[i].g[k];
        out->falls &= mean_of(x, seeds, NULL) > 0;
    }
    free(b), free(x);
    return status ? nh_fail(status, "out of memory in a check of the laws") : NH_OK;
}
