// SPDX-License-Identifier: GPL-3.0-or-later
/** Weights between the steps: master weights, what the optimizer keeps, and the cast to what the products read. Every number has
 *  one place in a fixed block, so that nothing depends on the thread count. */
#include "harness/core/err.h"
#include "harness/core/exec.h"

#include <assert.h>
#include <stdlib.h>

enum { BLOCK = 4096, BLOCKS_OF_A_UNIT = 16 };

static size_t param_size(const struct nh_param *p)
{
    return (size_t)p->rows * (size_t)p->cols;
}

static bool is_matrix(const struct nh_param *p)
{
    return p->rows > 1 && p->cols > 1;
}

/** A matrix of a branch: what Muon orthogonalises. */
static bool is_hidden(const struct nh_graph *g, const struct nh_param *p)
{
    enum nh_sublayer s = g->sites[p->site].sublayer;
    return is_matrix(p) && s != NH_SUB_EMBED && s != NH_SUB_FINAL;
}

/** True where some weight is stored in another format than its master. */
static bool apart(const struct nh_graph *g)
{
    for (int p = 0; p < g->n_params; p++)
        if (!nh_fmt_same(&g->fmt[g->params[p].role], &g->fmt[NH_ROLE_MASTER]))
            return true;
    return false;
}

size_t NH_T(nh_weights_memory)(const struct nh_graph *g)
{
    if (!g->n_moments)
        return 0;
    size_t copies = (size_t)g->n_moments + (apart(g) ? 1 : 0) + (g->sums_gradients ? 1 : 0);
    return copies * g->n_weights + g->n_weights / sizeof(real); /* the latter: a byte each */
}

bool NH_T(nh_weights_create)(struct nh_exec *x)
{
    const struct nh_graph *g = x->g;
    if (!g->n_moments)
        return true;
    x->masters = apart(g) ? NH_T(nh_take)(g->n_weights, sizeof(real)) : x->weights;
    x->grad_sum = g->sums_gradients ? NH_T(nh_take)(g->n_weights, sizeof(real)) : NULL;
    x->changed = calloc(g->n_weights + 1, 1);
    bool ok = x->masters && x->changed && (x->grad_sum || !g->sums_gradients);
    for (int i = 0; i < g->n_moments && ok; i++) {
        ok = (x->moments[i] = NH_T(nh_take)(g->n_weights, sizeof(real)));
        if (ok)
            memset(x->moments[i], 0, g->n_weights * sizeof(real));
    }
    return ok;
}

void NH_T(nh_weights_destroy)(struct nh_exec *x)
{
    if (x->masters != x->weights)
        free(x->masters);
    free(x->grad_sum), free(x->moments[0]), free(x->moments[1]), free(x->changed);
}

/** True where a format is narrower than what carries it. */
static bool is_narrow(const struct nh_fmt *f)
{
    return NH_REAL_BITS == 32 ? f->man_bits < 23 || f->exp_bits < 8 : f->man_bits < 52 || f->exp_bits < 11;
}

/* ---- what is stored of a parameter: weights, and in an update moments; counted once a step ---- */

/** Order of what an update stores of a parameter. */
enum { STAGE_MOMENT_1, STAGE_MOMENT_2, STAGE_WEIGHT, STAGES };

/** Numbers [first, first + n) of a parameter while they are stored. */
struct cast {
    struct nh_counts counts;
    struct nh_first offence;
    int64_t bad;
    int site, param, order; /* order: place in execution order */
    size_t first;
    const real *exact;     /**< the numbers before any rounding; NULL = they come unrounded to the store */
    const real *inputs[4]; /**< what each was made of, up to the first NULL; none: of itself */
    unsigned inputs_of_all; /**< flags of what all were made of together */
};

static unsigned inputs_at(const struct cast *c, size_t index, double value)
{
    unsigned flags = c->inputs_of_all;
    if (!c->inputs[0])
        return isnan(value) ? (unsigned)HAS_NAN : isinf(value) ? (unsigned)HAS_INF : 0u;
    for (int i = 0; i < 4 && c->inputs[i]; i++)
        flags |= flags_of(c->inputs[i] + index, 1, 1);
    return flags;
}

