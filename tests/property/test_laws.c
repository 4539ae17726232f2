// SPDX-License-Identifier: GPL-3.0-or-later
/** Whole models at their start against the laws of the stream and of its gradient: means over seeds, which are fixed, so
 *  that a bound holds or fails once and for all. */
#include "harness/core/law.h"
#include "harness/core/rng.h"
#include "tests/property/model_config.h"

#include <check.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_randist.h>
#include <math.h>

enum { MAX_STEPS = 2 * 96 + 2, MAX_SEEDS = 16 };

static struct nh_data *data;

/** What one run gives: q and, where asked, G and the law's q after each sublayer; entry 0 is the stream that enters layer 1. */
struct stream {
    int n;
    double q[MAX_STEPS], g[MAX_STEPS], law[MAX_STEPS];
};

enum ask { FORWARD, LAW, GRADIENT };

/** Mean over the batch of the T x T matrices x_t . x_u / width; to be freed. */
static double *gram_of(const struct nh_model *m, nh_val v)
{
    size_t seq = (size_t)m->graph->seq, width = (size_t)m->graph->values[v].cols, batch = (size_t)m->graph->batch;
    double *x = value_of(m, v), *gram = zeros(seq * seq, sizeof *gram);
    for (size_t b = 0; b < batch; b++)
        for (size_t t = 0; t < seq; t++)
            for (size_t u = 0; u < seq; u++) {
                const double *xt = x + (b * seq + t) * width, *xu = x + (b * seq + u) * width;
                double s = 0;
                for (size_t i = 0; i < width; i++)
                    s += xt[i] * xu[i];
                gram[t * seq + u] += s / (double)(width * batch);
            }
    free(x);
    return gram;
}

/** A cotangent of unit variance at the exit; to be freed. */
static double *cotangent_of(const struct nh_model *m, uint64_t seed)
{
    size_t n = value_size(m->graph, m->graph->exit_value);
    double *u = zeros(n, sizeof *u);
    gsl_rng *rng = nh_rng_new(seed, UINT64_C(2) << 32, 0);
    for (size_t i = 0; i < n; i++)
        u[i] = gsl_ran_gaussian_ziggurat(rng, 1);
    gsl_rng_free(rng);
    return u;
}

static void run(const struct nh_config *config, uint64_t seed, enum ask ask, struct stream *s)
{
    struct nh_config c = *config;
    struct nh_model m;
    c.seed = seed, c.batch = data->batch, c.seq = data->seq, c.vocab = data->vocab;
    int *tokens = zeros((size_t)c.batch * (size_t)c.seq, sizeof *tokens);
    must(nh_data_batch(data, seed, tokens));
    must(nh_model_create(&m, &c, c.batch, c.seq, c.vocab, tokens, ask == GRADIENT));
    free(tokens);
    m.core->forward(m.exec);
    const struct nh_step *steps = m.graph->steps;
    s->n = m.graph->n_steps - 1; /* the last is the exit */
    for (int k = 0; k < s->n; k++) {
        struct nh_moments x = m.core->moments(m.exec, steps[k].after);
        s->q[k] = x.sum_sq / x.n;
    }
    if (ask == LAW) {
        double *gram = gram_of(&m, steps[0].after);
        must(nh_law_rms(&c, gram, s->law + 1));
        for (int k = 1; k < s->n; k++)
            s->law[k] *= s->law[k];
        free(gram);
    }
    if (ask == GRADIENT) {
        double *u = cotangent_of(&m, seed);
        m.core->backward(m.exec, 1, u);
        for (int k = 0; k < s->n; k++)
            s->g[k] = m.core->grad_sum_sq(m.exec, steps[k].after) / (double)value_size(m.graph, steps[k].after);
        free(u);
    }
    nh_model_destroy(&m);
}

/** Seeds 0, 1, ... side by side, each on one thread. */
static void run_seeds(const struct nh_config *config, int n_seeds, enum ask ask, struct stream *s)
{
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n_seeds; i++)
        run(config, (uint64_t)i, ask, &s[i]);
}

static double final_rms(const struct stream *s)
{
    return sqrt(s->q[s->n - 1]);
}

static double mean_rms(const struct nh_config *config)
{
    static struct stream s[MAX_SEEDS];
    double sum = 0;
    run_seeds(config, MAX_SEEDS, FORWARD, s);
    for (int i = 0; i < MAX_SEEDS; i++)
        sum += final_rms(&s[i]) / MAX_SEEDS;
    return sum;
}

static double slope(const double *x, const double *y, size_t n)
{
    double c0, c1, v00, v01, v11, rest;
    ck_assert_int_eq(gsl_fit_linear(x, 1, y, 1, n, &c0, &c1, &v00, &v01, &v11, &rest), 0);
    return c1;
}

/* ---- forward ---- */

static const struct {
    const char *words;
    double rms, tolerance; /* relative */
} ends[] = {
    {"--layout sandwich", 11.00, 0.04},               /* sqrt(1 + 2L) */
    {"--layout sandwich-depth", 1.732, 0.03},         /* sqrt(1 + 2) */
    {"--layout sandwich-l", 3.219, 0.04},             /* sqrt(1 + 2 H_L) */
    {"--layout post", 1, 1e-4},                       /* eps */
    {"--layout pre --branches ffn", 5.149, 0.04},     /* sqrt(1 + 0.42522 L) */
};

