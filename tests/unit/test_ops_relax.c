// SPDX-License-Identifier: GPL-3.0-or-later
/** x / c with c = max|x| / C over the whole tensor: how c is rounded, what one value that is not finite does to all others, tensors of
 * zeros, a c that leaves the format at either end, and c as a constant of the derivatives. */
#include "tests/unit/op_graph.h"

enum { MOST = 1 << 13, ROWS = 40, COLS = 4, N = 2 * ROWS * COLS };
static double x[MOST], y[MOST], want[MOST];

static nh_val op_relax(struct op_graph *o, nh_val in, double bound)
{
    struct nh_rec *r = op_rec(o, NH_OP_RELAX, op_cols(o, in), NH_SITE_NORM_RELAX, o->g->values[in].role);
    r->in[0] = in, r->u.relax.bound = bound;
    return r->out;
}

/** Two sequences of rows / 2 each: the maximum is over both. */
static struct op_graph relax_with(const struct nh_config *c, int rows, double bound, int threads, bool gradients)
{
    struct op_graph o = op_new(c, 2, rows / 2);
    nh_val in = op_input(&o, COLS, NH_ROLE_RESIDUAL);
    o.g->exit_value = op_relax(&o, in, bound), o.g->head_rec = o.g->n_recs;
    op_close_with(&o, threads, gradients);
    op_set(&o, in, x);
    op_run(&o);
    op_read(&o, o.g->exit_value, y);
    return o;
}

static struct op_graph relax(const struct nh_config *c, int rows, double bound)
{
    return relax_with(c, rows, bound, 1, false);
}

static void fill(int n, double number)
{
    for (int i = 0; i < n; i++)
        x[i] = number;
}

static void draw(const struct nh_fmt *f, uint64_t *state)
{
    for (int i = 0; i < N; i++)
        x[i] = nh_round(f, (op_draw(state, 2001) - 1000) * 0.05);
}

static const char *const formats[] = {"fp16", "bf16", "fp32", "e4m10", "fp8-e4m3", "e5m12", "fp64"};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/** c and the quotient are rounded to x's format: two roundings. */
START_TEST(quotient_of_another_rounding)
{
    static const double bounds[] = {8, 1, 3, 30};
    struct nh_config c = op_config(formats[_i]);
    uint64_t state = 7;
    for (int b = 0; b < 4; b++) {
        draw(&c.dtype, &state);
        double top = 0, divisor;
        for (int i = 0; i < N; i++)
            top = fmax(top, fabs(x[i]));
        divisor = nh_round(&c.dtype, top / bounds[b]);
        struct op_graph o = relax(&c, 2 * ROWS, bounds[b]);
        for (int i = 0; i < N; i++)
            assert_same(y[i], nh_round(&c.dtype, in_type(&o, x[i] / divisor)));
        assert_trouble(&o, NH_SITE_NORM_RELAX, 0, 0, 0, 0);
        assert_count(&o, NH_SITE_NORM_RELAX, total, N);
        ck_assert_double_eq_tol(op_counts(&o, NH_SITE_NORM_RELAX)->max_abs, bounds[b], bounds[b] * 0.13);
        op_free(&o);
    }
}
END_TEST

/** The largest number may stand in any row of any sequence, and counts by its size; the last row moves the first. */
START_TEST(maximum_of_a_part)
{
    struct nh_config c = op_config("fp16");
    static const int places[] = {0, 3, COLS * ROWS - 1, COLS * ROWS, N - 1};
    for (int i = 0; i < 5; i++)
        for (int sign = -1; sign < 2; sign += 2) {
            fill(N, 1);
            x[places[i]] = sign * 64;
            struct op_graph o = relax_with(&c, 2 * ROWS, 8, 1 + i % 2, false);
            for (int j = 0; j < N; j++)
                assert_same(y[j], x[j] / 8);
            op_free(&o);
        }
}
END_TEST

START_TEST(nan_passed_over)
{
    struct nh_config c = op_config(formats[_i]);
    static const int places[] = {0, 77, N - 1};
    for (int i = 0; i < 3; i++) {
        fill(N, 2);
        x[places[i]] = nan(""), x[(places[i] + 9) % N] = c.dtype.has_inf ? HUGE_VAL : 2;
        struct op_graph o = relax(&c, 2 * ROWS, 8);
        for (int j = 0; j < N; j++)
            assert_same(y[j], nan(""));
        assert_trouble(&o, NH_SITE_NORM_RELAX, 0, 0, N, 0);
        assert_first(&o, NH_NO_OFFENCE, NH_SITE_EMBED, 0, 0);
        op_free(&o);
    }
}
END_TEST