static void hear(void *arg, size_t index, double before)
{
    struct cast *c = arg;
    double value = c->exact ? (double)c->exact[index] : before;
    unsigned inputs = inputs_at(c, index, value);
    bool nan = isnan(value);
    c->bad++;
    if (inputs & HAS_NAN || (inputs && !nan)) {
        c->counts.propagated++;
        return;
    }
    c->counts.overflow += !nan, c->counts.nan_made += nan;
    if (c->offence.kind == NH_NO_OFFENCE)
        c->offence = (struct nh_first){nan ? NH_NAN_MADE : NH_OVERFLOW, c->site, (uint64_t)c->order, c->first + index, value, c->param + 1};
}

static void count(struct cast *c, const struct nh_span *span)
{
    struct nh_counts here = {.total = span->total, .underflow = span->underflow, .subnormal = span->subnormal, .max_abs = span->max_abs,
                             .min_abs = span->min_abs};
    nh_counts_add(&c->counts, &here);
}

/** Rounds n numbers to a format in place and counts them. */
static void store(struct cast *c, const struct nh_fmt *f, real *p, size_t n)
{
    struct nh_span span = nh_span_zero();
    nh_round_real(f, p, n, &span, hear, c);
    count(c, &span);
}

/** Rounds w[0..n), which holds master weights, to the parameter's format in place. */
static void cast(const struct nh_exec *x, struct cast *c, real *w, size_t n)
{
    store(c, &x->g->fmt[x->g->params[c->param].role], w, n);
}

static struct cast cast_begin(const struct nh_exec *x, int param, size_t first)
{
    return (struct cast){.counts = {.min_abs = (double)INFINITY}, .site = x->g->params[param].weight_site, .param = param,
                         .order = param, .first = first};
}

static void cast_end(struct nh_exec *x, const struct cast *c)
{
#pragma omp critical(nh_weights)
    {
        nh_counts_add(&x->param_counts[c->param], &c->counts);
        x->bad_param[c->param] += c->bad;
        struct nh_first *f = &x->param_first[c->param];
        if (c->offence.kind != NH_NO_OFFENCE && (f->kind == NH_NO_OFFENCE || c->offence.index < f->index))
            *f = c->offence;
    }
}

/** Counts what did not even fit the master's format as its overflow or underflow, not as something that the cast was given. */
static void settle(struct nh_exec *x, struct cast *c, struct cast *lost)
{
    c->counts.propagated -= lost->counts.overflow, lost->counts.propagated = 0, lost->bad = 0;
    cast_end(x, lost);
}

/** Rounds master weights, where their format is narrower than what carries them. Returns how many became zero. */
static uint64_t round_masters(const struct nh_exec *x, real *w, size_t n, struct cast *lost)
{
    const struct nh_fmt *f = &x->g->fmt[NH_ROLE_MASTER];
    struct nh_span span = nh_span_zero();
    if (is_narrow(f))
        nh_round_real(f, w, n, &span, lost ? hear : NULL, lost);
    return span.underflow;
}

void NH_T(nh_forget_param)(struct nh_exec *x, int param)
{
    x->param_counts[param] = (struct nh_counts){.min_abs = (double)INFINITY};
    x->param_first[param] = (struct nh_first){0};
    x->bad_param[param] = 0;
}

/** Rounds n numbers to the format of master weights; what does not fit it is heard. */
static void to_masters(const struct nh_exec *x, const double *w, size_t n, real *to, struct cast *lost)
{
    const struct nh_fmt *f = &x->g->fmt[NH_ROLE_MASTER];
    bool narrow = is_narrow(f);
    for (size_t i = 0; i < n; i++) {
        to[i] = (real)(narrow ? nh_round(f, w[i]) : w[i]);
        if (!isfinite(to[i]) && isfinite(w[i]))
            hear(lost, i, w[i]);
        lost->counts.underflow += to[i] == 0 && w[i] != 0;
    }
}

