// SPDX-License-Identifier: GPL-3.0-or-later
/** Causal attention softmax(alpha (scale q k^T - max)) v with grouped key/value heads, an optional window and an optional soft cap on
 *  the scores, C tanh(s / C) (Gemma 2, arXiv:2408.00118 section 2), by blocks of query rows.
 *  Scores and probabilities live in scratch, are rounded at their sites, and are made anew in the derivatives (rounded again,
 *  to the same bits, not counted again). Masked entries are not stored: only columns that a row sees are rounded and counted.
 *  The derivative of the softmax is that of the unrounded operation at the rounded scores, as in fused kernels that make the
 *  probabilities anew; with --softmax-grad stored it takes the rounded probabilities, as separate kernels do that keep them.
 *  A row whose scores are all -inf gives zeros; probabilities are normalised by the final maximum and sum. */
#include "harness/core/exec.h"

enum { QUERY_ROWS = 64 };
/** Order of the sites, forward; backward it is the other way round. */
enum { STAGE_QK, STAGE_SCORES, STAGE_CAP, STAGE_PROBS };

/** A block of query rows of one head: rows [i0, i1) of the sequence see keys [j0, i1). */
struct block {
    const struct unit *u;
    int batch, head, kv_head, i0, i1, j0, rows, cols;
    size_t ld; /**< of scores */
};

static int query_rows(const struct nh_graph *g)
{
    return g->seq < QUERY_ROWS ? g->seq : QUERY_ROWS;
}

static struct block block_at(const struct unit *u, int batch, int head, int i0)
{
    const struct nh_graph *g = u->x->g;
    const struct nh_rec *r = u->r;
    int i1 = i0 + query_rows(g) < g->seq ? i0 + query_rows(g) : g->seq;
    int j0 = i0 - r->u.sdpa.window + 1 > 0 ? i0 - r->u.sdpa.window + 1 : 0;
    return (struct block){.u = u, .batch = batch, .head = head, .kv_head = head / (r->u.sdpa.heads / r->u.sdpa.kv_heads),
                          .i0 = i0, .i1 = i1, .j0 = j0, .rows = i1 - i0, .cols = i1 - j0, .ld = (size_t)g->seq};
}

/** First and one past the last column (from j0) that row i of the block sees. */
static int seen_from(const struct block *b, int i)
{
    int j = b->i0 + i - b->u->r->u.sdpa.window + 1;
    return (j > 0 ? j : 0) - b->j0;
}

static int seen_to(const struct block *b, int i)
{
    return b->i0 + i + 1 - b->j0;
}

/** Row t of this sequence and head in a value: slot 0 = q, 1 = k, 2 = v, -1 = output. */
static size_t column(const struct block *b, int slot)
{
    return (size_t)((slot == 1 || slot == 2 ? b->kv_head : b->head) * b->u->r->u.sdpa.head_dim);
}

static nh_val slot_value(const struct block *b, int slot)
{
    return slot < 0 ? b->u->r->out : b->u->r->in[slot];
}

static real *head_row(const struct block *b, int slot, int t)
{
    return row_ptr(b->u->x, slot_value(b, slot), b->batch * b->u->x->g->seq + t) + column(b, slot);
}

static real *head_pass(const struct block *b, int slot, int s, int t)
{
    return pass_ptr(b->u->p, slot_value(b, slot), s, b->batch * b->u->x->g->seq + t) + column(b, slot);
}

static size_t stride(const struct block *b, int slot)
{
    return (size_t)value_of(b->u->x, slot_value(b, slot))->ld;
}

/* ---- what a value depends on (asked about non-finite ones only); row and col are places in the tensor of the site ---- */

/** Scores: row = (batch * heads + head) * T + t, col = key. */
static void score_place(const struct unit *u, size_t row, struct block *b, int *t)
{
    const struct nh_graph *g = u->x->g;
    size_t seq = (size_t)g->seq, head = row / seq;
    *t = (int)(row % seq);
    *b = block_at(u, (int)(head / (size_t)u->r->u.sdpa.heads), (int)(head % (size_t)u->r->u.sdpa.heads), *t);
}

static unsigned depends_product(const struct unit *u, size_t row, size_t col)
{
    struct block b;
    int t;
    score_place(u, row, &b, &t);
    size_t n = (size_t)u->r->u.sdpa.head_dim;
    return flags_of(head_row(&b, 0, t), n, 1) | flags_of(head_row(&b, 1, (int)col), n, 1);
}

