// SPDX-License-Identifier: GPL-3.0-or-later
/** Whole models at their start: norms, gains and deviations of known cases, overflow by depth, the loss; and the libraries below. */
#include "tests/property/model_bits.h"

static double rms_of(const struct nh_model *m, nh_val v)
{
    struct nh_moments x = m->core->moments(m->exec, v);
    return sqrt(x.sum_sq / x.n);
}

/** RMS of the stream behind the last sublayer. */
static double final_rms(const struct nh_model *m)
{
    return rms_of(m, m->graph->steps[m->graph->n_steps - 2].after[0]);
}

static double run_for_rms(const struct nh_config *c)
{
    struct nh_model m = model_of(c, false);
    m.core->forward(m.exec);
    double rms = final_rms(&m);
    nh_model_destroy(&m);
    return rms;
}

/* ---- norms, gains, deviations ---- */

START_TEST(norms_miscounted)
{
    static const struct {
        const char *layout;
        int a_layer, at_the_end;
    } norms[] = {{"pre", 2, 1},        {"post", 2, 0},     {"sandwich", 4, 1}, {"sandwich-depth", 4, 1},
                 {"sandwich-l", 4, 1}, {"reordered", 2, 1}};
    for (int depth = 1; depth <= 12; depth += 11) {
        char words[64];
        snprintf(words, sizeof words, "--layout %s --depth %d --width 16", norms[_i].layout, depth);
        struct nh_config c = config_of(words);
        struct nh_model m = model_of(&c, false);
        int gains = 0, twice = 0, expected = norms[_i].a_layer * depth + norms[_i].at_the_end;
        for (int p = 0; p < m.graph->n_params; p++) {
            const char *end = strstr(m.graph->params[p].name, ".gain");
            gains += end != NULL;
            for (int q = 0; end && q < p; q++) /* each is a vector of its own */
                twice += strcmp(m.graph->params[q].name, m.graph->params[p].name) == 0;
        }
        ck_assert_int_eq(gains, expected);
        ck_assert_int_eq(twice, 0);
        ck_assert_int_eq(m.graph->n_norms, expected);
        nh_model_destroy(&m);
    }
}
END_TEST

static void assert_gain(const struct nh_model *m, int param, double expected)
{
    double *w = param_of(m, param);
    int wrong = 0;
    ck_assert_int_eq(m->graph->params[param].cols, 16);
    for (int i = 0; i < 16; i++)
        wrong += w[i] != expected;
    ck_assert_int_eq(wrong, 0);
    free(w);
}

START_TEST(depth_gain_on_another_norm)
{
    static const char *const dtypes[] = {"fp64", "fp32", "fp16", "bf16"};
    char words[96];
    snprintf(words, sizeof words, "--layout %s --depth 60 --width 16 --dtype %s",
             _i / 4 ? "sandwich-l" : "sandwich-depth", dtypes[_i % 4]);
    struct nh_config c = config_of(words);
    struct nh_model m = model_of(&c, false);
    for (int p = 0; p < m.graph->n_params; p++) {
        int l = _i / 4 ? m.graph->params[p].layer : 60;
        if (is_named(m.graph, p, "attn.norm_post.gain") || is_named(m.graph, p, "ffn.norm_post.gain"))
            assert_gain(&m, p, nh_round(&c.dtype, 1 / sqrt(l)));
        else if (strstr(m.graph->params[p].name, ".gain"))
            assert_gain(&m, p, 1);
    }
    ck_assert_int_eq(fill_params(&m, "attn.norm_post.gain", 0) + fill_params(&m, "ffn.norm_post.gain", 0), 120);
    ck_assert_int_eq(fill_params(&m, "attn.norm_pre.gain", 0) + fill_params(&m, "ffn.norm_pre.gain", 0), 120);
    ck_assert_int_eq(fill_params(&m, "norm_final.gain", 0), 1);
    nh_model_destroy(&m);
}
END_TEST

