// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)knob;
    *x = nh_add(b, *x, nh_branch(b, nh_scale(b, nh_norm(b, NH_N1, *x, 1), 1 / sqrt(pos->layer))));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1 / sqrt(pos->layer), .pre_norm = true};
}

const struct nh_layout nh_layout_lns = {
    .name = "lns",
    .aliases = (const char *const[]){"layernorm-scaling", NULL},
    .equation = "x' = x + f(N(x)/sqrt(l)); final norm",
    .gains = "N 1; the factor is fixed",
    .law = "q = r0^2 + sum over l of v_attn(1/l) + v_ffn(1/l), v at mean square 1/l",
    .source = "LayerNorm scaling, arXiv:2502.05795 [memory]; lmsdss/LayerNorm-Scaling README, allenai/OLMo-core "
              "LayerNormScaledTransformerBlock [read]; its authors advise against 1/sqrt(2L) on top",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