/** A scaled score and a probability depend on numbers in scratch: their flags are noted row by row before the store. */
static unsigned depends_noted(const struct unit *u, size_t row, size_t col)
{
    (void)row, (void)col;
    return u->lane->flags[0];
}

static unsigned depends_heads(const struct unit *u, size_t row, size_t col)
{
    const struct nh_graph *g = u->x->g;
    int seq = g->seq, t = (int)row % seq, dh = u->r->u.sdpa.head_dim;
    struct block b = block_at(u, (int)row / seq, (int)col / dh, t);
    unsigned f = u->lane->flags[1 + t % query_rows(g)]; /* of the probabilities of this row */
    for (int j = b.j0; j <= t; j++)
        f |= flags_of(head_row(&b, 2, j) + (int)col % dh, 1, 1);
    return f;
}

/** In the backward pass: anything not finite in this sequence and head, noted when the unit began. */
static unsigned head_flags(const struct block *b, int s)
{
    const struct nh_exec *x = b->u->x;
    unsigned f = 0;
    size_t n = (size_t)b->u->r->u.sdpa.head_dim;
    for (int slot = 0; slot < 3; slot++)
        if (x->bad_value[value_of(x, slot_value(b, slot))->base])
            for (int t = 0; t < x->g->seq; t++)
                f |= flags_of(head_row(b, slot, t), n, 1);
    if (x->bad_grad[b->u->r->out])
        for (int t = 0; t < x->g->seq; t++)
            f |= flags_of(head_pass(b, -1, s, t), n, 1);
    return f;
}

/* ---- scores and probabilities ---- */

/** The store of score rows of a block: one row at a time, its visible part. */
struct row_store {
    struct store s;
    struct tally t;
};

static struct row_store row_store(const struct block *b, int site, int stage, enum nh_direction direction, depends_fn *depends,
                                  bool product, bool counted)
{
    const struct nh_graph *g = b->u->x->g;
    enum nh_role role = g->sites[site].role;
    return (struct row_store){{.u = b->u, .site = site, .direction = direction, .stage = stage,
                               .fmt = direction == NH_FWD ? &g->fmt[role] : nh_grad_fmt(g, role), .rows = 1, .width = b->ld,
                               .depends = depends, .product = product, .counted = counted},
                              NH_T(nh_tally_zero)()};
}

static void store_row(struct row_store *rs, const struct block *b, int i, real *row)
{
    int from = seen_from(b, i), to = seen_to(b, i);
    rs->s.p = row + from;
    rs->s.cols = rs->s.ld = (size_t)(to - from);
    rs->s.row0 = rs->s.statistics_row = ((size_t)b->batch * (size_t)b->u->r->u.sdpa.heads + (size_t)b->head) * b->ld + (size_t)(b->i0 + i);
    rs->s.col0 = (size_t)(b->j0 + from);
    NH_T(nh_tally)(&rs->s, &rs->t);
}

/** The probabilities of n scores below their maximum top, with every step rounded to f: difference, factor, exponential, running
 *  sum, quotient. Notes at the store of the row a sum that ran over. */
static void narrow_softmax(const struct nh_fmt *f, double alpha, real *row, int n, real top, struct row_store *rs)
{
    double sum = 0;
    bool finite = true;
    for (int j = 0; j < n; j++) {
        double e = nh_round(f, exp(nh_round(f, alpha * nh_round(f, (double)row[j] - (double)top))));
        finite = finite && isfinite(e);
        sum = nh_round(f, sum + e);
        row[j] = (real)e;
    }
    rs->s.statistics = finite && !isfinite(sum);
    rs->s.zero_made = finite && isinf(sum);
    for (int j = 0; j < n; j++)
        row[j] = (real)nh_round(f, (double)row[j] / sum);
}

/** Scores that have a probability above zero: all but -inf, if the maximum is a number. */
static unsigned finite_scores(const real *row, int n)
{
    unsigned count = 0;
    for (int j = 0; j < n; j++)
        count += row[j] > (real)-INFINITY;
    return count;
}

static unsigned zeros(const real *row, int n)
{
    unsigned count = 0;
    for (int j = 0; j < n; j++)
        count += row[j] == 0;
    return count;
}

