// SPDX-License-Identifier: GPL-3.0-or-later
/** Whole models: the same bits whatever the threads and the probes, and what the layouts build. */
#include "tests/property/model_bits.h"

/* ---- the same bits ---- */

static uint64_t all_overflows(const struct bits *b)
{
    uint64_t n = 0;
    for (size_t i = 0; i < b->n_counts; i++)
        n += b->counts[i].overflow;
    return n;
}

/* 5 blocks of rows, so that 5 threads have one each */
#define FIVE_BLOCKS "--heads 4 --seq 16 --batch 40 --vocab 40 "

static const struct {
    const char *words;
    bool overflows;
} formats[] = {
    {FIVE_BLOCKS "--depth 2 --width 32 --kv-heads 2 --dtype fp16", false},
    {FIVE_BLOCKS "--depth 2 --width 32 --kv-heads 2 --dtype bf16", false},
    {FIVE_BLOCKS "--depth 2 --width 32 --kv-heads 2 --dtype fp32", false},
    {FIVE_BLOCKS "--depth 2 --width 32 --kv-heads 2 --dtype e4m10 --embed-scale 90",
     true}, /* maximum 255.9: the first offender is worth a comparison */
    {FIVE_BLOCKS "--depth 2 --width 32 --kv-heads 2 --dtype fp64 --norm layer --bias --pos learned --tie --score-scale "
                 "after --window 5",
     false},
    {FIVE_BLOCKS
     "--depth 2 --width 16 --kv-heads 2 --dtype fp16 --accum dtype --norm-stats dtype --ffn swiglu --qk-norm",
     false},
    {FIVE_BLOCKS "--depth 2 --width 16 --dtype fp16 --policy all-half --roles norm-in=bf16 --pb-relax=layer --ln-relax=3 "
                 "--softcap 5 --z-loss 0.01 --embed-shrink 0.1",
     false},
    {FIVE_BLOCKS "--depth 3 --width 16 --dtype fp16 --ffn swiglu --experts 6 --experts-active 2 --experts-shared 1 "
                 "--dense-layers 1 --route-scale 2.826",
     false},
    {FIVE_BLOCKS "--depth 2 --width 16 --dtype bf16 --accum dtype --experts 5 --experts-active 3 --expert-mult 1", false},
};

START_TEST(threads_move_bits)
{
    static const int threads[] = {2, 3, 5};
    if (!is_classic(nh_layouts[_i / COUNT(formats)]) && _i % COUNT(formats) > 0)
        return; /* for time: the others in fp16 alone */
    struct nh_config c = layout_config(_i / COUNT(formats), formats[_i % COUNT(formats)].words);
    struct bits one = run_for_bits(&c);
    ck_assert_int_eq(all_overflows(&one) > 0, formats[_i % COUNT(formats)].overflows);
    for (int i = 0; i < COUNT(threads); i++) {
        c.threads = threads[i];
        struct bits many = run_for_bits(&c);
        assert_same(&one, &many);
        bits_free(&many);
    }
    bits_free(&one);
}
END_TEST

/** Where two contributions to a gradient overflow in their sum in one block of rows, that is made there, whatever has
 * become of the other blocks so far. */
START_TEST(overflow_of_a_gradient_seen_by_one_thread)
{
    static const int threads[] = {2, 3, 5};
    struct nh_config c = config_of(FIVE_BLOCKS "--layout residual --depth 3 --width 32 --dtype e4m10");
    c.threads = 1;
    struct bits one = run_scaled(&c, 135000); /* just below the scale that overflows at the logits */
    ck_assert_uint_gt(all_overflows(&one), 0);
    ck_assert_int_eq(one.first[NH_FWD].kind, NH_NO_OFFENCE);
    ck_assert_int_eq(one.first[NH_BWD].kind, NH_OVERFLOW);
    for (int i = 0; i < 4 * COUNT(threads); i++) {
        c.threads = threads[i % COUNT(threads)];
        struct bits many = run_scaled(&c, 135000);
        assert_same(&one, &many);
        bits_free(&many);
    }
    bits_free(&one);
}
END_TEST

START_TEST(probes_change_the_run)
{
    struct nh_config c = layout_config(_i,
                                       "--depth 2 --width 16 --seq 4 --batch 1 --dtype fp16 --spectrum --threads 2"),
                     twin;
    struct bits expected = run_for_bits(&c);
    struct nh_model m = model_of(&c, true), shadow;
    nh_config_shadow(&twin, &c);
    shadow = model_of(&twin, false);
    for (int again = 0; again < 2; again++) {
        double loss = m.core->forward(m.exec);
        shadow.core->forward(shadow.exec);
        m.core->backward(m.exec, 65536, NULL);
        for (int i = 0; nh_probes[i]; i++) {
            struct nh_rows rows = probed(nh_probes[i]->name, &c, &m, &shadow, 65536);
            rows_free(&rows);
            struct bits b = bits_of(&m, loss);
            assert_same(&expected, &b);
            bits_free(&b);
        }
    }
    bits_free(&expected);
    nh_model_destroy(&m), nh_model_destroy(&shadow);
}
END_TEST

