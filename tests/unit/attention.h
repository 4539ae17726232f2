// SPDX-License-Identifier: GPL-3.0-or-later
/** Attention on given queries, keys and values. */
#ifndef NH_TEST_ATTENTION_H
#define NH_TEST_ATTENTION_H

#include "tests/unit/op_graph.h"

enum { MOST = 1 << 13, SEQ = 70, PAIRS = 1000 };
static double q[MOST], k[MOST], v[MOST], y[MOST], want[MOST];

struct shape {
    int batch, seq, heads, kv_heads, dim, window; /* window 0: all keys */
    bool after;                                   /* the scale stands behind the product */
};

static inline struct op_graph attend_with(const struct nh_config *c, const struct shape *s, int threads, bool gradients)
{
    struct op_graph o = op_new(c, s->batch, s->seq);
    nh_val qs = op_input(&o, s->heads * s->dim, NH_ROLE_MATMUL_IN),
           ks = op_input(&o, s->kv_heads * s->dim, NH_ROLE_MATMUL_IN);
    nh_val vs = op_input(&o, s->kv_heads * s->dim, NH_ROLE_MATMUL_IN), scaled = qs;
    if (!s->after)
        scaled = op_axpby(&o, 1 / sqrt(s->dim), qs, 0, -1, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION);
    nh_val out = op_sdpa(&o, scaled, ks, vs, s->dim, s->window, s->after);
    o.g->exit_value = out, o.g->head_rec = o.g->n_recs;
    op_close_with(&o, threads, gradients);
    op_set(&o, qs, q);
    op_set(&o, ks, k);
    op_set(&o, vs, v);
    op_run(&o);
    op_read(&o, out, y);
    return o;
}

static inline void fill(double *to, int n, double number)
{
    for (int i = 0; i < n; i++)
        to[i] = number;
}

static inline uint64_t visible(const struct shape *s)
{
    uint64_t n = 0;
    for (int t = 0; t < s->seq; t++)
        n += (uint64_t)(s->window && s->window < t + 1 ? s->window : t + 1);
    return n * (uint64_t)(s->batch * s->heads);
}

#endif
