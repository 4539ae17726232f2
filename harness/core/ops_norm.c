// SPDX-License-Identifier: GPL-3.0-or-later
/** RMSNorm y = g x / sqrt(mean x^2 + eps) (arXiv:1910.07467 eq. 4) and LayerNorm y = g (x - mean)/sqrt(var + eps) + b
 *  (arXiv:1607.06450), over groups of columns; eps inside the root, variance in two passes. One operation: statistics in the
 *  format of --norm-stats, quotient and gain in the executor's type, one rounding at the store (two with --norm-cast
 *  before-gain: the normed value is cast, then the gain is applied). And the quotient x / c that a norm reads under --ln-relax. */
#include "harness/core/exec.h"

enum { GAIN_COLS = 64 };

/** Statistics of a group, as the derivatives find them again. The mean is mean + rest: rounded to one number it could be off by half
 *  an ulp, and where the mean is large that is no small part of the deviations from it. */
struct stats {
    real mean, rest, rstd;
};
_Static_assert(sizeof(struct stats) == NH_NORM_AUX * sizeof(real), "the graph counts the numbers of a group");

/** (x - mean) / sqrt(var + eps). Where the mean is large and the deviation small, the first difference is exact. */
static inline real normed(const struct stats *s, real x)
{
    return ((x - s->mean) - s->rest) * s->rstd;
}

/** The statistics of a group of columns of a row. */
static struct stats *stats_of(const struct nh_exec *x, const struct nh_rec *r, int row, int group)
{
    int groups = value_of(x, r->in[0])->cols / r->u.norm.group;
    return (struct stats *)(x->aux + r->aux) + (size_t)row * (size_t)groups + (size_t)group;
}

static real sum_of(const real *x, int n)
{
    real s = 0;
#pragma omp simd reduction(+ : s)
    for (int i = 0; i < n; i++)
        s += x[i];
    return s;
}

/** In two passes: what the rounding of the first sum has lost is the mean of what is left. Of a constant row nothing is left. */
static void find_mean(const real *x, int n, struct stats *s)
{
    real mean = sum_of(x, n) / (real)n, rest = 0;
#pragma omp simd reduction(+ : rest)
    for (int i = 0; i < n; i++)
        rest += x[i] - mean;
    s->mean = mean, s->rest = rest / (real)n;
}

/** Sum of (x - mean - rest)^2. */
static real sum_of_squares(const real *x, int n, real mean, real rest)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        real d = (x[i] - mean) - rest;
        sum += d * d;
    }
    return sum;
}

/** Statistics with every step rounded to the format: sums one addend after the other, the mean one number. True where one of them
 *  is not finite. */
static bool narrow_stats(const struct nh_fmt *f, const real *x, int n, bool layer, double eps, struct stats *s)
{
    double mean = 0, sum = 0;
    if (layer) {
        for (int i = 0; i < n; i++)
            sum = nh_round(f, sum + (double)x[i]);
        mean = nh_round(f, sum / n);
    }
    double sq = 0;
    for (int i = 0; i < n; i++) {
        double d = layer ? nh_round(f, (double)x[i] - mean) : (double)x[i];
        sq = nh_fma_round(f, sq, d, d);
    }
    double var = nh_round(f, sq / n);
    double rstd = nh_round(f, 1 / nh_round(f, sqrt(nh_round(f, var + nh_round(f, eps)))));
    *s = (struct stats){.mean = (real)mean, .rstd = (real)rstd};
    return !isfinite(mean) || !isfinite(sq);
}

/** True where a statistic of a finite row is not finite. */
static bool find_stats(const struct nh_exec *x, const struct nh_rec *r, const real *row, struct stats *s)
{
    const struct nh_graph *g = x->g;
    int n = r->u.norm.group;
    bool layer = r->u.norm.type == NH_NORM_LAYER, overflow;
    if (g->norm_stat_dtype) {
        overflow = narrow_stats(&g->fmt[NH_ROLE_NORM_STAT], row, n, layer, g->eps, s);
    } else {
        s->mean = s->rest = 0;
        if (layer)
            find_mean(row, n, s);
        real sq = sum_of_squares(row, n, s->mean, s->rest);
        s->rstd = 1 / r_sqrt(sq / (real)n + (real)g->eps);
        overflow = !isfinite(s->mean) || !isfinite(sq);
    }
    return overflow && flags_of(row, (size_t)n, 1) == 0;
}

