// SPDX-License-Identifier: GPL-3.0-or-later
/** The law of the stream against closed forms, sums written out and published numbers. Where nothing else is said, a
 *  number with a tolerance of half its last digit was computed by an independent program from the same formula. */
#include "harness/core/dual.h"
#include "harness/core/law.h"
#include "layouts/layout.h"
#include "tests/suite.h"

#include <check.h>
#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 64, MAX_DEPTH = 64, MAX_SUBLAYERS = 2 * MAX_DEPTH };

#define assert_near(value, expected, tolerance) ck_assert_double_eq_tol(value, expected, tolerance)

static const struct nh_layout *layout_named(const char *name)
{
    for (const struct nh_layout *const *l = nh_layouts; *l; l++)
        if (strcmp((*l)->name, name) == 0)
            return *l;
    ck_abort_msg("no layout %s", name);
    return NULL;
}

/** Unit init, RMSNorm with an eps that is not seen, GELU. */
static struct nh_config config_of(const struct nh_layout *layout, int depth)
{
    return (struct nh_config){
        .layout = layout,
        .depth = depth,
        .width = 128,
        .heads = 4,
        .kv_heads = 4,
        .seq = T,
        .batch = 1,
        .ffn_mult = 4,
        .eps = 1e-14,
        .branches = NH_BRANCHES_BOTH,
        .embed_scale = 1,
        .embed_shrink = 1,
        .post_gain = 1,
    };
}

/** Fills rms for tokens of RMS r0 and pairwise cosine rho; returns the last value. */
static double law_of(const struct nh_config *c, double r0, double rho, double *rms)
{
    double *gram = calloc((size_t)(c->seq * c->seq), sizeof *gram);
    ck_assert_ptr_nonnull(gram);
    for (int t = 0; t < c->seq; t++)
        for (int u = 0; u < c->seq; u++)
            gram[t * c->seq + u] = r0 * r0 * (t == u ? 1 : rho);
    int n = c->depth * (c->branches == NH_BRANCHES_BOTH ? 2 : 1);
    ck_assert_int_le(n, MAX_SUBLAYERS);
    double own[MAX_SUBLAYERS + 1] = {0};
    own[n] = -1;
    ck_assert_int_eq(nh_law_rms(c, gram, own, NULL), 0);
    ck_assert_double_eq(own[n], -1); /* not a value too many */
    free(gram);
    if (rms)
        memcpy(rms, own, (size_t)n * sizeof *rms);
    return own[n - 1];
}

static double final_rms(const struct nh_config *c, double rho)
{
    return law_of(c, 1, rho, NULL);
}

static double harmonic(int n)
{
    double h = 0;
    for (int i = n; i > 0; i--)
        h += 1.0 / i;
    return h;
}

/* ---- constants of a sublayer ---- */

START_TEST(constants)
{
    /* GELU in its tanh form; with erf v is 0.42522 and chi 0.45585 */
    static const struct {
        enum nh_ffn ffn;
        double v, chi, zeta;
    } table[] = {
        {NH_FFN_RELU, 0.5, 0.5, 1},
        {NH_FFN_GELU, 0.425194, 0.455818, 1.072024},
        {NH_FFN_SWIGLU, 0.355776, 0.735258, 2.066634},
        {NH_FFN_GEGLU, 0.425194, 0.881012, 2.072024},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct nh_sublayer_constants c = nh_law_ffn(table[i].ffn, 1, 1);
        assert_near(c.v, table[i].v, 1e-6);
        assert_near(c.chi, table[i].chi, 1e-6);
        assert_near(c.zeta, table[i].zeta, 2e-6);
    }
}
END_TEST

