// SPDX-License-Identifier: GPL-3.0-or-later
/** RMSNorm and LayerNorm on given rows: how inf becomes NaN or a silent zero, statistics in half precision, eps, the
 * order of rounding, derivatives; and both against a plain reference, bits and counters. */
#include "tests/unit/op_graph.h"

enum { MOST = 64 * 1024 };
static double x[MOST], y[MOST], want[MOST], gains[4096], shifts[4096];

/** Norms rows x cols of x over groups of columns, with gains[] and, for a LayerNorm, shifts[]; the result goes to y. */
static struct op_graph norm_groups(const struct nh_config *c, int rows, int cols, int group, bool per_head)
{
    struct op_graph o = op_new(c, 1, rows);
    nh_val in = op_input(&o, cols, NH_ROLE_RESIDUAL);
    int n = per_head ? group : cols, gain = op_param(&o, 1, n, NH_ROLE_NORM_OUT);
    int bias = c->norm == NH_NORM_LAYER ? op_param(&o, 1, n, NH_ROLE_NORM_OUT) : -1;
    nh_val out = op_norm(&o, c->norm, in, group, gain, bias, NH_SITE_NORM_PRE);
    op_close(&o);
    op_set(&o, in, x);
    o.core->set_param(o.x, gain, gains);
    if (bias >= 0)
        o.core->set_param(o.x, bias, shifts);
    op_run(&o);
    op_read(&o, out, y);
    return o;
}

/** The same over whole rows with gain 1 and bias 0. */
static struct op_graph norm(const struct nh_config *c, int rows, int cols)
{
    for (int i = 0; i < cols; i++)
        gains[i] = 1, shifts[i] = 0;
    return norm_groups(c, rows, cols, cols, false);
}

static void fill(int n, double number)
{
    for (int i = 0; i < n; i++)
        x[i] = number;
}

static void set_row(int row, double a, double b, double c, double d)
{
    double *to = x + 4 * row;
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

static const char *const formats[] = {"fp16", "bf16", "fp32", "e4m10", "fp8-e5m2", "fp64"};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* ---- what is not finite ---- */

START_TEST(norm_of_inf_row_is_one_nan_and_zeros)
{
    for (enum nh_width_of stats = NH_WIDE_FP32; stats <= NH_WIDE_DTYPE; stats++) {
        struct nh_config c = op_config(formats[_i]);
        c.norm_stats = stats;
        set_row(0, 1, 1, 1, 1);
        set_row(1, HUGE_VAL, 1, 2, 3);
        struct op_graph o = norm(&c, 2, 4);
        ck_assert_double_eq_tol(y[0], 1, 1e-4);
        assert_same(y[4], nan(""));
        for (int i = 5; i < 8; i++)
            assert_same(y[i], 0);
        assert_trouble(&o, NH_SITE_NORM_PRE, 0, 1, 0, 0);
        assert_count(&o, NH_SITE_NORM_PRE, underflow, 0);
        assert_count(&o, NH_SITE_NORM_PRE, total, 8);
        assert_first(&o, NH_NAN_MADE, NH_SITE_NORM_PRE, 4, nan(""));
        op_free(&o);
    }
}
END_TEST

START_TEST(layer_norm_of_inf_row_is_all_nan)
{
    for (enum nh_width_of stats = NH_WIDE_FP32; stats <= NH_WIDE_DTYPE; stats++) {
        struct nh_config c = op_config(formats[_i]);
        c.norm = NH_NORM_LAYER, c.norm_stats = stats;
        set_row(0, 1, 1, 2, 2);
        set_row(1, HUGE_VAL, 1, 2, 3);
        struct op_graph o = norm(&c, 2, 4);
        for (int i = 0; i < 4; i++) {
            ck_assert_double_eq_tol(y[i], i < 2 ? -1 : 1, 1e-3);
            assert_same(y[4 + i], nan(""));
        }
        assert_trouble(&o, NH_SITE_NORM_PRE, 0, 4, 0, 0);
        assert_first(&o, NH_NAN_MADE, NH_SITE_NORM_PRE, 4, nan(""));
        op_free(&o);
    }
}
END_TEST

START_TEST(norm_of_nan_row_passes_it_on)
{
    for (enum nh_norm_type type = NH_NORM_RMS; type <= NH_NORM_LAYER; type++) {
        struct nh_config c = op_config(formats[_i]);
        c.norm = type;
        set_row(0, 1, nan(""), 2, 3);
        set_row(1, 1, 2, 3, HUGE_VAL);
        set_row(2, nan(""), 2, 3, HUGE_VAL);
        struct op_graph o = norm(&c, 3, 4);
        for (int i = 0; i < 12; i++)
            if (i < 4 || i > 7)
                assert_same(y[i], nan(""));
        assert_trouble(&o, NH_SITE_NORM_PRE, 0, type == NH_NORM_RMS ? 1 : 4, 8, 0);
        op_free(&o);
    }
}
END_TEST

START_TEST(inf_in_one_head_stays_in_its_head)
{
    struct nh_config c = op_config("fp16");
    for (int i = 0; i < 4; i++)
        gains[i] = 1;
    for (int i = 0; i < 16; i++)
        x[i] = 1;
    x[5] = -HUGE_VAL;
    struct op_graph o = norm_groups(&c, 2, 8, 4, true);
    for (int i = 0; i < 16; i++)
        assert_same(y[i], i == 5 ? nan("") : i >= 4 && i < 8 ? 0 : 1);
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 1, 0, 0);
    op_free(&o);
}
END_TEST