static unsigned depends_fwd(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    size_t n = (size_t)r->u.norm.group, at = col / n * n, g = r->u.norm.per_head ? col % n : col;
    unsigned f = flags_of(row_ptr(x, r->in[0], (int)row) + at, n, 1) | flags_of(weight_ptr(x, r->par[0]) + g, 1, 1);
    return r->par[1] >= 0 ? f | flags_of(weight_ptr(x, r->par[1]) + g, 1, 1) : f;
}

/** True where the whole group came out as zero (as the bias) although it is finite and not constant. gain, bias: NULL = none;
 *  offset: what is added to a gain. */
static bool dead(const struct nh_fmt *f, const real *x, const real *y, const real *gain, real offset, const real *bias, int n, bool layer)
{
    bool same = true, varied = false;
    for (int i = 0; i < n && same; i++)
        same = (real)nh_round(f, (double)y[i]) == (bias ? bias[i] : 0);
    for (int i = 0; i < n && !varied; i++)
        varied = (!gain || offset + gain[i] != 0) && x[i] != (layer ? x[0] : 0);
    return same && varied && flags_of(x, (size_t)n, 1) == 0;
}

static void fwd(const struct unit *u)
{
    struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int cols = value_of(x, r->in[0])->cols, n = r->u.norm.group, groups = cols / n;
    bool layer = r->u.norm.type == NH_NORM_LAYER;
    real offset = (real)r->u.norm.offset;
    const struct nh_fmt *f = &x->g->fmt[NH_ROLE_NORM_OUT];
    struct store s = NH_T(nh_output)(u, b.r0, b.r1, depends_fwd);
    for (int i = b.r0; i < b.r1; i++)
        for (int h = 0; h < groups; h++) {
            const real *in = row_ptr(x, r->in[0], i) + h * n;
            real *out = row_ptr(x, r->out, i) + h * n;
            const real *gain = weight_ptr(x, r->par[0]) + (r->u.norm.per_head ? 0 : h * n);
            const real *bias = r->par[1] < 0 ? NULL : weight_ptr(x, r->par[1]) + (r->u.norm.per_head ? 0 : h * n);
            struct stats t;
            bool overflow = find_stats(x, r, in, &t);
            *stats_of(x, r, i, h) = t;
#pragma omp simd
            for (int c = 0; c < n; c++)
                out[c] = normed(&t, in[c]);
            if (x->g->cast_before_gain) {
                struct nh_span unused = nh_span_zero();
                nh_round_real(f, out, (size_t)n, &unused, NULL, NULL);
            }
#pragma omp simd
            for (int c = 0; c < n; c++)
                out[c] *= offset + gain[c];
            for (int c = 0; bias && c < n; c++)
                out[c] += bias[c];
            if (overflow && s.statistics++ == 0)
                s.statistics_row = (size_t)i;
            /* zeros are looked for where the first output is one */
            if ((real)nh_round(f, (double)out[0]) == (bias ? bias[0] : 0))
                s.zero_made += dead(f, in, out, gain, offset, bias, n, layer);
        }
    NH_T(nh_store)(&s);
}

static unsigned depends_dx(const struct unit *u, size_t row, size_t col)
{
    size_t n = (size_t)u->r->u.norm.group, at = col / n * n;
    unsigned f = flags_of(pass_ptr(u->p, u->r->out, 0, (int)row) + at, n, 1);
    return f & HAS_NAN ? f : f | depends_fwd(u, row, col);
}

/** A column of the gain's gradient sums over all rows (and heads). */
static unsigned depends_gain(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    (void)row;
    unsigned f = 0;
    for (size_t i = 0; i < (size_t)x->g->rows && !(f & HAS_NAN); i++)
        for (size_t c = col; c < (size_t)value_of(x, u->r->in[0])->cols; c += (size_t)x->g->params[u->r->par[0]].cols)
            f |= depends_dx(u, i, c);
    return f;
}

