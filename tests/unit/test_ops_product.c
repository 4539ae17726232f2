// SPDX-License-Identifier: GPL-3.0-or-later
/** The linear product: overflow at its output and inside its accumulator, order and exactness of sums under --accum
 * dtype, who passes on what is not finite, casts of its inputs; and bits and counters against a plain reference. */
#include "tests/unit/op_graph.h"

enum { MOST = 1 << 14 };
static double x[MOST], w[MOST], b[256], y[MOST], want[MOST];

/** y = x w^T (+ b where bias); x rows x in, w out x in. */
static struct op_graph product_with(const struct nh_config *c, int rows, int in, int out, bool bias)
{
    struct op_graph o = op_new(c, 1, rows);
    nh_val input = op_input(&o, in, NH_ROLE_MATMUL_IN);
    int weight = op_param(&o, out, in, NH_ROLE_WEIGHT), shift = bias ? op_param(&o, 1, out, NH_ROLE_MATMUL_OUT) : -1;
    nh_val output = op_linear(&o, input, weight, shift, NH_SITE_FFN_OUT);
    op_close(&o);
    op_set(&o, input, x);
    o.core->set_param(o.x, weight, w);
    if (bias)
        o.core->set_param(o.x, shift, b);
    op_run(&o);
    op_read(&o, output, y);
    return o;
}

static struct op_graph product(const struct nh_config *c, int rows, int in, int out)
{
    return product_with(c, rows, in, out, false);
}

/** One sum of products. */
static double sum_of(const struct nh_config *c, int n, const double *a, const double *d)
{
    memcpy(x, a, (size_t)n * sizeof *x);
    memcpy(w, d, (size_t)n * sizeof *w);
    struct op_graph o = product(c, 1, n, 1);
    op_free(&o);
    return y[0];
}

static struct nh_config summing(const char *dtype, enum nh_width_of accum)
{
    struct nh_config c = op_config(dtype);
    c.accum = accum;
    return c;
}

static void set_zero(void)
{
    memset(x, 0, sizeof x);
    memset(w, 0, sizeof w);
}

/* ---- a product leaves the format ---- */

/* as fine-tuning of T5 in half precision met it: one number of the second FFN product beyond 65504 */
START_TEST(ffn_output_just_above_65504_is_one_overflow)
{
    static const struct {
        const char *dtype;
        double hidden, stored;
    } cases[] = {
        {"fp16", 45.5, HUGE_VAL}, {"fp16", 45.21875, 65440}, {"bf16", 45.5, 66048},
        {"fp32", 45.5, 66248},    {"tf32", 45.5, 66248},     {"fp32", 45.21875, 65431.53125},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_config c = op_config(cases[i].dtype);
        set_zero();
        for (int k = 0; k < 32; k++) {
            x[32 + k] = cases[i].hidden;
            w[2 * 32 + k] = k % 2 ? 1 : -1;
            w[32 + k] = cases[i].hidden;
        }
        struct op_graph o = product(&c, 3, 32, 4);
        for (int j = 0; j < 12; j++)
            assert_same(y[j], j == 5 ? cases[i].stored : 0);
        bool over = isinf(cases[i].stored);
        assert_trouble(&o, NH_SITE_FFN_OUT, over, 0, 0, 0);
        assert_count(&o, NH_SITE_FFN_OUT, total, 12);
        assert_first(&o, over ? NH_OVERFLOW : NH_NO_OFFENCE, NH_SITE_FFN_OUT, 5, 66248);
        assert_same(op_counts(&o, NH_SITE_FFN_OUT)->max_abs, cases[i].stored);
        op_free(&o);
    }
}
END_TEST