START_TEST(constants_scale)
{
    struct nh_sublayer_constants one = nh_law_ffn(NH_FFN_SWIGLU, 1, 1), half = nh_law_ffn(NH_FFN_SWIGLU, 1, 0.5);
    assert_near(half.v, one.v / 4, 1e-12);
    assert_near(half.chi, one.chi / 4, 1e-12);
    struct nh_sublayer_constants relu = nh_law_ffn(NH_FFN_RELU, 2, 3);
    assert_near(relu.v, 18, 1e-12);
    assert_near(relu.chi, 18, 1e-12);
    /* not homogeneous in the first gain; adaptive quadrature with 20 digits */
    struct nh_sublayer_constants gelu = nh_law_ffn(NH_FFN_GELU, 0.5, 1), steep = nh_law_ffn(NH_FFN_GELU, 4, 1);
    assert_near(gelu.v, 0.0834913947334, 1e-11);
    assert_near(gelu.chi, 0.0888998639649, 1e-11);
    assert_near(steep.v / 7.95686994154, 1, 1e-6);
    assert_near(steep.chi / 8.17207074062, 1, 5e-4);
    /* small inputs: GELU is x/2 and SwiGLU x^2/2 */
    assert_near(nh_law_ffn(NH_FFN_GELU, 1e-4, 1).v / 0.25e-8, 1, 1e-6);
    assert_near(nh_law_ffn(NH_FFN_SWIGLU, 1e-4, 1).v / 0.25e-16, 1, 1e-6);
    ck_assert_double_eq(nh_law_ffn(NH_FFN_GELU, 0, 1).v, 0);
}
END_TEST

