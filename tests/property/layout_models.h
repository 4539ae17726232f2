// SPDX-License-Identifier: GPL-3.0-or-later
/** What the tests of layouts share: parameters by name, values bit by bit. */
#ifndef NH_LAYOUT_MODELS_H
#define NH_LAYOUT_MODELS_H

#include "harness/core/init.h"
#include "tests/property/layout_steps.h"
#include "tests/suite.h"

#include <gsl/gsl_errno.h>
#include <stdlib.h>

/** Parts of the second model that the first one must have bit by bit. */
enum part { FORWARD, ALL };

static inline void assert_same_numbers(double *a, double *b, size_t n, const char *what, int where)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            ck_abort_msg("%s %d: number %zu of %zu is %a here, %a there", what, where, i, n, a[i], b[i]);
    free(a), free(b);
}

static inline void assert_same_value(const struct nh_model *a, nh_val v, const struct nh_model *b, nh_val w, const char *what,
                              int where)
{
    ck_assert_uint_eq(value_size(a->graph, v), value_size(b->graph, w));
    if (v >= 0)
        assert_same_numbers(value_of(a, v), value_of(b, w), value_size(a->graph, v), what, where);
}

static inline int find_param(const struct nh_graph *g, const char *name)
{
    for (int p = 0; p < g->n_params; p++)
        if (strcmp(g->params[p].name, name) == 0)
            return p;
    return -1;
}

/** The trained vector on the stream in a step, before its residual add; NULL where there is none. */
static inline const struct nh_rec *skip_gain_of(const struct nh_graph *g, const struct nh_step *s)
{
    for (int r = s->first_rec; r < s->end_rec; r++)
        if (g->recs[r].op == NH_OP_GAIN && g->recs[r].in[0] == s->before[0])
            return &g->recs[r];
    return NULL;
}

#endif
