// SPDX-License-Identifier: GPL-3.0-or-later
/** From a configuration to the tape: embedding, sublayers as the layout says, exit, head, loss. */
#include "harness/core/err.h"
#include "harness/core/graph.h"
#include "harness/core/init.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Keys of the random streams of tensors that belong to no branch (branch matrices use enum nh_weight). */
enum { TENSOR_EMBED = 100, TENSOR_POSITION, TENSOR_HEAD };

struct nh_builder {
    struct nh_graph *g;
    const struct nh_config *config;
    struct nh_pos pos;
    int layer;
    enum nh_sublayer sublayer;
    nh_val raw, branch[NH_STREAMS]; /**< of the sublayer under construction */
    int n_added;                    /**< residual adds in it so far */
};

static int site(struct nh_builder *b, enum nh_site_name name, enum nh_role role)
{
    return nh_graph_site(b->g, b->layer, b->sublayer, name, role);
}

static nh_val value(struct nh_builder *b, int cols, enum nh_site_name name, enum nh_role role)
{
    return nh_graph_value(b->g, cols, site(b, name, role), role);
}

static int cols_of(const struct nh_builder *b, nh_val v)
{
    return b->g->values[v].cols;
}

static int param(struct nh_builder *b, const char *name, int cols, int n_parts, const struct nh_part *parts, enum nh_role role,
                 enum nh_site_name gradient_site)
{
    struct nh_param p = {.layer = b->layer, .cols = cols, .n_parts = n_parts, .role = role};
    if (b->layer > 0 && b->sublayer != NH_SUB_FINAL)
        snprintf(p.name, sizeof p.name, "layers.%d.%s", b->layer, name);
    else
        snprintf(p.name, sizeof p.name, "%s", name);
    for (int i = 0; i < n_parts; i++) {
        p.part[i] = parts[i];
        p.rows += parts[i].rows;
    }
    p.site = site(b, gradient_site, role);
    p.weight_site = site(b, NH_SITE_WEIGHT, role);
    return nh_graph_param(b->g, &p);
}

static int constant(struct nh_builder *b, const char *name, int cols, double start, enum nh_role role, enum nh_site_name where)
{
    return param(b, name, cols, 1, &(struct nh_part){.rows = 1, .start = start}, role, where);
}

/** x in the format of a role: cast where it has another one. */
static nh_val cast(struct nh_builder *b, nh_val x, enum nh_site_name where, enum nh_role role)
{
    if (nh_fmt_same(&b->g->fmt[b->g->values[x].role], &b->g->fmt[role]))
        return x;
    nh_val y = value(b, cols_of(b, x), where, role);
    nh_graph_rec(b->g, NH_OP_CAST, y)->in[0] = x;
    return y;
}

static nh_val matmul_in(struct nh_builder *b, nh_val x)
{
    return cast(b, x, NH_SITE_CAST, NH_ROLE_MATMUL_IN);
}

/** What a norm reads under --ln-relax: x / c, in x's format. */
static nh_val relax(struct nh_builder *b, nh_val x)
{
    nh_val y = value(b, cols_of(b, x), NH_SITE_NORM_RELAX, b->g->values[x].role);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_RELAX, y);
    r->in[0] = x, r->u.relax.bound = b->config->ln_relax;
    return y;
}

static nh_val linear(struct nh_builder *b, nh_val x, int weight, const char *bias, enum nh_site_name where, enum nh_role role)
{
    x = matmul_in(b, x);
    int out = b->g->params[weight].rows;
    int bias_param = bias && b->config->bias ? constant(b, bias, out, 0, role, where) : -1;
    nh_val y = value(b, out, where, role);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_LINEAR, y);
    r->in[0] = x, r->par[0] = weight, r->par[1] = bias_param;
    return y;
}