void NH_T(nh_set_param)(struct nh_exec *x, int param, const double *w)
{
    const struct nh_param *p = &x->g->params[param];
    size_t n = param_size(p);
    real *to = weight_ptr(x, param);
    struct cast c = cast_begin(x, param, 0), lost = c; /* lost: what does not even fit the master's format */
    to_masters(x, w, n, to, &lost);
    if (x->masters && x->masters != x->weights)
        memcpy(x->masters + p->offset, to, n * sizeof *to);
    NH_T(nh_forget_param)(x, param);
    cast(x, &c, to, n);
    settle(x, &c, &lost);
    cast_end(x, &c);
}

/** True where every number of a weight's format is one of the master's format too. */
static bool holds(const struct nh_fmt *master, const struct nh_fmt *weight)
{
    return master->man_bits >= weight->man_bits && master->min_subnormal <= weight->min_subnormal && master->max >= weight->max;
}

/** The same as cast() for doubles, which are rounded once; what comes out is written to `to` and lost in w. */
static void cast_doubles(const struct nh_exec *x, struct cast *c, double *w, size_t n, real *to)
{
    struct nh_span span = nh_span_zero();
    nh_round_f64(&x->g->fmt[x->g->params[c->param].role], w, n, &span, hear, c);
    count(c, &span);
    for (size_t i = 0; i < n; i++)
        to[i] = (real)w[i];
}

/** Numbers [first, first + n) of a parameter as they are in a file. A weight is rounded once, from these to its own format, unless the
 *  master's format is the narrower one: then it is what the master has left. */
static void load_piece(struct nh_exec *x, const struct nh_weight_source *source, int param, size_t first, size_t n, double *wide, real *to,
                       bool counted)
{
    const struct nh_graph *g = x->g;
    const struct nh_param *p = &g->params[param];
    const bool direct = holds(&g->fmt[NH_ROLE_MASTER], &g->fmt[p->role]);
    real *master = x->masters && x->masters != x->weights ? x->masters + p->offset + first : NULL;
    struct cast c = cast_begin(x, param, first), lost = c, unheard = c; /* lost: what does not even fit the master's format */
    if (wide) {
        source->read(source->arg, p, first, n, 64, wide);
        to_masters(x, wide, n, to, direct ? &unheard : &lost);
        if (master)
            memcpy(master, to, n * sizeof *to);
    } else {
        source->read(source->arg, p, first, n, NH_REAL_BITS, to);
        if (!direct)
            lost.counts.underflow += round_masters(x, to, n, &lost);
        if (master) {
            memcpy(master, to, n * sizeof *to);
            round_masters(x, master, n, NULL);
        }
    }
    if (source->done)
        source->done(source->arg, p, first, n);
    if (wide && direct)
        cast_doubles(x, &c, wide, n, to);
    else
        cast(x, &c, to, n);
    if (counted)
        settle(x, &c, &lost), cast_end(x, &c);
}

void NH_T(nh_load_param)(struct nh_exec *x, const struct nh_weight_source *source, int param, int row0, int rows, real *to, bool counted)
{
    enum { PIECE = 1 << 16 };
    const struct nh_param *p = &x->g->params[param];
    size_t first = (size_t)row0 * (size_t)p->cols, n = (size_t)rows * (size_t)p->cols;
    int pieces = (int)((n + PIECE - 1) / PIECE);
    const bool is_wide = NH_REAL_BITS == 32 && source->wide && source->wide(source->arg, p);
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int i = 0; i < pieces; i++) {
        size_t at = (size_t)i * PIECE, size = n - at < PIECE ? n - at : PIECE;
        double *wide = is_wide ? malloc(size * sizeof *wide) : NULL;
        if (is_wide && !wide)
            nh_no_memory(); /* half a megabyte */
        load_piece(x, source, param, first + at, size, wide, to + at, counted);
        free(wide);
    }
}

