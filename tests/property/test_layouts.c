// SPDX-License-Identifier: GPL-3.0-or-later
/** How layouts are built: that each is wired as its equation says, that those which are equal by definition are equal
 * bit by bit, and that the constants which belong to them are where they belong. Statements about all layouts run over
 * the registry. */
#include "harness/core/init.h"
#include "tests/property/layout_steps.h"
#include "tests/suite.h"

#include <gsl/gsl_errno.h>
#include <stdlib.h>

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

/* ---- the registry ---- */

static bool is_kebab(const char *name)
{
    return *name && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name) && *name != '-';
}

START_TEST(descriptor_incomplete)
{
    const struct nh_layout *l = nh_layouts[_i];
    ck_assert(is_kebab(l->name));
    ck_assert(l->equation && l->gains && l->law && l->source && l->exit);
    ck_assert(*l->equation && *l->gains && *l->law && *l->source);
    ck_assert_ptr_null(strchr(l->equation, '\n'));
    ck_assert((l->sublayer != NULL) != (l->block != NULL));
    ck_assert(l->n_streams >= 1 && l->n_streams <= NH_STREAMS);
    for (int i = 0; l->aliases && l->aliases[i]; i++)
        ck_assert(is_kebab(l->aliases[i]));
    int n = 0;
    for (const struct nh_knob *k = l->knobs; k && k->name; k++, n++) {
        ck_assert(is_kebab(k->name) && k->help && *k->help);
        ck_assert(k->start >= k->min && k->start <= k->max);
        int words = 0;
        while (k->words && k->words[words])
            words++;
        ck_assert(!k->words || (k->min <= 0 && k->max >= words - 1 && k->max <= words - 1));
    }
    ck_assert_int_le(n, NH_MAX_KNOBS);
}
END_TEST

static int names_of(const struct nh_layout *l, const char *names[16])
{
    int n = 0;
    names[n++] = l->name;
    for (int i = 0; l->aliases && l->aliases[i]; i++)
        names[n++] = l->aliases[i];
    return n;
}

START_TEST(name_taken_twice)
{
    for (int i = 0; nh_layouts[i]; i++)
        for (int k = 0; k <= i; k++) {
            const char *a[16], *b[16];
            const int n = names_of(nh_layouts[i], a), m = names_of(nh_layouts[k], b);
            for (int x = 0; x < n; x++)
                for (int y = 0; y < m; y++)
                    ck_assert((i == k && x == y) || strcmp(a[x], b[y]) != 0);
        }
}
END_TEST

/* ---- equal by definition ---- */

/** Parts of the second model that the first one must have bit by bit. */
enum part { FORWARD, ALL };

static const struct {
    const char *one, *other;
    enum part part;
    int steps; /**< of the stream that are equal, behind the embedding; 0 = all, and the exit and the logits too */
} equalities[] = {
    {"--layout mix-ln --set post-fraction=0 --depth 3", "--layout pre --depth 3", ALL, 0},
    {"--layout mix-ln --set post-fraction=1 --depth 3", "--layout post --depth 3", FORWARD, 6},
    {"--layout mix-ln --set post-fraction=0.5 --depth 4", "--layout post --depth 4", FORWARD, 4},
    {"--layout lns --depth 1", "--layout pre --depth 1", ALL, 0},
    {"--layout lns-gain --depth 1", "--layout pre --depth 1", ALL, 0},
    {"--layout sandwich-depth --depth 1", "--layout sandwich --depth 1", ALL, 0},
    {"--layout sandwich-l --depth 1", "--layout sandwich --depth 1", ALL, 0},
    {"--layout layerscale --set lam=1 --depth 3", "--layout pre --depth 3", ALL, 0},
    {"--layout respost --set gain=1 --set cosine=off --depth 3", "--layout reordered --depth 3", ALL, 0},
    {"--layout gpas --depth 3", "--layout pre --depth 3", ALL, 0},
    {"--layout pangu --set c-attn=1 --set c-mlp=1 --depth 3", "--layout sandwich-depth --depth 3", ALL, 0},
    {"--layout residual --depth 3", "--layout post --depth 3", FORWARD, 6},
    {"--layout parallel --set norms=2 --depth 3", "--layout parallel --depth 3", FORWARD, 0},
};