START_TEST(overflow_is_blamed_on_the_product_and_not_on_the_norm_behind_it)
{
    struct nh_config c = op_config("fp16");
    struct op_graph o = op_new(&c, 1, 2);
    nh_val input = op_input(&o, 32, NH_ROLE_MATMUL_IN);
    int weight = op_param(&o, 4, 32, NH_ROLE_WEIGHT), gain = op_param(&o, 1, 4, NH_ROLE_NORM_OUT);
    nh_val out = op_linear(&o, input, weight, -1, NH_SITE_FFN_OUT);
    nh_val normed = op_norm(&o, NH_NORM_RMS, out, 4, gain, -1, NH_SITE_NORM_POST);
    nh_val sum = op_axpby(&o, 1, normed, 1, normed, NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
    op_close(&o);
    set_zero();
    for (int k = 0; k < 32; k++) {
        x[k] = 45.5, x[32 + k] = 1;
        for (int j = 0; j < 4; j++)
            w[j * 32 + k] = j == 0 ? 45.5 : j;
    }
    op_set(&o, input, x);
    o.core->set_param(o.x, weight, w);
    op_set_all(&o, gain, 1);
    op_run(&o);
    op_read(&o, normed, y);
    assert_same(y[0], nan(""));
    for (int j = 1; j < 4; j++)
        assert_same(y[j], 0);
    op_read(&o, sum, y);
    assert_same(y[0], nan(""));
    assert_trouble(&o, NH_SITE_FFN_OUT, 1, 0, 0, 0);
    assert_trouble(&o, NH_SITE_NORM_POST, 0, 1, 0, 0);
    assert_trouble(&o, NH_SITE_RESIDUAL, 0, 0, 1, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_FFN_OUT, 0, 66248);
    op_free(&o);
}
END_TEST

START_TEST(first_offender_is_the_lowest_index_whatever_the_threads)
{
    struct nh_config c = op_config("fp16");
    for (int threads = 1; threads <= 3; threads++) {
        struct op_graph o = op_new(&c, 1, 300); /* three units of work */
        nh_val input = op_input(&o, 4, NH_ROLE_MATMUL_IN);
        int weight = op_param(&o, 4, 4, NH_ROLE_WEIGHT);
        op_linear(&o, input, weight, -1, NH_SITE_FFN_OUT);
        op_close_with(&o, threads, false);
        for (int i = 0; i < 300 * 4; i++)
            x[i] = i < 70 * 4 ? 1 : 40000;
        op_set(&o, input, x);
        set_zero();
        w[9] = 2; /* output 2 takes twice input 1 */
        o.core->set_param(o.x, weight, w);
        op_run(&o);
        assert_trouble(&o, NH_SITE_FFN_OUT, 230, 0, 0, 0);
        assert_first(&o, NH_OVERFLOW, NH_SITE_FFN_OUT, 70 * 4 + 2, 80000);
        op_run(&o); /* counters are those of the last pass */
        assert_trouble(&o, NH_SITE_FFN_OUT, 230, 0, 0, 0);
        assert_count(&o, NH_SITE_FFN_OUT, total, 1200);
        op_free(&o);
    }
}
END_TEST

START_TEST(product_beyond_fp8_e4m3_is_an_overflow_stored_as_nan)
{
    struct nh_config c = op_config("fp8-e4m3");
    set_zero();
    x[0] = 16, x[1] = 16;
    w[0] = 26, w[1] = 3, w[2] = 26, w[3] = 2; /* 464, which ties down to 448; 448 */
    struct op_graph o = product(&c, 1, 2, 2);
    assert_same(y[0], 448);
    op_free(&o);
    w[0] = 28; /* 496 */
    o = product(&c, 1, 2, 2);
    assert_same(y[0], nan(""));
    assert_same(y[1], 448);
    assert_trouble(&o, NH_SITE_FFN_OUT, 1, 0, 0, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_FFN_OUT, 0, 496);
    assert_same(op_counts(&o, NH_SITE_FFN_OUT)->max_abs, 448);
    op_free(&o);
}
END_TEST

/* ---- sums that are kept in the format ---- */

START_TEST(sum_of_ones_stalls_where_sums_are_kept_in_the_format)
{
    static const struct {
        const char *dtype;
        double stall;
    } cases[] = {{"fp16", 2048}, {"bf16", 256},    {"tf32", 4096}, {"fp32", 4096},
                 {"e4m3", 16},   {"fp8-e4m3", 16}, {"e5m12", 4096}};
    enum { N = 4096 };
    for (int k = 0; k < N; k++)
        x[k] = w[k] = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_config c = summing(cases[i].dtype, NH_WIDE_DTYPE);
        struct op_graph o = product(&c, 1, N, 1);
        assert_same(y[0], cases[i].stall);
        assert_trouble(&o, NH_SITE_FFN_OUT, 0, 0, 0, 0);
        op_free(&o);
        c.accum = NH_WIDE_FP32;
        o = product(&c, 1, N, 1);
        struct plain s = plain_new(&o, NH_SITE_FFN_OUT, NH_ROLE_MATMUL_OUT);
        assert_same(y[0], plain_store(&s, N, 0, false, 0)); /* the two formats of three bits cannot hold 4096 */
        assert_counts(&o, &s);
        op_free(&o);
    }
}
END_TEST

