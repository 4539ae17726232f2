// SPDX-License-Identifier: GPL-3.0-or-later
/** Constants of layouts: norms and gains, start weights and measured starts are where they belong, in all of the registry. */
#include "tests/property/layout_models.h"

static const struct nh_layout *layout_named(const char *name)
{
    for (int i = 0; nh_layouts[i]; i++)
        if (strcmp(nh_layouts[i]->name, name) == 0)
            return nh_layouts[i];
    ck_abort_msg("there is no layout %s", name);
    return NULL;
}

static double final_rms(const struct nh_config *c)
{
    struct nh_model m = model_of(c, false);
    m.core->forward(m.exec);
    const double rms = rms_of(&m, m.graph->steps[m.graph->n_steps - 2].after[0]);
    nh_model_destroy(&m);
    return rms;
}

/* ---- norms and gains ---- */

/** From the equations; qk: norms of cosine attention, which are no norms of the layout. */
static const struct {
    const char *words;
    int a_layer, once, qk;
} norms[] = {
    {"--layout pre", 2, 1, 0},
    {"--layout post", 2, 0, 0},
    {"--layout sandwich", 4, 1, 0},
    {"--layout sandwich-depth", 4, 1, 0},
    {"--layout sandwich-l", 4, 1, 0},
    {"--layout reordered", 2, 1, 0},
    {"--layout respost", 2, 1, 2},
    {"--layout deepnorm", 2, 0, 0},
    {"--layout deepnorm-glm", 2, 0, 0},
    {"--layout keel", 4, 0, 0},
    {"--layout admin", 2, 0, 0},
    {"--layout lns", 2, 1, 0},
    {"--layout lns-gain", 2, 1, 0},
    {"--layout mix-ln", 2, 1, 0},
    {"--layout hybridnorm", 4, 1, 0},
    {"--layout rezero", 0, 0, 0},
    {"--layout layerscale", 2, 1, 0},
    {"--layout normformer", 4, 1, 0},
    {"--layout subln", 4, 1, 0},
    {"--layout pangu", 4, 1, 0},
    {"--layout b2t", 2, 0, 0},
    {"--layout gpas", 2, 1, 0},
    {"--layout parallel", 1, 1, 0},
    {"--layout residual", 2, 1, 0},
    {"--layout siamese", 4, 1, 0},
    {"--layout no-norm", 0, 0, 0},
    {"--layout hybridnorm --set star=on", 4, 2, 0}, /* one more in layer 1 */
    {"--layout parallel --set norms=2", 2, 1, 0},
    {"--layout respost --set cosine=off", 2, 1, 0},
    {"--layout siamese --set input-norm=on", 6, 1, 0},
};

/** True for a layout of this table. Tests that know constants by heart are about these; a new one joins them by a row.
 */
static bool is_known(const struct nh_layout *layout)
{
    for (int i = 0; i < COUNT(norms); i++)
        if (strcmp(norms[i].words + strlen("--layout "), layout->name) == 0)
            return true;
    return false;
}

/** Norms on the tape; each has a gain of its own, and no two parameters have the same name. */
static int count_norms(const struct nh_graph *g)
{
    int n = 0, twice = 0;
    for (int r = 0; r < g->n_recs; r++) {
        n += g->recs[r].op == NH_OP_NORM;
        for (int q = 0; q < r; q++)
            twice +=
                g->recs[r].op == NH_OP_NORM && g->recs[q].op == NH_OP_NORM && g->recs[q].par[0] == g->recs[r].par[0];
    }
    for (int p = 0; p < g->n_params; p++)
        for (int q = 0; q < p; q++)
            twice += strcmp(g->params[p].name, g->params[q].name) == 0;
    ck_assert_int_eq(twice, 0);
    return n;
}

