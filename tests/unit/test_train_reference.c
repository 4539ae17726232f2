// SPDX-License-Identifier: GPL-3.0-or-later
/** Training against the reference, step by step; on one thread and on two; in one batch and in several. */
#include "tests/unit/reference_model.h"
#include "tests/unit/trained.h"
#include "tests/suite.h"

#include <check.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { STEPS = 20, N_CASES = 36 };

static const char *const optimizers[] = {"sgd --momentum 0.9", "adamw", "muon --momentum 0.9"};

/** Case i of the optimizers x layouts x forms of the FFN x batches a step; all else goes round. */
static void case_words(char words[512], int i, const char *dtype, double lr)
{
    static const char *const forms[] = {"gelu", "swiglu"}, *const norms[] = {"rms", "layer"};
    static const char *const schedules[] = {"constant", "linear", "cosine", "wsd"};
    static const char *const clips[] = {"off", "0.5", "2"}, *const decays[] = {"0", "0.1"};
    static const int warmups[] = {0, 5, 1};
    snprintf(
        words, 512,
        "--layout %s --ffn %s --norm %s --dtype %s --pos learned --depth 2 --width 12 --heads 3 --ffn-mult 2 --batch 2 "
        "--seq 7 --vocab 11 --steps %d --optimizer %s --grad-accum %d --schedule %s --warmup %d --clip %s "
        "--weight-decay %s "
        "--lr %g",
        ref_layouts[i / 3 % 3], forms[i / 9 % 2], norms[i / 2 % 2], dtype, STEPS, optimizers[i % 3], i / 18 ? 3 : 1,
        schedules[i % 4], warmups[i / 4 % 3], clips[i / 2 % 3], decays[i / 3 % 2], lr);
}

static struct ref_options ref_options_of(const struct nh_training *t)
{
    static const enum ref_optimizer by[] = {
        [NH_OPTIMIZER_SGD] = REF_SGD, [NH_OPTIMIZER_ADAMW] = REF_ADAMW, [NH_OPTIMIZER_MUON] = REF_MUON};
    static const enum ref_schedule along[] = {[NH_SCHEDULE_CONSTANT] = REF_CONSTANT,
                                              [NH_SCHEDULE_LINEAR] = REF_LINEAR,
                                              [NH_SCHEDULE_COSINE] = REF_COSINE,
                                              [NH_SCHEDULE_WSD] = REF_WSD};
    return (struct ref_options){.optimizer = by[t->optimizer],
                                .schedule = along[t->schedule],
                                .lr = t->lr,
                                .weight_decay = t->weight_decay,
                                .momentum = t->momentum,
                                .beta1 = t->beta1,
                                .beta2 = t->beta2,
                                .adam_eps = t->adam_eps,
                                .clip = t->clip,
                                .warmup = t->warmup,
                                .steps = t->steps};
}

/** The reference takes the same step, on the same tokens. */
static double reference_step(struct reference *r, const struct trained *x, const struct ref_options *o, int step)
{
    int n = x->config.train.grad_accum;
    size_t size = (size_t)x->config.batch * (size_t)x->config.seq;
    int *tokens = zeros((size_t)n * size, sizeof *tokens);
    for (int i = 0; i < n; i++)
        must(nh_data_batch(x->data, (uint64_t)(step * n + i), tokens + (size_t)i * size));
    double loss = ref_step(r, tokens, n, step, o);
    free(tokens);
    return loss;
}

static double distance(const double *a, const double *b, size_t n)
{
    double off = 0;
    for (size_t i = 0; i < n; i++)
        off = fmax(off, fabs(a[i] - b[i]));
    return off;
}

START_TEST(steps_of_the_reference)
{
    struct trained x;
    char words[512];
    case_words(words, _i, "fp64", 0.01);
    trained_begin(&x, words);
    struct reference *r = reference_of(&x.config, &x.model);
    struct ref_options o = ref_options_of(&x.config.train);
    for (int step = 0; step < STEPS; step++) {
        struct nh_train_step row = trained_step(&x);
        double loss = reference_step(r, &x, &o, step);
        ck_assert_double_eq(row.lr, ref_rate(&o, step));
        ck_assert_msg(fabs(row.loss - loss) < 1e-12, "step %d: loss %.17g, not %.17g", step, row.loss, loss);
        ck_assert_msg(fabs(row.grad_norm - r->grad_norm) < 1e-11, "step %d: norm %.17g, not %.17g", step, row.grad_norm,
                      r->grad_norm);
        ck_assert(!row.skipped && row.loss_scale == 1 && row.changed > 0.5 && row.overflow_fwd + row.overflow_bwd == 0);
    }
    for (int p = 0; p < x.model.graph->n_params; p++) {
        double *w = param_of(&x.model, p),
               d = distance(w, ref_param_of(r, x.model.graph, p)->w, param_size(x.model.graph, p));
        ck_assert_msg(d < 1e-11, "%s: %g", x.model.graph->params[p].name, d);
        free(w);
    }
    ck_assert_int_eq(x.trainer.applied, STEPS);
    ref_destroy(r);
    trained_end(&x);
}
END_TEST

/** AdamW divides a gradient that is nothing but rounding by itself, so that the rate bounds how far fp32 goes astray.
 */