void NH_T(nh_cast_tied)(struct nh_exec *x, size_t first, size_t n, real *w)
{
    enum { PIECE = 1 << 16 };
    const struct nh_graph *g = x->g;
    const int pieces = (int)((n + PIECE - 1) / PIECE), before = g->n_params + 8 * g->recs[g->head_rec].order - 1; /* just before the head */
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int i = 0; i < pieces; i++) {
        const size_t at = (size_t)i * PIECE, size = n - at < PIECE ? n - at : PIECE;
        struct cast c = {.counts = {.min_abs = (double)INFINITY}, .site = g->tied_site, .param = g->tied, .order = before, .first = first + at};
        struct nh_span span = nh_span_zero();
        nh_round_real(&g->fmt[NH_ROLE_WEIGHT], w + at, size, &span, hear, &c);
        count(&c, &span);
#pragma omp critical(nh_weights)
        {
            nh_counts_add(&x->counts[g->tied_site * NH_DIRECTIONS + NH_FWD], &c.counts);
            x->bad_tied += c.bad;
            if (nh_earlier(&c.offence, &x->first[NH_FWD]))
                x->first[NH_FWD] = c.offence;
        }
    }
}

void NH_T(nh_take_param)(struct nh_exec *x, const struct nh_weight_source *source, int param)
{
    NH_T(nh_forget_param)(x, param);
    NH_T(nh_load_param)(x, source, param, 0, x->g->params[param].rows, weight_ptr(x, param), true);
}

/** What an update has stored was counted there: the next forward pass only passes on what is not finite. */
static void pass_on(struct nh_exec *x, int param)
{
    struct nh_counts *c = &x->param_counts[param];
    c->propagated += c->overflow + c->nan_made;
    c->overflow = c->nan_made = 0;
    x->param_first[param] = (struct nh_first){0};
}

void NH_T(nh_recast)(struct nh_exec *x)
{
    for (int p = 0; p < x->g->n_params; p++) {
        if (x->g->params[p].frozen)
            continue; /* as it started, which is not always what its master rounds to */
        size_t n = param_size(&x->g->params[p]);
        real *to = weight_ptr(x, p);
        if (x->masters != x->weights)
            memcpy(to, x->masters + x->g->params[p].offset, n * sizeof *to);
        NH_T(nh_forget_param)(x, p);
        struct cast c = cast_begin(x, p, 0);
        cast(x, &c, to, n);
        cast_end(x, &c);
        pass_on(x, p);
    }
}

void *NH_T(nh_state)(struct nh_exec *x, int param, enum nh_state state)
{
    size_t at = x->g->params[param].offset;
    if (state == NH_STATE_CHANGED)
        return x->changed ? x->changed + at : NULL;
    real *base = state == NH_STATE_MASTER ? x->masters : x->moments[state - NH_STATE_MOMENT_1];
    return base ? base + at : NULL;
}

bool NH_T(nh_broken_weights)(const struct nh_exec *x)
{
    bool broken = false;
    for (int p = 0; p < x->g->n_params; p++)
        broken |= x->bad_param[p] > 0;
    return broken;
}

/* ---- gradients ---- */

static real *gradient(const struct nh_exec *x, int param)
{
    return (x->grad_sum ? x->grad_sum : x->wgrads) + x->g->params[param].offset;
}

/** Part of a parameter that one thread works on at a time. */
struct part {
    int param;
    size_t first, n;
};

/** Cuts all parameters that are trained into parts; *count of them, to be freed. */
static struct part *parts_of(const struct nh_graph *g, int *count)
{
    enum { SIZE = BLOCK * BLOCKS_OF_A_UNIT };
    size_t n = 0;
    for (int p = 0; p < g->n_params; p++)
        n += (param_size(&g->params[p]) + SIZE - 1) / SIZE;
    struct part *parts = malloc((n + 1) * sizeof *parts);
    if (!parts)
        nh_no_memory(); /* some hundred bytes */
    *count = 0;
    for (int p = 0; p < g->n_params; p++) {
        size_t size = g->params[p].frozen ? 0 : param_size(&g->params[p]);
        for (size_t i = 0; i < size; i += SIZE)
            parts[(*count)++] = (struct part){p, i, size - i < SIZE ? size - i : SIZE};
    }
    return parts;
}

