// SPDX-License-Identifier: GPL-3.0-or-later
/** Memory of an executor and the three ways over the tape: forward, backward, tangents. */
#include "harness/core/err.h"
#include "harness/core/exec.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

void *NH_T(nh_take)(size_t n, size_t size)
{
    size_t bytes = (n * size + 4095) / 4096 * 4096;
    void *p = aligned_alloc(4096, bytes ? bytes : 4096);
    if (p)
        madvise(p, bytes, MADV_HUGEPAGE); /* advice only: fewer page faults in large arenas */
    return p;
}

static size_t base_size(const struct nh_graph *g, int v)
{
    return g->values[v].base == v ? (size_t)g->rows * (size_t)g->values[v].cols : 0;
}

static size_t place_values(const struct nh_graph *g, size_t *at)
{
    size_t n = 0;
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].base == v) {
            if (at)
                at[v] = n;
            n += (base_size(g, v) + 15) / 16 * 16;
        }
    return n;
}

/** Places the cotangents (or tangents) of operations [first, end): each lives from its first to its last use. Watched values keep
 *  theirs when keep is set. ends: values that live all along, -1 = none. */
static size_t place_pass(const struct nh_graph *g, int first, int end, const nh_val *ends, int n_ends, bool keep, size_t *at)
{
    int n = g->n_values;
    int *from = malloc(2 * ((size_t)n + 1) * sizeof *from), *to = from + n;
    size_t *size = malloc(((size_t)n + 1) * sizeof *size);
    if (!from || !size)
        nh_no_memory();
    for (int v = 0; v < n; v++)
        from[v] = to[v] = -1, size[v] = base_size(g, v), at[v] = SIZE_MAX;
    for (int r = first; r < end; r++) {
        const struct nh_rec *rec = &g->recs[r];
        int time = end - 1 - r; /* the order of the backward pass; that of tangents is its mirror image */
        for (int i = -1; i < 3; i++) {
            int v = i < 0 ? rec->out : rec->in[i];
            if (v < 0)
                continue;
            v = g->values[v].base;
            from[v] = from[v] < 0 || time < from[v] ? time : from[v];
            to[v] = time > to[v] ? time : to[v];
        }
    }
    for (int i = 0; i < n_ends; i++)
        if (ends[i] >= 0)
            from[g->values[ends[i]].base] = 0, to[g->values[ends[i]].base] = end - first;
    size_t kept = 0;
    for (int v = 0; v < n; v++)
        if (keep && g->values[v].watched && from[v] >= 0)
            at[v] = kept, kept += (size[v] + 15) / 16 * 16, from[v] = -1;
    size_t *offset = malloc(((size_t)n + 1) * sizeof *offset);
    if (!offset)
        nh_no_memory();
    size_t peak = nh_plan(n, from, to, size, offset);
    for (int v = 0; v < n; v++)
        if (from[v] >= 0)
            at[v] = kept + offset[v];
    free(from), free(size), free(offset);
    return kept + peak;
}

static void lane_need(const struct nh_graph *g, size_t *numbers, size_t *flags)
{
    size_t cols = 0, most = 0;
    for (int v = 0; v < g->n_values; v++)
        if ((size_t)g->values[v].cols > cols)
            cols = (size_t)g->values[v].cols;
    for (int r = 0; r < g->n_recs; r++) {
        const struct op *op = OPS[g->recs[r].op];
        size_t n = op->scratch ? op->scratch(g, &g->recs[r]) : 0;
        most = n > most ? n : most;
    }
    size_t block = (size_t)g->rows * cols; /* a second contribution to a cotangent */
    *numbers = most > block ? most : block;
    *flags = 2 * (cols > (size_t)g->rows ? cols : (size_t)g->rows);
}

