// SPDX-License-Identifier: GPL-3.0-or-later
/** y = x W^T + b. W rows x cols = out x in. Products in blocks of rows, or of columns where there are few rows and so W
 * is most of what is read; single-threaded BLAS inside; the gradient of W in blocks of its own rows, so that each of
 * its sums runs over all tokens in one fixed order. */
#include "harness/core/exec.h"

enum { WEIGHT_ROWS = 128, FEW_ROWS = 256, MANY_COLS = 1024, COL_BLOCK = 512 };

/** W as the product reads it: that of a tied head may be a cast of the table. */
static const real *matrix(const struct nh_exec *x, const struct nh_rec *r)
{
    return r->u.linear.tied && x->tied ? x->tied : weight_ptr(x, r->par[0]);
}

static bool has_bad(const struct nh_exec *x, const struct nh_rec *r)
{
    return (r->u.linear.tied ? x->bad_tied : x->bad_param[r->par[0]]) > 0;
}

static int weight_blocks(const struct nh_exec *x, const struct nh_rec *r)
{
    return (x->g->params[r->par[0]].rows + WEIGHT_ROWS - 1) / WEIGHT_ROWS;
}

static bool by_columns(const struct nh_exec *x, const struct nh_rec *r)
{
    return x->g->rows <= FEW_ROWS && x->g->params[r->par[0]].rows >= MANY_COLS; /* a part of the product goes as all of it does */
}

static int fwd_units(const struct nh_exec *x, const struct nh_rec *r)
{
    return by_columns(x, r) ? (value_of(x, r->out)->cols + COL_BLOCK - 1) / COL_BLOCK : row_units(x, r);
}

static struct rows fwd_block(const struct unit *u)
{
    int cols = value_of(u->x, u->r->out)->cols, c0 = u->index * COL_BLOCK;
    if (by_columns(u->x, u->r))
        return (struct rows){.r1 = u->x->g->rows, .c0 = c0, .c1 = c0 + COL_BLOCK < cols ? c0 + COL_BLOCK : cols};
    struct rows b = rows_of(u);
    b.c1 = cols;
    return b;
}

static unsigned depends_fwd(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    size_t in = (size_t)value_of(x, r->in[0])->cols, at = col - (size_t)r->u.linear.row0; /* row of W that is there */
    unsigned f = 0;
    if (x->bad_value[value_of(x, r->in[0])->base])
        f |= flags_of(row_ptr(x, r->in[0], (int)row), in, 1);
    if (has_bad(x, r))
        f |= flags_of(matrix(x, r) + at * in, in, 1);
    if (r->par[1] >= 0)
        f |= flags_of(weight_ptr(x, r->par[1]) + col, 1, 1);
    return f;
}

static void fwd(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = fwd_block(u);
    const struct nh_value *in = value_of(x, r->in[0]), *out = value_of(x, r->out);
    int cols = b.c1 - b.c0;
    real *y = row_ptr(x, r->out, b.r0) + b.c0;
    gemm(x, true, false, true, b.r1 - b.r0, cols, in->cols, row_ptr(x, r->in[0], b.r0), (size_t)in->ld,
         matrix(x, r) + (size_t)b.c0 * (size_t)in->cols, (size_t)in->cols, false, y, (size_t)out->ld);
    if (r->par[1] >= 0) {
        const real *bias = weight_ptr(x, r->par[1]) + r->u.linear.row0 + b.c0;
        for (int i = 0; i < b.r1 - b.r0; i++)
#pragma omp simd
            for (int j = 0; j < cols; j++)
                y[(size_t)i * (size_t)out->ld + (size_t)j] += bias[j];
    }
    struct store s = NH_T(nh_output)(u, b.r0, b.r1, depends_fwd);
    s.p = y, s.cols = (size_t)cols, s.product = true;
    s.col0 = (size_t)(r->u.linear.row0 + b.c0), s.width = (size_t)x->g->params[r->par[0]].rows;
    NH_T(nh_store)(&s);
}

