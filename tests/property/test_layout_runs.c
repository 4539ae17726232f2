// SPDX-License-Identifier: GPL-3.0-or-later
/** Layouts at work: laws, gradients, scores, counters and the rows of a run, over the registry. */
#include "harness/cli/cli.h"
#include "harness/core/check_laws.h"
#include "harness/core/law.h"
#include "results/reader.h"
#include "tests/property/layout_steps.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <ftw.h>
#include <gsl/gsl_errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- QK-norm ---- */

static const struct nh_counts *counts_at(const struct nh_model *m, int layer, enum nh_site_name name)
{
    for (int s = 0; s < m->graph->n_sites; s++)
        if (m->graph->sites[s].layer == layer && m->graph->sites[s].name == name)
            return &m->core->counts(m->exec)[s * NH_DIRECTIONS + NH_FWD];
    return NULL;
}

/** Multiplies W_Q and W_K of all layers. */
static void scale_queries_and_keys(struct nh_model *m, double factor)
{
    for (int p = 0; p < m->graph->n_params; p++) {
        const struct nh_param *q = &m->graph->params[p];
        if (!is_named(m->graph, p, "attn.qkv"))
            continue;
        double *w = param_of(m, p);
        for (int i = 0; i < (q->part[0].rows + q->part[1].rows) * q->cols; i++)
            w[i] *= factor;
        m->core->set_param(m->exec, p, w);
        free(w);
    }
}

/** Scores under QK-norm stay below sqrt(head width) whatever W_Q and W_K are; without it they grow with both. */
START_TEST(qk_norm_lets_scores_grow)
{
    static const char words[] = "--depth 3 --width 64 --heads 2 --dtype fp64 --eps 1e-12";
    const struct nh_config c = _i % 2 ? with_qk_norm(_i / 2, words) : layout_config(_i / 2, words);
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    const bool normed = counts_at(&m, 1, NH_SITE_QK_NORM) != NULL;
    ck_assert(normed || _i % 2 == 0);
    const double before = counts_at(&m, 1, NH_SITE_SCORES)->max_abs;
    double *logits = value_of(&m, m.graph->logits);
    scale_queries_and_keys(&m, 1024);
    m.core->forward(m.exec);
    const double after = counts_at(&m, 1, NH_SITE_SCORES)->max_abs;
    if (normed) {
        double *moved = value_of(&m, m.graph->logits);
        ck_assert_double_le(distance(moved, logits, value_size(m.graph, m.graph->logits)), 1e-9); /* eps */
        free(moved);
        for (int l = 1; l <= 3; l++) {
            const double most = counts_at(&m, l, NH_SITE_SCORES)->max_abs;
            const double limit = is_one(c.layout, "respost") ? 10 : sqrt(32); /* its attention is cosine, factor 10 */
            ck_assert_double_le(most, limit * (1 + 1e-12));
            ck_assert_double_gt(most, 0.5);
        }
    } else {
        ck_assert_double_eq(after, before * 0x1p20);
    }
    free(logits);
    nh_model_destroy(&m);
}
END_TEST

/* ---- every parameter counts ---- */

static double norm_of_grad(const struct nh_model *m, int p, size_t from, size_t n)
{
    double *g = param_grad_of(m, p), s = 0;
    for (size_t i = from; i < from + n; i++)
        s += g[i] * g[i];
    free(g);
    return sqrt(s);
}

/** Largest gradient of a part of a parameter relative to that of all of them; *silent counts the parts without one. */
static int count_silent(struct nh_model *m, char name[64])
{
    const struct nh_graph *g = m->graph;
    m->core->forward(m->exec);
    m->core->backward(m->exec, 1, NULL);
    double all = 0;
    for (int p = 0; p < g->n_params; p++)
        all = hypot(all, norm_of_grad(m, p, 0, param_size(g, p)));
    int silent = 0;
    for (int p = 0; p < g->n_params; p++) {
        size_t from = 0;
        for (int i = 0; i < g->params[p].n_parts; i++) {
            const size_t n = (size_t)g->params[p].part[i].rows * (size_t)g->params[p].cols;
            if (!(norm_of_grad(m, p, from, n) > 1e-9 * all)) {
                silent++;
                snprintf(name, 64, "%.48s, part %d", g->params[p].name, i);
            }
            from += n;
        }
    }
    return silent;
}