START_TEST(sum_kept_in_the_format_runs_over_on_the_way)
{
    static const double a[] = {40000, 40000, -40000, -30000}, one[] = {1, 1, 1, 1};
    struct nh_config c = summing("fp16", NH_WIDE_DTYPE);
    memcpy(x, a, sizeof a);
    memcpy(w, one, sizeof one);
    struct op_graph o = product(&c, 1, 4, 1);
    assert_same(y[0], HUGE_VAL);
    assert_trouble(&o, NH_SITE_FFN_OUT, 1, 0, 0, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_FFN_OUT, 0, HUGE_VAL);
    op_free(&o);
    c.accum = NH_WIDE_FP32;
    ck_assert_double_eq(sum_of(&c, 4, a, one), 10000);
}
END_TEST

/* finite inputs, products +inf and -inf in fp32: the sum is inf or NaN as the library adds, one overflow either way */
START_TEST(accumulator_overflow_counts_once_although_the_sum_is_nan)
{
    static const char *const dtypes[] = {"bf16", "fp32"};
    for (int i = 0; i < 2; i++) {
        struct nh_config c = op_config(dtypes[i]);
        enum { N = 64 };
        for (int k = 0; k < N; k++)
            x[k] = 0x1p100, w[k] = k % 2 ? 0x1p100 : -0x1p100;
        struct op_graph o = product(&c, 1, N, 1);
        bool nan_made = isnan(y[0]);
        ck_assert(!isfinite(y[0]));
        assert_trouble(&o, NH_SITE_FFN_OUT, 1, nan_made, 0, 0);
        struct nh_first f = o.core->first(o.x, NH_FWD);
        ck_assert_int_eq(f.kind, NH_OVERFLOW);
        op_free(&o);
    }
}
END_TEST

START_TEST(accumulator_without_inf_runs_over_into_nan)
{
    static const double a[] = {448, 448, -448}, one[] = {1, 1, 1};
    struct nh_config c = summing("fp8-e4m3", NH_WIDE_DTYPE);
    memcpy(x, a, sizeof a);
    memcpy(w, one, sizeof one);
    struct op_graph o = product(&c, 1, 3, 1);
    assert_same(y[0], nan(""));
    assert_count(&o, NH_SITE_FFN_OUT, overflow, 1);
    assert_count(&o, NH_SITE_FFN_OUT, propagated, 0);
    struct nh_first f = o.core->first(o.x, NH_FWD);
    ck_assert_int_eq(f.kind, NH_OVERFLOW);
    op_free(&o);
    c.accum = NH_WIDE_FP32;
    ck_assert_double_eq(sum_of(&c, 3, a, one), 448);
}
END_TEST

