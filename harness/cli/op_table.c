// SPDX-License-Identifier: GPL-3.0-or-later
/** The operations of `harness op`, and how each is recorded: in the roles and at the sites that it has in a model. */
#include "harness/cli/op.h"
#include "harness/core/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int cols_of(const struct nh_op_build *b, int i)
{
    return b->g->values[b->at[i]].cols;
}

/* What the operation itself stores: sites of layer 0; those of given tensors come before. */
static int site(struct nh_op_build *b, enum nh_site_name name, enum nh_role role)
{
    return nh_graph_site(b->g, 0, NH_SUB_EMBED, name, role);
}

/* Records op with a new output; the record is valid until the next one. */
static struct nh_rec *record(struct nh_op_build *b, enum nh_op op, int cols, enum nh_site_name name, enum nh_role role)
{
    b->out = nh_graph_value(b->g, cols, site(b, name, role), role);
    return nh_graph_rec(b->g, op, b->out);
}

/* Refuses tensor i unless its last dimension, or its only one, is want. */
static int want_cols(const struct nh_op_build *b, int i, int want, const char *why)
{
    if (!b->given[i])
        return NH_OK;
    const struct nh_shape *s = &b->given[i]->shape;
    if (s->rank > 0 && s->dims[s->rank - 1] == (size_t)want)
        return NH_OK;
    char text[NH_SHAPE_TEXT];
    return nh_fail(NH_FAILED, "'%s': tensor '%s' has the shape %s, but its last dimension must be %d, %s", b->q->in,
                   b->op->tensors[i].name, nh_shape_text(s, text), want, why);
}

static int linear(struct nh_op_build *b)
{
    int status = want_cols(b, 1, cols_of(b, 0), "the columns of x");
    const int out = b->g->params[b->at[1]].rows;
    if (!status)
        status = want_cols(b, 2, out, "the rows of weight");
    if (status)
        return status;
    struct nh_rec *r = record(b, NH_OP_LINEAR, out, NH_SITE_FFN_OUT, NH_ROLE_MATMUL_OUT);
    r->in[0] = b->at[0], r->par[0] = b->at[1], r->par[1] = b->at[2];
    return NH_OK;
}

static int norm(struct nh_op_build *b)
{
    const int cols = cols_of(b, 0), group = b->q->group ? b->q->group : cols;
    if (cols % group != 0)
        return nh_fail(NH_USAGE, "--group %d does not divide the %d columns of x", group, cols);
    const int first = b->given[1] ? 1 : 2; /* gain and bias have one number for each column of x, or of a group */
    const bool per_head = group < cols && b->given[first] && b->given[first]->count == (size_t)group;
    const int n = per_head ? group : cols;
    int status = want_cols(b, 1, n, "the columns of x or those of --group");
    if (!status)
        status = want_cols(b, 2, n, b->given[1] ? "as that of gain" : "the columns of x or those of --group");
    if (status)
        return status;
    if (!b->given[1])
        b->at[1] = nh_op_param(b, 1, 1, n);
    struct nh_rec *r = record(b, NH_OP_NORM, cols, NH_SITE_NORM_PRE, NH_ROLE_NORM_OUT);
    r->in[0] = b->at[0], r->par[0] = b->at[1], r->par[1] = b->at[2];
    r->u.norm.type = b->q->config.norm, r->u.norm.group = group, r->u.norm.per_head = per_head;
    return NH_OK;
}

static int rope(struct nh_op_build *b)
{
    const int cols = cols_of(b, 0), dim = b->q->head_dim ? b->q->head_dim : cols;
    if (cols % dim != 0 || dim % 2 != 0)
        return nh_fail(NH_USAGE, "heads of %d columns: --head-dim must be even and divide the %d columns of x", dim,
                       cols);
    struct nh_rec *r = record(b, NH_OP_ROPE, cols, NH_SITE_ROPE, NH_ROLE_ACTIVATION);
    r->in[0] = b->at[0], r->u.rope.head_dim = b->g->rope_dim = dim;
    return NH_OK;
}

