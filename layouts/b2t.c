// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void block(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    nh_at(b, NH_ATTN);
    nh_val u = nh_norm(b, NH_OUTER, nh_add(b, *x, nh_branch(b, *x)), 1);
    nh_at(b, NH_FFN);
    *x = nh_norm(b, NH_OUTER, nh_add(b, nh_add(b, u, nh_branch(b, u)), *x), 1);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos, (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .outer_norm = true};
}

const struct nh_layout nh_layout_b2t = {
    .name = "b2t",
    .aliases = (const char *const[]){"b2t-connection", NULL},
    .equation = "u = N(x + A(x)); x' = N(u + F(u) + x); no final norm",
    .gains = "all 1",
    .law = "q = 1",
    .source = "takase/b2t_connection fairseq/modules/transformer_layer.py [read]: the block's input enters again before the last norm only",
    .n_streams = 1,
    .block = block,
    .exit = nh_exit_bare,
    .law_term = law_term,
};
