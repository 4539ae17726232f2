// SPDX-License-Identifier: GPL-3.0-or-later
/** A few operations on given tensors, for tests; and a plain store, which rounds and counts one value as the
 * definitions of the counters say. An input is an embedding with a table of its own, row i of the tensor being token i:
 * so what is not finite in it is known to its readers. What goes wrong in the set-up aborts. */
#ifndef NH_OP_GRAPH_H
#define NH_OP_GRAPH_H

#include "harness/core/core.h"
#include "harness/core/err.h"
#include "tests/suite.h"

#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct op_graph {
    struct nh_graph *g;
    const struct nh_core *core;
    struct nh_exec *x;
};

/** The defaults of a run in a format. */
static inline struct nh_config op_config(const char *dtype)
{
    struct nh_config c = {.policy = nh_policies[0], .eps = 1e-5, .theta = 10000, .threads = 1};
    if (nh_fmt_parse(&c.dtype, dtype) != NH_OK)
        abort();
    return c;
}

/* ---- building: first the inputs, then the operations, then op_close ---- */

static inline struct op_graph op_new(const struct nh_config *c, int batch, int seq)
{
    return (struct op_graph){.g = nh_graph_new(c, batch, seq, batch * seq)};
}

static inline int op_param(struct op_graph *o, int rows, int cols, enum nh_role role)
{
    int site = nh_graph_site(o->g, 0, NH_SUB_EMBED, NH_SITE_EMBED, NH_ROLE_EMBEDDING);
    return nh_graph_param(
        o->g, &(struct nh_param){.rows = rows, .cols = cols, .role = role, .site = site, .weight_site = -1});
}

static inline nh_val op_input(struct op_graph *o, int cols, enum nh_role role)
{
    int table = op_param(o, o->g->rows, cols, role);
    nh_val v = nh_graph_value(o->g, cols, o->g->params[table].site, role);
    struct nh_rec *r = nh_graph_rec(o->g, NH_OP_EMBED, v);
    r->par[0] = table, r->u.embed.scale = r->u.embed.shrink = 1;
    return v;
}

static inline int op_site(struct op_graph *o, enum nh_site_name name, enum nh_role role)
{
    return nh_graph_site(o->g, 1, NH_SUB_ATTN, name, role);
}

static inline struct nh_rec *op_rec(struct op_graph *o, enum nh_op op, int cols, enum nh_site_name name,
                                    enum nh_role role)
{
    return nh_graph_rec(o->g, op, nh_graph_value(o->g, cols, op_site(o, name, role), role));
}

static inline int op_cols(const struct op_graph *o, nh_val v)
{
    return o->g->values[v].cols;
}

/** bias: parameter or -1. */
static inline nh_val op_linear(struct op_graph *o, nh_val x, int weight, int bias, enum nh_site_name name)
{
    struct nh_rec *r = op_rec(o, NH_OP_LINEAR, o->g->params[weight].rows, name, NH_ROLE_MATMUL_OUT);
    r->in[0] = x, r->par[0] = weight, r->par[1] = bias;
    return r->out;
}

/** The gain has as many numbers as the columns (one norm of the row) or as `group` (one gain for all heads). */
static inline nh_val op_norm(struct op_graph *o, enum nh_norm_type type, nh_val x, int group, int gain, int bias,
                             enum nh_site_name name)
{
    struct nh_rec *r = op_rec(o, NH_OP_NORM, op_cols(o, x), name, NH_ROLE_NORM_OUT);
    r->in[0] = x, r->par[0] = gain, r->par[1] = bias;
    r->u.norm.type = type, r->u.norm.group = group, r->u.norm.per_head = o->g->params[gain].cols < op_cols(o, x);
    return r->out;
}

static inline nh_val op_act(struct op_graph *o, enum nh_act kind, nh_val x)
{
    struct nh_rec *r = op_rec(o, NH_OP_ACT, op_cols(o, x), NH_SITE_FFN_ACT, NH_ROLE_ACTIVATION);
    r->in[0] = x, r->u.act.kind = kind;
    return r->out;
}

static inline nh_val op_mul(struct op_graph *o, nh_val x, nh_val y)
{
    struct nh_rec *r = op_rec(o, NH_OP_MUL, op_cols(o, x), NH_SITE_FFN_GLU, NH_ROLE_ACTIVATION);
    r->in[0] = x, r->in[1] = y;
    return r->out;
}

static inline nh_val op_axpby(struct op_graph *o, double a, nh_val x, double b, nh_val y, enum nh_site_name name,
                              enum nh_role role)
{
    struct nh_rec *r = op_rec(o, NH_OP_AXPBY, op_cols(o, x), name, role);
    r->in[0] = x, r->in[1] = y, r->u.axpby.a = a, r->u.axpby.b = b;
    return r->out;
}