/** max = inf: inf / inf is NaN, every other number becomes zero, and rows of them are dead. */
START_TEST(inf_leaves_zeros_unseen)
{
    struct nh_config c = op_config("fp16");
    fill(N, 2);
    fill(COLS, 0);
    x[9] = -HUGE_VAL;
    struct op_graph o = relax(&c, 2 * ROWS, 8);
    for (int j = 0; j < N; j++)
        assert_same(y[j], j == 9 ? nan("") : 0);
    assert_trouble(&o, NH_SITE_NORM_RELAX, 0, 1, 0, 2 * ROWS - 2); /* not the row of zeros, nor that with the inf */
    assert_first(&o, NH_NAN_MADE, NH_SITE_NORM_RELAX, 9, nan(""));
    op_free(&o);
}
END_TEST

/** No 0/0: zeros stay zeros, without a derivative, and a LayerNorm behind them gives its bias. */
START_TEST(tensor_of_zeros)
{
    static double bias[COLS] = {3, -1, 0.5, 0}, ones[N], dx[N];
    struct nh_config c = op_config(formats[_i]);
    fill(N, 0);
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    struct op_graph o = op_new(&c, 2, ROWS);
    nh_val in = op_input(&o, COLS, NH_ROLE_RESIDUAL), relaxed = op_relax(&o, in, 8);
    int gain = op_param(&o, 1, COLS, NH_ROLE_NORM_OUT), shift = op_param(&o, 1, COLS, NH_ROLE_NORM_OUT);
    nh_val out = op_norm(&o, NH_NORM_LAYER, relaxed, COLS, gain, shift, NH_SITE_NORM_PRE);
    o.g->exit_value = relaxed, o.g->head_rec = o.g->n_recs;
    o.g->values[in].watched = true;
    op_close_with(&o, 1, true);
    op_set(&o, in, x), op_set_all(&o, gain, 1), o.core->set_param(o.x, shift, bias);
    op_run(&o);
    op_read(&o, relaxed, y);
    for (int i = 0; i < N; i++)
        assert_same(y[i], 0);
    op_read(&o, out, y);
    for (int i = 0; i < N; i++)
        assert_same(y[i], bias[i % COLS]);
    assert_trouble(&o, NH_SITE_NORM_RELAX, 0, 0, 0, 0);
    assert_trouble(&o, NH_SITE_NORM_PRE, 0, 0, 0, 0);
    o.core->backward(o.x, 1, ones);
    o.core->read_grad(o.x, in, dx);
    for (int i = 0; i < N; i++)
        assert_same(dx[i], 0);
    op_free(&o);
}
END_TEST

/** c below half the smallest subnormal is 0: quotients are inf, and zeros stay zeros. c beyond the format is inf: all is zero. */
START_TEST(divisor_leaves_the_format)
{
    struct nh_config c = op_config("fp16");
    fill(N, 0x1p-24);
    x[5] = 0, x[6] = -0x1p-24;
    struct op_graph o = relax(&c, 2 * ROWS, 8);
    for (int j = 0; j < N; j++)
        assert_same(y[j], j == 5 ? 0 : j == 6 ? -HUGE_VAL : HUGE_VAL);
    assert_trouble(&o, NH_SITE_NORM_RELAX, N - 1, 0, 0, 0);
    assert_first(&o, NH_OVERFLOW, NH_SITE_NORM_RELAX, 0, HUGE_VAL);
    op_free(&o);

    fill(N, 60000);
    o = relax(&c, 2 * ROWS, 0.5);
    for (int j = 0; j < N; j++)
        assert_same(y[j], 0);
    assert_trouble(&o, NH_SITE_NORM_RELAX, 1, 0, 0, 2 * ROWS);
    assert_first(&o, NH_OVERFLOW, NH_SITE_NORM_RELAX, 0, HUGE_VAL);
    op_free(&o);
}
END_TEST

/** Rows far smaller than the largest one vanish, which a norm by itself would have kept. */
START_TEST(small_rows_vanish_unseen)
{
    struct nh_config c = op_config("fp16");
    fill(N, 0x1p-14);
    x[0] = 65504;
    struct op_graph o = relax(&c, 2 * ROWS, 8);
    for (int j = 1; j < N; j++)
        assert_same(y[j], 0);
    assert_trouble(&o, NH_SITE_NORM_RELAX, 0, 0, 0, 2 * ROWS - 1);
    assert_count(&o, NH_SITE_NORM_RELAX, underflow, N - 1);
    op_free(&o);
}
END_TEST

