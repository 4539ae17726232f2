// SPDX-License-Identifier: GPL-3.0-or-later
/** Training in narrow formats: what is swallowed, what is kept, and what a zero gradient does. */
#include "tests/unit/trained.h"
#include "tests/suite.h"

#include <check.h>

#define COUNT(a)                                ((int)(sizeof(a) / sizeof *(a)))
#define assert_near(value, expected, tolerance) ck_assert_double_eq_tol(value, expected, tolerance)

/** The numbers of a state, to be freed. */
static double *state_of(const struct nh_model *m, int param, enum nh_state state)
{
    const void *from = m->core->state(m->exec, param, state);
    size_t n = param_size(m->graph, param);
    double *w = zeros(n, sizeof *w);
    for (size_t i = 0; i < n; i++)
        w[i] = m->core->bits == 64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
    return w;
}

/* ---- rows of the embedding that no batch has ---- */

static const char *const recipes[] = {
    "--optimizer adamw",
    "--optimizer adamw --adam-eps 1e-60", /* nothing in float */
    "--optimizer adamw --roles moment=dtype,master=dtype",
    "--optimizer muon",
    "--optimizer sgd",
    "--optimizer adamw --policy all-half",
};
static const char *const dtypes[] = {"fp16", "bf16", "fp32", "fp64"};

START_TEST(unused_rows_move)
{
    enum { USED = 10, VOCAB = 64 };
    struct trained x;
    char words[256];
    snprintf(words, sizeof words, "--dtype %s --depth 2 --width 16 --heads 2 --vocab %d --steps 20 %s", dtypes[_i % 4],
             VOCAB, recipes[_i / 4]);
    trained_begin(&x, words);
    int embed = param_named(x.model.graph, "embed");
    double *stored = param_of(&x.model, embed), *master = state_of(&x.model, embed, NH_STATE_MASTER);
    size_t first = USED * 16, n = (VOCAB - USED) * 16, moved = 0;
    for (int step = 0; step < 20 && x.trainer.stop == NH_GOES_ON; step++) { /* moments in fp16 do not go well */
        for (int i = 0; i < x.config.batch * x.config.seq; i++)
            x.tokens[i] = (i * i + step) % USED;
        nh_trainer_batch(&x.trainer, x.tokens);
        nh_trainer_update(&x.trainer);
    }
    double *stored_then = param_of(&x.model, embed), *master_then = state_of(&x.model, embed, NH_STATE_MASTER);
    ck_assert_mem_eq(stored_then + first, stored + first, n * sizeof *stored);
    ck_assert_mem_eq(master_then + first, master + first, n * sizeof *master);
    for (size_t i = 0; i < first; i++)
        moved += master_then[i] != master[i];
    ck_assert_uint_gt(moved, first / 4);
    free(stored), free(master), free(stored_then), free(master_then);
    trained_end(&x);
}
END_TEST

/** No token has a next one. */
START_TEST(zero_gradient_moves)
{
    struct trained x, start;
    char words[256];
    snprintf(words, sizeof words, "--dtype %s --depth 2 --width 16 --heads 2 --seq 1 --steps 20 %s", dtypes[_i % 4],
             recipes[_i / 4]);
    trained_begin(&x, words), trained_begin(&start, words);
    for (int step = 0; step < 20; step++) {
        struct nh_train_step row = trained_step(&x);
        ck_assert(row.loss == 0 && row.grad_norm == 0 && row.changed == 0 && !row.skipped);
    }
    ck_assert(same_weights(&x.model, &start.model));
    for (int p = 0; p < x.model.graph->n_params; p++) {
        double *m = state_of(&x.model, p, NH_STATE_MOMENT_1);
        for (size_t i = 0; i < param_size(x.model.graph, p); i++)
            ck_assert_double_eq(m[i], 0);
        free(m);
    }
    trained_end(&x), trained_end(&start);
}
END_TEST

/* ---- updates below half a ulp ---- */