static struct lane *make_lanes(const struct nh_exec *x, int n)
{
    struct lane *lanes = nh_have(calloc((size_t)n, sizeof *lanes));
    for (int i = 0; i < n; i++) {
        lanes[i].buf = NH_T(nh_take)(x->lane_size, sizeof(real));
        lanes[i].flags = malloc(x->lane_flags);
        if (!lanes[i].buf || !lanes[i].flags)
            nh_no_memory();
    }
    return lanes;
}

static void free_lanes(struct lane *lanes, int n)
{
    for (int i = 0; lanes && i < n; i++)
        free(lanes[i].buf), free(lanes[i].flags);
    free(lanes);
}

/** Numbers of a second copy of the embedding table, in the format of weights. */
static size_t tied_size(const struct nh_graph *g)
{
    return g->tied >= 0 && !g->streamed ? (size_t)g->params[g->tied].rows * (size_t)g->params[g->tied].cols : 0;
}

static size_t memory(const struct nh_graph *g, int threads, bool gradients)
{
    size_t lane, flags;
    lane_need(g, &lane, &flags);
    if (g->streamed)
        return (NH_T(nh_stream_place)(g, NULL) + NH_T(nh_stream_weights)(g) + g->n_aux + (size_t)threads * lane) * sizeof(real);
    size_t numbers = place_values(g, NULL) + g->n_weights + tied_size(g) + g->n_aux;
    if (gradients) {
        size_t *at = malloc(((size_t)g->n_values + 1) * sizeof *at);
        if (!at)
            nh_no_memory();
        numbers += g->n_weights + NH_T(nh_weights_memory)(g) + place_pass(g, 0, g->n_recs, NULL, 0, true, at);
        free(at);
    }
    return (numbers + (size_t)threads * lane) * sizeof(real);
}

static size_t pass_memory(const struct nh_graph *g, int first, int end, int n)
{
    size_t lane, flags, *at = malloc(((size_t)g->n_values + 1) * sizeof *at);
    if (!at)
        nh_no_memory();
    lane_need(g, &lane, &flags);
    size_t numbers = place_pass(g, first, end, NULL, 0, false, at);
    free(at);
    return (numbers * (size_t)n + lane) * sizeof(real);
}

static void destroy(struct nh_exec *x)
{
    if (!x)
        return;
    NH_T(nh_weights_destroy)(x);
    free_lanes(x->lanes, x->threads);
    free(x->values), free(x->weights), free(x->tied), free(x->wgrads), free(x->aux), free(x->grads);
    free(x->value_at), free(x->grad_at), free(x->grad_seen), free(x->wgrad_seen);
    free(x->param_at), free(x->token_row);
    free(x->bad_value), free(x->bad_grad), free(x->bad_param), free(x->param_counts), free(x->param_first),
        free(x->counts), free(x->tokens), free(x->cos), free(x->sin);
    free(x);
}

/** cos and sin of every angle, in double, cast last: a position in half precision would be another position. */
static void rotation_tables(struct nh_exec *x)
{
    const struct nh_graph *g = x->g;
    int half = g->rope_dim / 2;
    for (int row = 0; row < 2 * g->seq; row++)
        for (int j = 0; j < half; j++) {
            double angle = row % g->seq * nh_rope_frequency(g, row / g->seq, j);
            size_t i = (size_t)row * (size_t)half + (size_t)j;
            x->cos[i] = (real)nh_round(&g->fmt[NH_ROLE_ACTIVATION], cos(angle));
            x->sin[i] = (real)nh_round(&g->fmt[NH_ROLE_ACTIVATION], sin(angle));
        }
}

