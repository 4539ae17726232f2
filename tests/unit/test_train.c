// SPDX-License-Identifier: GPL-3.0-or-later
/** The trainer: rates, clipping, decay, what is frozen, skipped steps, and how a run stops. */
#include "tests/unit/trained.h"
#include "tests/suite.h"

#include <check.h>

#define COUNT(a)                                ((int)(sizeof(a) / sizeof *(a)))
#define assert_near(value, expected, tolerance) ck_assert_double_eq_tol(value, expected, tolerance)

static const char *const optimizers[] = {"adamw", "muon", "sgd"};

/** Training of a small model, 20 steps unless words say otherwise. */
static void small_begin(struct trained *x, const char *words)
{
    char all[512];
    if (snprintf(all, sizeof all, "--depth 2 --width 16 --heads 2 %s %s", strstr(words, "--steps") ? "" : "--steps 20",
                 words) >= (int)sizeof all)
        abort();
    trained_begin(x, all);
}

static void small_begin_by(struct trained *x, const char *optimizer, const char *words)
{
    char all[512];
    if (snprintf(all, sizeof all, "--optimizer %s %s", optimizer, words) >= (int)sizeof all)
        abort();
    small_begin(x, all);
}

/** Norm of all weight gradients of the last batch, of the trained parameters. */
static double gradient_norm(const struct nh_model *m)
{
    double sum = 0;
    for (int p = 0; p < m->graph->n_params; p++) {
        double *g = zeros(param_size(m->graph, p), sizeof *g);
        m->core->read_param_grad(m->exec, p, g);
        for (size_t i = 0; i < param_size(m->graph, p) && !m->graph->params[p].frozen; i++)
            sum += g[i] * g[i];
        free(g);
    }
    return sqrt(sum);
}

/* ---- rates ---- */

START_TEST(warmup_edges)
{
    static const struct {
        int warmup, steps;
        enum nh_schedule schedule;
        double rates[6];
    } cases[] = {
        {4, 6, NH_SCHEDULE_CONSTANT, {2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3, 1e-3}},
        {4, 6, NH_SCHEDULE_LINEAR, {2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3, 5e-4}},
        {0, 6, NH_SCHEDULE_CONSTANT, {1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3}},
        {0, 6, NH_SCHEDULE_COSINE, {1e-3, 0.93301270189e-3, 0.75e-3, 0.5e-3, 0.25e-3, 0.06698729811e-3}},
        {0, 5, NH_SCHEDULE_WSD, {1e-3, 1e-3, 1e-3, 1e-3, 1e-3}},
        {0, 1, NH_SCHEDULE_LINEAR, {1e-3}},
        {5, 6, NH_SCHEDULE_COSINE, {2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1e-3}},
        {6,
         6,
         NH_SCHEDULE_COSINE,
         {1e-3 / 6, 2e-3 / 6, 3e-3 / 6, 4e-3 / 6, 5e-3 / 6, 1e-3}}, /* never past its warmup */
        {8, 6, NH_SCHEDULE_WSD, {1.25e-4, 2.5e-4, 3.75e-4, 5e-4, 6.25e-4, 7.5e-4}},
    };
    for (int i = 0; i < COUNT(cases); i++)
        for (int step = 0; step < cases[i].steps; step++) {
            struct nh_training t = {
                .lr = 1e-3, .warmup = cases[i].warmup, .steps = cases[i].steps, .schedule = cases[i].schedule};
            assert_near(nh_schedule_rate(&t, step), cases[i].rates[step], 1e-14);
        }
}
END_TEST

/** The first step of a warmup is none that does nothing. */
START_TEST(first_step_of_a_warmup)
{
    struct trained x;
    small_begin_by(&x, optimizers[_i], "--warmup 4");
    struct nh_train_step row = trained_step(&x);
    ck_assert_double_eq(row.lr, 2.5e-4);
    ck_assert_double_gt(row.changed, 0.9);
    trained_end(&x);
}
END_TEST

/* ---- clipping and the loss scale ---- */