START_TEST(norms_miscounted)
{
    for (int i = 0; i < COUNT(norms); i++)
        for (int depth = 1; depth <= 12; depth += 11) {
            struct nh_config c = config_of(norms[i].words);
            struct nh_graph *g;
            c.depth = depth;
            must(nh_graph_build(&g, &c, 1, 4, 8));
            const int expected = norms[i].a_layer * depth + norms[i].once;
            ck_assert_int_eq(g->n_norms, expected);
            ck_assert_int_eq(count_norms(g), expected + norms[i].qk * depth);
            nh_graph_free(g);
        }
    for (int i = 0; nh_layouts[i]; i++) {
        struct nh_config c = layout_config(i, "--depth 5");
        struct nh_graph *g;
        must(nh_graph_build(&g, &c, 1, 4, 8));
        const int others = count_norms(g) - g->n_norms;
        ck_assert(others == 0 || others == 2 * 5); /* those of cosine attention */
        nh_graph_free(g);
        if (!is_known(nh_layouts[i]))
            printf("# %s has no row in the table of this test\n", nh_layouts[i]->name);
    }
}
END_TEST

/** Trained factors that are no gains of norms, in a layer: how many, and how many numbers each. */
START_TEST(trained_factor_missing)
{
    enum { WIDTH = 16, HEADS = 4, DEPTH = 3 };
    static const struct {
        const char *layout;
        int a_layer, size;
    } factors[] = {
        {"rezero", 2, 1}, {"layerscale", 2, WIDTH}, {"normformer", 1, HEADS}, {"gpas", 2, 1}, {"admin", 2, WIDTH}};
    struct nh_config c = layout_config(_i, "--depth 3 --width 16 --heads 4");
    struct nh_graph *g;
    must(nh_graph_build(&g, &c, 1, 4, 8));
    int found = 0, expected = 0, size = 0;
    for (int i = 0; i < COUNT(factors); i++)
        if (is_one(c.layout, factors[i].layout))
            expected = DEPTH * factors[i].a_layer, size = factors[i].size;
    for (int r = 0; r < g->n_recs; r++)
        if (g->recs[r].op == NH_OP_GAIN || g->recs[r].op == NH_OP_SHRINK) {
            ck_assert((int)param_size(g, g->recs[r].par[0]) == size || !is_known(c.layout));
            found++;
        }
    ck_assert(found == expected || !is_known(c.layout));
    nh_graph_free(g);
}
END_TEST

/** All values of a parameter are this one. */
static void assert_filled(const struct nh_model *m, int p, double expected)
{
    double *w = param_of(m, p);
    for (size_t i = 0; i < param_size(m->graph, p); i++)
        if (fabs(w[i] - expected) > 1e-15 * fabs(expected))
            ck_abort_msg("%s starts at %g, not %g", m->graph->params[p].name, w[i], expected);
    free(w);
}

/** Start gains at 60 layers: N2 as the law term says, N1 in lns-gain 1/sqrt(l), the scalars of the three layouts that
 *  have some, all else 1. */
START_TEST(gain_of_another_norm)
{
    struct nh_config c = layout_config(_i, "--depth 60 --width 16 --dtype fp64");
    struct nh_model m = model_of(&c, false);
    for (int p = 0; p < m.graph->n_params; p++) {
        const struct nh_param *q = &m.graph->params[p];
        const bool attention = strstr(q->name, ".attn.") != NULL;
        const struct nh_step s = {.layer = q->layer, .sublayer = attention ? NH_SUB_ATTN : NH_SUB_FFN};
        double expected = 1;
        if (q->part[0].std > 0 || q->profiled || !is_known(c.layout))
            continue;
        if (strstr(q->name, "norm_post") && term_of(&c, &s).post_norm)
            expected = term_of(&c, &s).post_gain;
        else if (strstr(q->name, "norm_pre") && is_one(c.layout, "lns-gain"))
            expected = 1 / sqrt(q->layer);
        else if (strstr(q->name, "q_norm") && is_one(c.layout, "respost"))
            expected = 10 / sqrt(4); /* cosine attention with factor 10 */
        else if (is_named(m.graph, p, "attn.gain") || is_named(m.graph, p, "ffn.gain"))
            expected = is_one(c.layout, "layerscale") ? 1e-6 : 0;
        else if (is_named(m.graph, p, "attn.shrink") || is_named(m.graph, p, "ffn.shrink"))
            expected = 0;
        assert_filled(&m, p, expected);
    }
    static const struct {
        const char *layout, *name;
        double gain, tolerance;
    } known[] = {
        {"sandwich-depth", "layers.1.attn.norm_post.gain", 0.1290994, 5e-8},
        {"sandwich-depth", "layers.60.ffn.norm_post.gain", 0.1290994, 5e-8},
        {"sandwich-l", "layers.1.attn.norm_post.gain", 1, 1e-15},
        {"sandwich-l", "layers.60.ffn.norm_post.gain", 0.1290994, 5e-8},
        {"sandwich-l", "layers.4.ffn.norm_post.gain", 0.5, 1e-15},
        {"pangu", "layers.7.attn.norm_post.gain", 0.03654, 5e-6},
        {"pangu", "layers.7.ffn.norm_post.gain", 0.05577, 5e-6},
    };
    for (int i = 0; i < COUNT(known); i++)
        if (is_one(c.layout, known[i].layout)) {
            const int p = find_param(m.graph, known[i].name);
            ck_assert_int_ge(p, 0);
            double *w = param_of(&m, p);
            assert_near(w[0], known[i].gain, known[i].tolerance);
            free(w);
        }
    nh_model_destroy(&m);
}
END_TEST

