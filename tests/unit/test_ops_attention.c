// SPDX-License-Identifier: GPL-3.0-or-later
/** Causal attention on given queries, keys and values: where the scale stands, masks and windows, softmax of rows that are not
 * finite, QK-norm. */
#include "tests/unit/attention.h"

static struct op_graph attend(const struct nh_config *c, const struct shape *s)
{
    return attend_with(c, s, 1, false);
}

/* ---- before or after the product ---- */

/* q.k = 128 * 23^2 = 67712 */
START_TEST(scores_overflow_where_the_scale_stands_after_the_product)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 1, .seq = 2, .heads = 1, .kv_heads = 1, .dim = 128, .after = true};
    fill(q, 256, 23), fill(k, 256, 23), fill(v, 256, 1);
    struct op_graph o = attend(&c, &s);
    assert_trouble(&o, NH_SITE_QK, 3, 0, 0, 0);
    assert_trouble(&o, NH_SITE_SCORES, 0, 0, 3, 0);
    assert_trouble(&o, NH_SITE_PROBS, 0, 3, 0, 0);
    assert_trouble(&o, NH_SITE_ATTN_V, 0, 0, 256, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_QK, 0, 67712);
    for (int i = 0; i < 256; i++)
        assert_same(y[i], nan(""));
    op_free(&o);

    c = op_config("fp32");
    o = attend(&c, &s);
    ck_assert_double_eq(op_counts(&o, NH_SITE_QK)->max_abs, 67712);
    ck_assert_double_eq_tol(op_counts(&o, NH_SITE_SCORES)->max_abs, 67712 / sqrt(128), 5e-4);
    assert_trouble(&o, NH_SITE_PROBS, 0, 0, 0, 0);
    op_free(&o);
    c = op_config("bf16");
    o = attend(&c, &s);
    ck_assert_double_eq(op_counts(&o, NH_SITE_QK)->max_abs, 67584); /* ulp 512 */
    assert_trouble(&o, NH_SITE_PROBS, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

START_TEST(scores_stay_finite_where_the_scale_stands_before_the_product)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 1, .seq = 2, .heads = 1, .kv_heads = 1, .dim = 128};
    fill(q, 256, 23), fill(k, 256, 23), fill(v, 256, 1);
    struct op_graph o = attend(&c, &s);
    ck_assert_double_eq(op_counts(&o, NH_SITE_Q_SCALE)->max_abs, 2.033203125);
    ck_assert_double_eq(op_counts(&o, NH_SITE_SCORES)->max_abs, 5984);
    ck_assert_double_eq(op_counts(&o, NH_SITE_SCORES)->min_abs, 5984);
    assert_count(&o, NH_SITE_SCORES, total, 3);
    static const enum nh_site_name sites[] = {NH_SITE_Q_SCALE, NH_SITE_SCORES, NH_SITE_PROBS, NH_SITE_ATTN_V};
    for (int i = 0; i < 4; i++)
        assert_trouble(&o, sites[i], 0, 0, 0, 0);
    for (int i = 0; i < 256; i++)
        assert_same(y[i], 1);
    op_free(&o);
}
END_TEST

/* ---- masks ---- */

/** Values that show the probabilities: v of key j is the unit vector j. */
static void show_probabilities(int seq, int dim)
{
    fill(v, seq * dim, 0);
    for (int j = 0; j < seq; j++)
        v[j * dim + j] = 1;
}

