// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)knob;
    *x = nh_add(b, *x, nh_branch(b, nh_norm(b, NH_N1, *x, 1 / sqrt(pos->layer))));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1 / sqrt(pos->layer), .pre_norm = true};
}

const struct nh_layout nh_layout_lns_gain = {
    .name = "lns-gain",
    .equation = "x' = x + f(N(x)), the gain of N starts at 1/sqrt(l); final norm",
    .gains = "N 1/sqrt(l), trained",
    .law = "as lns",
    .source = "dandingsky/GPAS modeling_llama.py [read]",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
