// SPDX-License-Identifier: GPL-3.0-or-later
/** Operations element by element: activation, product, weighted sum, cast; and the rotation of positions (RoPE). */
#include "harness/core/exec.h"

/** Non-finite flags of the inputs at one place, and of the cotangent of the output in a backward pass. */
static unsigned depends_point(const struct unit *u, size_t row, size_t col)
{
    unsigned f = u->p ? flags_of(pass_ptr(u->p, u->r->out, 0, (int)row) + col, 1, 1) : 0;
    for (int i = 0; i < 2; i++)
        if (u->r->in[i] >= 0)
            f |= flags_of(row_ptr(u->x, u->r->in[i], (int)row) + col, 1, 1);
    return f;
}

static void store_rows(const struct unit *u, struct rows b, depends_fn *depends)
{
    struct store s = NH_T(nh_output)(u, b.r0, b.r1, depends);
    NH_T(nh_store)(&s);
}

/* ---- activation ---- */

static const real GELU_A = (real)0.044715, GELU_B = (real)1.5957691216057308; /* 2 sqrt(2/pi) */

/** tanh form, x (1 + tanh z)/2 = x sigmoid(2 z), with z = sqrt(2/pi) (x + 0.044715 x^3) in the executor's type: the cube of a
 *  half-precision value does not overflow here. */
static inline real gelu(real x)
{
    return x * sigmoid(GELU_B * (x + GELU_A * x * x * x));
}

static inline real gelu_slope(real x)
{
    real s = sigmoid(GELU_B * (x + GELU_A * x * x * x)), inner = GELU_B * (1 + 3 * GELU_A * x * x);
    real bend = s * (1 - s); /* 0 far out, where x * inner may be inf */
    return bend == 0 ? s : s + x * bend * inner;
}

static inline real silu(real x)
{
    return x * sigmoid(x);
}

static inline real silu_slope(real x)
{
    real s = sigmoid(x);
    return s + x * s * (1 - s);
}

static inline real sigmoid_slope(real x)
{
    real s = sigmoid(x);
    return s * (1 - s);
}

/** cap tanh(x / cap) (Gemma 2, arXiv:2408.00118 section 2): bounded by cap, even for x = inf. */
static inline real softcap(real x, real cap)
{
    return cap * r_tanh(x / cap);
}

static inline real softcap_slope(real x, real cap)
{
    real t = r_tanh(x / cap);
    return (1 - t) * (1 + t);
}

static void act_rows(const struct unit *u, struct rows b)
{
    const struct nh_rec *r = u->r;
    int cols = value_of(u->x, r->out)->cols;
    for (int i = b.r0; i < b.r1; i++) {
        const real *x = row_ptr(u->x, r->in[0], i);
        real *y = row_ptr(u->x, r->out, i);
        switch (r->u.act.kind) {
        case NH_ACT_GELU:
            for (int c = 0; c < cols; c++)
                y[c] = gelu(x[c]);
            break;
        case NH_ACT_RELU:
            for (int c = 0; c < cols; c++)
                y[c] = x[c] < 0 ? 0 : x[c]; /* NaN stays */
            break;
        case NH_ACT_SILU:
            for (int c = 0; c < cols; c++)
                y[c] = silu(x[c]);
            break;
        case NH_ACT_SIGMOID:
            for (int c = 0; c < cols; c++)
                y[c] = sigmoid(x[c]);
            break;
        case NH_ACT_SOFTCAP:
            for (int c = 0; c < cols; c++)
                y[c] = softcap(x[c], (real)r->u.act.cap);
            break;
        }
    }
}

static void act_fwd(const struct unit *u)
{
    struct rows b = rows_of(u);
    act_rows(u, b);
    store_rows(u, b, depends_point);
}

/** The slope of the activation at n places. */
static void act_slope(const struct nh_rec *r, const real *x, int n, real *slope)
{
    switch (r->u.act.kind) {
    case NH_ACT_GELU:
        for (int c = 0; c < n; c++)
            slope[c] = gelu_slope(x[c]);
        break;
    case NH_ACT_RELU:
        for (int c = 0; c < n; c++)
            slope[c] = x[c] <= 0 ? 0 : 1;
        break;
    case NH_ACT_SILU:
        for (int c = 0; c < n; c++)
            slope[c] = silu_slope(x[c]);
        break;
    case NH_ACT_SIGMOID:
        for (int c = 0; c < n; c++)
            slope[c] = sigmoid_slope(x[c]);
        break;
    case NH_ACT_SOFTCAP:
        for (int c = 0; c < n; c++)
            slope[c] = softcap_slope(x[c], (real)r->u.act.cap);
        break;
    }
}