/** A loss scale that is a power of two moves no bit of fp32, clipped or not, and is not seen in the norm. */
START_TEST(scale_leaks_into_the_update)
{
    struct trained x[3];
    static const char *const scales[] = {"off", "65536", "0.0625"};
    static const char *const clips[] = {"off", "0.3", "1", "1e9"};
    for (int i = 0; i < 3; i++) {
        char words[128];
        snprintf(words, sizeof words, "--dtype fp32 --clip %s --loss-scale %s", clips[_i / 3], scales[i]);
        small_begin_by(&x[i], optimizers[_i % 3], words);
    }
    for (int step = 0; step < 5; step++) {
        struct nh_train_step plain = trained_step(&x[0]);
        for (int i = 1; i < 3; i++) {
            struct nh_train_step scaled = trained_step(&x[i]);
            ck_assert_double_eq(scaled.loss, plain.loss);
            ck_assert_double_eq(scaled.grad_norm, plain.grad_norm);
            ck_assert(same_weights(&x[0].model, &x[i].model));
        }
    }
    for (int i = 0; i < 3; i++)
        trained_end(&x[i]);
}
END_TEST

/** With plain SGD a step is lr g, and where it is clipped lr g clip / |g|. */
START_TEST(clip_by_the_true_norm)
{
    static const double parts[] = {0.25, 1, 2}; /* of the norm */
    struct trained x;
    small_begin(&x, "--optimizer sgd --momentum 0 --clip off --dtype fp64 --lr 0.1 --loss-scale 65536");
    x.config.train.steps = 1000;
    for (int i = 0; i < COUNT(parts); i++) {
        nh_trainer_batch(&x.trainer, x.tokens);
        double norm = gradient_norm(&x.model) / 65536, sum = 0;
        struct nh_model *m = &x.model;
        double **before = zeros((size_t)m->graph->n_params, sizeof *before);
        for (int p = 0; p < m->graph->n_params; p++)
            before[p] = param_of(m, p);
        x.config.train.clip = parts[i] * norm;
        struct nh_train_step row = nh_trainer_update(&x.trainer);
        assert_near(row.grad_norm, norm, 1e-12 * norm);
        for (int p = 0; p < m->graph->n_params; p++) {
            double *after = param_of(m, p);
            for (size_t k = 0; k < param_size(m->graph, p); k++)
                sum += (after[k] - before[p][k]) * (after[k] - before[p][k]);
            free(after), free(before[p]);
        }
        free(before);
        assert_near(sqrt(sum), 0.1 * norm * fmin(parts[i], 1), 1e-12 * norm);
    }
    trained_end(&x);
}
END_TEST

/* ---- what does not move ---- */

/** Where no token has a next one all gradients are 0: only decay moves weights, and only those of matrices. */
START_TEST(decay_of_matrices_alone)
{
    struct trained x;
    char words[160];
    bool decays = _i % 2;
    snprintf(words, sizeof words, "--layout %s --bias --seq 1 --lr 0.125 --weight-decay %d", nh_layouts[_i / 6]->name, decays);
    small_begin_by(&x, optimizers[_i / 2 % 3], words);
    for (int p = 0; p < x.model.graph->n_params; p++)
        if (x.model.graph->params[p].rows == 1) /* biases, which start at 0, could not be seen to decay */
            fill_params(&x.model, x.model.graph->params[p].name, 0.5);
    double *before[256];
    ck_assert_int_le(x.model.graph->n_params, COUNT(before));
    for (int p = 0; p < x.model.graph->n_params; p++)
        before[p] = param_of(&x.model, p);
    for (int step = 0; step < 3; step++) {
        struct nh_train_step row = trained_step(&x);
        ck_assert(row.loss == 0 && row.grad_norm == 0 && !row.skipped);
        ck_assert((row.changed > 0) == decays);
    }
    for (int p = 0; p < x.model.graph->n_params; p++) {
        const struct nh_param *q = &x.model.graph->params[p];
        double *after = param_of(&x.model, p), keep = decays && q->rows > 1 ? 0.875 * 0.875 * 0.875 : 1;
        for (size_t i = 0; i < param_size(x.model.graph, p); i++)
            ck_assert_msg(fabs(after[i] - keep * before[p][i]) <= 1e-6 * (1 - keep) * fabs(before[p][i]),
                          "%s: %g, then %g", q->name, before[p][i], after[i]);
        free(after), free(before[p]);
    }
    trained_end(&x);
}
END_TEST