START_TEST(causal_uniform_rows_are_exact)
{
    static const struct {
        const char *dtype;
        double third;
    } cases[] = {{"fp16", 0.333251953125},
                 {"bf16", 0.333984375},
                 {"fp32", (double)(1 / 3.0f)},
                 {"e4m3", 0.34375},
                 {"fp64", 1 / 3.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int after = 0; after < 2; after++) {
            struct nh_config c = op_config(cases[i].dtype);
            struct shape s = {.batch = 1, .seq = 3, .heads = 1, .kv_heads = 1, .dim = 4, .after = after};
            fill(q, 12, 0), fill(k, 12, 1), show_probabilities(3, 4);
            double third = cases[i].third, rows[] = {1, 0, 0, 0, 0.5, 0.5, 0, 0, third, third, third, 0};
            struct op_graph o = attend(&c, &s);
            assert_all_same(y, rows, 12);
            assert_count(&o, NH_SITE_SCORES, total, 6);
            assert_count(&o, NH_SITE_PROBS, total, 6);
            assert_same(op_counts(&o, NH_SITE_PROBS)->min_abs, third);
            assert_trouble(&o, NH_SITE_SCORES, 0, 0, 0, 0);
            op_free(&o);
        }
}
END_TEST

START_TEST(only_visible_entries_are_counted)
{
    static const int windows[] = {0, 1, 3, 6, 64, 65, 69, 100};
    struct nh_config c = op_config("fp16");
    fill(q, MOST, 1), fill(k, MOST, 1), fill(v, MOST, 1);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (int seq = 1; seq <= SEQ; seq += 23) {
            struct shape s = {
                .batch = 2, .seq = seq, .heads = 4, .kv_heads = 2, .dim = 4, .window = windows[i], .after = true};
            struct op_graph o = attend(&c, &s);
            assert_count(&o, NH_SITE_QK, total, visible(&s));
            assert_count(&o, NH_SITE_SCORES, total, visible(&s));
            assert_count(&o, NH_SITE_PROBS, total, visible(&s));
            assert_count(&o, NH_SITE_ATTN_V, total, (uint64_t)(2 * seq * 16));
            op_free(&o);
        }
    struct shape six = {.batch = 1, .seq = 6, .heads = 1, .kv_heads = 1, .dim = 4, .window = 3};
    ck_assert_uint_eq(visible(&six), 1 + 2 + 3 + 3 + 3 + 3);
}
END_TEST

/* scores of masked keys would be inf, their probabilities would not be zero */
START_TEST(masked_scores_are_never_an_overflow)
{
    struct nh_config c = op_config("fp16");
    enum { T = 66 };
    struct shape s = {.batch = 1, .seq = T, .heads = 1, .kv_heads = 1, .dim = 2, .window = 2, .after = true};
    for (int t = 0; t < T; t++) { /* queries 0 .. 32 are large, and keys from 33 on: they never meet */
        fill(q + 2 * t, 2, t < 33 ? 20000 : 0);
        fill(k + 2 * t, 2, t < 33 ? 0 : 20000);
        fill(v + 2 * t, 2, t);
    }
    struct op_graph o = attend(&c, &s);
    static const enum nh_site_name sites[] = {NH_SITE_QK, NH_SITE_SCORES, NH_SITE_PROBS, NH_SITE_ATTN_V};
    for (int i = 0; i < 4; i++)
        assert_trouble(&o, sites[i], 0, 0, 0, 0);
    ck_assert_double_eq(op_counts(&o, NH_SITE_QK)->max_abs, 0);
    for (int t = 0; t < T; t++)
        assert_same(y[2 * t], t ? t - 0.5 : 0);
    op_free(&o);
}
END_TEST

START_TEST(window_sees_itself_and_the_keys_just_before)
{
    struct nh_config c = op_config("fp32");
    struct shape s = {.batch = 1, .seq = 6, .heads = 1, .kv_heads = 1, .dim = 8, .window = 3};
    fill(q, 48, 0), fill(k, 48, 1), show_probabilities(6, 8);
    struct op_graph o = attend(&c, &s);
    for (int t = 0; t < 6; t++)
        for (int j = 0; j < 8; j++) {
            int n = t < 2 ? t + 1 : 3;
            assert_same(y[t * 8 + j], j <= t && j > t - 3 ? (double)(1 / (float)n) : 0);
        }
    op_free(&o);
}
END_TEST

/* ---- rows that are not finite ---- */

START_TEST(row_of_minus_inf_only_gives_zeros)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 1, .seq = 3, .heads = 1, .kv_heads = 1, .dim = 4, .after = true};
    fill(q, 12, 1), fill(k, 12, -23), show_probabilities(3, 4);
    fill(q + 4, 4, 16384); /* row 1: -inf, -inf */
    fill(k + 8, 4, 1);
    struct op_graph o = attend(&c, &s);
    for (int j = 0; j < 4; j++)
        assert_same(y[4 + j], 0);
    assert_same(y[0], 1);
    assert_same(y[8 + 2], 1); /* exp(-48) does not reach one */
    assert_trouble(&o, NH_SITE_QK, 2, 0, 0, 0);
    assert_trouble(&o, NH_SITE_SCORES, 0, 0, 2, 0);
    assert_trouble(&o, NH_SITE_PROBS, 0, 0, 0, 0);
    assert_trouble(&o, NH_SITE_ATTN_V, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

START_TEST(minus_inf_beside_a_number_is_a_zero)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 1, .seq = 3, .heads = 1, .kv_heads = 1, .dim = 4, .after = true};
    fill(q, 12, 16384), fill(k, 12, 0), show_probabilities(3, 4);
    fill(k + 4, 4, -2); /* key 1 */
    struct op_graph o = attend(&c, &s);
    static const double rows[] = {1, 0, 0, 0, 1, 0, 0, 0, 0.5, 0, 0.5, 0};
    assert_all_same(y, rows, 12);
    assert_trouble(&o, NH_SITE_QK, 2, 0, 0, 0);
    assert_trouble(&o, NH_SITE_PROBS, 0, 0, 0, 0);
    op_free(&o);
}
END_TEST