static void multiply(const real *a, const real *b, int n, real *out)
{
#pragma omp simd
    for (int c = 0; c < n; c++)
        out[c] = a[c] * b[c];
}

static void act_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int n = value_of(u->x, r->out)->cols;
    size_t ld;
    real *slope = u->lane->buf, *dx = NH_T(nh_cotangent)(u, r->in[0], b, slope + n, &ld);
    for (int i = b.r0; i < b.r1; i++) {
        act_slope(r, row_ptr(u->x, r->in[0], i), n, slope);
        multiply(slope, pass_ptr(u->p, r->out, b.s, i), n, dx + (size_t)(i - b.r0) * ld);
    }
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_point, false);
}

/** All samples of a row together: the slope is the same for all. */
static int act_jvp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    (void)r;
    return row_blocks(x->g, p);
}

static void act_jvp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int n = value_of(u->x, r->out)->cols;
    real *slope = u->lane->buf;
    for (int i = b.r0; i < b.r1; i++) {
        act_slope(r, row_ptr(u->x, r->in[0], i), n, slope);
        for (int s = 0; s < u->p->n; s++)
            multiply(slope, pass_ptr(u->p, r->in[0], s, i), n, pass_ptr(u->p, r->out, s, i));
    }
}

static size_t act_scratch(const struct nh_graph *g, const struct nh_rec *r)
{
    return (size_t)(g->rows + 1) * (size_t)g->values[r->out].cols;
}

/* ---- product of two values ---- */

static void mul_fwd(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int cols = value_of(u->x, r->out)->cols;
    for (int i = b.r0; i < b.r1; i++)
        multiply(row_ptr(u->x, r->in[0], i), row_ptr(u->x, r->in[1], i), cols, row_ptr(u->x, r->out, i));
    store_rows(u, b, depends_point);
}

static void mul_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int cols = value_of(u->x, r->out)->cols;
    for (int side = 0; side < 2; side++) {
        size_t ld;
        real *dx = NH_T(nh_cotangent)(u, r->in[side], b, u->lane->buf, &ld);
        for (int i = b.r0; i < b.r1; i++)
            multiply(pass_ptr(u->p, r->out, b.s, i), row_ptr(u->x, r->in[1 - side], i), cols, dx + (size_t)(i - b.r0) * ld);
        NH_T(nh_cotangent_done)(u, r->in[side], b, dx, ld, depends_point, false);
    }
}

static void mul_jvp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int cols = value_of(u->x, r->out)->cols;
    for (int i = b.r0; i < b.r1; i++) {
        real *dz = pass_ptr(u->p, r->out, b.s, i);
        bool any = false;
        for (int side = 0; side < 2; side++) {
            if (!u->p->seen[value_of(u->x, r->in[side])->base])
                continue;
            const real *d = pass_ptr(u->p, r->in[side], b.s, i), *other = row_ptr(u->x, r->in[1 - side], i);
#pragma omp simd
            for (int c = 0; c < cols; c++)
                dz[c] = (any ? dz[c] : 0) + d[c] * other[c];
            any = true;
        }
    }
}

/* ---- weighted sum of one or two values; cast ---- */

/** out = a x + b y over n numbers; y may be NULL. */
static void combine(real a, const real *x, real b, const real *y, int n, real *out)
{
    if (!y) {
#pragma omp simd
        for (int c = 0; c < n; c++)
            out[c] = a * x[c];
    } else if (a == 1 && b == 1) {
#pragma omp simd
        for (int c = 0; c < n; c++)
            out[c] = x[c] + y[c];
    } else {
#pragma omp simd
        for (int c = 0; c < n; c++)
            out[c] = a * x[c] + b * y[c];
    }
}

static real factor(const struct nh_rec *r, int side)
{
    return r->op == NH_OP_CAST ? 1 : (real)(side ? r->u.axpby.b : r->u.axpby.a);
}

static void axpby_fwd(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++)
        combine(factor(r, 0), row_ptr(u->x, r->in[0], i), factor(r, 1), r->in[1] < 0 ? NULL : row_ptr(u->x, r->in[1], i),
                value_of(u->x, r->out)->cols, row_ptr(u->x, r->out, i));
    store_rows(u, b, depends_point);
}

static unsigned depends_cotangent(const struct unit *u, size_t row, size_t col)
{
    return flags_of(pass_ptr(u->p, u->r->out, 0, (int)row) + col, 1, 1);
}

static void axpby_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    for (int side = 0; side < 2 && r->in[side] >= 0; side++) {
        size_t ld;
        real *dx = NH_T(nh_cotangent)(u, r->in[side], b, u->lane->buf, &ld);
        for (int i = b.r0; i < b.r1; i++)
            combine(factor(r, side), pass_ptr(u->p, r->out, b.s, i), 0, NULL, value_of(u->x, r->out)->cols,
                    dx + (size_t)(i - b.r0) * ld);
        NH_T(nh_cotangent_done)(u, r->in[side], b, dx, ld, depends_cotangent, false);
    }
}