/** Gains of the norm on a branch's output, and they alone, stay; the norm of the gradient leaves them out. */
START_TEST(frozen_gains_move)
{
    struct trained x;
    bool frozen = _i / 3;
    char words[128];
    snprintf(words, sizeof words, "--layout sandwich --norm layer --bias --post-gain 2%s",
             frozen ? " --post-gain-frozen" : "");
    small_begin_by(&x, optimizers[_i % 3], words);
    struct nh_model *m = &x.model;
    double *before[64];
    ck_assert_int_le(m->graph->n_params, COUNT(before));
    for (int p = 0; p < m->graph->n_params; p++)
        before[p] = param_of(m, p);
    for (int step = 0; step < 3; step++) {
        struct nh_train_step row = trained_step(&x);
        assert_near(row.grad_norm, gradient_norm(m), 1e-6 * row.grad_norm);
    }
    int n_frozen = 0;
    for (int p = 0; p < m->graph->n_params; p++) {
        bool post = is_named(m->graph, p, "attn.norm_post.gain") || is_named(m->graph, p, "ffn.norm_post.gain");
        double *after = param_of(m, p);
        size_t n = param_size(m->graph, p);
        bool same = memcmp(before[p], after, n * sizeof *after) == 0;
        ck_assert_msg(same == (post && frozen), "%s", m->graph->params[p].name);
        n_frozen += same;
        free(after), free(before[p]);
    }
    ck_assert_int_eq(n_frozen, frozen ? 4 : 0);
    trained_end(&x);
}
END_TEST

/* ---- steps that are left out ---- */

/** Weight gradients of +inf and of -inf: their sum, or that of two batches, may be anything. */
START_TEST(infinities_of_both_signs)
{
    static const char *const words[] = {"--dtype fp16", "--dtype fp16 --grad-accum 2", "--dtype fp8-e4m3",
                                        "--dtype fp16 --optimizer sgd"};
    struct trained x, untouched;
    small_begin(&x, words[_i]);
    small_begin(&untouched, words[_i]);
    x.trainer.scaler.scale = 0x1p24;
    struct nh_train_step row = trained_step(&x);
    int positive = 0, negative = 0, nan = 0;
    for (int p = 0; p < x.model.graph->n_params; p++) {
        double *g = zeros(param_size(x.model.graph, p), sizeof *g);
        x.model.core->read_param_grad(x.model.exec, p, g);
        for (size_t i = 0; i < param_size(x.model.graph, p); i++)
            positive += g[i] == (double)INFINITY, negative += g[i] == (double)-INFINITY, nan += isnan(g[i]);
        free(g);
    }
    ck_assert(x.config.dtype.has_inf ? positive && negative : nan);
    ck_assert(row.skipped && !isfinite(row.grad_norm) && row.overflow_bwd > 0 && row.overflow_fwd == 0 &&
              row.changed == 0);
    ck_assert_int_eq(x.trainer.skipped, 1);
    ck_assert_int_eq(x.trainer.skipped_start, 1);
    ck_assert_int_eq(x.trainer.applied, 0);
    ck_assert_double_eq(x.trainer.scaler.scale, 0x1p23);
    ck_assert_int_ne(x.trainer.first_backward.first.kind, NH_NO_OFFENCE);
    ck_assert(same_weights(&x.model, &untouched.model));
    trained_end(&x), trained_end(&untouched);
}
END_TEST

/** An overflow in the first batch of a step, none in the second. */
START_TEST(overflow_in_one_batch_of_a_step)
{
    struct trained x;
    small_begin(&x, "--dtype fp16 --grad-accum 2 --loss-scale 1");
    x.trainer.scaler.scale = 0x1p30;
    nh_trainer_batch(&x.trainer, x.tokens);
    x.trainer.scaler.scale = 1;
    nh_trainer_batch(&x.trainer, x.tokens);
    struct nh_train_step row = nh_trainer_update(&x.trainer);
    ck_assert(row.skipped && row.overflow_bwd > 0);
    ck_assert_int_eq(x.trainer.stop, NH_STOP_BACKWARD); /* a fixed scale is its own floor */
    ck_assert_int_eq(x.trainer.stopping_offence.first.kind, NH_OVERFLOW);
    ck_assert_int_eq(x.trainer.first_backward.first.kind, NH_OVERFLOW);
    trained_end(&x);
}
END_TEST