/** In rezero, and in respost with its start gain of 0, the branch is multiplied by a trained zero: all that is inside
 * has no gradient until that zero has moved, and it moves first, because its own gradient is branch times cotangent.
 * gpas starts with silu(a) = 0 too, but the slope of silu there is 1/2. */
START_TEST(parameter_without_gradient)
{
    const struct nh_config c =
        _i % 2
            ? with_qk_norm(_i / 2, "--depth 3 --width 16 --heads 2 --kv-heads 1 --dtype fp64 --ffn swiglu --norm layer")
            : layout_config(_i / 2, "--depth 3 --width 16 --heads 2 --dtype fp64");
    struct nh_model m = model_of(&c, true);
    char name[64] = "";
    const int silent = count_silent(&m, name);
    if (!starts_silent(&c, m.graph)) {
        if (silent)
            ck_abort_msg("%d of the parameters have no gradient: %s", silent, name);
    } else {
        int inside = 0;
        for (int p = 0; p < m.graph->n_params; p++) {
            const struct nh_param *q = &m.graph->params[p];
            const bool zero =
                is_named(m.graph, p, "attn.gain") || is_named(m.graph, p, "ffn.gain") || strstr(q->name, "norm_post");
            if (q->layer >= 1 && q->layer <= 3 && !zero)
                inside += q->n_parts;
        }
        ck_assert_int_eq(silent, inside);
        int moved = fill_params(&m, "attn.gain", 0.5) + fill_params(&m, "ffn.gain", 0.5);
        moved += fill_params(&m, "attn.norm_post.gain", 0.5) + fill_params(&m, "ffn.norm_post.gain", 0.5);
        ck_assert_int_eq(moved, 6);
        ck_assert_int_eq(count_silent(&m, name), 0);
    }
    nh_model_destroy(&m);
}
END_TEST

/* ---- the law ---- */

/** One depth, some seeds, both streams, behind the last sublayer and the one before: a wrong term is off by more than
 *  narrow models are. Where a branch reads two streams at once, un-normed, its scores would be beyond the law of
 *  attention (docs/laws.md, section 5): there attention is uniform. */
START_TEST(law_of_another_layout)
{
    enum { FEW = 5 };
    struct nh_config c =
        layout_config(_i, "--depth 8 --width 64 --seq 16 --batch 4 --pos nope --eps 1e-8 --embed-rms 1 --threads 2");
    const struct nh_law_term first = term_of(&c, &(struct nh_step){.layer = 1, .sublayer = NH_SUB_ATTN});
    c.qk_zero = first.with_second && !first.pre_norm;
    for (int i = 0; i < 2 * c.layout->n_streams; i++) {
        struct nh_law_check x;
        must(nh_check_law(&c, FEW, i % 2, i / 2, &x));
        printf("# %s, stream %d, L 8, %d before the end: RMS %.4f +- %.4f, law %.4f\n", c.layout->name, i / 2, i % 2,
               x.rms, x.se, x.law);
        if (c.layout->law_term)
            assert_near(x.rms, x.law, fmax(0.06 * x.law, 4 * x.se));
        else
            ck_assert(isnan(x.law));
    }
}
END_TEST

/** Two independent tokens of mean square r0^2, uniform attention, ReLU. Attention makes of a Gram matrix Y with the
 *  diagonal d and zeros beside it one with d, d/2 on the diagonal; the FFN makes d/2 of d. */
