// SPDX-License-Identifier: GPL-3.0-or-later
/** Weights of more than one piece: which number of them is the first that overflowed does not depend on which thread
 * comes first; and products of which a pass holds a few rows of the matrix at a time. */
#include "tests/unit/op_graph.h"

#include <sched.h>
#include <time.h>

/* Weights are read and moved in pieces of 65536 numbers; two threads have eight of these, four each. */
enum { PIECE = 1 << 16, IN = 256, OUT = 8 * PIECE / IN };

/** A matrix of which three numbers do not fit into fp16, two of them in one piece; piece `late` is not read before piece `early`. */
struct source {
    int late, early;
    bool seen[8];
};

static const size_t too_large[] = {9, 4000, 4 * PIECE + 17};

/** Waits for the other thread: ten seconds, for a machine that has only one. */
static void wait_for(const bool *seen)
{
    const time_t end = time(NULL) + 10;
    bool there = false;
    while (!there && time(NULL) < end) {
#pragma omp atomic read
        there = *seen;
        sched_yield();
    }
}

static void read_numbers(void *arg, const struct nh_param *param, size_t first, size_t n, int bits, void *out)
{
    struct source *s = arg;
    float *to = out;
    ck_assert_int_eq(bits, 32);
    for (size_t i = 0; i < n; i++)
        to[i] = 1;
    if (param->cols != IN || param->rows != OUT)
        return;
    int piece = (int)(first / PIECE);
    if (piece == s->late)
        wait_for(&s->seen[s->early]);
#pragma omp atomic write
    s->seen[piece] = true;
    for (size_t k = 0; k < sizeof too_large / sizeof *too_large; k++)
        if (too_large[k] >= first && too_large[k] < first + n)
            to[too_large[k] - first] = (float)(70000 + k);
}

/** One product with that matrix; its numbers have a site of their own. */
static struct op_graph product(const struct nh_config *c, int *weight)
{
    struct op_graph o = op_new(c, 1, 1);
    nh_val in = op_input(&o, IN, NH_ROLE_MATMUL_IN);
    int site = nh_graph_site(o.g, 0, NH_SUB_EMBED, NH_SITE_WEIGHT, NH_ROLE_WEIGHT);
    *weight = nh_graph_param(o.g, &(struct nh_param){.rows = OUT, .cols = IN, .role = NH_ROLE_WEIGHT, .site = site, .weight_site = site});
    op_linear(&o, in, *weight, -1, NH_SITE_QKV);
    return o;
}

START_TEST(first_overflow_of_streamed_weights_is_the_one_of_the_least_index)
{
    static const int order[][2] = {{0, 5}, {4, 1}}; /* behind the overflow of the other thread, and before it */
    struct nh_config c = op_config("fp16");
    int weight;
    c.streamed = true;
    struct source s = {.late = order[_i][0], .early = order[_i][1]};
    const struct nh_weight_source source = {.arg = &s, .read = read_numbers};
    struct op_graph o = product(&c, &weight);
    op_close_with(&o, 2, false);
    o.core->forward_streamed(o.x, &source, NULL, NULL);
    assert_first(&o, NH_OVERFLOW, NH_SITE_WEIGHT, too_large[0], 70000);
    assert_count(&o, NH_SITE_WEIGHT, overflow, 3);
    assert_count(&o, NH_SITE_WEIGHT, total, (uint64_t)OUT * IN);
    op_free(&o);
}
END_TEST

