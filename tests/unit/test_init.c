// SPDX-License-Identifier: GPL-3.0-or-later
/** Start weights: deviations by recipe, the draw, the generator. Sample statistics of fixed seeds: a bound of 4
 *  standard errors holds or fails once and for all. */
#include "harness/core/init.h"
#include "harness/core/rng.h"
#include "tests/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_INITS = NH_INIT_PANGU + 1 };

static const struct nh_layout plain = {.name = "plain"};

static struct nh_config config_of(enum nh_init init)
{
    return (struct nh_config){
        .layout = &plain,
        .depth = 12,
        .width = 128,
        .heads = 4,
        .kv_heads = 4,
        .ffn_mult = 4,
        .init = init,
        .embed_scale = 1,
        .embed_shrink = 1,
        .seed = 1,
    };
}

static double std_of(const struct nh_config *c, enum nh_weight weight, int layer)
{
    struct nh_pos pos = {.layer = layer, .depth = c->depth, .kind = weight <= NH_W_O ? NH_ATTN : NH_FFN};
    return nh_weight_std(c, weight, &pos);
}

#define assert_std(config, weight, expected) ck_assert_double_eq_tol(std_of(config, weight, 3), expected, 1e-9)

/* ---- shapes and deviations ---- */

static void assert_shape(const struct nh_config *c, enum nh_weight weight, int out, int in)
{
    int o, i;
    nh_weight_shape(c, weight, &o, &i);
    ck_assert_int_eq(o, out);
    ck_assert_int_eq(i, in);
}

START_TEST(shapes)
{
    struct nh_config c = config_of(NH_INIT_UNIT);
    c.width = 96, c.heads = 8, c.kv_heads = 2, c.ffn_mult = 2.6667;
    assert_shape(&c, NH_W_Q, 96, 96);
    assert_shape(&c, NH_W_K, 24, 96);
    assert_shape(&c, NH_W_V, 24, 96);
    assert_shape(&c, NH_W_O, 96, 96);
    assert_shape(&c, NH_W_IN, 256, 96);
    assert_shape(&c, NH_W_GATE, 256, 96);
    assert_shape(&c, NH_W_OUT, 96, 256);
}
END_TEST

START_TEST(deviations)
{
    const double d = 128;
    struct nh_config c = config_of(NH_INIT_UNIT);
    assert_std(&c, NH_W_Q, 1 / sqrt(d));
    assert_std(&c, NH_W_OUT, 1 / sqrt(4 * d));
    ck_assert_double_eq(nh_embed_std(&c), 1);
    ck_assert_double_eq(nh_head_std(&c), 1 / sqrt(d));
    ck_assert_double_eq(nh_init_embed_scale(&c), 1);

    c = config_of(NH_INIT_NORMAL);
    for (enum nh_weight w = NH_W_Q; w <= NH_W_OUT; w++)
        assert_std(&c, w, 0.02);
    ck_assert_double_eq(nh_embed_std(&c), 0.02);
    ck_assert_double_eq(nh_head_std(&c), 0.02);

    c = config_of(NH_INIT_XAVIER);
    c.kv_heads = 1;
    assert_std(&c, NH_W_Q, sqrt(2 / (2 * d)));
    assert_std(&c, NH_W_V, sqrt(2 / (d + d / 4)));
    assert_std(&c, NH_W_IN, sqrt(0.4 / d)); /* hidden pre-activations of variance 0.4 */
    assert_std(&c, NH_W_OUT, sqrt(1.6 / (4 * d)));
    ck_assert_double_eq_tol(nh_embed_std(&c) * nh_init_embed_scale(&c), 1, 1e-15);
    ck_assert_double_eq(nh_head_std(&c), 1 / sqrt(d));

    c = config_of(NH_INIT_TRINITY);
    for (enum nh_weight w = NH_W_Q; w <= NH_W_OUT; w++)
        assert_std(&c, w, 0.4932892 / sqrt(d));
    ck_assert_double_eq_tol(nh_embed_std(&c) * nh_init_embed_scale(&c), 0.49329, 5e-6);
    ck_assert_double_eq_tol(nh_head_std(&c) * nh_head_std(&c) * d, 0.2433, 5e-5);

    c = config_of(NH_INIT_PANGU);
    for (enum nh_weight w = NH_W_Q; w <= NH_W_OUT; w++)
        assert_std(&c, w, sqrt(1 / (2 * d * 12)));
    ck_assert_double_eq(nh_embed_std(&c), 0.5);
}
END_TEST

