// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

/** Values and the matrices behind them; queries and keys are left alone. */
static double weight_gain(enum nh_weight weight, const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return weight == NH_W_Q || weight == NH_W_K ? 1 : pow(8 * pos->depth, -0.25);
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)knob;
    *x = nh_norm(b, NH_OUTER, nh_add_scaled(b, pow(2 * pos->depth, 0.25), *x, nh_branch(b, *x)), 1);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return (struct nh_law_term){.skip = pow(2 * pos->depth, 0.25), .branch = 1, .in_scale = 1, .outer_norm = true};
}

const struct nh_layout nh_layout_deepnorm = {
    .name = "deepnorm",
    .aliases = (const char *const[]){"deepnet", NULL},
    .equation = "x' = N(a x + f(x)), a = (2L)^(1/4); no final norm",
    .gains = "all 1; V, O and FFN weights times (8L)^(-1/4)",
    .law = "q_k = 1",
    .source = "DeepNet, arXiv:2203.00555 [secondary], decoder-only constants; microsoft/torchscale "
              "architecture/decoder.py [read]; its init is --init xavier",
    .weight_gain = weight_gain,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_bare,
    .law_term = law_term,
};