static bool in_band(double rms)
{
    return fabs(rms / sqrt(3) - 1) <= 0.12; /* one seed scatters that far */
}

START_TEST(depth_gain_of_another_schedule)
{
    static const int depths[] = {6, 12, 24, 60};
    int depth = depths[_i];
    struct nh_config c = config_of("--layout sandwich-depth --seq 32 --batch 2 --vocab 512 --embed-rms 1");
    c.depth = depth;
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    double rms = final_rms(&m);
    printf("# sandwich-depth, L %d, one seed: final RMS %.3f\n", depth, rms);
    ck_assert(in_band(rms));
    /* what others have built by mistake lies outside the band */
    const double wrong[] = {1, 1. / depth, 1 / sqrt(2. * depth)};
    for (int i = 0; i < COUNT(wrong) && depth < 60; i++) {
        ck_assert_int_eq(fill_params(&m, "attn.norm_post.gain", wrong[i]) +
                             fill_params(&m, "ffn.norm_post.gain", wrong[i]),
                         2 * depth);
        m.core->forward(m.exec);
        ck_assert(!in_band(final_rms(&m)));
    }
    nh_model_destroy(&m);
    if (depth == 60)
        return;
    struct nh_config l = config_of("--layout sandwich-l --seq 32 --batch 2 --vocab 512 --embed-rms 1");
    l.depth = depth;
    ck_assert(!in_band(run_for_rms(&l)));
}
END_TEST

START_TEST(one_layer_schedules_differ)
{
    static const char *const names[] = {"sandwich-depth", "sandwich-l"};
    static const char *const words[] = {"--depth 1 --dtype fp16", "--depth 1 --dtype fp32 --norm layer",
                                        "--depth 1 --dtype fp64"};
    char with_layout[96];
    struct nh_config c = config_of(words[_i % 3]);
    for (int i = 0; nh_layouts[i]; i++)
        if (strcmp(nh_layouts[i]->name, "sandwich") == 0)
            c.layout = nh_layouts[i];
    struct bits sandwich = run_for_bits(&c);
    snprintf(with_layout, sizeof with_layout, "--layout %s %s", names[_i / 3], words[_i % 3]);
    c = config_of(with_layout);
    struct bits other = run_for_bits(&c);
    assert_same(&sandwich, &other);
    bits_free(&sandwich), bits_free(&other);
}
END_TEST

START_TEST(stream_of_post_is_not_normed)
{
    struct nh_config c = config_of("--layout post --depth 12 --seq 32 --dtype fp64 --eps 1e-12");
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    for (int k = 1; k <= 24; k++) {
        assert_near(rms_of(&m, m.graph->steps[k].after[0]), 1, 1e-9);
        ck_assert_double_gt(rms_of(&m, m.graph->steps[k].branch[0]), 0.1); /* not for want of a branch */
    }
    nh_model_destroy(&m);
}
END_TEST

/** Sample deviation of the rows [row, row + rows) of a parameter. */
static double std_of(const struct nh_model *m, int param, int row, int rows)
{
    double *w = param_of(m, param), sum = 0;
    size_t cols = (size_t)m->graph->params[param].cols, first = (size_t)row * cols, n = (size_t)rows * cols;
    for (size_t i = first; i < first + n; i++)
        sum += w[i] * w[i];
    free(w);
    return sqrt(sum / (double)n);
}

