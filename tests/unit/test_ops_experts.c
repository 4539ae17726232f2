// SPDX-License-Identifier: GPL-3.0-or-later
/** A mixture of experts as it is recorded in a model, and its three operations: against a plain reference written from
 * the formulas, which ranks the experts of a token instead of picking them; derivatives against differences of that
 * reference. */
#include "harness/core/builder.h"
#include "tests/unit/op_graph.h"

#include "harness/core/rng.h"

#include <float.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { MOST = 1 << 15 };

/** Everything that the output is a function of. */
enum { X, ROUTER, BIAS, IN, OUT, SHARED_IN, SHARED_OUT, N_TENSORS };

struct numbers {
    double *at[N_TENSORS];
    size_t n[N_TENSORS];
};

struct moe {
    struct nh_config config;
    struct nh_layout layout; /* the builder asks it for factors on the weights */
    struct op_graph o;
    nh_val in, out;
    int param[N_TENSORS], rows;
};

static const char *const names[N_TENSORS] = {
    NULL,
    "layers.1.ffn.router",
    "layers.1.ffn.expert_bias",
    "layers.1.ffn.experts.in",
    "layers.1.ffn.experts.out",
    "layers.1.ffn.shared.in",
    "layers.1.ffn.shared.out",
};

struct form {
    enum nh_ffn ffn;
    int rows, width, hidden, experts, active, shared;
    double route_scale;
};

static void moe_begin(struct moe *m, const char *dtype, const struct form *f, int threads)
{
    *m = (struct moe){.config = op_config(dtype), .rows = f->rows};
    struct nh_config *c = &m->config;
    c->layout = &m->layout, c->width = f->width, c->heads = c->kv_heads = c->depth = 1, c->ffn = f->ffn;
    c->moe = (struct nh_moe){.experts = f->experts,
                             .active = f->active,
                             .shared = f->shared,
                             .mult = (double)f->hidden / f->width,
                             .route_scale = f->route_scale};
    m->o = op_new(c, 1, f->rows);
    m->in = op_input(&m->o, f->width, NH_ROLE_MATMUL_IN);
    struct nh_builder b = {.g = m->o.g, .config = c, .pos = {1, 1, NH_FFN}, .layer = 1, .sublayer = NH_SUB_FFN};
    m->out = nh_put_experts(&b, m->in, &(struct nh_inner){0});
    m->o.g->exit_value = m->out, m->o.g->head_rec = m->o.g->n_recs;
    m->o.g->values[m->in].watched = true;
    m->param[X] = m->o.g->recs[0].par[0];
    for (int t = ROUTER; t < N_TENSORS; t++) {
        m->param[t] = -1;
        for (int p = 0; p < m->o.g->n_params; p++)
            if (strcmp(m->o.g->params[p].name, names[t]) == 0)
                m->param[t] = p;
        ck_assert_int_eq(m->param[t] >= 0, t < SHARED_IN || f->shared > 0);
    }
    op_close_with(&m->o, threads, true);
}

static struct numbers numbers_of(const struct moe *m)
{
    struct numbers a = {{0}, {0}};
    for (int t = 0; t < N_TENSORS; t++) {
        const struct nh_param *p = m->param[t] < 0 ? NULL : &m->o.g->params[m->param[t]];
        a.n[t] = p ? (size_t)p->rows * (size_t)p->cols : 0;
        a.at[t] = calloc(a.n[t] + 1, sizeof(double));
        if (!a.at[t])
            abort();
    }
    return a;
}

static void numbers_free(struct numbers *a)
{
    for (int t = 0; t < N_TENSORS; t++)
        free(a->at[t]);
}

/** Normal numbers, the bias smaller: it has to change some choices and not all. */
static void draw(struct numbers *a, uint64_t seed)
{
    gsl_rng *rng = nh_rng_new(seed, 1, 0);
    for (int t = 0; t < N_TENSORS; t++)
        for (size_t i = 0; i < a->n[t]; i++)
            a->at[t][i] = nh_rng_normal(rng) * (t == BIAS ? 0.2 : 0.7);
    gsl_rng_free(rng);
}

static void run(struct moe *m, const struct numbers *a)
{
    for (int t = 0; t < N_TENSORS; t++)
        if (m->param[t] >= 0)
            m->o.core->set_param(m->o.x, m->param[t], a->at[t]);
    op_run(&m->o);
}

/* ---- the plain reference ---- */

static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}

static double activation_of(enum nh_ffn ffn, double x)
{
    switch (ffn) {
    case NH_FFN_GELU:
    case NH_FFN_GEGLU:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case NH_FFN_RELU:
        return x > 0 ? x : 0;
    case NH_FFN_SWIGLU:
        return x * sigmoid_of(x);
    }
    abort();
}

