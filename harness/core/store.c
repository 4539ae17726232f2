// SPDX-License-Identifier: GPL-3.0-or-later
/** The one place where values are rounded and counted, and the ways the operations reach it. */
#include "harness/core/err.h"
#include "harness/core/exec.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>

struct bad {
    const struct store *s;
    struct nh_counts *counts;
    struct nh_first *first;
    size_t row, cols; /**< place of the span's index 0; columns to a row of the span */
};

static void note_first(struct nh_first *f, const struct store *s, enum nh_offence kind, uint64_t index, double value)
{
    int n = s->u->x->g->n_recs, rec = s->u->r->order;
    /* weights come first: they have the orders below the number of parameters */
    uint64_t order = (uint64_t)(s->direction == NH_FWD ? rec : n - rec) * 8 + (uint64_t)s->stage + (uint64_t)s->u->x->g->n_params;
    struct nh_first here = {kind, s->site, order, index, value, s->param};
    if (nh_earlier(&here, f))
        *f = here;
}

/** Tells what was made here from what an input brought. */
static void classify(void *arg, size_t index, double before)
{
    struct bad *b = arg;
    const struct store *s = b->s;
    size_t row = s->row0 + b->row + index / b->cols, col = s->col0 + index % b->cols;
    unsigned inputs = s->depends(s->u, row, col);
    bool nan = isnan(before), made = !(inputs & HAS_NAN) && (nan || !(inputs & HAS_INF));
    if (!made) {
        b->counts->propagated++;
        return;
    }
    bool overflow = !nan || (s->product && !inputs); /* an accumulator that ran over may end as inf - inf */
    b->counts->overflow += overflow;
    b->counts->nan_made += nan;
    note_first(b->first, s, overflow ? NH_OVERFLOW : NH_NAN_MADE, (uint64_t)(row * s->width + col), before);
}

struct tally NH_T(nh_tally_zero)(void)
{
    return (struct tally){.counts = {.min_abs = (double)INFINITY}};
}

void NH_T(nh_tally)(const struct store *s, struct tally *t)
{
    struct nh_span span = nh_span_zero();
    struct bad bad = {s, &t->counts, &t->first, 0, s->cols};
    nh_bad_value *hear = s->counted ? classify : NULL;
    if (s->statistics) /* they came before the values of their row */
        note_first(&t->first, s, NH_OVERFLOW, (uint64_t)(s->statistics_row * s->width), (double)INFINITY);
    if (s->ld == s->cols) {
        nh_round_real(s->fmt, s->p, s->rows * s->cols, &span, hear, &bad);
    } else {
        for (bad.row = 0; bad.row < s->rows; bad.row++)
            nh_round_real(s->fmt, s->p + bad.row * s->ld, s->cols, &span, hear, &bad);
    }
    struct nh_counts c = {.total = span.total, .underflow = span.underflow, .subnormal = span.subnormal,
                          .max_abs = span.max_abs, .min_abs = span.min_abs, .overflow = s->statistics,
                          .zero_made = s->zero_made};
    nh_counts_add(&t->counts, &c);
    t->nonfinite += span.nonfinite;
}

void NH_T(nh_tally_commit)(const struct store *s, const struct tally *t)
{
    struct nh_exec *x = s->u->x;
    if (!s->counted)
        return;
#pragma omp critical(nh_counts)
    {
        nh_counts_add(&x->counts[s->site * NH_DIRECTIONS + (int)s->direction], &t->counts);
        if (s->bad)
            *s->bad += (int64_t)t->nonfinite;
        if (nh_earlier(&t->first, &x->first[s->direction]))
            x->first[s->direction] = t->first;
    }
}

uint64_t NH_T(nh_store)(const struct store *s)
{
    struct tally t = NH_T(nh_tally_zero)();
    NH_T(nh_tally)(s, &t);
    NH_T(nh_tally_commit)(s, &t);
    return t.nonfinite;
}