START_TEST(projection_init_on_another_tensor)
{
    struct nh_config c = layout_config(_i, "--init gpt2 --ffn swiglu --depth 12 --width 64 --vocab 64");
    if (c.layout->weight_gain) /* its own factor comes on top */
        return;
    struct nh_model m = model_of(&c, false);
    int projections = 0, others = 0;
    for (int p = 0; p < m.graph->n_params; p++) {
        const struct nh_param *param = &m.graph->params[p];
        if (param->part[0].std <= 0) /* starts at a constant; what is missed here is missing in the counts below */
            continue;
        bool projection = is_named(m.graph, p, "attn.out") || is_named(m.graph, p, "ffn.out");
        int row = 0;
        for (int part = 0; part < param->n_parts; row += param->part[part].rows, part++) {
            double std = std_of(&m, p, row, param->part[part].rows),
                   expected = projection ? 0.0040825 : 0.02; /* 0.02/sqrt(24) */
            if (fabs(std / expected - 1) > 0.05)             /* 4096 numbers: 4 standard errors are 4.4 % */
                ck_abort_msg("%s, part %d: deviation %g, not %g", param->name, part, std, expected);
            projections += projection, others += !projection;
        }
    }
    ck_assert_int_eq(projections, 24);
    ck_assert_int_eq(others, 12 * 5 + 2); /* q k v, gate, up; embedding and head */
    nh_model_destroy(&m);
}
END_TEST

/* ---- overflow by depth ---- */

static struct nh_model constant_branches(int depth, const char *dtype)
{
    char words[96];
    snprintf(words, sizeof words, "--layout sandwich --norm layer --depth %d --width 32 --seq 4 --dtype %s", depth,
             dtype);
    struct nh_config c = config_of(words);
    struct nh_model m = model_of(&c, false);
    ck_assert_int_eq(fill_params(&m, "embed", 0), 1);
    ck_assert_int_eq(fill_params(&m, "attn.norm_post.gain", 0) + fill_params(&m, "ffn.norm_post.gain", 0), 2 * depth);
    ck_assert_int_eq(fill_params(&m, "attn.norm_post.bias", 1024) + fill_params(&m, "ffn.norm_post.bias", 1024),
                     2 * depth);
    return m;
}

/** Every sublayer adds 1024: 63 of them reach 64512, the 64th 65536, which fp16 has not. */
START_TEST(overflow_by_depth_in_another_layer)
{
    static const struct {
        int depth;
        const char *dtype;
        bool overflows;
    } cases[] = {{31, "fp16", false}, {32, "fp16", true},   {32, "bf16", false},
                 {32, "fp32", false}, {31, "e5m10", false}, {32, "e5m10", true}};
    int depth = cases[_i].depth;
    struct nh_model m = constant_branches(depth, cases[_i].dtype);
    const struct nh_graph *g = m.graph;
    double loss = m.core->forward(m.exec);
    const struct nh_counts *counts = m.core->counts(m.exec);
    struct nh_first first = m.core->first(m.exec, NH_FWD);
    nh_val last = g->steps[2 * depth].after[0];
    uint64_t all = value_size(g, last);
    for (int s = 0; s < g->n_sites; s++) {
        bool there =
            g->sites[s].layer == depth && g->sites[s].sublayer == NH_SUB_FFN && g->sites[s].name == NH_SITE_RESIDUAL;
        const struct nh_counts *c = &counts[s * NH_DIRECTIONS + NH_FWD];
        ck_assert_uint_eq(c->overflow, there && cases[_i].overflows ? all : 0);
        if (g->sites[s].layer <= depth || !cases[_i].overflows)
            ck_assert_uint_eq(c->nan_made + c->propagated, 0);
        else if (g->sites[s].name == NH_SITE_NORM_FINAL) /* inf - inf */
            ck_assert_uint_eq(c->nan_made, all);
        else if (g->sites[s].name != NH_SITE_LOSS &&
                 g->sites[s].name != NH_SITE_WEIGHT) /* a loss is 0 without a target */
            ck_assert_uint_eq(c->propagated, c->total);
    }
    if (cases[_i].overflows) {
        ck_assert_int_eq(first.kind, NH_OVERFLOW);
        ck_assert_int_eq(g->sites[first.site].layer, 32);
        ck_assert_int_eq(g->sites[first.site].sublayer, NH_SUB_FFN);
        ck_assert_int_eq(g->sites[first.site].name, NH_SITE_RESIDUAL);
        ck_assert_uint_eq(first.index, 0);
        ck_assert_double_eq(first.value, 65536);
        ck_assert(!isfinite(loss));
    } else {
        ck_assert_int_eq(first.kind, NH_NO_OFFENCE);
        ck_assert(isfinite(loss));
        struct nh_moments x = m.core->moments(m.exec, last);
        ck_assert_double_eq(x.max_abs, 2048 * depth);
        ck_assert_double_eq(x.sum_sq, (double)all * (2048. * depth) * (2048. * depth));
    }
    nh_model_destroy(&m);
}
END_TEST