START_TEST(law_by_hand)
{
    const double product =
        0.5 + 1 / (2 * M_PI); /* parallel: behind layer 1, of the two tokens; the FFN reads cosine 0 */
    const double cosine = product / sqrt(2.5 * 2);
    /* siamese: behind attention x and y have mean squares 8.5 and 13 of one token, 6.25 and 8.5 of the other */
    const double half = M_SQRT1_2;
    const double read[] = {2 + 2 * (4 + 9 * half) / sqrt(8.5 * 13), 2 + 2 * (4 + 4.5 * half) / sqrt(6.25 * 8.5)};
    const double both = 2.25 / sqrt(8.5 * 6.25) + 4.5 / sqrt(13 * 8.5) + 4.5 * half * (1 / 8.5 + 1 / sqrt(6.25 * 13));
    const struct {
        const char *words;
        double r0, q[4], second[4];
    } cases[] = {
        /* the FFN reads what attention has read: behind attention its tokens would have cosine 0.29, not 0 */
        {"--layout parallel --depth 2",
         1,
         {1.75, 2.25, 2.25 + (1 + (1 + cosine) / 2) / 2, 2.75 + (1 + (1 + cosine) / 2) / 2},
         {0}},
        /* attention reads normed values of an unnormed stream, which the FFN's skip norms */
        {"--layout hybridnorm --depth 1", 2, {4 + 0.75, 1.5}, {0}},
        /* whatever the branch makes, what W_O and W2 read has RMS 1, and what they add ln 2L */
        {"--layout subln --depth 1", 2, {4 + M_LN2, 4 + 2 * M_LN2}, {0}},
        {"--layout normformer --depth 1", 2, {5, 6}, {0}},
        /* the first branch reads the stream as it is embedded, the second one its norm */
        {"--layout residual --depth 1", 2, {1, 1}, {4 + 3, 4 + 3 + 0.5}},
        /* the first branch reads 1.5 times what is embedded, of mean square 9 */
        {"--layout siamese --depth 1", 2, {1, 1}, {4 + 6.75, 4 + 6.75 + (read[0] + read[1]) / 4}},
        {"--layout siamese --depth 2 --branches attn",
         2,
         {1, 1},
         {4 + 6.75, 4 + 6.75 + (5 * read[0] + 2 * both + read[1]) / 8}},
        {"--layout siamese --depth 1 --set input-norm=on", 2, {1, 1}, {4 + 0.75, 4 + 0.75 + 0.5}},
        {"--layout layerscale --depth 1 --set lam=0.5", 2, {4 + 0.75 / 4, 4 + 1.25 / 4}, {0}},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        char words[160];
        snprintf(words, sizeof words, "%s --width 64 --seq 2 --qk-init 0 --pos nope --eps 1e-14", cases[i].words);
        struct nh_config c = config_of(words);
        c.ffn = NH_FFN_RELU;
        const double r = cases[i].r0 * cases[i].r0, gram[4] = {r, 0, 0, r};
        double rms[4], second[4];
        must(nh_law_rms(&c, gram, rms, second));
        for (int k = 0; k < (c.branches == NH_BRANCHES_BOTH ? 2 : 1) * c.depth; k++) {
            assert_near(rms[k] * rms[k], cases[i].q[k], 1e-9);
            if (c.layout->n_streams == 2)
                assert_near(second[k] * second[k], cases[i].second[k], 1e-9);
        }
    }
}
END_TEST

/* ---- half precision ---- */

/** Values stored at each site in a forward pass. */
static uint64_t *stored_at(const struct nh_graph *g)
{
    uint64_t *n = zeros((size_t)g->n_sites, sizeof *n);
    for (int r = 0; r < g->n_recs; r++) {
        const struct nh_rec *rec = &g->recs[r];
        n[g->values[rec->out].site] += value_size(g, rec->out);
        if (rec->op == NH_OP_SDPA) {
            const uint64_t pairs = (uint64_t)(g->batch * rec->u.sdpa.heads * (g->seq * (g->seq + 1) / 2));
            n[rec->u.sdpa.site_scores] += pairs, n[rec->u.sdpa.site_probs] += pairs;
        }
    }
    for (int p = 0; p < g->n_params; p++)
        n[g->params[p].weight_site] += (uint64_t)(g->params[p].rows * g->params[p].cols);
    return n;
}