static void axpby_jvp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    const struct nh_pass *p = u->p;
    struct rows b = rows_of(u);
    int n = value_of(u->x, r->out)->cols;
    bool x = p->seen[value_of(u->x, r->in[0])->base], y = r->in[1] >= 0 && p->seen[value_of(u->x, r->in[1])->base];
    for (int i = b.r0; i < b.r1; i++) {
        const real *dx = x ? pass_ptr(p, r->in[0], b.s, i) : NULL, *dy = y ? pass_ptr(p, r->in[1], b.s, i) : NULL;
        combine(factor(r, !x), x ? dx : dy, factor(r, 1), x ? dy : NULL, n, pass_ptr(p, r->out, b.s, i));
    }
}

/* ---- trained gain: one number for every `width` columns; and y = x - silu(p) stopgrad(x) ---- */

static unsigned depends_gain(const struct unit *u, size_t row, size_t col)
{
    size_t width = u->r->op == NH_OP_GAIN ? (size_t)u->r->u.gain.width : SIZE_MAX;
    return depends_point(u, row, col) | flags_of(weight_ptr(u->x, u->r->par[0]) + col / width, 1, 1);
}

/** out = factor of its column times x, over n columns. */
static void apply_gain(const struct unit *u, const real *x, int n, real *out)
{
    const real *g = weight_ptr(u->x, u->r->par[0]);
    int width = u->r->u.gain.width;
    for (int c = 0; c < n; c++)
        out[c] = g[c / width] * x[c];
}

static void gain_fwd(const struct unit *u)
{
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++)
        apply_gain(u, row_ptr(u->x, u->r->in[0], i), value_of(u->x, u->r->out)->cols, row_ptr(u->x, u->r->out, i));
    store_rows(u, b, depends_gain);
}

/** The sum for a parameter runs over all rows on one unit behind the row units. */
static int gain_vjp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    return row_units_vjp(x, r, p) + p->counted;
}

static unsigned depends_sums(const struct unit *u, size_t row, size_t col)
{
    const struct nh_value *out = value_of(u->x, u->r->out);
    size_t width = u->r->op == NH_OP_GAIN ? (size_t)u->r->u.gain.width : (size_t)out->cols;
    unsigned f = 0;
    (void)row;
    for (int i = 0; i < u->x->g->rows; i++)
        f |= flags_of(pass_ptr(u->p, u->r->out, 0, i) + col * width, width, 1) |
             flags_of(row_ptr(u->x, u->r->in[0], i) + col * width, width, 1);
    return f;
}

/** Gradient of the parameter: factor times the sum of dy x over rows and the columns that share it. */
static void sum_gradient(const struct unit *u, int width, real factor)
{
    int cols = value_of(u->x, u->r->out)->cols;
    real *dg = wgrad_ptr(u->x, u->r->par[0]);
    for (int k = 0; k < cols / width; k++) {
        real sum = 0;
        for (int i = 0; i < u->x->g->rows; i++) {
            const real *dy = pass_ptr(u->p, u->r->out, 0, i) + k * width, *x = row_ptr(u->x, u->r->in[0], i) + k * width;
            for (int c = 0; c < width; c++)
                sum += dy[c] * x[c];
        }
        dg[k] = factor * sum;
    }
    NH_T(nh_wgrad_done)(u, 0, 0, 1, 0, cols / width, depends_sums);
}

static void gain_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    if (u->index >= row_units_vjp(u->x, r, u->p)) {
        sum_gradient(u, r->u.gain.width, 1);
        return;
    }
    struct rows b = rows_of(u);
    size_t ld;
    real *dx = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld);
    for (int i = b.r0; i < b.r1; i++)
        apply_gain(u, pass_ptr(u->p, r->out, b.s, i), value_of(u->x, r->out)->cols, dx + (size_t)(i - b.r0) * ld);
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_gain, false);
}

static void gain_jvp(const struct unit *u)
{
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++)
        apply_gain(u, pass_ptr(u->p, u->r->in[0], b.s, i), value_of(u->x, u->r->out)->cols, pass_ptr(u->p, u->r->out, b.s, i));
}

static void shrink_fwd(const struct unit *u)
{
    struct rows b = rows_of(u);
    real keep = 1 - silu(*weight_ptr(u->x, u->r->par[0]));
    for (int i = b.r0; i < b.r1; i++)
        combine(keep, row_ptr(u->x, u->r->in[0], i), 0, NULL, value_of(u->x, u->r->out)->cols, row_ptr(u->x, u->r->out, i));
    store_rows(u, b, depends_gain);
}