START_TEST(first_overflow_of_moved_weights_is_the_one_of_the_least_index)
{
    struct nh_config c = op_config("fp16");
    int weight;
    c.train.steps = 1, c.train.optimizer = NH_OPTIMIZER_SGD;
    for (int time = 0; time < 8; time++) { /* which thread comes first is up to the machine */
        struct op_graph o = product(&c, &weight);
        o.g->exit_value = o.g->recs[1].out, o.g->head_rec = o.g->n_recs;
        op_close_with(&o, 2, true);
        op_set_all(&o, 0, 0);
        op_set_all(&o, weight, 1);
        op_run(&o);
        double *dy = calloc(OUT, sizeof *dy);
        o.core->backward(o.x, 1, dy);
        float *masters = o.core->state(o.x, weight, NH_STATE_MASTER);
        const size_t at[] = {4 * PIECE - 1, 4 * PIECE, 8 * PIECE - 1}; /* the last of one thread, the first of the other */
        for (int k = 0; k < 3; k++)
            masters[at[k]] = (float)(70000 + k);
        const struct nh_update u = {.optimizer = NH_OPTIMIZER_SGD, .factor = 1, .lr = 1, .step = 1};
        o.core->update(o.x, &u);
        const struct nh_first first = o.core->first(o.x, NH_UPDATE);
        const int site = o.g->params[weight].weight_site;
        ck_assert(first.kind == NH_OVERFLOW && first.site == site && first.value == 70000);
        ck_assert_uint_eq(first.index, at[0]);
        ck_assert_uint_eq(o.core->counts(o.x)[site * NH_DIRECTIONS + NH_UPDATE].overflow, 3);
        op_run(&o); /* counted once: the next pass only passes them on */
        assert_count(&o, NH_SITE_WEIGHT, overflow, 0);
        assert_count(&o, NH_SITE_WEIGHT, propagated, 3);
        free(dy);
        op_free(&o);
    }
}
END_TEST

/* ---- products of some rows of the matrix at a time ---- */

enum { ROWS = 3, COLS = 7, WIDE = 23, PART = 9 };

/** Whole numbers, so that sums are exact; each parameter has its own. */
static double number(const struct nh_param *p, size_t i)
{
    return (double)((i * 7 + (size_t)p->rows * 3) % 11) - 5;
}

static void read_pattern(void *arg, const struct nh_param *param, size_t first, size_t n, int bits, void *out)
{
    (void)arg;
    for (size_t i = 0; i < n; i++) {
        if (bits == 64)
            ((double *)out)[i] = number(param, first + i);
        else
            ((float *)out)[i] = (float)number(param, first + i);
    }
}

START_TEST(parts_of_a_product_have_their_rows_and_their_bias)
{
    struct nh_config c = op_config(_i ? "fp64" : "fp32");
    const struct nh_weight_source source = {.read = read_pattern};
    c.streamed = true;
    struct op_graph o = op_new(&c, 1, ROWS);
    nh_val in = op_input(&o, COLS, NH_ROLE_MATMUL_IN);
    int weight = op_param(&o, WIDE, COLS, NH_ROLE_WEIGHT), bias = op_param(&o, 1, WIDE, NH_ROLE_WEIGHT);
    nh_val out = nh_graph_value(o.g, WIDE, op_site(&o, NH_SITE_QKV, NH_ROLE_MATMUL_OUT), NH_ROLE_MATMUL_OUT);
    for (int row0 = 0; row0 < WIDE; row0 += PART) {
        struct nh_rec *r = nh_graph_rec(o.g, NH_OP_LINEAR, nh_graph_view(o.g, out, row0, WIDE - row0 < PART ? WIDE - row0 : PART));
        r->in[0] = in, r->par[0] = weight, r->par[1] = bias, r->u.linear.row0 = row0;
    }
    op_close_with(&o, 2, false);
    o.core->forward_streamed(o.x, &source, NULL, NULL);
    double y[ROWS * WIDE];
    op_read(&o, out, y);
    const struct nh_param *table = &o.g->params[0], *w = &o.g->params[weight], *b = &o.g->params[bias];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDE; j++) {
            double sum = number(b, (size_t)j);
            for (int k = 0; k < COLS; k++)
                sum += number(table, (size_t)(i * COLS + k)) * number(w, (size_t)(j * COLS + k));
            ck_assert_msg(y[i * WIDE + j] == sum, "row %d, column %d is %g, not %g", i, j, y[i * WIDE + j], sum);
        }
    assert_count(&o, NH_SITE_QKV, total, ROWS * WIDE);
    op_free(&o);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("weights");
    TCase *t = tcase_create("weights");
    tcase_set_timeout(t, 0);
    tcase_add_loop_test(t, first_overflow_of_streamed_weights_is_the_one_of_the_least_index, 0, 2);
    tcase_add_test(t, first_overflow_of_moved_weights_is_the_one_of_the_least_index);
    tcase_add_loop_test(t, parts_of_a_product_have_their_rows_and_their_bias, 0, 2);
    return run_suite(s, t);
}