/** y += weight times an FFN of x, whose first matrix has gate rows before up rows where it is gated. */
static void add_ffn(enum nh_ffn ffn, int width, int hidden, const double *in, const double *out, const double *x,
                    double weight, double *y)
{
    bool gated = ffn == NH_FFN_SWIGLU || ffn == NH_FFN_GEGLU;
    for (int h = 0; h < hidden; h++) {
        double first = 0, second = 0;
        for (int c = 0; c < width; c++) {
            first += in[h * width + c] * x[c];
            second += gated ? in[(hidden + h) * width + c] * x[c] : 0;
        }
        double v = activation_of(ffn, first) * (gated ? second : 1);
        for (int c = 0; c < width; c++)
            y[c] += weight * out[c * hidden + h] * v;
    }
}

/** An expert is chosen where fewer than k come before it. gap: smallest distance between a chosen one and one that is
 * not; visits: tokens of each expert. Both may be NULL. */
static void reference(const struct form *f, const struct numbers *a, double *y, double *gap, int *visits)
{
    bool gated = f->ffn == NH_FFN_SWIGLU || f->ffn == NH_FFN_GEGLU;
    int d = f->width, m = f->hidden, in_size = (gated ? 2 : 1) * m * d, out_size = m * d;
    memset(y, 0, (size_t)(f->rows * d) * sizeof *y);
    for (int t = 0; t < f->rows; t++) {
        const double *x = a->at[X] + t * d;
        double score[64], key[64], sum = 0, lowest = HUGE_VAL, highest = -HUGE_VAL;
        bool in[64];
        for (int e = 0; e < f->experts; e++) {
            double z = 0;
            for (int c = 0; c < d; c++)
                z += a->at[ROUTER][e * d + c] * x[c];
            score[e] = sigmoid_of(z), key[e] = score[e] + a->at[BIAS][e];
        }
        for (int e = 0; e < f->experts; e++) {
            int before = 0;
            for (int o = 0; o < f->experts; o++)
                before += key[o] > key[e] || (key[o] == key[e] && o < e);
            in[e] = before < f->active;
            sum += in[e] ? score[e] : 0;
            lowest = in[e] ? fmin(lowest, key[e]) : lowest;
            highest = in[e] ? highest : fmax(highest, key[e]);
            if (visits)
                visits[e] += in[e];
        }
        if (gap)
            *gap = fmin(*gap, lowest - highest);
        for (int e = 0; e < f->experts; e++)
            if (in[e])
                add_ffn(f->ffn, d, m, a->at[IN] + e * in_size, a->at[OUT] + e * out_size, x,
                        score[e] / (sum + 1e-20) * f->route_scale, y + t * d);
        if (f->shared)
            add_ffn(f->ffn, d, f->shared * m, a->at[SHARED_IN], a->at[SHARED_OUT], x, 1, y + t * d);
    }
}

/* shapes: experts that all see every token, one a token, some; gated and not; with and without shared ones */
static const struct form forms[] = {
    {NH_FFN_SWIGLU, 9, 5, 3, 6, 2, 1, 2.826},  {NH_FFN_SWIGLU, 12, 4, 2, 4, 4, 0, 1},
    {NH_FFN_GEGLU, 12, 4, 5, 7, 1, 2, 0.5},    {NH_FFN_GELU, 40, 6, 2, 5, 3, 0, 1.5},
    {NH_FFN_RELU, 11, 3, 4, 3, 2, 3, 1},       {NH_FFN_SWIGLU, 1, 4, 1, 1, 1, 0, 2},
    {NH_FFN_SWIGLU, 140, 8, 4, 33, 5, 1, 2.4},
};

static void assert_close(const double *got, const double *want, size_t n, double tolerance, const char *what)
{
    double size = 0, off = 0;
    for (size_t i = 0; i < n; i++)
        size = fmax(size, fabs(want[i])), off = fmax(off, fabs(got[i] - want[i]));
    ck_assert_msg(off <= tolerance * fmax(size, 1), "%s is off by %g of %g", what, off, size);
}

static double y[MOST], want[MOST];

START_TEST(output_of_another_mixture)
{
    static const struct {
        const char *dtype;
        double tolerance;
    } cases[] = {{"fp64", 1e-14}, {"fp32", 2e-6}};
    const struct form *f = &forms[_i];
    for (int k = 0; k < COUNT(cases); k++) {
        struct moe m;
        moe_begin(&m, cases[k].dtype, f, 1);
        struct numbers a = numbers_of(&m);
        draw(&a, 3);
        double gap = HUGE_VAL;
        reference(f, &a, want, &gap, NULL);
        ck_assert_double_gt(gap, 1e-5); /* no choice that rounding could change */
        run(&m, &a);
        op_read(&m.o, m.out, y);
        assert_close(y, want, a.n[X], cases[k].tolerance, "output");
        numbers_free(&a), op_free(&m.o);
    }
}
END_TEST

