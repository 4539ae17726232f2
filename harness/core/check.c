// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/check.h"
#include "harness/core/err.h"
#include "harness/core/model.h"
#include "harness/core/rng.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SEQ = 6, VOCAB = 11, DEPTH = 3, ENTRIES = 12 };

static const char *const op_names[NH_OP_COUNT] = {
    [NH_OP_EMBED] = "embedding, weights",
    [NH_OP_NORM] = "norm",
    [NH_OP_LINEAR] = "linear",
    [NH_OP_ROPE] = "rope",
    [NH_OP_SDPA] = "attention",
    [NH_OP_ACT] = "activation",
    [NH_OP_MUL] = "product",
    [NH_OP_AXPBY] = "add",
    [NH_OP_GAIN] = "gain",
    [NH_OP_SHRINK] = "shrink",
    [NH_OP_CAST] = "cast",
    [NH_OP_RELAX] = "relax",
    [NH_OP_ROUTE] = "route",
    [NH_OP_EXPERTS] = "experts",
    [NH_OP_COMBINE] = "combine",
    [NH_OP_XENT] = "cross-entropy",
};

bool nh_check_good(const struct nh_check *c)
{
    return c->difference <= NH_CHECK_DIFFERENCE && c->adjoint64 <= NH_CHECK_ADJOINT64 && c->adjoint32 <= NH_CHECK_ADJOINT32;
}

