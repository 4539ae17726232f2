// SPDX-License-Identifier: GPL-3.0-or-later
/** The softmax of attention in its two other forms: scores held divided by alpha, and every step in a narrow format. What each gains
 * and loses, masks in both, and bits and counters against a plain reference. */
#include "tests/unit/op_graph.h"

enum { MOST = 1 << 13, SEQ = 70, DIM = 8, HEADS = 2, COLS = HEADS * DIM };
static double q[MOST], k[MOST], v[MOST], y[MOST], want[MOST];

struct shape {
    int seq, heads, dim, window; /* window 0: all keys */
    double alpha;                /* 1 = plain */
};

/** Attention on q, k and v; y is its output. The values that are its inputs come first. */
static struct op_graph attend_with(const struct nh_config *c, const struct shape *s, bool gradients)
{
    struct op_graph o = op_new(c, 1, s->seq);
    int cols = s->heads * s->dim;
    nh_val qs = op_input(&o, cols, NH_ROLE_ACTIVATION), ks = op_input(&o, cols, NH_ROLE_MATMUL_IN);
    nh_val vs = op_input(&o, cols, NH_ROLE_MATMUL_IN);
    nh_val scaled = op_axpby(&o, 1 / (s->alpha * sqrt(s->dim)), qs, 0, -1, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION);
    nh_val out = op_sdpa(&o, scaled, ks, vs, s->dim, s->window, false);
    o.g->recs[o.g->values[out].rec].u.sdpa.alpha = s->alpha;
    o.g->exit_value = out, o.g->head_rec = o.g->n_recs;
    op_close_with(&o, 2, gradients);
    op_set(&o, qs, q), op_set(&o, ks, k), op_set(&o, vs, v);
    op_run(&o);
    op_read(&o, out, y);
    return o;
}

static struct op_graph attend(const struct nh_config *c, const struct shape *s)
{
    return attend_with(c, s, false);
}

static void fill(double *to, int n, double number)
{
    for (int i = 0; i < n; i++)
        to[i] = number;
}

/** Values that show the probabilities: v of key j is the unit vector j. */
static void show_probabilities(int seq, int dim)
{
    fill(v, seq * dim, 0);
    for (int j = 0; j < seq; j++)
        v[j * dim + j] = 1;
}

static const enum nh_site_name sites[] = {NH_SITE_Q_SCALE, NH_SITE_SCORES, NH_SITE_PROBS, NH_SITE_ATTN_V};

static void assert_healthy(const struct op_graph *o)
{
    for (int i = 0; i < 4; i++)
        assert_trouble(o, sites[i], 0, 0, 0, 0);
}

/* ---- softmax(alpha (s / alpha - max)) ---- */

/** Queries and keys whose scores lie within a factor of ten of `size` and have both signs. */
static void draw_scores(double size, uint64_t *state)
{
    for (int i = 0; i < SEQ * COLS; i++) {
        q[i] = (double)(float)(sqrt(size) * (op_draw(state, 2001) - 1000) * 2e-3);
        k[i] = (double)(float)(sqrt(size) * (op_draw(state, 2001) - 1000) * 2e-3);
        v[i] = (double)(float)((op_draw(state, 2001) - 1000) * 1e-3);
    }
}

/** A power of two as alpha is exact from the queries to the exponent, and in the gradients back to them. */
START_TEST(relaxed_scores_give_other_bits_than_plain_ones)
{
    static const double sizes[] = {2e-3, 0.05, 1, 30, 1e3, 6e4};
    static const enum nh_site_name others[] = {NH_SITE_PROBS, NH_SITE_ATTN_V};
    struct nh_config c = op_config("fp32");
    struct shape plain = {.seq = SEQ, .heads = HEADS, .dim = DIM, .window = 0, .alpha = 1}, relaxed = plain;
    uint64_t state = 3;
    relaxed.alpha = 32;
    draw_scores(sizes[_i], &state);
    for (int i = 0; i < SEQ * COLS; i++)
        want[i] = (op_draw(&state, 2001) - 1000) * 1e-3;
    struct op_graph a = attend_with(&c, &plain, true);
    static double expected[MOST], got[MOST];
    memcpy(expected, y, sizeof expected);
    struct op_graph b = attend_with(&c, &relaxed, true);
    assert_all_same(y, expected, SEQ * COLS);
    assert_same(op_counts(&b, NH_SITE_SCORES)->max_abs * 32, op_counts(&a, NH_SITE_SCORES)->max_abs);
    ck_assert_double_gt(op_counts(&a, NH_SITE_SCORES)->max_abs, sizes[_i] / 3);
    for (int i = 0; i < 2; i++)
        ck_assert_mem_eq(op_counts(&a, others[i]), op_counts(&b, others[i]), sizeof(struct nh_counts));
    a.core->backward(a.x, 1, want);
    b.core->backward(b.x, 1, want);
    for (int input = 0; input < 3; input++) {
        a.core->read_param_grad(a.x, input, expected);
        b.core->read_param_grad(b.x, input, got);
        for (int i = 0; i < SEQ * COLS; i++)
            if (fabs(expected[i]) > 0x1p-120) /* smaller ones have gone through subnormals, here and there at different steps */
                assert_same(got[i], expected[i]);
    }
    op_free(&a), op_free(&b);
}
END_TEST

