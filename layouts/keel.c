// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static const struct nh_knob knobs[] = {
    {.name = "a", .start = 0, .max = 1e6, .help = "factor on the skip; 0 = 2L, the number of sublayers"},
    {0},
};

static double skip(const struct nh_pos *pos, const double *knob)
{
    return knob[0] > 0 ? knob[0] : 2 * pos->depth;
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    nh_val f = nh_branch(b, nh_norm(b, NH_N1, *x, 1));
    *x = nh_norm(b, NH_OUTER, nh_add_scaled(b, skip(pos, knob), *x, f), 1);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    return (struct nh_law_term){.skip = skip(pos, knob), .branch = 1, .in_scale = 1, .pre_norm = true, .outer_norm = true};
}

const struct nh_layout nh_layout_keel = {
    .name = "keel",
    .equation = "x' = N(a x + f(N(x))), a = 2L; no final norm",
    .gains = "all 1",
    .law = "q_k = 1",
    .source = "Keel, arXiv:2601.19895, equation and a [secondary]; its init is not known",
    .knobs = knobs,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_bare,
    .law_term = law_term,
};
