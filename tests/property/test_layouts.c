// SPDX-License-Identifier: GPL-3.0-or-later
/** How layouts are wired: that each is what its equation says, and that those which are equal by definition are equal bit by
 * bit. Statements about all layouts run over the registry. */
#include "tests/property/layout_models.h"

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

static double *grad_of(const struct nh_model *m, nh_val v)
{
    double *g = zeros(value_size(m->graph, v), sizeof *g);
    m->core->read_grad(m->exec, v, g);
    return g;
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
    return run_suite(suite, tc);
}