/** A start weight beyond the format is the first offender, not the norm that reads it. */
START_TEST(overflow_of_a_weight_unseen)
{
    struct nh_config c = config_of("--depth 2 --width 32 --vocab 40 --dtype e4m10 --embed-rms 100");
    struct nh_model m = model_of(&c, false);
    double loss = m.core->forward(m.exec);
    struct nh_first first = m.core->first(m.exec, NH_FWD);
    ck_assert(!isfinite(loss));
    ck_assert_int_eq(first.kind, NH_OVERFLOW);
    ck_assert_int_eq(m.graph->sites[first.site].layer, 0);
    ck_assert_int_eq(m.graph->sites[first.site].name, NH_SITE_WEIGHT);
    ck_assert_double_ge(fabs(first.value), 255.9);
    nh_model_destroy(&m);
}
END_TEST

START_TEST(random_directions_overflow_too)
{
    struct nh_config c = config_of("--layout sandwich --depth 32 --width 64 --seq 16 --dtype fp16 --post-gain 1024");
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    ck_assert_int_eq(m.core->first(m.exec, NH_FWD).kind, NH_NO_OFFENCE);
    assert_near(final_rms(&m), 8192, 0.15 * 8192); /* 1024 sqrt(2L); 65504 is 8 deviations away */
    nh_model_destroy(&m);
}
END_TEST

/* ---- loss ---- */

START_TEST(empty_mean_is_nan)
{
    static const char *const words[] = {"--depth 2 --seq 1 --dtype fp16", "--depth 2 --seq 1 --dtype fp64",
                                        "--depth 2 --seq 1 --batch 1"};
    struct nh_config c = layout_config(_i / COUNT(words), words[_i % COUNT(words)]);
    struct nh_model m = model_of(&c, true);
    ck_assert_double_eq(m.core->forward(m.exec), 0);
    m.core->backward(m.exec, 65536, NULL);
    struct bits b = bits_of(&m, 0);
    size_t broken = 0, moved = 0;
    for (size_t i = 0; i < b.n; i++)
        broken += isfinite(b.numbers[i]) ? 0 : 1;
    ck_assert_uint_eq(broken, 0);
    for (int p = 0; p < m.graph->n_params; p++) {
        double *g = zeros(param_size(m.graph, p), sizeof *g);
        m.core->read_param_grad(m.exec, p, g);
        for (size_t i = 0; i < param_size(m.graph, p); i++)
            moved += g[i] != 0;
        free(g);
    }
    ck_assert_uint_eq(moved, 0);
    for (int d = 0; d < NH_DIRECTIONS; d++)
        ck_assert_int_eq(b.first[d].kind, NH_NO_OFFENCE);
    struct nh_rows rows = probed("grad", &c, &m, NULL, 65536);
    for (int k = 0; k < m.graph->n_steps; k++)
        ck_assert_double_eq(cell(&rows, k, NH_LAYERS_GRAD_RMS), 0);
    rows_free(&rows);
    bits_free(&b);
    nh_model_destroy(&m);
}
END_TEST