struct store NH_T(nh_output)(const struct unit *u, int r0, int r1, depends_fn *depends)
{
    const struct nh_value *v = value_of(u->x, u->r->out);
    return (struct store){.u = u, .site = v->site, .direction = NH_FWD, .stage = 7, .fmt = &u->x->g->fmt[v->role],
                          .p = row_ptr(u->x, u->r->out, r0), .rows = (size_t)(r1 - r0), .cols = (size_t)v->cols,
                          .ld = (size_t)v->ld, .row0 = (size_t)r0, .col0 = (size_t)v->col0, .width = (size_t)v->ld,
                          .bad = &u->x->bad_value[v->base], .depends = depends, .counted = true};
}

real *NH_T(nh_cotangent)(const struct unit *u, nh_val v, struct rows rows, real *scratch, size_t *ld)
{
    int cols = rows.c1 ? rows.c1 - rows.c0 : value_of(u->x, v)->cols;
    bool add = u->p->seen[v];
    *ld = (size_t)(add ? cols : value_of(u->x, v)->ld);
    return add ? scratch : pass_ptr(u->p, v, rows.s, rows.r0) + rows.c0;
}

/** A sum of two contributions: its inputs are the two addends at this place. */
static unsigned depends_sum(const struct unit *u, size_t row, size_t col)
{
    const struct addends *a = &u->lane->addends;
    size_t r = row - a->row0, c = col - a->col0;
    unsigned f = flags_of(a->before + r * a->before_ld + c, 1, 1);
    return a->put ? f | flags_of(a->put + r * a->cols + c, 1, 1) : f;
}

/** sum += put over rows x cols, rounded again; `put` becomes the sum before it is copied, so that both addends are there when
 *  it is asked who made an inf. broken: put has values that are not finite. */
static void add_contribution(const struct unit *u, struct store *s, real *sum, size_t sum_ld, bool broken)
{
    real *put = s->p, *copy = NULL;
    size_t cols = s->cols;
    if (broken) { /* rare: only now does the contribution have to be looked at again */
        copy = nh_have(malloc(s->rows * cols * sizeof *copy));
        for (size_t i = 0; i < s->rows; i++)
            memcpy(copy + i * cols, put + i * s->ld, cols * sizeof *copy);
    }
    u->lane->addends = (struct addends){sum, copy, sum_ld, cols, s->row0, s->col0};
    for (size_t i = 0; i < s->rows; i++)
#pragma omp simd
        for (size_t j = 0; j < cols; j++)
            put[i * s->ld + j] += sum[i * sum_ld + j];
    s->stage = 1, s->depends = depends_sum, s->product = false;
    if (u->p->counted)
        NH_T(nh_store)(s);
    for (size_t i = 0; i < s->rows; i++)
        memcpy(sum + i * sum_ld, put + i * s->ld, cols * sizeof *sum);
    free(copy);
}

void NH_T(nh_cotangent_done)(const struct unit *u, nh_val v, struct rows rows, real *put, size_t ld, depends_fn *depends,
                             bool product)
{
    const struct nh_value *w = value_of(u->x, v);
    size_t cols = (size_t)(rows.c1 ? rows.c1 - rows.c0 : w->cols);
    struct store s = {.u = u, .site = w->site, .direction = NH_BWD, .fmt = nh_grad_fmt(u->x->g, w->role), .p = put,
                      .rows = (size_t)(rows.r1 - rows.r0), .cols = cols, .ld = ld, .row0 = (size_t)rows.r0,
                      .col0 = (size_t)rows.c0, .width = (size_t)w->cols, .bad = &u->x->bad_grad[w->base], .depends = depends,
                      .product = product, .counted = true};
    bool broken = u->p->counted && NH_T(nh_store)(&s) > 0;
    if (u->p->seen[v])
        add_contribution(u, &s, pass_ptr(u->p, v, rows.s, rows.r0) + rows.c0, (size_t)w->ld, broken);
}

