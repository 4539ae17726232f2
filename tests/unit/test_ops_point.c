// SPDX-License-Identifier: GPL-3.0-or-later
/** Operations element by element: exp, activations, products and sums of two values, rotation of positions. */
#include "tests/unit/op_graph.h"

#define NH_REAL_BITS 32
#include "harness/core/real.h"

enum { MOST = 1 << 16 };
static double x[MOST], x2[MOST], y[MOST];

/* ---- exp ---- */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/** Distance from the exact value in units of the last place of a float of its size. */
static double ulps(float got, double exact)
{
    int e;
    (void)frexp(exact, &e);
    return fabs((double)got - exact) / ldexp(1, (e - 24 > -149 ? e - 24 : -149));
}

START_TEST(exp_in_float_is_within_two_ulp)
{
    double worst = 0;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t bits = 0; bits <= 0x42d20000; bits += 97) { /* up to 105 */
            float at = float_of(bits | sign << 31), got = r_exp(at);
            double exact = exp((double)at);
            if (exact > (double)FLT_MAX) {
                ck_assert(isinf(got));
                continue;
            }
            if (exact < (double)FLT_MIN)
                ck_assert_double_le(ulps(got, exact), 2); /* ulp of subnormals */
            else if (ulps(got, exact) > worst)
                worst = ulps(got, exact);
        }
    ck_assert_double_le(worst, 2);
}
END_TEST

START_TEST(exp_has_its_ends)
{
    static const float zero_at[] = {-104.1f, -105, -106, -1e3f, -1e30f, -FLT_MAX, -INFINITY};
    static const float inf_at[] = {88.73f, 89, 90, 91, 128, 1e3f, 1e30f, FLT_MAX, INFINITY};
    for (size_t i = 0; i < sizeof zero_at / sizeof *zero_at; i++)
        assert_same((double)r_exp(zero_at[i]), 0);
    for (size_t i = 0; i < sizeof inf_at / sizeof *inf_at; i++)
        assert_same((double)r_exp(inf_at[i]), HUGE_VAL);
    ck_assert(isnan(r_exp(NAN)) && isnan(r_exp(-NAN)));
    assert_same((double)r_exp(0), 1);
    assert_same((double)r_exp(-0.0f), 1);
    ck_assert(isfinite(r_exp(88.72f)) && r_exp(88.72f) > 3.38e38f);
    ck_assert(r_exp(-103) > 0 && r_exp(-103) < 3e-45f);
    for (float f = -0x1p-24f; f < 0x1p-24f; f += 0x1p-30f)
        ck_assert(fabsf(r_exp(f) - 1) <= FLT_EPSILON);
}
END_TEST

/* ---- activations ---- */

static struct op_graph activate(const struct nh_config *c, enum nh_act kind, int rows, int cols)
{
    struct op_graph o = op_new(c, 1, rows);
    nh_val in = op_input(&o, cols, NH_ROLE_MATMUL_OUT), out = op_act(&o, kind, in);
    op_close(&o);
    op_set(&o, in, x);
    op_run(&o);
    op_read(&o, out, y);
    return o;
}

static double exact_gelu(double v)
{
    double z = sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    return z < -300 ? -0.0 : v / (1 + exp(-2 * z)); /* = v (1 + tanh z)/2 */
}

static double exact_silu(double v)
{
    return v / (1 + exp(-v));
}

START_TEST(gelu_of_large_numbers)
{
    static const double at[] = {10, 10.5, 12, -12, 5, 1e4, -1e4, 0, -0.0, 1, -1, 40.3125, 40.34375, 65504, -65504};
    static const double of[] = {10,   10.5,     12,        -0.0,    4.99999977, 1e4,   -0.0, 0,
                                -0.0, 0.841192, -0.158808, 40.3125, 40.34375,   65504, -0.0};
    static const char *const dtypes[] = {"fp32", "fp16", "fp64"};
    enum { N = sizeof at / sizeof *at };
    for (int d = 0; d < 3; d++) {
        struct nh_config c = op_config(dtypes[d]);
        memcpy(x, at, sizeof at);
        struct op_graph o = activate(&c, NH_ACT_GELU, 1, N);
        for (int i = 0; i < N; i++) {
            if (fabs(of[i]) < 1 && of[i] != 0)
                ck_assert_double_eq_tol(y[i], of[i], d == 1 ? 5e-4 : 1e-6);
            else if (i == 4)
                ck_assert_double_eq_tol(y[i], of[i], d == 1 ? 2e-3 : 5e-7);
            else if (d == 2 && i == 3)
                ck_assert(y[i] <= 0 && y[i] > -1e-50); /* double reaches further down */
            else
                assert_same(y[i], of[i]);
        }
        assert_trouble(&o, NH_SITE_FFN_ACT, 0, 0, 0, 0);
        op_free(&o);
    }
}
END_TEST