START_TEST(inf_in_a_gain_is_passed_on_in_its_column)
{
    struct nh_config c = op_config("fp16");
    for (int i = 0; i < 4; i++)
        gains[i] = 1;
    gains[2] = HUGE_VAL;
    fill(8, 3);
    x[6] = 0;
    struct op_graph o = norm_groups(&c, 2, 4, 4, false);
    assert_same(y[2], HUGE_VAL);
    assert_same(y[6], nan("")); /* 0 * inf */
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 1, 1, 0);
    op_free(&o);
}
END_TEST

/* ---- statistics that leave their format ---- */

START_TEST(half_sum_of_squares_kills_rows_from_width_1024)
{
    struct nh_config c = op_config("fp16");
    c.norm_stats = NH_WIDE_DTYPE;
    fill(3 * 1023, 8);
    struct op_graph o = norm(&c, 3, 1023);
    for (int i = 0; i < 3 * 1023; i++)
        assert_same(y[i], 1);
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
    op_free(&o);

    fill(3 * 1024, 8);
    o = norm(&c, 3, 1024);
    for (int i = 0; i < 3 * 1024; i++)
        assert_same(y[i], 0);
    assert_trouble(&o, NH_SITE_NORM_PRE, 3, 0, 0, 3);
    assert_first(&o, NH_OVERFLOW, NH_SITE_NORM_PRE, 0, HUGE_VAL);
    ck_assert_double_eq(o.core->moments(o.x, o.g->recs[1].out).sum_sq, 0);
    ck_assert(!o.core->nonfinite(o.x, 1, 2));
    op_free(&o);

    c.norm_stats = NH_WIDE_FP32;
    o = norm(&c, 3, 1024);
    for (int i = 0; i < 3 * 1024; i++)
        assert_same(y[i], 1);
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

START_TEST(one_dead_row_among_many_is_found)
{
    struct nh_config c = op_config("fp16");
    c.norm_stats = NH_WIDE_DTYPE;
    enum { ROWS = 40, DEAD = 33 }; /* in the second unit of work */
    fill(ROWS * 1024, 1);
    for (int i = 0; i < 1024; i++)
        x[DEAD * 1024 + i] = i % 2 ? 8 : -8;
    struct op_graph o = norm(&c, ROWS, 1024);
    assert_trouble(&o, NH_SITE_NORM_PRE, 1, 0, 0, 1);
    assert_first(&o, NH_OVERFLOW, NH_SITE_NORM_PRE, DEAD * 1024, HUGE_VAL);
    op_free(&o);
}
END_TEST

/* 255.875^2 rounds to 65472, 256^2 to inf */
START_TEST(half_square_overflows_from_256)
{
    struct nh_config c = op_config("fp16");
    c.norm_stats = NH_WIDE_DTYPE;
    set_row(0, 255.875, 0, 0, 0);
    set_row(1, 256, 0, 0, 0);
    struct op_graph o = norm(&c, 2, 4);
    ck_assert_double_eq_tol(y[0], 2, 4e-3);
    assert_same(y[4], 0);
    assert_trouble(&o, NH_SITE_NORM_PRE, 1, 0, 0, 1);
    op_free(&o);
}
END_TEST

START_TEST(fp32_sum_of_squares_kills_rows_too)
{
    static const char *const wide[] = {"fp32", "bf16"};
    for (int i = 0; i < 2; i++) {
        struct nh_config c = op_config(wide[i]);
        set_row(0, 0x1p63, 0, 0, 0);
        set_row(1, 0x1p64, 0x1p50, -1, 0);
        struct op_graph o = norm(&c, 2, 4);
        assert_same(y[0], 2);
        for (int j = 4; j < 8; j++)
            assert_same(fabs(y[j]), 0);
        assert_trouble(&o, NH_SITE_NORM_PRE, 1, 0, 0, 1);
        op_free(&o);
    }
}
END_TEST

START_TEST(half_layer_norm_row_becomes_its_bias)
{
    struct nh_config c = op_config("fp16");
    c.norm = NH_NORM_LAYER, c.norm_stats = NH_WIDE_DTYPE;
    for (int i = 0; i < 1024; i++) {
        x[i] = i % 2 ? 8 : -8;
        gains[i] = 3, shifts[i] = 0.25;
    }
    struct op_graph o = norm_groups(&c, 1, 1024, 1024, false);
    for (int i = 0; i < 1024; i++)
        assert_same(y[i], 0.25);
    assert_trouble(&o, NH_SITE_NORM_PRE, 1, 0, 0, 1);
    op_free(&o);

    fill(1024, 100); /* the sum for the mean, 102400 */
    o = norm_groups(&c, 1, 1024, 1024, false);
    for (int i = 0; i < 1024; i++)
        assert_same(y[i], nan(""));
    assert_trouble(&o, NH_SITE_NORM_PRE, 1, 1024, 0, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_NORM_PRE, 0, HUGE_VAL);
    op_free(&o);
}
END_TEST

START_TEST(row_without_spread_is_not_a_dead_row)
{
    struct nh_config c = op_config("fp16");
    c.norm = NH_NORM_LAYER;
    for (int i = 0; i < 4; i++)
        gains[i] = 1, shifts[i] = 0.25;
    set_row(0, 5, 5, 5, 5);
    set_row(1, 0, 0, 0, 0);
    struct op_graph o = norm_groups(&c, 2, 4, 4, false);
    for (int i = 0; i < 8; i++)
        assert_same(y[i], 0.25);
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
    op_free(&o);

    c.norm = NH_NORM_RMS;
    set_row(1, 0, 3, 0, 0);
    o = norm_groups(&c, 2, 4, 4, false);
    assert_same(y[5], 2);
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

/** Gains that are held as w of 1 + w: a row is dead where it is zero although a factor is not, whatever w is. */
START_TEST(dead_rows_under_gains_of_one_plus_w)
{
    static const struct {
        double w;
        uint64_t dead;
    } cases[] = {{0, 1}, {0.5, 1}, {-1, 0}, {-0.5, 1}};
    for (int i = 0; i < 4; i++)
        for (int layer = 0; layer < 2; layer++) {
            struct nh_config c = op_config("fp16");
            c.norm = layer ? NH_NORM_LAYER : NH_NORM_RMS, c.norm_stats = NH_WIDE_DTYPE;
            struct op_graph o = op_new(&c, 1, 2);
            nh_val in = op_input(&o, 1024, NH_ROLE_RESIDUAL);
            int gain = op_param(&o, 1, 1024, NH_ROLE_NORM_OUT), bias = layer ? op_param(&o, 1, 1024, NH_ROLE_NORM_OUT) : -1;
            nh_val out = op_norm(&o, c.norm, in, 1024, gain, bias, NH_SITE_NORM_PRE);
            o.g->recs[o.g->n_recs - 1].u.norm.offset = 1;
            op_close(&o);
            for (int j = 0; j < 1024; j++) {
                x[j] = j % 2 ? 8 : -8; /* the sum of squares, 65536, overflows */
                x[1024 + j] = j % 2 ? 1 : -1;
            }
            op_set(&o, in, x);
            op_set_all(&o, gain, cases[i].w);
            if (layer)
                op_set_all(&o, bias, 0.25);
            op_run(&o);
            op_read(&o, out, y);
            double shift = layer ? 0.25 : 0;
            for (int j = 0; j < 1024; j++) {
                assert_same(fabs(y[j]), shift);
                ck_assert_double_eq_tol(y[1024 + j], (j % 2 ? 1 : -1) * (1 + cases[i].w) + shift, 2e-3);
            }
            assert_trouble(&o, NH_SITE_NORM_PRE, 1, 0, 0, cases[i].dead);
            op_free(&o);
        }
}
END_TEST

/** A constant row has no variance, however its mean is rounded: its normed values are the bias, to the last bit. */
START_TEST(layer_norm_of_a_constant_row_is_its_bias)
{
    static const double constants[] = {0.1, -0.3, 1e-3, 5, 1000.1, 3e4};
    static const int widths[] = {3, 7, 48, 100, 1000};
    for (int k = 0; k < 5; k++) {
        struct nh_config c = op_config(formats[_i]);
        int n = widths[k];
        c.norm = NH_NORM_LAYER;
        for (int r = 0; r < 6; r++)
            for (int j = 0; j < n; j++)
                x[r * n + j] = constants[r];
        for (int j = 0; j < n; j++)
            gains[j] = 2, shifts[j] = 0.25;
        struct op_graph o = norm_groups(&c, 6, n, n, false);
        double stored[6 * 1000];
        op_read(&o, o.g->recs[1].in[0], stored);
        for (int i = 0; i < 6 * n; i++)
            if (isfinite(stored[i])) /* 30000 is inf in e4m10 */
                assert_same(y[i], 0.25);
        assert_count(&o, NH_SITE_NORM_PRE, zero_made, 0);
        assert_count(&o, NH_SITE_NORM_PRE, overflow, 0);
        op_free(&o);
    }
}
END_TEST

/* fp16 sums of ones stall at 2048, bf16 sums at 256 (fp32 statistics do not) */
START_TEST(half_statistics_stall)
{
    static const struct {
        const char *dtype;
        int cols;
        double mean_square;
    } cases[] = {{"fp16", 2048, 1}, {"fp16", 4096, 0.5}, {"bf16", 256, 1}, {"bf16", 1024, 0.25}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (enum nh_width_of stats = NH_WIDE_FP32; stats <= NH_WIDE_DTYPE; stats++) {
            struct nh_config c = op_config(cases[i].dtype);
            c.norm_stats = stats;
            fill(cases[i].cols, 1);
            struct op_graph o = norm(&c, 1, cases[i].cols);
            double mean_square = stats == NH_WIDE_DTYPE ? cases[i].mean_square : 1;
            for (int j = 0; j < cases[i].cols; j++)
                ck_assert_double_eq_tol(y[j], 1 / sqrt(mean_square), 4e-3);
            assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
            op_free(&o);
        }
}
END_TEST

/* the divisor 65536 is not a number of fp16: it must not become one */
START_TEST(moments_of_ones_are_one_in_every_format)
{
    static const char *const all[] = {"fp16", "bf16", "fp32", "fp8-e4m3", "e4m3", "e5m12", "fp64"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct nh_config c = op_config(all[i]);
        struct op_graph o = op_new(&c, 1, 64);
        nh_val in = op_input(&o, 1024, NH_ROLE_RESIDUAL);
        op_close(&o);
        fill(64 * 1024, 1);
        op_set(&o, in, x);
        op_run(&o);
        struct nh_moments m = o.core->moments(o.x, in);
        ck_assert_double_eq(m.n, 65536);
        ck_assert_double_eq(sqrt(m.sum_sq / m.n), 1);
        ck_assert(!m.has_kurtosis); /* a constant has no spread */
        ck_assert_double_eq(m.max_abs, 1);
        ck_assert_double_eq_tol(m.token_cos, 1, 1e-13);
        fill(64 * 1024, 240);
        op_set(&o, in, x);
        op_run(&o);
        m = o.core->moments(o.x, in);
        ck_assert_double_eq(sqrt(m.sum_sq / m.n), 240);
        op_free(&o);
    }
}
END_TEST

/* sums of squares of 65536 fp32 values: in fp32, whatever the order, they would come out with at most 24 bits */
START_TEST(moments_are_summed_in_double)
{
    struct nh_config c = op_config("fp32");
    struct op_graph o = op_new(&c, 1, 64);
    nh_val in = op_input(&o, 1024, NH_ROLE_RESIDUAL);
    op_close(&o);
    fill(64 * 1024, 1 + 0x1p-20);
    op_set(&o, in, x);
    op_run(&o);
    double expected = 65536 * (1 + 0x1p-20) * (1 + 0x1p-20);
    ck_assert_double_eq_tol(o.core->moments(o.x, in).sum_sq, expected, 65536 * 1e-14);
    fill(64 * 1024, 0x1p100);
    op_set(&o, in, x);
    op_run(&o);
    ck_assert_double_eq(o.core->moments(o.x, in).sum_sq, 0x1p216);
    op_free(&o);
}
END_TEST

/* ---- eps ---- */

/* a row so small that its squares vanish in fp16 shows eps alone: y = x / sqrt(eps) */
START_TEST(eps_is_rounded_to_the_format_of_the_statistics)
{
    static const struct {
        double eps, in_half;
    } cases[] = {{1e-8, 0},           {0x1p-25, 0},         {3e-8, 0x1p-24},
                 {1e-7, 2 * 0x1p-24}, {1e-6, 17 * 0x1p-24}, {1e-5, 168 * 0x1p-24},
                 {1e-3, 0x1.064p-10}};
    struct nh_fmt half;
    ck_assert_int_eq(nh_fmt_parse(&half, "fp16"), NH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_config c = op_config("fp16");
        c.norm_stats = NH_WIDE_DTYPE, c.eps = cases[i].eps;
        set_row(0, 0x1p-14, 0, -0x1p-15, 0x1p-14);
        struct op_graph o = norm(&c, 1, 4);
        double root = nh_round(&half, sqrt(cases[i].in_half)), scale = nh_round(&half, 1 / root);
        if (cases[i].in_half > 0) {
            for (int j = 0; j < 4; j++)
                assert_same(y[j], nh_round(&half, x[j] * scale));
            assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
        } else { /* 1/0 = inf: three numbers leave the format, 0 * inf is NaN */
            assert_same(y[0], HUGE_VAL);
            assert_same(y[2], -HUGE_VAL);
            assert_trouble(&o, NH_SITE_NORM_PRE, 3, 1, 0, 0);
        }
        op_free(&o);
    }
}
END_TEST

/* 2^-25 is half a unit of the smallest numbers: added unrounded to a mean square of 2^-24, it would make it 2^-23 */
START_TEST(eps_that_vanishes_adds_nothing)
{
    struct nh_config c = op_config("fp16");
    c.norm_stats = NH_WIDE_DTYPE, c.eps = 0x1p-25;
    set_row(0, 0x1p-11, 0, 0, 0);
    struct op_graph o = norm(&c, 1, 4);
    assert_same(y[0], 2);
    op_free(&o);
}
END_TEST

START_TEST(zero_row_is_nan_where_eps_vanishes)
{
    static const struct {
        const char *dtype;
        enum nh_width_of stats;
        double eps;
        bool vanishes;
    } cases[] = {
        {"fp16", NH_WIDE_DTYPE, 1e-8, true},  {"fp16", NH_WIDE_DTYPE, 3e-8, false},
        {"fp16", NH_WIDE_DTYPE, 1e-6, false}, {"fp16", NH_WIDE_DTYPE, 1e-5, false},
        {"fp16", NH_WIDE_FP32, 1e-8, false},  {"fp16", NH_WIDE_FP32, 1e-5, false},
        {"bf16", NH_WIDE_DTYPE, 1e-8, false}, {"bf16", NH_WIDE_FP32, 1e-8, false},
        {"fp32", NH_WIDE_FP32, 1e-8, false},  {"fp32", NH_WIDE_FP32, 1e-50, true},
        {"e4m3", NH_WIDE_DTYPE, 1e-5, true},  {"e4m3", NH_WIDE_FP32, 1e-5, false},
        {"fp64", NH_WIDE_FP32, 1e-50, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (enum nh_norm_type type = NH_NORM_RMS; type <= NH_NORM_LAYER; type++) {
            struct nh_config c = op_config(cases[i].dtype);
            c.norm = type, c.norm_stats = cases[i].stats, c.eps = cases[i].eps;
            fill(8, 0);
            struct op_graph o = norm(&c, 2, 4);
            for (int j = 0; j < 8; j++)
                assert_same(y[j], cases[i].vanishes ? nan("") : 0);
            assert_trouble(&o, NH_SITE_NORM_PRE, 0, cases[i].vanishes ? 8 : 0, 0, 0);
            op_free(&o);
        }
}
END_TEST

START_TEST(eps_stands_inside_the_root)
{
    struct nh_config c = op_config("fp32");
    c.eps = 3;
    fill(4, 1);
    struct op_graph o = norm(&c, 1, 4);
    assert_same(y[0], 0.5);
    op_free(&o);
}
END_TEST

/* ---- variance without cancellation ---- */

START_TEST(layer_norm_of_a_large_offset)
{
    struct nh_config c = op_config("fp32");
    c.norm = NH_NORM_LAYER;
    set_row(0, 40000, 40001, 40002, 40003);
    struct op_graph o = norm(&c, 1, 4);
    static const double expected[] = {-1.34163542, -0.44721181, 0.44721181, 1.34163542};
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(y[i], expected[i], 3e-7); /* digits of the reference, two ulp */
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

/* offset/spread = 2^20: E[x^2] - E[x]^2 would need 40 bits. All sums here are exact in fp32. */
START_TEST(layer_norm_of_a_stream_with_an_offset)
{
    static const char *const dtypes[] = {"fp32", "fp64"};
    for (int i = 0; i < 2; i++) {
        struct nh_config c = op_config(dtypes[i]);
        c.norm = NH_NORM_LAYER, c.eps = 1e-12;
        for (int j = 0; j < 4 * 16; j++)
            x[j] = 0x1p20 + (j % 2 ? 1 : -1);
        struct op_graph o = norm(&c, 4, 16);
        for (int j = 0; j < 4 * 16; j++)
            ck_assert_double_eq_tol(y[j], j % 2 ? 1 : -1, 1e-7);
        op_free(&o);
    }
}
END_TEST

/* deviations of 0.001 from 10000, where neighbours in fp32 are 0.00098 apart: a mean rounded to fp32 is off by a quarter of them */
START_TEST(layer_norm_of_a_mean_beside_which_the_spread_is_small)
{
    static const char *const dtypes[] = {"fp32", "fp64"};
    static const double means[] = {10000, -10000, 1e-3, 3e7};
    for (int i = 0; i < 8; i++) {
        struct nh_config c = op_config(dtypes[i % 2]);
        c.norm = NH_NORM_LAYER, c.eps = 1e-12;
        double mean = 0, square = 0, size = i / 2 == 3 ? 4 : fabs(means[i / 2]) * 1e-7, tolerance = i % 2 ? 1e-9 : 1e-6;
        for (int j = 0; j < 16; j++)
            x[j] = (double)(float)(means[i / 2] + size * j), mean += x[j] / 16;
        for (int j = 0; j < 16; j++)
            square += (x[j] - mean) * (x[j] - mean) / 16;
        for (int j = 0; j < 16; j++)
            gains[j] = 1, shifts[j] = 0;
        struct op_graph o = norm(&c, 1, 16);
        for (int j = 0; j < 16; j++)
            ck_assert_double_eq_tol(y[j], (x[j] - mean) / sqrt(square + c.eps), tolerance);
        /* the derivative knows the same mean: J 1 = 0, J (x - mean) = (x - mean) eps / (var + eps)^(3/2) */
        struct nh_pass *p;
        nh_val from = o.g->recs[1].in[0], to = o.g->recs[1].out;
        double in[32], out[32], back[32];
        for (int j = 0; j < 16; j++)
            in[j] = 1e6, in[16 + j] = (x[j] - mean) / sqrt(square);
        ck_assert_int_eq(o.core->pass_create(&p, o.x, 1, 2, (nh_val[NH_STREAMS]){from, -1}, (nh_val[NH_STREAMS]){to, -1}, 2), NH_OK);
        o.core->jvp(p, 2, in, out), o.core->vjp(p, 2, in, back);
        o.core->pass_destroy(p);
        double rstd = 1 / sqrt(square + c.eps), left = c.eps * rstd * rstd;
        for (int j = 0; j < 32; j++) {
            double expected = j < 16 ? 0 : in[j] * left * rstd;
            ck_assert_double_eq_tol(out[j], expected, 4 * tolerance * rstd);
            ck_assert_double_eq_tol(back[j], expected, 4 * tolerance * rstd);
        }
        op_free(&o);
    }
}
END_TEST

START_TEST(layer_norm_of_a_constant_has_no_residue_of_its_mean)
{
    static const double numbers[] = {0.1, -3, 12345.678, 1e-30, 7e30};
    for (int i = 0; i < 10; i++)
        for (int cols = 3; cols <= 1000; cols = 3 * cols + 1) {
            struct nh_config c = op_config(i % 2 ? "fp64" : "fp32");
            c.norm = NH_NORM_LAYER, c.eps = 1e-30;
            for (int j = 0; j < cols; j++)
                x[j] = i % 2 ? numbers[i / 2] : (double)(float)numbers[i / 2];
            struct op_graph o = norm(&c, 1, cols);
            for (int j = 0; j < cols; j++)
                assert_same(y[j], 0);
            assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
            op_free(&o);
        }
}
END_TEST

/* ---- moments ---- */

static struct nh_moments moments_of(const char *dtype, int seq, int cols)
{
    struct nh_config c = op_config(dtype);
    struct op_graph o = op_new(&c, 1, seq);
    nh_val in = op_input(&o, cols, NH_ROLE_RESIDUAL);
    op_close(&o);
    op_set(&o, in, x);
    op_run(&o);
    struct nh_moments m = o.core->moments(o.x, in);
    op_free(&o);
    return m;
}

/* of +-1 with one +-3 in four: mean square 3, mean fourth power 21; neither an offset nor a factor changes it */
START_TEST(kurtosis_is_about_the_mean)
{
    static const double offsets[] = {0, 5, -1e4, 1e4}, factors[] = {1, 1, 1, 1e-3};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 64; j++)
            x[j] = offsets[i] + factors[i] * (j % 2 ? -1 : 1) * (j / 2 % 4 ? 1 : 3);
        struct nh_moments m = moments_of("fp64", 8, 8);
        ck_assert(m.has_kurtosis);
        ck_assert_double_eq_tol(m.kurtosis, 21. / 9, 1e-9);
    }
    for (int j = 0; j < 64; j++)
        x[j] = (j % 2 ? -1e200 : 1e200) * (j / 2 % 4 ? 1 : 3); /* the fourth power is no double */
    ck_assert_double_eq_tol(moments_of("fp64", 8, 8).kurtosis, 21. / 9, 1e-12);
    fill(64, 0.1);
    ck_assert(!moments_of("fp64", 8, 8).has_kurtosis);
    ck_assert(!moments_of("fp32", 8, 8).has_kurtosis);
    x[5] = nan("");
    ck_assert(isnan(moments_of("fp64", 8, 8).kurtosis) && moments_of("fp64", 8, 8).has_kurtosis);
}
END_TEST

START_TEST(token_cos_leaves_zero_rows_out)
{
    fill(32, 0);
    ck_assert(!moments_of("fp32", 4, 8).has_token_cos);
    x[0] = 3; /* one row has no other to be compared with */
    ck_assert(!moments_of("fp32", 4, 8).has_token_cos);
    x[16] = 1, x[17] = 1;
    struct nh_moments m = moments_of("fp32", 4, 8);
    ck_assert(m.has_token_cos);
    ck_assert_double_eq_tol(m.token_cos, sqrt(0.5), 1e-15);
    x[24] = -1e-40; /* a third: cosines sqrt(1/2), -1, -sqrt(1/2) */
    ck_assert_double_eq_tol(moments_of("fp32", 4, 8).token_cos, -1. / 3, 1e-15);
    x[24] = -1e-200, x[0] = 1e250; /* squares that no double holds */
    ck_assert_double_eq_tol(moments_of("fp64", 4, 8).token_cos, -1. / 3, 1e-15);
    x[24] = nan("");
    ck_assert(isnan(moments_of("fp64", 4, 8).token_cos));
}
END_TEST

/* ---- where the result is rounded ---- */

START_TEST(norm_cast_before_gain_rounds_twice)
{
    static const char *const dtypes[] = {"fp16", "bf16", "fp8-e4m3"};
    enum { ROWS = 64, COLS = 64 };
    struct nh_config c = op_config(dtypes[_i]);
    uint64_t state = 1;
    static double half_x[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        half_x[i] = x[i] = op_draw(&state, 15) - 7; /* squares sum up exactly */
    for (int i = 0; i < COLS; i++)
        gains[i] = nh_round(&c.dtype, 0.5 + op_draw(&state, 1000) * 1e-3);
    int differ = 0;
    static double once[ROWS * COLS];
    for (int before = 0; before < 2; before++) {
        c.cast_before_gain = before;
        struct op_graph o = norm_groups(&c, ROWS, COLS, COLS, false);
        for (int r = 0; r < ROWS; r++) {
            float sum = 0;
            for (int i = 0; i < COLS; i++)
                sum += (float)(half_x[r * COLS + i] * half_x[r * COLS + i]);
            float scale = 1 / sqrtf(sum / COLS + (float)c.eps);
            for (int i = 0; i < COLS; i++) {
                double normed = (double)((float)half_x[r * COLS + i] * scale);
                normed = before ? nh_round(&c.dtype, normed) : normed;
                want[r * COLS + i] = nh_round(&c.dtype, (double)((float)normed * (float)gains[i]));
            }
        }
        assert_all_same(y, want, ROWS * COLS);
        for (int i = 0; i < ROWS * COLS; i++) {
            if (before)
                differ += !same_bits(once[i], y[i]);
            once[i] = y[i];
        }
        op_free(&o);
    }
    ck_assert_int_gt(differ, ROWS * COLS / 10); /* 26 % of half outputs were measured for Gaussian rows */
    ck_assert_int_lt(differ, ROWS * COLS / 2);
}
END_TEST

/* ---- the plain reference ---- */

/** The definition, step by step: statistics in the format of the statistics (each step rounded) or in the executor's
 * type. */
static void plain_norm(const struct op_graph *o, const struct nh_config *c, int rows, int cols, int n, bool per_head,
                       struct plain *s)
{
    const struct nh_fmt *f = &o->g->fmt[NH_ROLE_NORM_STAT];
    bool dtype = c->norm_stats == NH_WIDE_DTYPE, layer = c->norm == NH_NORM_LAYER;
#define STEP(v) (dtype ? nh_round(f, v) : in_type(o, v))
    for (int at = 0; at < rows * cols; at += n) {
        const double *row = x + at, *gain = gains + (per_head ? 0 : at % cols),
                     *bias = shifts + (per_head ? 0 : at % cols);
        unsigned inputs = 0;
        bool varied = false, dead = true;
        double sum = 0, sq = 0;
        for (int i = 0; i < n; i++) {
            inputs |= flag_of(row[i]);
            varied |= row[i] != (layer ? row[0] : 0);
            sum = STEP(sum + row[i]);
        }
        double mean = layer ? STEP(sum / n) : 0;
        for (int i = 0; i < n; i++) {
            double d = STEP(row[i] - mean);
            sq = STEP(sq + d * d);
        }
        double scale = STEP(1 / STEP(sqrt(STEP(STEP(sq / n) + STEP(c->eps)))));
        if (!inputs && !(isfinite(mean) && isfinite(sq))) {
            s->counts.overflow++;
            plain_note(s, NH_OVERFLOW, (uint64_t)(at / cols * cols), HUGE_VAL);
        }
        for (int i = 0; i < n; i++) {
            double v = in_type(o, in_type(o, row[i] - mean) * scale);
            v = c->cast_before_gain ? nh_round(&s->fmt, v) : v;
            v = in_type(o, v * gain[i]);
            v = layer ? in_type(o, v + bias[i]) : v;
            unsigned brought = inputs | flag_of(gain[i]) | (layer ? flag_of(bias[i]) : 0);
            want[at + i] = plain_store(s, v, brought, false, (uint64_t)(at + i));
            dead &= want[at + i] == (layer ? bias[i] : 0);
        }
        s->counts.zero_made += !inputs && varied && dead;
    }
#undef STEP
}

/** Rows of small integers, some of them large, tiny, constant, zero or with something that is not finite. */
static void draw_rows(const struct nh_fmt *f, int rows, int cols, uint64_t *state)
{
    /* sums of 64 such numbers stay in the range of fp32 and fp64, sums of squares do not */
    double big = ldexp(1, (int)floor(log2(f->max)) - (f->exp_bits < 8 ? 4 : 10)), tiny = ldexp(f->min_normal, -2);
    for (int r = 0; r < rows; r++) {
        double scale = r % 7 == 3 ? big : r % 7 == 5 ? tiny : 1;
        for (int c = 0; c < cols; c++)
            x[r * cols + c] = r % 13 == 4 ? 3 : r % 13 == 6 ? 0 : scale * (op_draw(state, 15) - 7);
        if (r % 11 == 7)
            x[r * cols + op_draw(state, cols)] = r % 2 ? HUGE_VAL : -HUGE_VAL;
        if (r % 11 == 9)
            x[r * cols + op_draw(state, cols)] = nan("");
    }
    for (int i = 0; i < rows * cols; i++)
        x[i] = nh_round(f, x[i]);
}

START_TEST(norm_agrees_with_the_plain_reference)
{
    static const char *const dtypes[] = {"fp16", "bf16", "e4m3", "fp8-e4m3", "fp8-e5m2", "fp32", "e5m12", "fp64"};
    static const struct {
        int cols, group;
        bool per_head;
    } shapes[] = {{16, 16, false}, {32, 8, true}, {64, 64, false}, {4, 4, false}};
    enum { ROWS = 45 };
    uint64_t state = 7;
    for (int bits = 0; bits < 8 * 4; bits++) {
        int shape = bits / 8;
        struct nh_config c = op_config(dtypes[_i]);
        c.norm = bits & 1 ? NH_NORM_LAYER : NH_NORM_RMS;
        c.norm_stats = bits & 2 ? NH_WIDE_DTYPE : NH_WIDE_FP32;
        c.cast_before_gain = bits & 4;
        int cols = shapes[shape].cols, n = shapes[shape].per_head ? shapes[shape].group : cols;
        draw_rows(&c.dtype, ROWS, cols, &state);
        for (int i = 0; i < n; i++) {
            gains[i] = nh_round(&c.dtype, 0.25 + op_draw(&state, 100) * 0.03);
            shifts[i] = nh_round(&c.dtype, op_draw(&state, 100) * 0.03 - 1.5);
        }
        struct op_graph o = norm_groups(&c, ROWS, cols, shapes[shape].group, shapes[shape].per_head);
        struct plain s = plain_new(&o, NH_SITE_NORM_PRE, NH_ROLE_NORM_OUT);
        plain_norm(&o, &c, ROWS, cols, shapes[shape].group, shapes[shape].per_head, &s);
        assert_all_same(y, want, (size_t)(ROWS * cols));
        assert_counts(&o, &s);
        assert_first(&o, s.first.kind, s.site, s.first.index, s.first.value);
        ck_assert_uint_gt(s.counts.nan_made + s.counts.propagated, 0);
        op_free(&o);
    }
}
END_TEST

/* ---- derivatives ---- */

/** J[i][j] = d y_i / d x_j of one row, by tangents; checks that cotangents give the same. */
static void jacobian(struct op_graph *o, int n, double *j)
{
    static double unit[16 * 16], columns[16 * 16], rows[16 * 16];
    struct nh_pass *p;
    nh_val from = o->g->recs[1].in[0], to = o->g->recs[1].out;
    ck_assert_int_eq(o->core->pass_create(&p, o->x, 1, 2, (nh_val[NH_STREAMS]){from, -1}, (nh_val[NH_STREAMS]){to, -1}, n), NH_OK);
    for (int i = 0; i < n * n; i++)
        unit[i] = i / n == i % n;
    o->core->jvp(p, n, unit, columns);
    o->core->vjp(p, n, unit, rows);
    o->core->pass_destroy(p);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            j[i * n + k] = columns[k * n + i];
            ck_assert_double_eq_tol(rows[i * n + k], j[i * n + k], o->core->bits == 32 ? 1e-6 : 1e-14);
        }
}

static double frobenius(const double *j, int n)
{
    double sum = 0;
    for (int i = 0; i < n * n; i++)
        sum += j[i] * j[i];
    return sqrt(sum);
}

/** Largest singular value, by powers of J^T J. */
static double spectral(const double *j, int n)
{
    double v[16], w[16], length = 0;
    for (int i = 0; i < n; i++)
        v[i] = 1 + i * i;
    for (int step = 0; step < 300; step++) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            w[i] = 0;
            for (int k = 0; k < n; k++)
                w[i] += j[i * n + k] * v[k];
        }
        for (int k = 0; k < n; k++) {
            v[k] = 0;
            for (int i = 0; i < n; i++)
                v[k] += j[i * n + k] * w[i];
            sum += v[k] * v[k];
        }
        length = sqrt(sum);
        for (int k = 0; k < n; k++)
            v[k] /= length;
    }
    return sqrt(length);
}

/* RMSNorm: J = (I - x x^T / (d r^2)) / r; LayerNorm: J = (I - 1 1^T / d - u u^T) / sigma with u along x - mean */
START_TEST(jacobians_of_norms_have_their_closed_forms)
{
    static const char *const dtypes[] = {"fp64", "fp32"};
    double j[16];
    struct nh_config c = op_config(dtypes[_i]);
    c.eps = 1e-30;
    double tolerance = _i ? 1e-6 : 1e-12;
    set_row(0, 3, 4, 0, 0);
    struct op_graph o = norm(&c, 1, 4);
    jacobian(&o, 4, j);
    op_free(&o);
    ck_assert_double_eq_tol(spectral(j, 4), 1 / 2.5, tolerance);
    ck_assert_double_eq_tol(frobenius(j, 4), sqrt(3) / 2.5, tolerance);
    ck_assert_double_eq_tol(frobenius(j, 4), 0.692820, 1e-6);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(3 * j[4 * i] + 4 * j[4 * i + 1], 0, tolerance);

    c.norm = NH_NORM_LAYER;
    set_row(0, 1, 2, 3, 4);
    o = norm(&c, 1, 4);
    jacobian(&o, 4, j);
    op_free(&o);
    ck_assert_double_eq_tol(spectral(j, 4), 1 / sqrt(1.25), tolerance);
    ck_assert_double_eq_tol(spectral(j, 4), 0.894427, 1e-6);
    ck_assert_double_eq_tol(frobenius(j, 4), sqrt(2) / sqrt(1.25), tolerance);
    ck_assert_double_eq_tol(frobenius(j, 4), 1.264911, 1e-6);
    for (int i = 0; i < 4; i++) {
        const double *row = j + 4 * i;
        ck_assert_double_eq_tol(row[0] + row[1] + row[2] + row[3], 0, tolerance);
        ck_assert_double_eq_tol(-3 * row[0] - row[1] + row[2] + 3 * row[3], 0, tolerance);
    }
}
END_TEST

START_TEST(jacobian_of_a_norm_carries_the_gain_by_rows)
{
    double plain[16], j[16];
    struct nh_config c = op_config("fp64");
    set_row(0, 3, 4, 0, -1);
    struct op_graph o = norm(&c, 1, 4);
    jacobian(&o, 4, plain);
    op_free(&o);
    for (int i = 0; i < 4; i++)
        gains[i] = i - 0.5;
    o = norm_groups(&c, 1, 4, 4, false);
    jacobian(&o, 4, j);
    op_free(&o);
    for (int i = 0; i < 16; i++)
        ck_assert_double_eq_tol(j[i], gains[i / 4] * plain[i], 1e-14);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_norm");
    TCase *tc = tcase_create("ops_norm");
    tcase_add_loop_test(tc, norm_of_inf_row_is_one_nan_and_zeros, 0, N_FORMATS);
    tcase_add_loop_test(tc, layer_norm_of_inf_row_is_all_nan, 0, N_FORMATS);
    tcase_add_loop_test(tc, norm_of_nan_row_passes_it_on, 0, N_FORMATS);
    tcase_add_test(tc, inf_in_one_head_stays_in_its_head);
    tcase_add_test(tc, inf_in_a_gain_is_passed_on_in_its_column);
    tcase_add_test(tc, half_sum_of_squares_kills_rows_from_width_1024);
    tcase_add_test(tc, one_dead_row_among_many_is_found);
    tcase_add_test(tc, half_square_overflows_from_256);
    tcase_add_test(tc, fp32_sum_of_squares_kills_rows_too);
    tcase_add_test(tc, half_layer_norm_row_becomes_its_bias);
    tcase_add_test(tc, row_without_spread_is_not_a_dead_row);
    tcase_add_test(tc, dead_rows_under_gains_of_one_plus_w);
    tcase_add_loop_test(tc, layer_norm_of_a_constant_row_is_its_bias, 0, N_FORMATS);
    tcase_add_test(tc, half_statistics_stall);
    tcase_add_test(tc, moments_of_ones_are_one_in_every_format);
    tcase_add_test(tc, moments_are_summed_in_double);
    tcase_add_test(tc, eps_is_rounded_to_the_format_of_the_statistics);
    tcase_add_test(tc, eps_that_vanishes_adds_nothing);
    tcase_add_test(tc, zero_row_is_nan_where_eps_vanishes);
    tcase_add_test(tc, eps_stands_inside_the_root);
    tcase_add_test(tc, layer_norm_of_a_large_offset);
    tcase_add_test(tc, layer_norm_of_a_stream_with_an_offset);
    tcase_add_test(tc, layer_norm_of_a_mean_beside_which_the_spread_is_small);
    tcase_add_test(tc, layer_norm_of_a_constant_has_no_residue_of_its_mean);
    tcase_add_test(tc, kurtosis_is_about_the_mean);
    tcase_add_test(tc, token_cos_leaves_zero_rows_out);
    tcase_add_loop_test(tc, norm_cast_before_gain_rounds_twice, 0, 3);
    tcase_add_loop_test(tc, norm_agrees_with_the_plain_reference, 0, 8);
    tcase_add_loop_test(tc, jacobians_of_norms_have_their_closed_forms, 0, 2);
    tcase_add_test(tc, jacobian_of_a_norm_carries_the_gain_by_rows);
    return run_suite(suite, tc);
}
