// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/core/site.h"

#include <math.h>
#include <stddef.h>

const char *const nh_site_names[] = {
    [NH_SITE_EMBED] = "embed",
    [NH_SITE_NORM_RELAX] = "norm_relax",
    [NH_SITE_NORM_IN] = "norm_in",
    [NH_SITE_NORM_PRE] = "norm_pre",
    [NH_SITE_NORM_SCALE] = "norm_scale",
    [NH_SITE_BRANCH_IN] = "branch_in",
    [NH_SITE_QKV] = "qkv",
    [NH_SITE_QK_NORM] = "qk_norm",
    [NH_SITE_ROPE] = "rope",
    [NH_SITE_Q_SCALE] = "q_scale",
    [NH_SITE_QK] = "qk",
    [NH_SITE_SCORES] = "scores",
    [NH_SITE_SCORE_CAP] = "score_cap",
    [NH_SITE_PROBS] = "probs",
    [NH_SITE_ATTN_V] = "attn_v",
    [NH_SITE_HEAD_SCALE] = "head_scale",
    [NH_SITE_GATE_IN] = "gate_in",
    [NH_SITE_GATE_ACT] = "gate_act",
    [NH_SITE_GATE] = "gate",
    [NH_SITE_ATTN_OUT] = "attn_out",
    [NH_SITE_FFN_IN] = "ffn_in",
    [NH_SITE_FFN_ACT] = "ffn_act",
    [NH_SITE_FFN_GLU] = "ffn_glu",
    [NH_SITE_FFN_OUT] = "ffn_out",
    [NH_SITE_ROUTER] = "router",
    [NH_SITE_ROUTE] = "route",
    [NH_SITE_EXPERT_IN] = "expert_in",
    [NH_SITE_EXPERT_ACT] = "expert_act",
    [NH_SITE_EXPERT_GLU] = "expert_glu",
    [NH_SITE_EXPERT_OUT] = "expert_out",
    [NH_SITE_EXPERT_SUM] = "expert_sum",
    [NH_SITE_MOE] = "moe",
    [NH_SITE_NORM_INNER] = "norm_inner",
    [NH_SITE_NORM_POST] = "norm_post",
    [NH_SITE_BRANCH] = "branch",
    [NH_SITE_SKIP] = "skip",
    [NH_SITE_RESIDUAL] = "residual",
    [NH_SITE_SHRINK] = "shrink",
    [NH_SITE_NORM_FINAL] = "norm_final",
    [NH_SITE_LOGITS] = "logits",
    [NH_SITE_SOFTCAP] = "softcap",
    [NH_SITE_LOSS] = "loss",
    [NH_SITE_CAST] = "cast",
    [NH_SITE_WEIGHT] = "weight",
    [NH_SITE_MOMENT_1] = "moment_1",
    [NH_SITE_MOMENT_2] = "moment_2",
    [NH_SITE_COUNT] = NULL,
};