double NH_T(nh_weight_grad_sum_sq)(const struct nh_exec *x)
{
    int n;
    struct part *parts = parts_of(x->g, &n);
    double *sums = malloc(((size_t)n + 1) * sizeof *sums), sum = 0;
    if (!sums)
        nh_no_memory();
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int i = 0; i < n; i++) {
        const real *g = gradient(x, parts[i].param) + parts[i].first;
        double s = 0;
#pragma omp simd reduction(+ : s)
        for (size_t j = 0; j < parts[i].n; j++)
            s += (double)g[j] * (double)g[j];
        sums[i] = s;
    }
    for (int i = 0; i < n; i++)
        sum += sums[i];
    free(parts), free(sums);
    return sum;
}

/** Adds g[0..n), in which sums of a parameter's gradient begin at number `first`. A sum that leaves its format was made here. */
static void add_gradients(struct nh_exec *x, int param, size_t first, const real *g, real *sum, size_t n)
{
    struct nh_first offence = {0};
    uint64_t overflow = 0;
    for (size_t i = 0; i < n; i++) {
        real before = sum[i];
        sum[i] += g[i];
        if (isfinite(sum[i]) || !isfinite(before) || !isfinite(g[i]))
            continue;
        if (overflow++ == 0) /* behind the operations of the backward pass */
            offence = (struct nh_first){NH_OVERFLOW, x->g->params[param].site, UINT64_MAX / 2 + (uint64_t)param, first + i,
                                        (double)sum[i], param + 1};
    }
    if (!overflow)
        return;
#pragma omp critical(nh_weights)
    {
        x->counts[x->g->params[param].site * NH_DIRECTIONS + NH_WGRAD].overflow += overflow;
        if (nh_earlier(&offence, &x->first[NH_WGRAD]))
            x->first[NH_WGRAD] = offence;
    }
}

void NH_T(nh_accumulate)(struct nh_exec *x, bool first)
{
    int n;
    struct part *parts = parts_of(x->g, &n);
#pragma omp parallel for schedule(static) num_threads(x->threads)
    for (int i = 0; i < n; i++) {
        const real *g = wgrad_ptr(x, parts[i].param) + parts[i].first;
        real *sum = gradient(x, parts[i].param) + parts[i].first;
        if (first)
            memcpy(sum, g, parts[i].n * sizeof *sum);
        else
            add_gradients(x, parts[i].param, parts[i].first, g, sum, parts[i].n);
    }
    free(parts);
}

/* ---- the optimizers ---- */

/** What one thread stores of a parameter in an update. */
struct move {
    struct nh_exec *x;
    const struct nh_update *u;
    int param;
    struct cast stored[STAGES];
    uint64_t changed;
};

static struct move move_begin(struct nh_exec *x, const struct nh_update *u, int param)
{
    struct move m = {.x = x, .u = u, .param = param};
    for (int k = 0; k < STAGES; k++) {
        m.stored[k] = cast_begin(x, param, 0);
        m.stored[k].site = k == STAGE_WEIGHT ? m.stored[k].site : x->g->params[param].moment_site[k];
    }
    return m;
}

/** Adds what was stored of a parameter, at one stage, to the counters of direction update. */
static void count_update(struct nh_exec *x, int site, const struct nh_counts *counts, struct nh_first offence, int stage)
{
    offence.order = offence.order * STAGES + (uint64_t)stage;
    nh_counts_add(&x->counts[site * NH_DIRECTIONS + NH_UPDATE], counts);
    if (nh_earlier(&offence, &x->first[NH_UPDATE]))
        x->first[NH_UPDATE] = offence;
}