static int gain_blocks(const struct nh_exec *x, const struct nh_rec *r)
{
    return (x->g->params[r->par[0]].cols + GAIN_COLS - 1) / GAIN_COLS;
}

static void gain_gradient(const struct unit *u, int block)
{
    struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    int width = x->g->params[r->par[0]].cols, cols = value_of(x, r->in[0])->cols, n = r->u.norm.group;
    int c0 = block * GAIN_COLS, c1 = c0 + GAIN_COLS < width ? c0 + GAIN_COLS : width;
    real *dg = wgrad_ptr(x, r->par[0]), *db = r->par[1] < 0 ? NULL : wgrad_ptr(x, r->par[1]);
    for (int c = c0; c < c1; c++) {
        dg[c] = 0;
        if (db)
            db[c] = 0;
    }
    for (int i = 0; i < x->g->rows; i++)
        for (int at = 0; at < cols; at += width) { /* all heads share one gain, or there is one pass over the row */
            const real *in = row_ptr(x, r->in[0], i) + at, *dy = pass_ptr(u->p, r->out, 0, i) + at;
            for (int c = c0; c < c1;) {
                int h = (at + c) / n, end = (h + 1) * n - at < c1 ? (h + 1) * n - at : c1;
                const struct stats t = *stats_of(x, r, i, h);
#pragma omp simd
                for (int j = c; j < end; j++)
                    dg[j] += dy[j] * normed(&t, in[j]);
                for (int j = c; db && j < end; j++)
                    db[j] += dy[j];
                c = end;
            }
        }
    NH_T(nh_wgrad_done)(u, 0, 0, 1, c0, c1, depends_gain);
    if (db)
        NH_T(nh_wgrad_done)(u, 1, 0, 1, c0, c1, depends_gain);
}

/** rstd (v - [mean v] - xhat mean(v xhat)), the symmetric map shared by vjp and jvp; xhat is the normed x. */
static void project(const struct stats *stats, const real *x, const real *v, bool layer, int n, real *out)
{
    const struct stats s = *stats;
    struct stats level = {0};
    real along = 0;
    if (layer)
        find_mean(v, n, &level);
#pragma omp simd reduction(+ : along)
    for (int c = 0; c < n; c++)
        along += v[c] * normed(&s, x[c]);
    along /= (real)n;
#pragma omp simd
    for (int c = 0; c < n; c++)
        out[c] = s.rstd * (((v[c] - level.mean) - level.rest) - normed(&s, x[c]) * along);
}

static int vjp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    return row_units_vjp(x, r, p) + (p->counted ? gain_blocks(x, r) : 0);
}

static void vjp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    int row_part = row_units_vjp(x, r, u->p);
    if (u->index >= row_part) {
        gain_gradient(u, u->index - row_part);
        return;
    }
    struct rows b = rows_of(u);
    int cols = value_of(x, r->in[0])->cols, n = r->u.norm.group, groups = cols / n;
    real *v = u->lane->buf, offset = (real)r->u.norm.offset; /* v: one group, dy times gain */
    size_t ld;
    real *dx = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf + n, &ld);
    for (int i = b.r0; i < b.r1; i++)
        for (int h = 0; h < groups; h++) {
            const real *dy = pass_ptr(u->p, r->out, b.s, i) + h * n, *gain = weight_ptr(x, r->par[0]);
            gain += r->u.norm.per_head ? 0 : h * n;
#pragma omp simd
            for (int c = 0; c < n; c++)
                v[c] = dy[c] * (offset + gain[c]);
            project(stats_of(x, r, i, h), row_ptr(x, r->in[0], i) + h * n, v, r->u.norm.type == NH_NORM_LAYER, n,
                    dx + (size_t)(i - b.r0) * ld + (size_t)(h * n));
        }
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_dx, false);
}

static void jvp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int cols = value_of(x, r->in[0])->cols, n = r->u.norm.group, groups = cols / n;
    real offset = (real)r->u.norm.offset;
    for (int i = b.r0; i < b.r1; i++)
        for (int h = 0; h < groups; h++) {
            const real *gain = weight_ptr(x, r->par[0]);
            real *out = pass_ptr(u->p, r->out, b.s, i) + h * n;
            gain += r->u.norm.per_head ? 0 : h * n;
            project(stats_of(x, r, i, h), row_ptr(x, r->in[0], i) + h * n, pass_ptr(u->p, r->in[0], b.s, i) + h * n,
                    r->u.norm.type == NH_NORM_LAYER, n, out);
#pragma omp simd
            for (int c = 0; c < n; c++)
                out[c] *= offset + gain[c];
        }
}

