// SPDX-License-Identifier: GPL-3.0-or-later
/** Causal attention against a plain unfused reference: bits, counters and first offender. */
#include "tests/unit/attention.h"

/* ---- the plain reference: scores, softmax and sums one after the other, no blocks ---- */

struct sites {
    struct plain q_scale, qk, scores, probs, attn_v;
};

static struct sites sites_of(const struct op_graph *o)
{
    return (struct sites){
        plain_new(o, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION), plain_new(o, NH_SITE_QK, NH_ROLE_MATMUL_OUT),
        plain_new(o, NH_SITE_SCORES, NH_ROLE_MATMUL_OUT),  plain_new(o, NH_SITE_PROBS, NH_ROLE_MATMUL_IN),
        plain_new(o, NH_SITE_ATTN_V, NH_ROLE_MATMUL_OUT),
    };
}

/** True where rounding p could go either way, given that exp and the sum of a row carry errors of the executor's type.
 */
static bool near_a_tie(const struct op_graph *o, const struct nh_fmt *f, double p)
{
    double margin = o->core->bits == 32 ? 4e-6 : 1e-13;
    return !isnan(p) && nh_round(f, p * (1 - margin)) != nh_round(f, p * (1 + margin));
}

/** One row of one head. Returns false where a probability lies near a tie; a row of equal ones never does. */
static bool plain_row(const struct op_graph *o, const struct shape *s, int batch, int head, int t, struct sites *at)
{
    int from = s->window && t - s->window + 1 > 0 ? t - s->window + 1 : 0, n = t + 1 - from,
        kv = head / (s->heads / s->kv_heads);
    int q_cols = s->heads * s->dim, kv_cols = s->kv_heads * s->dim, row = batch * s->seq + t;
    size_t q_at = (size_t)(row * q_cols + head * s->dim),
           kv_at = (size_t)((batch * s->seq + from) * kv_cols + kv * s->dim);
    uint64_t place = (uint64_t)(((batch * s->heads + head) * s->seq + t) * s->seq + from);
    double scale = in_type(o, 1 / sqrt(s->dim)), query[8], p[SEQ], score_of[SEQ], top = -HUGE_VAL, sum = 0;
    unsigned seen = 0;
    bool all_down = true, safe = true;

    for (int i = 0; i < s->dim; i++) {
        double x = q[q_at + (size_t)i];
        query[i] =
            s->after ? x : plain_store(&at->q_scale, in_type(o, x * scale), flag_of(x), false, q_at + (uint64_t)i);
    }
    for (int j = 0; j < n; j++) {
        unsigned inputs;
        bool ran_over;
        double score = plain_dot(o, s->dim, query, 1, k + kv_at + (size_t)(j * kv_cols), 1, &inputs, &ran_over);
        if (s->after) {
            double raw = plain_store(&at->qk, score, inputs, ran_over, place + (uint64_t)j);
            score = in_type(o, raw * scale);
            inputs = flag_of(raw), ran_over = false;
        }
        score_of[j] = p[j] = plain_store(&at->scores, score, inputs, ran_over, place + (uint64_t)j);
        seen |= flag_of(p[j]);
        top = p[j] > top ? p[j] : top;
        all_down &= isinf(p[j]) && p[j] < 0;
    }
    bool equal = true;
    for (int j = 1; j < n; j++)
        equal &= p[j] == p[0];
    for (int j = 0; j < n; j++) {
        p[j] = all_down ? 0 : in_type(o, exp(p[j] - top));
        sum += p[j];
    }
    unsigned brought = 0;
    for (int j = 0; j < n; j++) {
        double exact = all_down ? 0 : p[j] / sum;
        safe &= equal || !near_a_tie(o, &at->probs.fmt, exact);
        plain_lost(&at->probs, score_of[j], top, in_type(o, exact));
        p[j] = plain_store(&at->probs, in_type(o, exact), seen, false, place + (uint64_t)j);
        brought |= flag_of(p[j]);
    }
    for (int i = 0; i < s->dim; i++) {
        unsigned inputs;
        bool ran_over;
        double out = plain_dot(o, n, p, 1, v + kv_at + (size_t)i, kv_cols, &inputs, &ran_over);
        want[q_at + (size_t)i] = plain_store(&at->attn_v, out, inputs | brought, ran_over, q_at + (uint64_t)i);
    }
    return safe;
}

