// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x)
{
    (void)pos, (void)knobs;
    *x = nh_norm(b, NH_OUTER, nh_add(b, *x, nh_branch(b, *x)), 1);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knobs)
{
    (void)pos, (void)knobs;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .outer_norm = true};
}

const struct nh_layout nh_layout_post = {
    .name = "post",
    .aliases = (const char *const[]){"post-norm", "post-ln", NULL},
    .equation = "x' = N(x + f(x)); no final norm",
    .gains = "all 1",
    .law = "q_k = 1 (the sum before the norm: 1 + v_k)",
    .source = "Vaswani et al. 2017, arXiv:1706.03762; Xiong et al. 2020, arXiv:2002.04745 sections 3.1-3.3 [read]",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_bare,
    .law_term = law_term,
};