/** u . y of the reference. */
static double projected(const struct form *f, const struct numbers *a, const double *u)
{
    double sum = 0;
    reference(f, a, want, NULL, NULL);
    for (size_t i = 0; i < a->n[X]; i++)
        sum += u[i] * want[i];
    return sum;
}

/** The gradient of u . y, number by number, and exact zeros where no token came. */
START_TEST(gradient_of_another_mixture)
{
    const double h = 1e-5;
    const struct form *f = &forms[_i];
    if (f->rows > 100)
        return; /* for time */
    struct moe m;
    moe_begin(&m, "fp64", f, 1);
    struct numbers a = numbers_of(&m), g = numbers_of(&m);
    draw(&a, 3);
    double *u = calloc(a.n[X], sizeof *u), gap = HUGE_VAL;
    int visits[64] = {0}, unseen = 0;
    if (!u)
        abort();
    reference(f, &a, want, &gap, visits);
    ck_assert_double_gt(gap, 20 * h); /* the choice holds still while a weight moves */
    for (size_t i = 0; i < a.n[X]; i++)
        u[i] = cos((double)(3 * i));
    run(&m, &a);
    m.o.core->backward(m.o.x, 1, u);
    for (int t = 0; t < N_TENSORS; t++) {
        if (m.param[t] < 0)
            continue;
        if (t == X)
            m.o.core->read_grad(m.o.x, m.in, g.at[t]);
        else
            m.o.core->read_param_grad(m.o.x, m.param[t], g.at[t]);
        double *difference = calloc(a.n[t], sizeof *difference);
        if (!difference)
            abort();
        for (size_t i = 0; i < a.n[t]; i++) {
            double before = a.at[t][i], side[2];
            for (int s = 0; s < 2; s++) {
                a.at[t][i] = before + (s ? -h : h);
                side[s] = projected(f, &a, u);
            }
            a.at[t][i] = before;
            difference[i] = (side[0] - side[1]) / (2 * h);
        }
        assert_close(g.at[t], difference, a.n[t], 1e-7, t == X ? "gradient of x" : names[t]);
        free(difference);
    }
    for (size_t i = 0; i < g.n[BIAS]; i++)
        ck_assert(g.at[BIAS][i] == 0);
    for (int e = 0; e < f->experts; e++) {
        size_t in = g.n[IN] / (size_t)f->experts, out = g.n[OUT] / (size_t)f->experts;
        unseen += visits[e] == 0;
        for (size_t i = 0; i < in && visits[e] == 0; i++)
            ck_assert(g.at[IN][(size_t)e * in + i] == 0);
        for (size_t i = 0; i < out && visits[e] == 0; i++)
            ck_assert(g.at[OUT][(size_t)e * out + i] == 0);
    }
    if (f->active == f->experts)
        ck_assert_int_eq(unseen, 0);
    free(u), numbers_free(&a), numbers_free(&g), op_free(&m.o);
}
END_TEST

/** <u, Jv> = <J'u, v>, several vectors at a time, and Jv by differences of the reference. */
START_TEST(jacobian_of_another_mixture)
{
    static const struct {
        const char *dtype;
        double adjoint;
    } cases[] = {{"fp64", 1e-14}, {"fp32", 1e-6}};
    const double h = 1e-5;
    const struct form *f = &forms[_i];
    for (int k = 0; k < COUNT(cases); k++) {
        struct moe m;
        moe_begin(&m, cases[k].dtype, f, 1);
        struct numbers a = numbers_of(&m);
        draw(&a, 3);
        run(&m, &a);
        size_t n = a.n[X];
        double *all = calloc(8 * n, sizeof *all), *v = all, *u = all + 2 * n, *jv = all + 4 * n, *jtu = all + 6 * n;
        if (!all)
            abort();
        for (size_t i = 0; i < 4 * n; i++)
            all[i] = cos((double)(7 * i) + 0.3 * (double)(i / n));
        struct nh_pass *p;
        ck_assert_int_eq(m.o.core->pass_create(&p, m.o.x, 1, m.o.g->n_recs, (nh_val[NH_STREAMS]){m.in, -1},
                                               (nh_val[NH_STREAMS]){m.out, -1}, 2),
                         NH_OK);
        m.o.core->jvp(p, 2, v, jv);
        m.o.core->vjp(p, 2, u, jtu);
        for (int s = 0; s < 2; s++, v += n, u += n, jv += n, jtu += n) {
            double size = sqrt(dot(u, u, n) * dot(jv, jv, n));
            ck_assert_double_gt(size, 0);
            ck_assert_double_le(fabs(dot(u, jv, n) - dot(jtu, v, n)), cases[k].adjoint * size);
            double *sides[2] = {want, y};
            for (int side = 0; side < 2; side++) {
                struct numbers moved = a;
                moved.at[X] = malloc(n * sizeof(double));
                if (!moved.at[X])
                    abort();
                for (size_t i = 0; i < n; i++)
                    moved.at[X][i] = a.at[X][i] + (side ? -h : h) * v[i];
                reference(f, &moved, sides[side], NULL, NULL);
                free(moved.at[X]);
            }
            for (size_t i = 0; i < n; i++)
                want[i] = (want[i] - y[i]) / (2 * h);
            assert_close(jv, want, n, k ? 1e-5 : 1e-7, "Jv");
        }
        m.o.core->pass_destroy(p);
        free(all), numbers_free(&a), op_free(&m.o);
    }
}
END_TEST