static void move_end(const struct move *m)
{
    cast_end(m->x, &m->stored[STAGE_WEIGHT]);
#pragma omp critical(nh_weights)
    for (int k = 0; k < m->x->g->n_moments; k++)
        count_update(m->x, m->stored[k].site, &m->stored[k].counts, m->stored[k].offence, k);
}

/** Rounds n new moments and stores them as numbers [first, first + n) of the parameter. */
static void store_moments(struct move *m, int k, size_t first, real *fresh, size_t n)
{
    struct nh_exec *x = m->x;
    struct cast *c = &m->stored[k];
    real *kept = x->moments[k] + x->g->params[m->param].offset + first;
    c->first = first, c->inputs[0] = gradient(x, m->param) + first, c->inputs[1] = kept;
    store(c, &x->g->fmt[NH_ROLE_MOMENT], fresh, n);
    memcpy(kept, fresh, n * sizeof *kept);
}

/** Squares that vanish in the carrier are lost as those that vanish in the format. */
static uint64_t lost_squares(const real *square, const real *gradient, size_t n)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < n; i++)
        lost += square[i] == 0 && gradient[i] != 0;
    return lost;
}

/** The first of n second moments that its format makes zero while eps would not hide it, if its first moment is not zero. */
static struct nh_first lost_divisor(const struct move *m, size_t first, const real *moment, const real *square, size_t n, real unbias,
                                    real eps)
{
    const struct nh_fmt *f = &m->x->g->fmt[NH_ROLE_MOMENT];
    real half = (real)(f->min_subnormal / 2);
    for (size_t i = 0; i < n && is_narrow(f); i++)
        if (square[i] <= half && unbias * r_sqrt(square[i]) > eps && moment[i] != 0)
            return (struct nh_first){NH_UNDERFLOW, m->stored[STAGE_MOMENT_2].site, (uint64_t)m->param, first + i, (double)square[i],
                                     m->param + 1};
    return (struct nh_first){0};
}

/** w = (1 - lr decay) w - step for numbers [first, first + n), n at most BLOCK, and their cast. moments: as many of them as the step
 *  was made of. */
static void move_weights(struct move *m, size_t first, const real *step, size_t n, int moments)
{
    struct nh_exec *x = m->x;
    const struct nh_param *p = &x->g->params[m->param];
    real keep = is_matrix(p) ? (real)(1 - m->u->lr * m->u->weight_decay) : 1;
    real *w = x->masters + p->offset + first, *stored = x->weights + p->offset + first, exact[BLOCK], fresh[BLOCK], narrow[BLOCK];
    unsigned char *changed = x->changed + p->offset + first;
    struct cast *c = &m->stored[STAGE_WEIGHT];
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        exact[i] = keep * w[i] - step[i];
    memcpy(fresh, exact, n * sizeof *fresh);
    c->counts.underflow += round_masters(x, fresh, n, NULL);
    memcpy(narrow, fresh, n * sizeof *narrow);
    c->first = first, c->exact = exact, c->inputs[0] = w;
    for (int k = 0; k < moments; k++)
        c->inputs[1 + k] = x->moments[k] + p->offset + first;
    if (moments)
        c->inputs[1 + moments] = gradient(x, m->param) + first;
    cast(x, c, narrow, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char moved = narrow[i] != stored[i];
        m->changed += moved, changed[i] |= moved;
    }
    memcpy(w, fresh, n * sizeof *w);
    memcpy(stored, narrow, n * sizeof *stored); /* the masters where both are one */
}

/** Loshchilov and Hutter, arXiv:1711.05101, algorithm 2: m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2,
 *  step = lr m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps). */