START_TEST(final_rms_at_60_layers)
{
    char words[128];
    snprintf(words, sizeof words, "%s --depth 60 --embed-rms 1", ends[_i].words);
    struct nh_config c = config_of(words);
    double rms = mean_rms(&c);
    printf("# %s: final RMS %.5f, law %g\n", words, rms, ends[_i].rms);
    ck_assert_double_eq_tol(rms, ends[_i].rms, ends[_i].tolerance * ends[_i].rms);
}
END_TEST

START_TEST(sandwich_depth_is_flat_in_depth)
{
    double least = INFINITY, most = 0;
    for (int depth = 6; depth <= 96; depth *= 2) {
        struct nh_config c = config_of("--layout sandwich-depth --embed-rms 1");
        c.depth = depth;
        double rms = mean_rms(&c);
        printf("# sandwich-depth, L %d: final RMS %.4f\n", depth, rms);
        least = fmin(least, rms), most = fmax(most, rms);
    }
    ck_assert_double_le(most / least, 1.04);
}
END_TEST

START_TEST(scaled_init_follows_its_law)
{
    static struct stream s[MAX_SEEDS];
    struct nh_config c = config_of("--layout pre --depth 60 --branches ffn --init gpt2");
    double sum = 0, law = 0;
    run_seeds(&c, MAX_SEEDS, LAW, s);
    for (int i = 0; i < MAX_SEEDS; i++)
        sum += final_rms(&s[i]) / MAX_SEEDS, law += sqrt(s[i].law[s[i].n - 1]) / MAX_SEEDS;
    printf("# gpt2 init, pre, FFN only, L 60: RMS %.5f, law %.5f, at the start %.5f\n", sum, law, sqrt(s[0].q[0]));
    ck_assert_double_eq_tol(sum, law, 0.05 * law);
    ck_assert_double_ge(law, 1.5 * sqrt(s[0].q[0])); /* the stream has grown: the law has something to say */
}
END_TEST

static const struct {
    const char *words;
    bool plain; /* against log L, not the law */
    double slope, tolerance;
} exponents[] = {
    {"--layout sandwich --embed-rms 1", false, 1, 0.06},
    {"--layout pre --branches ffn --embed-rms 1", false, 1, 0.06},
    {"--layout sandwich-depth --embed-rms 1", true, 0, 0.03},
};

START_TEST(exponent_in_depth)
{
    enum { SEEDS = 8 };
    static struct stream s[SEEDS];
    double x[4 * SEEDS], y[4 * SEEDS];
    size_t n = 0;
    for (int depth = 8; depth <= 64; depth *= 2) {
        struct nh_config c = config_of(exponents[_i].words);
        c.depth = depth;
        run_seeds(&c, SEEDS, exponents[_i].plain ? FORWARD : LAW, s);
        for (int i = 0; i < SEEDS; i++, n++) {
            x[n] = exponents[_i].plain ? log(depth) : log(s[i].law[s[i].n - 1]);
            y[n] = log(exponents[_i].plain ? final_rms(&s[i]) : s[i].q[s[i].n - 1]);
        }
    }
    double b = slope(x, y, n);
    printf("# %s: slope %.4f on %s\n", exponents[_i].words, b, exponents[_i].plain ? "log L" : "log of the law");
    ck_assert_double_eq_tol(b, exponents[_i].slope, exponents[_i].tolerance);
}
END_TEST

/* ---- backward ---- */

static const struct {
    const char *words;
    double slope; /* -zeta */
} gradients[] = {
    {"--layout pre --ffn relu", -1},
    {"--layout sandwich --ffn relu", -1},
    {"--layout pre --ffn gelu", -1.07},
    {"--layout sandwich --ffn gelu", -1.07},
};

START_TEST(gradient_falls_as_the_stream_grows)
{
    enum { SEEDS = 8 };
    static struct stream s[SEEDS];
    char words[128];
    snprintf(words, sizeof words, "%s --branches ffn --depth 32 --eps 1e-8 --embed-rms 1", gradients[_i].words);
    struct nh_config c = config_of(words);
    run_seeds(&c, SEEDS, GRADIENT, s);
    double x[SEEDS * MAX_STEPS], y[SEEDS * MAX_STEPS], low = INFINITY, high = -INFINITY;
    size_t n = 0;
    for (int i = 0; i < SEEDS; i++) {
        size_t first = n;
        for (int k = 0; k < s[i].n; k++, n++)
            x[n] = log(s[i].q[k]), y[n] = log(s[i].g[k]);
        double one = slope(x + first, y + first, n - first);
        low = fmin(low, one), high = fmax(high, one);
    }
    double b = slope(x, y, n);
    printf("# %s: slope %.4f, single seeds %.3f to %.3f\n", words, b, low, high);
    ck_assert_double_eq_tol(b, gradients[_i].slope, 0.1);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void)
{
    gsl_set_error_handler_off();
    if (nh_data_open(&data, "fashion-mnist", &(struct nh_data_request){0}))
        must(nh_data_open(&data, "uniform", &(struct nh_data_request){.seq = 51, .vocab = 48}));
    Suite *suite = suite_create("laws");
    TCase *tc = tcase_create("laws");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, final_rms_at_60_layers, 0, COUNT(ends));
    tcase_add_test(tc, sandwich_depth_is_flat_in_depth);
    tcase_add_test(tc, scaled_init_follows_its_law);
    tcase_add_loop_test(tc, exponent_in_depth, 0, COUNT(exponents));
    tcase_add_loop_test(tc, gradient_falls_as_the_stream_grows, 0, COUNT(gradients));
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    nh_data_close(data);
    return failed != 0;
}
