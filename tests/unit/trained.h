// SPDX-License-Identifier: GPL-3.0-or-later
/** Training for tests, from the words of a command line, on the source uniform. */
#ifndef NH_TRAINED_H
#define NH_TRAINED_H

#include "harness/core/train.h"
#include "tests/property/model_config.h"

/** Not to be copied: the trainer points into it. */
struct trained {
    struct nh_config config;
    struct nh_model model;
    struct nh_trainer trainer;
    struct nh_data *data;
    int *tokens; /**< of the last batch */
};

static inline void trained_begin(struct trained *x, const char *words)
{
    x->config = config_of(words);
    const struct nh_config *c = &x->config;
    struct nh_data_request request = {.seq = c->seq, .batch = c->batch, .vocab = c->vocab, .seed = c->data_seed};
    x->tokens = zeros((size_t)c->batch * (size_t)c->seq, sizeof *x->tokens);
    must(nh_data_open(&x->data, "uniform", &request));
    must(nh_data_batch(x->data, 0, x->tokens));
    must(nh_model_create(&x->model, c, c->batch, c->seq, c->vocab, x->tokens, true));
    must(nh_trainer_create(&x->trainer, &x->config, &x->model));
}

static inline void trained_end(struct trained *x)
{
    nh_trainer_destroy(&x->trainer);
    nh_model_destroy(&x->model);
    nh_data_close(x->data);
    free(x->tokens);
}

/** The next step, its batches in the order of the data. */
static inline struct nh_train_step trained_step(struct trained *x)
{
    int n = x->config.train.grad_accum;
    for (int i = 0; i < n; i++) {
        must(nh_data_batch(x->data, (uint64_t)(x->trainer.step * n + i), x->tokens));
        nh_trainer_batch(&x->trainer, x->tokens);
    }
    return nh_trainer_update(&x->trainer);
}

/** The number of the parameter of this name; aborts where there is none. */
static inline int param_named(const struct nh_graph *g, const char *name)
{
    for (int p = 0; p < g->n_params; p++)
        if (strcmp(g->params[p].name, name) == 0)
            return p;
    abort();
}

/** True where all weights have the same bits. */
static inline bool same_weights(const struct nh_model *a, const struct nh_model *b)
{
    bool same = true;
    for (int p = 0; p < a->graph->n_params; p++) {
        double *v = param_of(a, p), *w = param_of(b, p);
        same &= memcmp(v, w, param_size(a->graph, p) * sizeof *v) == 0;
        free(v), free(w);
    }
    return same;
}

#endif