static inline nh_val op_cast(struct op_graph *o, nh_val x, enum nh_role role)
{
    struct nh_rec *r = op_rec(o, NH_OP_CAST, op_cols(o, x), NH_SITE_CAST, role);
    r->in[0] = x;
    return r->out;
}

static inline nh_val op_rope(struct op_graph *o, nh_val x, int head_dim)
{
    struct nh_rec *r = op_rec(o, NH_OP_ROPE, op_cols(o, x), NH_SITE_ROPE, NH_ROLE_ACTIVATION);
    r->in[0] = x, r->u.rope.head_dim = head_dim;
    o->g->rope_dim = head_dim;
    return r->out;
}

/** after: the scale 1/sqrt(head_dim) stands behind the product; else q has been scaled. window 0: all keys. */
static inline nh_val op_sdpa(struct op_graph *o, nh_val q, nh_val k, nh_val v, int head_dim, int window, bool after)
{
    int site_qk = after ? op_site(o, NH_SITE_QK, NH_ROLE_MATMUL_OUT) : -1;
    int site_scores = op_site(o, NH_SITE_SCORES, NH_ROLE_MATMUL_OUT);
    int site_probs = op_site(o, NH_SITE_PROBS, NH_ROLE_MATMUL_IN);
    struct nh_rec *r = op_rec(o, NH_OP_SDPA, op_cols(o, q), NH_SITE_ATTN_V, NH_ROLE_MATMUL_OUT);
    r->in[0] = q, r->in[1] = k, r->in[2] = v;
    r->u.sdpa.heads = op_cols(o, q) / head_dim, r->u.sdpa.kv_heads = op_cols(o, k) / head_dim;
    r->u.sdpa.head_dim = head_dim, r->u.sdpa.window = window > 0 ? window : o->g->seq;
    r->u.sdpa.scale = after ? 1 / sqrt(head_dim) : 1, r->u.sdpa.alpha = 1;
    r->u.sdpa.site_qk = site_qk, r->u.sdpa.site_scores = site_scores, r->u.sdpa.site_probs = site_probs;
    return r->out;
}

static inline void op_close_with(struct op_graph *o, int threads, bool gradients)
{
    nh_graph_close(o->g);
    o->core = nh_core_for(o->g);
    int *tokens = malloc((size_t)o->g->rows * sizeof *tokens);
    if (!tokens || o->core->create(&o->x, o->g, threads, gradients) != NH_OK)
        abort();
    for (int i = 0; i < o->g->rows; i++)
        tokens[i] = i;
    o->core->set_tokens(o->x, tokens);
    free(tokens);
}

static inline void op_close(struct op_graph *o)
{
    op_close_with(o, 1, false);
}

static inline void op_free(struct op_graph *o)
{
    o->core->destroy(o->x);
    nh_graph_free(o->g);
}

/* ---- running ---- */

static inline void op_set(struct op_graph *o, nh_val input, const double *numbers)
{
    o->core->set_param(o->x, o->g->recs[o->g->values[input].rec].par[0], numbers);
}

static inline void op_set_all(struct op_graph *o, int param, double number)
{
    size_t n = (size_t)o->g->params[param].rows * (size_t)o->g->params[param].cols;
    double *w = malloc(n * sizeof *w);
    if (!w)
        abort();
    for (size_t i = 0; i < n; i++)
        w[i] = number;
    o->core->set_param(o->x, param, w);
    free(w);
}

static inline void op_run(struct op_graph *o)
{
    o->core->forward(o->x);
}

static inline void op_read(const struct op_graph *o, nh_val v, double *out)
{
    o->core->read(o->x, v, out);
}

static inline const struct nh_counts *op_counts(const struct op_graph *o, enum nh_site_name name)
{
    for (int s = 0; s < o->g->n_sites; s++)
        if (o->g->sites[s].name == name)
            return &o->core->counts(o->x)[s * NH_DIRECTIONS + NH_FWD];
    abort();
}

/* ---- comparing ---- */

#define NOT_A_NUMBER ((double)NAN) /* for tables */