START_TEST(half_precision_miscounted)
{
    struct nh_config c = layout_config(_i, "--depth 3 --width 32 --dtype fp16");
    struct nh_model m = model_of(&c, true);
    const struct nh_graph *g = m.graph;
    const double loss = m.core->forward(m.exec);
    m.core->backward(m.exec, 1024, NULL); /* 65536 is too much for a stack without norms */
    uint64_t *expected = stored_at(g);
    const struct nh_counts *counts = m.core->counts(m.exec);
    ck_assert(isfinite(loss) && loss > 1);
    for (int s = 0; s < g->n_sites; s++) {
        const struct nh_counts *fwd = &counts[s * NH_DIRECTIONS + NH_FWD], *bwd = &counts[s * NH_DIRECTIONS + NH_BWD];
        ck_assert_uint_eq(fwd->total, expected[s]);
        ck_assert_uint_gt(fwd->total, 0);
        if (g->sites[s].name != NH_SITE_LOSS && g->sites[s].name != NH_SITE_WEIGHT)
            ck_assert_uint_gt(bwd->total, 0);
        for (int d = 0; d < NH_DIRECTIONS; d++) {
            const struct nh_counts *x = &counts[s * NH_DIRECTIONS + d];
            ck_assert_uint_eq(x->overflow + x->nan_made + x->propagated + x->zero_made, 0);
            ck_assert_double_le(x->max_abs, 65504);
            ck_assert_uint_le(x->underflow + x->subnormal, x->total);
        }
    }
    for (int p = 0; p < g->n_params; p++) /* the site of a parameter has at least its gradient */
        ck_assert_uint_ge(counts[g->params[p].site * NH_DIRECTIONS + NH_WGRAD].total, param_size(g, p));
    free(expected);
    nh_model_destroy(&m);
}
END_TEST

/* ---- rows of a real run ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/** `harness run` with its talk out of the way. */
static int run_quietly(int argc, char **argv)
{
    fflush(stdout);
    const int keep = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ck_assert(keep >= 0 && null >= 0);
    dup2(null, STDOUT_FILENO);
    const int status = nh_cmd_run(argc, argv);
    fflush(stdout);
    dup2(keep, STDOUT_FILENO);
    close(keep), close(null);
    return status;
}

static struct nh_reader *table(const char *dir, const char *name)
{
    char path[128];
    struct nh_reader *r;
    snprintf(path, sizeof path, "%s/run/%s", dir, name);
    must(nh_reader_open(&r, path));
    return r;
}

static const char *text_of(const struct nh_reader *r, const char *name)
{
    size_t column;
    must(nh_reader_need(r, name, &column));
    return nh_reader_text(r, column);
}

static double number_of(const struct nh_reader *r, const char *name)
{
    size_t column;
    double x;
    must(nh_reader_need(r, name, &column));
    ck_assert_int_ge(nh_reader_real(r, column, &x), 0);
    return x;
}

enum { RUN_DEPTH = 3 };

