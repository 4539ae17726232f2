// SPDX-License-Identifier: GPL-3.0-or-later
/** The ends of the tape: soft-capped logits, cross-entropy with and without a z-loss, the shrunk gradient of embedding tables. */
#include "tests/unit/op_graph.h"

enum { MOST = 4096 };
static double x[MOST], y[MOST], dx[MOST], dy[MOST];

#define assert_near(value, expected, tolerance) ck_assert_double_le(fabs((value) - (expected)), tolerance)

/* ---- cap tanh(x / cap) ---- */

static struct op_graph capped(const char *dtype, int n, double cap, bool gradients)
{
    struct nh_config c = op_config(dtype);
    struct op_graph o = op_new(&c, 1, 1);
    nh_val in = op_input(&o, n, NH_ROLE_LOGITS);
    struct nh_rec *r = op_rec(&o, NH_OP_ACT, n, NH_SITE_SOFTCAP, NH_ROLE_LOGITS);
    r->in[0] = in, r->u.act.kind = NH_ACT_SOFTCAP, r->u.act.cap = cap;
    o.g->exit_value = r->out, o.g->head_rec = o.g->n_recs;
    o.g->values[in].watched = true;
    op_close_with(&o, 1, gradients);
    op_set(&o, in, x);
    op_run(&o);
    op_read(&o, o.g->exit_value, y);
    if (gradients) {
        o.core->backward(o.x, 1, dy);
        o.core->read_grad(o.x, in, dx);
    }
    return o;
}

START_TEST(soft_cap_of_another_value)
{
    static const struct {
        const char *dtype;
        double tolerance; /* relative, of the value: one unit */
    } cases[] = {{"fp16", 0x1p-10}, {"bf16", 0x1p-7}, {"fp32", 0x1p-22}, {"fp64", 0x1p-51}, {"e5m12", 0x1p-12}};
    static const double numbers[] = {0, 1e-3, -0.5, 1, 20, -30, 50, 120, -1000, 60000};
    for (int cap = 30; cap <= 50; cap += 20) {
        for (int i = 0; i < 10; i++)
            x[i] = numbers[i], dy[i] = 1;
        struct op_graph o = capped(cases[_i].dtype, 10, cap, true);
        double stored[10];
        op_read(&o, o.g->recs[1].in[0], stored);
        for (int i = 0; i < 10; i++) {
            double t = tanh(stored[i] / cap), slope = 1 / (cosh(stored[i] / cap) * cosh(stored[i] / cap));
            assert_near(y[i], cap * t, fabs(cap * t) * cases[_i].tolerance);
            assert_near(dx[i], slope, fmax(cases[_i].tolerance * slope, 2 * cases[_i].tolerance * fabs(t)));
            ck_assert_double_le(fabs(y[i]), cap);
        }
        assert_same(y[9], cap); /* saturated, and no gradient comes through */
        assert_same(dx[9], 0);
        assert_trouble(&o, NH_SITE_SOFTCAP, 0, 0, 0, 0);
        op_free(&o);
    }
}
END_TEST

/** An inf among the logits is one at the product that made it: the cap hides it. */
START_TEST(soft_cap_counts_what_it_hides)
{
    static const double numbers[] = {HUGE_VAL, -HUGE_VAL, 3, NOT_A_NUMBER};
    memcpy(x, numbers, sizeof numbers);
    for (int i = 0; i < 4; i++)
        dy[i] = 1;
    struct op_graph o = capped("fp16", 4, 30, true);
    assert_same(y[0], 30);
    assert_same(y[1], -30);
    assert_same(y[3], nan(""));
    assert_trouble(&o, NH_SITE_SOFTCAP, 0, 0, 1, 0);
    assert_same(dx[0], 0);
    assert_same(dx[1], 0);
    assert_same(dx[3], nan(""));
    op_free(&o);
}
END_TEST

/* ---- cross-entropy ---- */

enum { VOCAB = 7, T = 4 };