/* q in the format of an input of products, cast where it has another one: as in a model. */
static nh_val matmul_in(struct nh_op_build *b, nh_val q)
{
    const struct nh_fmt *have = &b->g->fmt[b->g->values[q].role], *want = &b->g->fmt[NH_ROLE_MATMUL_IN];
    if (have->exp_bits == want->exp_bits && have->man_bits == want->man_bits && have->has_inf == want->has_inf)
        return q;
    record(b, NH_OP_CAST, b->g->values[q].cols, NH_SITE_CAST, NH_ROLE_MATMUL_IN)->in[0] = q;
    return b->out;
}

static int attention(struct nh_op_build *b)
{
    const struct nh_config *c = &b->q->config;
    const int cols = cols_of(b, 0), heads = c->heads, kv_heads = c->kv_heads ? c->kv_heads : heads, dim = cols / heads;
    if (cols % heads != 0)
        return nh_fail(NH_USAGE, "--heads %d does not divide the %d columns of q", heads, cols);
    if (heads % kv_heads != 0)
        return nh_fail(NH_USAGE, "--kv-heads %d does not divide --heads %d", kv_heads, heads);
    int status = NH_OK;
    for (int i = 1; i <= 2 && !status; i++)
        status = want_cols(b, i, kv_heads * dim, "--kv-heads times the width of a head of q");
    if (status)
        return status;
    const double alpha = c->pb_relax > 0 ? c->pb_relax : 1, scale = 1 / (alpha * sqrt(dim));
    nh_val q = b->at[0];
    if (!c->scale_after) {
        struct nh_rec *r = record(b, NH_OP_AXPBY, cols, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION);
        r->in[0] = q, r->u.axpby.a = scale;
        q = b->out;
    }
    q = matmul_in(b, q);
    const int site_qk = c->scale_after ? site(b, NH_SITE_QK, NH_ROLE_MATMUL_OUT) : -1;
    const int site_scores = site(b, NH_SITE_SCORES, NH_ROLE_MATMUL_OUT);
    const int site_probs = site(b, NH_SITE_PROBS, NH_ROLE_MATMUL_IN);
    struct nh_rec *r = record(b, NH_OP_SDPA, cols, NH_SITE_ATTN_V, NH_ROLE_MATMUL_OUT);
    r->in[0] = q, r->in[1] = b->at[1], r->in[2] = b->at[2];
    r->u.sdpa.heads = heads, r->u.sdpa.kv_heads = kv_heads, r->u.sdpa.head_dim = dim;
    r->u.sdpa.window = c->window > 0 && c->window < b->g->seq ? c->window : b->g->seq;
    r->u.sdpa.scale = c->scale_after ? scale : 1, r->u.sdpa.alpha = alpha;
    r->u.sdpa.site_qk = site_qk, r->u.sdpa.site_scores = site_scores, r->u.sdpa.site_probs = site_probs;
    return NH_OK;
}

static int activation(struct nh_op_build *b, enum nh_act kind)
{
    struct nh_rec *r = record(b, NH_OP_ACT, cols_of(b, 0), NH_SITE_FFN_ACT, NH_ROLE_ACTIVATION);
    r->in[0] = b->at[0], r->u.act.kind = kind;
    return NH_OK;
}

static int softcap(struct nh_op_build *b)
{
    struct nh_rec *r = record(b, NH_OP_ACT, cols_of(b, 0), NH_SITE_SOFTCAP, NH_ROLE_LOGITS);
    r->in[0] = b->at[0], r->u.act.kind = NH_ACT_SOFTCAP, r->u.act.cap = b->q->config.softcap;
    return NH_OK;
}

static int gelu(struct nh_op_build *b)
{
    return activation(b, NH_ACT_GELU);
}

static int relu(struct nh_op_build *b)
{
    return activation(b, NH_ACT_RELU);
}

static int silu(struct nh_op_build *b)
{
    return activation(b, NH_ACT_SILU);
}

static int mul(struct nh_op_build *b)
{
    const int status = want_cols(b, 1, cols_of(b, 0), "the columns of a");
    if (status)
        return status;
    struct nh_rec *r = record(b, NH_OP_MUL, cols_of(b, 0), NH_SITE_FFN_GLU, NH_ROLE_ACTIVATION);
    r->in[0] = b->at[0], r->in[1] = b->at[1];
    return NH_OK;
}

