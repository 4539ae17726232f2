// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static const struct nh_knob knobs[] = {
    {.name = "post-fraction", .start = 0.25, .max = 1, .help = "share a of the layers, from the first on, that are post"},
    {0},
};

extern const struct nh_layout nh_layout_pre, nh_layout_post;

static const struct nh_layout *part(const struct nh_pos *pos, const double *knob)
{
    const double rounding = 1e-9; /* 0.29 * 100 is 28.999999999999996 */
    return pos->layer <= floor(knob[0] * pos->depth + rounding) ? &nh_layout_post : &nh_layout_pre;
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    part(pos, knob)->sublayer(b, pos, NULL, x);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    return part(pos, knob)->law_term(pos, NULL);
}

const struct nh_layout nh_layout_mix_ln = {
    .name = "mix-ln",
    .aliases = (const char *const[]){"mixln", NULL},
    .equation = "post for l <= floor(aL), pre after; final norm",
    .gains = "all 1",
    .law = "1, then 1 + the sum of v after the switch",
    .source = "arXiv:2412.13795 [secondary], pixeli99/MixLN [read] (3 of 12 layers post); a = 0.25 [secondary]",
    .knobs = knobs,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
