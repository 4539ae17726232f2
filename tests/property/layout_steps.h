// SPDX-License-Identifier: GPL-3.0-or-later
/** What the tests of layouts share. */
#ifndef NH_LAYOUT_STEPS_H
#define NH_LAYOUT_STEPS_H

#include "tests/property/model_config.h"

#include <check.h>
#include <math.h>

#define COUNT(a)                                ((int)(sizeof(a) / sizeof *(a)))
#define assert_near(value, expected, tolerance) ck_assert_double_eq_tol(value, expected, tolerance)

static inline bool is_one(const struct nh_layout *layout, const char *name)
{
    return strcmp(layout->name, name) == 0;
}

/** The law term of a step, with the plain sum in place of none. */
static inline struct nh_law_term term_of(const struct nh_config *c, const struct nh_step *s)
{
    const struct nh_pos pos = {s->layer, c->depth, s->sublayer == NH_SUB_ATTN ? NH_ATTN : NH_FFN};
    return c->layout->law_term ? c->layout->law_term(&pos, c->knobs)
                               : (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1};
}

/** A step between the embedding and the exit. */
static inline bool is_inner(const struct nh_graph *g, int step)
{
    return step > 0 && step < g->n_steps - 1;
}

static inline double rms_of(const struct nh_model *m, nh_val v)
{
    struct nh_moments x = m->core->moments(m->exec, v);
    return sqrt(x.sum_sq / x.n);
}

/** True where the law says that no branch adds anything at the start. */
static inline bool starts_silent(const struct nh_config *c, const struct nh_graph *g)
{
    bool silent = c->layout->sublayer != NULL;
    for (int k = 1; silent && is_inner(g, k); k++) {
        const struct nh_law_term t = term_of(c, &g->steps[k]);
        silent = (t.post_norm ? t.post_gain : t.branch) <= 0;
    }
    return silent;
}

/** Gradient of a parameter, to be freed. */
static inline double *param_grad_of(const struct nh_model *m, int p)
{
    double *g = zeros(param_size(m->graph, p), sizeof *g);
    m->core->read_param_grad(m->exec, p, g);
    return g;
}

/** ||a - b|| / ||b||, without the division where b is 0. */
static inline double distance(const double *a, const double *b, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++)
        difference += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/** True where a layout norms queries and keys by itself; c as it would be built. */
static inline bool has_qk_norm(const struct nh_config *c)
{
    struct nh_config plain = *c;
    struct nh_graph *g;
    bool found = false;
    plain.qk_norm = false;
    must(nh_graph_build(&g, &plain, 1, 2, 8));
    for (int s = 0; s < g->n_sites; s++)
        found |= g->sites[s].name == NH_SITE_QK_NORM;
    nh_graph_free(g);
    return found;
}

/** layout_config(layout, words), and --qk-norm where that adds something. */
static inline struct nh_config with_qk_norm(int layout, const char *words)
{
    struct nh_config c = layout_config(layout, words);
    c.qk_norm = !has_qk_norm(&c);
    return c;
}

#endif