/** One sequence of T rows; token t of a row is its number. The gradient of each row's loss is weighted with dy. */
static struct op_graph lost(const char *dtype, double z_loss)
{
    struct nh_config c = op_config(dtype);
    struct op_graph o = op_new(&c, 1, T);
    o.g->vocab = VOCAB;
    nh_val in = op_input(&o, VOCAB, NH_ROLE_LOGITS);
    struct nh_rec *r = op_rec(&o, NH_OP_XENT, 1, NH_SITE_LOSS, NH_ROLE_LOSS);
    r->in[0] = in, r->u.xent.z_loss = z_loss;
    o.g->exit_value = r->out, o.g->head_rec = o.g->n_recs;
    o.g->values[in].watched = true;
    op_close_with(&o, 1, true);
    op_set(&o, in, x);
    op_run(&o);
    op_read(&o, o.g->exit_value, y);
    o.core->backward(o.x, 1, dy);
    o.core->read_grad(o.x, in, dx);
    return o;
}

/** loss = log Z - z_target + C log^2 Z, and (1 + 2 C log Z) p - (1 at the target) as its gradient. */
START_TEST(z_loss_of_another_value)
{
    static const double factors[] = {0, 1e-4, 0.01, 1};
    static const struct {
        const char *dtype;
        double tolerance, gradient; /* the latter is stored in the format */
    } cases[] = {{"fp64", 1e-14, 1e-14}, {"fp32", 1e-5, 1e-5}, {"fp16", 1e-5, 0x1p-10}};
    uint64_t state = 31;
    for (int f = 0; f < 4; f++) {
        for (int i = 0; i < T * VOCAB; i++)
            x[i] = (op_draw(&state, 201) - 100) * 0.0625;
        for (int t = 0; t < T; t++)
            dy[t] = 0.25 * (1 + t);
        struct op_graph o = lost(cases[_i].dtype, factors[f]);
        for (int t = 0; t < T; t++) {
            const double *z = x + t * VOCAB;
            double sum = 0, c = factors[f];
            for (int j = 0; j < VOCAB; j++)
                sum += exp(z[j]);
            bool target = t < T - 1;
            double expected = target ? log(sum) - z[t + 1] + c * log(sum) * log(sum) : 0;
            assert_near(y[t], expected, cases[_i].tolerance * (1 + fabs(expected)));
            for (int j = 0; j < VOCAB; j++) {
                double p = target ? (1 + 2 * c * log(sum)) * exp(z[j]) / sum - (j == t + 1) : 0;
                assert_near(dx[t * VOCAB + j], dy[t] * p, cases[_i].gradient * (1 + fabs(p)));
            }
        }
        assert_trouble(&o, NH_SITE_LOSS, 0, 0, 0, 0);
        op_free(&o);
    }
}
END_TEST

/** The penalty pulls log Z towards 0 from either side, and does nothing where it is there. */
START_TEST(z_loss_pulls_the_wrong_way)
{
    for (int side = -1; side < 2; side++) {
        for (int i = 0; i < T * VOCAB; i++)
            x[i] = side * 5 - log(VOCAB); /* log Z = 5 side */
        for (int t = 0; t < T; t++)
            dy[t] = 1;
        struct op_graph o = lost("fp64", 0.5);
        double sum = 0;
        for (int j = 0; j < VOCAB; j++)
            sum += dx[j];
        assert_near(y[0], log(VOCAB) + 12.5 * side * side, 1e-13);
        assert_near(sum, 5 * side, 1e-13); /* cross-entropy alone: 0 */
        op_free(&o);
    }
}
END_TEST

/** The loss depends on differences of logits alone: an offset common to all of them changes neither it nor its gradient. */
START_TEST(loss_of_large_logits_is_that_of_their_differences)
{
    static const double offsets[] = {0, 65504, -65504, 1e7, 0x1p26, -0x1p60, 0x1p120};
    static const char *const dtypes[] = {"fp32", "fp64"};
    for (int i = 0; i < 14; i++) {
        double step = fmax(1, exp2(ceil(log2(fabs(offsets[i / 2]) * 0x1p-23 + 0x1p-99)))); /* so that an fp32 holds the sum */
        for (int j = 0; j < T * VOCAB; j++)
            x[j] = offsets[i / 2] + (j < VOCAB ? 0 : j % VOCAB == 1 ? 0 : -2 * step);
        for (int t = 0; t < T; t++)
            dy[t] = 1;
        struct op_graph o = lost(dtypes[i % 2], 0);
        double tolerance = i % 2 ? 1e-14 : 3e-7, others = (VOCAB - 1) * exp(-2 * step), sum = 1 + others;
        assert_near(y[0], log(VOCAB), tolerance * 2);
        assert_near(y[1], log(sum) + 2 * step, tolerance * 2 * step + 1e-6 * (i % 2 == 0)); /* its target is not the largest */
        for (int j = 0; j < VOCAB; j++) {
            assert_near(dx[j], 1. / VOCAB - (j == 1), tolerance);
            assert_near(dx[VOCAB + j], (j == 1 ? 1 : exp(-2 * step)) / sum - (j == 2), tolerance);
        }
        assert_trouble(&o, NH_SITE_LOSS, 0, 0, 0, 0);
        op_free(&o);
    }
}
END_TEST