static void plain_attention(const struct op_graph *o, const struct shape *s, struct sites *at)
{
    for (int batch = 0; batch < s->batch; batch++)
        for (int head = 0; head < s->heads; head++)
            for (int t = 0; t < s->seq; t++)
                ck_assert(plain_row(o, s, batch, head, t, at));
}

/** Queries whose row has a probability near a tie become zero: equal probabilities, exact in every order of summing. */
static void avoid_ties(const struct op_graph *o, const struct shape *s)
{
    struct sites unused = sites_of(o);
    for (int row = 0; row < s->batch * s->seq; row++)
        for (int head = 0; head < s->heads; head++)
            if (!plain_row(o, s, row / s->seq, head, row % s->seq, &unused))
                fill(q + (row * s->heads + head) * s->dim, s->dim, 0);
}

enum special { NONE, LARGE, BAD_VALUES, BAD_QUERIES_AND_KEYS, SPECIALS };

/** Numbers -1, 0 and 1, so that sums are exact in fp32; for the probabilities at hand these are sums of multiples of
 * 2^-24 below 1. Large queries bring scores beyond the format; two terms at most, so that no partial sum is. */
static void draw_inputs(const struct shape *s, const struct nh_fmt *f, enum special special, uint64_t *state)
{
    int rows = s->batch * s->seq, q_cols = s->heads * s->dim, kv_cols = s->kv_heads * s->dim;
    for (int i = 0; i < rows * q_cols; i++)
        q[i] = op_draw(state, 3) - 1;
    for (int i = 0; i < rows * kv_cols; i++) {
        k[i] = op_draw(state, 3) - 1;
        v[i] = op_draw(state, 3) - 1;
    }
    double large = ldexp(1, (int)floor(log2(f->max)));
    for (int row = 2; special == LARGE && row < rows; row += 7)
        for (int i = 0; i < q_cols; i++)
            q[row * q_cols + i] = i % s->dim > 1 ? 0 : op_draw(state, 2) ? large : -large;
    for (int i = 0; i < 4 && special > LARGE; i++) {
        double bad = i == 0 ? HUGE_VAL : i == 1 ? -HUGE_VAL : nan("");
        if (special == BAD_VALUES) {
            v[op_draw(state, rows * kv_cols)] = bad;
        } else {
            q[op_draw(state, rows * q_cols)] = bad;
            k[op_draw(state, rows * kv_cols)] = bad;
        }
    }
}

static void compare(const struct nh_config *c, const struct shape *s, int threads)
{
    /* the formats are what the reference needs of a graph before there are inputs */
    struct op_graph formats = op_new(c, 1, 1);
    formats.core = nh_core_for(formats.g);
    avoid_ties(&formats, s);
    struct sites at = sites_of(&formats);
    plain_attention(&formats, s, &at);
    nh_graph_free(formats.g);

    struct op_graph o = attend_with(c, s, threads, false);
    assert_all_same(y, want, (size_t)(s->batch * s->seq * s->heads * s->dim));
    const struct plain *sites[] = {&at.q_scale, &at.qk, &at.scores, &at.probs, &at.attn_v};
    const struct plain *first = sites[0];
    for (int i = 0; i < 5; i++)
        if (i != (s->after ? 0 : 1)) /* that site there is not */
            assert_counts(&o, sites[i]);
    for (int i = 0; i < 5 && first->first.kind == NH_NO_OFFENCE; i++)
        first = sites[i];
    assert_first(&o, first->first.kind, first->site, first->first.index, first->first.value);
    op_free(&o);
}

static const char *const reference_formats[] = {"fp16", "bf16", "e4m3", "fp8-e4m3", "fp8-e5m2", "e5m12"};
enum { N_REFERENCE = sizeof reference_formats / sizeof *reference_formats };

