// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x)
{
    (void)pos, (void)knobs;
    nh_val f = nh_branch(b, nh_norm(b, NH_N1, *x, 1));
    *x = nh_add(b, *x, nh_norm(b, NH_N2, f, 1));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knobs)
{
    (void)pos, (void)knobs;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .post_gain = 1, .pre_norm = true};
}

const struct nh_layout nh_layout_sandwich = {
    .name = "sandwich",
    .aliases = (const char *const[]){"sandwich-norm", "sandwich-ln", "peri-ln", NULL},
    .equation = "x' = x + N2(f(N1(x))); final norm",
    .gains = "all 1",
    .law = "q_k = r0^2 + k",
    .source = "CogView, arXiv:2105.13290 section 2.4 [secondary], THUDM/CogView mpu/sparse_transformer.py [read]; Peri-LN, arXiv:2502.02732 [secondary]",
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