START_TEST(sums_kept_in_the_format_run_from_the_first_k_to_the_last)
{
    static const double large_first[] = {2048, 1, 1}, large_last[] = {1, 1, 2048}, one[] = {1, 1, 1};
    static const double down_up[] = {-65504, 65504, 65504}, up_down[] = {65504, 65504, -65504};
    for (int turn = 0; turn < 2; turn++) { /* the two factors of a product are alike */
        struct nh_config c = summing("fp16", NH_WIDE_DTYPE);
#define SUM(a) (turn ? sum_of(&c, 3, one, a) : sum_of(&c, 3, a, one))
        assert_same(SUM(large_first), 2048);
        assert_same(SUM(large_last), 2050);
        assert_same(SUM(down_up), 65504);
        assert_same(SUM(up_down), HUGE_VAL);
        c.accum = NH_WIDE_FP32;
        assert_same(SUM(large_first), 2050);
        assert_same(SUM(large_last), 2050);
        assert_same(SUM(down_up), 65504);
        assert_same(SUM(up_down), 65504);
#undef SUM
    }
}
END_TEST

START_TEST(products_in_a_sum_are_exact)
{
    /* (1 + 2^-9)^2 = 1 + 2^-8 + 2^-18: the last term survives only where the product is not rounded before it is added
     */
    static const double a[] = {-1 - 0x1p-8, 1 + 0x1p-9}, d[] = {1, 1 + 0x1p-9};
    struct nh_config c = summing("fp16", NH_WIDE_DTYPE);
    assert_same(sum_of(&c, 2, a, d), 0x1p-18);
    /* the sum of 2048 and (1 + 2^-10)^2 lies just above a tie; the rounded product would put it on the tie, and down */
    static const double tie[] = {2048, 1 + 0x1p-10}, e[] = {1, 1 - 0x1p-11};
    assert_same(sum_of(&c, 2, tie, e), 2050); /* 1 + 2^-11 - 2^-21 */
    /* 256 * 256 does not fit by itself */
    static const double over[] = {-256, 256}, f[] = {128, 256};
    assert_same(sum_of(&c, 2, over, f), 32768);
    static const double fine[] = {-1 - 0x1p-6, 1 + 0x1p-7}, g[] = {1, 1 + 0x1p-7};
    c = summing("bf16", NH_WIDE_DTYPE);
    assert_same(sum_of(&c, 2, fine, g), 0x1p-14);
}
END_TEST

/* ---- the plain reference ---- */

static void plain_product(const struct op_graph *o, int rows, int in, int out, bool bias, struct plain *s)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < out; j++) {
            unsigned inputs;
            bool ran_over;
            double sum = plain_dot(o, in, x + i * in, 1, w + j * in, 1, &inputs, &ran_over);
            if (bias) {
                sum = in_type(o, sum + b[j]);
                inputs |= flag_of(b[j]);
            }
            want[i * out + j] = plain_store(s, sum, inputs, ran_over && !inputs, (uint64_t)(i * out + j));
        }
}

