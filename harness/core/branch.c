// SPDX-License-Identifier: GPL-3.0-or-later
/** The branches of a layer: attention and feed-forward network, as the configuration says. */
#include "harness/core/builder.h"
#include "harness/core/init.h"

#include <math.h>

static nh_val rotate(struct nh_builder *b, nh_val x, int head_dim)
{
    /* without a pattern all layers are as global ones */
    nh_val y = nh_put_value(b, nh_cols(b, x), NH_SITE_ROPE, NH_ROLE_ACTIVATION);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_ROPE, y);
    r->in[0] = x, r->u.rope.head_dim = head_dim, r->u.rope.table = nh_layer_is_local(b->config, b->layer);
    b->g->rope_dim = head_dim;
    return y;
}

/** Norm of queries, keys or values: of each head, or with --qk-norm width of all heads together (OLMo 2). */
static nh_val norm_heads(struct nh_builder *b, nh_val x, int head_dim, double start, const char *name, enum nh_site_name where)
{
    bool whole = b->config->qk_norm == NH_QK_NORM_WIDTH;
    return nh_put_norm(b, x, whole ? nh_cols(b, x) : head_dim, !whole, start, name, where);
}

/** heads times sigmoid(W x), number by number (Qiu et al., arXiv:2505.06708, the form on the output of attention; AFMoE). */
static nh_val gate(struct nh_builder *b, nh_val heads, nh_val x)
{
    struct nh_part w = nh_put_part(b, NH_W_ATTN_GATE);
    int weight = nh_put_param(b, "attn.gate", nh_cols(b, x), 1, &w, NH_ROLE_WEIGHT, NH_SITE_GATE_IN);
    nh_val g = nh_put_linear(b, x, weight, NULL, NH_SITE_GATE_IN, NH_ROLE_MATMUL_OUT);
    g = nh_put_activate(b, g, NH_ACT_SIGMOID, NH_SITE_GATE_ACT, NH_ROLE_ACTIVATION);
    return nh_put_mul(b, heads, g, NH_SITE_GATE);
}

nh_val nh_put_attention(struct nh_builder *b, nh_val x, const struct nh_inner *inner)
{
    const struct nh_config *c = b->config;
    int dh = nh_head_dim(c), dq = c->heads * dh, dkv = c->kv_heads * dh, window = nh_layer_window(c, b->layer);
    double divisor = sqrt(c->query_scalar > 0 ? c->query_scalar : dh);
    bool bias_in = c->bias == NH_BIAS_ON || c->bias == NH_BIAS_QKV || c->bias == NH_BIAS_ATTN;
    bool bias_out = c->bias == NH_BIAS_ON || c->bias == NH_BIAS_ATTN;
    struct nh_part qkv[] = {nh_put_part(b, NH_W_Q), nh_put_part(b, NH_W_K), nh_put_part(b, NH_W_V)};
    int w_qkv = nh_put_param(b, "attn.qkv", c->width, 3, qkv, NH_ROLE_WEIGHT, NH_SITE_QKV);
    nh_val all = nh_put_linear(b, x, w_qkv, bias_in ? "attn.qkv.bias" : NULL, NH_SITE_QKV, NH_ROLE_MATMUL_OUT);
    nh_val q = nh_graph_view(b->g, all, 0, dq), k = nh_graph_view(b->g, all, dq, dkv);
    nh_val v = nh_graph_view(b->g, all, dq + dkv, dkv);
    if (c->qk_norm || inner->norm_qkv || inner->cosine > 0) {
        /* cosine attention: rows of RMS 1 have q.k = dh cos(q, k); the factor goes with q, where it is trained */
        double start = inner->cosine > 0 ? inner->cosine * divisor / dh : 1;
        q = norm_heads(b, q, dh, start, "attn.q_norm", NH_SITE_QK_NORM);
        k = norm_heads(b, k, dh, 1, "attn.k_norm", NH_SITE_QK_NORM);
    }
    if (inner->norm_qkv)
        v = norm_heads(b, v, dh, 1, "attn.v_norm", NH_SITE_NORM_INNER);
    if (nh_layer_rotates(c, b->layer))
        q = rotate(b, q, dh), k = rotate(b, k, dh);
    /* scores are held divided by alpha (arXiv:2105.13290 section 2.4; by layer: arXiv:2210.02414 section 2.2) */
    double alpha = c->pb_relax < 0 ? b->layer : c->pb_relax > 0 ? c->pb_relax : 1, scale = 1 / (alpha * divisor);
    if (!c->scale_after)
        q = nh_put_axpby(b, scale, q, 0, -1, NH_SITE_Q_SCALE, NH_ROLE_ACTIVATION);
    q = nh_put_matmul_in(b, q), k = nh_put_matmul_in(b, k), v = nh_put_matmul_in(b, v);
    int site_qk = c->scale_after ? nh_put_site(b, NH_SITE_QK, NH_ROLE_MATMUL_OUT) : -1;
    int site_scores = nh_put_site(b, NH_SITE_SCORES, NH_ROLE_MATMUL_OUT);
    int site_cap = c->score_softcap > 0 ? nh_put_site(b, NH_SITE_SCORE_CAP, NH_ROLE_ACTIVATION) : -1;
    int site_probs = nh_put_site(b, NH_SITE_PROBS, NH_ROLE_MATMUL_IN);
    nh_val heads = nh_put_value(b, dq, NH_SITE_ATTN_V, NH_ROLE_MATMUL_OUT);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_SDPA, heads);
    r->in[0] = q, r->in[1] = k, r->in[2] = v;
    r->u.sdpa.heads = c->heads, r->u.sdpa.kv_heads = c->kv_heads, r->u.sdpa.head_dim = dh;
    r->u.sdpa.window = window > 0 && window < b->g->seq ? window : b->g->seq;
    r->u.sdpa.scale = c->scale_after ? scale : 1, r->u.sdpa.alpha = alpha, r->u.sdpa.cap = c->score_softcap;
    r->u.sdpa.grad_stored = c->softmax_stored;
    r->u.sdpa.site_qk = site_qk, r->u.sdpa.site_scores = site_scores, r->u.sdpa.site_cap = site_cap, r->u.sdpa.site_probs = site_probs;
    if (inner->scale_heads)
        heads = nh_put_gain(b, heads, dh, 1, "attn.heads", NH_SITE_HEAD_SCALE, NH_ROLE_ACTIVATION);
    if (inner->norm_out)
        heads = nh_put_norm(b, heads, dq, false, 1, "attn.norm_out", NH_SITE_NORM_INNER);
    if (c->attn_gate)
        heads = gate(b, heads, x);
    struct nh_part o = nh_put_part(b, NH_W_O);
    int w_out = nh_put_param(b, "attn.out", dq, 1, &o, NH_ROLE_WEIGHT, NH_SITE_ATTN_OUT);
    return nh_put_linear(b, heads, w_out, bias_out ? "attn.out.bias" : NULL, NH_SITE_ATTN_OUT, NH_ROLE_MATMUL_OUT);
}

