// SPDX-License-Identifier: GPL-3.0-or-later
/** Switches of whole models: what each puts on the tape and where, that off means absent, which of them leave which bits alone, and
 * what they do in every layout. */
#include "tests/property/layout_steps.h"
#include "tests/suite.h"

#include <gsl/gsl_errno.h>
#include <stdlib.h>

static enum nh_site_name site_of(const struct nh_graph *g, nh_val v)
{
    return g->sites[g->values[v].site].name;
}

/** True for the norms that the layout places on the stream and on branches: not those of queries and keys, or inside a branch. */
static bool is_placed(const struct nh_graph *g, const struct nh_rec *r)
{
    if (r->op != NH_OP_NORM)
        return false;
    enum nh_site_name s = site_of(g, r->out);
    return s == NH_SITE_NORM_PRE || s == NH_SITE_NORM_POST || s == NH_SITE_NORM_FINAL;
}

static int placed_norms(const struct nh_graph *g)
{
    int n = 0;
    for (int r = 0; r < g->n_recs; r++)
        n += is_placed(g, &g->recs[r]);
    return n;
}

static struct nh_graph *graph_of(const struct nh_config *c)
{
    struct nh_graph *g;
    must(nh_graph_build(&g, c, c->batch, c->seq, c->vocab));
    return g;
}

/** Sites where a value is stored, by name. */
static void sites_of(const struct nh_graph *g, bool seen[NH_SITE_COUNT])
{
    memset(seen, 0, NH_SITE_COUNT * sizeof *seen);
    for (int s = 0; s < g->n_sites; s++)
        seen[g->sites[s].name] = true;
}

START_TEST(switch_off_leaves_a_trace)
{
    struct nh_config c = layout_config(_i, "--depth 3 --width 16");
    struct nh_graph *g = graph_of(&c);
    bool seen[NH_SITE_COUNT];
    sites_of(g, seen);
    ck_assert(!seen[NH_SITE_NORM_RELAX] && !seen[NH_SITE_NORM_IN] && !seen[NH_SITE_SOFTCAP] && !seen[NH_SITE_CAST]);
    ck_assert_int_eq(count_ops(g, NH_OP_RELAX, 0) + count_ops(g, NH_OP_CAST, 0), 0);
    ck_assert(site_of(g, g->logits) == NH_SITE_LOGITS);
    for (int r = 0; r < g->n_recs; r++) {
        const struct nh_rec *rec = &g->recs[r];
        ck_assert(rec->op != NH_OP_SDPA || rec->u.sdpa.alpha == 1);
        ck_assert(rec->op != NH_OP_XENT || rec->u.xent.z_loss == 0);
        ck_assert(rec->op != NH_OP_EMBED || rec->u.embed.shrink == 1);
    }
    for (int p = 0; p < g->n_params; p++)
        ck_assert(!g->params[p].frozen);
    nh_graph_free(g);
}
END_TEST

/* ---- norms ---- */

/** x -> relax -> cast -> norm, before each placed norm and before no other. */
START_TEST(norm_reads_something_else)
{
    struct nh_config c = layout_config(_i, "--depth 3 --width 16 --dtype fp16 --roles norm-in=bf16"), plain = c;
    plain.role_format[NH_ROLE_NORM_IN].name[0] = '\0';
    struct nh_graph *g = graph_of(&c), *h = graph_of(&plain);
    int n = placed_norms(h);
    nh_graph_free(h);
    ck_assert_int_eq(count_ops(g, NH_OP_RELAX, 0), 0);
    nh_graph_free(g);
    c.ln_relax = 8;
    g = graph_of(&c);
    int placed = 0;
    for (int r = 0; r < g->n_recs; r++) {
        const struct nh_rec *norm = &g->recs[r];
        if (norm->op != NH_OP_NORM)
            continue;
        const struct nh_rec *cast = &g->recs[g->values[norm->in[0]].rec];
        if (!is_placed(g, norm)) {
            ck_assert(cast->op != NH_OP_CAST && cast->op != NH_OP_RELAX);
            continue;
        }
        ck_assert(cast->op == NH_OP_CAST && site_of(g, cast->out) == NH_SITE_NORM_IN);
        ck_assert_str_eq(g->fmt[g->values[cast->out].role].name, "bf16");
        const struct nh_rec *relaxed = &g->recs[g->values[cast->in[0]].rec];
        ck_assert(relaxed->op == NH_OP_RELAX && site_of(g, relaxed->out) == NH_SITE_NORM_RELAX);
        ck_assert(relaxed->u.relax.bound == 8);
        ck_assert(g->values[relaxed->out].role == g->values[relaxed->in[0]].role);
        placed++;
    }
    ck_assert_int_eq(placed, n);
    ck_assert_int_eq(count_ops(g, NH_OP_RELAX, 0), n);
    for (int s = 1; s < g->n_steps - 1; s++) /* the add still reads the stream itself */
        ck_assert(g->steps[s].before[0] == g->steps[s - 1].after[0]);
    nh_graph_free(g);
}
END_TEST