static nh_val norm_over(struct nh_builder *b, nh_val x, int group, bool per_head, double gain, const char *name,
                        enum nh_site_name where)
{
    int cols = cols_of(b, x), n = per_head ? group : cols;
    char text[24];
    snprintf(text, sizeof text, "%s.gain", name);
    /* gains and biases are not inputs of products: they are held as what they are added to or multiplied with */
    int g = constant(b, text, n, gain, NH_ROLE_NORM_OUT, where);
    snprintf(text, sizeof text, "%s.bias", name);
    int shift = b->config->norm == NH_NORM_LAYER ? constant(b, text, n, 0, NH_ROLE_NORM_OUT, where) : -1;
    nh_val y = value(b, cols, where, NH_ROLE_NORM_OUT);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_NORM, y);
    r->in[0] = x, r->par[0] = g, r->par[1] = shift;
    r->u.norm.type = b->config->norm, r->u.norm.group = group, r->u.norm.per_head = per_head;
    return y;
}

nh_val nh_norm(struct nh_builder *b, enum nh_norm_slot slot, nh_val x, double gain)
{
    static const struct {
        const char *name;
        enum nh_site_name site;
    } places[] = {
        [NH_N1] = {"norm_pre", NH_SITE_NORM_PRE},
        [NH_SECOND] = {"norm_second", NH_SITE_NORM_PRE},
        [NH_N2] = {"norm_post", NH_SITE_NORM_POST},
        [NH_OUTER] = {"norm_post", NH_SITE_NORM_POST},
        [NH_FINAL] = {"norm_final", NH_SITE_NORM_FINAL},
    };
    static const char *const sublayers[] = {
        [NH_SUB_ATTN] = "attn.", [NH_SUB_FFN] = "ffn.", [NH_SUB_BLOCK] = "block.", [NH_SUB_FINAL] = ""};
    char name[20];
    snprintf(name, sizeof name, "%s%s", sublayers[b->sublayer], places[slot].name);
    b->g->n_norms++;
    if (b->config->ln_relax > 0)
        x = relax(b, x);
    if (*b->g->fmt[NH_ROLE_NORM_IN].name)
        x = cast(b, x, NH_SITE_NORM_IN, NH_ROLE_NORM_IN);
    double factor = slot == NH_N2 ? b->config->post_gain : 1;
    nh_val y = norm_over(b, x, cols_of(b, x), false, gain * factor, name, places[slot].site);
    b->g->params[b->g->recs[b->g->values[y].rec].par[0]].frozen = slot == NH_N2 && b->config->post_gain_frozen;
    return y;
}

static nh_val axpby(struct nh_builder *b, double s, nh_val x, double t, nh_val y, enum nh_site_name where, enum nh_role role)
{
    nh_val z = value(b, cols_of(b, x), where, role);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_AXPBY, z);
    r->in[0] = x, r->in[1] = y, r->u.axpby.a = s, r->u.axpby.b = t;
    return z;
}

nh_val nh_add_scaled(struct nh_builder *b, double skip, nh_val x, nh_val f)
{
    if (b->n_added < NH_STREAMS) /* the first add is to stream 0 */
        b->branch[b->n_added++] = f;
    return axpby(b, skip, x, 1, f, NH_SITE_RESIDUAL, NH_ROLE_RESIDUAL);
}

nh_val nh_add(struct nh_builder *b, nh_val x, nh_val f)
{
    return nh_add_scaled(b, 1, x, f);
}

nh_val nh_join(struct nh_builder *b, nh_val a, nh_val f)
{
    return axpby(b, 1, a, 1, f, NH_SITE_BRANCH, NH_ROLE_ACTIVATION);
}

nh_val nh_read_both(struct nh_builder *b, nh_val x, nh_val y)
{
    return axpby(b, 1, x, 1, y, NH_SITE_BRANCH_IN, NH_ROLE_ACTIVATION);
}

nh_val nh_scale(struct nh_builder *b, nh_val x, double c)
{
    return axpby(b, c, x, 0, -1, NH_SITE_NORM_SCALE, NH_ROLE_NORM_OUT);
}

nh_val nh_scale_branch(struct nh_builder *b, nh_val f, double c)
{
    return axpby(b, c, f, 0, -1, NH_SITE_BRANCH, NH_ROLE_ACTIVATION);
}

/** One trained factor for every `width` columns. */
static nh_val gain(struct nh_builder *b, nh_val x, int width, double start, const char *name, enum nh_site_name where, enum nh_role role)
{
    int cols = cols_of(b, x);
    nh_val y = value(b, cols, where, role);
    int p = constant(b, name, cols / width, start, NH_ROLE_NORM_OUT, where);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_GAIN, y);
    r->in[0] = x, r->par[0] = p, r->u.gain.width = width;
    return y;
}