/** max that keeps NaN. */
static double worst(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static struct nh_config small_config(const struct nh_layout *layout, const char *dtype)
{
    struct nh_config c = {.layout = layout, .depth = DEPTH, .width = 16, .heads = 4, .kv_heads = 2, .ffn_mult = 2, .eps = 1e-5,
                          .theta = 1e4, .branches = NH_BRANCHES_BOTH, .embed_scale = 1, .embed_shrink = 1, .post_gain = 1, .threads = 1,
                          .policy = nh_policies[0], .seed = 3};
    for (int k = 0; layout->knobs && layout->knobs[k].name; k++)
        c.knobs[k] = layout->knobs[k].start;
    nh_fmt_parse(&c.dtype, dtype);
    return c;
}

static int make_model(struct nh_model *m, const struct nh_config *c)
{
    int tokens[BATCH * SEQ];
    for (int i = 0; i < BATCH * SEQ; i++)
        tokens[i] = (i * 7 + i / 3) % VOCAB;
    int status = nh_model_create(m, c, BATCH, SEQ, VOCAB, tokens, true);
    if (!status)
        m->core->forward(m->exec);
    return status;
}

static double *vector(size_t n, gsl_rng *rng)
{
    double *v = calloc(n + 1, sizeof *v);
    if (!v)
        nh_no_memory();
    for (size_t i = 0; rng && i < n; i++)
        v[i] = gsl_ran_gaussian_ziggurat(rng, 1);
    return v;
}

static double dot(const double *a, const double *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static size_t value_size(const struct nh_graph *g, nh_val v)
{
    return v < 0 ? 0 : (size_t)g->rows * (size_t)g->values[v].cols;
}

static size_t state_size(const struct nh_graph *g, const nh_val *v)
{
    return value_size(g, v[0]) + value_size(g, v[1]);
}

/** The streams v, one after the other. */
static void read_state(const struct nh_model *m, const nh_val *v, double *out)
{
    for (int i = 0; i < NH_STREAMS; out += value_size(m->graph, v[i]), i++)
        if (v[i] >= 0)
            m->core->read(m->exec, v[i], out);
}

static void write_state(const struct nh_model *m, const nh_val *v, const double *in)
{
    for (int i = 0; i < NH_STREAMS; in += value_size(m->graph, v[i]), i++)
        if (v[i] >= 0)
            m->core->write(m->exec, v[i], in);
}

/** |<u,Jv> - <J'u,v>| / (||u|| ||Jv||) of operations [first, end); with out != NULL also Jv. */
static int adjoint(struct nh_model *m, int first, int end, const nh_val *from, const nh_val *to, const double *v, double *jv, double *error)
{
    struct nh_pass *p;
    int status = m->core->pass_create(&p, m->exec, first, end, from, to, 1);
    if (status)
        return status;
    size_t n_in = state_size(m->graph, from), n_out = state_size(m->graph, to);
    gsl_rng *rng = nh_rng_new(17, (uint64_t)first, (uint64_t)to[0]);
    double *u = vector(n_out, rng), *jtu = vector(n_in, NULL);
    m->core->jvp(p, 1, v, jv);
    m->core->vjp(p, 1, u, jtu);
    double scale = sqrt(dot(u, u, n_out) * dot(jv, jv, n_out));
    *error = scale == 0 ? 0 : fabs(dot(u, jv, n_out) - dot(jtu, v, n_in)) / scale; /* NaN stays NaN */
    free(u), free(jtu), gsl_rng_free(rng);
    m->core->pass_destroy(p);
    return NH_OK;
}

static double largest(const double *v, size_t n)
{
    double top = 0;
    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs(v[i]));
    return top;
}

/** Jv by central differences of the operations themselves, against jv; the model is left as it was. A relaxation divides by a number
 *  that its derivative holds constant: what it gives elsewhere is brought back to the divisor it had here. */
static double difference(struct nh_model *m, int first, int end, const nh_val *from, const nh_val *to, const double *v, const double *jv)
{
    const double h = 1e-5;
    size_t n_in = state_size(m->graph, from), n_out = state_size(m->graph, to);
    double *x = vector(n_in, NULL), *y = vector(n_in, NULL), *a = vector(n_out, NULL), *b = vector(n_out, NULL);
    read_state(m, from, x);
    bool relaxed = end == first + 1 && m->graph->recs[first].op == NH_OP_RELAX;
    for (int side = 0; side < 2; side++) {
        double *out = side ? b : a;
        for (size_t i = 0; i < n_in; i++)
            y[i] = x[i] + (side ? -h : h) * v[i];
        write_state(m, from, y);
        m->core->rerun(m->exec, first, end);
        read_state(m, to, out);
        for (size_t i = 0; relaxed && i < n_out; i++)
            out[i] *= largest(y, n_in) / largest(x, n_in);
    }
    write_state(m, from, x);
    m->core->rerun(m->exec, first, end);
    double error = 0, norm = sqrt(dot(jv, jv, n_out));
    for (size_t i = 0; i < n_out; i++)
        error += pow((a[i] - b[i]) / (2 * h) - jv[i], 2);
    free(x), free(y), free(a), free(b);
    return norm > 0 ? sqrt(error) / norm : sqrt(error);
}

/** One map, in both types; in fp32 only the adjoint identity is asked. */
static int check_map(struct nh_model m[2], int first, int end, const nh_val *from, const nh_val *to, struct nh_check *c)
{
    size_t n_in = state_size(m[0].graph, from), n_out = state_size(m[0].graph, to);
    gsl_rng *rng = nh_rng_new(5, (uint64_t)first, (uint64_t)from[0]);
    double *v = vector(n_in, rng), *jv = vector(n_out, NULL), error;
    int status = adjoint(&m[0], first, end, from, to, v, jv, &error);
    if (!status) {
        c->adjoint64 = worst(error, c->adjoint64);
        c->difference = worst(difference(&m[0], first, end, from, to, v, jv), c->difference);
        status = adjoint(&m[1], first, end, from, to, v, jv, &error);
    }
    if (!status) {
        c->adjoint32 = worst(error, c->adjoint32);
        c->cases++;
    }
    free(v), free(jv), gsl_rng_free(rng);
    return status;
}

/** What a parameter gets over the derivative of the loss: the shrink of tables (which here never are the head as well). */
static double shrink_of(const struct nh_graph *g, int param)
{
    const struct nh_rec *e = &g->recs[0];
    return param == e->par[0] || param == e->par[1] ? e->u.embed.shrink : 1;
}

/** Gradient of the loss with respect to some entries of a parameter and along one direction, by central differences. */
static double parameter_difference(struct nh_model *m, int param, double total_norm)
{
    const double h = 1e-5;
    const struct nh_param *p = &m->graph->params[param];
    size_t n = (size_t)p->rows * (size_t)p->cols;
    gsl_rng *rng = nh_rng_new(29, (uint64_t)param, 0);
    double *w = vector(n, NULL), *g = vector(n, NULL), *moved = vector(n, NULL), *direction = vector(n, rng), error = 0;
    m->core->read_param(m->exec, param, w);
    m->core->read_param_grad(m->exec, param, g);
    double norm = fmax(sqrt(dot(g, g, n)), 1e-3 * total_norm);
    double along = 1 / sqrt(dot(direction, direction, n)), shrink = shrink_of(m->graph, param);
    for (int k = 0; k <= ENTRIES; k++) {
        size_t at = gsl_rng_uniform_int(rng, n);
        double loss[2], derived = k < ENTRIES ? g[at] : along * dot(direction, g, n);
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < n; i++)
                moved[i] = w[i] + (side ? -h : h) * (k < ENTRIES ? i == at : along * direction[i]);
            m->core->set_param(m->exec, param, moved);
            loss[side] = m->core->forward(m->exec);
        }
        error = worst(fabs(shrink * (loss[0] - loss[1]) / (2 * h) - derived) / norm, error);
    }
    m->core->set_param(m->exec, param, w);
    free(w), free(g), free(moved), free(direction), gsl_rng_free(rng);
    return error;
}

