// SPDX-License-Identifier: GPL-3.0-or-later
/** Cross-entropy over a vocabulary of several blocks, as one operation and in parts, against a plain sum over all logits. */
#include "tests/unit/op_graph.h"

enum { T = 6, MOST = 3 * NH_VOCAB_BLOCK };

/* Ends of blocks, and sizes of the vocabulary beside them. */
static const int sizes[] = {NH_VOCAB_BLOCK - 1, NH_VOCAB_BLOCK, NH_VOCAB_BLOCK + 1, 2 * NH_VOCAB_BLOCK + 5, MOST};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static double z[T * MOST], dz[T * MOST];
static int tokens[T];

/** Logits whose largest lies in another block in each row; the target of a row is the token of the next. */
static void draw(int vocab)
{
    uint64_t state = 5;
    const int targets[T] = {0, 0, vocab - 1, NH_VOCAB_BLOCK - 1, NH_VOCAB_BLOCK, vocab / 2};
    for (int t = 0; t < T; t++) {
        tokens[t] = targets[t] < vocab ? targets[t] : vocab - 2;
        for (int j = 0; j < vocab; j++)
            z[t * vocab + j] = (op_draw(&state, 161) - 80) * 0.0625;
        z[t * vocab + t * (vocab - 1) / (T - 1)] = 15;
    }
}

/** log sum e^z of a row. */
static double plain_log_z(const double *row, int vocab)
{
    double sum = 0;
    for (int j = 0; j < vocab; j++)
        sum += exp(row[j]);
    return log(sum);
}

/** The graph of a cross-entropy whose logits, `block` of them to an operation, are written from outside. */
static struct op_graph loss_of(const struct nh_config *c, int vocab, int block, bool gradients)
{
    struct op_graph o = {.g = nh_graph_new(c, 1, T, vocab)};
    nh_val parts[8], before = -1;
    int n = 0;
    for (int c0 = 0; c0 < vocab; c0 += block) {
        int cols = vocab - c0 < block ? vocab - c0 : block;
        bool part = c0 + cols < vocab;
        nh_val in = nh_graph_value(o.g, cols, op_site(&o, NH_SITE_LOGITS, NH_ROLE_LOGITS), NH_ROLE_LOGITS);
        struct nh_rec *r = op_rec(&o, NH_OP_XENT, part ? NH_LOSS_PART : 1, NH_SITE_LOSS, NH_ROLE_LOSS);
        r->in[0] = parts[n++] = in, r->in[1] = before, r->u.xent.z_loss = c->z_loss, r->u.xent.col0 = c0, r->u.xent.part = part;
        before = o.g->nll = r->out;
    }
    o.g->values[parts[0]].watched = true, o.g->head_rec = 0;
    op_close_with(&o, 1, gradients);
    o.core->set_tokens(o.x, tokens);
    for (int i = 0; i < n; i++) {
        int cols = op_cols(&o, parts[i]);
        double *some = malloc((size_t)(T * cols) * sizeof *some);
        for (int t = 0; t < T; t++)
            memcpy(some + t * cols, z + t * vocab + i * block, (size_t)cols * sizeof *some);
        o.core->write(o.x, parts[i], some);
        free(some);
    }
    return o;
}

/** Rounding of a sum of so many exponentials; the loss itself is stored in the type. */
static double tolerance(const struct op_graph *o)
{
    return o->core->bits == 64 ? 1e-11 : 2e-5;
}

static void assert_losses(const struct op_graph *o, int vocab, double factor, double mean)
{
    double losses[T], sum = 0;
    op_read(o, o->g->nll, losses);
    for (int t = 0; t < T - 1; t++) {
        double log_z = plain_log_z(z + t * vocab, vocab), want = log_z - z[t * vocab + tokens[t + 1]] + factor * log_z * log_z;
        ck_assert_msg(fabs(losses[t] - want) <= tolerance(o), "row %d of %d logits: %.12g, not %.12g", t, vocab, losses[t], want);
        sum += want;
    }
    ck_assert_double_eq(losses[T - 1], 0); /* the last token of a sequence has no target */
    ck_assert_double_le(fabs(mean - sum / (T - 1)), tolerance(o));
}

START_TEST(loss_is_that_of_all_blocks)
{
    for (int k = 0; k < N_SIZES; k++) {
        struct nh_config c = op_config(_i ? "fp64" : "fp32");
        c.z_loss = 0.01;
        draw(sizes[k]);
        struct op_graph o = loss_of(&c, sizes[k], sizes[k], false);
        assert_losses(&o, sizes[k], c.z_loss, o.core->forward(o.x));
        op_free(&o);
    }
}
END_TEST

START_TEST(loss_in_parts_is_that_of_the_whole)
{
    for (int k = 0; k < N_SIZES; k++) {
        struct nh_config c = op_config(_i ? "fp64" : "fp32");
        c.z_loss = 0.01;
        draw(sizes[k]);
        struct op_graph o = loss_of(&c, sizes[k], NH_VOCAB_BLOCK, false);
        assert_losses(&o, sizes[k], c.z_loss, o.core->forward(o.x));
        op_free(&o);
    }
}
END_TEST

START_TEST(gradient_of_the_loss_reaches_all_blocks)
{
    for (int k = 0; k < N_SIZES; k++) {
        int vocab = sizes[k];
        struct nh_config c = op_config(_i ? "fp64" : "fp32");
        c.z_loss = 0.01;
        draw(vocab);
        struct op_graph o = loss_of(&c, vocab, vocab, true);
        o.core->forward(o.x);
        o.core->backward(o.x, 1, NULL);
        o.core->read_grad(o.x, o.g->recs[0].in[0], dz);
        for (int t = 0; t < T; t++) {
            double log_z = plain_log_z(z + t * vocab, vocab);
            for (int j = 0; j < vocab; j++) {
                double p = (1 + 2 * c.z_loss * log_z) * exp(z[t * vocab + j] - log_z) - (t < T - 1 && j == tokens[t + 1]);
                double want = t < T - 1 ? p / (T - 1) : 0;
                ck_assert_msg(fabs(dz[t * vocab + j] - want) <= tolerance(&o), "row %d, logit %d of %d: %g, not %g", t, j, vocab,
                              dz[t * vocab + j], want);
            }
        }
        op_free(&o);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("losses");
    TCase *t = tcase_create("losses");
    tcase_set_timeout(t, 0);
    tcase_add_loop_test(t, loss_is_that_of_all_blocks, 0, 2);
    tcase_add_loop_test(t, loss_in_parts_is_that_of_the_whole, 0, 2);
    tcase_add_loop_test(t, gradient_of_the_loss_reaches_all_blocks, 0, 2);
    return run_suite(s, t);
}