/** Probabilities of a row from its scores, in place; zeros outside [from, to). rs: the store that the row goes to. */
static void softmax(const struct block *b, real *row, int from, int to, struct row_store *rs)
{
    const struct nh_graph *g = b->u->x->g;
    real top = (real)-INFINITY, sum = 0, alpha = (real)b->u->r->u.sdpa.alpha;
#pragma omp simd reduction(max : top)
    for (int j = from; j < to; j++)
        top = row[j] > top ? row[j] : top;
    for (int j = 0; j < from; j++)
        row[j] = 0;
    for (int j = to; j < b->cols; j++)
        row[j] = 0;
    rs->s.statistics = rs->s.zero_made = 0;
    if (isinf(top) && top < 0 && flags_of(row + from, (size_t)(to - from), 1) == HAS_INF) {
        for (int j = from; j < to; j++)
            row[j] = 0;
        return;
    }
    unsigned none = (unsigned)(to - from) - finite_scores(row + from, to - from); /* whose probability is zero */
    if (g->softmax_narrow) {
        narrow_softmax(&g->fmt[NH_ROLE_SOFTMAX], b->u->r->u.sdpa.alpha, row + from, to - from, top, rs);
    } else {
        for (int j = from; j < to; j++)
            row[j] = r_exp(alpha * (row[j] - top));
#pragma omp simd reduction(+ : sum)
        for (int j = from; j < to; j++)
            sum += row[j];
        real inverse = 1 / sum;
        for (int j = from; j < to; j++)
            row[j] *= inverse;
    }
    /* what is zero before the store was lost inside: the store cannot see it */
    unsigned lost = zeros(row + from, to - from);
    if (!rs->s.zero_made && isfinite(top) && lost > none)
        rs->t.counts.underflow += lost - none;
}

/** C tanh(s / C) of a row's scores in place; slope, where it is not NULL, becomes the derivative. */
static void cap_scores(real cap, real *row, int from, int to, real *slope)
{
    for (int j = from; j < to; j++) {
        real t = r_tanh(row[j] / cap);
        row[j] = cap * t;
        if (slope)
            slope[j] = (1 - t) * (1 + t);
    }
}

/** What the derivatives need of the block, by row; NULL in the forward pass. */
struct kept {
    real *exact; /**< probabilities before they are rounded */
    real *slope; /**< of the soft cap, where there is one */
};

/** Fills p (rows x seq) with the rounded probabilities of the block. */
static void probabilities(const struct block *b, real *p, const struct kept *kept, bool counted)
{
    const struct unit *u = b->u;
    const struct nh_rec *r = u->r;
    bool scaled = r->u.sdpa.site_qk >= 0, capped = r->u.sdpa.cap > 0;
    real scale = (real)r->u.sdpa.scale;
    gemm(u->x, true, false, true, b->rows, b->cols, r->u.sdpa.head_dim, head_row(b, 0, b->i0), stride(b, 0), head_row(b, 1, b->j0),
         stride(b, 1), false, p, b->ld);
    struct row_store qk = row_store(b, scaled ? r->u.sdpa.site_qk : r->u.sdpa.site_scores, STAGE_QK, NH_FWD, depends_product, true,
                                    counted);
    struct row_store scores = row_store(b, r->u.sdpa.site_scores, STAGE_SCORES, NH_FWD, depends_noted, false, counted);
    struct row_store cap = row_store(b, capped ? r->u.sdpa.site_cap : r->u.sdpa.site_scores, STAGE_CAP, NH_FWD, depends_noted, false,
                                     counted);
    struct row_store probs = row_store(b, r->u.sdpa.site_probs, STAGE_PROBS, NH_FWD, depends_noted, false, counted);
    for (int i = 0; i < b->rows; i++) {
        real *row = p + (size_t)i * b->ld;
        int from = seen_from(b, i), to = seen_to(b, i);
        bool bad = qk.t.nonfinite + scores.t.nonfinite + cap.t.nonfinite + probs.t.nonfinite > 0;
        uint64_t before = qk.t.nonfinite;
        store_row(&qk, b, i, row);
        bad = bad || qk.t.nonfinite > before;
        if (scaled) {
            u->lane->flags[0] = bad ? (unsigned char)flags_of(row + from, (size_t)(to - from), 1) : 0;
            for (int j = from; j < to; j++)
                row[j] *= scale;
            store_row(&scores, b, i, row);
            bad = bad || scores.t.nonfinite > 0;
        }
        if (capped) {
            u->lane->flags[0] = bad ? (unsigned char)flags_of(row + from, (size_t)(to - from), 1) : 0;
            cap_scores((real)r->u.sdpa.cap, row, from, to, kept ? kept->slope + (size_t)i * b->ld : NULL);
            store_row(&cap, b, i, row);
            bad = bad || cap.t.nonfinite > 0;
        }
        u->lane->flags[0] = bad ? (unsigned char)flags_of(row + from, (size_t)(to - from), 1) : 0;
        softmax(b, row, from, to, &probs);
        if (kept)
            memcpy(kept->exact + (size_t)i * b->ld, row, (size_t)b->cols * sizeof *row);
        store_row(&probs, b, i, row);
        u->lane->flags[1 + i] = bad ? (unsigned char)flags_of(row + from, (size_t)(to - from), 1) : 0;
    }
    NH_T(nh_tally_commit)(&qk.s, &qk.t);
    if (scaled)
        NH_T(nh_tally_commit)(&scores.s, &scores.t);
    if (capped)
        NH_T(nh_tally_commit)(&cap.s, &cap.t);
    NH_T(nh_tally_commit)(&probs.s, &probs.t);
}

