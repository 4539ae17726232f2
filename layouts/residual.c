// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    nh_val f = nh_branch(b, x[0]);
    x[0] = nh_norm(b, NH_OUTER, nh_add(b, x[0], f), 1);
    x[1] = nh_add(b, x[1], f);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos, (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .outer_norm = true, .second = 1};
}

static nh_val leave(struct nh_builder *b, const nh_val *x)
{
    return nh_add(b, x[0], nh_norm(b, NH_FINAL, x[1], 1));
}

const struct nh_layout nh_layout_residual = {
    .name = "residual",
    .aliases = (const char *const[]){"resi-dual", "residual-dual", NULL},
    .equation = "x' = N(x + f(x)), y' = y + f(x); the head reads x_L + N(y_L)",
    .gains = "all 1",
    .law = "stream 0: 1; stream 1: r0^2 + sum of v",
    .source = "ResiDual, arXiv:2304.14802 [secondary]; microsoft/ResiDual resi_dual.py, resi_dual_layers.py [read], a = c = 1",
    .n_streams = 2,
    .sublayer = sublayer,
    .exit = leave,
    .law_term = law_term,
};