/** A skipped step leaves no trace in the moments. */
START_TEST(skipped_step_counts_as_an_update)
{
    struct trained x, clean;
    char words[64];
    snprintf(words, sizeof words, "--dtype fp16 --optimizer %s", optimizers[_i]);
    small_begin(&x, words);
    small_begin(&clean, words);
    x.trainer.scaler.scale = 0x1p30;
    nh_trainer_batch(&x.trainer, x.tokens);
    ck_assert(nh_trainer_update(&x.trainer).skipped);
    x.trainer.scaler.scale = clean.trainer.scaler.scale;
    for (int step = 0; step < 3; step++) {
        must(nh_data_batch(x.data, (uint64_t)step, x.tokens));
        nh_trainer_batch(&x.trainer, x.tokens), nh_trainer_batch(&clean.trainer, x.tokens);
        ck_assert_double_eq(nh_trainer_update(&x.trainer).grad_norm, nh_trainer_update(&clean.trainer).grad_norm);
    }
    ck_assert_int_eq(x.trainer.step, 4);
    ck_assert_int_eq(x.trainer.applied, 3);
    ck_assert(same_weights(&x.model, &clean.model));
    trained_end(&x), trained_end(&clean);
}
END_TEST

/* ---- the end ---- */

/** Steps until the trainer stops; all are skipped. */
static int steps_to_the_stop(struct trained *x, int most)
{
    int n = 0;
    while (x->trainer.stop == NH_GOES_ON && n < most) {
        struct nh_train_step row = trained_step(x);
        ck_assert(row.skipped);
        n++;
    }
    ck_assert_int_eq(x->trainer.skipped, n);
    ck_assert_int_eq(x->trainer.skipped_start, n);
    ck_assert_int_eq(x->trainer.applied, 0);
    return n;
}

/** 16 halvings from 65536 to 1, and one more overflow. */
START_TEST(forward_pass_that_no_scale_mends)
{
    struct trained x;
    small_begin(&x, "--layout sandwich --dtype fp16 --post-gain 1e5 --steps 100");
    ck_assert_int_eq(steps_to_the_stop(&x, 100), 17);
    ck_assert_double_eq(x.trainer.scaler.scale, 1);
    ck_assert_int_eq(x.trainer.stop, NH_STOP_FORWARD);
    ck_assert_int_eq(x.trainer.first_forward.step, 0);
    ck_assert_int_eq(x.trainer.first_forward.first.kind, NH_OVERFLOW);
    ck_assert(!isfinite(x.trainer.loss));
    trained_end(&x);
}
END_TEST

/** A norm divides by the RMS of a tiny stream: its gradient leaves the format, the forward pass does not. */
START_TEST(gradients_that_no_scale_mends)
{
    struct trained x;
    small_begin(&x, "--dtype e4m10 --embed-rms 1e-3 --eps 0 --batch 1 --seq 2 --steps 100");
    ck_assert_int_eq(steps_to_the_stop(&x, 100), 17);
    ck_assert_int_eq(x.trainer.stop, NH_STOP_BACKWARD);
    ck_assert_int_eq(x.trainer.first_forward.first.kind, NH_NO_OFFENCE);
    ck_assert_int_eq(x.trainer.first_backward.step, 0);
    ck_assert_int_eq(x.trainer.stopping_offence.step, 16);
    ck_assert_int_eq(x.trainer.stopping_offence.first.kind, NH_OVERFLOW);
    ck_assert(isfinite(x.trainer.loss));
    trained_end(&x);
}
END_TEST

START_TEST(too_many_skips)
{
    struct trained x;
    small_begin(&x, "--dtype fp16 --steps 500");
    for (int i = 1; i < 2 * NH_MOST_SKIPS; i++) {
        bool clean = i == NH_MOST_SKIPS; /* one in between: the row begins anew */
        x.trainer.scaler.scale = clean ? 1 : 0x1p500;
        ck_assert_int_eq(trained_step(&x).skipped, !clean);
        ck_assert_int_eq(x.trainer.stop, NH_GOES_ON);
    }
    x.trainer.scaler.scale = 0x1p500;
    ck_assert(trained_step(&x).skipped);
    ck_assert_int_eq(x.trainer.stop, NH_STOP_SKIPS);
    ck_assert_int_eq(x.trainer.applied, 1);
    trained_end(&x);
}
END_TEST