START_TEST(plus_inf_score_gives_a_nan_row)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .dim = 4, .after = true};
    fill(q, 16, 1), fill(k, 16, 1), show_probabilities(4, 4);
    fill(q + 8, 4, 16384); /* row 2 */
    fill(k + 4, 4, 2);     /* key 1: 131072 there */
    struct op_graph o = attend(&c, &s);
    for (int t = 0; t < 4; t++)
        for (int j = 0; j < 4; j++)
            ck_assert_int_eq(isnan(y[4 * t + j]), t == 2);
    assert_trouble(&o, NH_SITE_QK, 3, 0, 0, 0); /* 65536 at keys 0 and 2 too */
    assert_trouble(&o, NH_SITE_PROBS, 0, 3, 0, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_QK, 2 * 4, 65536);
    op_free(&o);
    fill(k, 4, 0), fill(k + 8, 4, 0); /* one +inf among numbers */
    o = attend(&c, &s);
    assert_trouble(&o, NH_SITE_QK, 1, 0, 0, 0);
    assert_trouble(&o, NH_SITE_PROBS, 0, 3, 0, 0);
    assert_trouble(&o, NH_SITE_ATTN_V, 0, 0, 4, 0);
    op_free(&o);
}
END_TEST

START_TEST(inf_in_a_later_value_does_not_leak_into_earlier_rows)
{
    static const double bad[] = {HUGE_VAL, -HUGE_VAL, NOT_A_NUMBER};
    for (enum nh_width_of accum = NH_WIDE_FP32; accum <= NH_WIDE_DTYPE; accum++)
        for (int window = 0; window <= 5; window += 5) {
            struct nh_config c = op_config("fp16");
            c.accum = accum;
            struct shape s = {.batch = 2, .seq = SEQ, .heads = 2, .kv_heads = 1, .dim = 4, .window = window};
            enum { BAD = 40 }; /* in the first block of rows, with rows of the same block before it */
            fill(q, MOST, 0), fill(k, MOST, 1), fill(v, MOST, 1);
            v[BAD * 4 + 2] = bad[_i]; /* batch 0 */
            struct op_graph o = attend(&c, &s);
            uint64_t n = 0;
            for (int t = 0; t < 2 * SEQ; t++)
                for (int j = 0; j < 8; j++) {
                    bool sees = t >= BAD && t < (window ? BAD + window : SEQ) && j % 4 == 2;
                    ck_assert_int_eq(!isfinite(y[t * 8 + j]), sees);
                    n += sees;
                }
            assert_trouble(&o, NH_SITE_PROBS, 0, 0, 0, 0);
            assert_trouble(&o, NH_SITE_ATTN_V, 0, 0, n, 0);
            op_free(&o);
        }
}
END_TEST