START_TEST(loss_scale_stays_in_the_gradients)
{
    struct nh_config c = layout_config(_i, "--depth 3 --width 32 --dtype fp64");
    struct nh_model m = model_of(&c, true);
    m.core->forward(m.exec);
    m.core->backward(m.exec, 1, NULL);
    struct bits one = bits_of(&m, 0);
    struct nh_rows rows = probed("grad", &c, &m, NULL, 1);
    m.core->backward(m.exec, 65536, NULL);
    struct nh_rows scaled = probed("grad", &c, &m, NULL, 65536);
    for (int k = 0; k < m.graph->n_steps; k++) {
        ck_assert_double_gt(cell(&rows, k, NH_LAYERS_GRAD_RMS), 0);
        ck_assert_double_eq(cell(&rows, k, NH_LAYERS_GRAD_RMS), cell(&scaled, k, NH_LAYERS_GRAD_RMS));
    }
    size_t n = 0;
    for (int p = m.graph->n_params; p-- > 0;) { /* from the end, where the last parameter's gradient lies */
        size_t size = param_size(m.graph, p);
        double *g = zeros(size, sizeof *g);
        m.core->read_param_grad(m.exec, p, g);
        for (size_t i = 0; i < size; i++)
            g[i] /= 65536;
        ck_assert_mem_eq(g, one.numbers + one.n - n - size, size * sizeof *g);
        n += 2 * size;
        free(g);
    }
    rows_free(&rows), rows_free(&scaled);
    bits_free(&one);
    nh_model_destroy(&m);
}
END_TEST

/* ---- the fp64 twin ---- */

START_TEST(error_against_the_twin)
{
    static const struct {
        const char *dtype;
        double low, high;
    } cases[] = {{"fp16", 1e-4, 1e-2}, {"bf16", 8e-4, 8e-2}, {"fp32", 1e-8, 1e-5}, {"fp64", 0, 0}};
    int which = _i % COUNT(cases);
    char words[128];
    snprintf(words, sizeof words, "--depth 16 --width 64 --seq 16 --dtype %s", cases[which].dtype);
    struct nh_config c = layout_config(_i / COUNT(cases), words), twin;
    if (!is_classic(c.layout) && cases[which].high > 0)
        return; /* what the others do to an error is their own affair */
    nh_config_shadow(&twin, &c);
    struct nh_model m = model_of(&c, false), shadow = model_of(&twin, false);
    m.core->forward(m.exec), shadow.core->forward(shadow.exec);
    struct nh_rows rows = probed("error", &c, &m, &shadow, 1);
    for (int k = 0; k < m.graph->n_steps; k++) {
        ck_assert_double_ge(cell(&rows, k, NH_LAYERS_REL_ERR), cases[which].low);
        ck_assert_double_le(cell(&rows, k, NH_LAYERS_REL_ERR), cases[which].high);
    }
    if (!is_classic(c.layout)) {
        rows_free(&rows);
        nh_model_destroy(&m), nh_model_destroy(&shadow);
        return;
    }
    double first = cell(&rows, 1, NH_LAYERS_REL_ERR), middle = cell(&rows, 16, NH_LAYERS_REL_ERR);
    double last = cell(&rows, 32, NH_LAYERS_REL_ERR);
    printf("# %s %s: relative error %.2e after the first sublayer, %.2e in the middle, %.2e at the end\n",
           c.layout->name, cases[which].dtype, first, middle, last);
    if (cases[which].high > 0)
        ck_assert(last > middle && middle > first);
    rows_free(&rows);
    nh_model_destroy(&m), nh_model_destroy(&shadow);
}
END_TEST

/* ---- what layouts build ---- */

START_TEST(branch_left_out)
{
    enum { DEPTH = 5 };
    struct nh_config c = layout_config(_i, "--depth 5");
    struct nh_model m = model_of(&c, false);
    const struct nh_graph *g = m.graph;
    bool blocks = c.layout->block != NULL;
    ck_assert_int_eq(g->n_steps, (blocks ? 1 : 2) * DEPTH + 2);
    for (int k = 1; k < g->n_steps - 1; k++) {
        const struct nh_step *s = &g->steps[k];
        int attentions = 0, activations = 0, adds = 0;
        for (int r = s->first_rec; r < s->end_rec; r++) {
            const struct nh_rec *rec = &g->recs[r];
            attentions += rec->op == NH_OP_SDPA, activations += rec->op == NH_OP_ACT;
            adds += rec->op == NH_OP_AXPBY && rec->in[0] == s->before[0] && rec->in[1] == s->branch[0];
        }
        ck_assert_int_eq(s->layer, blocks ? k : (k + 1) / 2);
        ck_assert_int_eq(s->sublayer, blocks ? NH_SUB_BLOCK : k % 2 ? NH_SUB_ATTN : NH_SUB_FFN);
        ck_assert_int_eq(attentions, s->sublayer != NH_SUB_FFN);
        ck_assert_int_eq(activations, s->sublayer != NH_SUB_ATTN);
        ck_assert(blocks || (s->raw >= 0 && s->branch[0] >= 0));
        if (is_classic(c.layout))
            ck_assert_int_eq(adds, 1); /* the add reads the stream itself, never its norm */
        for (int i = 0; i < g->n_streams; i++) {
            ck_assert(blocks || s->branch[i] >= 0);
            ck_assert_int_eq(s->before[i], g->steps[k - 1].after[i]);
        }
    }
    nh_model_destroy(&m);
}
END_TEST