START_TEST(texts_tell_the_stops_apart)
{
    ck_assert_ptr_nonnull(strstr(nh_stop_texts[NH_STOP_FORWARD], "forward"));
    ck_assert_ptr_nonnull(strstr(nh_stop_texts[NH_STOP_BACKWARD], "gradients"));
    ck_assert_ptr_nonnull(strstr(nh_stop_texts[NH_STOP_SKIPS], "200"));
}
END_TEST

/** Of 21 steps the last tenth is 3. */
START_TEST(mean_loss_of_the_last_tenth)
{
    struct trained x;
    small_begin(&x, "--steps 21");
    double first = 0, sum = 0;
    for (int step = 0; step < 21; step++) {
        ck_assert(!nh_trainer_is_done(&x.trainer));
        double loss = trained_step(&x).loss;
        first = step ? first : loss;
        sum += step < 18 ? 0 : loss;
    }
    ck_assert(nh_trainer_is_done(&x.trainer));
    assert_near(nh_trainer_tail_loss(&x.trainer), sum / 3, 1e-12);
    ck_assert_double_eq(x.trainer.start_loss, first);
    trained_end(&x);
}
END_TEST

/* ---- offences and counters ---- */

/** The head's gradient leaves fp16, and only behind it, in the backward pass of the norm, that of an activation. */
START_TEST(offences_in_the_order_of_the_pass)
{
    struct trained x;
    small_begin(&x, "--dtype fp16 --loss-scale 16384");
    ck_assert_int_eq(fill_params(&x.model, "norm_final.gain", 4096), 1);
    nh_trainer_batch(&x.trainer, x.tokens);
    const struct nh_core *core = x.model.core;
    struct nh_first bwd = core->first(x.model.exec, NH_BWD), wgrad = core->first(x.model.exec, NH_WGRAD);
    ck_assert_int_eq(bwd.kind, NH_OVERFLOW);
    ck_assert_int_eq(wgrad.kind, NH_OVERFLOW);
    ck_assert_uint_lt(wgrad.order, bwd.order);
    ck_assert_int_eq(x.trainer.first_backward.direction, NH_WGRAD);
    ck_assert_int_eq(x.model.graph->sites[x.trainer.first_backward.first.site].name, NH_SITE_LOGITS);
    trained_end(&x);
}
END_TEST

/** All sites over all batches, the cast of the weights once. */
START_TEST(counters_of_several_batches)
{
    struct trained x;
    small_begin(&x, "--dtype bf16 --grad-accum 3");
    for (int step = 0; step < 2; step++) {
        trained_step(&x);
        const struct nh_graph *g = x.model.graph;
        const struct nh_counts *last = x.model.core->counts(x.model.exec);
        uint64_t weights[NH_DIRECTIONS] = {0}, moments = 0;
        for (int i = 0; i < g->n_sites * NH_DIRECTIONS; i++) {
            enum nh_site_name name = g->sites[i / NH_DIRECTIONS].name;
            bool update = i % NH_DIRECTIONS == NH_UPDATE;
            ck_assert_uint_eq(x.trainer.counts[i].total, last[i].total * (update || name == NH_SITE_WEIGHT ? 1 : 3));
            weights[i % NH_DIRECTIONS] += name == NH_SITE_WEIGHT ? x.trainer.counts[i].total : 0;
            moments += name == NH_SITE_MOMENT_1 || name == NH_SITE_MOMENT_2 ? x.trainer.counts[i].total : 0;
        }
        ck_assert_uint_eq(weights[NH_FWD], nh_graph_parameters(g));
        ck_assert_uint_eq(weights[NH_UPDATE], nh_graph_parameters(g));
        ck_assert_uint_eq(moments, 2 * nh_graph_parameters(g));
    }
    trained_end(&x);
}
END_TEST