static void adamw(struct move *move, size_t first, real *step, size_t n)
{
    const struct nh_exec *x = move->x;
    const struct nh_update *u = move->u;
    size_t at = x->g->params[move->param].offset + first;
    const real *g = gradient(x, move->param) + first, *m = x->moments[0] + at, *v = x->moments[1] + at;
    real b1 = (real)u->beta1, b2 = (real)u->beta2, c1 = (real)(1 - u->beta1), c2 = (real)(1 - u->beta2), next_m[BLOCK], next_v[BLOCK];
    real factor = (real)u->factor, eps = (real)fmax(u->eps, (double)REAL_MIN); /* 0/0 would be no zero */
    real rate = (real)(u->lr / (1 - pow(u->beta1, u->step))), unbias = (real)(1 / sqrt(1 - pow(u->beta2, u->step)));
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        real d = factor * g[i];
        next_m[i] = b1 * m[i] + c1 * d;
        next_v[i] = b2 * v[i] + c2 * d * d;
    }
    move->stored[STAGE_MOMENT_2].counts.underflow += lost_squares(next_v, g, n);
    store_moments(move, 0, first, next_m, n);
    struct nh_first lost = lost_divisor(move, first, m, next_v, n, unbias, eps), *offence = &move->stored[STAGE_MOMENT_2].offence;
    store_moments(move, 1, first, next_v, n);
    if (nh_earlier(&lost, offence))
        *offence = lost;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        step[i] = rate * m[i] / (unbias * r_sqrt(v[i]) + eps);
}

/** Momentum as in torch.optim.SGD: m = mu m + g, step = lr m. */
static void sgd(struct move *move, size_t first, real *step, size_t n)
{
    const struct nh_exec *x = move->x;
    const real *g = gradient(x, move->param) + first, *m = x->moments[0] + x->g->params[move->param].offset + first;
    real mu = (real)move->u->momentum, factor = (real)move->u->factor, lr = (real)move->u->lr, next[BLOCK];
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        next[i] = mu * m[i] + factor * g[i];
    store_moments(move, 0, first, next, n);
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        step[i] = lr * m[i];
}

static void product(bool tb, int m, int n, int k, real alpha, const real *a, const real *b, real beta, real *c)
{
    cblas_gemm_real(CblasRowMajor, CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, alpha, a, k, b, tb ? k : n, beta, c, n);
}

/** Newton-Schulz: u (rows x cols, rows <= cols) becomes nearly the orthogonal factor of its polar decomposition. Five steps of
 *  X = a X + (b A + c A^2) X with A = X X^T. room: 2 rows^2 + rows cols numbers. */
static void orthogonalise(real *u, int rows, int cols, real *room)
{
    const real a = (real)3.4445, b = (real)-4.7750, c = (real)2.0315;
    size_t n = (size_t)rows * (size_t)cols, square = (size_t)rows * (size_t)rows;
    real *gram = room, *poly = gram + square, *next = poly + square;
    double sq = 0;
    for (size_t i = 0; i < n; i++)
        sq += (double)u[i] * (double)u[i];
    real scale = (real)(1 / (sqrt(sq) + 1e-7));
    for (size_t i = 0; i < n; i++)
        u[i] *= scale;
    for (int k = 0; k < 5; k++) {
        product(true, rows, rows, cols, 1, u, u, 0, gram);
        memcpy(poly, gram, square * sizeof *poly);
        product(false, rows, rows, rows, c, gram, gram, b, poly);
        memcpy(next, u, n * sizeof *next);
        product(false, rows, cols, rows, 1, poly, u, a, next);
        memcpy(u, next, n * sizeof *u);
    }
}

static void transpose(const real *from, int rows, int cols, real *to)
{
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t c = 0; c < (size_t)cols; c++)
            to[c * (size_t)rows + r] = from[r * (size_t)cols + c];
}

/** Muon (Jordan et al. 2024, KellerJordan/Muon) with the step size of arXiv:2502.16982, equation 4, which brings it to the RMS of
 *  AdamW's: m = mu m + g, step = 0.2 sqrt(max(rows, cols)) lr NS(g + mu m), for every matrix of a parameter by itself. */