static size_t scratch(const struct nh_graph *g, const struct nh_rec *r)
{
    return (size_t)(g->rows + 1) * (size_t)g->values[r->in[0]].cols;
}

const struct op NH_T(nh_op_norm) = {
    .units = row_units, .fwd = fwd, .vjp_units = vjp_units, .vjp = vjp, .jvp_units = row_units_vjp, .jvp = jvp, .scratch = scratch};

/* ---- y = x / c, c = max|x| / bound over the whole tensor and a constant in the derivatives (arXiv:2105.13290 section 2.4;
 * THUDM/CogView mpu/sparse_transformer.py: bound 8) ---- */

/** max|x|; NaN where x has one. */
static real largest(const struct nh_exec *x, nh_val v)
{
    real top = 0;
    for (int i = 0; i < x->g->rows; i++) {
        const real *row = row_ptr(x, v, i);
        for (int c = 0; c < value_of(x, v)->cols; c++)
            top = r_abs(row[c]) > top || isnan(row[c]) ? r_abs(row[c]) : top;
    }
    return top;
}

/** x / c, where a zero stays one although its format may have made c zero. */
static void divide(const real *x, real c, int n, real *out)
{
    const real of_zero = c == 0 ? 1 : c;
#pragma omp simd
    for (int i = 0; i < n; i++)
        out[i] = x[i] / (x[i] == 0 ? of_zero : c);
}

/** c stands for the whole tensor. */
static unsigned depends_relax(const struct unit *u, size_t row, size_t col)
{
    const real *p = u->p ? pass_ptr(u->p, u->r->out, 0, (int)row) : row_ptr(u->x, u->r->in[0], (int)row);
    return flags_of(p + col, 1, 1) | flags_of(u->x->aux + u->r->aux, 1, 1);
}

/** One unit: the maximum comes before every quotient. c is a number of x's format; that of a tensor of zeros is inf, which leaves
 *  zeros and no derivative. */
static void relax_fwd(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    const struct nh_value *in = value_of(x, r->in[0]);
    const struct nh_fmt *f = &x->g->fmt[in->role];
    real top = largest(x, r->in[0]), c = top == 0 ? (real)INFINITY : (real)nh_round(f, (double)top / r->u.relax.bound);
    x->aux[r->aux] = c;
    struct store s = NH_T(nh_output)(u, 0, x->g->rows, depends_relax);
    s.statistics = top != 0 && isfinite(top) && !isfinite(c);
    for (int i = 0; i < x->g->rows; i++) {
        const real *row = row_ptr(x, r->in[0], i);
        real *out = row_ptr(x, r->out, i);
        divide(row, c, in->cols, out);
        if (nh_round(s.fmt, (double)out[0]) == 0)
            s.zero_made += dead(s.fmt, row, out, NULL, 0, NULL, in->cols, false);
    }
    NH_T(nh_store)(&s);
}

static int relax_units(const struct nh_exec *x, const struct nh_rec *r)
{
    (void)x, (void)r;
    return 1;
}

static void relax_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    size_t ld;
    real *dx = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld);
    for (int i = b.r0; i < b.r1; i++)
        divide(pass_ptr(u->p, r->out, b.s, i), u->x->aux[r->aux], value_of(u->x, r->out)->cols, dx + (size_t)(i - b.r0) * ld);
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_relax, false);
}

static void relax_jvp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++)
        divide(pass_ptr(u->p, r->in[0], b.s, i), u->x->aux[r->aux], value_of(u->x, r->out)->cols, pass_ptr(u->p, r->out, b.s, i));
}

const struct op NH_T(nh_op_relax) = {.units = relax_units, .fwd = relax_fwd, .vjp_units = row_units_vjp, .vjp = relax_vjp,
                                     .jvp_units = row_units_vjp, .jvp = relax_jvp};