static int create(struct nh_exec **out, const struct nh_graph *g, int threads, bool gradients)
{
    assert(!g->streamed || !gradients);
    openblas_set_num_threads(1); /* threads are ours: results must not depend on how a library splits its sums */
    struct nh_exec *x = calloc(1, sizeof *x);
    if (!x)
        return nh_fail(NH_FAILED, "out of memory for the model; try a smaller --depth, --width, --batch or --seq");
    x->g = g, x->threads = threads;
    size_t n = (size_t)g->n_values + 1, np = (size_t)g->n_params + 1, tables = 2 * (size_t)g->seq * (size_t)(g->rope_dim / 2);
    x->value_at = calloc(n, sizeof *x->value_at), x->grad_at = calloc(n, sizeof *x->grad_at);
    x->grad_seen = calloc(n, sizeof *x->grad_seen), x->wgrad_seen = calloc(np, sizeof *x->wgrad_seen);
    x->bad_value = calloc(n, sizeof *x->bad_value), x->bad_grad = calloc(n, sizeof *x->bad_grad);
    x->bad_param = calloc(np, sizeof *x->bad_param);
    x->param_counts = calloc(np, sizeof *x->param_counts), x->param_first = calloc(np, sizeof *x->param_first);
    x->counts = calloc((size_t)g->n_sites * NH_DIRECTIONS, sizeof *x->counts);
    x->tokens = calloc((size_t)g->rows, sizeof *x->tokens), x->token_row = calloc((size_t)g->rows, sizeof *x->token_row);
    x->param_at = calloc(np, sizeof *x->param_at);
    x->cos = calloc(tables + 1, sizeof *x->cos), x->sin = calloc(tables + 1, sizeof *x->sin);
    bool ok = x->value_at && x->grad_at && x->grad_seen && x->wgrad_seen && x->bad_value && x->bad_grad &&
              x->bad_param && x->param_counts && x->param_first && x->counts && x->tokens && x->token_row &&
              x->param_at && x->cos && x->sin;
    if (ok) {
        for (int p = 0; p < g->n_params && !g->streamed; p++)
            x->param_at[p] = g->params[p].offset;
        x->values = NH_T(nh_take)(g->streamed ? NH_T(nh_stream_place)(g, x->value_at) : place_values(g, x->value_at), sizeof(real));
        x->weights = NH_T(nh_take)(g->streamed ? NH_T(nh_stream_weights)(g) : g->n_weights, sizeof(real));
        x->aux = NH_T(nh_take)(g->n_aux, sizeof(real));
        x->tied = tied_size(g) ? NH_T(nh_take)(tied_size(g), sizeof(real)) : NULL;
        ok = x->values && x->weights && x->aux && (x->tied || !tied_size(g));
    }
    if (ok && gradients) {
        x->wgrads = NH_T(nh_take)(g->n_weights, sizeof(real));
        x->grads = NH_T(nh_take)(place_pass(g, 0, g->n_recs, NULL, 0, true, x->grad_at), sizeof(real));
        ok = x->wgrads && x->grads && NH_T(nh_weights_create)(x);
    }
    if (!ok) {
        destroy(x);
        return nh_fail(NH_FAILED, "out of memory for the model (%.1f GiB); try a smaller --depth, --width, --batch or --seq",
                       (double)memory(g, threads, gradients) / 0x1p30);
    }
    lane_need(g, &x->lane_size, &x->lane_flags);
    x->lanes = make_lanes(x, threads);
    rotation_tables(x);
    *out = x;
    return NH_OK;
}

/** The counters of the weights, as part of a forward pass. */
static void count_params(struct nh_exec *x)
{
    for (int p = 0; p < x->g->n_params; p++) {
        int site = x->g->params[p].weight_site;
        if (site < 0)
            continue;
        nh_counts_add(&x->counts[site * NH_DIRECTIONS + NH_FWD], &x->param_counts[p]);
        if (nh_earlier(&x->param_first[p], &x->first[NH_FWD]))
            x->first[NH_FWD] = x->param_first[p];
    }
}

static void set_tokens(struct nh_exec *x, const int *tokens)
{
    memcpy(x->tokens, tokens, (size_t)x->g->rows * sizeof *tokens);
    memcpy(x->token_row, tokens, (size_t)x->g->rows * sizeof *tokens);
}