nh_val nh_gain(struct nh_builder *b, nh_val f, bool per_channel, double start)
{
    return gain(b, f, per_channel ? 1 : cols_of(b, f), start, b->sublayer == NH_SUB_ATTN ? "attn.gain" : "ffn.gain", NH_SITE_BRANCH,
                NH_ROLE_ACTIVATION);
}

nh_val nh_skip_gain(struct nh_builder *b, nh_val x)
{
    nh_val y = gain(b, x, 1, 1, b->sublayer == NH_SUB_ATTN ? "attn.skip" : "ffn.skip", NH_SITE_SKIP, NH_ROLE_RESIDUAL);
    b->g->params[b->g->recs[b->g->values[y].rec].par[0]].profiled = true;
    return y;
}

nh_val nh_shrink(struct nh_builder *b, nh_val x, double start)
{
    nh_val y = value(b, cols_of(b, x), NH_SITE_SHRINK, NH_ROLE_RESIDUAL);
    int p = constant(b, b->sublayer == NH_SUB_ATTN ? "attn.shrink" : "ffn.shrink", 1, start, NH_ROLE_NORM_OUT, NH_SITE_SHRINK);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_SHRINK, y);
    r->in[0] = x, r->par[0] = p;
    return y;
}

static struct nh_part weight_part(const struct nh_builder *b, enum nh_weight w)
{
    int out, in;
    nh_weight_shape(b->config, w, &out, &in);
    return (struct nh_part){.rows = out, .tensor = (int)w, .std = nh_weight_std(b->config, w, &b->pos)};
}

static nh_val rotate(struct nh_builder *b, nh_val x, int head_dim)
{
    nh_val y = value(b, cols_of(b, x), NH_SITE_ROPE, NH_ROLE_ACTIVATION);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_ROPE, y);
    r->in[0] = x, r->u.rope.head_dim = head_dim;
    b->g->rope_dim = head_dim;
    return y;
}

/** Norm per head of queries, keys or values. */
static nh_val norm_heads(struct nh_builder *b, nh_val x, int head_dim, double start, const char *name, enum nh_site_name where)
{
    return norm_over(b, x, head_dim, true, start, name, where);
}

