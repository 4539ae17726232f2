// SPDX-License-Identifier: GPL-3.0-or-later
/** A mixture of experts in place of the FFN (huggingface/transformers modeling_afmoe.py; arXiv:2602.17004 section 2):
 *  y = sum over the k chosen experts of w_e E_e(x) + S(x), E and S FFNs as --ffn says, S of the widths of the shared experts together.
 *  Routed values have the k slots of a token side by side, its experts in the order of their numbers. No biases: AFMoE has none. */
#include "harness/core/builder.h"
#include "harness/core/init.h"

#include <assert.h>

/** Records what gives the weights of the chosen: B*T x k. */
static nh_val put_route(struct nh_builder *b, nh_val x)
{
    const struct nh_moe *moe = &b->config->moe;
    struct nh_part w = {.rows = moe->experts, .tensor = NH_TENSOR_ROUTER, .std = nh_router_std(b->config)};
    int router = nh_put_param(b, "ffn.router", nh_cols(b, x), 1, &w, NH_ROLE_WEIGHT, NH_SITE_ROUTER);
    nh_val logits = nh_put_linear(b, x, router, NULL, NH_SITE_ROUTER, NH_ROLE_MATMUL_OUT);
    /* scores are fp32 or wider inside the operation; bias and weights are as wide as a softmax */
    int bias = nh_put_constant(b, "ffn.expert_bias", moe->experts, 0, NH_ROLE_SOFTMAX, NH_SITE_ROUTE);
    b->g->params[bias].frozen = true;
    nh_val weights = nh_put_value(b, moe->active, NH_SITE_ROUTE, NH_ROLE_SOFTMAX);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_ROUTE, weights);
    r->in[0] = logits, r->par[0] = bias, r->u.route.scale = moe->route_scale;
    return weights;
}

/** One product of all experts: B*T rows of `cols` columns a slot. The parameter has the parts of every expert in turn. */
static nh_val put_product(struct nh_builder *b, nh_val x, nh_val weights, const char *name, int cols, int n_parts, struct nh_part *parts,
                          enum nh_site_name where)
{
    const struct nh_moe *moe = &b->config->moe;
    int rows = 0;
    for (int i = 0; i < n_parts; i++) {
        parts[i].tensor += NH_TENSOR_STEP; /* the shared FFN has the streams below */
        rows += parts[i].rows;
    }
    x = nh_put_matmul_in(b, x);
    int w = nh_put_repeated(b, name, cols, n_parts, parts, moe->experts, NH_ROLE_WEIGHT, where);
    nh_val y = nh_put_value(b, moe->active * rows, where, NH_ROLE_MATMUL_OUT);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_EXPERTS, y);
    r->in[0] = x, r->par[0] = w;
    r->u.experts.route = b->g->values[weights].rec, r->u.experts.parts = n_parts;
    return y;
}

/** The FFN of `hidden` columns that every token goes through. */
static nh_val put_shared(struct nh_builder *b, nh_val x, int hidden)
{
    struct nh_part in[2], out;
    int n = nh_put_ffn_parts(b, hidden, in, &out), cols = nh_cols(b, x);
    int w_in = nh_put_param(b, "ffn.shared.in", cols, n, in, NH_ROLE_WEIGHT, NH_SITE_FFN_IN);
    nh_val h = nh_put_linear(b, x, w_in, NULL, NH_SITE_FFN_IN, NH_ROLE_MATMUL_OUT);
    h = nh_put_hidden(b, h, NH_SITE_FFN_ACT, NH_SITE_FFN_GLU);
    int w_out = nh_put_param(b, "ffn.shared.out", hidden, 1, &out, NH_ROLE_WEIGHT, NH_SITE_FFN_OUT);
    return nh_put_linear(b, h, w_out, NULL, NH_SITE_FFN_OUT, NH_ROLE_MATMUL_OUT);
}

nh_val nh_put_experts(struct nh_builder *b, nh_val x, const struct nh_inner *inner)
{
    const struct nh_moe *moe = &b->config->moe;
    int hidden = nh_expert_hidden(b->config), width = nh_cols(b, x);
    struct nh_part in[2], out;
    int n = nh_put_ffn_parts(b, hidden, in, &out);
    assert(!inner->norm_out); /* nobody has said where it would stand */
    nh_val weights = put_route(b, x);
    nh_val h = put_product(b, x, weights, "ffn.experts.in", width, n, in, NH_SITE_EXPERT_IN);
    h = nh_put_hidden(b, h, NH_SITE_EXPERT_ACT, NH_SITE_EXPERT_GLU);
    h = put_product(b, h, weights, "ffn.experts.out", hidden, 1, &out, NH_SITE_EXPERT_OUT);
    nh_val y = nh_put_value(b, width, NH_SITE_EXPERT_SUM, NH_ROLE_ACTIVATION);
    struct nh_rec *r = nh_graph_rec(b->g, NH_OP_COMBINE, y);
    r->in[0] = h, r->in[1] = weights;
    return moe->shared ? nh_put_axpby(b, 1, y, 1, put_shared(b, x, moe->shared * hidden), NH_SITE_MOE, NH_ROLE_ACTIVATION) : y;
}