int nh_put_ffn_parts(const struct nh_builder *b, int hidden, struct nh_part in[2], struct nh_part *out)
{
    int n = 0, width = b->config->width;
    if (nh_ffn_is_gated(b->config->ffn))
        in[n++] = nh_put_matrix(b, NH_W_GATE, hidden, width);
    in[n++] = nh_put_matrix(b, NH_W_IN, hidden, width);
    *out = nh_put_matrix(b, NH_W_OUT, width, hidden);
    return n;
}

nh_val nh_put_hidden(struct nh_builder *b, nh_val h, enum nh_site_name act, enum nh_site_name glu)
{
    static const enum nh_act acts[] = {
        [NH_FFN_GELU] = NH_ACT_GELU, [NH_FFN_RELU] = NH_ACT_RELU, [NH_FFN_SWIGLU] = NH_ACT_SILU, [NH_FFN_GEGLU] = NH_ACT_GELU};
    enum nh_act kind = acts[b->config->ffn];
    if (!nh_ffn_is_gated(b->config->ffn))
        return nh_put_activate(b, h, kind, act, NH_ROLE_ACTIVATION);
    int hidden = nh_cols(b, h) / 2;
    nh_val a = nh_put_activate(b, nh_graph_view(b->g, h, 0, hidden), kind, act, NH_ROLE_ACTIVATION);
    return nh_put_mul(b, a, nh_graph_view(b->g, h, hidden, hidden), glu);
}

nh_val nh_put_feed_forward(struct nh_builder *b, nh_val x, const struct nh_inner *inner)
{
    const struct nh_config *c = b->config;
    bool bias = c->bias == NH_BIAS_ON || c->bias == NH_BIAS_FFN;
    struct nh_part in[2], out;
    int n = nh_put_ffn_parts(b, nh_ffn_hidden(c), in, &out);
    int w_in = nh_put_param(b, "ffn.in", c->width, n, in, NH_ROLE_WEIGHT, NH_SITE_FFN_IN);
    nh_val h = nh_put_linear(b, x, w_in, bias ? "ffn.in.bias" : NULL, NH_SITE_FFN_IN, NH_ROLE_MATMUL_OUT);
    h = nh_put_hidden(b, h, NH_SITE_FFN_ACT, NH_SITE_FFN_GLU);
    if (inner->norm_out)
        h = nh_put_norm(b, h, nh_cols(b, h), false, 1, "ffn.norm_out", NH_SITE_NORM_INNER);
    int w_out = nh_put_param(b, "ffn.out", nh_cols(b, h), 1, &out, NH_ROLE_WEIGHT, NH_SITE_FFN_OUT);
    return nh_put_linear(b, h, w_out, bias ? "ffn.out.bias" : NULL, NH_SITE_FFN_OUT, NH_ROLE_MATMUL_OUT);
}