START_TEST(losses_of_the_reference_in_fp32)
{
    struct trained x, wide;
    char words[512];
    case_words(words, _i, "fp64", 0.002);
    trained_begin(&wide, words);
    struct reference *r = reference_of(&wide.config, &wide.model);
    trained_end(&wide);
    case_words(words, _i, "fp32", 0.002);
    trained_begin(&x, words);
    struct ref_options o = ref_options_of(&x.config.train);
    for (int step = 0; step < STEPS; step++) {
        double loss = trained_step(&x).loss, d = fabs(loss - reference_step(r, &x, &o, step));
        ck_assert_msg(d < 1e-5, "step %d: loss %g is off by %g", step, loss, d);
    }
    ref_destroy(r);
    trained_end(&x);
}
END_TEST

/** Large enough for several blocks of rows and, in the tables, for several parts of a parameter. */
START_TEST(threads_move_bits)
{
    static const char *const dtypes[] = {"fp32", "fp16", "fp64"};
    struct trained x[2];
    for (int i = 0; i < 2; i++) {
        char words[512];
        snprintf(words, sizeof words,
                 "--layout sandwich --dtype %s --depth 2 --width 64 --heads 2 --batch 4 --seq 16 --vocab 1200 --steps "
                 "4 --optimizer %s "
                 "--weight-decay 0.1 --grad-accum 2 --threads %d",
                 dtypes[_i / 3], optimizers[_i % 3], i + 1);
        trained_begin(&x[i], words);
    }
    for (int step = 0; step < 4; step++) {
        struct nh_train_step a = trained_step(&x[0]), b = trained_step(&x[1]);
        ck_assert_double_eq(a.loss, b.loss);
        ck_assert_double_eq(a.grad_norm, b.grad_norm);
        ck_assert_double_eq(a.changed, b.changed);
    }
    ck_assert(same_weights(&x[0].model, &x[1].model));
    trained_end(&x[0]), trained_end(&x[1]);
}
END_TEST

/** Two batches of 2 sequences a step, or one of 4: the same sequences. */
START_TEST(batches_of_a_step)
{
    static const char *const sizes[] = {"--batch 4", "--batch 2 --grad-accum 2", "--batch 1 --grad-accum 4"};
    struct trained x[COUNT(sizes)];
    for (int i = 0; i < COUNT(sizes); i++) {
        char words[512];
        snprintf(words, sizeof words,
                 "--dtype fp64 --depth 2 --width 16 --heads 2 --seq 8 --steps 10 --optimizer %s %s", optimizers[_i],
                 sizes[i]);
        trained_begin(&x[i], words);
    }
    for (int step = 0; step < 10; step++) {
        struct nh_train_step whole = trained_step(&x[0]);
        for (int i = 1; i < COUNT(sizes); i++) {
            struct nh_train_step parts = trained_step(&x[i]);
            ck_assert_double_eq_tol(parts.loss, whole.loss, 1e-12);
            ck_assert_double_eq_tol(parts.grad_norm, whole.grad_norm, 1e-12);
        }
    }
    for (int i = 0; i < COUNT(sizes); i++)
        trained_end(&x[i]);
}
END_TEST

/** Newton-Schulz brings all singular values near 1: the first step of Muon has norm 0.2 lr sqrt(larger side) times
 * about the root of the smaller side, for queries, keys, values, gate and up each by itself, whatever their sizes. */
START_TEST(parts_of_a_matrix)
{
    struct trained x;
    trained_begin(&x, "--dtype fp64 --depth 1 --width 24 --heads 6 --kv-heads 2 --ffn swiglu --ffn-mult 1.5 --batch 16 "
                      "--seq 16 --vocab 64 "
                      "--steps 1 --optimizer muon --lr 0.5");
    const struct nh_graph *g = x.model.graph;
    double *before[32];
    ck_assert_int_le(g->n_params, COUNT(before));
    for (int p = 0; p < g->n_params; p++)
        before[p] = param_of(&x.model, p);
    trained_step(&x);
    int n_parts = 0;
    for (int p = 0; p < g->n_params; p++) {
        const struct nh_param *q = &g->params[p];
        double *after = param_of(&x.model, p);
        bool hidden = q->rows > 1 && q->layer == 1;
        for (int i = 0, row = 0; i < q->n_parts && hidden; row += q->part[i++].rows, n_parts++) {
            int small = q->part[i].rows < q->cols ? q->part[i].rows : q->cols,
                large = q->part[i].rows + q->cols - small;
            double sum = 0;
            for (int k = row * q->cols; k < (row + q->part[i].rows) * q->cols; k++)
                sum += (after[k] - before[p][k]) * (after[k] - before[p][k]);
            double ratio = sum / (0.01 * large * small);
            ck_assert_msg(ratio > 0.6 && ratio < 1.3, "%s, part %d: %g", q->name, i, ratio);
        }
        free(after), free(before[p]);
    }
    ck_assert_int_eq(n_parts, 3 + 1 + 2 + 1);
    trained_end(&x);
}
END_TEST

int main(void)
{
    keep_memory();
    Suite *suite = suite_create("train_reference");
    TCase *tc = tcase_create("train_reference");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, steps_of_the_reference, 0, N_CASES);
    tcase_add_loop_test(tc, losses_of_the_reference_in_fp32, 0, N_CASES);
    tcase_add_test(tc, parts_of_a_matrix);
    tcase_add_loop_test(tc, threads_move_bits, 0, 9);
    tcase_add_loop_test(tc, batches_of_a_step, 0, 3);
    return run_suite(suite, tc);
}