/* ---- the gradient of embedding tables ---- */

static struct op_graph embedded(const char *dtype, double scale, double shrink)
{
    struct nh_config c = op_config(dtype);
    struct op_graph o = op_new(&c, 2, 3);
    int table = op_param(&o, 4, 2, NH_ROLE_EMBEDDING), positions = op_param(&o, 3, 2, NH_ROLE_EMBEDDING);
    nh_val out = nh_graph_value(o.g, 2, op_site(&o, NH_SITE_EMBED, NH_ROLE_RESIDUAL), NH_ROLE_RESIDUAL);
    struct nh_rec *r = nh_graph_rec(o.g, NH_OP_EMBED, out);
    r->par[0] = table, r->par[1] = positions, r->u.embed.scale = scale, r->u.embed.shrink = shrink;
    o.g->exit_value = out, o.g->head_rec = o.g->n_recs, o.g->vocab = 4;
    op_close_with(&o, 1, true);
    static const int tokens[] = {0, 2, 0, 3, 0, 2}; /* token 1 never occurs */
    o.core->set_tokens(o.x, tokens);
    o.core->set_param(o.x, table, x), o.core->set_param(o.x, positions, x + 8);
    op_run(&o);
    op_read(&o, out, y);
    o.core->backward(o.x, 1, dy);
    o.core->read_param_grad(o.x, table, dx), o.core->read_param_grad(o.x, positions, dx + 8);
    return o;
}

START_TEST(shrink_moves_the_forward_pass_or_the_wrong_gradient)
{
    static const struct {
        const char *dtype;
        double shrink, tolerance;
    } cases[] = {{"fp16", 0.5, 0}, {"bf16", 0.25, 0}, {"fp32", 0.1, 0x1p-22}, {"fp64", 0.1, 0x1p-51}, {"fp16", 0.1, 0x1p-10}};
    double whole[14], forward[12];
    uint64_t state = 43;
    for (int i = 0; i < 14; i++)
        x[i] = 1 + op_draw(&state, 1024) * 0x1p-10;
    for (int i = 0; i < 12; i++)
        dy[i] = (op_draw(&state, 65) - 32) * 0.125;
    for (int scale = 1; scale <= 4; scale += 3) {
        struct op_graph o = embedded(cases[_i].dtype, scale, 1);
        memcpy(whole, dx, sizeof whole), memcpy(forward, y, sizeof forward);
        op_free(&o);
        o = embedded(cases[_i].dtype, scale, cases[_i].shrink);
        assert_all_same(y, forward, 12); /* e a + stopgrad(e) (1 - a) would move one number in six */
        for (int i = 0; i < 14; i++) {
            assert_near(dx[i], cases[_i].shrink * whole[i], cases[_i].tolerance * 16); /* of sums of numbers up to 4 * 4 */
        }
        op_free(&o);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_ends");
    TCase *tc = tcase_create("ops_ends");
    tcase_add_loop_test(tc, soft_cap_of_another_value, 0, 5);
    tcase_add_test(tc, soft_cap_counts_what_it_hides);
    tcase_add_loop_test(tc, z_loss_of_another_value, 0, 3);
    tcase_add_test(tc, z_loss_pulls_the_wrong_way);
    tcase_add_test(tc, loss_of_large_logits_is_that_of_their_differences);
    tcase_add_loop_test(tc, shrink_moves_the_forward_pass_or_the_wrong_gradient, 0, 5);
    return run_suite(suite, tc);
}
