// SPDX-License-Identifier: GPL-3.0-or-later
/** The two ends of the tape: token embedding and cross-entropy; and the table of all operations. */
#include "harness/core/exec.h"

enum { EMBED_COLS = 64 };

/* ---- y = scale E[token] + P[position] ---- */

static unsigned embed_depends(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    size_t cols = (size_t)value_of(x, u->r->out)->cols;
    unsigned f = flags_of(weight_ptr(x, u->r->par[0]) + (size_t)x->token_row[row] * cols + col, 1, 1);
    if (u->r->par[1] >= 0)
        f |= flags_of(weight_ptr(x, u->r->par[1]) + row % (size_t)x->g->seq * cols + col, 1, 1);
    return f;
}

static void embed_fwd(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    size_t cols = (size_t)value_of(x, r->out)->cols;
    real scale = (real)r->u.embed.scale;
    for (int i = b.r0; i < b.r1; i++) {
        const real *e = weight_ptr(x, r->par[0]) + (size_t)x->token_row[i] * cols;
        const real *p = r->par[1] < 0 ? NULL : weight_ptr(x, r->par[1]) + (size_t)(i % x->g->seq) * cols;
        real *y = row_ptr(x, r->out, i);
        for (size_t c = 0; c < cols; c++)
            y[c] = scale * e[c];
        for (size_t c = 0; p && c < cols; c++)
            y[c] += p[c];
    }
    struct store s = NH_T(nh_output)(u, b.r0, b.r1, embed_depends);
    NH_T(nh_store)(&s);
}

static int embed_vjp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    return p->counted ? (value_of(x, r->out)->cols + EMBED_COLS - 1) / EMBED_COLS : 0;
}

/** A number of a table's gradient may come from any row. */
static unsigned embed_depends_grad(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    (void)row;
    return x->bad_grad[u->r->out] ? flags_of(pass_ptr(u->p, u->r->out, 0, 0) + col, (size_t)x->g->rows,
                                             (size_t)value_of(x, u->r->out)->ld)
                                  : 0;
}

/** Columns [c0, c1) of a table's gradient: rows of the cotangent summed where they came from, in order. The shrink of GLM-130B
 *  (arXiv:2210.02414 section 2.2: E a + stopgrad(E) (1 - a)) is a factor here, so that the forward pass keeps its bits and the part
 *  that a tied head adds stays whole. */
static void scatter(const struct unit *u, int slot, int c0, int c1, const int *row_of, int rows_each, double scale)
{
    struct nh_exec *x = u->x;
    int par = u->r->par[slot];
    size_t cols = (size_t)x->g->params[par].cols;
    real *d = wgrad_ptr(x, par), f = (real)(scale * u->r->u.embed.shrink);
    for (int i = 0; i < x->g->params[par].rows && !x->wgrad_seen[par]; i++)
        memset(d + (size_t)i * cols + (size_t)c0, 0, (size_t)(c1 - c0) * sizeof *d);
    for (int i = 0; i < x->g->rows; i++) {
        const real *dy = pass_ptr(u->p, u->r->out, 0, i);
        real *to = d + (size_t)(row_of ? row_of[i] : i % rows_each) * cols;
        for (int c = c0; c < c1; c++)
            to[c] += f * dy[c];
    }
    NH_T(nh_wgrad_done)(u, slot, 0, x->g->params[par].rows, c0, c1, embed_depends_grad);
}

static void embed_vjp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    int cols = value_of(x, u->r->out)->cols, c0 = u->index * EMBED_COLS, c1 = c0 + EMBED_COLS < cols ? c0 + EMBED_COLS : cols;
    scatter(u, 0, c0, c1, x->tokens, 0, u->r->u.embed.scale);
    if (u->r->par[1] >= 0)
        scatter(u, 1, c0, c1, NULL, x->g->seq, 1);
}

/** Nothing on the tape comes before the embedding, so no tangent reaches it. */
const struct op NH_T(nh_op_embed) = {.units = row_units, .fwd = embed_fwd, .vjp_units = embed_vjp_units, .vjp = embed_vjp};

/* ---- negative log-likelihood of the next token, row by row, 0 for the last row of a sequence; with a z-loss plus c log^2 Z, Z the
 * sum of the row's exponentials (arXiv:2204.02311 section 5) ---- */

static bool has_target(const struct nh_exec *x, int row)
{
    return row % x->g->seq < x->g->seq - 1;
}

static unsigned xent_depends(const struct unit *u, size_t row, size_t col)
{
    (void)col;
    const nh_val z = u->r->in[0], before = u->r->in[1];
    unsigned f = flags_of(row_ptr(u->x, z, (int)row), (size_t)value_of(u->x, z)->cols, 1);
    if (before >= 0)
        f |= (unsigned)row_ptr(u->x, before, (int)row)[3];
    return u->p ? f | flags_of(pass_ptr(u->p, u->r->out, 0, (int)row), 1, 1) : f;
}

/** aux: the row's maximum and the sum of its exponentials over that. */
static real log_z(const real *aux)
{
    return r_log(aux[1]) + aux[0];
}

/** d loss / d log Z = 1 + 2 c log Z. */
static real z_slope(const struct nh_rec *r, const real *aux)
{
    real c = (real)r->u.xent.z_loss;
    return c > 0 ? 1 + 2 * c * log_z(aux) : 1;
}