START_TEST(product_agrees_with_the_plain_reference)
{
    static const char *const dtypes[] = {"fp16", "bf16", "e4m3",  "fp8-e4m3", "fp8-e5m2",
                                         "tf32", "fp32", "e5m12", "e8m12",    "fp64"};
    static const struct {
        int rows, in, out;
    } shapes[] = {{1, 1, 1}, {5, 133, 7}, {40, 17, 130}, {140, 40, 3}};
    uint64_t state = 3, trouble = 0, small = 0;
    for (int bits = 0; bits < 4 * 8; bits++) {
        struct nh_config c = summing(dtypes[_i], bits & 1 ? NH_WIDE_DTYPE : NH_WIDE_FP32);
        bool bias = bits & 2, wild = bits & 4;
        int shape = bits / 8, rows = shapes[shape].rows, in = shapes[shape].in, out = shapes[shape].out;
        /* rows of numbers so large that sums leave the format (not so in the exponent range of fp32, where partial sums
         * would), and rows so small that products vanish */
        bool narrow = c.dtype.exp_bits < 8;
        double big = narrow ? ldexp(1, (int)floor(log2(c.dtype.max)) - 1) : 1024, tiny = c.dtype.min_subnormal;
        for (int i = 0; i < rows * in; i++)
            x[i] = (op_draw(&state, 7) - 3) * (i / in % 5 == 2 ? big / 4 : i / in % 5 == 4 ? tiny : 1);
        for (int i = 0; i < out * in; i++)
            w[i] = (op_draw(&state, 9) - 4) * (narrow ? 0.25 : 1);
        for (int j = 0; j < out; j++)
            b[j] = op_draw(&state, 5) - 2;
        for (int i = 0; i < 3 && wild; i++) {
            x[op_draw(&state, rows * in)] = i == 0 ? HUGE_VAL : i == 1 ? -HUGE_VAL : nan("");
            w[op_draw(&state, out * in)] = i == 0 ? HUGE_VAL : i == 1 ? -HUGE_VAL : nan("");
            b[op_draw(&state, out)] = i == 0 ? HUGE_VAL : i == 1 ? -HUGE_VAL : nan("");
        }
        struct op_graph o = product_with(&c, rows, in, out, bias);
        struct nh_fmt *input = &o.g->fmt[NH_ROLE_MATMUL_IN];
        for (int i = 0; i < rows * in; i++)
            x[i] = nh_round(input, x[i]);
        for (int i = 0; i < out * in; i++)
            w[i] = nh_round(input, w[i]);
        for (int j = 0; j < out; j++)
            b[j] = nh_round(&o.g->fmt[NH_ROLE_MATMUL_OUT], b[j]);
        struct plain s = plain_new(&o, NH_SITE_FFN_OUT, NH_ROLE_MATMUL_OUT);
        plain_product(&o, rows, in, out, bias, &s);
        assert_all_same(y, want, (size_t)(rows * out));
        assert_counts(&o, &s);
        assert_first(&o, s.first.kind, s.site, s.first.index, s.first.value);
        trouble += s.counts.overflow + s.counts.nan_made + s.counts.propagated;
        small += s.counts.underflow + s.counts.subnormal;
        op_free(&o);
    }
    ck_assert_uint_gt(trouble, 0);
    ck_assert_uint_gt(small, 0);
}
END_TEST

/* ---- what is passed on ---- */