static int add(struct nh_op_build *b)
{
    const int status = want_cols(b, 1, cols_of(b, 0), "the columns of a");
    if (status)
        return status;
    struct nh_rec *r = record(b, NH_OP_AXPBY, cols_of(b, 0), NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
    r->in[0] = b->at[0], r->in[1] = b->at[1], r->u.axpby.a = r->u.axpby.b = 1;
    return NH_OK;
}

static int gain(struct nh_op_build *b)
{
    const int cols = cols_of(b, 0), n = b->g->params[b->at[1]].cols;
    if (cols % n != 0)
        return nh_fail(NH_FAILED, "'%s': tensor 'gain' has %d numbers, which do not divide the %d columns of x",
                       b->q->in, n, cols);
    struct nh_rec *r = record(b, NH_OP_GAIN, cols, NH_SITE_BRANCH, NH_ROLE_ACTIVATION);
    r->in[0] = b->at[0], r->par[0] = b->at[1], r->u.gain.width = cols / n;
    return NH_OK;
}

static int relax(struct nh_op_build *b)
{
    struct nh_rec *r = record(b, NH_OP_RELAX, cols_of(b, 0), NH_SITE_NORM_RELAX, NH_ROLE_RESIDUAL);
    r->in[0] = b->at[0], r->u.relax.bound = b->q->config.ln_relax;
    return NH_OK;
}

static int route(struct nh_op_build *b)
{
    const struct nh_moe *moe = &b->q->config.moe;
    const int n = cols_of(b, 0);
    if (moe->active > n)
        return nh_fail(NH_USAGE, "--experts-active %d is more than the %d columns of logits", moe->active, n);
    const int status = want_cols(b, 1, n, "the columns of logits");
    if (status)
        return status;
    struct nh_rec *r = record(b, NH_OP_ROUTE, moe->active, NH_SITE_ROUTE, NH_ROLE_SOFTMAX);
    r->in[0] = b->at[0], r->par[0] = b->at[1], r->u.route.scale = moe->route_scale;
    return NH_OK;
}

static int cast(struct nh_op_build *b)
{
    record(b, NH_OP_CAST, cols_of(b, 0), NH_SITE_CAST, NH_ROLE_MATMUL_IN)->in[0] = b->at[0];
    return NH_OK;
}

static int embed(struct nh_op_build *b)
{
    const struct nh_param *table = &b->g->params[b->at[1]];
    b->g->vocab = table->rows;
    const double scale = b->q->config.embed_scale > 0 ? b->q->config.embed_scale : sqrt(table->cols);
    struct nh_rec *r = record(b, NH_OP_EMBED, table->cols, NH_SITE_EMBED, NH_ROLE_RESIDUAL);
    r->par[0] = b->at[1], r->u.embed.scale = nh_round(&b->g->fmt[NH_ROLE_EMBEDDING], scale);
    r->u.embed.shrink = b->q->config.embed_shrink;
    return NH_OK;
}

static int cross_entropy(struct nh_op_build *b)
{
    b->g->vocab = cols_of(b, 0);
    struct nh_rec *r = record(b, NH_OP_XENT, 1, NH_SITE_LOSS, NH_ROLE_LOSS);
    r->in[0] = b->at[0], r->u.xent.z_loss = b->q->config.z_loss;
    return NH_OK;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

// clang-format off
const struct nh_operation nh_operations[] = {
    {"linear", {{"x", NH_OP_VALUE, NH_ROLE_MATMUL_IN, false}, {"weight", NH_OP_MATRIX, NH_ROLE_WEIGHT, false},
                {"bias", NH_OP_VECTOR, NH_ROLE_MATMUL_OUT, true}},
     NULL, false, "x weight' + bias, weight [out, in]", linear},
    {"norm", {{"x", NH_OP_VALUE, NH_ROLE_RESIDUAL, false}, {"gain", NH_OP_VECTOR, NH_ROLE_NORM_OUT, true},
              {"bias", NH_OP_VECTOR, NH_ROLE_NORM_OUT, true}},
     WORDS("norm", "eps", "group"), false, "RMSNorm or LayerNorm of each row, or of each group of its columns", norm},
    {"rope", {{"x", NH_OP_VALUE, NH_ROLE_MATMUL_OUT, false}},
     WORDS("head-dim", "theta"), false, "rotation of row t of a sequence by position t, from 0", rope},
    {"attention", {{"q", NH_OP_VALUE, NH_ROLE_ACTIVATION, false}, {"k", NH_OP_VALUE, NH_ROLE_MATMUL_IN, false},
                   {"v", NH_OP_VALUE, NH_ROLE_MATMUL_IN, false}},
     WORDS("heads", "kv-heads", "window", "score-scale", "pb-relax"), false,
     "causal softmax(q k' / sqrt(head width)) v, heads side by side",
     attention},
    {"gelu", {{"x", NH_OP_VALUE, NH_ROLE_MATMUL_OUT, false}}, NULL, false, "GELU in the tanh form", gelu},
    {"relu", {{"x", NH_OP_VALUE, NH_ROLE_MATMUL_OUT, false}}, NULL, false, "max(x, 0)", relu},
    {"silu", {{"x", NH_OP_VALUE, NH_ROLE_MATMUL_OUT, false}}, NULL, false, "x sigmoid(x)", silu},
    {"mul", {{"a", NH_OP_VALUE, NH_ROLE_ACTIVATION, false}, {"b", NH_OP_VALUE, NH_ROLE_MATMUL_OUT, false}},
     NULL, false, "a times b, number by number", mul},
    {"add", {{"a", NH_OP_VALUE, NH_ROLE_RESIDUAL, false}, {"b", NH_OP_VALUE, NH_ROLE_RESIDUAL, false}},
     NULL, false, "a + b, the residual add", add},
    {"gain", {{"x", NH_OP_VALUE, NH_ROLE_ACTIVATION, false}, {"gain", NH_OP_VECTOR, NH_ROLE_NORM_OUT, false}},
     NULL, false, "x times one factor for each column, or for each run of columns", gain},
    {"relax", {{"x", NH_OP_VALUE, NH_ROLE_RESIDUAL, false}}, WORDS("ln-relax"), false,
     "x / c, c = max|x| over all numbers of x, divided by --ln-relax: what a norm reads under that option", relax},
    {"softcap", {{"x", NH_OP_VALUE, NH_ROLE_LOGITS, false}}, WORDS("softcap"), false, "C tanh(x / C)", softcap},
    {"route", {{"logits", NH_OP_VALUE, NH_ROLE_MATMUL_OUT, false}, {"bias", NH_OP_VECTOR, NH_ROLE_SOFTMAX, false}},
     WORDS("experts-active", "route-scale"), false,
     "weights of the experts with the largest sigmoid(logits) + bias, in the order of their numbers", route},
    {"cast", {{"x", NH_OP_VALUE, NH_ROLE_RESIDUAL, false}}, NULL, true, "x as it is given, in another format", cast},
    {"embed", {{"tokens", NH_OP_TOKENS, NH_ROLE_EMBEDDING, false}, {"weight", NH_OP_MATRIX, NH_ROLE_EMBEDDING, false}},
     WORDS("embed-scale", "embed-shrink"), false, "rows of weight, one for each token", embed},
    {"cross-entropy", {{"logits", NH_OP_VALUE, NH_ROLE_LOGITS, false}, {"tokens", NH_OP_TOKENS, NH_ROLE_LOGITS, false}},
     WORDS("z-loss"), false, "-log softmax(logits)[next token] of each row, 0 in the last of a sequence", cross_entropy},
};
// clang-format on
const size_t nh_operation_count = sizeof nh_operations / sizeof *nh_operations;

int nh_operation_tensor(const struct nh_operation *op, const char *name)
{
    for (int i = 0; i < NH_OP_TENSORS && op->tensors[i].name; i++)
        if (strcmp(op->tensors[i].name, name) == 0)
            return i;
    return -1;
}

const char *nh_operation_tensors(const struct nh_operation *op, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (const struct nh_op_tensor *t = op->tensors; t < op->tensors + NH_OP_TENSORS && t->name && n < size; t++)
        n += (size_t)snprintf(text + n, size - n, t->optional ? "%s[%s]" : "%s%s", n ? "," : "", t->name);
    return text;
}

const char *nh_operation_attributes(const struct nh_operation *op, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (const char *const *a = op->attributes; a && *a && n < size; a++)
        n += (size_t)snprintf(text + n, size - n, "%s--%s", n ? "," : "", *a);
    return text;
}
