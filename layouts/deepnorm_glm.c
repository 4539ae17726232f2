// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

/** Values and the matrices behind them; queries and keys are left alone. */
static double weight_gain(enum nh_weight weight, const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return weight == NH_W_Q || weight == NH_W_K ? 1 : pow(2 * pos->depth, -0.5);
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)knob;
    *x = nh_norm(b, NH_OUTER, nh_add_scaled(b, sqrt(2 * pos->depth), *x, nh_branch(b, *x)), 1);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return (struct nh_law_term){.skip = sqrt(2 * pos->depth), .branch = 1, .in_scale = 1, .outer_norm = true};
}

const struct nh_layout nh_layout_deepnorm_glm = {
    .name = "deepnorm-glm",
    .aliases = (const char *const[]){"glm130b", NULL},
    .equation = "x' = N(a x + f(x)), a = (2L)^(1/2); no final norm",
    .gains = "all 1; V, O and FFN weights times (2L)^(-1/2)",
    .law = "q_k = 1",
    .source = "GLM-130B, arXiv:2210.02414 section 2.1 [secondary]; THUDM/SwissArmyTransformer glm130B model [read]; "
              "its init is --init xavier",
    .weight_gain = weight_gain,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_bare,
    .law_term = law_term,
};