const char *const nh_site_helps[] = {
    [NH_SITE_EMBED] = "embedding output: token row, times the embedding scale, plus the position row",
    [NH_SITE_NORM_RELAX] = "a norm's input divided by c = max|x| / C over the whole tensor, with --ln-relax=C",
    [NH_SITE_NORM_IN] = "a norm's input, where the role norm-in has a format that it comes not in",
    [NH_SITE_NORM_PRE] = "output of the norm on a branch's input, or on the second stream before it joins that input",
    [NH_SITE_NORM_SCALE] = "output of the norm on a branch's input times a constant of the layout",
    [NH_SITE_BRANCH_IN] = "the stream plus the norm of the second one, what a branch reads",
    [NH_SITE_HEAD_SCALE] = "each head's output times its trained factor",
    [NH_SITE_NORM_INNER] = "output of a norm inside a branch: on values, or before the last matrix",
    [NH_SITE_BRANCH] = "a branch's output times a factor, or the sum of two branches, before the residual add",
    [NH_SITE_SHRINK] = "the stream behind the add, shrunk by a trained factor",
    [NH_SITE_QKV] = "queries, keys and values behind their projections",
    [NH_SITE_QK_NORM] = "queries and keys behind QK-norm",
    [NH_SITE_ROPE] = "queries and keys behind the rotation",
    [NH_SITE_Q_SCALE] = "queries times 1/sqrt(head width), where the scale stands before the product; over alpha with --pb-relax",
    [NH_SITE_QK] = "raw products q.k, where the scale stands after the product",
    [NH_SITE_SCORES] = "what the softmax reads, causal part only; with --pb-relax divided by alpha",
    [NH_SITE_SCORE_CAP] = "scores behind their soft cap, C tanh(scores / C)",
    [NH_SITE_PROBS] = "attention probabilities",
    [NH_SITE_ATTN_V] = "probabilities times values, heads side by side",
    [NH_SITE_GATE_IN] = "product of the branch's input that gates the heads",
    [NH_SITE_GATE_ACT] = "its sigmoid",
    [NH_SITE_GATE] = "heads times their gate",
    [NH_SITE_ATTN_OUT] = "attention behind its output projection",
    [NH_SITE_FFN_IN] = "first product of the FFN (gate and up where it is gated)",
    [NH_SITE_FFN_ACT] = "activation function's output",
    [NH_SITE_FFN_GLU] = "activation times up, where the FFN is gated",
    [NH_SITE_FFN_OUT] = "second product of the FFN",
    [NH_SITE_ROUTER] = "router's product: a logit for each expert",
    [NH_SITE_ROUTE] = "weights of the chosen experts",
    [NH_SITE_EXPERT_IN] = "first product of the chosen experts (gates and ups where they are gated)",
    [NH_SITE_EXPERT_ACT] = "activation function's output in the chosen experts",
    [NH_SITE_EXPERT_GLU] = "activation times up in the chosen experts, where they are gated",
    [NH_SITE_EXPERT_OUT] = "second product of the chosen experts",
    [NH_SITE_EXPERT_SUM] = "sum of the chosen experts' outputs times their weights",
    [NH_SITE_MOE] = "that sum plus the output of the shared experts, which are an FFN with its sites",
    [NH_SITE_NORM_POST] = "output of the norm behind a branch, or behind the residual add",
    [NH_SITE_SKIP] = "the stream times a trained vector, before the residual add",
    [NH_SITE_RESIDUAL] = "the residual add",
    [NH_SITE_NORM_FINAL] = "output of the norm before the head",
    [NH_SITE_LOGITS] = "logits, before a soft cap",
    [NH_SITE_SOFTCAP] = "logits behind the soft cap, C tanh(logits / C)",
    [NH_SITE_LOSS] = "negative log-likelihood of each token, plus C log^2 Z with --z-loss C",
    [NH_SITE_WEIGHT] = "weights, gains and biases as they are stored; direction update: as the optimizer stores them",
    [NH_SITE_MOMENT_1] = "first moment of AdamW, momentum of SGD and Muon; direction update",
    [NH_SITE_MOMENT_2] = "second moment of AdamW; direction update",
    [NH_SITE_CAST] = "a value that goes from one format to another",
    [NH_SITE_COUNT] = NULL,
};

const char *const nh_direction_names[] = {"fwd", "bwd", "wgrad", "update", NULL};
const char *const nh_sublayer_names[] = {"embed", "attn", "ffn", "block", "final", NULL};
const char *const nh_offence_names[] = {"none", "overflow", "nan_made", "underflow", NULL};

void nh_counts_add(struct nh_counts *a, const struct nh_counts *b)
{
    a->total += b->total, a->overflow += b->overflow, a->nan_made += b->nan_made, a->propagated += b->propagated;
    a->zero_made += b->zero_made, a->underflow += b->underflow, a->subnormal += b->subnormal;
    a->max_abs = b->max_abs > a->max_abs ? b->max_abs : a->max_abs;
    a->min_abs = b->min_abs < a->min_abs ? b->min_abs : a->min_abs;
}

double nh_largest(const struct nh_counts *c)
{
    bool nothing_but_nan = c->max_abs == 0 && c->total && c->overflow + c->nan_made + c->propagated >= c->total;
    return nothing_but_nan ? (double)NAN : c->max_abs;
}

bool nh_earlier(const struct nh_first *a, const struct nh_first *b)
{
    return a->kind != NH_NO_OFFENCE &&
           (b->kind == NH_NO_OFFENCE || a->order < b->order || (a->order == b->order && a->index < b->index));
}