/* 1/15 rounds up to 9/128 in e4m3: the average of fifteen values of 240 is 253 */
START_TEST(average_beyond_the_format_is_new_where_the_inf_lies_outside_the_window)
{
    for (enum nh_width_of accum = NH_WIDE_FP32; accum <= NH_WIDE_DTYPE; accum++) {
        struct nh_config c = op_config("e4m3");
        c.accum = accum;
        struct shape s = {.batch = 1, .seq = 20, .heads = 1, .kv_heads = 1, .dim = 2, .window = 15};
        fill(q, 40, 0), fill(k, 40, 1), fill(v, 40, 240);
        v[0] = HUGE_VAL; /* key 0: rows 0 .. 14 */
        struct op_graph o = attend(&c, &s);
        for (int t = 0; t < 20; t++)
            assert_same(y[2 * t], t < 15 ? HUGE_VAL : y[2 * 19]);
        assert_count(&o, NH_SITE_ATTN_V, propagated, 15);
        if (accum == NH_WIDE_FP32) {
            assert_same(y[2 * 19], HUGE_VAL);
            assert_count(&o, NH_SITE_ATTN_V, overflow, 6 + 5); /* column 1 from row 14 on, column 0 from row 15 on */
            assert_first(&o, NH_OVERFLOW, NH_SITE_ATTN_V, 14 * 2 + 1, 253.125);
        }
        op_free(&o);
    }
}
END_TEST

START_TEST(inf_in_a_key_reaches_the_rows_that_see_it)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 1, .seq = 8, .heads = 4, .kv_heads = 2, .dim = 2, .window = 3, .after = true};
    fill(q, MOST, 1), fill(k, MOST, 1), fill(v, MOST, 1);
    k[4 * 4 + 2] = HUGE_VAL; /* key 4 of the second group: heads 2 and 3; rows 4, 5, 6 */
    struct op_graph o = attend(&c, &s);
    for (int t = 0; t < 8; t++)
        for (int j = 0; j < 8; j++)
            ck_assert_int_eq(!isfinite(y[t * 8 + j]), t >= 4 && t <= 6 && j >= 4);
    assert_trouble(&o, NH_SITE_QK, 0, 0, 6, 0);
    assert_trouble(&o, NH_SITE_SCORES, 0, 0, 6, 0);
    assert_trouble(&o, NH_SITE_PROBS, 0, 18, 0, 0); /* inf - inf */
    assert_trouble(&o, NH_SITE_ATTN_V, 0, 0, 12, 0);
    op_free(&o);
}
END_TEST