START_TEST(inf_in_a_row_reaches_its_own_row_only_and_is_never_new)
{
    static const double bad[] = {HUGE_VAL, -HUGE_VAL, NOT_A_NUMBER};
    for (enum nh_width_of accum = NH_WIDE_FP32; accum <= NH_WIDE_DTYPE; accum++) {
        struct nh_config c = summing("fp16", accum);
        enum { ROWS = 40, COLS = 6, BAD = 21 };
        struct op_graph o = op_new(&c, 1, ROWS);
        nh_val input = op_input(&o, COLS, NH_ROLE_MATMUL_IN);
        int w1 = op_param(&o, COLS, COLS, NH_ROLE_WEIGHT), w2 = op_param(&o, COLS, COLS, NH_ROLE_WEIGHT);
        nh_val first = op_linear(&o, input, w1, -1, NH_SITE_FFN_IN), active = op_act(&o, NH_ACT_RELU, first);
        nh_val last = op_linear(&o, active, w2, -1, NH_SITE_FFN_OUT);
        nh_val sum = op_axpby(&o, 1, last, 1, input, NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
        op_close(&o);
        op_set_all(&o, w1, 1);
        op_set_all(&o, w2, 1);
        for (int i = 0; i < ROWS * COLS; i++)
            x[i] = 1;
        x[BAD * COLS + 3] = bad[_i];
        op_set(&o, input, x);
        op_run(&o);
        bool negative = bad[_i] < 0; /* relu stops -inf */
        op_read(&o, last, y);
        for (int i = 0; i < ROWS * COLS; i++)
            assert_same(y[i], i / COLS != BAD ? 36 : negative ? 0 : bad[_i]);
        uint64_t n = negative ? 0 : COLS;
        assert_trouble(&o, NH_SITE_EMBED, 0, 0, 1, 0);
        assert_trouble(&o, NH_SITE_FFN_IN, 0, 0, COLS, 0);
        assert_trouble(&o, NH_SITE_FFN_ACT, 0, 0, n, 0);
        assert_trouble(&o, NH_SITE_FFN_OUT, 0, 0, n, 0);
        assert_trouble(&o, NH_SITE_RESIDUAL, 0, 0, negative ? 1 : COLS, 0);
        op_read(&o, sum, y);
        for (int i = 0; i < ROWS * COLS; i++)
            ck_assert(i / COLS == BAD || isfinite(y[i]));
        assert_first(&o, NH_NO_OFFENCE, NH_SITE_EMBED, 0, 0);
        op_free(&o);
    }
}
END_TEST

START_TEST(inf_in_a_weight_reaches_its_own_column_only)
{
    for (enum nh_width_of accum = NH_WIDE_FP32; accum <= NH_WIDE_DTYPE; accum++) {
        struct nh_config c = summing("fp16", accum);
        for (int i = 0; i < 64; i++)
            x[i] = 1 + i % 3, w[i] = 1;
        x[3] = 0;                 /* row 0, k = 3: 0 * inf */
        w[2 * 8 + 3] = -HUGE_VAL; /* output 2 */
        w[5 * 8 + 1] = nan("");   /* output 5 */
        struct op_graph o = product(&c, 8, 8, 8);
        for (int i = 0; i < 64; i++)
            if (i % 8 == 2)
                assert_same(y[i], i / 8 ? -HUGE_VAL : nan(""));
            else
                ck_assert_int_eq(isnan(y[i]), i % 8 == 5);
        assert_trouble(&o, NH_SITE_FFN_OUT, 0, 1, 15, 0);
        assert_first(&o, NH_NAN_MADE, NH_SITE_FFN_OUT, 2, nan(""));
        op_free(&o);
    }
}
END_TEST

/* ---- running again ---- */

START_TEST(written_input_gives_what_a_table_gives)
{
    struct nh_config c = op_config("bf16");
    for (int i = 0; i < 5 * 6; i++)
        x[i] = i - 12, w[i] = 1 + i % 4;
    struct op_graph o = product(&c, 5, 6, 5);
    memcpy(want, y, 25 * sizeof *want);
    uint64_t total = op_counts(&o, NH_SITE_FFN_OUT)->total;
    static double zero[30];
    nh_val in = o.g->recs[1].in[0], out = o.g->recs[1].out;
    o.core->write(o.x, in, zero);
    o.core->rerun(o.x, 1, 2);
    op_read(&o, out, y);
    assert_all_same(y, zero, 25);
    o.core->write(o.x, in, x);
    o.core->rerun(o.x, 1, 2);
    op_read(&o, out, y);
    assert_all_same(y, want, 25);
    op_run(&o);
    op_read(&o, out, y);
    assert_all_same(y, want, 25);
    assert_count(&o, NH_SITE_FFN_OUT, total, total);
    op_free(&o);
}
END_TEST

/* ---- casts of inputs: tf32 is a format of factors, results are fp32 ---- */

START_TEST(tf32_rounds_the_factors_and_stores_fp32)
{
    struct nh_config c = op_config("tf32");
    struct op_graph o = op_new(&c, 1, 1);
    nh_val input = op_input(&o, 6, NH_ROLE_RESIDUAL);
    int weight = op_param(&o, 1, 6, NH_ROLE_WEIGHT);
    nh_val factor = op_cast(&o, input, NH_ROLE_MATMUL_IN), out = op_linear(&o, factor, weight, -1, NH_SITE_FFN_OUT);
    op_close(&o);
    ck_assert_int_eq(o.core->bits, 32);
    static const double numbers[] = {1 + 0x1p-10, 1 + 0x1p-11, 1 + 0x3p-11, 1 + 0x1p-23, 0x1p-137, -1e-3};
    memcpy(x, numbers, sizeof numbers);
    op_set(&o, input, x);
    for (int k = 0; k < 6; k++)
        w[k] = k == 0 ? 1 + 0x1p-10 : k == 1 ? 1 + 0x1p-11 : 0;
    o.core->set_param(o.x, weight, w);
    op_run(&o);
    op_read(&o, input, y);
    for (int k = 0; k < 6; k++)
        assert_same(y[k], (double)(float)numbers[k]);
    op_read(&o, factor, y);
    static const double rounded[] = {1 + 0x1p-10, 1, 1 + 0x2p-10, 1, 0};
    for (int k = 0; k < 5; k++)
        assert_same(y[k], rounded[k]);
    ck_assert_double_eq_tol(y[5], -1e-3, 1e-3 * 0x1p-11);
    op_read(&o, out, y);
    assert_same(y[0], 2 + 0x1p-9 + 0x1p-20); /* (1 + 2^-10)^2 + 1: 21 bits, none lost */
    assert_trouble(&o, NH_SITE_CAST, 0, 0, 0, 0);
    assert_count(&o, NH_SITE_CAST, underflow, 1);
    assert_count(&o, NH_SITE_CAST, total, 6);
    op_free(&o);
}
END_TEST

START_TEST(cast_counts_what_leaves_the_narrower_format)
{
    struct nh_config c = op_config("tf32");
    struct op_graph o = op_new(&c, 1, 1);
    nh_val input = op_input(&o, 6, NH_ROLE_RESIDUAL), out = op_cast(&o, input, NH_ROLE_MATMUL_IN);
    op_close(&o);
    static const double numbers[] = {0x1.ffdffep127, -0x1.ffep127, HUGE_VAL, NOT_A_NUMBER, 0x1p-130, -0x1p-138};
    memcpy(x, numbers, sizeof numbers);
    op_set(&o, input, x);
    op_run(&o);
    op_read(&o, out, y);
    struct plain s = plain_new(&o, NH_SITE_CAST, NH_ROLE_MATMUL_IN);
    for (int i = 0; i < 6; i++)
        assert_same(y[i], plain_store(&s, numbers[i], flag_of(numbers[i]), false, (uint64_t)i));
    assert_same(y[0], 0x1.ffcp127);
    assert_counts(&o, &s);
    assert_trouble(&o, NH_SITE_CAST, 1, 0, 2, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_CAST, 1, -0x1.ffep127);
    op_free(&o);
}
END_TEST

/* the largest stretch of [[0, 2], [0, 0]] is 2, though its eigenvalues are 0 */
START_TEST(derivative_of_a_product_is_the_matrix)
{
    struct nh_config c = op_config("fp16");
    set_zero();
    w[1] = 2;
    struct op_graph o = product(&c, 1, 2, 2);
    struct nh_pass *p;
    ck_assert_int_eq(o.core->pass_create(&p, o.x, 1, 2, (nh_val[NH_STREAMS]){o.g->recs[1].in[0], -1},
                                        (nh_val[NH_STREAMS]){o.g->recs[1].out, -1}, 2), NH_OK);
    static const double unit[] = {1, 0, 0, 1}, columns[] = {0, 0, 2, 0}, rows[] = {0, 2, 0, 0};
    double out[4];
    o.core->jvp(p, 2, unit, out);
    assert_all_same(out, columns, 4);
    o.core->vjp(p, 2, unit, out);
    assert_all_same(out, rows, 4);
    o.core->pass_destroy(p);
    op_free(&o);
}
END_TEST

/** Sum of n products, every step rounded, added to in order. */
static double rounded_dot(const struct nh_fmt *f, int n, const double *a, int step_a, const double *c, int step_c)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum = nh_fma_round(f, sum, a[i * step_a], c[i * step_c]);
    return sum;
}