void NH_T(nh_wgrad_done)(const struct unit *u, int i, int r0, int r1, int c0, int c1, depends_fn *depends)
{
    const struct nh_param *q = &u->x->g->params[u->r->par[i]];
    if (!u->r->par_first[i] || q->frozen) /* what is not trained has no gradient */
        return;
    size_t ld = (size_t)q->cols;
    struct store s = {.u = u, .site = q->site, .direction = NH_WGRAD, .stage = i, .fmt = nh_weight_grad_fmt(u->x->g, q->role),
                      .p = wgrad_ptr(u->x, u->r->par[i]) + (size_t)r0 * ld + (size_t)c0, .rows = (size_t)(r1 - r0),
                      .cols = (size_t)(c1 - c0), .ld = ld, .row0 = (size_t)r0, .col0 = (size_t)c0, .width = ld,
                      .param = u->r->par[i] + 1, .depends = depends, .product = true, .counted = true};
    NH_T(nh_store)(&s);
}

unsigned NH_T(nh_flags)(const real *p, size_t n, size_t stride)
{
    unsigned flags = 0;
    for (size_t i = 0; i < n && !(flags & HAS_NAN); i++) { /* a NaN outdoes what may follow */
        real v = p[i * stride];
        flags |= isnan(v) ? (unsigned)HAS_NAN : isinf(v) ? (unsigned)HAS_INF : 0u;
    }
    return flags;
}

void NH_T(nh_column_flags)(const real *p, size_t rows, size_t cols, size_t ld, bool any, unsigned char *flags)
{
    memset(flags, 0, cols);
    for (size_t r = 0; any && r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            flags[c] |= (unsigned char)((isnan(p[r * ld + c]) ? HAS_NAN : 0) | (isinf(p[r * ld + c]) ? HAS_INF : 0));
}

void NH_T(nh_units)(struct unit proto, int n, int threads, struct lane *lanes, void (*fn)(const struct unit *))
{
    if (threads == 1 || n == 1) {
        proto.lane = lanes;
        for (proto.index = 0; proto.index < n; proto.index++)
            fn(&proto);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int i = 0; i < n; i++) {
        struct unit u = proto;
        u.index = i;
        u.lane = &lanes[omp_get_thread_num()];
        fn(&u);
    }
}

enum { TILE = 64 };

/** c (+)= a op(b) with every product-sum rounded to f: k ascends outside, a row of accumulators inside. op(b) goes through a tile on
 *  the stack, so that both of its orders are read alike. Sums wait in c between tiles: they are values of f. */
static void rounded_gemm(const struct nh_fmt *f, bool ta, bool tb, int m, int n, int k, const real *a, size_t lda, const real *b,
                         size_t ldb, real *c, size_t ldc)
{
    real tile[TILE][TILE];
    for (int j0 = 0; j0 < n; j0 += TILE)
        for (int k0 = 0; k0 < k; k0 += TILE) {
            int cols = n - j0 < TILE ? n - j0 : TILE, depth = k - k0 < TILE ? k - k0 : TILE;
            for (int l = 0; l < depth; l++)
                for (int j = 0; j < cols; j++)
                    tile[l][j] = tb ? b[(size_t)(j0 + j) * ldb + (size_t)(k0 + l)] : b[(size_t)(k0 + l) * ldb + (size_t)(j0 + j)];
            for (int i = 0; i < m; i++)
                for (int l = 0; l < depth; l++)
                    nh_axpy_real(f, c + (size_t)i * ldc + (size_t)j0,
                                 ta ? a[(size_t)(k0 + l) * lda + (size_t)i] : a[(size_t)i * lda + (size_t)(k0 + l)], tile[l],
                                 (size_t)cols);
        }
}

void NH_T(nh_gemm)(const struct nh_exec *x, bool emulate, bool ta, bool tb, int m, int n, int k, const real *a, size_t lda,
                   const real *b, size_t ldb, bool accumulate, real *c, size_t ldc)
{
    if (!emulate || !x->g->accum_dtype) {
        cblas_gemm_real(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1, a, (int)lda, b,
                        (int)ldb, accumulate ? 1 : 0, c, (int)ldc);
        return;
    }
    for (int i = 0; i < m && !accumulate; i++)
        memset(c + (size_t)i * ldc, 0, (size_t)n * sizeof *c);
    rounded_gemm(&x->g->fmt[NH_ROLE_ACCUM], ta, tb, m, n, k, a, lda, b, ldb, c, ldc);
}
