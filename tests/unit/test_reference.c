// SPDX-License-Identifier: GPL-3.0-or-later
/** The reference against the program, against central differences, and its optimizers against closed forms. */
#include "harness/core/rng.h"
#include "tests/unit/reference_model.h"
#include "tests/suite.h"

#include <check.h>

#define COUNT(a)                                ((int)(sizeof(a) / sizeof *(a)))
#define assert_near(value, expected, tolerance) ck_assert_double_eq_tol(value, expected, tolerance)

/* ---- models: layouts x norms x forms of the FFN ---- */

enum { N_MODELS = 3 * 2 * 2 };

static struct nh_config model_config(int i)
{
    static const char *const norms[] = {"rms", "layer"}, *const forms[] = {"gelu", "swiglu"};
    char words[256];
    snprintf(words, sizeof words,
             "--layout %s --norm %s --ffn %s --dtype fp64 --pos learned --depth 2 --width 12 --heads 3 --ffn-mult 2 "
             "--batch 3 --seq 7 --vocab 11",
             ref_layouts[i / 4], norms[i / 2 % 2], forms[i % 2]);
    return config_of(words);
}

/** Moves all parameters away from their start, so that gains are not 1 and biases not 0. */
static void disturb(struct nh_model *m)
{
    struct nh_rng_state state;
    gsl_rng rng = {nh_rng_type, &state};
    nh_rng_start(&rng, 7, 0, 0);
    for (int p = 0; p < m->graph->n_params; p++) {
        double *w = param_of(m, p);
        for (size_t i = 0; i < param_size(m->graph, p); i++)
            w[i] += 0.3 * nh_rng_normal(&rng);
        m->core->set_param(m->exec, p, w);
        free(w);
    }
}

/** |a - b| / |b| */
static double distance(const double *a, const double *b, size_t n)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++)
        off += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
    return sqrt(off / size);
}

START_TEST(loss_and_gradients_of_the_program)
{
    struct nh_config c = model_config(_i);
    struct nh_model m = model_of(&c, true);
    disturb(&m);
    struct reference *r = reference_of(&c, &m);
    int *tokens = tokens_of(&c);
    double loss = ref_forward(r, tokens);
    assert_near(m.core->forward(m.exec), loss, 1e-12 * loss);
    ref_backward(r, tokens, 1);
    m.core->backward(m.exec, 1, NULL);
    for (int p = 0; p < m.graph->n_params; p++) {
        double *g = zeros(param_size(m.graph, p), sizeof *g);
        m.core->read_param_grad(m.exec, p, g);
        double d = distance(g, ref_param_of(r, m.graph, p)->g, param_size(m.graph, p));
        ck_assert_msg(d < 1e-10, "%s: %g", m.graph->params[p].name, d);
        free(g);
    }
    free(tokens);
    ref_destroy(r);
    nh_model_destroy(&m);
}
END_TEST

/** (f(w + h) - f(w - h)) / 2h is off by h^2/6 times the third derivative, which is of the order of 100 here, and by
 * some 1e-16/h. */
START_TEST(gradient_by_differences)
{
    struct nh_config c = model_config(_i);
    struct nh_model m = model_of(&c, false);
    disturb(&m);
    struct reference *r = reference_of(&c, &m);
    int *tokens = tokens_of(&c);
    const double h = 1e-5;
    ref_forward(r, tokens);
    ref_backward(r, tokens, 1);
    for (struct ref_param *p = r->params; p < r->params + r->n_params; p++) {
        for (size_t i = 0; i < p->size; i += p->size / 12 + 1) {
            double w = p->w[i];
            p->w[i] = w + h;
            double up = ref_forward(r, tokens);
            p->w[i] = w - h;
            double down = ref_forward(r, tokens);
            p->w[i] = w;
            double d = fabs((up - down) / (2 * h) - p->g[i]);
            ck_assert_msg(d < 1e-8, "%s[%zu]: %g beside %g", p->name, i, d, p->g[i]);
        }
    }
    free(tokens);
    ref_destroy(r);
    nh_model_destroy(&m);
}
END_TEST

/* ---- steps ---- */

static struct reference *small_reference(size_t batch)
{
    return ref_create(&(struct ref_shape){.layout = REF_SANDWICH,
                                          .layer_norm = true,
                                          .gated = true,
                                          .depth = 1,
                                          .width = 6,
                                          .heads = 2,
                                          .hidden = 9,
                                          .vocab = 10,
                                          .batch = batch,
                                          .seq = 5,
                                          .eps = 1e-5});
}

static struct ref_options options_of(enum ref_optimizer optimizer)
{
    return (struct ref_options){.optimizer = optimizer,
                                .lr = 0.01,
                                .weight_decay = 0.1,
                                .momentum = 0.9,
                                .beta1 = 0.8,
                                .beta2 = 0.95,
                                .adam_eps = 1e-3,
                                .steps = 100};
}

