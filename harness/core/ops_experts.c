// SPDX-License-Identifier: GPL-3.0-or-later
/** A mixture of experts: who goes where, the experts' products, the sum of what they give. A token has k slots, its chosen experts in
 *  the order of their numbers; a routed value has the slots of a token side by side in its row. The choice is a constant of all
 *  derivatives. Source: huggingface/transformers modeling_afmoe.py; arXiv:2602.17004 section 2. */
#include "harness/core/exec.h"

/** The experts of a token, ascending; they stay until the next forward pass. */
static real *chosen(const struct nh_exec *x, const struct nh_rec *route, int row)
{
    return x->aux + route->aux + (size_t)row * (size_t)value_of(x, route->out)->cols;
}

/* ---- weights of the chosen: w_j = scale s_j / (sum of the s of the chosen + 1e-20), s = sigmoid(logits) ---- */

/** NaN comes first, as in torch.topk: it shall be seen behind. */
static bool comes_before(real a, real b)
{
    return isnan(a) ? !isnan(b) : a > b;
}

/** The k experts with the largest s + bias, ties to the lower number. */
static void choose(const struct unit *u, const real *logits, real *slots)
{
    int n = value_of(u->x, u->r->in[0])->cols, k = value_of(u->x, u->r->out)->cols;
    const real *bias = weight_ptr(u->x, u->r->par[0]);
    real *score = u->lane->buf;
    unsigned char *taken = u->lane->flags;
    memset(taken, 0, (size_t)n);
    for (int e = 0; e < n; e++)
        score[e] = sigmoid(logits[e]) + bias[e];
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int e = 0; e < n; e++)
            if (!taken[e] && (best < 0 || comes_before(score[e], score[best])))
                best = e;
        taken[best] = 1;
    }
    for (int e = 0; e < n; e++)
        if (taken[e])
            *slots++ = (real)e;
}

/** Scores of the chosen; returns their sum, which is never 0. */
static real scores(const real *logits, const real *slots, int k, real *s)
{
    real sum = 0;
    for (int j = 0; j < k; j++) {
        s[j] = sigmoid(logits[(int)slots[j]]);
        sum += s[j];
    }
    return sum + (real)1e-20;
}

static unsigned route_depends(const struct unit *u, size_t row, size_t col)
{
    const struct nh_rec *r = u->r;
    (void)col;
    unsigned f = flags_of(row_ptr(u->x, r->in[0], (int)row), (size_t)value_of(u->x, r->in[0])->cols, 1);
    return u->p ? f | flags_of(pass_ptr(u->p, r->out, 0, (int)row), (size_t)value_of(u->x, r->out)->cols, 1) : f;
}

static void route_fwd(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int k = value_of(u->x, r->out)->cols;
    real scale = (real)r->u.route.scale;
    for (int i = b.r0; i < b.r1; i++) {
        const real *logits = row_ptr(u->x, r->in[0], i);
        real *slots = chosen(u->x, r, i), *w = row_ptr(u->x, r->out, i);
        choose(u, logits, slots);
        real sum = scores(logits, slots, k, w);
        for (int j = 0; j < k; j++)
            w[j] = scale * (w[j] / sum);
    }
    struct store s = NH_T(nh_output)(u, b.r0, b.r1, route_depends);
    NH_T(nh_store)(&s);
}

/** dw_j/dz_i = scale s_i (1 - s_i) / sum ((i = j) - s_j / sum); 0 for experts that were not chosen. */
static void route_vjp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int n = value_of(x, r->in[0])->cols, k = value_of(x, r->out)->cols;
    size_t ld;
    real *s = u->lane->buf, *dz = NH_T(nh_cotangent)(u, r->in[0], b, s + k, &ld), scale = (real)r->u.route.scale;
    if (u->p->counted && u->index == 0) /* the bias moves nothing but the choice */
        memset(wgrad_ptr(x, r->par[0]), 0, (size_t)n * sizeof *dz);
    for (int i = b.r0; i < b.r1; i++) {
        const real *logits = row_ptr(x, r->in[0], i), *slots = chosen(x, r, i), *dw = pass_ptr(u->p, r->out, b.s, i);
        real *d = dz + (size_t)(i - b.r0) * ld, sum = scores(logits, slots, k, s), mean = 0;
        for (int j = 0; j < k; j++)
            mean += dw[j] * (s[j] / sum);
        memset(d, 0, (size_t)n * sizeof *d);
        for (int j = 0; j < k; j++)
            d[(int)slots[j]] = scale * (s[j] * (1 - s[j]) / sum) * (dw[j] - mean);
    }
    NH_T(nh_cotangent_done)(u, r->in[0], b, dz, ld, route_depends, false);
}