/* ---- who is chosen ---- */

/** Experts that give their number: e + 1 in all columns, for every token, without a shared one. */
static struct numbers numbered(struct moe *m, const struct form *f)
{
    struct numbers a = numbers_of(m);
    for (size_t i = 0; i < a.n[X]; i++)
        a.at[X][i] = 1;
    for (size_t i = 0; i < a.n[IN]; i++)
        a.at[IN][i] = 1. / f->width; /* relu(1) */
    for (size_t i = 0; i < a.n[OUT]; i++)
        a.at[OUT][i] = (double)(i / (a.n[OUT] / (size_t)f->experts) + 1) / f->hidden;
    return a;
}

static const struct form plain_form = {NH_FFN_RELU, 6, 4, 2, 8, 3, 0, 1};

/** Equal scores: the lower numbers; with a bias: the higher sums, but the weights are those of the scores alone. */
START_TEST(tie_goes_to_a_higher_number)
{
    static const struct {
        double bias[8];
        int chosen[3];
    } cases[] = {
        {{0}, {0, 1, 2}},
        {{0, 0, 0, 0, 0, 0, 0, 1}, {0, 1, 7}},
        {{-1, 0, -1, 0, 0, 0, 0, 0}, {1, 3, 4}},
        {{0, 0.5, 0, 0.5, 0, 0.5, 0, 0.5}, {1, 3, 5}},
        {{-3, -3, -3, -3, -3, -3, -3, -3}, {0, 1, 2}},
    };
    struct moe m;
    moe_begin(&m, "fp32", &plain_form, 1);
    struct numbers a = numbered(&m, &plain_form);
    memcpy(a.at[BIAS], cases[_i].bias, sizeof cases[_i].bias);
    run(&m, &a);
    op_read(&m.o, m.out, y);
    double mean = 1 + (cases[_i].chosen[0] + cases[_i].chosen[1] + cases[_i].chosen[2]) / 3.;
    for (size_t i = 0; i < a.n[X]; i++)
        ck_assert_double_eq_tol(y[i], mean, 1e-6);
    numbers_free(&a), op_free(&m.o);
}
END_TEST

/** All tokens to the same expert, and none: full capacity, and gradients of exactly 0. */
START_TEST(one_expert_has_all_tokens)
{
    static const struct form f = {NH_FFN_SWIGLU, 150, 4, 3, 5, 1, 0, 1};
    for (int threads = 1; threads <= 2; threads++) {
        struct moe m;
        moe_begin(&m, "fp64", &f, threads);
        struct numbers a = numbers_of(&m), g = numbers_of(&m);
        draw(&a, 4);
        a.at[BIAS][3] = 1000;
        run(&m, &a);
        int visits[5] = {0};
        reference(&f, &a, want, NULL, visits);
        ck_assert_int_eq(visits[3], 150);
        op_read(&m.o, m.out, y);
        assert_close(y, want, a.n[X], 1e-14, "output");
        for (size_t i = 0; i < a.n[X]; i++)
            y[i] = 1;
        m.o.core->backward(m.o.x, 1, y);
        for (int t = IN; t <= OUT; t++) {
            m.o.core->read_param_grad(m.o.x, m.param[t], g.at[t]);
            for (size_t i = 0, each = g.n[t] / 5; i < g.n[t]; i++)
                ck_assert_int_eq(g.at[t][i] != 0, i / each == 3);
        }
        /* alone among the chosen its weight is 1 whatever its score: the router has nothing to learn but rounding */
        m.o.core->read_param_grad(m.o.x, m.param[ROUTER], g.at[ROUTER]);
        for (size_t i = 0; i < g.n[ROUTER]; i++)
            ck_assert_double_le(fabs(g.at[ROUTER][i]), 1e-13);
        numbers_free(&a), numbers_free(&g), op_free(&m.o);
    }
}
END_TEST