/** Seen in public: the scaled deviation went to the up matrix in place of the down projection. */
START_TEST(scaled_init_hits_the_output_projections)
{
    for (enum nh_ffn ffn = NH_FFN_GELU; ffn <= NH_FFN_GEGLU; ffn++) {
        struct nh_config c = config_of(NH_INIT_GPT2);
        c.ffn = ffn;
        for (enum nh_weight w = NH_W_Q; w <= NH_W_OUT; w++)
            for (int l = 1; l <= 12; l++)
                ck_assert_double_eq_tol(std_of(&c, w, l), w == NH_W_O || w == NH_W_OUT ? 0.0040825 : 0.02, 5e-8);
        ck_assert_double_eq(nh_embed_std(&c), 0.02);
        ck_assert_double_eq(nh_head_std(&c), 0.02);
    }
}
END_TEST

START_TEST(branch_init)
{
    for (enum nh_init init = NH_INIT_UNIT; init <= NH_INIT_PANGU; init++) {
        struct nh_config own = config_of(init), c = own;
        if (init == NH_INIT_GPT2)
            own.init = NH_INIT_NORMAL;
        for (enum nh_weight w = NH_W_Q; w <= NH_W_OUT; w++)
            for (int l = 1; l <= 12; l++) {
                bool projection = w == NH_W_O || w == NH_W_OUT;
                double base = std_of(&own, w, l);
                c.branch_init = NH_BRANCH_INIT_1;
                ck_assert_double_eq_tol(std_of(&c, w, l), base, 1e-15);
                c.branch_init = NH_BRANCH_INIT_INVSQRT2L;
                ck_assert_double_eq_tol(std_of(&c, w, l), base * (projection ? 1 / sqrt(24) : 1), 1e-15);
                c.branch_init = NH_BRANCH_INIT_INVSQRT2K;
                ck_assert_double_eq_tol(std_of(&c, w, l), base * (projection ? 1 / sqrt(2 * l) : 1), 1e-15);
            }
    }
}
END_TEST

static double by_weight_and_layer(enum nh_weight weight, const struct nh_pos *pos, const double *knobs)
{
    return knobs[0] * (int)weight + pos->layer;
}

START_TEST(layout_factor_and_zero_queries)
{
    const struct nh_layout scaled = {.name = "scaled", .weight_gain = by_weight_and_layer};
    struct nh_config c = config_of(NH_INIT_GPT2), base = c;
    c.layout = &scaled, c.knobs[0] = 10;
    for (enum nh_weight w = NH_W_Q; w <= NH_W_OUT; w++)
        ck_assert_double_eq_tol(std_of(&c, w, 5), std_of(&base, w, 5) * (10.0 * (int)w + 5), 1e-15);
    c.qk_zero = true;
    ck_assert_double_eq(std_of(&c, NH_W_Q, 5), 0);
    ck_assert_double_gt(std_of(&c, NH_W_K, 5), 0);
    double w[16];
    nh_draw(&c, 5, NH_W_Q, 0, w, 16);
    for (int i = 0; i < 16; i++)
        ck_assert_double_eq(w[i], 0);
}
END_TEST

START_TEST(names)
{
    static const char *const expected[] = {"unit", "gpt2", "normal", "xavier", "trinity", "pangu"};
    for (int i = 0; i < N_INITS; i++) {
        ck_assert_str_eq(nh_init_names[i], expected[i]);
        ck_assert_ptr_nonnull(nh_init_helps[i]);
    }
    ck_assert_ptr_null(nh_init_names[N_INITS]);
    ck_assert_ptr_null(nh_init_helps[N_INITS]);
}
END_TEST

/* ---- the draw ---- */

/** Raw moments. */
struct moments {
    double mean, variance, fourth;
};