static void route_jvp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int k = value_of(x, r->out)->cols;
    real *s = u->lane->buf, scale = (real)r->u.route.scale;
    for (int i = b.r0; i < b.r1; i++) {
        const real *logits = row_ptr(x, r->in[0], i), *slots = chosen(x, r, i), *dz = pass_ptr(u->p, r->in[0], b.s, i);
        real *dw = pass_ptr(u->p, r->out, b.s, i), sum = scores(logits, slots, k, s), all = 0;
        for (int j = 0; j < k; j++) {
            dw[j] = s[j] * (1 - s[j]) / sum * dz[(int)slots[j]];
            all += dw[j];
        }
        for (int j = 0; j < k; j++)
            dw[j] = scale * (dw[j] - s[j] / sum * all);
    }
}

static size_t route_scratch(const struct nh_graph *g, const struct nh_rec *r)
{
    return (size_t)(g->rows + 1) * (size_t)g->values[r->in[0]].cols;
}

const struct op NH_T(nh_op_route) = {.units = row_units, .fwd = route_fwd, .vjp_units = row_units_vjp, .vjp = route_vjp,
                                     .jvp_units = row_units_vjp, .jvp = route_jvp, .scratch = route_scratch};

/* ---- products: slot j of the output = slot j of the input times W', W that of the slot's expert. The tokens of an expert are packed,
 * multiplied, and unpacked ---- */

/** How slots lie in a row: `parts` pieces of `cols` columns. */
struct lay {
    int parts, cols;
    size_t part_step, slot_step;
};

/** Shapes of a product. The input may be the same for all slots, the output has part after part (gate, up) of all slots. */
struct shape {
    const struct nh_rec *route;
    int experts, active, rows, cols; /**< rows, cols: of an expert's matrix */
    struct lay in, out;
};

static struct shape shape_of(const struct nh_graph *g, const struct nh_rec *r)
{
    const struct nh_rec *route = &g->recs[r->u.experts.route];
    const struct nh_param *w = &g->params[r->par[0]];
    int active = g->values[route->out].cols, rows = g->values[r->out].cols / active, parts = r->u.experts.parts, part = rows / parts;
    bool same = g->values[r->in[0]].cols == w->cols;
    return (struct shape){.route = route, .experts = w->rows / rows, .active = active, .rows = rows, .cols = w->cols,
                          .in = {1, w->cols, 0, same ? 0 : (size_t)w->cols},
                          .out = {parts, part, (size_t)active * (size_t)part, (size_t)part}};
}

/** The slot in which a token has an expert, -1 = none. */
static int slot_of(const struct nh_exec *x, const struct shape *s, int row, int expert)
{
    const real *slots = chosen(x, s->route, row);
    for (int j = 0; j < s->active; j++)
        if ((int)slots[j] == expert)
            return j;
    return -1;
}

/** The rows of a block that an expert has, one after the other; p: row b.r0 of the value, row stride ld. Returns how many. */
static int pack(const struct nh_exec *x, const struct shape *s, int expert, struct rows b, const struct lay *l, const real *p, size_t ld,
                real *packed)
{
    int n = 0;
    for (int i = b.r0; i < b.r1; i++, p += ld) {
        int j = slot_of(x, s, i, expert);
        if (j < 0)
            continue;
        for (int q = 0; q < l->parts; q++, packed += l->cols)
            memcpy(packed, p + (size_t)q * l->part_step + (size_t)j * l->slot_step, (size_t)l->cols * sizeof *p);
        n++;
    }
    return n;
}

static void unpack(const struct nh_exec *x, const struct shape *s, int expert, struct rows b, const struct lay *l, const real *packed,
                   real *p, size_t ld)
{
    for (int i = b.r0; i < b.r1; i++, p += ld) {
        int j = slot_of(x, s, i, expert);
        for (int q = 0; j >= 0 && q < l->parts; q++, packed += l->cols)
            memcpy(p + (size_t)q * l->part_step + (size_t)j * l->slot_step, packed, (size_t)l->cols * sizeof *p);
    }
}