/** A stream in fp32: it is cast where norms are to read fp16, and read as it is where nobody says so. */
START_TEST(stream_cast_without_need)
{
    static const struct {
        const char *roles;
        int casts; /* of 2 layers of sandwich: 4 norms before, 4 behind branches, 1 at the end */
    } cases[] = {{"residual=fp32", 0}, {"residual=fp32,norm-in=fp16", 5}, {"residual=fp32,norm-in=fp32", 4}, {"norm-in=dtype", 0}};
    for (int i = 0; i < COUNT(cases); i++) {
        char words[160];
        snprintf(words, sizeof words, "--layout sandwich --depth 2 --width 16 --dtype fp16 --roles %s", cases[i].roles);
        struct nh_config c = config_of(words);
        struct nh_graph *g = graph_of(&c);
        int casts = 0;
        for (int r = 0; r < g->n_recs; r++)
            casts += g->recs[r].op == NH_OP_CAST && site_of(g, g->recs[r].out) == NH_SITE_NORM_IN;
        ck_assert_int_eq(casts, cases[i].casts);
        nh_graph_free(g);
    }
}
END_TEST

/** fp16 numbers of the branch and fp32 ones of the stream meet at norm_relax: its headroom is that of fp16. */
START_TEST(headroom_of_the_wider_format)
{
    struct nh_config c = config_of("--layout sandwich --depth 2 --width 16 --dtype fp16 --roles residual=fp32 --ln-relax");
    struct nh_graph *g = graph_of(&c);
    for (int s = 0; s < g->n_sites; s++)
        if (g->sites[s].name == NH_SITE_NORM_RELAX)
            ck_assert_str_eq(g->fmt[g->sites[s].role].name, g->sites[s].sublayer == NH_SUB_FINAL ? "fp32" : "fp16");
    nh_graph_free(g);
}
END_TEST

/** Behind a norm whose eps does not show, nothing tells that its input was divided. */
START_TEST(relaxed_norms_move_the_model)
{
    struct nh_config c = layout_config(_i, "--depth 3 --width 16 --dtype fp64 --eps 0"), relaxed = c;
    relaxed.ln_relax = 8;
    struct nh_model a = model_of(&c, true), b = model_of(&relaxed, true);
    double loss = a.core->forward(a.exec);
    ck_assert_double_le(fabs(b.core->forward(b.exec) - loss), 1e-12);
    a.core->backward(a.exec, 1, NULL), b.core->backward(b.exec, 1, NULL);
    for (int p = 0; p < a.graph->n_params; p++) {
        double *x = param_grad_of(&a, p), *y = param_grad_of(&b, p);
        for (size_t i = 0; i < param_size(a.graph, p); i++)
            ck_assert_double_le(fabs(x[i] - y[i]), 1e-12);
        free(x), free(y);
    }
    bool seen[NH_SITE_COUNT];
    sites_of(b.graph, seen);
    for (int s = 0; s < b.graph->n_sites && seen[NH_SITE_NORM_RELAX]; s++)
        if (b.graph->sites[s].name == NH_SITE_NORM_RELAX)
            ck_assert_double_le(fabs(b.core->counts(b.exec)[s * NH_DIRECTIONS].max_abs - 8), 1e-14);
    nh_model_destroy(&a), nh_model_destroy(&b);
}
END_TEST

/* ---- scores ---- */