static int units(const struct nh_exec *x, const struct nh_rec *r)
{
    return x->g->batch * r->u.sdpa.heads;
}

static void fwd(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    int heads = r->u.sdpa.heads, dh = r->u.sdpa.head_dim, step = query_rows(x->g);
    real *p = u->lane->buf;
    bool bad_v = x->bad_value[value_of(x, r->in[2])->base] > 0;
    for (int i0 = 0; i0 < x->g->seq; i0 += step) {
        struct block b = block_at(u, u->index / heads, u->index % heads, i0);
        probabilities(&b, p, NULL, true);
        /* masked probabilities are zeros, harmless unless a later value is not finite: then row by row, visible part only */
        for (int i = 0; i < b.rows; i += bad_v ? 1 : b.rows) {
            int n = bad_v ? 1 : b.rows, from = bad_v ? seen_from(&b, i) : 0, to = bad_v ? seen_to(&b, i) : b.cols;
            gemm(x, true, false, false, n, dh, to - from, p + (size_t)i * b.ld + from, b.ld, head_row(&b, 2, b.j0 + from),
                 stride(&b, 2), false, head_row(&b, -1, b.i0 + i), stride(&b, -1));
        }
        int row0 = b.batch * x->g->seq + b.i0;
        struct store s = NH_T(nh_output)(u, row0, row0 + b.rows, depends_heads);
        s.p = head_row(&b, -1, b.i0), s.cols = (size_t)dh, s.col0 = column(&b, -1), s.product = true;
        NH_T(nh_store)(&s);
    }
}

static int vjp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    (void)p;
    return x->g->batch * r->u.sdpa.kv_heads;
}

/** Adds the flags of a stored row to those that later stores depend on; only where something was not finite. */
static void note_row(const struct unit *u, const struct row_store *stored, const real *row, int n)
{
    if (stored->t.nonfinite)
        u->lane->flags[0] |= (unsigned char)flags_of(row, (size_t)n, 1);
}

/** Cotangent of scores from that of probabilities, in place of dp: alpha p (dp - sum p dp), row by row, times the slope of the soft
 *  cap. The flags of the head, in lane->flags[0], take up what is not finite in them. */