/** One row per step and stream, in order; of the second stream what belongs to it alone. */
static void check_layers(const char *dir, const struct nh_layout *layout)
{
    static const char *const both[] = {"rms", "max_abs", "kurtosis", "token_cos", "grad_rms"};
    static const char *const joint[] = {"jac_fro", "jac_fro_se", "jac_spec"};
    static const char *const counters[] = {"overflow",  "nan_made",  "propagated", "zero_made",
                                           "underflow", "subnormal", "total",      "overflow_bwd"};
    struct nh_reader *r = table(dir, "layers.csv");
    const int per = layout->block ? 1 : 2, last = per * RUN_DEPTH + 1;
    for (int step = 0; step <= last; step++)
        for (int stream = 0; stream < (step == last ? 1 : layout->n_streams); stream++) {
            ck_assert_int_eq(nh_reader_next(r), 1);
            const char *sublayer = step == 0      ? "embed"
                                   : step == last ? "final"
                                   : per == 1     ? "block"
                                   : step % 2     ? "attn"
                                                  : "ffn";
            ck_assert_str_eq(text_of(r, "layout"), layout->name);
            ck_assert_str_eq(text_of(r, "sublayer"), sublayer);
            ck_assert_int_eq((int)number_of(r, "layer"), step == last ? RUN_DEPTH + 1 : (step + per - 1) / per);
            ck_assert_int_eq((int)number_of(r, "stream"), stream);
            for (int i = 0; i < COUNT(both); i++)
                ck_assert_double_gt(number_of(r, both[i]), i == 3 ? -1.0 : 0.0);
            for (int i = 0; i < COUNT(joint);
                 i++) { /* nothing leads to the embedding; nothing stands between bare exits */
                const bool there = stream == 0 && step > 0;
                ck_assert_int_eq(*text_of(r, joint[i]) != '\0', there);
            }
            for (int i = 0; i < COUNT(counters); i++)
                ck_assert_int_eq(*text_of(r, counters[i]) != '\0', stream == 0);
            const bool inner = step > 0 && step < last;
            ck_assert_int_eq(*text_of(r, "rms_theory") != '\0', inner && layout->law_term);
            /* a block has two branches, so no one output; b2t adds three times, so no one addition */
            ck_assert_int_eq(*text_of(r, "branch_rms") != '\0', inner && !is_one(layout, "b2t"));
            ck_assert_int_eq(*text_of(r, "branch_raw_rms") != '\0', inner && stream == 0 && !layout->block);
            if (stream == 0 && step < last)
                ck_assert_double_gt(number_of(r, "total"), 0);
        }
    ck_assert_int_eq(nh_reader_next(r), 0);
    nh_reader_close(r);
}

/** A block's own sites stand beside those of its branches. */
static void check_sites(const char *dir, const struct nh_layout *layout)
{
    struct nh_reader *r = table(dir, "sites.csv");
    int attn = 0, ffn = 0, block = 0;
    while (nh_reader_next(r) == 1) {
        const char *sublayer = text_of(r, "sublayer");
        attn += strcmp(sublayer, "attn") == 0, ffn += strcmp(sublayer, "ffn") == 0,
            block += strcmp(sublayer, "block") == 0;
    }
    ck_assert(attn > 0 && ffn > 0);
    ck_assert(block == 0 || layout->block);
    ck_assert(block > 0 || !is_one(layout, "parallel")); /* b2t adds inside its sublayers, parallel behind them */
    nh_reader_close(r);
}

START_TEST(row_missing_in_a_run)
{
    char dir[] = "layouts-XXXXXX", out[64];
    const struct nh_layout *layout = nh_layouts[_i];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(out, sizeof out, "%s/run", dir);
    char name[64], *argv[] = {"--layout", name, "--depth", "3", "--width", "16", "--heads",   "2", "--data", "uniform",
                              "--vocab",  "16", "--seq",   "6", "--batch", "2",  "--threads", "1", "--out",  out};
    snprintf(name, sizeof name, "%s", layout->name);
    must(run_quietly(COUNT(argv), argv));
    check_layers(dir, layout);
    check_sites(dir, layout);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    keep_memory();
    const int n = n_layouts();
    Suite *suite = suite_create("layout_runs");
    TCase *tc = tcase_create("layout_runs");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, qk_norm_lets_scores_grow, 0, 2 * n);
    tcase_add_loop_test(tc, parameter_without_gradient, 0, 2 * n);
    tcase_add_loop_test(tc, law_of_another_layout, 0, n);
    tcase_add_test(tc, law_by_hand);
    tcase_add_loop_test(tc, half_precision_miscounted, 0, n);
    tcase_add_loop_test(tc, row_missing_in_a_run, 0, n);
    return run_suite(suite, tc);
}
