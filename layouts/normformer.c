// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)knob;
    nh_val h = nh_norm(b, NH_N1, *x, 1);
    if (pos->kind == NH_ATTN)
        *x = nh_add(b, *x, nh_norm(b, NH_N2, nh_branch_with(b, h, &(struct nh_inner){.scale_heads = true}), 1));
    else
        *x = nh_add(b, *x, nh_branch_with(b, h, &(struct nh_inner){.norm_out = true}));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    bool attention = pos->kind == NH_ATTN;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = true, .post_norm = attention, .post_gain = attention,
                                .norm_out = !attention};
}

const struct nh_layout nh_layout_normformer = {
    .name = "normformer",
    .equation =
        "attention: x' = x + N2(A(N1(x))), heads scaled before W_O; FFN: x' = x + W2 N(act(W1 N1(x))); final norm",
    .gains = "all 1",
    .law = "unit init: r0^2 + 2l",
    .source = "arXiv:2110.09456 [secondary]; fairseq-type code scales the heads behind W_O, the paper before it "
              "[memory]: here before; equal at the start",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