static void softmax_vjp(const struct block *b, const real *p, const real *slope, real *dp)
{
    const struct unit *u = b->u;
    const struct nh_rec *r = u->r;
    bool scaled = r->u.sdpa.site_qk >= 0, capped = r->u.sdpa.cap > 0, counted = u->p->counted;
    unsigned char broken = u->lane->flags[0];
    real scale = (real)r->u.sdpa.scale, alpha = (real)r->u.sdpa.alpha;
    struct row_store dprobs = row_store(b, r->u.sdpa.site_probs, STAGE_PROBS - STAGE_PROBS, NH_BWD, depends_noted, true, true);
    struct row_store dcap = row_store(b, capped ? r->u.sdpa.site_cap : r->u.sdpa.site_scores, STAGE_PROBS - STAGE_CAP, NH_BWD,
                                      depends_noted, false, true);
    struct row_store dscores = row_store(b, r->u.sdpa.site_scores, STAGE_PROBS - STAGE_SCORES, NH_BWD, depends_noted, false, true);
    struct row_store dqk = row_store(b, scaled ? r->u.sdpa.site_qk : r->u.sdpa.site_scores, STAGE_PROBS - STAGE_QK, NH_BWD,
                                     depends_noted, false, true);
    for (int i = 0; i < b->rows; i++) {
        real *d = dp + (size_t)i * b->ld, along = 0;
        const real *q = p + (size_t)i * b->ld;
        int from = seen_from(b, i), to = seen_to(b, i);
        unsigned char inputs = u->lane->flags[0];
        if (counted)
            store_row(&dprobs, b, i, d);
        note_row(u, &dprobs, d + from, to - from);
#pragma omp simd reduction(+ : along)
        for (int j = from; j < to; j++)
            along += q[j] * d[j];
        for (int j = from; j < to; j++)
            d[j] = alpha * (q[j] * (d[j] - along));
        if (counted && capped)
            store_row(&dcap, b, i, d);
        note_row(u, &dcap, d + from, to - from);
        for (int j = from; j < to && capped; j++)
            d[j] *= slope[(size_t)i * b->ld + (size_t)j];
        if (counted)
            store_row(&dscores, b, i, d);
        note_row(u, &dscores, d + from, to - from);
        for (int j = from; j < to && scaled; j++)
            d[j] *= scale;
        if (counted && scaled)
            store_row(&dqk, b, i, d);
        for (int j = 0; j < from; j++)
            d[j] = 0;
        for (int j = to; j < b->cols; j++)
            d[j] = 0;
        broken |= u->lane->flags[0];
        u->lane->flags[0] = inputs; /* the next row has not seen this one */
    }
    u->lane->flags[0] = broken;
    if (!counted)
        return;
    NH_T(nh_tally_commit)(&dprobs.s, &dprobs.t);
    NH_T(nh_tally_commit)(&dscores.s, &dscores.t);
    if (capped)
        NH_T(nh_tally_commit)(&dcap.s, &dcap.t);
    if (scaled)
        NH_T(nh_tally_commit)(&dqk.s, &dqk.t);
}

static void vjp_sample(const struct unit *u, int batch, int kv, int s)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    bool counted = u->p->counted;
    int seq = x->g->seq, dh = r->u.sdpa.head_dim, group = r->u.sdpa.heads / r->u.sdpa.kv_heads, step = query_rows(x->g);
    size_t ld_k, ld_v, n = (size_t)seq * (size_t)dh;
    size_t square = (size_t)step * (size_t)seq;
    real *p = u->lane->buf, *dp = p + square, *put = p + 4 * square;
    const struct kept kept = {p + 2 * square, p + 3 * square};
    struct rows all = {.s = s, .r0 = batch * seq, .r1 = (batch + 1) * seq, .c0 = kv * dh, .c1 = (kv + 1) * dh};
    real *dk = NH_T(nh_cotangent)(u, r->in[1], all, put + n, &ld_k), *dv = NH_T(nh_cotangent)(u, r->in[2], all, put + 2 * n, &ld_v);
    for (int t = 0; t < seq; t++) {
        memset(dk + (size_t)t * ld_k, 0, (size_t)dh * sizeof *dk);
        memset(dv + (size_t)t * ld_v, 0, (size_t)dh * sizeof *dv);
    }
    unsigned char all_flags = 0; /* of the heads that share these keys and values */
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        struct block whole = block_at(u, batch, h, 0);
        unsigned char flags = counted ? (unsigned char)head_flags(&whole, s) : 0;
        for (int i0 = 0; i0 < seq; i0 += step) {
            struct block b = block_at(u, batch, h, i0);
            const real *d_out = head_pass(&b, -1, s, i0);
            probabilities(&b, p, &kept, false);
            u->lane->flags[0] = flags;
            gemm(x, counted, false, true, b.rows, b.cols, dh, d_out, stride(&b, -1), head_row(&b, 2, b.j0), stride(&b, 2), false, dp,
                 b.ld);
            gemm(x, counted, true, false, b.cols, dh, b.rows, p, b.ld, d_out, stride(&b, -1), true, dv + (size_t)b.j0 * ld_v, ld_v);
            softmax_vjp(&b, r->u.sdpa.grad_stored ? p : kept.exact, kept.slope, dp);
            all_flags |= u->lane->flags[0];
            gemm(x, counted, true, false, b.cols, dh, b.rows, dp, b.ld, head_row(&b, 0, i0), stride(&b, 0), true,
                 dk + (size_t)b.j0 * ld_k, ld_k);
            struct rows part = {.s = s, .r0 = batch * seq + b.i0, .r1 = batch * seq + b.i1, .c0 = h * dh, .c1 = (h + 1) * dh};
            size_t ld_q;
            real *dq = NH_T(nh_cotangent)(u, r->in[0], part, put, &ld_q);
            gemm(x, counted, false, false, b.rows, dh, b.cols, dp, b.ld, head_row(&b, 1, b.j0), stride(&b, 1), false, dq, ld_q);
            NH_T(nh_cotangent_done)(u, r->in[0], part, dq, ld_q, depends_noted, true);
        }
    }
    u->lane->flags[0] = all_flags;
    NH_T(nh_cotangent_done)(u, r->in[1], all, dk, ld_k, depends_noted, true);
    NH_T(nh_cotangent_done)(u, r->in[2], all, dv, ld_v, depends_noted, true);
}