/** The schedules of N2 that are mistaken for one another, at L = 6, 12, 24, 60. */
START_TEST(depth_gain_of_another_schedule)
{
    static const struct {
        const char *layout;
        double factor; /**< pangu: c = factor L^power */
        double power;
        double rms[4];
    } schedules[] = {
        {"sandwich-depth", 0, 0, {1.732, 1.732, 1.732, 1.732}},
        {"sandwich", 0, 0, {3.61, 5, 7, 11}},
        {"pangu", 1, -0.5, {1.155, 1.080, 1.041, 1.017}}, /* 1/L */
        {"sandwich-l", 0, 0, {2.43, 2.68, 2.92, 3.22}},
        {"pangu", M_SQRT1_2, 0, {1.414, 1.414, 1.414, 1.414}}, /* 1/sqrt(2L) */
    };
    static const int depths[] = {6, 12, 24, 60};
    const int which = _i / COUNT(depths), depth = depths[_i % COUNT(depths)];
    const double expected = schedules[which].rms[_i % COUNT(depths)];
    char words[160];
    snprintf(words, sizeof words, "--layout %s --depth %d --width 64 --seq 32 --vocab 512 --embed-rms 1 --eps 1e-8",
             schedules[which].layout, depth);
    struct nh_config c = config_of(words);
    if (schedules[which].factor > 0)
        c.knobs[0] = c.knobs[1] = schedules[which].factor * pow(depth, schedules[which].power);
    const double rms = final_rms(&c);
    printf("# %s, N2 schedule %d, L %d, one seed: final RMS %.3f, law %.3f\n", schedules[which].layout, which, depth,
           rms, expected);
    assert_near(rms, expected, 0.12 * expected); /* one seed scatters that far */
    if (which > 0)
        ck_assert_double_gt(fabs(rms / sqrt(3) - 1), 0.12);
}
END_TEST

START_TEST(post_fraction_loses_a_layer)
{
    static const struct {
        double fraction;
        int depth, post;
    } cases[] = {{0.25, 12, 3},  {0.25, 60, 15}, {0.25, 11, 2}, {0.29, 100, 29},
                 {0.58, 50, 29}, {0.7, 10, 7},   {1, 5, 5},     {0, 5, 0}};
    for (int i = 0; i < COUNT(cases); i++) {
        struct nh_config c = config_of("--layout mix-ln --width 4 --heads 2");
        struct nh_graph *g;
        c.depth = cases[i].depth, c.knobs[0] = cases[i].fraction;
        must(nh_graph_build(&g, &c, 1, 2, 8));
        int post = 0;
        for (int p = 0; p < g->n_params; p++)
            post += is_named(g, p, "attn.norm_post.gain");
        ck_assert_int_eq(post, cases[i].post);
        nh_graph_free(g);
    }
}
END_TEST

/* ---- start weights ---- */

/** Factors that belong to a layout, at 12 layers: on V, O and the FFN, and on the stream in the residual add. */
static const struct {
    const char *layout;
    double weights, skip;
} constants[] = {{"deepnorm", 0.3194716, 2.2133638},
                 {"deepnorm-glm", 0.2041241, 4.8989795},
                 {"keel", 1, 24},
                 {"subln", 1.7827087, 1}};