static double *logits_of(struct nh_model *m)
{
    m->core->forward(m->exec);
    return value_of(m, m->graph->logits);
}

/** Moves what starts at a constant: behind a gain of 0 nothing has an effect. */
static void shake_constants(struct nh_model *m)
{
    for (int p = 0; p < m->graph->n_params; p++) {
        if (m->graph->params[p].part[0].std > 0)
            continue;
        double *w = param_of(m, p);
        for (size_t i = 0; i < param_size(m->graph, p); i++)
            w[i] += 0.5 + 0.1 * cos((double)i);
        m->core->set_param(m->exec, p, w);
        free(w);
    }
}

/** A matrix that nobody reads, or that another one takes the place of. */
START_TEST(weight_without_effect)
{
    static const char *const words[] = {
        "--depth 2 --width 16 --heads 2 --seq 6 --batch 1 --dtype fp64",
        ("--depth 2 --width 16 --heads 2 --kv-heads 1 --seq 6 --batch 1 --dtype fp64 --ffn swiglu --norm "
         "layer --bias"),
        "--depth 2 --width 16 --heads 2 --seq 6 --batch 1 --dtype fp64 --ffn geglu --pos learned --tie",
    };
    struct nh_config c = layout_config(_i / COUNT(words), words[_i % COUNT(words)]);
    c.qk_norm = _i % COUNT(words) == 1;
    struct nh_model m = model_of(&c, false);
    shake_constants(&m);
    double *before = logits_of(&m);
    for (int p = 0; p < m.graph->n_params; p++) {
        const struct nh_param *param = &m.graph->params[p];
        double *w = param_of(&m, p), *moved = zeros(param_size(m.graph, p), sizeof *moved);
        size_t at = 0;
        for (int part = 0; part < param->n_parts; part++) {
            size_t n = (size_t)param->part[part].rows * (size_t)param->cols;
            memcpy(moved, w, param_size(m.graph, p) * sizeof *w);
            for (size_t i = at; i < at + n; i++)
                moved[i] += 0.1 * sin((double)i + 1); /* not the same for all: a norm or a softmax would not see that */
            m.core->set_param(m.exec, p, moved);
            double *after = logits_of(&m), change = 0;
            for (size_t i = 0; i < value_size(m.graph, m.graph->logits); i++)
                change = fmax(change, fabs(after[i] - before[i]));
            if (!(change > 1e-6))
                ck_abort_msg("%s, part %d: logits move by %g", param->name, part, change);
            free(after);
            at += n;
        }
        m.core->set_param(m.exec, p, w);
        free(w), free(moved);
    }
    free(before);
    nh_model_destroy(&m);
}
END_TEST

START_TEST(unknown_layout_accepted)
{
    char *sandwhich[] = {"--layout", "sandwhich"}, *empty[] = {"--layout="}, *prefix[] = {"--layout", "sand"};
    struct nh_options o;
    ck_assert_int_eq(nh_options_parse(&o, 2, sandwhich), NH_USAGE);
    ck_assert_ptr_nonnull(strstr(nh_error(), "sandwich"));
    ck_assert_int_eq(nh_options_parse(&o, 1, empty), NH_USAGE);
    ck_assert_int_eq(nh_options_parse(&o, 2, prefix), NH_USAGE);
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    keep_memory();
    Suite *suite = suite_create("model");
    TCase *tc = tcase_create("model");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, threads_move_bits, 0, n_layouts() * COUNT(formats));
    tcase_add_test(tc, overflow_of_a_gradient_seen_by_one_thread);
    tcase_add_loop_test(tc, probes_change_the_run, 0, n_layouts());
    tcase_add_loop_test(tc, loss_scale_stays_in_the_gradients, 0, n_layouts());
    tcase_add_loop_test(tc, error_against_the_twin, 0, 4 * n_layouts());
    tcase_add_loop_test(tc, branch_left_out, 0, n_layouts());
    tcase_add_loop_test(tc, weight_without_effect, 0, 3 * n_layouts());
    tcase_add_test(tc, unknown_layout_accepted);
    return run_suite(suite, tc);
}