/** The weights of k among n experts, from the logits of `rows` tokens. */
static struct op_graph routed(const char *dtype, int rows, int n, int k, double scale, const double *logits,
                              nh_val *weights)
{
    struct nh_config c = op_config(dtype);
    struct op_graph o = op_new(&c, 1, rows);
    nh_val z = op_input(&o, n, NH_ROLE_MATMUL_OUT);
    int bias = op_param(&o, 1, n, NH_ROLE_SOFTMAX);
    o.g->params[bias].frozen = true;
    struct nh_rec *r = op_rec(&o, NH_OP_ROUTE, k, NH_SITE_ROUTE, NH_ROLE_SOFTMAX);
    r->in[0] = z, r->par[0] = bias, r->u.route.scale = scale;
    *weights = o.g->exit_value = r->out, o.g->head_rec = o.g->n_recs;
    o.g->values[z].watched = true;
    op_close_with(&o, 1, true);
    op_set(&o, z, logits);
    op_set_all(&o, bias, 0);
    op_run(&o);
    return o;
}

/** Without a finite logit the choice still has an order: NaN, then the numbers; each expert once. */
START_TEST(bad_logits_crash_the_router)
{
    static const double inf = HUGE_VAL, bad = NOT_A_NUMBER;
    const double z[6 * 4] = {
        0,    inf,  0,    -inf,                         /* 1 and, of the zeros, the first */
        -inf, -inf, -inf, 0,                            /* 3, and a score of 0 */
        -inf, -inf, -inf, -inf,                         /* 0 / 1e-20 */
        1,    bad,  2,    3,                            /* NaN and 3: no number left */
        bad,  bad,  bad,  bad,  -300, -300, -300, -300, /* scores below 1e-130: the sum is the 1e-20 alone */
    };
    const double weights[6 * 2] = {1. / 3, 2. / 3, 0, 1, 0, 0, bad, bad, bad, bad, 0, 0};
    static const char *const dtypes[] = {"fp16", "bf16", "fp32", "fp64"};
    nh_val w;
    struct op_graph o = routed(dtypes[_i], 6, 4, 2, 1, z, &w);
    op_read(&o, w, y);
    for (int i = 0; i < 12; i++)
        if (isnan(weights[i]))
            ck_assert(isnan(y[i]));
        else
            ck_assert_double_eq_tol(y[i], weights[i], 1e-7);
    assert_trouble(&o, NH_SITE_ROUTE, 0, 0, 4, 0);
    assert_first(&o, NH_NO_OFFENCE, NH_SITE_ROUTE, 0, 0);
    for (int i = 0; i < 12; i++)
        want[i] = 1 + i % 2;
    o.core->backward(o.x, 1, want);
    o.core->read_grad(o.x, o.g->recs[1].in[0], y);
    for (int i = 0; i < 24; i++) /* rows without NaN have finite gradients */
        ck_assert(isfinite(y[i]) || i / 4 == 3 || i / 4 == 4);
    op_free(&o);
}
END_TEST

/** Weights are no number of a narrow format: they are fp32 whatever the format, and their sum is the scale. */
START_TEST(weights_in_the_narrow_format)
{
    double logits[6 * 5];
    for (int i = 0; i < 30; i++)
        logits[i] = ((i * 7) % 11 - 5) * 0.25; /* exact in all formats here */
    static const char *const dtypes[] = {"fp16", "bf16", "fp8-e5m2", "fp32"};
    nh_val w;
    struct op_graph o = routed(dtypes[_i], 6, 5, 3, 2.826, logits, &w);
    op_read(&o, w, y);
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq_tol(y[3 * i] + y[3 * i + 1] + y[3 * i + 2], 2.826, 1e-6);
    assert_count(&o, NH_SITE_ROUTE, total, 18);
    op_free(&o);
}
END_TEST

/* ---- bits and counters ---- */

/** Two products of experts around relu, and the sum: slots of the second differ. */
struct chain {
    struct op_graph o;
    nh_val x, logits, weights, first, active, last, sum;
    int bias, w_in, w_out;
};

enum { ROWS = 40, D = 5, M = 3, E = 6, K = 2 };

static nh_val op_experts(struct op_graph *o, nh_val x, nh_val weights, int w, int parts, enum nh_site_name name)
{
    struct nh_rec *r = op_rec(o, NH_OP_EXPERTS, K * o->g->params[w].rows / E, name, NH_ROLE_MATMUL_OUT);
    r->in[0] = x, r->par[0] = w, r->u.experts.route = o->g->values[weights].rec, r->u.experts.parts = parts;
    return r->out;
}