/** alpha 32 in fp32: not a bit of any output moves, nor of any gradient but those of the held scores; cosine attention too. */
START_TEST(relaxed_scores_move_the_model)
{
    struct nh_config c = layout_config(_i, "--depth 3 --width 16 --dtype fp32"), relaxed = c;
    relaxed.pb_relax = 32;
    struct nh_model a = model_of(&c, true), b = model_of(&relaxed, true);
    ck_assert_double_eq(a.core->forward(a.exec), b.core->forward(b.exec));
    a.core->backward(a.exec, 1, NULL), b.core->backward(b.exec, 1, NULL);
    ck_assert_int_eq(a.graph->n_values, b.graph->n_values);
    int scaled = 0;
    for (int v = 0; v < a.graph->n_values; v++) {
        double *x = value_of(&a, v), *y = value_of(&b, v), factor = site_of(a.graph, v) == NH_SITE_Q_SCALE ? 32 : 1;
        scaled += factor > 1;
        for (size_t i = 0; i < value_size(a.graph, v); i++)
            ck_assert_double_eq(x[i], factor * y[i]);
        free(x), free(y);
    }
    ck_assert_int_eq(scaled, 3);
    for (int p = 0; p < a.graph->n_params; p++) {
        double *x = param_grad_of(&a, p), *y = param_grad_of(&b, p);
        ck_assert_mem_eq(x, y, param_size(a.graph, p) * sizeof *x);
        free(x), free(y);
    }
    nh_model_destroy(&a), nh_model_destroy(&b);
}
END_TEST

START_TEST(alpha_of_another_layer)
{
    struct nh_config c = config_of("--layout deepnorm-glm --depth 4 --width 16 --heads 2 --pb-relax=layer");
    struct nh_graph *g = graph_of(&c);
    int layer = 0;
    for (int r = 0; r < g->n_recs; r++) {
        const struct nh_rec *rec = &g->recs[r];
        if (rec->op != NH_OP_SDPA)
            continue;
        layer++;
        const struct nh_rec *scale = &g->recs[g->values[rec->in[0]].rec];
        ck_assert(rec->u.sdpa.alpha == layer && rec->u.sdpa.scale == 1);
        ck_assert(scale->op == NH_OP_AXPBY && scale->u.axpby.a == 1 / (layer * sqrt(8)));
    }
    ck_assert_int_eq(layer, 4);
    nh_graph_free(g);
}
END_TEST

/* ---- logits and loss ---- */

START_TEST(loss_reads_other_logits)
{
    static const char *const dtypes[] = {"fp64", "fp16"};
    char words[128];
    snprintf(words, sizeof words, "--depth 2 --width 16 --softcap 0.5 --z-loss 0.25 --dtype %s", dtypes[_i]);
    struct nh_config c = config_of(words);
    struct nh_model m = model_of(&c, false);
    const struct nh_graph *g = m.graph;
    double loss = m.core->forward(m.exec), expected = 0;
    const struct nh_rec *cap = &g->recs[g->values[g->logits].rec];
    ck_assert(cap->op == NH_OP_ACT && cap->u.act.kind == NH_ACT_SOFTCAP && cap->u.act.cap == 0.5);
    ck_assert(site_of(g, cap->in[0]) == NH_SITE_LOGITS && site_of(g, g->logits) == NH_SITE_SOFTCAP);
    ck_assert(g->values[g->logits].role == NH_ROLE_LOGITS);
    double *raw = value_of(&m, cap->in[0]), *z = value_of(&m, g->logits);
    int *tokens = tokens_of(&c), n = g->vocab;
    for (int i = 0; i < g->rows; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) {
            ck_assert_double_le(fabs(z[i * n + j] - 0.5 * tanh(raw[i * n + j] / 0.5)), _i ? 0x1p-12 : 1e-15);
            sum += exp(z[i * n + j]);
        }
        if (i % g->seq < g->seq - 1)
            expected += log(sum) - z[i * n + tokens[i + 1]] + 0.25 * log(sum) * log(sum);
    }
    ck_assert_double_le(fabs(loss - expected / (g->batch * (g->seq - 1))), _i ? 1e-5 : 1e-13);
    free(raw), free(z), free(tokens);
    nh_model_destroy(&m);
}
END_TEST

/* ---- embedding ---- */

static double *table_gradient(const char *words, double shrink, double *loss)
{
    struct nh_config c = config_of(words);
    c.embed_shrink = shrink;
    struct nh_model m = model_of(&c, true);
    *loss = m.core->forward(m.exec);
    m.core->backward(m.exec, 1, NULL);
    double *g = param_grad_of(&m, m.graph->recs[0].par[0]);
    nh_model_destroy(&m);
    return g;
}