void NH_T(nh_reset_direction)(struct nh_exec *x, enum nh_direction d)
{
    for (int s = 0; s < x->g->n_sites; s++)
        x->counts[s * NH_DIRECTIONS + (int)d] = (struct nh_counts){.min_abs = (double)INFINITY};
    x->first[d] = (struct nh_first){0};
}

/** Targets of a batch: every token but the last of its sequence. */
static int n_targets(const struct nh_graph *g)
{
    return g->batch * (g->seq - 1);
}

static void run_forward(struct nh_exec *x, int rec)
{
    const struct nh_rec *r = &x->g->recs[rec];
    NH_T(nh_units)((struct unit){.x = x, .r = r}, OPS[r->op]->units(x, r), x->threads, x->lanes, OPS[r->op]->fwd);
}

/** Values that are not finite in one that was written from outside: no store has counted them. */
static int64_t bad_input(const struct nh_exec *x, nh_val v)
{
    size_t n = base_size(x->g, v);
    const real *p = value_ptr(x, v);
    int64_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += !isfinite(p[i]);
    return bad;
}

static double mean_loss(const struct nh_exec *x)
{
    const struct nh_graph *g = x->g;
    if (g->nll < 0)
        return 0;
    double sum = 0;
    const real *nll = value_ptr(x, g->nll);
    for (int i = 0; i < g->rows; i++)
        sum += (double)nll[i];
    return n_targets(g) ? sum / n_targets(g) : 0;
}

static double forward(struct nh_exec *x)
{
    const struct nh_graph *g = x->g;
    NH_T(nh_reset_direction)(x, NH_FWD);
    count_params(x);
    x->bad_tied = 0;
    if (x->tied) {
        memcpy(x->tied, weight_ptr(x, g->tied), tied_size(g) * sizeof *x->tied);
        NH_T(nh_cast_tied)(x, 0, tied_size(g), x->tied);
    }
    for (int v = 0; v < g->n_values; v++)
        x->bad_value[v] = g->values[v].rec < 0 ? bad_input(x, v) : 0;
    for (int r = 0; r < g->n_recs; r++)
        run_forward(x, r);
    return mean_loss(x);
}

/** The same with weights that come from a source when they are needed and are gone afterwards: of one operation at a time. */
static double forward_streamed(struct nh_exec *x, const struct nh_weight_source *source, void (*look)(void *arg, int step), void *arg)
{
    const struct nh_graph *g = x->g;
    int step = 0;
    assert(g->streamed);
    NH_T(nh_reset_direction)(x, NH_FWD);
    memset(x->bad_value, 0, (size_t)g->n_values * sizeof *x->bad_value);
    x->bad_tied = 0;
    for (int p = 0; p < g->n_params; p++)
        NH_T(nh_forget_param)(x, p);
    for (int r = 0; r < g->n_recs; r++) {
        NH_T(nh_stream_load)(x, source, r);
        run_forward(x, r);
        for (; step < g->n_steps && g->steps[step].end_rec == r + 1; step++)
            look(arg, step);
    }
    count_params(x);
    return mean_loss(x);
}

static void write_value(struct nh_exec *x, nh_val v, const double *in)
{
    const struct nh_value *w = value_of(x, v);
    for (int r = 0; r < x->g->rows; r++)
        for (int c = 0; c < w->cols; c++)
            row_ptr(x, v, r)[c] = (real)in[(size_t)r * (size_t)w->cols + (size_t)c];
}

static void rerun(struct nh_exec *x, int first_rec, int end)
{
    for (int r = first_rec; r < end; r++)
        run_forward(x, r);
}