static double activation(enum nh_ffn ffn, double x)
{
    switch (ffn) {
    case NH_FFN_RELU:
        return x > 0 ? x : 0;
    case NH_FFN_SWIGLU:
        return x / (1 + exp(-x));
    default:
        return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
}

/** E[act(sigma a) act(sigma b)] by the trapezoidal rule, which is spectrally exact for smooth integrands of this kind.
 */
static double dual_by_sum(enum nh_ffn ffn, double sigma, double c)
{
    const double h = 0.05;
    double sum = 0;
    for (int i = -200; i <= 200; i++)
        for (int j = -200; j <= 200; j++) {
            double a = i * h, e = j * h, b = c * a + sqrt(1 - c * c) * e;
            sum += exp(-0.5 * (a * a + e * e)) * activation(ffn, sigma * a) * activation(ffn, sigma * b);
        }
    return sum * h * h / (2 * M_PI);
}

START_TEST(dual_activation)
{
    static const enum nh_ffn ffns[] = {NH_FFN_RELU, NH_FFN_GELU, NH_FFN_SWIGLU};
    enum nh_ffn ffn = ffns[_i];
    struct nh_normal_mean mean;
    ck_assert_int_eq(nh_normal_mean_init(&mean), 0);
    static const double sigmas[] = {0.5, 1, 2}, cosines[] = {-0.95, -0.3, 0, 0.5, 0.99};
    for (int s = 0; s < 3; s++) {
        struct nh_dual dual;
        nh_dual_init(&dual, ffn, sigmas[s], &mean);
        for (int i = 0; i < 5; i++) /* the rule is of second order at ReLU's kink */
            assert_near(nh_dual_value(&dual, cosines[i]), dual_by_sum(ffn, sigmas[s], cosines[i]),
                        ffn == NH_FFN_RELU ? 1e-3 : 1e-9);
    }
}
END_TEST

/* ---- attention ---- */

static double query_gain = 1;

static double scaled_queries(enum nh_weight weight, const struct nh_pos *pos, const double *knobs)
{
    (void)pos, (void)knobs;
    return weight == NH_W_Q ? query_gain : weight == NH_W_K ? 1.5 : weight == NH_W_O ? 0.7 : 1;
}

static struct nh_law_term branch_alone(const struct nh_pos *pos, const double *knobs)
{
    (void)pos, (void)knobs;
    return (struct nh_law_term){.skip = 0, .branch = 1, .in_scale = 1, .pre_norm = true};
}

/** Mean square of the branch, by the sum over all pairs of pairs. */
static double attention_by_sum(const double *y, int n, double beta)
{
    double q = 0;
    for (int t = 0; t < n; t++) {
        double weights = 0, sum = 0;
        for (int s = 0; s <= t; s++)
            for (int r = 0; r <= t; r++) {
                double w = exp(beta * y[t * n + t] * y[s * n + r]);
                weights += w, sum += w * y[s * n + r];
            }
        q += 0.49 * sum / weights / n;
    }
    return q;
}

START_TEST(attention_sum)
{
    enum { N = 7 };
    static const double gains[] = {0, 0.3, 1, 1.5, 2.3};
    query_gain = gains[_i];
    /* unit vectors of three dimensions in general position: cosines of both signs */
    double x[N][3], gram[N * N];
    for (int t = 0; t < N; t++) {
        double a = 1.9 * t, b = sin(2.3 * t + 1);
        x[t][0] = cos(a) * sqrt(1 - b * b), x[t][1] = sin(a) * sqrt(1 - b * b), x[t][2] = b;
    }
    for (int t = 0; t < N; t++)
        for (int u = 0; u < N; u++)
            gram[t * N + u] = x[t][0] * x[u][0] + x[t][1] * x[u][1] + x[t][2] * x[u][2];
    const struct nh_layout only_branch = {.weight_gain = scaled_queries, .law_term = branch_alone};
    struct nh_config c = config_of(&only_branch, 1);
    c.seq = N, c.branches = NH_BRANCHES_ATTN;
    double rms;
    ck_assert_int_eq(nh_law_rms(&c, gram, &rms, NULL), 0);
    double beta = query_gain * query_gain * 2.25; /* variance of the scores */
    assert_near(rms * rms, attention_by_sum(gram, N, beta), 1e-9);
    c.qk_norm = true; /* whatever the scale of W_Q and W_K */
    ck_assert_int_eq(nh_law_rms(&c, gram, &rms, NULL), 0);
    assert_near(rms * rms, attention_by_sum(gram, N, beta > 0 ? 1 : 0), 1e-9);
}
END_TEST

START_TEST(attention_second_sublayer)
{
    /* the off-diagonal entries that the first sublayer leaves, checked by what the second makes of them */
    enum { N = 5 };
    query_gain = 1;
    double k[N * N], b[N * N], expected = 0;
    for (int i = 0; i < N * N; i++)
        k[i] = i % (N + 1) == 0 ? 1 : 0.2 * cos(0.5 * (i / N + i % N));
    for (int t = 0; t < N; t++)
        for (int u = 0; u < N; u++) {
            double weights = 0, sum = 0;
            for (int s = 0; s <= t; s++)
                for (int r = 0; r <= u; r++) {
                    double w = exp(2.25 * k[t * N + u] * k[s * N + r]);
                    weights += w, sum += w * k[s * N + r];
                }
            b[t * N + u] = sum / weights;
        }
    double y[N * N];
    for (int t = 0; t < N; t++)
        for (int u = 0; u < N; u++)
            y[t * N + u] = b[t * N + u] / sqrt(b[t * N + t] * b[u * N + u]);
    expected = attention_by_sum(y, N, 2.25);
    const struct nh_layout only_branch = {.weight_gain = scaled_queries, .law_term = branch_alone};
    struct nh_config c = config_of(&only_branch, 2);
    c.seq = N, c.branches = NH_BRANCHES_ATTN;
    double rms[2];
    ck_assert_int_eq(nh_law_rms(&c, k, rms, NULL), 0);
    assert_near(rms[1] * rms[1], expected, 1e-9);
}
END_TEST

START_TEST(attention_uniform)
{
    struct nh_config c = config_of(layout_named("pre"), 1);
    c.qk_zero = true, c.branches = NH_BRANCHES_ATTN;
    for (int i = 0; i < 4; i++) {
        double rho = 0.3 * i, q = final_rms(&c, rho);
        assert_near(q * q - 1, rho + (1 - rho) * harmonic(T) / T, 1e-10);
    }
    assert_near(harmonic(T) / T, 0.07412, 5e-6);
}
END_TEST

START_TEST(attention_saturated)
{
    /* scores of a huge variance: every token picks one key, whose mean square is 1 */
    query_gain = 1e4;
    struct nh_layout sharp = *layout_named("pre");
    sharp.weight_gain = scaled_queries;
    struct nh_config c = config_of(&sharp, 1);
    c.branches = NH_BRANCHES_ATTN;
    double q = final_rms(&c, 0);
    assert_near(q * q, 1.49, 1e-3);
}
END_TEST

/* ---- closed forms ---- */

START_TEST(pre_ffn_only)
{
    static const double relu[] = {2.236, 3.000, 4.123, 5.745};
    for (int i = 0; i < 4; i++) {
        struct nh_config c = config_of(layout_named("pre"), 8 << i);
        c.branches = NH_BRANCHES_FFN;
        for (int rho = 0; rho < 2; rho++) {
            c.ffn = NH_FFN_RELU;
            assert_near(final_rms(&c, 0.5 * rho), sqrt(1 + 0.5 * c.depth), 1e-9);
            assert_near(final_rms(&c, 0.5 * rho), relu[i], 5e-4);
            c.ffn = NH_FFN_GELU;
            assert_near(final_rms(&c, 0.5 * rho), sqrt(1 + 0.425194 * c.depth), 1e-5);
            c.ffn = NH_FFN_SWIGLU;
            assert_near(final_rms(&c, 0.5 * rho), sqrt(1 + 0.355776 * c.depth), 1e-5);
        }
    }
    struct nh_config c = config_of(layout_named("pre"), 60);
    c.branches = NH_BRANCHES_FFN;
    assert_near(final_rms(&c, 0), 5.149, 5e-4);
}
END_TEST

START_TEST(pre_ffn_of_any_gain)
{
    struct nh_config c = config_of(layout_named("pre"), 7);
    c.branches = NH_BRANCHES_FFN, c.init = NH_INIT_XAVIER;
    for (enum nh_ffn ffn = NH_FFN_GELU; ffn <= NH_FFN_GEGLU; ffn++) {
        c.ffn = ffn;
        double q = final_rms(&c, 0.1);
        assert_near(q * q, 1 + 7 * nh_law_ffn(ffn, sqrt(0.4), sqrt(1.6)).v, 1e-9);
    }
}
END_TEST

START_TEST(sandwich_family)
{
    static const enum nh_init inits[] = {NH_INIT_UNIT,   NH_INIT_GPT2,    NH_INIT_NORMAL,
                                         NH_INIT_XAVIER, NH_INIT_TRINITY, NH_INIT_PANGU};
    double rms[MAX_SUBLAYERS];
    for (int d = 8; d <= 64; d *= 2)
        for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
            struct nh_config c = config_of(layout_named("sandwich"), d);
            c.init = inits[i], c.eps = 1e-18;
            law_of(&c, 1, 0.2, rms);
            for (int k = 1; k <= 2 * d; k++)
                assert_near(rms[k - 1], sqrt(1 + k), 1e-7);
            c.layout = layout_named("sandwich-depth");
            law_of(&c, 0.4933, 0.2, rms);
            for (int k = 1; k <= 2 * d; k++)
                assert_near(rms[k - 1], sqrt(0.4933 * 0.4933 + (double)k / d), 1e-7);
            assert_near(rms[2 * d - 1], 1.4978, 5e-5);
            c.layout = layout_named("sandwich-l");
            assert_near(law_of(&c, 1, 0.2, rms), sqrt(1 + 2 * harmonic(d)), 1e-7);
            c.branches = NH_BRANCHES_FFN, c.layout = layout_named("sandwich");
            assert_near(law_of(&c, 1, 0.2, rms), sqrt(1 + d), 1e-7);
        }
    struct nh_config c = config_of(layout_named("sandwich"), 60);
    c.post_gain = 0.5;
    assert_near(final_rms(&c, 0), sqrt(1 + 0.25 * 120), 1e-9);
}
END_TEST