static const struct {
    const char *words;
    double loss_scale;
    bool qk_norm;
} formats[] = {
    {" --dtype fp16", 65536, false},
    {" --dtype fp32 --norm layer --ffn relu --bias", 1, false},
    {" --dtype bf16 --ffn swiglu --kv-heads 2 --tie", 1, true},
    {" --dtype fp64 --ffn geglu --pos learned", 1, false},
};

static void assert_same_numbers(double *a, double *b, size_t n, const char *what, int where)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            ck_abort_msg("%s %d: number %zu of %zu is %a here, %a there", what, where, i, n, a[i], b[i]);
    free(a), free(b);
}

static void assert_same_value(const struct nh_model *a, nh_val v, const struct nh_model *b, nh_val w, const char *what,
                              int where)
{
    ck_assert_uint_eq(value_size(a->graph, v), value_size(b->graph, w));
    if (v >= 0)
        assert_same_numbers(value_of(a, v), value_of(b, w), value_size(a->graph, v), what, where);
}

static double *grad_of(const struct nh_model *m, nh_val v)
{
    double *g = zeros(value_size(m->graph, v), sizeof *g);
    m->core->read_grad(m->exec, v, g);
    return g;
}

static int find_param(const struct nh_graph *g, const char *name)
{
    for (int p = 0; p < g->n_params; p++)
        if (strcmp(g->params[p].name, name) == 0)
            return p;
    return -1;
}

/** Every parameter of b is in a, with the same numbers and gradients. */
static void assert_same_params(const struct nh_model *a, const struct nh_model *b)
{
    for (int q = 0; q < b->graph->n_params; q++) {
        const int p = find_param(a->graph, b->graph->params[q].name);
        if (p < 0)
            ck_abort_msg("there is no %s", b->graph->params[q].name);
        const size_t n = param_size(b->graph, q);
        ck_assert_uint_eq(param_size(a->graph, p), n);
        assert_same_numbers(param_of(a, p), param_of(b, q), n, b->graph->params[q].name, 0);
        assert_same_numbers(param_grad_of(a, p), param_grad_of(b, q), n, b->graph->params[q].name, 1);
    }
}

static struct nh_model ran(const char *words, const char *format, bool qk_norm, double loss_scale, double *loss)
{
    char all[256];
    snprintf(all, sizeof all, "%s%s --width 32", words, format);
    struct nh_config c = config_of(all);
    c.qk_norm = qk_norm;
    struct nh_model m = model_of(&c, true);
    *loss = m.core->forward(m.exec);
    m.core->backward(m.exec, loss_scale, NULL);
    return m;
}

START_TEST(equal_layouts_differ)
{
    const int which = _i / COUNT(formats), f = _i % COUNT(formats);
    double loss[2];
    struct nh_model a =
        ran(equalities[which].one, formats[f].words, formats[f].qk_norm, formats[f].loss_scale, &loss[0]);
    struct nh_model b =
        ran(equalities[which].other, formats[f].words, formats[f].qk_norm, formats[f].loss_scale, &loss[1]);
    const struct nh_graph *g = a.graph, *h = b.graph;
    ck_assert_int_eq(g->n_steps, h->n_steps);
    const int last = equalities[which].steps ? equalities[which].steps : h->n_steps - 2;
    for (int k = 0; k <= last; k++) {
        assert_same_value(&a, g->steps[k].after[0], &b, h->steps[k].after[0], "stream behind step", k);
        assert_same_value(&a, g->steps[k].raw, &b, h->steps[k].raw, "branch of step", k);
        assert_same_value(&a, g->steps[k].branch[0], &b, h->steps[k].branch[0], "addend of step", k);
        if (equalities[which].part == ALL)
            assert_same_numbers(grad_of(&a, g->steps[k].after[0]), grad_of(&b, h->steps[k].after[0]),
                                value_size(g, g->steps[k].after[0]), "gradient behind step", k);
    }
    if (!equalities[which].steps) {
        assert_same_value(&a, g->exit_value, &b, h->exit_value, "exit", 0);
        assert_same_value(&a, g->logits, &b, h->logits, "logits", 0);
        ck_assert_double_eq(loss[0], loss[1]);
    }
    if (equalities[which].part == ALL)
        assert_same_params(&a, &b);
    nh_model_destroy(&a), nh_model_destroy(&b);
}
END_TEST