static nh_val attention(struct nh_builder *b, nh_val x, const struct nh_inner *inner)
{
    const struct nh_config *c = b->config;
    int dh = c->width / c->heads, dq = c->width, dkv = c->kv_heads * dh;
    struct nh_part qkv[] = {weight_part(b, NH_W_Q), weight_part(b, NH_W_K), weight_part(b, NH_W_V)};
    nh_val all = linear(b, x, param(b, "attn.qkv", c->width, 3, qkv, NH_ROLE_WEIGHT, NH_SITE_QKV), "attn.qkv.bias", NH_SITE_QKV,
                        NH_ROLE_MATMUL_OUT);
    nh_val q = nh_graph_view(b->g, all, 0, dq), k = nh_graph_view(b->g, all, dq, dkv);
    nh_val v = nh_graph_view(b->g, all, dq + dkv, dkv);
    if (c->qk_norm || inner->norm_qkv || inner->cosine > 0) {
        /* cosine attention: rows of RMS 1 have q.k = dh cos(q, k); the factor goes with q, where it is trained */
        double start = inner->cosine > 0 ? inner->cosine / sqrt(dh) : 1;
        q = norm_heads(b, q, dh, start, "attn.q_norm", NH_SITE_QK_NORM);
        k = norm_heads(b, k, dh, 1, "attn.k_norm", NH_SITE_QK_NORM);
    }
    if (inner->norm_qkv)
        v = norm_heads(b, v, dh, 1, "attn.v_norm", NH_SITE_NORM_INNER);
    if (c->pos == NH_POS_ROPE)
        q = rotate(b, q, dh), k = rotate(b, k, dh);
    /* scores are held divided by alpha (arXiv:2105.13290 section 2.4; by layer: arXiv:2210.02414 section 2.2) */
    double alpha = c->pb_relax < 0 ? b->layer : c->pb_relax > 0 ? c->pb_relax : 1, scale = 1 / (alpha * sqrt(dh));
    if (!c->scale_after)
        q = axpby(b, scale, q, 0, -1, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION);
    q = matmul_in(b, q), k = matmul_in(b, k), v = matmul_in(b, v);
    int site_qk = c->scale_after ? site(b, NH_SITE_QK, NH_ROLE_MATMUL_OUT) : -1;
    int site_scores = site(b, NH_SITE_SCORES, NH_ROLE_MATMUL_OUT), site_probs = site(b, NH_SITE_PROBS, NH_ROLE_MATMUL_IN);
    nh_val heads = value(b, dq, NH_SITE_ATTN_V, NH_ROLE_MATMUL_OUT);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_SDPA, heads);
    r->in[0] = q, r->in[1] = k, r->in[2] = v;
    r->u.sdpa.heads = c->heads, r->u.sdpa.kv_heads = c->kv_heads, r->u.sdpa.head_dim = dh;
    r->u.sdpa.window = c->window > 0 && c->window < b->g->seq ? c->window : b->g->seq;
    r->u.sdpa.scale = c->scale_after ? scale : 1, r->u.sdpa.alpha = alpha;
    r->u.sdpa.grad_stored = c->softmax_stored;
    r->u.sdpa.site_qk = site_qk, r->u.sdpa.site_scores = site_scores, r->u.sdpa.site_probs = site_probs;
    if (inner->scale_heads)
        heads = gain(b, heads, dh, 1, "attn.heads", NH_SITE_HEAD_SCALE, NH_ROLE_ACTIVATION);
    if (inner->norm_out)
        heads = norm_over(b, heads, dq, false, 1, "attn.norm_out", NH_SITE_NORM_INNER);
    struct nh_part o = weight_part(b, NH_W_O);
    return linear(b, heads, param(b, "attn.out", dq, 1, &o, NH_ROLE_WEIGHT, NH_SITE_ATTN_OUT), "attn.out.bias", NH_SITE_ATTN_OUT,
                  NH_ROLE_MATMUL_OUT);
}

static nh_val activate(struct nh_builder *b, nh_val x, enum nh_act kind, enum nh_site_name where, enum nh_role role)
{
    nh_val y = value(b, cols_of(b, x), where, role);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_ACT, y);
    r->in[0] = x, r->u.act.kind = kind, r->u.act.cap = b->config->softcap;
    return y;
}

static nh_val feed_forward(struct nh_builder *b, nh_val x, const struct nh_inner *inner)
{
    static const struct {
        enum nh_act act;
        bool gated;
    } forms[] = {
        [NH_FFN_GELU] = {NH_ACT_GELU, false},
        [NH_FFN_RELU] = {NH_ACT_RELU, false},
        [NH_FFN_SWIGLU] = {NH_ACT_SILU, true},
        [NH_FFN_GEGLU] = {NH_ACT_GELU, true},
    };
    const struct nh_config *c = b->config;
    bool gated = forms[c->ffn].gated;
    struct nh_part in[2] = {weight_part(b, NH_W_IN), {0}}, out = weight_part(b, NH_W_OUT);
    int hidden = in[0].rows;
    if (gated)
        in[1] = in[0], in[0] = weight_part(b, NH_W_GATE);
    nh_val h = linear(b, x, param(b, "ffn.in", c->width, gated ? 2 : 1, in, NH_ROLE_WEIGHT, NH_SITE_FFN_IN), "ffn.in.bias",
                      NH_SITE_FFN_IN, NH_ROLE_MATMUL_OUT);
    if (gated) {
        nh_val a = activate(b, nh_graph_view(b->g, h, 0, hidden), forms[c->ffn].act, NH_SITE_FFN_ACT, NH_ROLE_ACTIVATION);
        nh_val up = nh_graph_view(b->g, h, hidden, hidden);
        nh_val y = value(b, hidden, NH_SITE_FFN_GLU, NH_ROLE_ACTIVATION);
        struct nh_rec *r = nh_graph_rec(b->g, NH_OP_MUL, y);
        r->in[0] = a, r->in[1] = up;
        h = y;
    } else {
        h = activate(b, h, forms[c->ffn].act, NH_SITE_FFN_ACT, NH_ROLE_ACTIVATION);
    }
    if (inner->norm_out)
        h = norm_over(b, h, hidden, false, 1, "ffn.norm_out", NH_SITE_NORM_INNER);
    return linear(b, h, param(b, "ffn.out", hidden, 1, &out, NH_ROLE_WEIGHT, NH_SITE_FFN_OUT), "ffn.out.bias", NH_SITE_FFN_OUT,
                  NH_ROLE_MATMUL_OUT);
}