START_TEST(post_is_one)
{
    struct nh_config c = config_of(layout_named("post"), 60);
    double rms[MAX_SUBLAYERS];
    law_of(&c, 0.02, 0.5, rms); /* the first branch reads the embeddings as they are */
    for (int k = 0; k < 120; k++)
        assert_near(rms[k], 1, 1e-9);
}
END_TEST

/* ---- numbers of the recursion ---- */

START_TEST(gram_pre)
{
    static const struct {
        int depth;
        double rho, rms;
    } table[] = {{8, 0, 2.72}, {16, 0, 4.00}, {32, 0, 5.92}, {60, 0, 8.40}, {60, 0.5, 9.01}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct nh_config c = config_of(layout_named("pre"), table[i].depth);
        assert_near(final_rms(&c, table[i].rho), table[i].rms, 5e-3);
    }
    struct nh_config c = config_of(layout_named("pre"), 60);
    c.branch_init = NH_BRANCH_INIT_INVSQRT2L;
    assert_near(final_rms(&c, 0), 1.140, 5e-4);
}
END_TEST

static struct nh_law_term lns(const struct nh_pos *pos, const double *knobs)
{
    (void)knobs;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1 / sqrt(pos->layer), .pre_norm = true};
}

static struct nh_law_term mix_ln(const struct nh_pos *pos, const double *knobs)
{
    (void)knobs;
    bool post = pos->layer <= pos->depth / 4;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = !post, .outer_norm = post};
}

