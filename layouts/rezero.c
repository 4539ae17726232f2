// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    *x = nh_add(b, *x, nh_gain(b, nh_branch(b, *x), false, 0));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos, (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 0, .in_scale = 1};
}

const struct nh_layout nh_layout_rezero = {
    .name = "rezero",
    .equation = "x' = x + a f(x), a trained; no norm",
    .gains = "a = 0",
    .law = "q_k = r0^2",
    .source = "arXiv:2003.04887 [memory]",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_bare,
    .law_term = law_term,
};