static struct moments moments_of(const double *w, size_t n)
{
    struct moments m = {0};
    for (size_t i = 0; i < n; i++)
        m.mean += w[i], m.variance += w[i] * w[i], m.fourth += w[i] * w[i] * w[i] * w[i];
    m.mean /= (double)n, m.variance /= (double)n, m.fourth /= (double)n;
    return m;
}

START_TEST(sample_deviations)
{
    struct nh_config c = config_of((enum nh_init)_i);
    c.heads = 8, c.kv_heads = 2, c.ffn = NH_FFN_SWIGLU;
    static double w[4 * 128 * 128];
    for (int layer = 1; layer <= 3; layer++)
        for (enum nh_weight weight = NH_W_Q; weight <= NH_W_OUT; weight++) {
            int out, in;
            nh_weight_shape(&c, weight, &out, &in);
            size_t n = (size_t)out * (size_t)in;
            double std = std_of(&c, weight, layer), sigma_of_std = std / sqrt(2 * (double)n);
            nh_draw(&c, layer, (int)weight, std, w, n);
            struct moments m = moments_of(w, n);
            ck_assert_double_eq_tol(sqrt(m.variance), std, 4 * sigma_of_std);
            ck_assert_double_eq_tol(m.mean, 0, 4 * std / sqrt((double)n));
        }
}
END_TEST

START_TEST(shape_of_the_distribution)
{
    enum { N = 1 << 18 };
    static double w[N];
    struct nh_config c = config_of(NH_INIT_UNIT);
    nh_draw(&c, 1, 0, 1, w, N);
    struct moments m = moments_of(w, N);
    ck_assert_double_eq_tol(m.fourth, 3, 4 * sqrt(96.0 / N)); /* Var z^4 = 96 */
    int beyond = 0;
    double lagged[4] = {0};
    for (int i = 0; i < N; i++) {
        beyond += fabs(w[i]) > 3;
        for (int lag = 0; lag < 4 && i + lag + 1 < N; lag++)
            lagged[lag] += w[i] * w[i + lag + 1];
    }
    ck_assert_double_eq_tol(beyond, 0.0026998 * N, 4 * sqrt(0.0026998 * N));
    for (int lag = 0; lag < 4; lag++)
        ck_assert_double_eq_tol(lagged[lag] / N, 0, 4 / sqrt(N));

    c.init = NH_INIT_TRINITY;
    double std = std_of(&c, NH_W_Q, 1), cut = 3 * 0.5 / sqrt(128), max = 0;
    nh_draw(&c, 1, 0, std, w, N);
    for (int i = 0; i < N; i++)
        max = fmax(max, fabs(w[i]));
    ck_assert_double_le(max, cut * (1 + 1e-12));
    ck_assert_double_gt(max, 0.99 * cut); /* the cut is there, and not below */
    m = moments_of(w, N);
    ck_assert_double_eq_tol(sqrt(m.variance), std, 4 * std / sqrt(2.0 * N));
}
END_TEST

START_TEST(streams_are_independent)
{
    enum { STREAMS = 48, N = 4096 };
    static double w[STREAMS][N];
    struct nh_config c = config_of(NH_INIT_UNIT);
    for (int s = 0; s < STREAMS; s++) { /* neighbours in seed, layer and tensor */
        c.seed = (uint64_t)(s % 4);
        nh_draw(&c, s / 4 % 4, s / 16, 1, w[s], N);
    }
    for (int a = 0; a < STREAMS; a++)
        for (int b = 0; b < a; b++) {
            double sum = 0;
            for (int i = 0; i < N; i++)
                sum += w[a][i] * w[b][i];
            ck_assert_double_lt(fabs(sum) / sqrt(N), 4.5); /* 1128 pairs: a sound generator exceeds this once in 130 */
        }
}
END_TEST