/* e^(2z) overflows fp32, 0.044715 x^3 too: still x and -0 */
START_TEST(gelu_of_numbers_whose_cube_leaves_fp32)
{
    static const char *const dtypes[] = {"fp32", "bf16"};
    for (int d = 0; d < 2; d++) {
        struct nh_config c = op_config(dtypes[d]);
        for (int i = 0; i < 120; i++) {
            x[2 * i] = ldexp(1, i + 7);
            x[2 * i + 1] = -x[2 * i];
        }
        for (enum nh_act kind = NH_ACT_GELU; kind <= NH_ACT_SILU; kind++) {
            struct op_graph o = activate(&c, kind, 1, 240);
            for (int i = 0; i < 240; i++)
                if (i % 2)
                    assert_same(fabs(y[i]), 0);
                else
                    assert_same(y[i], x[i]);
            assert_trouble(&o, NH_SITE_FFN_ACT, 0, 0, 0, 0);
            op_free(&o);
        }
    }
}
END_TEST

/* all 63488 finite halves: the result is that of the exact function, but for ties that fp32 cannot tell (exp of a
 * number of size 88 with a relative error of 2^-24 in the number: 88 * 2^-24 = 5e-6, some roundings more) */
START_TEST(activations_of_every_half)
{
    enum { ROWS = 62, COLS = 1024 };
    struct nh_config c = op_config("fp16");
    for (int i = 0; i < ROWS / 2 * COLS; i++) { /* exponents 0 .. 30 */
        int e = i >> 10, m = i & 1023;
        x[i] = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
        x[ROWS / 2 * COLS + i] = -x[i];
    }
    for (enum nh_act kind = NH_ACT_GELU; kind <= NH_ACT_SILU; kind++) {
        struct op_graph o = activate(&c, kind, ROWS, COLS);
        uint64_t least = 0, most = 0; /* e^-x leaves fp32 where the result is below 4e-37: zero before it is stored */
        for (int i = 0; i < ROWS * COLS; i++) {
            double exact = kind == NH_ACT_RELU   ? (x[i] > 0 ? x[i] : 0)
                           : kind == NH_ACT_GELU ? exact_gelu(x[i])
                                                 : exact_silu(x[i]);
            double low = nh_round(&c.dtype, exact - 2e-5 * fabs(exact)),
                   high = nh_round(&c.dtype, exact + 2e-5 * fabs(exact));
            ck_assert_msg(y[i] >= low && y[i] <= high, "activation %d of %.9g is %.9g, expected %.9g", (int)kind, x[i],
                          y[i], exact);
            if (kind != NH_ACT_RELU)
                ck_assert_int_eq(signbit(y[i]) != 0, signbit(x[i]) != 0);
            least += y[i] == 0 && fabs(exact) > 4e-37;
            most += y[i] == 0 && fabs(exact) > 0;
        }
        assert_trouble(&o, NH_SITE_FFN_ACT, 0, 0, 0, 0);
        assert_count(&o, NH_SITE_FFN_ACT, total, ROWS * COLS);
        uint64_t counted = op_counts(&o, NH_SITE_FFN_ACT)->underflow;
        ck_assert_uint_ge(counted, least);
        ck_assert_uint_le(counted, most);
        ck_assert(kind == NH_ACT_RELU || least > 0);
        assert_same(op_counts(&o, NH_SITE_FFN_ACT)->max_abs, 65504);
        op_free(&o);
    }
}
END_TEST

