// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    *x = nh_add(b, *x, nh_norm(b, NH_N2, nh_branch(b, *x), 1));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos, (void)knob;
    return (struct nh_law_term){.skip = 1, .in_scale = 1, .post_norm = true, .post_gain = 1};
}

const struct nh_layout nh_layout_reordered = {
    .name = "reordered",
    .aliases = (const char *const[]){"olmo2", "outside-norm", NULL},
    .equation = "x' = x + N(f(x)); final norm",
    .gains = "all 1",
    .law = "q_k = r0^2 + k",
    .source = "OLMo 2, arXiv:2501.00656 [secondary]; allenai/OLMo-core src/olmo_core/nn/transformer/block.py, "
              "ReorderedNormTransformerBlock [read]; QK-norm belongs to it: --qk-norm",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