static void pass_vjp(struct nh_pass *p)
{
    struct nh_exec *x = p->x;
    const struct nh_graph *g = x->g;
    for (int r = p->end - 1; r >= p->first; r--) {
        const struct nh_rec *rec = &g->recs[r];
        const struct op *op = OPS[rec->op];
        if (!p->seen[rec->out])
            continue;
        NH_T(nh_units)((struct unit){.x = x, .r = rec, .p = p}, op->vjp_units(x, rec, p), p->threads, p->lanes, op->vjp);
        for (int i = 0; i < 3; i++)
            if (rec->in[i] >= 0)
                p->seen[rec->in[i]] = p->seen[g->values[rec->in[i]].base] = true;
        for (int i = 0; i < 2; i++)
            if (p->counted && rec->par[i] >= 0)
                x->wgrad_seen[rec->par[i]] = true;
    }
}

static void backward(struct nh_exec *x, double loss_scale, const double *cotangent)
{
    const struct nh_graph *g = x->g;
    NH_T(nh_reset_direction)(x, NH_BWD);
    NH_T(nh_reset_direction)(x, NH_WGRAD);
    memset(x->bad_grad, 0, (size_t)g->n_values * sizeof *x->bad_grad);
    memset(x->grad_seen, 0, (size_t)g->n_values);
    memset(x->wgrad_seen, 0, (size_t)g->n_params);
    struct nh_pass p = {.x = x, .first = 0, .end = g->n_recs, .n = 1, .max_n = 1, .threads = x->threads,
                        .row_block = g->row_block, .counted = true,
                        .buf = x->grads, .at = x->grad_at, .seen = x->grad_seen, .lanes = x->lanes};
    if (cotangent) {
        p.end = g->head_rec;
        const struct nh_value *v = value_of(x, g->exit_value);
        real *seed = pass_ptr(&p, g->exit_value, 0, 0);
        for (size_t i = 0; i < (size_t)g->rows * (size_t)v->cols; i++) {
            seed[i] = (real)nh_round(nh_grad_fmt(g, v->role), cotangent[i] * loss_scale);
            x->bad_grad[v->base] += !isfinite(seed[i]);
        }
        p.seen[g->exit_value] = true;
    } else {
        real *seed = pass_ptr(&p, g->nll, 0, 0);
        for (int i = 0; i < g->rows; i++)
            seed[i] = i % g->seq < g->seq - 1 ? (real)(loss_scale / n_targets(g)) : 0;
        p.seen[g->nll] = true;
    }
    pass_vjp(&p);
    for (int i = 0; i < g->n_params; i++)
        if (!x->wgrad_seen[i])
            memset(wgrad_ptr(x, i), 0, (size_t)g->params[i].rows * (size_t)g->params[i].cols * sizeof(real));
}

/* ---- tangents and cotangents through a part of the tape ---- */

static void pass_destroy(struct nh_pass *p)
{
    if (!p)
        return;
    free_lanes(p->lanes, p->threads);
    free(p->own), free(p->at), free(p->seen);
    free(p);
}

static int pass_create(struct nh_pass **out, struct nh_exec *x, int first, int end, const nh_val *from, const nh_val *to, int n)
{
    struct nh_pass *p = calloc(1, sizeof *p);
    size_t nv = (size_t)x->g->n_values + 1;
    if (!p)
        return nh_fail(NH_FAILED, "out of memory for a derivative pass");
    *p = (struct nh_pass){.x = x, .first = first, .end = end, .max_n = n,
                          .threads = 1, .row_block = x->g->rows};
    nh_val ends[2 * NH_STREAMS];
    memcpy(p->from, from, sizeof p->from), memcpy(ends, from, sizeof p->from);
    memcpy(p->to, to, sizeof p->to), memcpy(ends + NH_STREAMS, to, sizeof p->to);
    p->at = malloc(nv * sizeof *p->at), p->seen = calloc(nv, 1);
    p->lanes = make_lanes(x, p->threads);
    if (p->at && p->seen && p->lanes) {
        size_t size = place_pass(x->g, first, end, ends, 2 * NH_STREAMS, false, p->at);
        p->own = p->buf = NH_T(nh_take)(size * (size_t)n, sizeof(real));
    }
    if (!p->buf) {
        pass_destroy(p);
        return nh_fail(NH_FAILED, "out of memory for a derivative pass");
    }
    *out = p;
    return NH_OK;
}