START_TEST(rates)
{
    static const struct {
        enum ref_schedule schedule;
        int step;
        double rate;
    } cases[] = {
        {REF_CONSTANT, 0, 0.5}, {REF_CONSTANT, 2, 1.5}, {REF_CONSTANT, 3, 2},
        {REF_CONSTANT, 4, 2},   {REF_CONSTANT, 23, 2},  {REF_LINEAR, 4, 2},
        {REF_LINEAR, 9, 1.5},   {REF_LINEAR, 23, 0.1},  {REF_COSINE, 4, 2},
        {REF_COSINE, 14, 1},    {REF_COSINE, 1, 1},     {REF_COSINE, 9, 1 + M_SQRT1_2},
        {REF_WSD, 3, 2},        {REF_WSD, 19, 2},       {REF_WSD, 20, 2},
        {REF_WSD, 21, 1.5},     {REF_WSD, 23, 0.5},     {REF_COSINE, 19, 1 - M_SQRT1_2},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        struct ref_options o = {.schedule = cases[i].schedule, .lr = 2, .warmup = 4, .steps = 24};
        assert_near(ref_rate(&o, cases[i].step), cases[i].rate, 1e-14);
    }
}
END_TEST

/** n micro-batches have the loss and the gradient of one batch of n times the size. */
START_TEST(micro_batches)
{
    enum { MICRO = 3, BATCH = 2 };
    struct reference *parts = small_reference(BATCH), *whole = small_reference(MICRO * BATCH);
    struct nh_rng_state state;
    gsl_rng rng = {nh_rng_type, &state};
    nh_rng_start(&rng, 3, 0, 0);
    for (size_t p = 0; p < whole->n_params; p++)
        for (size_t i = 0; i < whole->params[p].size; i++)
            parts->params[p].w[i] = whole->params[p].w[i] = nh_rng_normal(&rng);
    int tokens[MICRO * BATCH * 5];
    for (int i = 0; i < COUNT(tokens); i++)
        tokens[i] = i * i % 10;
    struct ref_options o = options_of(REF_SGD);
    for (int step = 0; step < 2; step++) {
        double loss = ref_step(whole, tokens, 1, step, &o);
        assert_near(ref_step(parts, tokens, MICRO, step, &o), loss, 1e-14 * loss);
    }
    assert_near(parts->grad_norm, whole->grad_norm, 1e-12 * whole->grad_norm);
    for (size_t p = 0; p < whole->n_params; p++)
        ck_assert(distance(parts->params[p].w, whole->params[p].w, whole->params[p].size) < 1e-13);
    ref_destroy(parts), ref_destroy(whole);
}
END_TEST

/** The gradient (3, 4) in two tensors: its norm is 5. */
START_TEST(clipping)
{
    static const struct {
        double clip, factor;
    } cases[] = {{0, 1}, {6, 1}, {5, 1}, {1, 0.2}};
    for (int i = 0; i < COUNT(cases); i++) {
        struct reference *r = small_reference(1);
        struct ref_options o = options_of(REF_SGD);
        o.clip = cases[i].clip;
        r->embed->g[1] = 3, r->final.gain->g[0] = 4;
        ref_update(r, &o, 0);
        ck_assert_double_eq(r->grad_norm, 5);
        assert_near(r->embed->w[1], -0.01 * 3 * cases[i].factor, 1e-16);
        assert_near(r->final.gain->w[0], -0.01 * 4 * cases[i].factor, 1e-16);
        ref_destroy(r);
    }
}
END_TEST

/** Momentum of a constant gradient g: (1 - mu^t) g / (1 - mu). A gain does not decay. */
START_TEST(sgd)
{
    struct reference *r = small_reference(1);
    struct ref_options o = options_of(REF_SGD);
    double w = 2, gain = 2;
    r->embed->w[0] = w, r->final.gain->w[0] = gain;
    r->embed->g[0] = 3, r->final.gain->g[0] = 3;
    for (int t = 1; t <= 10; t++) {
        double step = 0.01 * 3 * (1 - pow(0.9, t)) / (1 - 0.9);
        w = w * (1 - 0.01 * 0.1) - step, gain -= step;
        ref_update(r, &o, t - 1);
        assert_near(r->embed->w[0], w, 1e-14);
        assert_near(r->final.gain->w[0], gain, 1e-14);
    }
    ref_destroy(r);
}
END_TEST

/** Corrected moments of a constant gradient g are g and g^2; those of g and then 0 follow from the sums. */
START_TEST(adamw)
{
    struct reference *r = small_reference(1);
    struct ref_options o = options_of(REF_ADAMW);
    double w = 2, gain = 2, g = -0.02, step = 0.01 * g / (fabs(g) + 1e-3);
    r->embed->w[0] = w, r->final.gain->w[0] = gain;
    r->embed->g[0] = g, r->final.gain->g[0] = g;
    for (int t = 1; t <= 10; t++) {
        w = w * (1 - 0.01 * 0.1) - step, gain -= step;
        ref_update(r, &o, t - 1);
        assert_near(r->embed->w[0], w, 1e-14);
        assert_near(r->final.gain->w[0], gain, 1e-14);
    }
    r->embed->g[0] = 0;
    ref_update(r, &o, 10);
    double m = g * (0.8 - pow(0.8, 11)) / (1 - pow(0.8, 11)), v = g * g * (0.95 - pow(0.95, 11)) / (1 - pow(0.95, 11));
    assert_near(r->embed->w[0], w * (1 - 0.01 * 0.1) - 0.01 * m / (sqrt(v) + 1e-3), 1e-14);
    ref_destroy(r);
}
END_TEST