/** 100 steps of 6e-4 down from 1.0 on the gains of the last norm. */
START_TEST(updates_lost)
{
    static const struct {
        const char *words;
        double master, stored; /**< of a gain in the end */
    } cases[] = {
        {"--dtype bf16", 0.94, 0.94140625},
        {"--dtype bf16 --policy bf16-mixed --roles norm-out=dtype", 0.94, 0.94140625},
        {"--dtype bf16 --roles master=dtype", 1, 1}, /* half a ulp below 1 is 1.95e-3 */
        {"--dtype bf16 --policy all-half --roles master=dtype", 1, 1},
        {"--dtype fp16", 0.94, 0.93994140625},
        {"--dtype fp16 --roles master=dtype", 1 - 100 * 0x1p-11, 1 - 100 * 0x1p-11}, /* a ulp each */
        {"--dtype fp32", 0.94, 0.94},
        {"--dtype bf16 --roles norm-out=fp32,master=dtype", 1, 1},
    };
    struct trained x;
    char words[256];
    snprintf(words, sizeof words, "--depth 1 --width 16 --heads 2 --steps 100 %s", cases[_i].words);
    trained_begin(&x, words);
    struct nh_model *m = &x.model;
    int gain = param_named(m->graph, "norm_final.gain"), last = m->graph->exit_value;
    for (int step = 1; step <= 100; step++) {
        /* the gradient of sum y^2/2 with respect to a gain g is y^2/g: AdamW without memory takes its sign */
        m->core->forward(m->exec);
        double *y = value_of(m, last);
        m->core->backward(m->exec, 1, y);
        struct nh_update u = {.optimizer = NH_OPTIMIZER_ADAMW, .factor = 1, .lr = 6e-4, .eps = 1e-12, .step = step};
        m->core->update(m->exec, &u);
        free(y);
    }
    double *stored = param_of(m, gain), *master = state_of(m, gain, NH_STATE_MASTER);
    for (size_t i = 0; i < param_size(m->graph, gain); i++) {
        assert_near(master[i], cases[_i].master, 1e-5);
        assert_near(stored[i], cases[_i].stored, m->graph->fmt[NH_ROLE_NORM_OUT].man_bits == 23 ? 1e-5 : 1e-12);
    }
    free(stored), free(master);
    trained_end(&x);
}
END_TEST

/** Masters are numbers of their own format, whatever carries them, and the stored weights their casts. */
START_TEST(masters_in_another_format)
{
    static const struct {
        const char *dtype, *master;
    } cases[] = {{"fp64", "fp32"}, {"fp64", "bf16"}, {"fp32", "bf16"},
                 {"bf16", "fp16"}, {"fp16", "fp64"}, {"e9m4", "fp32"}};
    for (int o = 0; o < 3; o++) {
        static const char *const optimizers[] = {"adamw", "muon", "sgd"};
        struct trained x;
        char words[256];
        snprintf(words, sizeof words,
                 "--depth 1 --width 16 --heads 2 --steps 5 --dtype %s --roles master=%s --optimizer %s",
                 cases[_i].dtype, cases[_i].master, optimizers[o]);
        trained_begin(&x, words);
        const struct nh_graph *g = x.model.graph;
        ck_assert_str_eq(g->fmt[NH_ROLE_MASTER].name, cases[_i].master);
        for (int step = 0; step < 5; step++)
            trained_step(&x);
        for (int p = 0; p < g->n_params; p++) {
            double *master = state_of(&x.model, p, NH_STATE_MASTER), *stored = param_of(&x.model, p);
            for (size_t i = 0; i < param_size(g, p); i++) {
                ck_assert_double_eq(master[i], nh_round(&g->fmt[NH_ROLE_MASTER], master[i]));
                ck_assert_double_eq(stored[i], nh_round(&g->fmt[g->params[p].role], master[i]));
            }
            free(master), free(stored);
        }
        trained_end(&x);
    }
}
END_TEST

/** A twin in double of a model that has been trained has its masters, and its loss where that is in double too. */
START_TEST(twin_of_a_trained_model)
{
    struct trained x;
    char words[128];
    snprintf(words, sizeof words, "--depth 2 --width 16 --heads 2 --steps 5 --dtype %s", dtypes[_i]);
    trained_begin(&x, words);
    for (int step = 0; step < 4; step++)
        trained_step(&x);
    nh_trainer_batch(&x.trainer, x.tokens);
    struct nh_config c;
    nh_config_shadow(&c, &x.config);
    struct nh_model twin = model_of(&c, false);
    must(nh_trainer_shadow(&x.trainer, &twin, x.tokens));
    for (int p = 0; p < twin.graph->n_params; p++) {
        double *master = state_of(&x.model, p, NH_STATE_MASTER), *w = param_of(&twin, p);
        ck_assert_mem_eq(w, master, param_size(twin.graph, p) * sizeof *w);
        free(master), free(w);
    }
    static const double off[] = {0.02, 0.1, 1e-5, 1e-13};
    assert_near(twin.core->forward(twin.exec), x.trainer.batch_loss, off[_i]);
    nh_model_destroy(&twin);
    trained_end(&x);
}
END_TEST

/* ---- a stream that swallows its branches ---- */

/** A stream of x0 to which 100 sublayers add the same number: with LayerNorms of gain 0 the branches are their biases.
 */