/** The stopped factor is a constant: cotangent and tangent pass unchanged. */
static void shrink_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    if (u->index >= row_units_vjp(u->x, r, u->p)) {
        sum_gradient(u, value_of(u->x, r->out)->cols, -silu_slope(*weight_ptr(u->x, r->par[0])));
        return;
    }
    struct rows b = rows_of(u);
    size_t ld;
    real *dx = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld);
    for (int i = b.r0; i < b.r1; i++)
        combine(1, pass_ptr(u->p, r->out, b.s, i), 0, NULL, value_of(u->x, r->out)->cols, dx + (size_t)(i - b.r0) * ld);
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_cotangent, false);
}

static void shrink_jvp(const struct unit *u)
{
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++)
        combine(1, pass_ptr(u->p, u->r->in[0], b.s, i), 0, NULL, value_of(u->x, u->r->out)->cols, pass_ptr(u->p, u->r->out, b.s, i));
}

/* ---- rotation: element j of a head pairs with j + dim/2; angle t nh_rope_frequency(j) (arXiv:2104.09864, half-split form) ---- */

static unsigned depends_rope(const struct unit *u, size_t row, size_t col)
{
    size_t dim = (size_t)u->r->u.rope.head_dim, half = dim / 2, pair = col % dim < half ? col + half : col - half;
    const real *p = u->p ? pass_ptr(u->p, u->r->out, 0, (int)row) : row_ptr(u->x, u->r->in[0], (int)row);
    return flags_of(p + col, 1, 1) | flags_of(p + pair, 1, 1);
}

/** out = in rotated by the angle of position t, or back by it. */
static void rotate(const struct unit *u, int t, bool back, const real *in, int cols, real *out)
{
    int half = u->r->u.rope.head_dim / 2;
    size_t at = ((size_t)u->r->u.rope.table * (size_t)u->x->g->seq + (size_t)t) * (size_t)half;
    const real *cs = u->x->cos + at, *sn = u->x->sin + at;
    real sign = back ? -1 : 1;
    for (int h = 0; h < cols; h += 2 * half)
#pragma omp simd
        for (int j = 0; j < half; j++) {
            real a = in[h + j], b = in[h + half + j], s = sign * sn[j];
            out[h + j] = a * cs[j] - b * s;
            out[h + half + j] = b * cs[j] + a * s;
        }
}

static void rope_fwd(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++)
        rotate(u, i % u->x->g->seq, false, row_ptr(u->x, r->in[0], i), value_of(u->x, r->out)->cols, row_ptr(u->x, r->out, i));
    store_rows(u, b, depends_rope);
}

static void rope_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    size_t ld;
    real *dx = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld);
    for (int i = b.r0; i < b.r1; i++)
        rotate(u, i % u->x->g->seq, true, pass_ptr(u->p, r->out, b.s, i), value_of(u->x, r->out)->cols,
               dx + (size_t)(i - b.r0) * ld);
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_rope, false);
}

static void rope_jvp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++)
        rotate(u, i % u->x->g->seq, false, pass_ptr(u->p, r->in[0], b.s, i), value_of(u->x, r->out)->cols,
               pass_ptr(u->p, r->out, b.s, i));
}

#define POINT(name)                                                                                                            \
    {                                                                                                                          \
        .units = row_units, .fwd = name##_fwd, .vjp_units = row_units_vjp, .vjp = name##_vjp, .jvp_units = row_units_vjp,      \
        .jvp = name##_jvp                                                                                                      \
    }

const struct op NH_T(nh_op_act) = {.units = row_units, .fwd = act_fwd, .vjp_units = row_units_vjp, .vjp = act_vjp,
                                   .jvp_units = act_jvp_units, .jvp = act_jvp, .scratch = act_scratch};
const struct op NH_T(nh_op_mul) = POINT(mul);
const struct op NH_T(nh_op_axpby) = POINT(axpby);
const struct op NH_T(nh_op_cast) = POINT(axpby);
const struct op NH_T(nh_op_rope) = POINT(rope);
const struct op NH_T(nh_op_gain) = {.units = row_units, .fwd = gain_fwd, .vjp_units = gain_vjp_units, .vjp = gain_vjp,
                                    .jvp_units = row_units_vjp, .jvp = gain_jvp};
const struct op NH_T(nh_op_shrink) = {.units = row_units, .fwd = shrink_fwd, .vjp_units = gain_vjp_units, .vjp = shrink_vjp,
                                      .jvp_units = row_units_vjp, .jvp = shrink_jvp};