static const real *matrix(const struct nh_exec *x, const struct nh_rec *r, const struct shape *s, int expert)
{
    return weight_ptr(x, r->par[0]) + (size_t)expert * (size_t)s->rows * (size_t)s->cols;
}

/** Slots of an expert in a block of rows, from `in` to `out` (both at row b.r0). */
static void product(const struct unit *u, const struct shape *s, int expert, struct rows b, const real *in, real *out)
{
    const struct nh_exec *x = u->x;
    real *from = u->lane->buf, *to = from + (size_t)x->g->rows * (size_t)s->cols;
    int n = pack(x, s, expert, b, &s->in, in, (size_t)value_of(x, u->r->in[0])->ld, from);
    gemm(x, !u->p, false, true, n, s->rows, s->cols, from, (size_t)s->cols, matrix(x, u->r, s, expert), (size_t)s->cols, false, to,
         (size_t)s->rows);
    unpack(x, s, expert, b, &s->out, to, out, (size_t)value_of(x, u->r->out)->ld);
}

static unsigned depends_fwd(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct shape s = shape_of(x->g, r);
    size_t part = col / s.out.part_step, j = col % s.out.part_step / s.out.slot_step, c = col % s.out.slot_step;
    unsigned f = 0;
    if (x->bad_value[value_of(x, r->in[0])->base])
        f |= flags_of(row_ptr(x, r->in[0], (int)row) + j * s.in.slot_step, (size_t)s.cols, 1);
    if (x->bad_param[r->par[0]])
        f |= flags_of(matrix(x, r, &s, (int)chosen(x, s.route, (int)row)[j]) + (part * s.out.slot_step + c) * (size_t)s.cols,
                      (size_t)s.cols, 1);
    return f;
}

static int expert_units(const struct nh_exec *x, const struct nh_rec *r)
{
    return shape_of(x->g, r).experts;
}

static void experts_fwd(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    struct shape s = shape_of(x->g, u->r);
    struct rows all = {0, 0, x->g->rows, 0, 0};
    product(u, &s, u->index, all, row_ptr(x, u->r->in[0], 0), row_ptr(x, u->r->out, 0));
    struct store piece = NH_T(nh_output)(u, 0, 1, depends_fwd);
    struct tally t = NH_T(nh_tally_zero)();
    piece.product = true, piece.cols = piece.ld = (size_t)s.out.cols;
    for (int i = 0; i < x->g->rows; i++) {
        int j = slot_of(x, &s, i, u->index);
        for (int q = 0; j >= 0 && q < s.out.parts; q++) {
            piece.row0 = (size_t)i, piece.col0 = (size_t)q * s.out.part_step + (size_t)j * s.out.slot_step;
            piece.p = row_ptr(x, u->r->out, i) + piece.col0;
            NH_T(nh_tally)(&piece, &t);
        }
    }
    NH_T(nh_tally_commit)(&piece, &t);
}

static unsigned depends_dx(const struct unit *u, size_t row, size_t col)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct shape s = shape_of(x->g, r);
    size_t cols = (size_t)s.cols, first = s.in.slot_step ? col / cols : 0, end = s.in.slot_step ? first + 1 : (size_t)s.active;
    unsigned f = 0;
    for (size_t j = first; j < end; j++) {
        const real *dy = pass_ptr(u->p, r->out, 0, (int)row) + j * s.out.slot_step;
        for (size_t q = 0; q < (size_t)s.out.parts && x->bad_grad[r->out]; q++)
            f |= flags_of(dy + q * s.out.part_step, (size_t)s.out.cols, 1);
        if (x->bad_param[r->par[0]])
            f |= flags_of(matrix(x, r, &s, (int)chosen(x, s.route, (int)row)[j]) + col % cols, (size_t)s.rows, cols);
    }
    return f;
}

/** Flags of the columns that were packed before the product: those of dy, then those of x. */
static unsigned depends_dw(const struct unit *u, size_t row, size_t col)
{
    size_t rows = (size_t)shape_of(u->x->g, u->r).rows;
    return u->lane->flags[row % rows] | u->lane->flags[rows + col];
}