static uint64_t muon(struct nh_exec *x, int param, int row0, int rows, const struct nh_update *u)
{
    const struct nh_param *p = &x->g->params[param];
    int cols = p->cols, small = rows < cols ? rows : cols, large = rows < cols ? cols : rows;
    size_t first = (size_t)row0 * (size_t)cols, n = (size_t)rows * (size_t)cols;
    const real *g = gradient(x, param) + first, *m = x->moments[0] + p->offset + first;
    real *room = malloc((3 * n + 2 * (size_t)small * (size_t)small) * sizeof *room), *step = room + n;
    if (!room)
        nh_no_memory(); /* a small part of what the model has just been given */
    real mu = (real)u->momentum, factor = (real)u->factor;
    struct move move = move_begin(x, u, param);
    for (size_t i = 0; i < n; i++)
        room[i] = mu * m[i] + factor * g[i];
    store_moments(&move, 0, first, room, n);
    for (size_t i = 0; i < n; i++)
        room[i] = factor * g[i] + mu * m[i];
    /* a number of the step is made of the whole matrix */
    move.stored[STAGE_WEIGHT].inputs_of_all = flags_of(m, n, 1) | flags_of(g, n, 1);
    if (rows > cols)
        transpose(room, rows, cols, step);
    else
        memcpy(step, room, n * sizeof *step);
    orthogonalise(step, small, large, step + n);
    if (rows > cols)
        transpose(step, small, large, room);
    else
        memcpy(room, step, n * sizeof *room);
    real rate = (real)(0.2 * sqrt(large) * u->lr);
    for (size_t i = 0; i < n; i++)
        room[i] *= rate;
    for (size_t i = 0; i < n; i += BLOCK)
        move_weights(&move, first + i, room + i, n - i < BLOCK ? n - i : BLOCK, 0);
    move_end(&move);
    free(room);
    return move.changed;
}

static uint64_t muon_matrices(struct nh_exec *x, const struct nh_update *u)
{
    uint64_t changed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(x->threads) reduction(+ : changed)
    for (int p = 0; p < x->g->n_params; p++) {
        const struct nh_param *q = &x->g->params[p];
        for (int i = 0, row = 0; i < q->n_parts * q->repeat && is_hidden(x->g, q); row += q->part[i++ % q->n_parts].rows)
            changed += muon(x, p, row, q->part[i % q->n_parts].rows, u);
    }
    return changed;
}

uint64_t NH_T(nh_update_weights)(struct nh_exec *x, const struct nh_update *u)
{
    const struct nh_graph *g = x->g;
    bool by_muon = u->optimizer == NH_OPTIMIZER_MUON;
    int n, moments = u->optimizer == NH_OPTIMIZER_SGD ? 1 : 2;
    struct part *parts = parts_of(g, &n);
    assert(g->n_moments);
    NH_T(nh_reset_direction)(x, NH_UPDATE);
    for (int i = 0; i < n; i++)
        NH_T(nh_forget_param)(x, parts[i].param);
    uint64_t changed = by_muon ? muon_matrices(x, u) : 0;
#pragma omp parallel for schedule(static) num_threads(x->threads) reduction(+ : changed)
    for (int i = 0; i < n; i++) {
        if (by_muon && is_hidden(g, &g->params[parts[i].param]))
            continue;
        struct move move = move_begin(x, u, parts[i].param);
        real step[BLOCK];
        for (size_t k = 0; k < parts[i].n; k += BLOCK) {
            size_t first = parts[i].first + k, size = parts[i].n - k < BLOCK ? parts[i].n - k : BLOCK;
            (u->optimizer == NH_OPTIMIZER_SGD ? sgd : adamw)(&move, first, step, size);
            move_weights(&move, first, step, size, moments);
        }
        move_end(&move);
        changed += move.changed;
    }
    for (int p = 0; p < g->n_params; p++)
        if (!g->params[p].frozen && g->params[p].weight_site >= 0) {
            count_update(x, g->params[p].weight_site, &x->param_counts[p], x->param_first[p], STAGE_WEIGHT);
            pass_on(x, p);
        }
    free(parts);
    return changed;
}