START_TEST(backward_pass_does_not_count_forward_sites_again)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 2, .seq = SEQ, .heads = 4, .kv_heads = 2, .dim = 4, .window = 9, .after = true};
    uint64_t state = 1;
    for (int i = 0; i < MOST; i++) {
        q[i] = op_draw(&state, 200) * 1.0;
        k[i] = op_draw(&state, 200) - 40;
        v[i] = op_draw(&state, 9) - 4;
        want[i] = 1;
    }
    struct op_graph o = attend_with(&c, &s, 2, true);
    struct nh_counts before[NH_SITE_COUNT];
    static const enum nh_site_name sites[] = {NH_SITE_QK, NH_SITE_SCORES, NH_SITE_PROBS, NH_SITE_ATTN_V};
    for (int i = 0; i < 4; i++)
        before[i] = *op_counts(&o, sites[i]);
    ck_assert_uint_gt(before[0].overflow, 0);
    o.core->backward(o.x, 1, want);
    for (int i = 0; i < 4; i++) {
        const struct nh_counts *c2 = op_counts(&o, sites[i]);
        ck_assert_uint_eq(before[i].total, c2->total);
        ck_assert_uint_eq(before[i].overflow, c2->overflow);
        ck_assert_uint_eq(before[i].nan_made, c2->nan_made);
        ck_assert_uint_eq(before[i].propagated, c2->propagated);
        ck_assert_uint_eq(before[i].underflow, c2->underflow);
        ck_assert_uint_eq(before[i].subnormal, c2->subnormal);
        if (i < 3) /* one gradient for each visible entry */
            ck_assert_uint_eq(c2[NH_BWD].total, visible(&s));
    }
    op_free(&o);
}
END_TEST