static void vjp(const struct unit *u)
{
    int kv_heads = u->r->u.sdpa.kv_heads;
    for (int s = 0; s < u->p->n; s++)
        vjp_sample(u, u->index / kv_heads, u->index % kv_heads, s);
}

static int jvp_units(const struct nh_exec *x, const struct nh_rec *r, const struct nh_pass *p)
{
    (void)p;
    return units(x, r);
}

/** True where an input has a tangent. */
static bool moves(const struct block *b, int slot)
{
    return b->u->p->seen[value_of(b->u->x, slot_value(b, slot))->base];
}

static void jvp(const struct unit *u)
{
    const struct nh_exec *x = u->x;
    const struct nh_rec *r = u->r;
    int heads = r->u.sdpa.heads, dh = r->u.sdpa.head_dim, step = query_rows(x->g);
    size_t square = (size_t)step * (size_t)x->g->seq;
    real scale = (real)(r->u.sdpa.alpha * r->u.sdpa.scale), *p = u->lane->buf, *ds = p + square;
    const struct kept kept = {p + 2 * square, p + 3 * square};
    bool capped = r->u.sdpa.cap > 0;
    for (int i0 = 0; i0 < x->g->seq; i0 += step) {
        struct block b = block_at(u, u->index / heads, u->index % heads, i0);
        probabilities(&b, p, &kept, false);
        for (int s = 0; s < u->p->n; s++) {
            memset(ds, 0, (size_t)b.rows * b.ld * sizeof *ds);
            if (moves(&b, 0))
                gemm(x, false, false, true, b.rows, b.cols, dh, head_pass(&b, 0, s, i0), stride(&b, 0), head_row(&b, 1, b.j0),
                     stride(&b, 1), true, ds, b.ld);
            if (moves(&b, 1))
                gemm(x, false, false, true, b.rows, b.cols, dh, head_row(&b, 0, i0), stride(&b, 0), head_pass(&b, 1, s, b.j0),
                     stride(&b, 1), true, ds, b.ld);
            for (int i = 0; i < b.rows; i++) {
                real *d = ds + (size_t)i * b.ld, along = 0;
                const real *q = (r->u.sdpa.grad_stored ? p : kept.exact) + (size_t)i * b.ld, *slope = kept.slope + (size_t)i * b.ld;
                for (int j = seen_from(&b, i); j < seen_to(&b, i) && capped; j++)
                    d[j] *= slope[j];
#pragma omp simd reduction(+ : along)
                for (int j = 0; j < b.cols; j++) { /* masked columns: q is 0 */
                    d[j] *= q[j] * scale;
                    along += d[j];
                }
#pragma omp simd
                for (int j = 0; j < b.cols; j++)
                    d[j] -= q[j] * along;
            }
            gemm(x, false, false, false, b.rows, dh, b.cols, ds, b.ld, head_row(&b, 2, b.j0), stride(&b, 2), false,
                 head_pass(&b, -1, s, i0), stride(&b, -1));
            if (moves(&b, 2))
                gemm(x, false, false, false, b.rows, dh, b.cols, p, b.ld, head_pass(&b, 2, s, b.j0), stride(&b, 2), true,
                     head_pass(&b, -1, s, i0), stride(&b, -1));
        }
    }
}

static size_t scratch(const struct nh_graph *g, const struct nh_rec *r)
{
    return (size_t)g->seq * (4 * (size_t)query_rows(g) + 3 * (size_t)r->u.sdpa.head_dim);
}

const struct op NH_T(nh_op_sdpa) = {.units = units, .fwd = fwd, .vjp_units = vjp_units, .vjp = vjp, .jvp_units = jvp_units,
                                    .jvp = jvp, .scratch = scratch};