/** Of one expert, whose sums run over its tokens in their order; without a token exactly 0. */
static void weight_gradient(const struct unit *u, const struct shape *s, int expert)
{
    struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    const struct nh_value *in = value_of(x, r->in[0]), *out = value_of(x, r->out);
    struct rows all = {0, 0, x->g->rows, 0, 0};
    size_t rows = (size_t)s->rows, cols = (size_t)s->cols;
    real *xs = u->lane->buf, *dy = xs + (size_t)x->g->rows * cols, *dw = wgrad_ptr(x, r->par[0]) + (size_t)expert * rows * cols;
    int n = pack(x, s, expert, all, &s->in, row_ptr(x, r->in[0], 0), (size_t)in->ld, xs);
    pack(x, s, expert, all, &s->out, pass_ptr(u->p, r->out, 0, 0), (size_t)out->ld, dy);
    NH_T(nh_column_flags)(dy, (size_t)n, rows, rows, x->bad_grad[r->out] > 0, u->lane->flags);
    NH_T(nh_column_flags)(xs, (size_t)n, cols, cols, x->bad_value[in->base] > 0, u->lane->flags + rows);
    if (!x->wgrad_seen[r->par[0]])
        memset(dw, 0, rows * cols * sizeof *dw);
    gemm(x, true, true, false, s->rows, s->cols, n, dy, rows, xs, cols, true, dw, cols);
    NH_T(nh_wgrad_done)(u, 0, expert * s->rows, (expert + 1) * s->rows, 0, s->cols, depends_dw);
}

static int experts_vjp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    return row_units_vjp(x, r, p) + (p->counted ? expert_units(x, r) : 0);
}

/** Where all slots read the same columns, what the experts of a token give is one sum, in their order. */
static void experts_vjp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    struct shape s = shape_of(x->g, r);
    int row_part = row_units_vjp(x, r, u->p);
    if (u->index >= row_part) {
        weight_gradient(u, &s, u->index - row_part);
        return;
    }
    struct rows b = rows_of(u);
    size_t ld, in = (size_t)value_of(x, r->in[0])->cols, n_rows = (size_t)(b.r1 - b.r0);
    real *dx = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld), *dy = u->lane->buf + n_rows * in, *sum = dy + n_rows * (size_t)s.rows;
    for (size_t i = 0; i < n_rows; i++)
        memset(dx + i * ld, 0, in * sizeof *dx);
    for (int e = 0; e < s.experts; e++) {
        int n = pack(x, &s, e, b, &s.out, pass_ptr(u->p, r->out, b.s, b.r0), (size_t)value_of(x, r->out)->ld, dy);
        pack(x, &s, e, b, &s.in, dx, ld, sum);
        gemm(x, u->p->counted, false, false, n, s.cols, s.rows, dy, (size_t)s.rows, matrix(x, r, &s, e), (size_t)s.cols, true, sum,
             (size_t)s.cols);
        unpack(x, &s, e, b, &s.in, sum, dx, ld);
    }
    NH_T(nh_cotangent_done)(u, r->in[0], b, dx, ld, depends_dx, true);
}

static void experts_jvp(const struct unit *u)
{
    struct shape s = shape_of(u->x->g, u->r);
    struct rows b = rows_of(u);
    for (int e = 0; e < s.experts; e++)
        product(u, &s, e, b, pass_ptr(u->p, u->r->in[0], b.s, b.r0), pass_ptr(u->p, u->r->out, b.s, b.r0));
}

static size_t experts_scratch(const struct nh_graph *g, const struct nh_rec *r)
{
    struct shape s = shape_of(g, r);
    return (size_t)g->rows * ((size_t)g->values[r->in[0]].cols + (size_t)s.rows + (size_t)s.cols);
}

const struct op NH_T(nh_op_experts) = {.units = expert_units, .fwd = experts_fwd, .vjp_units = experts_vjp_units, .vjp = experts_vjp,
                                       .jvp_units = row_units_vjp, .jvp = experts_jvp, .scratch = experts_scratch};

/* ---- y = sum over the slots of weight times slot, in their order ---- */

static unsigned combine_depends(const struct unit *u, size_t row, size_t col)
{
    const struct nh_rec *r = u->r;
    int k = value_of(u->x, r->in[1])->cols;
    size_t cols = (size_t)value_of(u->x, r->out)->cols;
    return flags_of(row_ptr(u->x, r->in[0], (int)row) + col, (size_t)k, cols) | flags_of(row_ptr(u->x, r->in[1], (int)row), (size_t)k, 1);
}