/** All q = k = x: q.k / sqrt(128) = 128 x^2 / 11.3. */
START_TEST(relaxed_scores_leave_the_format_too_early)
{
    static const struct {
        const char *dtype;
        double x, alpha;
        int overflows; /* of three scores */
    } cases[] = {{"fp16", 23, 1, 0},    {"fp16", 80, 1, 3},     {"fp16", 80, 32, 0},   {"fp16", 420, 32, 0}, /* s = 2.0e6 */
                 {"fp16", 440, 32, 3}, /* 2.2e6 */ {"fp16", 440, 64, 0}, {"bf16", 440, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_config c = op_config(cases[i].dtype);
        struct shape s = {.seq = 2, .heads = 1, .dim = 128, .alpha = cases[i].alpha};
        fill(q, 256, cases[i].x), fill(k, 256, cases[i].x), fill(v, 256, 1);
        struct op_graph o = attend(&c, &s);
        assert_count(&o, NH_SITE_SCORES, overflow, (uint64_t)cases[i].overflows);
        for (int j = 0; j < 256; j++)
            assert_same(y[j], cases[i].overflows ? nan("") : 1);
        if (!cases[i].overflows) {
            double s_of = 128 * cases[i].x * cases[i].x / sqrt(128) / cases[i].alpha;
            ck_assert_double_eq_tol(op_counts(&o, NH_SITE_SCORES)->max_abs, s_of, s_of * 0x1p-7);
            assert_healthy(&o);
        }
        op_free(&o);
    }
}
END_TEST

/** Below alpha 2^-14 a held score is subnormal in fp16, below alpha 2^-25 it is gone. */
START_TEST(small_scores_lose_digits_where_they_are_relaxed)
{
    static const struct {
        double score, alpha;
        uint64_t subnormal, underflow;
    } cases[] = {{0x1p-8, 32, 0, 0}, {0x1p-9, 32, 0, 0}, {0x1p-10, 32, 1, 0}, {0x1p-10, 1, 0, 0}, {0x1p-21, 32, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_config c = op_config("fp16");
        struct shape s = {.seq = 1, .heads = 1, .dim = 4, .alpha = cases[i].alpha};
        fill(q, 4, 0), fill(k, 4, 0), fill(v, 4, 1);
        q[0] = 2 * 32 * 0x1p-6, k[0] = cases[i].score / (32 * 0x1p-6); /* q[0] = 1, and sqrt(4) = 2 */
        struct op_graph o = attend(&c, &s);
        assert_count(&o, NH_SITE_Q_SCALE, subnormal, 0);
        assert_count(&o, NH_SITE_SCORES, subnormal, cases[i].subnormal);
        assert_count(&o, NH_SITE_SCORES, underflow, cases[i].underflow);
        op_free(&o);
    }
}
END_TEST

START_TEST(masks_and_rows_without_a_key)
{
    static const char *const policies[] = {"plain", "all-half"};
    static const double alphas[] = {1, 3, 32};
    const double third = 0.333251953125;
    struct nh_config c = op_config("fp16");
    for (int i = 0; nh_policies[i]; i++)
        if (strcmp(nh_policies[i]->name, policies[_i / 3]) == 0)
            c.policy = nh_policies[i];
    struct shape s = {.seq = 3, .heads = 1, .dim = 4, .alpha = alphas[_i % 3]};
    fill(q, 12, 0), fill(k, 12, 1), show_probabilities(3, 4);
    struct op_graph o = attend(&c, &s);
    const double rows[] = {1, 0, 0, 0, 0.5, 0.5, 0, 0, third, third, third, 0};
    assert_all_same(y, rows, 12);
    assert_count(&o, NH_SITE_PROBS, total, 6);
    assert_healthy(&o);
    op_free(&o);

    fill(k, 12, -HUGE_VAL), fill(q, 12, 1); /* every score is -inf: zeros, never NaN */
    o = attend(&c, &s);
    for (int j = 0; j < 12; j++)
        assert_same(y[j], 0);
    assert_trouble(&o, NH_SITE_SCORES, 0, 0, 6, 0);
    assert_trouble(&o, NH_SITE_PROBS, 0, 0, 0, 0);
    op_free(&o);

    fill(k + 4, 8, 1); /* key 0 alone is -inf */
    o = attend(&c, &s);
    const double others[] = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0.5, 0.5, 0};
    assert_all_same(y, others, 12);
    assert_trouble(&o, NH_SITE_PROBS, 0, 0, 0, 0);
    op_free(&o);

    fill(k, 4, HUGE_VAL); /* +inf in a row: a NaN row */
    o = attend(&c, &s);
    ck_assert(isnan(y[0]) && isnan(y[4]) && isnan(y[8]));
    assert_trouble(&o, NH_SITE_PROBS, 0, 6, 0, 0);
    op_free(&o);
}
END_TEST

/* ---- every step in a narrow format ---- */

static struct nh_config narrow(const char *dtype, const char *softmax)
{
    struct nh_config c = op_config(dtype);
    if (nh_fmt_parse(&c.role_format[NH_ROLE_SOFTMAX], softmax) != NH_OK)
        abort();
    return c;
}

/** A running sum of ones stalls at 2^(Y+1); where that is beyond the format it runs over, and the row is silently dead. */
START_TEST(sum_of_exponentials_stalls_or_runs_over)
{
    static const struct {
        const char *dtype;
        int seq;
        double last; /* a probability of the last row */
        uint64_t overflows, dead;
    } cases[] = {{"bf16", 256, 1.0 / 256, 0, 0},
                 {"bf16", 300, 1.0 / 256, 0, 0}, /* not 1/300 */
                 {"e4m10", 255, 1.0 / 255, 0, 0},
                 {"e4m10", 300, 0, 300 - 255, 300 - 255}, /* 256 is inf: 0 with no NaN at all */
                 {"fp16", 300, 1.0 / 300, 0, 0},
                 {"fp8-e5m2", 300, 1.0 / 8, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = cases[i].seq;
        struct nh_config c = narrow(cases[i].dtype, cases[i].dtype);
        struct shape s = {.seq = n, .heads = 1, .dim = 2, .alpha = 1};
        fill(q, 2 * n, 0), fill(k, 2 * n, 1), fill(v, 2 * n, 0);
        v[2 * n - 2] = 1; /* the last key's probability */
        struct op_graph o = attend(&c, &s);
        assert_same(y[2 * n - 2], nh_round(&c.dtype, cases[i].last));
        assert_trouble(&o, NH_SITE_PROBS, cases[i].overflows, 0, 0, cases[i].dead);
        if (cases[i].overflows)
            assert_first(&o, NH_OVERFLOW, NH_SITE_PROBS, (uint64_t)(255 * n), HUGE_VAL);
        op_free(&o);
    }
    struct nh_config c = op_config("bf16"); /* the sum is in fp32 */
    struct shape s = {.seq = 300, .heads = 1, .dim = 2, .alpha = 1};
    fill(q, 600, 0), fill(k, 600, 1), fill(v, 600, 0);
    v[598] = 1;
    struct op_graph o = attend(&c, &s);
    assert_same(y[598], nh_round(&c.dtype, 1.0 / 300));
    op_free(&o);
}
END_TEST

/** The last row sees -inf alone, its neighbours have sums that run over: its zeros are none of theirs. */
START_TEST(dead_row_counted_twice)
{
    enum { T = 300 };
    struct nh_config c = narrow("e4m10", "e4m10");
    struct shape s = {.seq = T, .heads = 1, .dim = 2, .alpha = 1};
    fill(q, 2 * T, 0), fill(k, 2 * T, 1), fill(v, 2 * T, 1);
    fill(q + 2 * T - 2, 2, -250);
    struct op_graph o = attend(&c, &s);
    assert_trouble(&o, NH_SITE_SCORES, T, 0, 0, 0);
    assert_trouble(&o, NH_SITE_PROBS, T - 1 - 255, 0, 0, T - 1 - 255);
    op_free(&o);
}
END_TEST

/** One row of one head, one step after the other. */
static void plain_row(const struct op_graph *o, const struct shape *s, int head, int t, struct plain at[4])
{
    const struct nh_fmt *f = &o->g->fmt[NH_ROLE_SOFTMAX];
    int from = s->window && t - s->window + 1 > 0 ? t - s->window + 1 : 0, n = t + 1 - from, cols = s->heads * s->dim;
    double query[DIM], p[SEQ], score_of[SEQ], top = -HUGE_VAL, sum = 0, scale = in_type(o, 1 / (s->alpha * sqrt(s->dim)));
    uint64_t place = (uint64_t)((head * s->seq + t) * s->seq + from), q_at = (uint64_t)(t * cols + head * s->dim);
    unsigned seen = 0, brought = 0;
    bool all_down = true, sound = true;
    for (int i = 0; i < s->dim; i++) {
        double x = q[q_at + (uint64_t)i];
        query[i] = plain_store(&at[0], in_type(o, x * scale), flag_of(x), false, q_at + (uint64_t)i);
    }
    for (int j = 0; j < n; j++) {
        unsigned inputs;
        bool ran_over;
        double score = plain_dot(o, s->dim, query, 1, k + (from + j) * cols + head * s->dim, 1, &inputs, &ran_over);
        score_of[j] = p[j] = plain_store(&at[1], score, inputs, ran_over, place + (uint64_t)j);
        seen |= flag_of(p[j]);
        top = p[j] > top ? p[j] : top;
        all_down &= isinf(p[j]) && p[j] < 0;
    }
    for (int j = 0; j < n; j++) {
        double below = nh_round(f, p[j] - top);
        p[j] = all_down ? 0 : nh_round(f, exp(nh_round(f, s->alpha * below)));
        sum = nh_round(f, sum + p[j]);
        sound &= isfinite(p[j]);
    }
    bool ran_over = sound && !isfinite(sum);
    at[2].counts.overflow += ran_over, at[2].counts.zero_made += ran_over && isinf(sum);
    if (ran_over)
        plain_note(&at[2], NH_OVERFLOW, place - (uint64_t)from, HUGE_VAL);
    for (int j = 0; j < n; j++) {
        double exact = all_down ? 0 : p[j] / sum, rounded = nh_round(f, exact);
        if (isfinite(sum))
            plain_lost(&at[2], score_of[j], top, rounded);
        p[j] = plain_store(&at[2], rounded, seen, false, place + (uint64_t)j);
        brought |= flag_of(p[j]);
    }
    for (int i = 0; i < s->dim; i++) {
        unsigned inputs;
        double out = plain_dot(o, n, p, 1, v + from * cols + head * s->dim + i, cols, &inputs, &ran_over);
        want[q_at + (uint64_t)i] = plain_store(&at[3], out, inputs | brought, ran_over, q_at + (uint64_t)i);
    }
}

/** Numbers -1, 0 and 1 (queries times 8: a spread of exponents), so that sums are exact in the executor's type. */
static void draw_inputs(bool special, uint64_t *state)
{
    for (int i = 0; i < SEQ * COLS; i++) {
        q[i] = 8 * (op_draw(state, 3) - 1);
        k[i] = op_draw(state, 3) - 1;
        v[i] = op_draw(state, 3) - 1;
    }
    for (int i = 0; i < 4 && special; i++) {
        q[op_draw(state, SEQ * COLS)] = i ? HUGE_VAL : nan("");
        k[op_draw(state, SEQ * COLS)] = i ? -HUGE_VAL : nan("");
    }
}

static const struct {
    const char *dtype, *softmax;
} formats[] = {{"fp16", "fp16"},  {"bf16", "bf16"},         {"e4m10", "e4m10"}, {"e4m3", "e4m3"},  {"fp8-e4m3", "fp8-e4m3"},
               {"e5m12", "e5m12"}, {"fp8-e5m2", "fp8-e5m2"}, {"fp32", "fp16"},   {"fp16", "bf16"}, {"bf16", "fp8-e5m2"}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

START_TEST(narrow_softmax_agrees_with_the_plain_reference)
{
    static const enum nh_role roles[] = {NH_ROLE_ACTIVATION, NH_ROLE_MATMUL_OUT, NH_ROLE_MATMUL_IN, NH_ROLE_MATMUL_OUT};
    static const double alphas[] = {1, 3, 32};
    uint64_t state = 29;
    for (int which = 0; which < 12; which++) {
        struct nh_config c = narrow(formats[_i].dtype, formats[_i].softmax);
        struct shape s = {.seq = SEQ, .heads = HEADS, .dim = DIM, .window = which % 2 ? 66 : 0, .alpha = alphas[which / 4]};
        c.accum = NH_WIDE_DTYPE; /* sums of probabilities in one order */
        draw_inputs(which % 4 > 1, &state);
        if (!c.dtype.has_inf)
            for (int i = 0; i < SEQ * COLS; i++)
                q[i] = nh_round(&c.dtype, q[i]), k[i] = nh_round(&c.dtype, k[i]);
        struct op_graph o = attend(&c, &s);
        struct plain at[4];
        for (int i = 0; i < 4; i++)
            at[i] = plain_new(&o, sites[i], roles[i]);
        for (int head = 0; head < HEADS; head++)
            for (int t = 0; t < SEQ; t++)
                plain_row(&o, &s, head, t, at);
        assert_all_same(y, want, SEQ * COLS);
        const struct plain *first = at;
        for (int i = 0; i < 4; i++)
            assert_counts(&o, &at[i]);
        for (int i = 0; i < 4 && first->first.kind == NH_NO_OFFENCE; i++)
            first = &at[i];
        assert_first(&o, first->first.kind, first->site, first->first.index, first->first.value);
        op_free(&o);
    }
}
END_TEST

/** dv of key j sums p dout over the rows: with one row of ones that is its probability. The derivatives take the rounded ones. */
START_TEST(derivatives_take_other_probabilities)
{
    static double dy[MOST], forward[MOST], dv[MOST];
    enum { T = 300 };
    struct nh_config c = narrow("fp32", "bf16");
    struct shape s = {.seq = T, .heads = 1, .dim = 2, .alpha = 3};
    uint64_t state = 41;
    for (int i = 0; i < 2 * T; i++) {
        q[i] = (op_draw(&state, 2001) - 1000) * 2e-3, k[i] = (op_draw(&state, 2001) - 1000) * 2e-3;
        v[i] = 0, dy[i] = i == 2 * T - 2;
    }
    struct op_graph o = attend_with(&c, &s, true);
    o.core->backward(o.x, 1, dy);
    o.core->read_param_grad(o.x, 2, dv);
    op_free(&o);
    for (int j = 0; j < T; j++) { /* the same from the forward pass, a key at a time */
        fill(v, 2 * T, 0), v[2 * j] = 1;
        o = attend(&c, &s);
        forward[j] = y[2 * T - 2];
        op_free(&o);
    }
    struct nh_fmt bf16;
    ck_assert_int_eq(nh_fmt_parse(&bf16, "bf16"), NH_OK);
    for (int j = 0; j < T; j++) {
        assert_same(dv[2 * j], forward[j]);
        assert_same(forward[j], nh_round(&bf16, forward[j]));
    }
}
END_TEST

/** A softmax in fp32 or wider is not slowed down, nor moved by a bit. */
START_TEST(wide_softmax_is_taken_for_a_narrow_one)
{
    static const struct {
        const char *dtype, *softmax;
        bool narrow;
    } cases[] = {{"fp16", "fp32", false}, {"fp64", "fp64", false}, {"fp64", "fp32", false}, {"fp16", "tf32", true},
                 {"fp64", "e11m22", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nh_config c = narrow(cases[i].dtype, cases[i].softmax);
        struct nh_graph *g = nh_graph_new(&c, 1, 1, 1);
        ck_assert_int_eq(g->softmax_narrow, cases[i].narrow);
        nh_graph_free(g);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_softmax");
    TCase *tc = tcase_create("ops_softmax");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, relaxed_scores_give_other_bits_than_plain_ones, 0, 6);
    tcase_add_test(tc, relaxed_scores_leave_the_format_too_early);
    tcase_add_test(tc, small_scores_lose_digits_where_they_are_relaxed);
    tcase_add_loop_test(tc, masks_and_rows_without_a_key, 0, 6);
    tcase_add_test(tc, sum_of_exponentials_stalls_or_runs_over);
    tcase_add_test(tc, dead_row_counted_twice);
    tcase_add_loop_test(tc, narrow_softmax_agrees_with_the_plain_reference, 0, N_FORMATS);
    tcase_add_test(tc, derivatives_take_other_probabilities);
    tcase_add_test(tc, wide_softmax_is_taken_for_a_narrow_one);
    return run_suite(suite, tc);
}
