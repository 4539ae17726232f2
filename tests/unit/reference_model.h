// SPDX-License-Identifier: GPL-3.0-or-later
/** The reference of a model of the program: same shape, same weights. */
#ifndef NH_REFERENCE_MODEL_H
#define NH_REFERENCE_MODEL_H

#include "tests/property/model_config.h"
#include "tests/unit/reference.h"

/** Layouts that the reference knows, in the order of enum ref_layout. */
static const char *const ref_layouts[] = {"pre", "post", "sandwich"};

static inline enum ref_layout ref_layout_of(const struct nh_layout *layout)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(layout->name, ref_layouts[i]) == 0)
            return (enum ref_layout)i;
    abort();
}

/** The parameter of the same name; aborts where there is none of the same shape. */
static inline struct ref_param *ref_param_of(struct reference *r, const struct nh_graph *g, int param)
{
    struct ref_param *p = ref_param(r, g->params[param].name);
    if (!p || p->rows != (size_t)g->params[param].rows || p->cols != (size_t)g->params[param].cols)
        abort();
    return p;
}

/** A reference with the weights that the model has now. The model is of learned positions, with a head of its own. */
static inline struct reference *reference_of(const struct nh_config *c, const struct nh_model *m)
{
    struct ref_shape shape = {
        .layout = ref_layout_of(c->layout),
        .layer_norm = c->norm == NH_NORM_LAYER,
        .gated = c->ffn == NH_FFN_SWIGLU,
        .depth = (size_t)c->depth,
        .width = (size_t)c->width,
        .heads = (size_t)c->heads,
        .hidden = (size_t)lround(c->ffn_mult * c->width),
        .vocab = (size_t)c->vocab,
        .batch = (size_t)c->batch,
        .seq = (size_t)c->seq,
        .eps = c->eps,
    };
    struct reference *r = ref_create(&shape);
    if (r->n_params != (size_t)m->graph->n_params)
        abort();
    for (int p = 0; p < m->graph->n_params; p++)
        m->core->read_param(m->exec, p, ref_param_of(r, m->graph, p)->w);
    return r;
}

#endif