static void check_parameters(struct nh_model *m, struct nh_check *c)
{
    m->core->forward(m->exec);
    m->core->backward(m->exec, 1, NULL);
    double total = 0;
    for (int i = 0; i < m->graph->n_params; i++) {
        size_t n = (size_t)m->graph->params[i].rows * (size_t)m->graph->params[i].cols;
        double *g = vector(n, NULL);
        m->core->read_param_grad(m->exec, i, g);
        total += dot(g, g, n);
        free(g);
    }
    for (int i = 0; i < m->graph->n_params; i++, c->cases++)
        c->difference = worst(parameter_difference(m, i, sqrt(total)), c->difference);
    m->core->forward(m->exec);
}

/** The model in a format, and the roles that have one of their own in another. */
static int make_in(struct nh_model *m, const struct nh_config *config, const char *dtype, const char *other)
{
    struct nh_config c = *config;
    nh_fmt_parse(&c.dtype, dtype);
    for (int role = 0; role < NH_ROLE_COUNT; role++)
        if (*c.role_format[role].name)
            nh_fmt_parse(&c.role_format[role], other);
    return make_model(m, &c);
}

static int make_pair(struct nh_model m[2], const struct nh_config *c)
{
    int status = make_in(&m[0], c, "fp64", "e11m51");
    return status ? status : make_in(&m[1], c, "fp32", "tf32");
}

/** Turns on the switches of the model. The derivative holds the divisor of --ln-relax constant, and so do differences where eps is 0:
 *  a norm then gives the same whatever its input is divided by. */
static void switch_on(struct nh_config *c)
{
    c->pb_relax = 3, c->ln_relax = 8, c->softcap = 2, c->z_loss = 0.05, c->embed_shrink = 0.25, c->eps = 0;
}

int nh_check_layout(const struct nh_layout *layout, bool switches, struct nh_check *out)
{
    struct nh_config c = small_config(layout, "fp64");
    struct nh_model m[2] = {0};
    *out = (struct nh_check){0};
    snprintf(out->subject, sizeof out->subject, "%s %s", switches ? "switches," : "layout", layout->name);
    if (switches)
        switch_on(&c);
    int status = make_pair(m, &c);
    if (!status) {
        const struct nh_graph *g = m[0].graph;
        for (int s = 1; s < g->n_steps && !status; s++)
            if (g->steps[s].end_rec > g->steps[s].first_rec)
                status = check_map(m, g->steps[s].first_rec, g->steps[s].end_rec, g->steps[s].before, g->steps[s].after, out);
        if (!status)
            status = check_map(m, 1, g->head_rec, (nh_val[NH_STREAMS]){g->recs[0].out, -1}, (nh_val[NH_STREAMS]){g->exit_value, -1}, out);
        if (!status)
            check_parameters(&m[0], out);
    }
    nh_model_destroy(&m[0]), nh_model_destroy(&m[1]);
    return status;
}