static struct nh_law_term reordered(const struct nh_pos *pos, const double *knobs)
{
    (void)pos, (void)knobs;
    return (struct nh_law_term){.skip = 1, .in_scale = 1, .post_norm = true, .post_gain = 1};
}

static struct nh_law_term pangu(const struct nh_pos *pos, const double *knobs)
{
    (void)knobs;
    double c = pos->kind == NH_ATTN ? 0.283 : 0.432;
    return (struct nh_law_term){.skip = 1, .in_scale = 1, .post_norm = true, .post_gain = c / sqrt(pos->depth), .pre_norm = true};
}

static struct nh_law_term halving(const struct nh_pos *pos, const double *knobs)
{
    (void)pos, (void)knobs;
    return (struct nh_law_term){.skip = 0.5, .in_scale = 1, .post_norm = true, .post_gain = 1, .pre_norm = true};
}

static struct nh_law_term deepnorm(const struct nh_pos *pos, const double *knobs)
{
    (void)knobs;
    return (struct nh_law_term){.skip = pow(2 * pos->depth, 0.25), .branch = 1, .in_scale = 1, .outer_norm = true};
}

/** Layouts that the program may not have, by their terms alone. */
START_TEST(other_terms)
{
    const struct nh_layout l = {.law_term = lns}, m = {.law_term = mix_ln}, r = {.law_term = reordered},
                           p = {.law_term = pangu}, d = {.law_term = deepnorm}, h = {.law_term = halving};
    struct nh_config c = config_of(&l, 60);
    assert_near(final_rms(&c, 0), 1.964, 1e-3);
    c.depth = 32;
    assert_near(final_rms(&c, 0), 1.85, 5e-3);
    c.branches = NH_BRANCHES_FFN, c.ffn = NH_FFN_RELU;
    assert_near(final_rms(&c, 0), 1.740, 5e-4);
    static const double sums[] = {[NH_FFN_RELU] = 2.3399, [NH_FFN_GELU] = 1.5468, [NH_FFN_SWIGLU] = 0.5416};
    c.depth = 60;
    for (enum nh_ffn ffn = NH_FFN_GELU; ffn <= NH_FFN_SWIGLU; ffn++) {
        c.ffn = ffn;
        double q = final_rms(&c, 0);
        assert_near(q * q - 1, sums[ffn], ffn == NH_FFN_GELU ? 2e-4 : 5e-5); /* erf there, tanh here */
    }
    c = config_of(&m, 60);
    assert_near(final_rms(&c, 0), 8.065, 1e-3);
    c = config_of(&r, 60);
    assert_near(final_rms(&c, 0), 11, 1e-9);
    c = config_of(&p, 60);
    c.init = NH_INIT_PANGU, c.eps = 1e-18;
    assert_near(law_of(&c, 0.5, 0, NULL), 0.7188, 5e-5);
    c = config_of(&h, 8);
    double q = final_rms(&c, 0); /* q' = q/4 + 1 from q = 1 */
    assert_near(q * q, (4 - pow(0.25, 16)) / 3, 1e-9);
    c = config_of(&d, 60);
    assert_near(final_rms(&c, 0), 1, 1e-9);
}
END_TEST

/* ---- eps ---- */