static struct chain chain_of(const struct nh_config *c, int threads)
{
    struct chain h = {.o = op_new(c, 1, ROWS)};
    struct op_graph *o = &h.o;
    h.x = op_input(o, D, NH_ROLE_MATMUL_IN), h.logits = op_input(o, E, NH_ROLE_MATMUL_OUT);
    h.bias = op_param(o, 1, E, NH_ROLE_SOFTMAX);
    h.w_in = op_param(o, E * M, D, NH_ROLE_WEIGHT), h.w_out = op_param(o, E * D, M, NH_ROLE_WEIGHT);
    o->g->params[h.bias].frozen = true;
    struct nh_rec *r = op_rec(o, NH_OP_ROUTE, K, NH_SITE_ROUTE, NH_ROLE_SOFTMAX);
    r->in[0] = h.logits, r->par[0] = h.bias, r->u.route.scale = 1, h.weights = r->out;
    h.first = op_experts(o, h.x, h.weights, h.w_in, 1, NH_SITE_EXPERT_IN);
    h.active = op_act(o, NH_ACT_RELU, h.first);
    h.last = op_experts(o, h.active, h.weights, h.w_out, 1, NH_SITE_EXPERT_OUT);
    r = op_rec(o, NH_OP_COMBINE, D, NH_SITE_EXPERT_SUM, NH_ROLE_ACTIVATION);
    r->in[0] = h.last, r->in[1] = h.weights, h.sum = r->out;
    o->g->exit_value = h.sum, o->g->head_rec = o->g->n_recs;
    o->g->values[h.x].watched = true;
    op_close_with(o, threads, true);
    op_set_all(o, h.bias, 0);
    return h;
}

/** The two experts of a row that have logit 0; all others have -100, so that both weights are 1/2. */
static void two_of(int row, int *low, int *high)
{
    *low = row * 5 % 7 % (E - 1), *high = *low + 1 + row % (E - 1 - *low);
}

static double in[ROWS * D], logits[ROWS * E], w_in[E * M * D], w_out[E * D * M];

static void small_integers(uint64_t *state, double big)
{
    for (int i = 0; i < ROWS * D; i++)
        in[i] = (op_draw(state, 7) - 3) * (i / D % 7 == 2 ? big : 1);
    for (int i = 0; i < E * M * D; i++)
        w_in[i] = op_draw(state, 9) - 4;
    for (int i = 0; i < E * D * M; i++)
        w_out[i] = op_draw(state, 5) - 2;
    for (int i = 0; i < ROWS; i++) {
        int low, high;
        two_of(i, &low, &high);
        for (int e = 0; e < E; e++)
            logits[i * E + e] = e == low || e == high ? 0 : -100;
    }
}

static void set_chain(struct chain *h)
{
    op_set(&h->o, h->x, in), op_set(&h->o, h->logits, logits);
    h->o.core->set_param(h->o.x, h->w_in, w_in), h->o.core->set_param(h->o.x, h->w_out, w_out);
    op_run(&h->o);
}