/** One number of the gradient, the moment or the weight that leaves its format is found by parameter and index. */
START_TEST(offence_of_an_update_names_step_tensor_and_index)
{
    static const struct {
        const char *options;
        enum nh_site_name site;
        enum nh_offence kind;
    } cases[] = {
        {"--optimizer sgd --momentum 0 --clip off --lr 3e38 --z-loss 1000", NH_SITE_WEIGHT, NH_OVERFLOW},
        {"--optimizer sgd --momentum 0 --clip off --lr 1e6 --roles master=fp16 --z-loss 100000", NH_SITE_WEIGHT, NH_OVERFLOW},
        {"--optimizer sgd --clip off --roles moment=fp16 --z-loss 1e9", NH_SITE_MOMENT_1, NH_OVERFLOW},
        {"--optimizer muon --clip off --roles moment=fp16 --z-loss 1e9", NH_SITE_MOMENT_1, NH_OVERFLOW},
        {"--clip off --roles moment=fp16 --z-loss 100000", NH_SITE_MOMENT_2, NH_OVERFLOW},
        {"--clip off --roles moment=fp16", NH_SITE_MOMENT_2, NH_UNDERFLOW},
        {"--weight-decay 1000 --lr 1e38", NH_SITE_WEIGHT, NH_OVERFLOW},
    };
    struct trained x;
    small_begin(&x, cases[_i].options);
    trained_step(&x);
    const struct nh_event e = nh_trainer_offender(&x.trainer);
    const struct nh_graph *g = x.model.graph;
    ck_assert_str_eq(nh_offence_names[e.first.kind], nh_offence_names[cases[_i].kind]);
    ck_assert_str_eq(nh_site_names[g->sites[e.first.site].name], nh_site_names[cases[_i].site]);
    ck_assert_int_eq(e.direction, NH_UPDATE);
    ck_assert_int_eq(e.step, 0);
    ck_assert_int_gt(e.first.param, 0);
    const struct nh_param *p = &g->params[e.first.param - 1];
    ck_assert_uint_lt(e.first.index, (uint64_t)p->rows * (uint64_t)p->cols);
    ck_assert_int_eq(g->sites[e.first.site].layer, p->layer);
    trained_end(&x);
}
END_TEST

/** Share of the stored weights that an update has changed. */
START_TEST(changed_weights_miscounted)
{
    struct trained x;
    small_begin(&x, "--dtype bf16 --lr 1e-4");
    const struct nh_graph *g = x.model.graph;
    for (int step = 0; step < 3; step++) {
        double **before = zeros((size_t)g->n_params, sizeof *before), changed = 0;
        for (int p = 0; p < g->n_params; p++)
            before[p] = param_of(&x.model, p);
        struct nh_train_step row = trained_step(&x);
        for (int p = 0; p < g->n_params; p++) {
            double *after = param_of(&x.model, p);
            for (size_t i = 0; i < param_size(g, p); i++)
                changed += after[i] != before[p][i];
            free(after), free(before[p]);
        }
        free(before);
        ck_assert(changed > 0 && row.changed < 1);
        assert_near(row.changed, changed / (double)nh_graph_parameters(g), 1e-15);
    }
    trained_end(&x);
}
END_TEST

int main(void)
{
    keep_memory();
    int layouts = n_layouts();
    Suite *suite = suite_create("train");
    TCase *tc = tcase_create("train");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, warmup_edges);
    tcase_add_loop_test(tc, first_step_of_a_warmup, 0, 3);
    tcase_add_loop_test(tc, scale_leaks_into_the_update, 0, 12);
    tcase_add_test(tc, clip_by_the_true_norm);
    tcase_add_loop_test(tc, decay_of_matrices_alone, 0, 6 * layouts);
    tcase_add_loop_test(tc, frozen_gains_move, 0, 6);
    tcase_add_loop_test(tc, infinities_of_both_signs, 0, 4);
    tcase_add_test(tc, overflow_in_one_batch_of_a_step);
    tcase_add_loop_test(tc, skipped_step_counts_as_an_update, 0, 3);
    tcase_add_test(tc, forward_pass_that_no_scale_mends);
    tcase_add_test(tc, gradients_that_no_scale_mends);
    tcase_add_test(tc, too_many_skips);
    tcase_add_test(tc, texts_tell_the_stops_apart);
    tcase_add_test(tc, mean_loss_of_the_last_tenth);
    tcase_add_test(tc, offences_in_the_order_of_the_pass);
    tcase_add_loop_test(tc, offence_of_an_update_names_step_tensor_and_index, 0, 7);
    tcase_add_test(tc, counters_of_several_batches);
    tcase_add_test(tc, changed_weights_miscounted);
    return run_suite(suite, tc);
}
