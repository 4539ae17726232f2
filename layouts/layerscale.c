// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static const struct nh_knob knobs[] = {
    {.name = "lam", .start = 0, .max = 1e3, .help = "start of the gains; 0 = by depth, as in the paper"},
    {0},
};

static double lambda(const struct nh_pos *pos, const double *knob)
{
    return knob[0] > 0 ? knob[0] : pos->depth <= 18 ? 0.1 : pos->depth <= 24 ? 1e-5 : 1e-6;
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    *x = nh_add(b, *x, nh_gain(b, nh_branch(b, nh_norm(b, NH_N1, *x, 1)), true, lambda(pos, knob)));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    return (struct nh_law_term){.skip = 1, .branch = lambda(pos, knob), .in_scale = 1, .pre_norm = true};
}

const struct nh_layout nh_layout_layerscale = {
    .name = "layerscale",
    .aliases = (const char *const[]){"cait", NULL},
    .equation = "x' = x + diag(lam) f(N(x)), lam trained; final norm",
    .gains = "N 1; lam 0.1 (L <= 18), 1e-5 (L <= 24), 1e-6 (deeper)",
    .law = "q = r0^2 + lam^2 times the sum of v",
    .source = "arXiv:2103.17239, form [read], values of lam [memory]",
    .knobs = knobs,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