/** y (+)= w x over n columns. */
static void add_slot(real w, const real *x, bool add, int n, real *y)
{
#pragma omp simd
    for (int c = 0; c < n; c++)
        y[c] = (add ? y[c] : 0) + w * x[c];
}

static void combine_fwd(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int k = value_of(u->x, r->in[1])->cols, cols = value_of(u->x, r->out)->cols;
    for (int i = b.r0; i < b.r1; i++)
        for (int j = 0; j < k; j++)
            add_slot(row_ptr(u->x, r->in[1], i)[j], row_ptr(u->x, r->in[0], i) + j * cols, j > 0, cols, row_ptr(u->x, r->out, i));
    struct store s = NH_T(nh_output)(u, b.r0, b.r1, combine_depends);
    s.product = true;
    NH_T(nh_store)(&s);
}

static unsigned depends_slot(const struct unit *u, size_t row, size_t col)
{
    size_t cols = (size_t)value_of(u->x, u->r->out)->cols;
    return flags_of(pass_ptr(u->p, u->r->out, 0, (int)row) + col % cols, 1, 1) |
           flags_of(row_ptr(u->x, u->r->in[1], (int)row) + col / cols, 1, 1);
}

static unsigned depends_weight(const struct unit *u, size_t row, size_t col)
{
    size_t cols = (size_t)value_of(u->x, u->r->out)->cols;
    return flags_of(pass_ptr(u->p, u->r->out, 0, (int)row), cols, 1) |
           flags_of(row_ptr(u->x, u->r->in[0], (int)row) + col * cols, cols, 1);
}

static void combine_vjp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    struct rows b = rows_of(u);
    int k = value_of(u->x, r->in[1])->cols, cols = value_of(u->x, r->out)->cols;
    size_t ld;
    real *d = NH_T(nh_cotangent)(u, r->in[0], b, u->lane->buf, &ld);
    for (int i = b.r0; i < b.r1; i++)
        for (int j = 0; j < k; j++)
            add_slot(row_ptr(u->x, r->in[1], i)[j], pass_ptr(u->p, r->out, b.s, i), false, cols,
                     d + (size_t)(i - b.r0) * ld + (size_t)(j * cols));
    NH_T(nh_cotangent_done)(u, r->in[0], b, d, ld, depends_slot, false);
    d = NH_T(nh_cotangent)(u, r->in[1], b, u->lane->buf, &ld);
    for (int i = b.r0; i < b.r1; i++)
        for (int j = 0; j < k; j++) {
            const real *dy = pass_ptr(u->p, r->out, b.s, i), *x = row_ptr(u->x, r->in[0], i) + j * cols;
            real sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int c = 0; c < cols; c++)
                sum += dy[c] * x[c];
            d[(size_t)(i - b.r0) * ld + (size_t)j] = sum;
        }
    NH_T(nh_cotangent_done)(u, r->in[1], b, d, ld, depends_weight, true);
}

static void combine_jvp(const struct unit *u)
{
    const struct nh_rec *r = u->r;
    const struct nh_pass *p = u->p;
    struct rows b = rows_of(u);
    int k = value_of(u->x, r->in[1])->cols, cols = value_of(u->x, r->out)->cols;
    bool slots = p->seen[value_of(u->x, r->in[0])->base], weights = p->seen[value_of(u->x, r->in[1])->base];
    for (int i = b.r0; i < b.r1; i++) {
        real *dy = pass_ptr(p, r->out, b.s, i);
        for (int j = 0; j < k; j++) {
            if (slots)
                add_slot(row_ptr(u->x, r->in[1], i)[j], pass_ptr(p, r->in[0], b.s, i) + j * cols, j > 0, cols, dy);
            if (weights)
                add_slot(pass_ptr(p, r->in[1], b.s, i)[j], row_ptr(u->x, r->in[0], i) + j * cols, slots || j > 0, cols, dy);
        }
    }
}

const struct op NH_T(nh_op_combine) = {.units = row_units, .fwd = combine_fwd, .vjp_units = row_units_vjp, .vjp = combine_vjp,
                                       .jvp_units = row_units_vjp, .jvp = combine_jvp};