static unsigned depends_dx(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    size_t in = (size_t)value_of(x, u->r->in[0])->cols;
    const struct nh_value *out = value_of(x, u->r->out);
    unsigned f = 0;
    if (x->bad_grad[u->r->out])
        f |= flags_of(pass_ptr(u->p, u->r->out, 0, (int)row), (size_t)out->cols, 1);
    if (has_bad(x, u->r))
        f |= flags_of(matrix(x, u->r) + col, (size_t)out->cols, in);
    return f;
}

/** Flags of the columns, gathered before the product: those of dy in the unit's rows of W, then those of x. */
static unsigned depends_dw(const struct unit *u, size_t row, size_t col)
{
    return u->lane->flags[row] | u->lane->flags[value_of(u->x, u->r->out)->cols + (int)col];
}

static unsigned depends_db(const struct unit *u, size_t row, size_t col)
{
    (void)row;
    return u->lane->flags[col];
}

static void weight_gradient(const struct unit *u, int block)
{
    struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    const struct nh_value *in = value_of(x, r->in[0]), *out = value_of(x, r->out);
    size_t rows = (size_t)x->g->rows;
    int o0 = block * WEIGHT_ROWS, o1 = o0 + WEIGHT_ROWS < out->cols ? o0 + WEIGHT_ROWS : out->cols;
    const real *dy = pass_ptr(u->p, r->out, 0, 0), *xs = value_ptr(x, r->in[0]);
    NH_T(nh_column_flags)(dy, rows, (size_t)out->cols, (size_t)out->ld, x->bad_grad[r->out] > 0, u->lane->flags);
    NH_T(nh_column_flags)(xs, rows, (size_t)in->cols, (size_t)in->ld, x->bad_value[in->base] > 0, u->lane->flags + out->cols);
    real *dw = wgrad_ptr(x, r->par[0]) + (size_t)o0 * (size_t)in->cols;
    gemm(x, true, true, false, o1 - o0, in->cols, (int)rows, dy + o0, (size_t)out->ld, xs, (size_t)in->ld,
         x->wgrad_seen[r->par[0]], dw, (size_t)in->cols);
    NH_T(nh_wgrad_done)(u, 0, o0, o1, 0, in->cols, depends_dw);
    if (r->par[1] < 0)
        return;
    real *db = wgrad_ptr(x, r->par[1]);
    for (int j = o0; j < o1; j++)
        db[j] = 0;
    for (size_t i = 0; i < rows; i++)
        for (int j = o0; j < o1; j++)
            db[j] += dy[i * (size_t)out->ld + (size_t)j];
    NH_T(nh_wgrad_done)(u, 1, 0, 1, o0, o1, depends_db);
}

static int vjp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    return row_units_vjp(x, r, p) + (p->counted ? weight_blocks(x, r) : 0);
}

static void vjp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    int row_part = row_units_vjp(x, r, u->p);
    if (u->index >= row_part) {
        weight_gradient(u, u->index - row_part);
        return;
    }
    struct rows b = rows_of(u);
    const struct nh_value *in = value_of(x, r->in[0]), *out = value_of(x, r->out);
    size_t ld;
    real *dx = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld);
    gemm(x, u->p->counted, false, false, b.r1 - b.r0, in->cols, out->cols, pass_ptr(u->p, r->out, b.s, b.r0), (size_t)out->ld,
         matrix(x, r), (size_t)in->cols, false, dx, ld);
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_dx, true);
}

static void jvp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    const struct nh_value *in = value_of(x, r->in[0]), *out = value_of(x, r->out);
    gemm(x, false, false, true, b.r1 - b.r0, out->cols, in->cols, pass_ptr(u->p, r->in[0], b.s, b.r0), (size_t)in->ld,
         matrix(x, r), (size_t)in->cols, false, pass_ptr(u->p, r->out, b.s, b.r0), (size_t)out->ld);
}

const struct op NH_T(nh_op_linear) = {
    .units = fwd_units, .fwd = fwd, .vjp_units = vjp_units, .vjp = vjp, .jvp_units = row_units_vjp, .jvp = jvp};