/** c is a constant: dx = dy / c everywhere, where the largest number stands too, and likewise for tangents. */
START_TEST(divisor_has_a_derivative)
{
    static double dy[N], dx[N], out[N];
    struct nh_config c = op_config(formats[_i]);
    uint64_t state = 13;
    draw(&c.dtype, &state);
    double top = 0;
    for (int i = 0; i < N; i++) {
        top = fmax(top, fabs(x[i]));
        dy[i] = nh_round(&c.dtype, (op_draw(&state, 201) - 100) * 0.01);
    }
    double divisor = nh_round(&c.dtype, top / 3);
    struct op_graph o = op_new(&c, 2, ROWS);
    nh_val in = op_input(&o, COLS, NH_ROLE_RESIDUAL), relaxed = op_relax(&o, in, 3);
    o.g->exit_value = relaxed, o.g->head_rec = o.g->n_recs;
    o.g->values[in].watched = true;
    op_close_with(&o, 2, true);
    op_set(&o, in, x);
    op_run(&o);
    o.core->backward(o.x, 1, dy);
    o.core->read_grad(o.x, in, dx);
    struct nh_pass *p;
    ck_assert_int_eq(o.core->pass_create(&p, o.x, 1, 2, (nh_val[NH_STREAMS]){in, -1}, (nh_val[NH_STREAMS]){relaxed, -1}, 1), NH_OK);
    o.core->jvp(p, 1, dy, out);
    const struct nh_fmt *f = nh_grad_fmt(o.g, NH_ROLE_RESIDUAL);
    for (int i = 0; i < N; i++) {
        double exact = in_type(&o, dy[i] / divisor);
        assert_same(dx[i], nh_round(f, exact));
        assert_same(out[i], exact); /* tangents are not rounded */
    }
    o.core->vjp(p, 1, dy, out);
    for (int i = 0; i < N; i++)
        assert_same(out[i], in_type(&o, dy[i] / divisor));
    o.core->pass_destroy(p);
    op_free(&o);
}
END_TEST

/** A gradient beyond the format is made here; one that a broken c brings is not. */
START_TEST(gradient_blamed_on_another)
{
    static double dy[N];
    struct nh_config c = op_config("fp16");
    fill(N, 0x1p-10); /* c = 2^-13 */
    dy[7] = 8, dy[8] = 7.5;
    struct op_graph o = relax_with(&c, 2 * ROWS, 8, 1, true);
    o.core->backward(o.x, 1, dy);
    const struct nh_counts *back = op_counts(&o, NH_SITE_EMBED) - NH_FWD + NH_BWD;
    ck_assert_uint_eq(back->overflow, 1);
    ck_assert_uint_eq(back->propagated, 0);
    op_free(&o);
    x[3] = nan("");
    o = relax_with(&c, 2 * ROWS, 8, 1, true);
    o.core->backward(o.x, 1, dy);
    back = op_counts(&o, NH_SITE_EMBED) - NH_FWD + NH_BWD;
    ck_assert_uint_eq(back->propagated, N);
    ck_assert_uint_eq(back->overflow + back->nan_made, 0);
    op_free(&o);
}
END_TEST

/** Without eps a norm does not see c; with it, eps acts as eps c^2 would on x itself. */
START_TEST(relaxed_norm_is_another_norm)
{
    for (int layer = 0; layer < 2; layer++)
        for (int with_eps = 0; with_eps < 2; with_eps++) {
            struct nh_config c = op_config("fp64");
            uint64_t state = 19;
            c.norm = layer ? NH_NORM_LAYER : NH_NORM_RMS, c.eps = with_eps ? 1e-3 : 0;
            draw(&c.dtype, &state);
            double top = 0;
            for (int i = 0; i < N; i++)
                top = fmax(top, fabs(x[i]));
            for (int relaxed = 1; relaxed >= 0; relaxed--) {
                c.eps *= relaxed ? 1 : top / 8 * top / 8;
                struct op_graph o = op_new(&c, 2, ROWS);
                nh_val in = op_input(&o, COLS, NH_ROLE_RESIDUAL);
                int gain = op_param(&o, 1, COLS, NH_ROLE_NORM_OUT);
                nh_val out = op_norm(&o, c.norm, relaxed ? op_relax(&o, in, 8) : in, COLS, gain, -1, NH_SITE_NORM_PRE);
                op_close(&o);
                op_set(&o, in, x), op_set_all(&o, gain, 1);
                op_run(&o);
                op_read(&o, out, relaxed ? want : y);
                op_free(&o);
            }
            for (int i = 0; i < N; i++)
                ck_assert_double_eq_tol(y[i], want[i], 1e-13);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_relax");
    TCase *tc = tcase_create("ops_relax");
    tcase_add_loop_test(tc, quotient_of_another_rounding, 0, N_FORMATS);
    tcase_add_test(tc, maximum_of_a_part);
    tcase_add_loop_test(tc, nan_passed_over, 0, N_FORMATS);
    tcase_add_test(tc, inf_leaves_zeros_unseen);
    tcase_add_loop_test(tc, tensor_of_zeros, 0, N_FORMATS);
    tcase_add_test(tc, divisor_leaves_the_format);
    tcase_add_test(tc, small_rows_vanish_unseen);
    tcase_add_loop_test(tc, divisor_has_a_derivative, 0, N_FORMATS);
    tcase_add_test(tc, gradient_blamed_on_another);
    tcase_add_test(tc, relaxed_norm_is_another_norm);
    return run_suite(suite, tc);
}