/** Values of the streams v, in all. */
static size_t state_size(const struct nh_graph *g, const nh_val *v)
{
    size_t n = 0;
    for (int i = 0; i < NH_STREAMS; i++)
        n += v[i] < 0 ? 0 : (size_t)g->rows * (size_t)g->values[v[i]].cols;
    return n;
}

/** Copies the n tangents of one value in or out; they are `step` numbers apart outside. */
static void copy_in(struct nh_pass *p, nh_val v, int n, const double *in, size_t step)
{
    size_t cols = (size_t)value_of(p->x, v)->cols, rows = (size_t)p->x->g->rows;
    for (int s = 0; s < n; s++)
        for (size_t r = 0; r < rows; r++) {
            real *row = pass_ptr(p, v, s, (int)r);
            const double *from = in + (size_t)s * step + r * cols;
            for (size_t c = 0; c < cols; c++)
                row[c] = (real)from[c];
        }
}

static void copy_out(const struct nh_pass *p, nh_val v, int n, double *out, size_t step)
{
    size_t cols = (size_t)value_of(p->x, v)->cols, rows = (size_t)p->x->g->rows;
    for (int s = 0; s < n; s++)
        for (size_t r = 0; r < rows; r++) {
            const real *row = pass_ptr(p, v, s, (int)r);
            double *to = out + (size_t)s * step + r * cols;
            for (size_t c = 0; c < cols; c++)
                to[c] = p->seen[v] ? (double)row[c] : 0; /* nothing leads to what is not seen */
        }
}

static void begin_pass(struct nh_pass *p, int n, const nh_val *seeds, const double *in)
{
    const struct nh_graph *g = p->x->g;
    size_t step = state_size(g, seeds);
    assert(n <= p->max_n);
    p->n = n;
    memset(p->seen, 0, (size_t)g->n_values);
    for (int i = 0; i < NH_STREAMS; i++) {
        if (seeds[i] < 0)
            continue;
        const struct nh_value *v = value_of(p->x, seeds[i]), *base = value_of(p->x, v->base);
        if (base != v) /* the rest of what it is a part of stands still */
            memset(pass_ptr(p, v->base, 0, 0), 0, (size_t)n * (size_t)g->rows * (size_t)base->ld * sizeof(real));
        copy_in(p, seeds[i], n, in, step);
        in += (size_t)g->rows * (size_t)v->cols;
        p->seen[seeds[i]] = p->seen[v->base] = true;
    }
}

static void end_pass(const struct nh_pass *p, int n, const nh_val *results, double *out)
{
    const struct nh_graph *g = p->x->g;
    size_t step = state_size(g, results);
    for (int i = 0; i < NH_STREAMS; i++)
        if (results[i] >= 0) {
            copy_out(p, results[i], n, out, step);
            out += (size_t)g->rows * (size_t)g->values[results[i]].cols;
        }
}

static void jvp(struct nh_pass *p, int n, const double *in, double *out)
{
    const struct nh_graph *g = p->x->g;
    begin_pass(p, n, p->from, in);
    for (int r = p->first; r < p->end; r++) {
        const struct nh_rec *rec = &g->recs[r];
        bool any = false;
        for (int i = 0; i < 3; i++)
            any |= rec->in[i] >= 0 && p->seen[g->values[rec->in[i]].base];
        if (!any)
            continue;
        NH_T(nh_units)((struct unit){.x = p->x, .r = rec, .p = p}, OPS[rec->op]->jvp_units(p->x, rec, p),
                       p->threads, p->lanes, OPS[rec->op]->jvp);
        p->seen[rec->out] = true;
    }
    end_pass(p, n, p->to, out);
}

static void vjp(struct nh_pass *p, int n, const double *in, double *out)
{
    begin_pass(p, n, p->to, in);
    pass_vjp(p);
    end_pass(p, n, p->from, out);
}