START_TEST(small_branches_are_swallowed)
{
    static const struct {
        const char *words;
        double x0, add, end;
    } cases[] = {
        {"--dtype fp32", 256, 0.9, 346},
        {"--dtype bf16", 256, 0.9, 256}, /* half a ulp is 1 */
        {"--dtype bf16", 256, 1.1, 456}, /* rounded up to a ulp each time */
        {"--dtype fp16", 2048, 0.9, 2048},
        {"--dtype fp16", 256, 0.9, 356},
        {"--dtype bf16 --roles residual=fp32,norm-out=fp32", 256, 0.9, 346},
        {"--dtype bf16 --roles residual=fp32", 256, 0.8984375, 345.84375},
        {"--dtype fp16 --roles residual=fp32,norm-out=fp32", 2048, 0.9, 2138},
        /* a gain of 1/sqrt(60) */
        {"--dtype bf16", 64, 0.1291, 64},
        {"--dtype bf16", 63, 0.1291, 64},
        {"--dtype fp16", 512, 0.1291, 512},
        {"--dtype fp16", 511, 0.1291, 512},
        /* a branch of RMS 1: a tie, which goes to the even neighbour */
        {"--dtype bf16", 256, 1, 256},
        {"--dtype bf16", 255, 1, 256},
        {"--dtype fp16", 2048, 1, 2048},
        {"--dtype fp16", 2000, 1, 2048},
    };
    char words[256];
    snprintf(words, sizeof words, "--layout sandwich --norm layer --depth 50 --width 16 --heads 2 --batch 1 --seq 2 %s",
             cases[_i].words);
    struct nh_config c = config_of(words), t;
    nh_config_shadow(&t, &c);
    struct nh_model models[] = {model_of(&c, false), model_of(&t, false)};
    for (int i = 0; i < 2; i++) {
        struct nh_model *m = &models[i];
        ck_assert_int_eq(fill_params(m, "embed", cases[_i].x0), 1);
        ck_assert_int_eq(fill_params(m, "attn.norm_post.gain", 0) + fill_params(m, "ffn.norm_post.gain", 0), 100);
        ck_assert_int_eq(fill_params(m, "attn.norm_post.bias", cases[_i].add) +
                             fill_params(m, "ffn.norm_post.bias", cases[_i].add),
                         100);
        m->core->forward(m->exec);
    }
    double end = models[0].core->moments(models[0].exec, models[0].graph->steps[100].after[0]).max_abs;
    double true_end = cases[_i].x0 + 100 * cases[_i].add;
    assert_near(end, cases[_i].end, 1e-5 * end);
    struct nh_rows rows = probed("error", &c, &models[0], &models[1], 1);
    assert_near(cell(&rows, 100, NH_LAYERS_REL_ERR), fabs(cases[_i].end / true_end - 1), 1e-5);
    rows_free(&rows);
    nh_model_destroy(&models[0]), nh_model_destroy(&models[1]);
}
END_TEST

/* ---- frozen gains ---- */

/** The gradient of a frozen gain, a sum over 1024 rows, leaves fp16, and no other does: large logits, a small branch.
 */
START_TEST(frozen_gain_stops_the_step)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        struct trained x;
        char words[256];
        snprintf(words, sizeof words,
                 "--layout sandwich --depth 1 --width 16 --heads 2 --batch 64 --seq 16 --vocab 64 --dtype fp16 "
                 "--embed-shrink 0.01 "
                 "--post-gain 0.001 --loss-scale 210 --steps 3%s",
                 frozen ? " --post-gain-frozen" : "");
        trained_begin(&x, words);
        fill_params(&x.model, "norm_final.gain", 1000);
        int head = param_named(x.model.graph, "head");
        double *w = param_of(&x.model, head);
        for (size_t i = 0; i < param_size(x.model.graph, head); i++)
            w[i] *= 10;
        x.model.core->set_param(x.model.exec, head, w);
        struct nh_train_step row = trained_step(&x);
        ck_assert_int_eq(row.skipped, !frozen);
        ck_assert_int_eq(x.trainer.stop, frozen ? NH_GOES_ON : NH_STOP_BACKWARD);
        ck_assert_int_eq(x.trainer.first_forward.first.kind, NH_NO_OFFENCE);
        ck_assert_int_eq(x.trainer.first_backward.first.kind, frozen ? NH_NO_OFFENCE : NH_OVERFLOW);
        if (!frozen)
            ck_assert_int_eq(x.model.graph->sites[x.trainer.first_backward.first.site].name, NH_SITE_NORM_POST);
        free(w);
        trained_end(&x);
    }
}
END_TEST

int main(void)
{
    keep_memory();
    Suite *suite = suite_create("train_formats");
    TCase *tc = tcase_create("train_formats");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, unused_rows_move, 0, COUNT(recipes) * COUNT(dtypes));
    tcase_add_loop_test(tc, zero_gradient_moves, 0, COUNT(recipes) * COUNT(dtypes));
    tcase_add_loop_test(tc, updates_lost, 0, 8);
    tcase_add_loop_test(tc, masters_in_another_format, 0, 6);
    tcase_add_loop_test(tc, twin_of_a_trained_model, 0, COUNT(dtypes));
    tcase_add_loop_test(tc, small_branches_are_swallowed, 0, 16);
    tcase_add_test(tc, frozen_gain_stops_the_step);
    return run_suite(suite, tc);
}