static double deviation(const double *w, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += w[i] * w[i];
    return sqrt(s / (double)n);
}

/** The order of the rows of a matrix that holds several. */
static enum nh_weight weight_of(const struct nh_graph *g, int p, int part)
{
    static const enum nh_weight qkv[] = {NH_W_Q, NH_W_K, NH_W_V};
    return is_named(g, p, "attn.qkv")               ? qkv[part]
           : is_named(g, p, "attn.out")             ? NH_W_O
           : is_named(g, p, "ffn.out")              ? NH_W_OUT
           : g->params[p].n_parts == 2 && part == 0 ? NH_W_GATE
                                                    : NH_W_IN;
}

START_TEST(layout_factor_on_another_matrix)
{
    static const char *const inits[] = {"--init unit", "--init xavier --ffn swiglu", "--init unit --kv-heads 2"};
    char words[128];
    snprintf(words, sizeof words, "--depth 12 --width 32 %s", inits[_i % 3]);
    struct nh_config c = layout_config(_i / 3, words), plain = c;
    plain.layout = layout_named("pre");
    double factor = 1;
    for (int i = 0; i < COUNT(constants); i++)
        if (is_one(c.layout, constants[i].layout))
            factor = constants[i].weights;
    struct nh_model m = model_of(&c, false);
    int seen = 0;
    for (int p = 0; p < m.graph->n_params; p++) {
        const struct nh_param *q = &m.graph->params[p];
        if (q->layer < 1 || q->layer > 12 || q->part[0].std <= 0)
            continue;
        const struct nh_pos pos = {q->layer, 12, NH_ATTN};
        double *w = param_of(&m, p), *at = w;
        for (int i = 0; i < q->n_parts; i++, seen++) {
            const enum nh_weight weight = weight_of(m.graph, p, i);
            const size_t n = (size_t)q->part[i].rows * (size_t)q->cols;
            const double own = !is_known(c.layout) && c.layout->weight_gain
                                   ? c.layout->weight_gain(weight, &pos, c.knobs)
                                   : (weight == NH_W_Q || weight == NH_W_K ? 1 : factor);
            const double expected = own * nh_weight_std(&plain, weight, &pos), std = deviation(at, n);
            if (fabs(std / expected - 1) > 4 / sqrt(2 * (double)n)) /* 4 standard errors */
                ck_abort_msg("%s, part %d: deviation %g, not %g", q->name, i, std, expected);
            at += n;
        }
        free(w);
    }
    ck_assert_int_eq(seen, 12 * (c.ffn == NH_FFN_SWIGLU ? 7 : 6));
    nh_model_destroy(&m);
}
END_TEST

/** Factor on the stream in a step's residual add, as the tape has it; NaN where no add reads the stream. */
static double skip_of(const struct nh_graph *g, const struct nh_step *s)
{
    const struct nh_rec *gain = skip_gain_of(g, s);
    const nh_val stream = gain ? gain->out : s->before[0];
    for (int r = s->first_rec; r < s->end_rec; r++)
        if (g->recs[r].op == NH_OP_AXPBY && g->recs[r].in[0] == stream && g->recs[r].in[1] >= 0)
            return g->recs[r].u.axpby.a;
    return (double)NAN;
}

START_TEST(skip_factor_missing)
{
    struct nh_config c = layout_config(_i, "--depth 12 --width 16");
    double expected = 1;
    for (int i = 0; i < COUNT(constants); i++)
        if (is_one(c.layout, constants[i].layout))
            expected = constants[i].skip;
    struct nh_graph *g;
    must(nh_graph_build(&g, &c, 1, 4, 8));
    for (int k = 1; is_inner(g, k); k++) {
        const struct nh_law_term t = term_of(&c, &g->steps[k]);
        if (t.norm_skip && c.layout->sublayer) /* the add reads the normed stream */
            ck_assert(isnan(skip_of(g, &g->steps[k])));
        else
            assert_near(skip_of(g, &g->steps[k]), is_known(c.layout) ? expected : t.skip, 5e-8);
    }
    nh_graph_free(g);
}
END_TEST

/* ---- measured starts ---- */