/** Takes a block of n logits into the maximum and the sum of exponentials over it so far; the sum is 0 before the first block. */
static void take_block(const real *z, int n, real *top_so_far, real *sum_so_far)
{
    real top = z[0];
    double sum = 0; /* thousands of small terms */
    for (int c = 1; c < n; c++)
        top = z[c] > top ? z[c] : top;
    if (*sum_so_far != 0 && !(*top_so_far < top))
        top = *top_so_far; /* a NaN stays too */
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < n; c++)
        sum += (double)r_exp(z[c] - top);
    if (*sum_so_far != 0)
        sum += (double)(*sum_so_far * r_exp(*top_so_far - top));
    *sum_so_far = (real)sum;
    *top_so_far = top;
}

static void xent_fwd(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int n = value_of(x, r->in[0])->cols, col0 = r->u.xent.col0;
    real penalty = (real)r->u.xent.z_loss;
    for (int i = b.r0; i < b.r1; i++) {
        const real *z = row_ptr(x, r->in[0], i), *before = r->in[1] < 0 ? NULL : row_ptr(x, r->in[1], i);
        real *y = row_ptr(x, r->out, i), *aux = x->aux + r->aux + 2 * (size_t)i;
        int target = has_target(x, i) ? x->tokens[i + 1] - col0 : -1;
        real hit = target >= 0 && target < n ? z[target] : before ? before[2] : 0;
        aux[0] = before ? before[0] : 0, aux[1] = before ? before[1] : 0;
        for (int c = 0; c < n; c += NH_VOCAB_BLOCK)
            take_block(z + c, n - c < NH_VOCAB_BLOCK ? n - c : NH_VOCAB_BLOCK, &aux[0], &aux[1]);
        if (r->u.xent.part) {
            y[0] = aux[0], y[1] = aux[1], y[2] = hit, y[3] = (real)xent_depends(u, (size_t)i, 0);
            continue;
        }
        /* the logit is taken from the maximum first: beside a large one log Z has lost the sum */
        *y = has_target(x, i) ? r_log(aux[1]) - (hit - aux[0]) : 0;
        if (has_target(x, i) && penalty > 0)
            *y += penalty * log_z(aux) * log_z(aux);
    }
    struct store s = NH_T(nh_output)(u, b.r0, b.r1, xent_depends);
    if (!r->u.xent.part)
        NH_T(nh_store)(&s);
}

static void xent_vjp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int n = x->g->vocab;
    size_t ld;
    real *dz = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld);
    for (int i = b.r0; i < b.r1; i++) {
        const real *z = row_ptr(x, r->in[0], i), *aux = x->aux + r->aux + 2 * (size_t)i;
        real *d = dz + (size_t)(i - b.r0) * ld, g = *pass_ptr(u->p, r->out, b.s, i);
        real inverse = g * z_slope(r, aux) / aux[1];
        if (!has_target(x, i)) {
            memset(d, 0, (size_t)n * sizeof *d);
            continue;
        }
        for (int c = 0; c < n; c++)
            d[c] = inverse * r_exp(z[c] - aux[0]);
        d[x->tokens[i + 1]] -= g;
    }
    NH_T(nh_cotangent_done)(u, r->in[0], b, dz, ld, xent_depends, false);
}

static void xent_jvp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    for (int i = b.r0; i < b.r1; i++) {
        const real *z = row_ptr(x, r->in[0], i), *aux = x->aux + r->aux + 2 * (size_t)i, *dz = pass_ptr(u->p, r->in[0], b.s, i);
        real sum = 0;
        for (int c = 0; c < x->g->vocab; c++)
            sum += r_exp(z[c] - aux[0]) * dz[c];
        *pass_ptr(u->p, r->out, b.s, i) = has_target(x, i) ? z_slope(r, aux) * sum / aux[1] - dz[x->tokens[i + 1]] : 0;
    }
}

const struct op NH_T(nh_op_xent) = {
    .units = row_units, .fwd = xent_fwd, .vjp_units = row_units_vjp, .vjp = xent_vjp, .jvp_units = row_units_vjp, .jvp = xent_jvp};

const struct op *const NH_T(nh_ops)[NH_OP_COUNT] = {
    [NH_OP_EMBED] = &NH_T(nh_op_embed), [NH_OP_NORM] = &NH_T(nh_op_norm),   [NH_OP_LINEAR] = &NH_T(nh_op_linear),
    [NH_OP_ROPE] = &NH_T(nh_op_rope),   [NH_OP_SDPA] = &NH_T(nh_op_sdpa),   [NH_OP_ACT] = &NH_T(nh_op_act),
    [NH_OP_GAIN] = &NH_T(nh_op_gain),   [NH_OP_SHRINK] = &NH_T(nh_op_shrink),
    [NH_OP_MUL] = &NH_T(nh_op_mul),     [NH_OP_AXPBY] = &NH_T(nh_op_axpby), [NH_OP_CAST] = &NH_T(nh_op_cast),
    [NH_OP_RELAX] = &NH_T(nh_op_relax), [NH_OP_ROUTE] = &NH_T(nh_op_route), [NH_OP_EXPERTS] = &NH_T(nh_op_experts),
    [NH_OP_COMBINE] = &NH_T(nh_op_combine), [NH_OP_XENT] = &NH_T(nh_op_xent),
};