/** Of a tied matrix the head's part stays whole: gradients are H + a E, and so H + E at a = 1. */
START_TEST(shrink_reaches_the_head)
{
    static const char *const words[] = {"--depth 2 --width 16 --dtype fp64", "--depth 2 --width 16 --dtype fp64 --tie"};
    enum { N = 32 * 16 };
    double loss[3], *whole = table_gradient(words[_i], 1, &loss[0]), *half = table_gradient(words[_i], 0.5, &loss[1]);
    double *tenth = table_gradient(words[_i], 0.1, &loss[2]), head = 0, table = 0;
    ck_assert(loss[0] == loss[1] && loss[1] == loss[2]);
    for (int i = 0; i < N; i++) {
        double e = 2 * (whole[i] - half[i]), h = whole[i] - e;
        ck_assert_double_le(fabs(tenth[i] - h - 0.1 * e), 1e-15);
        head = fmax(head, fabs(h)), table = fmax(table, fabs(e));
    }
    ck_assert_double_gt(table, 1e-4);
    ck_assert(_i ? head > 1e-3 : head <= 1e-17);
    free(whole), free(half), free(tenth);
}
END_TEST

/* ---- what is trained ---- */

START_TEST(another_gain_frozen)
{
    struct nh_config c = layout_config(_i, "--depth 2 --width 16 --norm layer");
    c.post_gain_frozen = true;
    struct nh_graph *g = graph_of(&c);
    for (int p = 0; p < g->n_params; p++) {
        bool gain = is_named(g, p, "attn.norm_post.gain") || is_named(g, p, "ffn.norm_post.gain") || is_named(g, p, "block.norm_post.gain");
        if (!gain)
            ck_assert(!g->params[p].frozen);
    }
    for (int k = 1; is_inner(g, k); k++) { /* N2: the norm that makes what is added */
        const nh_val f = g->steps[k].branch[0];
        if (f < 0 || g->recs[g->values[f].rec].op != NH_OP_NORM || !term_of(&c, &g->steps[k]).post_norm)
            continue;
        ck_assert(g->params[g->recs[g->values[f].rec].par[0]].frozen);
        ck_assert(!g->params[g->recs[g->values[f].rec].par[1]].frozen);
    }
    int frozen = 0;
    for (int p = 0; p < g->n_params; p++)
        frozen += g->params[p].frozen;
    if (is_one(c.layout, "sandwich") || is_one(c.layout, "reordered"))
        ck_assert_int_eq(frozen, 4);
    if (is_one(c.layout, "pre") || is_one(c.layout, "post") || is_one(c.layout, "deepnorm"))
        ck_assert_int_eq(frozen, 0);
    nh_graph_free(g);
}
END_TEST

/* ---- in half precision ---- */

/** The squares of a stream of RMS 8000 leave fp16, those of what is relaxed do not. */
START_TEST(relaxed_norm_saves_no_half_statistics)
{
    struct nh_config c = config_of("--layout pre --depth 2 --width 16 --dtype fp16 --norm-stats dtype --embed-rms 8000");
    for (int relaxed = 0; relaxed < 2; relaxed++) {
        c.ln_relax = relaxed ? 8 : 0;
        struct nh_model m = model_of(&c, false);
        m.core->forward(m.exec);
        uint64_t overflow = 0, dead = 0;
        for (int s = 0; s < m.graph->n_sites * NH_DIRECTIONS; s++)
            overflow += m.core->counts(m.exec)[s].overflow, dead += m.core->counts(m.exec)[s].zero_made;
        ck_assert(relaxed ? overflow == 0 && dead == 0 : overflow > 0 && dead > 0);
        nh_model_destroy(&m);
    }
}
END_TEST

int main(void)
{
    gsl_set_error_handler_off();
    keep_memory();
    const int n = n_layouts();
    Suite *suite = suite_create("switches");
    TCase *tc = tcase_create("switches");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, switch_off_leaves_a_trace, 0, n);
    tcase_add_loop_test(tc, norm_reads_something_else, 0, n);
    tcase_add_test(tc, stream_cast_without_need);
    tcase_add_test(tc, headroom_of_the_wider_format);
    tcase_add_loop_test(tc, relaxed_norms_move_the_model, 0, n);
    tcase_add_loop_test(tc, relaxed_scores_move_the_model, 0, n);
    tcase_add_test(tc, alpha_of_another_layer);
    tcase_add_loop_test(tc, loss_reads_other_logits, 0, 2);
    tcase_add_loop_test(tc, shrink_reaches_the_head, 0, 2);
    tcase_add_loop_test(tc, another_gain_frozen, 0, n);
    tcase_add_test(tc, relaxed_norm_saves_no_half_statistics);
    return run_suite(suite, tc);
}