static double variance_of(const struct nh_model *m, nh_val v)
{
    double *x = value_of(m, v), mean = 0, sum = 0;
    const size_t n = value_size(m->graph, v);
    for (size_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean) / (double)n;
    free(x);
    return sum;
}

/** Every w_k of a model against these, as its format rounds them. */
static void assert_starts(const struct nh_model *m, const double *expected, const char *name)
{
    const struct nh_graph *g = m->graph;
    for (int k = 1; is_inner(g, k); k++) {
        const struct nh_rec *r = skip_gain_of(g, &g->steps[k]);
        ck_assert_ptr_nonnull(r);
        const struct nh_fmt *f = &g->fmt[g->params[r->par[0]].role];
        const double unit = fmax(ldexp(1, -f->man_bits - 1), 1e-14); /* rounding, and the order of sums in fp64 */
        double *w = param_of(m, r->par[0]);
        for (int i = 0; i < g->params[r->par[0]].cols; i++)
            if (!(fabs(w[i] / expected[k] - 1) <= unit))
                ck_abort_msg("%s: w of step %d starts at %.17g, not at %.17g", name, k, w[i], expected[k]);
        free(w);
    }
}

/** w_k^2 = 1 + sum_{j<k} Var f_j, all f_j of one pass with every w at 1, which is post bit by bit: in every format, and
 * in the twin of that format, from the same numbers, though the layout's own pass differs from it. */
START_TEST(measured_start_of_another_pass)
{
    enum { STEPS = 2 * 5 };
    static const char *const words[] = {"--init xavier", "--init unit --norm layer --ffn swiglu",
                                        "--init unit --qk-norm --embed-rms 3"};
    char all[256];
    snprintf(all, sizeof all, "--layout admin --depth 5 --width 32 --vocab 64 --dtype fp64 %s", words[_i]);
    const struct nh_config c = config_of(all);
    struct nh_config plain = c;
    plain.layout = layout_named("post");
    struct nh_model m = model_of(&c, false), post = model_of(&plain, false);
    post.core->forward(post.exec);
    double expected[STEPS + 1] = {0}, sum = 1, apart = 0;
    for (int k = 1; k <= STEPS; k++) {
        expected[k] = sqrt(sum);
        sum += variance_of(&post, post.graph->steps[k].raw);
    }
    assert_starts(&m, expected, "fp64");
    m.core->forward(m.exec);
    for (int k = 2; k <= STEPS; k++)
        apart = fmax(apart,
                     fabs(variance_of(&m, m.graph->steps[k].raw) / variance_of(&post, post.graph->steps[k].raw) - 1));
    ck_assert_double_gt(apart, 1e-3);
    ck_assert_int_eq(fill_params(&m, "attn.skip", 1) + fill_params(&m, "ffn.skip", 1), STEPS);
    m.core->forward(m.exec);
    assert_same_value(&m, m.graph->logits, &post, post.graph->logits, "logits", 0);
    nh_model_destroy(&m);
    static const char *const others[] = {"fp32", "fp16", "bf16"};
    for (int i = 0; i < COUNT(others); i++) {
        struct nh_config other = c, twin;
        must(nh_fmt_parse(&other.dtype, others[i]));
        nh_config_shadow(&twin, &other);
        m = model_of(&other, false);
        assert_starts(&m, expected, others[i]);
        nh_model_destroy(&m);
        m = model_of(&twin, false);
        assert_starts(&m, expected, "twin");
        nh_model_destroy(&m);
    }
    nh_model_destroy(&post);
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    keep_memory();
    const int n = n_layouts();
    Suite *suite = suite_create("layout_gains");
    TCase *tc = tcase_create("layout_gains");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, norms_miscounted);
    tcase_add_loop_test(tc, trained_factor_missing, 0, n);
    tcase_add_loop_test(tc, gain_of_another_norm, 0, n);
    tcase_add_loop_test(tc, depth_gain_of_another_schedule, 0, 20);
    tcase_add_test(tc, post_fraction_loses_a_layer);
    tcase_add_loop_test(tc, layout_factor_on_another_matrix, 0, 3 * n);
    tcase_add_loop_test(tc, skip_factor_missing, 0, n);
    tcase_add_loop_test(tc, measured_start_of_another_pass, 0, 3);
    return run_suite(suite, tc);
}