nh_val nh_branch_with(struct nh_builder *b, nh_val x, const struct nh_inner *inner)
{
    assert(b->pos.kind != NH_BLOCK);
    b->g->n_norms += b->pos.kind == NH_ATTN ? (inner->norm_qkv ? 3 : 0) + inner->norm_out : inner->norm_out;
    return b->raw = b->pos.kind == NH_ATTN ? attention(b, x, inner) : feed_forward(b, x, inner);
}

nh_val nh_branch(struct nh_builder *b, nh_val x)
{
    return nh_branch_with(b, x, &(struct nh_inner){0});
}

static enum nh_sublayer sublayer_of(enum nh_kind kind)
{
    static const enum nh_sublayer sublayers[] = {[NH_ATTN] = NH_SUB_ATTN, [NH_FFN] = NH_SUB_FFN, [NH_BLOCK] = NH_SUB_BLOCK};
    return sublayers[kind];
}

void nh_at(struct nh_builder *b, enum nh_kind kind)
{
    b->pos.kind = kind;
    b->sublayer = sublayer_of(kind);
}

nh_val nh_exit_norm(struct nh_builder *b, const nh_val *x)
{
    return nh_norm(b, NH_FINAL, x[0], 1);
}

nh_val nh_exit_bare(struct nh_builder *b, const nh_val *x)
{
    (void)b;
    return x[0];
}

/** A row of the results: from the streams `before` (NULL: from nothing) to the n streams `after`. */
static void step(struct nh_builder *b, const nh_val *before, int first_rec, const nh_val *after, int n)
{
    struct nh_graph *g = b->g;
    struct nh_step *more = realloc(g->steps, ((size_t)g->n_steps + 1) * sizeof *more);
    if (!more)
        abort();
    g->steps = more;
    struct nh_step *s = &g->steps[g->n_steps++];
    /* a block has no one output of a branch, and no one addition where it adds more than once to a stream */
    bool block = b->sublayer == NH_SUB_BLOCK;
    int n_added = block && b->n_added > n ? 0 : b->n_added;
    *s = (struct nh_step){.layer = b->layer, .sublayer = b->sublayer, .first_rec = first_rec, .end_rec = g->n_recs,
                          .raw = block ? -1 : b->raw};
    for (int i = 0; i < NH_STREAMS; i++) {
        s->before[i] = before ? before[i] : -1;
        s->after[i] = i < n ? after[i] : -1;
        s->branch[i] = i < n_added ? b->branch[i] : -1;
        if (i < n)
            g->values[after[i]].watched = true;
    }
    b->raw = -1, b->n_added = 0;
}

static void at(struct nh_builder *b, int layer, enum nh_sublayer sublayer)
{
    b->layer = layer, b->sublayer = sublayer;
}