START_TEST(gelu_in_fp32_is_accurate)
{
    struct nh_config c = op_config("fp32");
    enum { N = 40000 };
    for (int i = 0; i < N; i++)
        x[i] = (double)(float)((i - N / 2) * (14.0 / N));
    struct op_graph o = activate(&c, NH_ACT_GELU, N / 1000, 1000);
    for (int i = 0; i < N; i++) {
        double exact = exact_gelu(x[i]), z2 = 1.5957691 * fabs(x[i]) * (1 + 0.044715 * x[i] * x[i]);
        /* the argument of exp carries some four roundings, the rest of the formula as many */
        ck_assert_double_eq_tol(y[i], exact, (4 * z2 + 4) * 0x1p-24 * fabs(exact) + 2 * (double)FLT_TRUE_MIN);
    }
    op_free(&o);
}
END_TEST

START_TEST(activations_of_what_is_not_finite)
{
    static const double at[] = {HUGE_VAL, -HUGE_VAL, NOT_A_NUMBER, 1};
    static const double of[][4] = {
        [NH_ACT_GELU] = {HUGE_VAL, NOT_A_NUMBER, NOT_A_NUMBER}, /* -inf * 0, as the formula says */
        [NH_ACT_RELU] = {HUGE_VAL, 0, NOT_A_NUMBER},
        [NH_ACT_SILU] = {HUGE_VAL, NOT_A_NUMBER, NOT_A_NUMBER},
    };
    static const char *const dtypes[] = {"fp16", "bf16", "fp32", "fp64"};
    struct nh_config c = op_config(dtypes[_i]);
    for (enum nh_act kind = NH_ACT_GELU; kind <= NH_ACT_SILU; kind++) {
        memcpy(x, at, sizeof at);
        struct op_graph o = activate(&c, kind, 1, 4);
        for (int i = 0; i < 3; i++)
            assert_same(y[i], of[kind][i]);
        ck_assert(isfinite(y[3]));
        assert_trouble(&o, NH_SITE_FFN_ACT, 0, kind != NH_ACT_RELU, 2, 0);
        assert_first(&o, kind == NH_ACT_RELU ? NH_NO_OFFENCE : NH_NAN_MADE, NH_SITE_FFN_ACT, 1, nan(""));
        op_free(&o);
    }
}
END_TEST

/* ---- sums and products of two values ---- */