/** Logits of variance s^2: ln V + s^2/2. */
START_TEST(loss_at_the_start)
{
    static const struct {
        const char *init;
        double variance;
    } heads[] = {{"unit", 1}, {"gpt2", 0.0004 * 128}, {"trinity", 0.2433}};
    enum { SEEDS = 8 };
    int which = _i / n_layouts();
    char words[128];
    snprintf(words, sizeof words, "--depth 2 --width 128 --seq 64 --batch 4 --vocab 512 --init %s --eps 1e-12",
             heads[which].init);
    struct nh_config c = layout_config(_i % n_layouts(), words);
    if (!is_classic(c.layout)) /* RMS 1 before the head */
        return;
    double sum = 0, expected = log(512) + heads[which].variance / 2;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        c.seed = c.data_seed = seed;
        struct nh_model m = model_of(&c, false);
        sum += m.core->forward(m.exec) / SEEDS;
        nh_model_destroy(&m);
    }
    printf("# %s, %s head: loss %.4f, expected %.4f, ln V %.4f\n", c.layout->name, heads[which].init, sum, expected,
           log(512));
    assert_near(sum, expected, 0.1 * sqrt(heads[which].variance)); /* 2016 targets: 4 standard errors */
}
END_TEST

/* ---- compilers and libraries ---- */

static int compile(const char *compiler, const char *flags)
{
    const char *data = getenv("NH_TEST_DATA"); /* ROOT/tests/data */
    char command[1024];
    snprintf(command, sizeof command,
             "cd '%s/../..' && %s -std=c17 -D_GNU_SOURCE -I. %s -fsyntax-only harness/core/round.c >/dev/null 2>&1",
             data, compiler, flags);
    return system(command);
}

START_TEST(fast_math_is_built)
{
    static const char *const compilers[] = {"gcc", "clang", "cc"};
    static const char *const flags[] = {"-ffast-math", "-Ofast", "-ffinite-math-only"};
    for (int i = 0; getenv("NH_TEST_DATA") && i < COUNT(compilers); i++) {
        if (compile(compilers[i], "-O2") != 0) /* not there */
            continue;
        for (int k = 0; k < COUNT(flags); k++)
            if (compile(compilers[i], flags[k]) == 0)
                ck_abort_msg("%s %s compiles round.c", compilers[i], flags[k]);
    }
}
END_TEST

START_TEST(gsl_aborts)
{
    gsl_matrix *wide = gsl_matrix_calloc(2, 3), *v = gsl_matrix_alloc(3, 3);
    gsl_vector *s = gsl_vector_alloc(3), *work = gsl_vector_alloc(3);
    ck_assert_int_eq(gsl_linalg_SV_decomp(wide, v, s, work), GSL_EUNIMPL);
    gsl_matrix_free(wide), gsl_matrix_free(v), gsl_vector_free(s), gsl_vector_free(work);
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    keep_memory();
    Suite *suite = suite_create("model_start");
    TCase *tc = tcase_create("model_start");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, norms_miscounted, 0, 6);
    tcase_add_loop_test(tc, depth_gain_on_another_norm, 0, 8);
    tcase_add_loop_test(tc, depth_gain_of_another_schedule, 0, 4);
    tcase_add_loop_test(tc, one_layer_schedules_differ, 0, 6);
    tcase_add_test(tc, stream_of_post_is_not_normed);
    tcase_add_loop_test(tc, projection_init_on_another_tensor, 0, n_layouts());
    tcase_add_loop_test(tc, overflow_by_depth_in_another_layer, 0, 6);
    tcase_add_test(tc, overflow_of_a_weight_unseen);
    tcase_add_test(tc, random_directions_overflow_too);
    tcase_add_loop_test(tc, empty_mean_is_nan, 0, 3 * n_layouts());
    tcase_add_loop_test(tc, loss_at_the_start, 0, 3 * n_layouts());
    tcase_add_test(tc, fast_math_is_built);
    tcase_add_test(tc, gsl_aborts);
    return run_suite(suite, tc);
}