/** dx = dy W and dW = dy' x: the other two orders in which a product is read, each beyond one tile in every direction. */
START_TEST(gradients_of_a_product_are_summed_in_the_format)
{
    static const char *const dtypes[] = {"fp16", "bf16", "e4m3", "e5m12", "fp32"};
    enum { ROWS = 70, IN = 67, OUT = 66 };
    static double dy[ROWS * OUT];
    struct nh_config c = summing(dtypes[_i], NH_WIDE_DTYPE);
    uint64_t state = 5;
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
    for (int i = 0; i < OUT * IN; i++)
        w[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
    for (int i = 0; i < ROWS * OUT; i++)
        dy[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
    struct op_graph o = op_new(&c, 1, ROWS);
    nh_val input = op_input(&o, IN, NH_ROLE_MATMUL_IN);
    int weight = op_param(&o, OUT, IN, NH_ROLE_WEIGHT);
    o.g->exit_value = op_linear(&o, input, weight, -1, NH_SITE_FFN_OUT), o.g->head_rec = o.g->n_recs;
    o.g->values[input].watched = true;
    op_close_with(&o, 2, true);
    op_set(&o, input, x);
    o.core->set_param(o.x, weight, w);
    op_run(&o);
    o.core->backward(o.x, 1, dy);
    o.core->read_grad(o.x, input, y);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < IN; k++)
            assert_same(y[i * IN + k], rounded_dot(&c.dtype, OUT, dy + i * OUT, 1, w + k, IN));
    o.core->read_param_grad(o.x, weight, y);
    for (int j = 0; j < OUT; j++)
        for (int k = 0; k < IN; k++)
            assert_same(y[j * IN + k], rounded_dot(&c.dtype, ROWS, dy + j, OUT, x + k, IN));
    op_free(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_product");
    TCase *tc = tcase_create("ops_product");
    tcase_add_test(tc, ffn_output_just_above_65504_is_one_overflow);
    tcase_add_test(tc, overflow_is_blamed_on_the_product_and_not_on_the_norm_behind_it);
    tcase_add_test(tc, first_offender_is_the_lowest_index_whatever_the_threads);
    tcase_add_test(tc, product_beyond_fp8_e4m3_is_an_overflow_stored_as_nan);
    tcase_add_test(tc, sum_of_ones_stalls_where_sums_are_kept_in_the_format);
    tcase_add_test(tc, sum_kept_in_the_format_runs_over_on_the_way);
    tcase_add_test(tc, accumulator_overflow_counts_once_although_the_sum_is_nan);
    tcase_add_test(tc, accumulator_without_inf_runs_over_into_nan);
    tcase_add_test(tc, sums_kept_in_the_format_run_from_the_first_k_to_the_last);
    tcase_add_test(tc, products_in_a_sum_are_exact);
    tcase_add_loop_test(tc, product_agrees_with_the_plain_reference, 0, 10);
    tcase_add_loop_test(tc, inf_in_a_row_reaches_its_own_row_only_and_is_never_new, 0, 3);
    tcase_add_test(tc, inf_in_a_weight_reaches_its_own_column_only);
    tcase_add_test(tc, written_input_gives_what_a_table_gives);
    tcase_add_test(tc, tf32_rounds_the_factors_and_stores_fp32);
    tcase_add_test(tc, cast_counts_what_leaves_the_narrower_format);
    tcase_add_test(tc, derivative_of_a_product_is_the_matrix);
    tcase_add_loop_test(tc, gradients_of_a_product_are_summed_in_the_format, 0, 5);
    return run_suite(suite, tc);
}