/* dv = p dout is inf and dk NaN (inf - inf) for the shared head, because of one head of queries or of the other */
START_TEST(inf_gradient_of_one_head_is_not_made_by_the_keys_that_it_shares)
{
    struct nh_config c = op_config("fp16");
    struct shape s = {.batch = 1, .seq = 2, .heads = 2, .kv_heads = 1, .dim = 2, .after = true};
    fill(q, 8, 1), fill(k, 4, 1), fill(v, 4, 1);
    for (int head = 0; head < 2; head++) {
        struct op_graph o = op_new(&c, 1, 2);
        nh_val qs = op_input(&o, 4, NH_ROLE_MATMUL_IN), ks = op_input(&o, 2, NH_ROLE_MATMUL_IN);
        nh_val vs = op_input(&o, 2, NH_ROLE_MATMUL_IN), heads = op_sdpa(&o, qs, ks, vs, s.dim, 0, s.after);
        o.g->exit_value = op_axpby(&o, 4, heads, 0, -1, NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
        o.g->head_rec = o.g->n_recs;
        op_close_with(&o, 1, true);
        op_set(&o, qs, q);
        op_set(&o, ks, k);
        op_set(&o, vs, v);
        op_run(&o);
        fill(want, 8, 1);
        want[4 + 2 * head] = 60000; /* times 4 it leaves fp16 */
        o.core->backward(o.x, 1, want);
        ck_assert_uint_eq(op_counts(&o, NH_SITE_ATTN_V)[NH_BWD].overflow, 1);
        const struct nh_counts *inputs = &op_counts(&o, NH_SITE_EMBED)[NH_BWD];
        ck_assert_uint_eq(inputs->overflow, 0);
        ck_assert_uint_gt(inputs->propagated, 0);
        struct nh_first f = o.core->first(o.x, NH_BWD);
        ck_assert_int_eq(f.kind, NH_OVERFLOW);
        ck_assert_int_eq(o.g->sites[f.site].name, NH_SITE_ATTN_V);
        ck_assert_uint_eq(f.index, 4 + 2 * (unsigned)head);
        ck_assert_double_eq(f.value, 240000);
        op_free(&o);
    }
}
END_TEST

/* ---- QK-norm ---- */

/** Largest score of attention over products of x with fixed weights times `factor`, per-head RMSNorm on q and k or
 * none. */
static double largest_score(const char *dtype, int dim, bool norms, double factor, double *out)
{
    enum { T = 24, IN = 16, HEADS = 2 };
    struct nh_config c = op_config(dtype);
    struct op_graph o = op_new(&c, 1, T);
    int cols = HEADS * dim;
    nh_val x = op_input(&o, IN, NH_ROLE_MATMUL_IN), vs = op_input(&o, cols, NH_ROLE_MATMUL_IN);
    int wq = op_param(&o, cols, IN, NH_ROLE_WEIGHT), wk = op_param(&o, cols, IN, NH_ROLE_WEIGHT);
    int gain = op_param(&o, 1, dim, NH_ROLE_NORM_OUT);
    nh_val qs = op_linear(&o, x, wq, -1, NH_SITE_QKV), ks = op_linear(&o, x, wk, -1, NH_SITE_QKV);
    if (norms) {
        qs = op_norm(&o, NH_NORM_RMS, qs, dim, gain, -1, NH_SITE_QK_NORM);
        ks = op_norm(&o, NH_NORM_RMS, ks, dim, gain, -1, NH_SITE_QK_NORM);
    }
    qs = op_axpby(&o, 1 / sqrt(dim), qs, 0, -1, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION);
    nh_val heads = op_sdpa(&o, qs, ks, vs, dim, 0, false);
    op_close(&o);
    uint64_t state = 11;
    for (int i = 0; i < T * IN; i++)
        q[i] = (op_draw(&state, 17) - 8) / 4.0;
    op_set(&o, x, q);
    for (int i = 0; i < T * cols; i++)
        v[i] = op_draw(&state, 5) - 2;
    op_set(&o, vs, v);
    for (int i = 0; i < cols * IN; i++)
        k[i] = factor * (op_draw(&state, 17) - 8) / 16;
    o.core->set_param(o.x, wq, k);
    o.core->set_param(o.x, wk, k); /* equal: q and k of a token are parallel, so that the bound is met */
    op_set_all(&o, gain, 1);
    op_run(&o);
    op_read(&o, heads, out);
    double top = op_counts(&o, NH_SITE_SCORES)->max_abs;
    op_free(&o);
    return top;
}

START_TEST(qk_norm_bounds_scores_and_forgets_the_scale_of_weights)
{
    static const struct {
        const char *dtype;
        double rounding, same; /* relative; of a probability-weighted sum of numbers up to 2 */
    } cases[] = {{"fp64", 1e-14, 1e-4}, {"fp32", 1e-6, 1e-4}, {"fp16", 3 * 0x1p-10, 0.1}, {"bf16", 3 * 0x1p-7, 0.5}};
    static const int dims[] = {8, 64, 128};
    static double a[24 * 256], b[24 * 256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 3; d++) {
            double root = sqrt(dims[d]), r = cases[i].rounding;
            double one = largest_score(cases[i].dtype, dims[d], true, 1, a);
            ck_assert_double_le(one, root * (1 + r));
            ck_assert_double_ge(one, root * (1 - r - 1e-5));
            double thousand = largest_score(cases[i].dtype, dims[d], true, 1000, b);
            ck_assert_double_le(thousand, root * (1 + r));
            for (int j = 0; j < 24 * 2 * dims[d]; j++)
                ck_assert_double_eq_tol(a[j], b[j], cases[i].same);
            if (strcmp(cases[i].dtype, "fp16") == 0)
                continue; /* a million times the scores do not fit */
            double bare = largest_score(cases[i].dtype, dims[d], false, 1, a);
            double bare_thousand = largest_score(cases[i].dtype, dims[d], false, 1000, b);
            ck_assert_double_eq_tol(bare_thousand / bare, 1e6, 1e6 * (r + 1e-6));
        }
}
END_TEST

/* Score of the own key less that of the one before, which is the logarithm of the ratio of their probabilities. */
static void score_differences(int dim, bool scaled, double *out)
{
    struct nh_config c = op_config("fp64");
    struct op_graph o = op_new(&c, PAIRS, 2);
    int gain = op_param(&o, 1, dim, NH_ROLE_NORM_OUT);
    nh_val qs = op_input(&o, dim, NH_ROLE_MATMUL_IN), ks = op_input(&o, dim, NH_ROLE_MATMUL_IN),
           vs = op_input(&o, dim, NH_ROLE_MATMUL_IN);
    nh_val qn = op_norm(&o, NH_NORM_RMS, qs, dim, gain, -1, NH_SITE_QK_NORM);
    nh_val kn = op_norm(&o, NH_NORM_RMS, ks, dim, gain, -1, NH_SITE_QK_NORM);
    if (scaled)
        qn = op_axpby(&o, 1 / sqrt(dim), qn, 0, -1, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION);
    nh_val heads = op_sdpa(&o, qn, kn, vs, dim, 0, false);
    op_close(&o);
    size_t n = (size_t)(2 * PAIRS * dim);
    double *x = calloc(n, sizeof *x);
    ck_assert_ptr_nonnull(x);
    uint64_t state = 5;
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < n; j++)
            x[j] = op_draw(&state, 17) - 8;
        op_set(&o, i ? ks : qs, x);
    }
    for (size_t j = 0; j < n; j++) /* the first two columns of the output are the two probabilities */
        x[j] = j % (size_t)dim == j / (size_t)dim % 2;
    op_set(&o, vs, x);
    op_set_all(&o, gain, 1);
    op_run(&o);
    op_read(&o, heads, x);
    for (size_t i = 0; i < PAIRS; i++)
        out[i] = log(x[(2 * i + 1) * (size_t)dim + 1] / x[(2 * i + 1) * (size_t)dim]);
    free(x);
    op_free(&o);
}