/* ---- reading ---- */

static const struct nh_counts *counts(const struct nh_exec *x)
{
    return x->counts;
}

static struct nh_first first(const struct nh_exec *x, enum nh_direction direction)
{
    return x->first[direction];
}

static void read_rows(const real *p, size_t rows, size_t cols, size_t ld, double *out)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            out[r * cols + c] = (double)p[r * ld + c];
}

static void read_value(const struct nh_exec *x, nh_val v, double *out)
{
    const struct nh_value *w = value_of(x, v);
    read_rows(value_ptr(x, v), (size_t)x->g->rows, (size_t)w->cols, (size_t)w->ld, out);
}

static const real *grad_ptr(const struct nh_exec *x, nh_val v)
{
    const struct nh_value *w = value_of(x, v);
    assert(w->watched && x->grad_seen[v]);
    return x->grads + x->grad_at[w->base] + w->col0;
}

static void read_grad(const struct nh_exec *x, nh_val v, double *out)
{
    const struct nh_value *w = value_of(x, v);
    read_rows(grad_ptr(x, v), (size_t)x->g->rows, (size_t)w->cols, (size_t)w->ld, out);
}

static void read_param(const struct nh_exec *x, int param, double *out)
{
    const struct nh_param *p = &x->g->params[param];
    read_rows(weight_ptr(x, param), (size_t)p->rows, (size_t)p->cols, (size_t)p->cols, out);
}

static void read_param_grad(const struct nh_exec *x, int param, double *out)
{
    const struct nh_param *p = &x->g->params[param];
    read_rows(wgrad_ptr(x, param), (size_t)p->rows, (size_t)p->cols, (size_t)p->cols, out);
}

static double sum_sq(const real *p, size_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (size_t i = 0; i < n; i++)
        s += (double)p[i] * (double)p[i];
    return s;
}

/** The largest |x|, -1 where there is nothing but NaN, which a maximum passes over. */
static double largest_of(const real *p, size_t n)
{
    real top = -1;
#pragma omp simd reduction(max : top)
    for (size_t c = 0; c < n; c++) {
        real a = r_abs(p[c]);
        top = a > top ? a : top;
    }
    return (double)top;
}

/** The power of two that brings `top` below 1, so that powers of doubles stay in their range; 1 where it is not a number above 0. */
static double power_below(double top)
{
    int exponent = 0;
    if (isfinite(top) && top > 0)
        frexp(top, &exponent);
    return ldexp(1, exponent < -1000 ? 1000 : -exponent);
}

/** Deviations are taken from the first number, so that a constant has none, and the mean of what is left is taken off once more. */
static void find_kurtosis(const struct nh_exec *x, nh_val v, double scale, struct nh_moments *m)
{
    size_t cols = (size_t)value_of(x, v)->cols;
    const double first_number = scale * (double)*row_ptr(x, v, 0);
    double sum = 0, second = 0, fourth = 0;
    for (int r = 0; r < x->g->rows; r++) {
        const real *p = row_ptr(x, v, r);
#pragma omp simd reduction(+ : sum)
        for (size_t c = 0; c < cols; c++)
            sum += scale * (double)p[c] - first_number;
    }
    const double mean = sum / m->n;
    for (int r = 0; r < x->g->rows; r++) {
        const real *p = row_ptr(x, v, r);
#pragma omp simd reduction(+ : second, fourth)
        for (size_t c = 0; c < cols; c++) {
            double d = (scale * (double)p[c] - first_number) - mean, sq = d * d;
            second += sq, fourth += sq * sq;
        }
    }
    m->has_kurtosis = second != 0;
    m->kurtosis = m->n * fourth / (second * second);
}