/** Equal but for the order of rounding: a second norm right behind the first, and a factor inside or behind a norm. */
START_TEST(equal_layouts_drift)
{
    static const struct {
        const char *one, *other;
    } pairs[] = {{"--layout mix-ln --set post-fraction=1 --depth 3", "--layout post --depth 3"},
                 {"--layout lns-gain --depth 4", "--layout lns --depth 4"}};
    double loss[2];
    struct nh_model a = ran(pairs[_i].one, " --dtype fp64 --eps 1e-14", false, 1, &loss[0]);
    struct nh_model b = ran(pairs[_i].other, " --dtype fp64 --eps 1e-14", false, 1, &loss[1]);
    assert_near(loss[0], loss[1], 1e-12);
    for (int q = 0; q < b.graph->n_params; q++) {
        const int p = find_param(a.graph, b.graph->params[q].name);
        ck_assert_int_ge(p, 0);
        /* there the factor is part of the gain; here a gain right before a norm has no gradient along the stream */
        if (strstr(b.graph->params[q].name, _i ? "norm_pre" : "layers.3.ffn.norm_post"))
            continue;
        double *x = param_grad_of(&a, p), *y = param_grad_of(&b, q);
        ck_assert_double_le(distance(x, y, param_size(b.graph, q)), 1e-11);
        free(x), free(y);
    }
    nh_model_destroy(&a), nh_model_destroy(&b);
}
END_TEST

/** Where the branch is multiplied by a trained zero, the stream stays as it was embedded. */
START_TEST(zero_gain_is_not_the_identity)
{
    int found = 0;
    for (int i = 0; nh_layouts[i]; i++) {
        struct nh_config c = layout_config(i, formats[_i].words);
        struct nh_model m = model_of(&c, false);
        const struct nh_graph *g = m.graph;
        if (starts_silent(&c, g)) {
            m.core->forward(m.exec);
            for (int k = 1; is_inner(g, k); k++) {
                assert_same_value(&m, g->steps[k].after[0], &m, g->steps[0].after[0], "stream behind step", k);
                ck_assert_double_gt(rms_of(&m, g->steps[k].raw), 0.01); /* not for want of a branch */
            }
            found++;
        }
        nh_model_destroy(&m);
    }
    ck_assert_int_ge(found, 2); /* rezero, respost */
}
END_TEST

/* ---- wiring ---- */

/** RMSNorm of rows x cols with a gain, written anew. */
static double *normed(const double *x, size_t rows, size_t cols, double gain, double eps_)
{
    double *y = zeros(rows * cols, sizeof *y);
    for (size_t r = 0; r < rows; r++) {
        double s = 0;
        for (size_t c = 0; c < cols; c++)
            s += x[r * cols + c] * x[r * cols + c] / (double)cols;
        for (size_t c = 0; c < cols; c++)
            y[r * cols + c] = gain * x[r * cols + c] / sqrt(s + eps_);
    }
    return y;
}

/** a x + b y, in place of x. */
static void combine(double *x, double a, const double *y, double b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = a * x[i] + b * y[i];
}