/* Between independent directions a score has deviation 1; left unscaled the root of the head width, 16 at 256. */
START_TEST(qk_norm_leaves_scores_of_deviation_1)
{
    static const int dims[] = {64, 128, 256};
    static double difference[PAIRS];
    for (int d = 0; d < 3; d++)
        for (int scaled = 0; scaled < 2; scaled++) {
            double sum = 0, expected = scaled ? 1 : sqrt(dims[d]);
            score_differences(dims[d], scaled, difference);
            for (int i = 0; i < PAIRS; i++)
                sum += difference[i] * difference[i];
            /* of one of the two, within 4 standard errors */
            ck_assert_double_eq_tol(sqrt(sum / PAIRS / 2), expected, expected * 4 / sqrt(2 * PAIRS));
        }
}
END_TEST

/* powers of two as factors: not even a bit changes, where eps does not show */
START_TEST(qk_norm_gives_the_same_bits_for_weights_times_1024)
{
    static double a[24 * 128], b[24 * 128];
    double one = largest_score("bf16", 64, true, 1024, a), other = largest_score("bf16", 64, true, 0x1p20, b);
    assert_same(one, other);
    assert_all_same(a, b, 24 * 128);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_attention");
    TCase *tc = tcase_create("ops_attention");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, scores_overflow_where_the_scale_stands_after_the_product);
    tcase_add_test(tc, scores_stay_finite_where_the_scale_stands_before_the_product);
    tcase_add_test(tc, causal_uniform_rows_are_exact);
    tcase_add_test(tc, only_visible_entries_are_counted);
    tcase_add_test(tc, masked_scores_are_never_an_overflow);
    tcase_add_test(tc, window_sees_itself_and_the_keys_just_before);
    tcase_add_test(tc, row_of_minus_inf_only_gives_zeros);
    tcase_add_test(tc, minus_inf_beside_a_number_is_a_zero);
    tcase_add_test(tc, plus_inf_score_gives_a_nan_row);
    tcase_add_loop_test(tc, inf_in_a_later_value_does_not_leak_into_earlier_rows, 0, 3);
    tcase_add_test(tc, average_beyond_the_format_is_new_where_the_inf_lies_outside_the_window);
    tcase_add_test(tc, inf_in_a_key_reaches_the_rows_that_see_it);
    tcase_add_test(tc, backward_pass_does_not_count_forward_sites_again);
    tcase_add_test(tc, inf_gradient_of_one_head_is_not_made_by_the_keys_that_it_shares);
    tcase_add_test(tc, qk_norm_bounds_scores_and_forgets_the_scale_of_weights);
    tcase_add_test(tc, qk_norm_leaves_scores_of_deviation_1);
    tcase_add_test(tc, qk_norm_gives_the_same_bits_for_weights_times_1024);
    return run_suite(suite, tc);
}