START_TEST(draw_is_pure)
{
    enum { N = 1000 };
    double a[N], b[N];
    struct nh_config c = config_of(NH_INIT_UNIT), other = c;
    nh_draw(&c, 3, NH_W_V, 1, a, N);
    /* another layout, depth, width, recipe, format, core, thread count, order of draws: the same numbers */
    const struct nh_layout another = {.name = "another"};
    other.layout = &another, other.depth = 60, other.width = 64, other.init = NH_INIT_GPT2, other.threads = 7;
    nh_draw(&other, 4, NH_W_V, 1, b, N);
    nh_draw(&other, 3, NH_W_V, 2, b, N);
    for (int i = 0; i < N; i++)
        ck_assert_double_eq(b[i], 2 * a[i]);
    nh_draw(&other, 3, NH_W_V, 1, b, N / 2); /* a shorter tensor is the start of a longer one */
    ck_assert_mem_eq(a, b, N / 2 * sizeof *a);
}
END_TEST

/* ---- the generator ---- */

START_TEST(reference_sequence)
{
    /* xoshiro256** from the state {1, 2, 3, 4}, by the authors' recurrence */
    static const uint64_t expected[] = {
        11520U,
        0U,
        1509978240U,
        1215971899390074240U,
        1216172134540287360U,
        607988272756665600U,
        16172922978634559625U,
        8476171486693032832U,
        10595114339597558777U,
        2904607092377533576U,
    };
    const struct nh_rng_state start = {{1, 2, 3, 4}};
    gsl_rng *rng = nh_rng_new(0, 0, 0);
    ck_assert_ptr_nonnull(rng);
    ck_assert_uint_eq(gsl_rng_size(rng), sizeof start);
    memcpy(gsl_rng_state(rng), &start, sizeof start);
    for (int i = 0; i < 10; i++)
        ck_assert_uint_eq(gsl_rng_get(rng), expected[i] >> 32);
    memcpy(gsl_rng_state(rng), &start, sizeof start);
    for (int i = 0; i < 10; i++)
        ck_assert_double_eq(gsl_rng_uniform(rng), ldexp((double)(expected[i] >> 11), -53));
    gsl_rng_free(rng);
}
END_TEST

START_TEST(state_is_copyable)
{
    gsl_rng *rng = nh_rng_new(7, 1, 2);
    ck_assert_ptr_nonnull(rng);
    for (int i = 0; i < 100; i++)
        gsl_rng_get(rng);
    struct nh_rng_state saved;
    memcpy(&saved, gsl_rng_state(rng), sizeof saved);
    gsl_rng copy = {nh_rng_type, &saved};
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(gsl_rng_get(rng), gsl_rng_get(&copy));
    gsl_rng_free(rng);
}
END_TEST

START_TEST(names_of_streams_differ)
{
    /* no part of the name may stand for another */
    static const uint64_t named[][3] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0},          {1, 0, 0},
                                        {0, 1, 1}, {1, 1, 0}, {1, 0, 1},          {2, 0, 0},
                                        {0, 2, 0}, {0, 0, 2}, {UINT64_MAX, 0, 0}, {0, UINT64_MAX, 1}};
    enum { N = sizeof named / sizeof *named };
    struct nh_rng_state states[N];
    for (int i = 0; i < N; i++) {
        nh_rng_start(&(gsl_rng){nh_rng_type, &states[i]}, named[i][0], named[i][1], named[i][2]);
        for (int j = 0; j < i; j++)
            for (int k = 0; k < 4; k++)
                ck_assert_uint_ne(states[i].s[k], states[j].s[k]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("init");
    TCase *tc = tcase_create("init");
    tcase_add_test(tc, shapes);
    tcase_add_test(tc, deviations);
    tcase_add_test(tc, scaled_init_hits_the_output_projections);
    tcase_add_test(tc, branch_init);
    tcase_add_test(tc, layout_factor_and_zero_queries);
    tcase_add_test(tc, names);
    tcase_add_loop_test(tc, sample_deviations, 0, N_INITS);
    tcase_add_test(tc, shape_of_the_distribution);
    tcase_add_test(tc, streams_are_independent);
    tcase_add_test(tc, draw_is_pure);
    tcase_add_test(tc, reference_sequence);
    tcase_add_test(tc, state_is_copyable);
    tcase_add_test(tc, names_of_streams_differ);
    return run_suite(suite, tc);
}