START_TEST(experts_agree_with_the_plain_reference)
{
    static const char *const dtypes[] = {"fp16", "bf16", "e4m3", "tf32", "fp32", "fp64"};
    uint64_t state = 11, trouble = 0;
    for (int bits = 0; bits < 8; bits++) {
        struct nh_config c = op_config(dtypes[_i]);
        c.accum = bits & 1 ? NH_WIDE_DTYPE : NH_WIDE_FP32;
        bool narrow = c.dtype.exp_bits < 8, wild = bits & 2;
        small_integers(&state, narrow && bits & 4 ? ldexp(1, (int)floor(log2(c.dtype.max)) - 3) : 1);
        if (wild)
            in[op_draw(&state, ROWS * D)] = NOT_A_NUMBER, in[op_draw(&state, ROWS * D)] = HUGE_VAL,
                                      w_in[op_draw(&state, E * M * D)] = -HUGE_VAL,
                                      w_out[op_draw(&state, E * D * M)] = NOT_A_NUMBER;
        struct chain h = chain_of(&c, 1 + bits % 3);
        set_chain(&h);
        const struct op_graph *o = &h.o;
        struct plain first = plain_new(o, NH_SITE_EXPERT_IN, NH_ROLE_MATMUL_OUT),
                     last = plain_new(o, NH_SITE_EXPERT_OUT, NH_ROLE_MATMUL_OUT),
                     sum = plain_new(o, NH_SITE_EXPERT_SUM, NH_ROLE_ACTIVATION);
        static double f[ROWS * K * M], l[ROWS * K * D], s[ROWS * D];
        for (int i = 0; i < ROWS; i++) {
            int e[K];
            two_of(i, &e[0], &e[1]);
            unsigned inputs;
            bool over;
            for (int j = 0; j < K; j++)
                for (int k = 0; k < M; k++) {
                    double v = plain_dot(o, D, in + i * D, 1, w_in + (e[j] * M + k) * D, 1, &inputs, &over);
                    int at = (i * K + j) * M + k;
                    f[at] = plain_store(&first, v, inputs, over, (uint64_t)at);
                }
            double a[K * M];
            for (int k = 0; k < K * M; k++)
                a[k] = f[i * K * M + k] < 0 ? 0 : f[i * K * M + k];
            for (int j = 0; j < K; j++)
                for (int k = 0; k < D; k++) {
                    double v = plain_dot(o, M, a + j * M, 1, w_out + (e[j] * D + k) * M, 1, &inputs, &over);
                    int at = (i * K + j) * D + k;
                    l[at] = plain_store(&last, v, inputs, over, (uint64_t)at);
                }
            for (int k = 0; k < D; k++) {
                double low = l[i * K * D + k], high = l[i * K * D + D + k], v = in_type(o, 0.5 * low + 0.5 * high);
                s[i * D + k] = plain_store(&sum, v, flag_of(low) | flag_of(high), false, (uint64_t)(i * D + k));
            }
        }
        op_read(o, h.weights, y);
        for (int i = 0; i < ROWS * K; i++)
            assert_same(y[i], 0.5);
        op_read(o, h.first, y), assert_all_same(y, f, ROWS * K * M), assert_counts(o, &first);
        op_read(o, h.last, y), assert_all_same(y, l, ROWS * K * D), assert_counts(o, &last);
        op_read(o, h.sum, y), assert_all_same(y, s, ROWS * D), assert_counts(o, &sum);
        const struct plain *of[] = {&first, &last, &sum};
        for (int i = 0; i < 3; i++) {
            if (of[i]->first.kind == NH_NO_OFFENCE)
                continue;
            assert_first(o, of[i]->first.kind, of[i]->site, of[i]->first.index, of[i]->first.value);
            break; /* the first of all is that of the first site */
        }
        trouble += first.counts.overflow + last.counts.overflow + first.counts.propagated;
        op_free(&h.o);
    }
    ck_assert_uint_gt(trouble, 0);
}
END_TEST

/** Sum of n products on top of what is there, every step rounded. */
static double rounded_dot(const struct nh_fmt *f, double sum, int n, const double *a, int step_a, const double *c,
                          int step_c)
{
    for (int i = 0; i < n; i++)
        sum = nh_fma_round(f, sum, a[i * step_a], c[i * step_c]);
    return sum;
}

/** dx is one sum over the experts of a token in their order, rounded as it goes with --accum dtype; dW one over the
 * tokens. */