static double *copy_of(const double *x, size_t n)
{
    double *y = zeros(n, sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

/** The nth product of a step: 0 reads the branch's input, the last one makes its output. */
static const struct nh_rec *product(const struct nh_graph *g, const struct nh_step *s, enum nh_site_name where)
{
    for (int r = s->first_rec; r < s->end_rec; r++)
        if (g->recs[r].op == NH_OP_LINEAR && g->sites[g->values[g->recs[r].out].site].name == where)
            return &g->recs[r];
    ck_abort_msg("layer %d has no such product", s->layer);
    return NULL;
}

static void assert_close(const struct nh_model *m, nh_val v, double *expected, const char *what, int step)
{
    double *x = value_of(m, v);
    const double d = distance(x, expected, value_size(m->graph, v));
    if (!(d <= 1e-12))
        ck_abort_msg("%s of step %d is %g away from the equation", what, step, d);
    free(x), free(expected);
}

static double group_rms(const struct nh_model *m, nh_val v, int group, bool most)
{
    double *x = value_of(m, v), extreme = most ? 0 : (double)INFINITY;
    const size_t n = value_size(m->graph, v), width = (size_t)group;
    for (size_t i = 0; i < n; i += width) {
        double s = 0;
        for (size_t c = 0; c < width; c++)
            s += x[i + c] * x[i + c] / (double)width;
        extreme = most ? fmax(extreme, sqrt(s)) : fmin(extreme, sqrt(s));
    }
    free(x);
    return extreme;
}

static bool all_of_rms_1(const struct nh_model *m, nh_val v, int group, double scale)
{
    return fabs(group_rms(m, v, group, true) / scale - 1) < 1e-3 &&
           fabs(group_rms(m, v, group, false) / scale - 1) < 1e-3;
}

/** The trained vector on the stream in a step, before its residual add; NULL where there is none. */
static const struct nh_rec *skip_gain_of(const struct nh_graph *g, const struct nh_step *s)
{
    for (int r = s->first_rec; r < s->end_rec; r++)
        if (g->recs[r].op == NH_OP_GAIN && g->recs[r].in[0] == s->before[0])
            return &g->recs[r];
    return NULL;
}

/** The stream behind a sublayer, its second stream and what its branch reads, from the stream before, the branch's
 * output and the law term alone. */
static void check_sublayer(const struct nh_model *m, const struct nh_config *c, int k)
{
    const struct nh_graph *g = m->graph;
    const struct nh_step *s = &g->steps[k];
    const struct nh_law_term t = term_of(c, s);
    const bool attention = s->sublayer == NH_SUB_ATTN;
    const size_t rows = (size_t)g->rows, cols = (size_t)c->width, n = rows * cols;
    double *x = value_of(m, s->before[0]), *f = value_of(m, s->raw);
    if (t.norm_skip) {
        double *y = normed(x, rows, cols, 1, c->eps);
        free(x), x = y;
    }
    double *read = copy_of(x, n);
    if (t.with_second) {
        double *y = value_of(m, s->before[1]), *ny = normed(y, rows, cols, 1, c->eps);
        combine(read, 1, ny, 1, n);
        free(y), free(ny);
    }
    if (t.pre_norm) {
        double *y = normed(read, rows, cols, t.in_scale, c->eps);
        free(read), read = y;
    }
    const struct nh_rec *in = product(g, s, attention ? NH_SITE_QKV : NH_SITE_FFN_IN);
    assert_close(m, in->in[0], read, "input", k);
    const struct nh_rec *out = product(g, s, attention ? NH_SITE_ATTN_OUT : NH_SITE_FFN_OUT);
    ck_assert_int_eq(all_of_rms_1(m, out->in[0], g->values[out->in[0]].cols, 1), t.norm_out);
    if (attention) {
        const struct nh_rec *sdpa = &g->recs[s->first_rec];
        while (sdpa->op != NH_OP_SDPA)
            sdpa++;
        const int dh = sdpa->u.sdpa.head_dim;
        ck_assert_int_eq(all_of_rms_1(m, sdpa->in[2], dh, 1), t.norm_qkv);
        if (t.norm_qkv) /* the query is scaled before the product */
            ck_assert(all_of_rms_1(m, sdpa->in[1], dh, 1) && all_of_rms_1(m, sdpa->in[0], dh, 1 / sqrt(dh)));
    }
    if (c->layout->n_streams == 2) {
        double *y = value_of(m, s->before[1]);
        combine(y, 1, f, t.second, n);
        assert_close(m, s->after[1], y, "second stream", k);
    }
    if (t.post_norm) {
        double *y = normed(f, rows, cols, t.post_gain, c->eps);
        free(f), f = y;
        assert_close(m, s->branch[0], copy_of(f, n), "addend", k);
    }
    const struct nh_rec *skip = skip_gain_of(g, s);
    if (skip) {
        double *w = param_of(m, skip->par[0]);
        for (size_t i = 0; i < n; i++)
            x[i] *= w[i % cols];
        free(w);
    }
    combine(x, t.skip, f, t.post_norm ? 1 : t.branch, n);
    if (t.outer_norm) {
        double *y = normed(x, rows, cols, 1, c->eps);
        free(x), x = y;
    }
    assert_close(m, s->after[0], x, "stream", k);
    free(f);
}

/** Layouts with knobs, beside their starts. */
static const char *const settings[] = {
    "--layout sandwich --set sites=attn",
    "--layout sandwich --set sites=ffn",
    "--layout mix-ln --set post-fraction=0.5",
    "--layout hybridnorm --set star=on",
    "--layout respost --set gain=0.7 --set cosine=off",
    "--layout respost --set gain=0.7",
    "--layout layerscale --set lam=0.3",
    "--layout pangu --set c-attn=2 --set c-mlp=0.5",
    "--layout keel --set a=3",
    "--layout siamese --set scale=none",
    "--layout siamese --set scale=2l --set input-norm=on",
};

START_TEST(law_term_of_another_equation)
{
    char all[256];
    const char *words = "--depth 4 --width 32 --dtype fp64 --vocab 64";
    snprintf(all, sizeof all, "%s %s", _i < COUNT(settings) ? settings[_i] : "", words);
    const struct nh_config c = _i < COUNT(settings) ? config_of(all) : layout_config(_i - COUNT(settings), words);
    if (!c.layout->sublayer)
        return;
    struct nh_model m = model_of(&c, false);
    m.core->forward(m.exec);
    ck_assert_int_eq(m.graph->n_steps, 2 * c.depth + 2);
    for (int i = 0; i < c.layout->n_streams; i++) /* both start as the embedding */
        assert_same_value(&m, m.graph->steps[0].after[i], &m, m.graph->recs[0].out, "stream at the start", i);
    for (int k = 1; is_inner(m.graph, k); k++) {
        ck_assert_int_eq(m.graph->steps[k].layer, (k + 1) / 2);
        ck_assert_int_eq(m.graph->steps[k].sublayer, k % 2 ? NH_SUB_ATTN : NH_SUB_FFN);
        for (int i = 0; i < NH_STREAMS; i++)
            ck_assert_int_eq(m.graph->steps[k].before[i], m.graph->steps[k - 1].after[i]);
        check_sublayer(&m, &c, k);
    }
    nh_model_destroy(&m);
}
END_TEST

/** The norm on the branch's output: with sites=attn behind attention only. */
START_TEST(sandwich_norm_at_another_site)
{
    static const char *const words[] = {"both", "attn", "ffn"};
    char all[128];
    snprintf(all, sizeof all, "--layout sandwich --depth 3 --set sites=%s", words[_i]);
    const struct nh_config c = config_of(all);
    struct nh_model m = model_of(&c, false);
    for (int l = 1; l <= 3; l++)
        for (int ffn = 0; ffn < 2; ffn++) {
            char name[40];
            snprintf(name, sizeof name, "layers.%d.%s.norm_post.gain", l, ffn ? "ffn" : "attn");
            ck_assert_int_eq(find_param(m.graph, name) >= 0, _i != 2 - ffn);
        }
    ck_assert_int_eq(m.graph->n_norms, _i ? 3 * 3 + 1 : 4 * 3 + 1);
    nh_model_destroy(&m);
}
END_TEST

START_TEST(block_of_another_equation)
{
    static const char *const words[] = {"--layout parallel", "--layout parallel --set norms=2", "--layout b2t"};
    char all[128];
    snprintf(all, sizeof all, "%s --depth 3 --width 32 --dtype fp64 --vocab 64", words[_i]);
    const struct nh_config c = config_of(all);
    struct nh_model m = model_of(&c, false);
    const struct nh_graph *g = m.graph;
    const size_t rows = (size_t)g->rows, n = rows * 32;
    m.core->forward(m.exec);
    ck_assert_int_eq(g->n_steps, 3 + 2);
    for (int k = 1; is_inner(g, k); k++) {
        const struct nh_step *s = &g->steps[k];
        ck_assert_int_eq(s->sublayer, NH_SUB_BLOCK);
        ck_assert_int_eq(s->before[0], g->steps[k - 1].after[0]);
        double *x = value_of(&m, s->before[0]), *h = normed(x, rows, 32, 1, c.eps);
        double *a = value_of(&m, product(g, s, NH_SITE_ATTN_OUT)->out);
        double *f = value_of(&m, product(g, s, NH_SITE_FFN_OUT)->out);
        const nh_val qkv_in = product(g, s, NH_SITE_QKV)->in[0], ffn_in = product(g, s, NH_SITE_FFN_IN)->in[0];
        if (_i < 2) { /* x + A(N x) + F(N x) */
            assert_close(&m, qkv_in, copy_of(h, n), "input of attention", k);
            assert_close(&m, ffn_in, copy_of(h, n), "input of the FFN", k);
            combine(x, 1, a, 1, n);
            combine(x, 1, f, 1, n);
        } else { /* u = N(x + A x); N(u + F u + x) */
            assert_close(&m, qkv_in, copy_of(x, n), "input of attention", k);
            double *sum = copy_of(x, n);
            combine(sum, 1, a, 1, n);
            double *u = normed(sum, rows, 32, 1, c.eps);
            assert_close(&m, ffn_in, copy_of(u, n), "input of the FFN", k);
            combine(u, 1, f, 1, n);
            combine(u, 1, x, 1, n);
            free(x), free(sum);
            x = normed(u, rows, 32, 1, c.eps);
            free(u);
        }
        assert_close(&m, s->after[0], x, "stream", k);
        free(h), free(a), free(f);
    }
    nh_model_destroy(&m);
}
END_TEST

/** From the streams to what the head reads: bare, a norm, or x + N(y). */
START_TEST(exit_of_another_equation)
{
    struct nh_config c = layout_config(_i, "--depth 2 --width 32 --dtype fp64 --vocab 64");
    struct nh_model m = model_of(&c, false);
    const struct nh_graph *g = m.graph;
    const nh_val *end = g->steps[g->n_steps - 2].after;
    const size_t n = value_size(g, end[0]);
    m.core->forward(m.exec);
    double *x = value_of(&m, end[0]);
    if (c.layout->n_streams == 2) {
        double *y = value_of(&m, end[1]), *ny = normed(y, (size_t)g->rows, 32, 1, c.eps);
        combine(x, 1, ny, 1, n);
        free(y), free(ny);
    } else if (find_param(g, "norm_final.gain") >= 0) {
        double *y = normed(x, (size_t)g->rows, 32, 1, c.eps);
        free(x), x = y;
    }
    assert_close(&m, g->exit_value, x, "exit", g->n_steps - 1);
    nh_model_destroy(&m);
}
END_TEST

/** Behind an outer norm every step has RMS 1, at any depth; the stream kept un-normed would grow like pre. */
START_TEST(outer_norm_leaves_the_stream)
{
    int found = 0;
    for (int i = 0; nh_layouts[i]; i++) {
        struct nh_config c = layout_config(i, "--depth 12 --width 32 --dtype fp64 --eps 1e-12 --vocab 64");
        struct nh_model m = model_of(&c, false);
        m.core->forward(m.exec);
        for (int k = 1; is_inner(m.graph, k); k++)
            if (term_of(&c, &m.graph->steps[k]).outer_norm) {
                assert_near(rms_of(&m, m.graph->steps[k].after[0]), 1, 1e-9);
                ck_assert(all_of_rms_1(&m, m.graph->steps[k].after[0], 32, 1));
                found++;
            }
        nh_model_destroy(&m);
    }
    /* post, deepnorm, deepnorm-glm, keel, admin, residual, siamese; b2t; a quarter of mix-ln */
    ck_assert_int_ge(found, 7 * 24 + 12 + 6);
}
END_TEST

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
    Suite *suite = suite_create("layouts");
    TCase *tc = tcase_create("layouts");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, descriptor_incomplete, 0, n);
    tcase_add_test(tc, name_taken_twice);
    tcase_add_loop_test(tc, equal_layouts_differ, 0, COUNT(equalities) * COUNT(formats));
    tcase_add_loop_test(tc, equal_layouts_drift, 0, 2);
    tcase_add_loop_test(tc, zero_gain_is_not_the_identity, 0, COUNT(formats));
    tcase_add_loop_test(tc, law_term_of_another_equation, 0, COUNT(settings) + n);
    tcase_add_loop_test(tc, sandwich_norm_at_another_site, 0, 3);
    tcase_add_loop_test(tc, block_of_another_equation, 0, 3);
    tcase_add_loop_test(tc, exit_of_another_equation, 0, n);
    tcase_add_test(tc, outer_norm_leaves_the_stream);
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
