// SPDX-License-Identifier: GPL-3.0-or-later
/** Whole models for tests, from the words of a command line. What goes wrong here aborts: it may run in several
 * threads. */
#ifndef NH_MODEL_CONFIG_H
#define NH_MODEL_CONFIG_H

#include "harness/cli/options.h"
#include "harness/cli/value.h"
#include "harness/core/err.h"
#include "harness/core/model.h"
#include "harness/data/data.h"
#include "layouts/layout.h"
#include "probes/probe.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** For main(): freed pages stay. Given back, they are cleared again for the next model, which takes as long as a short
 * run. */
static inline void keep_memory(void)
{
    mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, -1), mallopt(M_ARENA_MAX, 1);
}

static inline void must(int status)
{
    if (status == NH_OK)
        return;
    fprintf(stderr, "%s\n", nh_error());
    abort();
}

static inline void *zeros(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p)
        abort();
    return p;
}

/** The configuration of `harness WORDS`; sizes that are up to the data are 2 sequences of 8 tokens below 32. One
 * thread, unless words say otherwise. */
static inline struct nh_config config_of(const char *words)
{
    char copy[512], *argv[64] = {0}, *rest = copy;
    int argc = 0;
    if (snprintf(copy, sizeof copy, "%s", words) >= (int)sizeof copy)
        abort();
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word && argc < 64)
            argv[argc++] = word;
    struct nh_options o;
    must(nh_options_parse(&o, argc, argv));
    struct nh_config c = o.config;
    c.threads = nh_options_given(&o, "threads") ? c.threads : 1;
    c.batch = c.batch ? c.batch : 2, c.seq = c.seq ? c.seq : 8, c.vocab = c.vocab ? c.vocab : 32;
    c.data = c.out = c.label = NULL; /* they point into copy */
    return c;
}

static inline int n_layouts(void)
{
    int n = 0;
    while (nh_layouts[n])
        n++;
    return n;
}

/** The configuration of `harness WORDS` with another layout, a number in the registry. Words that have no effect in
 * some layouts are not refused here. */
static inline struct nh_config layout_config(int layout, const char *words)
{
    struct nh_config c = config_of(words);
    c.layout = nh_layouts[layout];
    nh_knobs_start(c.layout, c.knobs);
    return c;
}

/** The layouts that the laws of depth are about: the first of the registry. */
static inline bool is_classic(const struct nh_layout *layout)
{
    static const char *const names[] = {"pre", "post", "sandwich", "sandwich-depth", "sandwich-l"};
    for (int i = 0; i < 5; i++)
        if (strcmp(layout->name, names[i]) == 0)
            return true;
    return false;
}

/** The first batch of the source uniform; to be freed. */
static inline int *tokens_of(const struct nh_config *c)
{
    struct nh_data *data;
    struct nh_data_request request = {.seq = c->seq, .batch = c->batch, .vocab = c->vocab, .seed = c->data_seed};
    int *tokens = zeros((size_t)c->batch * (size_t)c->seq, sizeof *tokens);
    must(nh_data_open(&data, "uniform", &request));
    must(nh_data_batch(data, 0, tokens));
    nh_data_close(data);
    return tokens;
}

/** A model that reads the first batch of the source uniform. */
static inline struct nh_model model_of(const struct nh_config *c, bool gradients)
{
    struct nh_model m;
    int *tokens = tokens_of(c);
    must(nh_model_create(&m, c, c->batch, c->seq, c->vocab, tokens, gradients));
    free(tokens);
    return m;
}

/** 0 for v = -1, no value. */
static inline size_t value_size(const struct nh_graph *g, nh_val v)
{
    return v < 0 ? 0 : (size_t)g->rows * (size_t)g->values[v].cols;
}

static inline size_t param_size(const struct nh_graph *g, int param)
{
    return (size_t)g->params[param].rows * (size_t)g->params[param].cols;
}

/** A value, to be freed. */
static inline double *value_of(const struct nh_model *m, nh_val v)
{
    double *x = zeros(value_size(m->graph, v), sizeof *x);
    m->core->read(m->exec, v, x);
    return x;
}

/** A parameter, to be freed. */
static inline double *param_of(const struct nh_model *m, int param)
{
    double *w = zeros(param_size(m->graph, param), sizeof *w);
    m->core->read_param(m->exec, param, w);
    return w;
}

/** True where a parameter's name, behind "layers.N." if that is there, is this one. */
static inline bool is_named(const struct nh_graph *g, int param, const char *name)
{
    int behind = 0;
    sscanf(g->params[param].name, "layers.%*d.%n", &behind); /* stays 0 where that is not there */
    return strcmp(g->params[param].name + behind, name) == 0;
}

/** Sets all values of the parameters of this name, in all layers; returns how many parameters there are. */
static inline int fill_params(struct nh_model *m, const char *name, double value)
{
    int n = 0;
    for (int p = 0; p < m->graph->n_params; p++) {
        if (!is_named(m->graph, p, name))
            continue;
        double *w = zeros(param_size(m->graph, p), sizeof *w);
        for (size_t i = 0; i < param_size(m->graph, p); i++)
            w[i] = value;
        m->core->set_param(m->exec, p, w);
        free(w);
        n++;
    }
    return n;
}

/** Operations of a kind that belong to a layer, all layers where it is 0. */
static inline int count_ops(const struct nh_graph *g, enum nh_op op, int layer)
{
    int n = 0;
    for (int r = 0; r < g->n_recs; r++)
        n += g->recs[r].op == op && (!layer || g->sites[g->values[g->recs[r].out].site].layer == layer);
    return n;
}

/** What a probe of a model gives; to be freed by rows_free. */
static inline struct nh_rows probed(const char *probe, const struct nh_config *c, const struct nh_model *m,
                                    const struct nh_model *shadow, double loss_scale)
{
    size_t n = (size_t)m->graph->n_steps * NH_STREAMS;
    struct nh_rows rows = {.n = (int)n,
                           .cells = zeros(n * NH_COLUMN_COUNT, sizeof(double)),
                           .measured = zeros(n * NH_COLUMN_COUNT, sizeof(bool))};
    double *no_law = zeros(n, sizeof *no_law);
    for (size_t k = 0; k < n; k++)
        no_law[k] = (double)NAN;
    struct nh_view view = {.config = c, .model = m, .shadow = shadow, .rms_theory = no_law,
                           .counts = m->core->counts(m->exec), .backward = true, .loss_scale = loss_scale,
                           .to = (int)n};
    int found = 0;
    for (int i = 0; nh_probes[i]; i++)
        if (strcmp(nh_probes[i]->name, probe) == 0)
            found++, must(nh_probes[i]->measure(&view, &rows));
    if (!found)
        abort();
    free(no_law);
    return rows;
}

static inline void rows_free(struct nh_rows *rows)
{
    free(rows->cells), free(rows->measured), free(rows->spectrum);
}

/** A cell of a step, stream 0; -1 where it was not measured. */
static inline double cell(const struct nh_rows *rows, int step, enum nh_column_id column)
{
    size_t i = (size_t)(step * NH_STREAMS) * NH_COLUMN_COUNT + (size_t)column;
    return rows->measured[i] ? rows->cells[i] : -1;
}

#endif