START_TEST(gradients_of_experts_are_summed_in_the_format)
{
    static const char *const dtypes[] = {"fp16", "bf16", "e5m12"};
    struct nh_config c = op_config(dtypes[_i]);
    c.accum = NH_WIDE_DTYPE;
    uint64_t state = 5;
    small_integers(&state, 1);
    for (int i = 0; i < ROWS * D; i++)
        in[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
    for (int i = 0; i < E * M * D; i++)
        w_in[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
    struct op_graph o = op_new(&c, 1, ROWS);
    nh_val x = op_input(&o, D, NH_ROLE_MATMUL_IN), z = op_input(&o, E, NH_ROLE_MATMUL_OUT);
    int bias = op_param(&o, 1, E, NH_ROLE_SOFTMAX), w = op_param(&o, E * M, D, NH_ROLE_WEIGHT);
    struct nh_rec *r = op_rec(&o, NH_OP_ROUTE, K, NH_SITE_ROUTE, NH_ROLE_SOFTMAX);
    r->in[0] = z, r->par[0] = bias, r->u.route.scale = 1;
    o.g->exit_value = op_experts(&o, x, r->out, w, 1, NH_SITE_EXPERT_IN), o.g->head_rec = o.g->n_recs;
    o.g->values[x].watched = true;
    op_close_with(&o, 2, true);
    op_set(&o, x, in), op_set(&o, z, logits), op_set_all(&o, bias, 0);
    o.core->set_param(o.x, w, w_in);
    op_run(&o);
    static double dy[ROWS * K * M];
    for (int i = 0; i < ROWS * K * M; i++)
        dy[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
    o.core->backward(o.x, 1, dy);
    o.core->read_grad(o.x, x, y);
    static double dw[E * M * D];
    for (int i = 0; i < ROWS; i++) {
        int e[K];
        two_of(i, &e[0], &e[1]);
        for (int k = 0; k < D; k++) {
            double sum = 0;
            for (int j = 0; j < K; j++)
                sum = rounded_dot(&c.dtype, sum, M, dy + (i * K + j) * M, 1, w_in + e[j] * M * D + k, D);
            assert_same(y[i * D + k], sum);
        }
        for (int j = 0; j < K; j++)
            for (int m = 0; m < M; m++)
                for (int k = 0; k < D; k++) {
                    double *to = &dw[(e[j] * M + m) * D + k];
                    *to = nh_fma_round(&c.dtype, *to, dy[(i * K + j) * M + m], in[i * D + k]);
                }
    }
    o.core->read_param_grad(o.x, w, y);
    assert_all_same(y, dw, E * M * D);
    memset(dw, 0, sizeof dw);
    op_free(&o);
}
END_TEST

/** One expert whose second matrix is too large for fp16: its tokens overflow there and nowhere else, and pass it on. */
START_TEST(overflow_in_an_expert_named_elsewhere)
{
    static const struct form f = {NH_FFN_RELU, 20, 4, 2, 5, 2, 0, 1};
    for (int threads = 1; threads <= 3; threads++) {
        struct moe m;
        moe_begin(&m, "fp16", &f, threads);
        struct numbers a = numbered(&m, &f);
        for (size_t i = 0; i < a.n[X]; i++)
            a.at[X][i] = i / 4 % 2 ? -1 : 1;
        for (int e = 0; e < 5; e++)
            for (int k = 0; k < 4; k++) /* tokens of -1 go to 3 and 4, and relu gives 0; those of 1 to 0 and 1 */
                a.at[ROUTER][e * 4 + k] = e < 2 ? 1 : e == 2 ? 0 : -1;
        for (int i = 0; i < 2 * 4; i++)
            a.at[OUT][1 * 8 + i] = 60000; /* two of them */
        run(&m, &a);
        assert_trouble(&m.o, NH_SITE_EXPERT_IN, 0, 0, 0, 0);
        assert_trouble(&m.o, NH_SITE_EXPERT_OUT, 10 * 4, 0, 0, 0);
        assert_trouble(&m.o, NH_SITE_EXPERT_SUM, 0, 0, 10 * 4, 0);
        assert_first(&m.o, NH_OVERFLOW, NH_SITE_EXPERT_OUT, 4, 120000);
        op_read(&m.o, m.out, y);
        for (int i = 0; i < 80; i++)
            ck_assert_int_eq(isinf(y[i]), i / 4 % 2 == 0);
        numbers_free(&a), op_free(&m.o);
    }
}
END_TEST

/** Large enough for several blocks of rows, with tokens shared out unevenly. */
START_TEST(threads_move_bits)
{
    static const struct form f = {NH_FFN_SWIGLU, 300, 16, 8, 7, 3, 1, 2.826};
    static const char *const dtypes[] = {"fp16", "bf16", "fp32", "fp64"};
    static double kept[4][MOST];
    for (int threads = 1; threads <= 4; threads++) {
        struct moe m;
        moe_begin(&m, dtypes[_i], &f, threads);
        struct numbers a = numbers_of(&m);
        draw(&a, 6);
        a.at[BIAS][2] = 1;
        run(&m, &a);
        double *to = kept[threads - 1];
        size_t n = 0;
        op_read(&m.o, m.out, to), n += a.n[X];
        for (size_t i = 0; i < a.n[X]; i++)
            y[i] = nh_round(&m.config.dtype, cos((double)i));
        m.o.core->backward(m.o.x, 1024, y);
        m.o.core->read_grad(m.o.x, m.in, to + n), n += a.n[X];
        for (int t = ROUTER; t < N_TENSORS; n += a.n[t++])
            m.o.core->read_param_grad(m.o.x, m.param[t], to + n);
        ck_assert_uint_le(n, MOST);
        assert_all_same(to, kept[0], n);
        numbers_free(&a), op_free(&m.o);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_experts");
    TCase *tc = tcase_create("ops_experts");
    tcase_add_loop_test(tc, output_of_another_mixture, 0, COUNT(forms));
    tcase_add_loop_test(tc, gradient_of_another_mixture, 0, COUNT(forms));
    tcase_add_loop_test(tc, jacobian_of_another_mixture, 0, COUNT(forms));
    tcase_add_loop_test(tc, tie_goes_to_a_higher_number, 0, 5);
    tcase_add_test(tc, one_expert_has_all_tokens);
    tcase_add_loop_test(tc, bad_logits_crash_the_router, 0, 4);
    tcase_add_loop_test(tc, weights_in_the_narrow_format, 0, 4);
    tcase_add_loop_test(tc, experts_agree_with_the_plain_reference, 0, 6);
    tcase_add_loop_test(tc, gradients_of_experts_are_summed_in_the_format, 0, 3);
    tcase_add_test(tc, overflow_in_an_expert_named_elsewhere);
    tcase_add_loop_test(tc, threads_move_bits, 0, 4);
    return run_suite(suite, tc);
}