START_TEST(attention_agrees_with_the_plain_reference)
{
    static const struct shape shapes[] = {
        {.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .dim = 8},
        {.batch = 2, .seq = SEQ, .heads = 4, .kv_heads = 2, .dim = 8},
        {.batch = 2, .seq = SEQ, .heads = 2, .kv_heads = 1, .dim = 4, .window = 3},
        {.batch = 1, .seq = SEQ, .heads = 2, .kv_heads = 2, .dim = 8, .window = 66},
    };
    uint64_t state = 17;
    for (int bits = 0; bits < 4 * 4; bits++)
        for (enum special special = NONE; special < SPECIALS; special++) {
            struct nh_config c = op_config(reference_formats[_i]);
            struct shape s = shapes[bits / 4];
            c.accum = bits & 1 ? NH_WIDE_DTYPE : NH_WIDE_FP32;
            s.after = bits & 2;
            draw_inputs(&s, &c.dtype, special, &state);
            if (!c.dtype.has_inf) /* what does not fit is NaN from the start */
                for (int i = 0; i < MOST; i++)
                    q[i] = nh_round(&c.dtype, q[i]), k[i] = nh_round(&c.dtype, k[i]), v[i] = nh_round(&c.dtype, v[i]);
            compare(&c, &s, 1 + bits % 2);
        }
}
END_TEST

START_TEST(attention_in_wide_formats_agrees_but_for_the_order_of_sums)
{
    static const struct {
        const char *dtype;
        double tolerance;
    } cases[] = {{"fp32", 2e-6}, {"fp64", 1e-14}, {"e8m12", 0x1p-11}};
    uint64_t state = 23;
    struct shape s = {.batch = 2, .seq = SEQ, .heads = 4, .kv_heads = 2, .dim = 8};
    for (int bits = 0; bits < 3 * 4; bits++) {
        struct nh_config c = op_config(cases[bits / 4].dtype);
        s.after = bits & 1, s.window = bits & 2 ? 67 : 0;
        for (int i = 0; i < MOST; i++) {
            q[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
            k[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 2e-3);
            v[i] = nh_round(&c.dtype, (op_draw(&state, 2001) - 1000) * 1e-3);
        }
        struct op_graph o = attend_with(&c, &s, 2, false);
        struct sites at = sites_of(&o);
        for (int row = 0; row < s.batch * SEQ; row++)
            for (int head = 0; head < s.heads; head++)
                plain_row(&o, &s, row / SEQ, head, row % SEQ, &at);
        for (int i = 0; i < s.batch * SEQ * s.heads * s.dim; i++)
            ck_assert_double_eq_tol(y[i], want[i], cases[bits / 4].tolerance);
        assert_count(&o, NH_SITE_PROBS, total, visible(&s));
        op_free(&o);
    }
}
END_TEST

/* the reference itself must see what it is there for */
START_TEST(reference_meets_every_kind_of_trouble)
{
    struct nh_config c = op_config("e4m3");
    struct shape s = {.batch = 2, .seq = SEQ, .heads = 4, .kv_heads = 2, .dim = 8, .after = true};
    uint64_t state = 17;
    struct op_graph o = op_new(&c, 1, 1);
    o.core = nh_core_for(o.g);
    draw_inputs(&s, &c.dtype, LARGE, &state);
    avoid_ties(&o, &s);
    struct sites at = sites_of(&o);
    plain_attention(&o, &s, &at);
    nh_graph_free(o.g);
    ck_assert_uint_gt(at.qk.counts.overflow, 0);
    ck_assert_uint_gt(at.scores.counts.propagated, 0);
    ck_assert_uint_gt(at.probs.counts.nan_made, 0);
    ck_assert_uint_gt(at.probs.counts.underflow, 0);
    ck_assert_uint_gt(at.probs.counts.subnormal, 0);
    ck_assert_uint_gt(at.attn_v.counts.propagated, 0);
    int equal = 0, rows = s.batch * s.seq * s.heads;
    for (int row = 0; row < rows; row++) {
        int zeros = 0;
        for (int i = 0; i < s.dim; i++)
            zeros += q[row * s.dim + i] == 0;
        equal += zeros == s.dim;
    }
    ck_assert_int_lt(equal, rows / 2); /* most rows kept their queries */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ops_attention_plain");
    TCase *tc = tcase_create("ops_attention_plain");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, attention_agrees_with_the_plain_reference, 0, N_REFERENCE);
    tcase_add_test(tc, attention_in_wide_formats_agrees_but_for_the_order_of_sums);
    tcase_add_test(tc, reference_meets_every_kind_of_trouble);
    return run_suite(suite, tc);
}