static inline bool same_bits(double a, double b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

#define assert_same(got, expected)                                                                                     \
    do {                                                                                                               \
        double got_ = (got), expected_ = (expected);                                                                   \
        ck_assert_msg(same_bits(got_, expected_), "%s is %.17g, expected %.17g", #got, got_, expected_);               \
    } while (0)

static inline void assert_all_same(const double *got, const double *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(same_bits(got[i], expected[i]), "number %zu is %.17g, expected %.17g", i, got[i], expected[i]);
}

#define assert_count(o, name, field, expected)                                                                         \
    do {                                                                                                               \
        uint64_t got_ = op_counts(o, name)->field, expected_ = (expected);                                             \
        ck_assert_msg(got_ == expected_, "%s at %s is %" PRIu64 ", expected %" PRIu64, #field, nh_site_names[name],    \
                      got_, expected_);                                                                                \
    } while (0)

/** The counts that speak of trouble at one site. */
static inline void assert_trouble(const struct op_graph *o, enum nh_site_name name, uint64_t overflow,
                                  uint64_t nan_made, uint64_t propagated, uint64_t zero_made)
{
    assert_count(o, name, overflow, overflow);
    assert_count(o, name, nan_made, nan_made);
    assert_count(o, name, propagated, propagated);
    assert_count(o, name, zero_made, zero_made);
}

static inline void assert_first(const struct op_graph *o, enum nh_offence kind, enum nh_site_name name, uint64_t index,
                                double value)
{
    struct nh_first f = o->core->first(o->x, NH_FWD);
    ck_assert_str_eq(nh_offence_names[f.kind], nh_offence_names[kind]);
    if (kind == NH_NO_OFFENCE)
        return;
    ck_assert_str_eq(nh_site_names[o->g->sites[f.site].name], nh_site_names[name]);
    ck_assert_uint_eq(f.index, index);
    assert_same(f.value, value);
}

/* ---- the plain store ---- */

enum { INF_IN = 1, NAN_IN = 2 };

static inline unsigned flag_of(double x)
{
    return isnan(x) ? (unsigned)NAN_IN : isinf(x) ? (unsigned)INF_IN : 0u;
}

struct plain {
    enum nh_site_name site;
    struct nh_fmt fmt;
    struct nh_counts counts;
    struct nh_first first;
};

static inline struct plain plain_new(const struct op_graph *o, enum nh_site_name site, enum nh_role role)
{
    return (struct plain){.site = site, .fmt = o->g->fmt[role], .counts = {.min_abs = HUGE_VAL}};
}

static inline void plain_note(struct plain *s, enum nh_offence kind, uint64_t index, double value)
{
    if (s->first.kind == NH_NO_OFFENCE || index < s->first.index)
        s->first = (struct nh_first){.kind = kind, .index = index, .value = value};
}

/** Rounds x, a function of values with the flags `inputs`, and counts it. ran_over: its accumulator left the format. */
static inline double plain_store(struct plain *s, double x, unsigned inputs, bool ran_over, uint64_t index)
{
    double stored = nh_round(&s->fmt, x), a = fabs(stored);
    s->counts.total++;
    s->counts.underflow += stored == 0 && x != 0;
    s->counts.subnormal += a > 0 && a < s->fmt.min_normal;
    s->counts.max_abs = a > s->counts.max_abs ? a : s->counts.max_abs;
    s->counts.min_abs = a > 0 && a < s->counts.min_abs ? a : s->counts.min_abs;
    if (isfinite(stored))
        return stored;
    bool nan = isnan(x);
    if (inputs & NAN_IN || (inputs && !nan)) {
        s->counts.propagated++;
        return stored;
    }
    bool overflow = !nan || ran_over;
    s->counts.overflow += overflow;
    s->counts.nan_made += nan;
    plain_note(s, overflow ? NH_OVERFLOW : NH_NAN_MADE, index, x);
    return stored;
}

/** A probability is above zero unless its score is -inf: one that is zero before the store has been lost inside. */
static inline void plain_lost(struct plain *s, double score, double top, double probability)
{
    s->counts.underflow += probability == 0 && score > -HUGE_VAL && isfinite(top);
}

static inline void assert_counts(const struct op_graph *o, const struct plain *s)
{
    const struct nh_counts *c = op_counts(o, s->site);
    assert_count(o, s->site, total, s->counts.total);
    assert_trouble(o, s->site, s->counts.overflow, s->counts.nan_made, s->counts.propagated, s->counts.zero_made);
    assert_count(o, s->site, underflow, s->counts.underflow);
    assert_count(o, s->site, subnormal, s->counts.subnormal);
    assert_same(c->max_abs, s->counts.max_abs);
    assert_same(c->min_abs, s->counts.min_abs);
}

/** x in the type that the executor computes in. */
static inline double in_type(const struct op_graph *o, double x)
{
    return o->core->bits == 32 ? (double)(float)x : x;
}

/** Sum of n products, acc = round(acc + a b) where sums are kept in the format; else sums must be exact in the type. */
static inline double plain_dot(const struct op_graph *o, int n, const double *a, int step_a, const double *b,
                               int step_b, unsigned *inputs, bool *ran_over)
{
    double acc = 0;
    *inputs = 0;
    for (int i = 0; i < n; i++) {
        double x = a[i * step_a], y = b[i * step_b];
        *inputs |= flag_of(x) | flag_of(y);
        acc += x * y;
        if (o->g->accum_dtype)
            acc = nh_round(&o->g->fmt[NH_ROLE_MATMUL_OUT], acc);
    }
    acc = in_type(o, acc);
    *ran_over = !*inputs && !isfinite(acc);
    return acc;
}

/* ---- numbers ---- */

/** The next number of a fixed sequence, 0 .. n-1 (Steele, Lea, Flood 2014: SplitMix64). */
static inline int op_draw(uint64_t *state, int n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (int)((z >> 33) % (uint64_t)n);
}

#endif