/* ---- Muon on matrices of known singular vectors: column i of H(a) and column i of H(b), H(a) = I - 2 a a'/|a|^2 ----
 */

static double householder(size_t n, double seed, size_t i, size_t j)
{
    double norm = 0, a[2] = {sin(seed + (double)i), sin(seed + (double)j)};
    for (size_t k = 0; k < n; k++)
        norm += pow(sin(seed + (double)k), 2);
    return (i == j) - 2 * a[0] * a[1] / norm;
}

/** sum_i s_i u_i v_i', n singular values. */
static void compose(size_t rows, size_t cols, size_t n, const double *s, double seed, double *x)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            x[i * cols + j] = 0;
            for (size_t k = 0; k < n; k++)
                x[i * cols + j] += s[k] * householder(rows, seed, i, k) * householder(cols, seed + 1, j, k);
        }
}

/** A Newton-Schulz step leaves the singular vectors and moves each value s to a s + b s^3 + c s^5. */
static void orthogonalise(double *s, size_t n)
{
    double norm = 0;
    for (size_t i = 0; i < n; i++)
        norm += s[i] * s[i];
    for (size_t i = 0; i < n; i++) {
        s[i] /= sqrt(norm) + 1e-7;
        for (int k = 0; k < 5; k++)
            s[i] = 3.4445 * s[i] - 4.7750 * pow(s[i], 3) + 2.0315 * pow(s[i], 5);
    }
}

/** Two gradients of the same singular vectors, each part of a tensor with its own: square, tall, wide. */
START_TEST(muon)
{
    static const struct {
        const char *name;
        size_t n_parts;
    } cases[] = {{"layers.1.attn.qkv", 3}, {"layers.1.attn.out", 1}, {"layers.1.ffn.in", 2}, {"layers.1.ffn.out", 1}};
    enum { N = 6, LARGEST = 2 * 9 * 6 };
    struct reference *r = small_reference(1);
    struct ref_options o = options_of(REF_MUON);
    for (int i = 0; i < COUNT(cases); i++) {
        struct ref_param *p = ref_param(r, cases[i].name);
        ck_assert_uint_eq(p->n_parts, cases[i].n_parts);
        size_t rows = p->rows / p->n_parts, cols = p->cols, size = rows * cols;
        double w[LARGEST] = {0}, x[LARGEST], scale = 0.2 * sqrt((double)(rows > cols ? rows : cols));
        for (int t = 0; t < 2; t++) {
            for (size_t part = 0; part < p->n_parts; part++) {
                double s[N], u[N];
                for (size_t k = 0; k < N; k++) {
                    double first = pow(10, (double)part) * (double)(k + 1),
                           second = pow(10, (double)part) * (double)(N - k);
                    s[k] = t == 0 ? first : second;
                    u[k] = s[k] + 0.9 * (t == 0 ? first : 0.9 * first + second);
                }
                compose(rows, cols, N, s, (double)part, p->g + part * size);
                orthogonalise(u, N);
                compose(rows, cols, N, u, (double)part, x);
                for (size_t k = 0; k < size; k++)
                    w[part * size + k] = (1 - 0.01 * 0.1) * w[part * size + k] - 0.01 * scale * x[k];
            }
            ref_update(r, &o, t);
            for (size_t k = 0; k < p->size; k++)
                assert_near(p->w[k], w[k], 1e-14);
        }
        memset(p->g, 0, p->size * sizeof *p->g);
    }
    ref_destroy(r);
}
END_TEST

/** What is no hidden matrix goes to AdamW. */
START_TEST(muon_leaves_the_rest_to_adamw)
{
    static const char *const names[] = {"embed", "positions", "head", "norm_final.bias", "layers.1.ffn.norm_post.gain"};
    struct reference *r = small_reference(1);
    struct ref_options o = options_of(REF_MUON);
    for (int i = 0; i < COUNT(names); i++)
        ref_param(r, names[i])->g[0] = 0.02;
    ref_update(r, &o, 0);
    for (int i = 0; i < COUNT(names); i++)
        assert_near(ref_param(r, names[i])->w[0], -0.01 * 0.02 / (0.02 + 1e-3), 1e-15);
    ref_destroy(r);
}
END_TEST

int main(void)
{
    keep_memory();
    Suite *suite = suite_create("reference");
    TCase *tc = tcase_create("reference");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, loss_and_gradients_of_the_program, 0, N_MODELS);
    tcase_add_loop_test(tc, gradient_by_differences, 0, N_MODELS);
    tcase_add_test(tc, rates);
    tcase_add_test(tc, micro_batches);
    tcase_add_test(tc, clipping);
    tcase_add_test(tc, sgd);
    tcase_add_test(tc, adamw);
    tcase_add_test(tc, muon);
    tcase_add_test(tc, muon_leaves_the_rest_to_adamw);
    return run_suite(suite, tc);
}