START_TEST(eps_behind_a_small_branch)
{
    /* gpt2 init, d 128, L 60, independent tokens: mean squares before N2, read off a stream without N2 */
    struct nh_config c = config_of(layout_named("pre"), 60);
    c.init = NH_INIT_GPT2;
    double rms[MAX_SUBLAYERS];
    c.branches = NH_BRANCHES_ATTN;
    law_of(&c, 1, 0, rms);
    double attn = rms[0] * rms[0] - 1;
    c.branches = NH_BRANCHES_FFN;
    law_of(&c, 1, 0, rms);
    double ffn = rms[0] * rms[0] - 1;
    assert_near(attn, 1.62e-6, 5e-9);
    assert_near(ffn, 2.38e-5, 5e-8);
    const double eps = 1e-5;
    assert_near(sqrt(attn / (attn + eps)), 0.373, 1e-3);
    assert_near(sqrt(ffn / (ffn + eps)), 0.839, 5e-4);
    assert_near(sqrt(1 + 60 * (attn / (attn + eps) + ffn / (ffn + eps))), 7.18, 1e-2);

    c.layout = layout_named("sandwich"), c.eps = eps;
    law_of(&c, 1, 0, rms);
    assert_near(sqrt(rms[0] * rms[0] - 1), 0.839, 5e-4); /* all tokens alike: the pooled form is exact */
    assert_near(rms[59], sqrt(1 + 60 * ffn / (ffn + eps)), 2e-4);
    /* In attention the tokens differ: m_t = s_V^2 s_O^2 / t or a little more, so that N2 is applied token by token, and
     * as the tokens grow alike m grows. A simulation (4 seeds, d 128) has 0.319, then 8.41 at the end of the whole
     * sandwich. */
    c.branches = NH_BRANCHES_ATTN;
    law_of(&c, 1, 0, rms);
    assert_near(sqrt(rms[0] * rms[0] - 1), 0.319, 0.02);
    c.branches = NH_BRANCHES_BOTH;
    assert_near(law_of(&c, 1, 0, rms), 8.41, 0.06 * 8.41);
}
END_TEST

START_TEST(eps_before_the_branch)
{
    /* a first stream of RMS 0.002 with eps 1e-5: the branch reads mean square q/(q + eps) */
    struct nh_config c = config_of(layout_named("pre"), 1);
    c.branches = NH_BRANCHES_FFN, c.ffn = NH_FFN_RELU, c.eps = 1e-5;
    double q = law_of(&c, 0.002, 0.3, NULL);
    assert_near(q * q, 4e-6 + 0.5 * 4e-6 / 14e-6, 1e-12);
}
END_TEST

/* ---- what is not known ---- */

static struct nh_law_term bare(const struct nh_pos *pos, const double *knobs)
{
    (void)knobs;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = pos->layer < 3};
}

START_TEST(unknown)
{
    const struct nh_layout none = {0}, unnormed = {.law_term = bare};
    double rms[MAX_SUBLAYERS];
    struct nh_config c = config_of(&none, 4);
    law_of(&c, 1, 0, rms);
    for (int k = 0; k < 8; k++)
        ck_assert_double_nan(rms[k]);
    c.layout = &unnormed;
    law_of(&c, 1, 0, rms);
    for (int k = 0; k < 8; k++)
        ck_assert_int_eq(isnan(rms[k]) != 0, k >= 4);
}
END_TEST

START_TEST(nan_stays)
{
    static const char *const names[] = {"pre", "post", "sandwich", "sandwich-depth", "sandwich-l"};
    struct nh_config c = config_of(layout_named(names[_i]), 2);
    ck_assert_double_nan(law_of(&c, (double)NAN, 0, NULL));
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    Suite *suite = suite_create("law");
    TCase *tc = tcase_create("law");
    tcase_add_test(tc, constants);
    tcase_add_test(tc, constants_scale);
    tcase_add_loop_test(tc, dual_activation, 0, 3);
    tcase_add_loop_test(tc, attention_sum, 0, 5);
    tcase_add_test(tc, attention_second_sublayer);
    tcase_add_test(tc, attention_uniform);
    tcase_add_test(tc, attention_saturated);
    tcase_add_test(tc, pre_ffn_only);
    tcase_add_test(tc, pre_ffn_of_any_gain);
    tcase_add_test(tc, sandwich_family);
    tcase_add_test(tc, post_is_one);
    tcase_add_test(tc, gram_pre);
    tcase_add_test(tc, other_terms);
    tcase_add_test(tc, eps_behind_a_small_branch);
    tcase_add_test(tc, eps_before_the_branch);
    tcase_add_test(tc, unknown);
    tcase_add_loop_test(tc, nan_stays, 0, 5);
    return run_suite(suite, tc);
}
