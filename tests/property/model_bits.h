// SPDX-License-Identifier: GPL-3.0-or-later
/** All numbers of a model, to be compared bit by bit. */
#ifndef NH_MODEL_BITS_H
#define NH_MODEL_BITS_H

#include "tests/property/model_config.h"
#include "tests/suite.h"

#include <check.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>

#define COUNT(a)                                ((int)(sizeof(a) / sizeof *(a)))
#define assert_near(value, expected, tolerance) ck_assert_double_eq_tol(value, expected, tolerance)

/** Every number that a model holds behind its passes. */
struct bits {
    size_t n, n_counts;
    double *numbers;
    struct nh_counts *counts;
    struct nh_first first[NH_DIRECTIONS];
};

static inline struct bits bits_of(const struct nh_model *m, double loss)
{
    const struct nh_graph *g = m->graph;
    size_t n = 1;
    for (int v = 0; v < g->n_values; v++)
        n += 2 * value_size(g, v);
    for (int p = 0; p < g->n_params; p++)
        n += 2 * param_size(g, p);
    struct bits b = {0, (size_t)(g->n_sites * NH_DIRECTIONS), zeros(n, sizeof(double)), NULL, {{0}}};
    b.numbers[b.n++] = loss;
    for (int v = 0; v < g->n_values; v++) {
        m->core->read(m->exec, v, b.numbers + b.n), b.n += value_size(g, v);
        if (g->values[v].watched)
            m->core->read_grad(m->exec, v, b.numbers + b.n), b.n += value_size(g, v);
    }
    for (int p = 0; p < g->n_params; p++) {
        m->core->read_param(m->exec, p, b.numbers + b.n), b.n += param_size(g, p);
        m->core->read_param_grad(m->exec, p, b.numbers + b.n), b.n += param_size(g, p);
    }
    b.counts = zeros(b.n_counts, sizeof *b.counts);
    memcpy(b.counts, m->core->counts(m->exec), b.n_counts * sizeof *b.counts);
    for (int d = 0; d < NH_DIRECTIONS; d++)
        b.first[d] = m->core->first(m->exec, (enum nh_direction)d);
    return b;
}

static inline void bits_free(struct bits *b)
{
    free(b->numbers), free(b->counts);
}

static inline void assert_same(const struct bits *a, const struct bits *b)
{
    ck_assert_uint_eq(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(&a->numbers[i], &b->numbers[i], sizeof(double)) != 0)
            ck_abort_msg("number %zu of %zu: %a and %a", i, a->n, a->numbers[i], b->numbers[i]);
    ck_assert_uint_eq(a->n_counts, b->n_counts);
    ck_assert_mem_eq(a->counts, b->counts, a->n_counts * sizeof *a->counts);
    for (int d = 0; d < NH_DIRECTIONS; d++) {
        const struct nh_first *x = &a->first[d], *y = &b->first[d];
        ck_assert_int_eq(x->kind, y->kind);
        ck_assert_int_eq(x->site, y->site);
        ck_assert_uint_eq(x->order, y->order);
        ck_assert_uint_eq(x->index, y->index);
        ck_assert_mem_eq(&x->value, &y->value, sizeof x->value);
        ck_assert_int_eq(x->param, y->param);
    }
}

static inline struct bits run_scaled(const struct nh_config *c, double loss_scale)
{
    struct nh_model m = model_of(c, true);
    double loss = m.core->forward(m.exec);
    m.core->backward(m.exec, loss_scale, NULL);
    struct bits b = bits_of(&m, loss);
    nh_model_destroy(&m);
    return b;
}

static inline struct bits run_for_bits(const struct nh_config *c)
{
    return run_scaled(c, 65536);
}

#endif