static struct op_graph combine_two(const struct nh_config *c, bool times, double a, double b, int n)
{
    struct op_graph o = op_new(c, 1, 1);
    nh_val p = op_input(&o, n, NH_ROLE_RESIDUAL), q = op_input(&o, n, NH_ROLE_RESIDUAL);
    nh_val out = times ? op_mul(&o, p, q) : op_axpby(&o, a, p, b, q, NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
    op_close(&o);
    op_set(&o, p, x);
    op_set(&o, q, x2);
    op_run(&o);
    op_read(&o, out, y);
    return o;
}

static void set_pairs(const double (*pairs)[3], int n)
{
    for (int i = 0; i < n; i++)
        x[i] = pairs[i][0], x2[i] = pairs[i][1];
}

/** At 0, of either sign, the slope of ReLU is 0, for gradients and for tangents. */
START_TEST(relu_has_no_slope_at_zero)
{
    static const double numbers[] = {-3, -0.0, 0.0, 0x1p-24, 2, -0x1p-24}, slopes[] = {0, 0, 0, 1, 1, 0};
    enum { N = 6 };
    struct nh_config c = op_config(_i ? "fp64" : "fp16");
    struct op_graph o = op_new(&c, 1, 1);
    nh_val in = op_input(&o, N, NH_ROLE_MATMUL_OUT), out = op_act(&o, NH_ACT_RELU, in);
    o.g->exit_value = out, o.g->head_rec = o.g->n_recs, o.g->values[in].watched = true;
    op_close_with(&o, 1, true);
    memcpy(x, numbers, sizeof numbers);
    op_set(&o, in, x);
    op_run(&o);
    for (int i = 0; i < N; i++)
        x2[i] = 5 + i;
    o.core->backward(o.x, 1, x2);
    o.core->read_grad(o.x, in, y);
    for (int i = 0; i < N; i++)
        assert_same(y[i], slopes[i] * x2[i]);
    const nh_val from[NH_STREAMS] = {in, -1}, to[NH_STREAMS] = {out, -1};
    struct nh_pass *pass;
    ck_assert_int_eq(o.core->pass_create(&pass, o.x, 1, 2, from, to, 1), NH_OK);
    o.core->jvp(pass, 1, x2, y);
    for (int i = 0; i < N; i++)
        assert_same(y[i], slopes[i] * x2[i]);
    o.core->pass_destroy(pass);
    op_free(&o);
}
END_TEST

/** A value that two operations read: the sum of what comes back from them is stored again, rounded and counted. */
START_TEST(gradients_of_two_readers_are_summed_and_rounded)
{
    static const struct {
        double a, b, dy, dx;
        bool overflow;
    } cases[] = {
        {1, 0x1p-11, 1 + 0x1p-10, 1 + 0x1p-9, false}, /* both are halves; 1 + 2^-10 + 2^-11 + 2^-21 lies above the middle */
        {1, 0x1p-11, 1, 1, false},                    /* a tie, to even */
        {1, 1, 40000, HUGE_VAL, true},
        {1, -1, 40000, 0, false},
        {1, 0.5, 3, 4.5, false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct nh_config c = op_config("fp16");
        struct op_graph o = op_new(&c, 1, 1);
        nh_val in = op_input(&o, 3, NH_ROLE_RESIDUAL);
        nh_val a = op_axpby(&o, cases[k].a, in, 0, -1, NH_SITE_BRANCH, NH_ROLE_RESIDUAL);
        nh_val b = op_axpby(&o, cases[k].b, in, 0, -1, NH_SITE_BRANCH, NH_ROLE_RESIDUAL);
        o.g->exit_value = op_axpby(&o, 1, a, 1, b, NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
        o.g->head_rec = o.g->n_recs, o.g->values[in].watched = true;
        op_close_with(&o, 1, true);
        for (int i = 0; i < 3; i++)
            x[i] = 1, x2[i] = cases[k].dy;
        op_set(&o, in, x);
        op_run(&o);
        o.core->backward(o.x, 1, x2);
        o.core->read_grad(o.x, in, y);
        for (int i = 0; i < 3; i++)
            assert_same(y[i], cases[k].dx);
        const struct nh_first f = o.core->first(o.x, NH_BWD);
        ck_assert_int_eq(f.kind, cases[k].overflow ? NH_OVERFLOW : NH_NO_OFFENCE);
        const struct nh_counts *counts = &o.core->counts(o.x)[o.g->values[in].site * NH_DIRECTIONS + NH_BWD];
        ck_assert_uint_eq(counts->overflow, cases[k].overflow ? 3 : 0);
        ck_assert_uint_eq(counts->total, 9); /* what came from each, and the sum */
        op_free(&o);
    }
}
END_TEST

START_TEST(residual_add_at_the_edge_of_half)
{
    static const double sums[][3] = {
        {65504, 15.984375, 65504},
        {65504, 16, HUGE_VAL},
        {64512, 1024, HUGE_VAL},
        {-64512, -1024, -HUGE_VAL},
        {HUGE_VAL, 1, HUGE_VAL},
        {1, -HUGE_VAL, -HUGE_VAL},
        {HUGE_VAL, -HUGE_VAL, NOT_A_NUMBER},
        {NOT_A_NUMBER, HUGE_VAL, NOT_A_NUMBER},
        {65504, -65504, 0},
        {2048, 0.875, 2048},
        {2048, 1.0009765625, 2050},
        {0x1p-24, -0x1p-23, -0x1p-24},
        {63488, 1024, 64512},
    };
    enum { N = sizeof sums / sizeof *sums };
    struct nh_config c = op_config("fp16");
    set_pairs(sums, N);
    struct op_graph o = combine_two(&c, false, 1, 1, N);
    for (int i = 0; i < N; i++)
        assert_same(y[i], sums[i][2]);
    assert_trouble(&o, NH_SITE_RESIDUAL, 3, 1, 3, 0);
    assert_count(&o, NH_SITE_RESIDUAL, subnormal, 1);
    assert_first(&o, NH_OVERFLOW, NH_SITE_RESIDUAL, 1, 65520);
    op_free(&o);
    c = op_config("bf16");
    x[0] = 64512, x2[0] = 1024;
    o = combine_two(&c, false, 1, 1, 1);
    assert_same(y[0], 65536);
    assert_trouble(&o, NH_SITE_RESIDUAL, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

START_TEST(weighted_sum_is_rounded_once)
{
    static const double pairs[][3] = {{1, 0x1p-11}, {3, 1}, {40000, -40000}};
    struct nh_config c = op_config("fp16");
    set_pairs(pairs, 3);
    struct op_graph o = combine_two(&c, false, 2, 3, 3);
    assert_same(y[0], 2 + 0x1p-9); /* 2 + 3 * 2^-11; 3 * 2^-11 + 2 ties up to even, and must not be rounded in parts */
    assert_same(y[1], 9);
    assert_same(y[2], -40000); /* 80000 - 120000: products may leave the format */
    assert_trouble(&o, NH_SITE_RESIDUAL, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

START_TEST(gated_product_overflows_where_both_factors_reach_256)
{
    static const double products[][3] = {
        {256, 255.875, 65504},         {256, 256, HUGE_VAL},        {-256, 256, -HUGE_VAL},
        {HUGE_VAL, 0, NOT_A_NUMBER},   {HUGE_VAL, 2, HUGE_VAL},     {NOT_A_NUMBER, 0, NOT_A_NUMBER},
        {0x1p-13, 0x1p-12, 0},         {0x1p-12, 0x1p-12, 0x1p-24}, {-0x1p-13, 0x1p-13, -0.0},
        {0x1.8p-13, 0x1p-12, 0x1p-24},
    };
    enum { N = sizeof products / sizeof *products };
    struct nh_config c = op_config("fp16");
    set_pairs(products, N);
    struct op_graph o = combine_two(&c, true, 0, 0, N);
    for (int i = 0; i < N; i++)
        assert_same(y[i], products[i][2]);
    assert_trouble(&o, NH_SITE_FFN_GLU, 2, 1, 2, 0);
    assert_count(&o, NH_SITE_FFN_GLU, underflow, 2);
    assert_count(&o, NH_SITE_FFN_GLU, subnormal, 2);
    assert_same(op_counts(&o, NH_SITE_FFN_GLU)->min_abs, 0x1p-24);
    assert_first(&o, NH_OVERFLOW, NH_SITE_FFN_GLU, 1, 65536);
    op_free(&o);
}
END_TEST

/* ---- rotation ---- */

/** Rotates `rows` rows (positions 0 ..) of one head of x. */
static struct op_graph rotate(const struct nh_config *c, int rows, int dim)
{
    struct op_graph o = op_new(c, 1, rows);
    nh_val in = op_input(&o, dim, NH_ROLE_ACTIVATION), out = op_rope(&o, in, dim);
    op_close(&o);
    op_set(&o, in, x);
    op_run(&o);
    op_read(&o, out, y);
    return o;
}

/* rounded to bf16 first, position 257 would be 256, and 15962 would be 15936 */
START_TEST(rotation_is_built_before_it_is_cast)
{
    static const struct {
        int position;
        double cosine;
    } cases[] = {{0, 1}, {256, -0.03979}, {257, 0.81931}, {15936, -0.26795}, {15962, -0.90802}};
    static const char *const dtypes[] = {"bf16", "fp16", "fp32", "fp8-e4m3", "fp64"};
    enum { ROWS = 15963 };
    struct nh_config c = op_config(dtypes[_i]);
    for (int t = 0; t < ROWS; t++)
        x[2 * t] = 1, x[2 * t + 1] = 0;
    struct op_graph o = rotate(&c, ROWS, 2);
    for (int t = 0; t < ROWS; t++) {
        assert_same(y[2 * t], nh_round(&c.dtype, cos(t)));
        assert_same(y[2 * t + 1], nh_round(&c.dtype, sin(t)));
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_double_eq_tol(y[2 * cases[i].position], cases[i].cosine, ldexp(1, -c.dtype.man_bits - 1) + 5e-6);
    op_free(&o);
}
END_TEST

START_TEST(rotated_products_depend_on_the_distance_alone)
{
    static const char *const dtypes[] = {"fp64", "fp32", "bf16"};
    /* per number: table and result are rounded once each, products of size |q||k|, dim of them */
    static const double tolerance[] = {1e-11, 64 * 0x1p-22, 64 * 0x1p-6};
    enum { ROWS = 512, DIM = 64 };
    uint64_t state = 5;
    double k[DIM], q[DIM], distance[ROWS];
    static double rotated[ROWS * DIM];
    for (int j = 0; j < DIM; j++)
        q[j] = (op_draw(&state, 9) - 4) / 4.0, k[j] = (op_draw(&state, 9) - 4) / 4.0;
    struct nh_config c = op_config(dtypes[_i]);
    for (int i = 0; i < ROWS * DIM; i++)
        x[i] = q[i % DIM];
    struct op_graph o = rotate(&c, ROWS, DIM);
    op_free(&o);
    memcpy(rotated, y, sizeof rotated);
    for (int i = 0; i < ROWS * DIM; i++)
        x[i] = k[i % DIM];
    o = rotate(&c, ROWS, DIM);
    op_free(&o);
    double plain = 0, length = 0, turned = 0;
    for (int j = 0; j < DIM; j++) {
        plain += q[j] * k[j], length += q[j] * q[j];
        turned += rotated[300 * DIM + j] * rotated[300 * DIM + j];
    }
    ck_assert_double_eq_tol(turned, length, tolerance[_i]);
    for (int m = 0; m < ROWS; m += 7)
        for (int n = 0; n <= m; n += 5) {
            double dot = 0;
            for (int j = 0; j < DIM; j++)
                dot += rotated[m * DIM + j] * y[n * DIM + j];
            if (n == 0)
                distance[m] = dot;
        }
    for (int m = 0; m < ROWS; m += 7)
        for (int n = 0; n <= m; n += 7) {
            double dot = 0;
            for (int j = 0; j < DIM; j++)
                dot += rotated[m * DIM + j] * y[n * DIM + j];
            ck_assert_double_eq_tol(dot, distance[m - n], tolerance[_i]);
        }
    ck_assert_double_eq_tol(distance[0], plain, tolerance[_i]);
    ck_assert_double_ge(fabs(distance[7] - plain), 0.1); /* it does turn */
}
END_TEST

START_TEST(inf_in_one_number_of_a_pair_reaches_the_pair)
{
    struct nh_config c = op_config("fp16");
    for (int i = 0; i < 4 * 8; i++)
        x[i] = 1;
    x[2 * 8 + 1] = HUGE_VAL; /* position 2, pair (1, 5) */
    x[3 * 8 + 6] = nan("");  /* position 3, pair (2, 6) */
    struct op_graph o = rotate(&c, 4, 8);
    for (int i = 0; i < 4 * 8; i++)
        ck_assert_int_eq(!isfinite(y[i]), i == 17 || i == 21 || i == 26 || i == 30);
    assert_trouble(&o, NH_SITE_ROPE, 0, 0, 4, 0);
    op_free(&o);
    x[17] = 65504, x[21] = -65504, x[30] = 0;
    o = rotate(&c, 4, 8);
    ck_assert_uint_gt(op_counts(&o, NH_SITE_ROPE)->overflow, 0); /* cos + sin > 1 */
    assert_trouble(&o, NH_SITE_ROPE, op_counts(&o, NH_SITE_ROPE)->overflow, 0, 0, 0);
    op_free(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_point");
    TCase *tc = tcase_create("ops_point");
    tcase_add_test(tc, exp_in_float_is_within_two_ulp);
    tcase_add_test(tc, exp_has_its_ends);
    tcase_add_test(tc, gelu_of_large_numbers);
    tcase_add_test(tc, gelu_of_numbers_whose_cube_leaves_fp32);
    tcase_add_test(tc, activations_of_every_half);
    tcase_add_test(tc, gelu_in_fp32_is_accurate);
    tcase_add_loop_test(tc, activations_of_what_is_not_finite, 0, 4);
    tcase_add_loop_test(tc, relu_has_no_slope_at_zero, 0, 2);
    tcase_add_test(tc, gradients_of_two_readers_are_summed_and_rounded);
    tcase_add_test(tc, residual_add_at_the_edge_of_half);
    tcase_add_test(tc, weighted_sum_is_rounded_once);
    tcase_add_test(tc, gated_product_overflows_where_both_factors_reach_256);
    tcase_add_loop_test(tc, rotation_is_built_before_it_is_cast, 0, 5);
    tcase_add_loop_test(tc, rotated_products_depend_on_the_distance_alone, 0, 3);
    tcase_add_test(tc, inf_in_one_number_of_a_pair_reaches_the_pair);
    return run_suite(suite, tc);
}