/** The sum over the pairs of a sequence is that of its unit vectors, squared, less the pairs of a token with itself. */
static void find_token_cos(const struct nh_exec *x, nh_val v, struct nh_moments *m)
{
    const struct nh_graph *g = x->g;
    size_t cols = (size_t)value_of(x, v)->cols;
    double *direction = calloc(cols, sizeof *direction), cosines = 0, pairs = 0, tokens = 0; /* tokens: of the sequence, not zero */
    if (!direction)
        nh_no_memory();
    for (int r = 0; r < g->rows; r++) {
        const real *p = row_ptr(x, v, r);
        double sq = 0, scale = power_below(largest_of(p, cols));
#pragma omp simd reduction(+ : sq)
        for (size_t c = 0; c < cols; c++)
            sq += (scale * (double)p[c]) * (scale * (double)p[c]);
        double unit = sq == 0 ? 0 : 1 / sqrt(sq); /* NaN and inf make the mean NaN */
        tokens += sq == 0 ? 0 : 1;
#pragma omp simd
        for (size_t c = 0; c < cols; c++)
            direction[c] += unit * (scale * (double)p[c]);
        if ((r + 1) % g->seq == 0) {
            for (size_t c = 0; c < cols; c++)
                cosines += direction[c] * direction[c];
            cosines -= tokens, pairs += tokens * (tokens - 1);
            memset(direction, 0, cols * sizeof *direction), tokens = 0;
        }
    }
    free(direction);
    m->has_token_cos = pairs > 0;
    m->token_cos = cosines / pairs;
}

static struct nh_moments moments(struct nh_exec *x, nh_val v)
{
    size_t cols = (size_t)value_of(x, v)->cols;
    struct nh_moments m = {.n = (double)x->g->rows * (double)cols};
    double top = -1;
    for (int r = 0; r < x->g->rows; r++) {
        m.sum_sq += sum_sq(row_ptr(x, v, r), cols);
        top = fmax(top, largest_of(row_ptr(x, v, r), cols));
    }
    m.max_abs = top < 0 ? (double)NAN : top;
    find_kurtosis(x, v, power_below(top), &m);
    find_token_cos(x, v, &m);
    return m;
}

static double grad_sum_sq(struct nh_exec *x, nh_val v)
{
    const struct nh_value *w = value_of(x, v);
    return sum_sq(grad_ptr(x, v), (size_t)x->g->rows * (size_t)w->cols);
}

static bool nonfinite(const struct nh_exec *x, int first_rec, int end)
{
    int64_t bad = 0;
    for (int r = first_rec; r < end; r++) {
        const struct nh_rec *rec = &x->g->recs[r];
        bad += x->bad_value[value_of(x, rec->out)->base];
        for (int i = 0; i < 3; i++)
            bad += rec->in[i] >= 0 ? x->bad_value[value_of(x, rec->in[i])->base] : 0;
    }
    return bad > 0;
}

const struct nh_core NH_T(nh_core) = {
    .bits = NH_REAL_BITS,
    .memory = memory,
    .pass_memory = pass_memory,
    .create = create,
    .destroy = destroy,
    .set_param = NH_T(nh_set_param),
    .take_param = NH_T(nh_take_param),
    .set_tokens = set_tokens,
    .forward = forward,
    .forward_streamed = forward_streamed,
    .write = write_value,
    .rerun = rerun,
    .backward = backward,
    .counts = counts,
    .first = first,
    .read = read_value,
    .read_grad = read_grad,
    .read_param = read_param,
    .read_param_grad = read_param_grad,
    .moments = moments,
    .grad_sum_sq = grad_sum_sq,
    .weight_grad_sum_sq = NH_T(nh_weight_grad_sum_sq),
    .accumulate = NH_T(nh_accumulate),
    .update = NH_T(nh_update_weights),
    .state = NH_T(nh_state),
    .recast = NH_T(nh_recast),
    .broken_weights = NH_T(nh_broken_weights),
    .nonfinite = nonfinite,
    .pass_create = pass_create,
    .pass_destroy = pass_destroy,
    .jvp = jvp,
    .vjp = vjp,
};