/** Models that use every operation in every form. */
static int operation_configs(struct nh_config *c)
{
    int n = 0;
    c[n++] = small_config(nh_layouts[0], "fp64");
    c[n] = c[0];
    c[n].norm = NH_NORM_LAYER, c[n].ffn = NH_FFN_SWIGLU, c[n].pos = NH_POS_LEARNED, c[n].bias = c[n].tie = true;
    c[n].embed_scale = 4, c[n].scale_after = true, c[n].window = 3;
    n++;
    c[n] = c[0];
    c[n].ffn = NH_FFN_GEGLU, c[n].qk_norm = true;
    n++;
    c[n] = c[0];
    c[n].ffn = NH_FFN_RELU, c[n].pos = NH_POS_NOPE, c[n].norm = NH_NORM_LAYER, c[n].qk_norm = true, c[n].kv_heads = 4;
    n++;
    c[n] = c[0];
    switch_on(&c[n]);
    c[n].pos = NH_POS_LEARNED;
    n++;
    c[n] = c[0];
    c[n].moe = (struct nh_moe){.experts = 5, .active = 2, .shared = 1, .mult = 0.5, .dense_layers = 1, .route_scale = 1.5};
    c[n].ffn = NH_FFN_SWIGLU;
    n++;
    c[n] = c[0]; /* local and global layers, gains as 1 + w, gates, a soft cap on scores, heads that do not fill the width */
    c[n].pos = NH_POS_INTERLEAVED, c[n].pattern = "lg", c[n].window = 2, c[n].gain_offset = c[n].attn_gate = c[n].scale_after = true;
    c[n].head_dim = 6, c[n].qk_norm = NH_QK_NORM_WIDTH, c[n].query_scalar = 5, c[n].score_softcap = 0.8, c[n].bias = NH_BIAS_QKV;
    n++;
    c[n] = c[0];
    c[n].pattern = "gl", c[n].theta_local = 50, c[n].rope_scaling = (struct nh_rope_scaling){NH_ROPE_LLAMA3, 8, 1, 4, 6};
    c[n].score_softcap = 0.5;
    n++;
    c[n] = c[0];
    nh_fmt_parse(&c[n].role_format[NH_ROLE_MATMUL_IN], "e11m51"), nh_fmt_parse(&c[n].role_format[NH_ROLE_NORM_IN], "e11m51");
    return n + 1;
}

/** Every operation of a model, in its place on the tape. */
static int check_records(const struct nh_config *config, struct nh_check *checks, bool parameters)
{
    struct nh_model m[2] = {0};
    int status = make_pair(m, config);
    const struct nh_graph *g = m[0].graph;
    for (int r = 0; !status && r < g->n_recs; r++)
        for (int i = 0; !status && i < 3; i++)
            if (g->recs[r].in[i] >= 0)
                status = check_map(m, r, r + 1, (nh_val[NH_STREAMS]){g->recs[r].in[i], -1},
                                   (nh_val[NH_STREAMS]){g->recs[r].out, -1}, &checks[g->recs[r].op]);
    if (!status && parameters)
        check_parameters(&m[0], &checks[NH_OP_EMBED]); /* the embedding has parameters only; those of all others go with it */
    nh_model_destroy(&m[0]), nh_model_destroy(&m[1]);
    return status;
}

int nh_check_operations(struct nh_check *out, int *n)
{
    struct nh_config configs[10];
    struct nh_check checks[NH_OP_COUNT] = {0};
    int n_configs = operation_configs(configs), status = NH_OK;
    *n = 0;
    for (int k = 0; k < n_configs && !status; k++)
        status = check_records(&configs[k], checks, true);
    for (int k = 0; nh_layouts[k] && !status; k++) { /* some operations occur in some layouts only */
        struct nh_config c = small_config(nh_layouts[k], "fp64");
        status = check_records(&c, checks, false);
    }
    for (int op = 0; op < NH_OP_COUNT; op++)
        if (checks[op].cases) {
            out[*n] = checks[op];
            snprintf(out[*n].subject, sizeof out[*n].subject, "operation %s", op_names[op]);
            (*n)++;
        }
    return status;
}