/** Records the embedding and the streams that start from it; returns the table's parameter. */
static int embed(struct nh_builder *b, nh_val *streams)
{
    const struct nh_config *c = b->config;
    at(b, 0, NH_SUB_EMBED);
    struct nh_part tok = {.rows = b->g->vocab, .tensor = TENSOR_EMBED, .std = nh_embed_std(c)};
    struct nh_part pos = {.rows = b->g->seq, .tensor = TENSOR_POSITION, .std = nh_embed_std(c)};
    int table = param(b, "embed", c->width, 1, &tok, NH_ROLE_EMBEDDING, NH_SITE_EMBED);
    int position = c->pos == NH_POS_LEARNED ? param(b, "positions", c->width, 1, &pos, NH_ROLE_EMBEDDING, NH_SITE_EMBED) : -1;
    nh_val x = value(b, c->width, NH_SITE_EMBED, NH_ROLE_RESIDUAL);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_EMBED, x);
    r->par[0] = table, r->par[1] = position;
    /* a constant is held in the format of what it multiplies: sqrt(3072) is 55.5 in bf16 */
    r->u.embed.scale = nh_round(&b->g->fmt[NH_ROLE_EMBEDDING], c->embed_scale), r->u.embed.shrink = c->embed_shrink;
    streams[0] = x;
    for (int i = 1; i < b->g->n_streams; i++) /* a value of its own, so that each stream has its own derivative */
        streams[i] = axpby(b, 1, x, 0, -1, NH_SITE_EMBED, NH_ROLE_RESIDUAL);
    step(b, NULL, 0, streams, b->g->n_streams);
    return table;
}

/** One sublayer, or one block, with its row of the results. */
static void build_step(struct nh_builder *b, int layer, enum nh_kind kind, nh_val *streams)
{
    const struct nh_layout *layout = b->config->layout;
    nh_val before[NH_STREAMS];
    memcpy(before, streams, sizeof before);
    b->pos = (struct nh_pos){.layer = layer, .depth = b->config->depth, .kind = kind};
    struct nh_pos pos = b->pos;
    at(b, layer, sublayer_of(kind));
    int first = b->g->n_recs;
    if (kind == NH_BLOCK)
        layout->block(b, &pos, b->config->knobs, streams);
    else
        layout->sublayer(b, &pos, b->config->knobs, streams);
    b->sublayer = sublayer_of(kind); /* a block hook may have left it at one of its branches */
    step(b, before, first, streams, b->g->n_streams);
}

int nh_graph_build(struct nh_graph **out, const struct nh_config *config, int batch, int seq, int vocab)
{
    const struct nh_layout *layout = config->layout;
    if (layout->block && config->branches != NH_BRANCHES_BOTH)
        return nh_fail(NH_USAGE, "layout %s is a block around both branches; leave --branches out", layout->name);
    struct nh_builder b = {.g = nh_graph_new(config, batch, seq, vocab), .config = config, .raw = -1};
    struct nh_graph *g = b.g;
    g->n_streams = layout->n_streams;
    nh_val streams[NH_STREAMS] = {-1, -1};
    int table = embed(&b, streams);
    for (int l = 1; l <= config->depth; l++) {
        if (layout->block)
            build_step(&b, l, NH_BLOCK, streams);
        if (layout->sublayer && config->branches & NH_BRANCHES_ATTN)
            build_step(&b, l, NH_ATTN, streams);
        if (layout->sublayer && config->branches & NH_BRANCHES_FFN)
            build_step(&b, l, NH_FFN, streams);
    }
    at(&b, config->depth + 1, NH_SUB_FINAL);
    int first = g->n_recs;
    nh_val y = g->exit_value = layout->exit(&b, streams);
    b.n_added = 0; /* an exit may add streams: that is no branch */
    step(&b, streams, first, &y, 1);
    g->head_rec = g->n_recs;
    if (!config->tie) {
        struct nh_part head = {.rows = vocab, .tensor = TENSOR_HEAD, .std = nh_head_std(config)};
        table = param(&b, "head", config->width, 1, &head, NH_ROLE_WEIGHT, NH_SITE_LOGITS);
    }
    g->logits = linear(&b, y, table, NULL, NH_SITE_LOGITS, NH_ROLE_LOGITS);
    if (config->softcap > 0)
        g->logits = activate(&b, g->logits, NH_ACT_SOFTCAP, NH_SITE_SOFTCAP, NH_ROLE_LOGITS);
    g->nll = nh_graph_value(g, 1, nh_graph_site(g, b.layer, b.sublayer, NH_SITE_LOSS, NH_ROLE_LOSS), NH_ROLE_LOSS);
    struct nh_rec *loss = nh_graph_rec(g, NH_OP_XENT, g->nll);
    loss->in[0] = g->logits, loss->u.xent.z_loss = config->z_loss;
    nh_graph_close(g);
    *out = g;
    return NH_OK;
}
