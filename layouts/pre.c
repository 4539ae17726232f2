// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x)
{
    (void)pos, (void)knobs;
    *x = nh_add(b, *x, nh_branch(b, nh_norm(b, NH_N1, *x, 1)));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knobs)
{
    (void)pos, (void)knobs;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = true};
}

const struct nh_layout nh_layout_pre = {
    .name = "pre",
    .aliases = (const char *const[]){"pre-norm", "pre-ln", NULL},
    .equation = "x' = x + f(N(x)); final norm",
    .gains = "all 1",
    .law = "q_k = r0^2 + sum of v_j, j <= k",
    .source = "Xiong et al. 2020, arXiv:2002.04745 section 3; GPT-2 and Llama code [read]",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
