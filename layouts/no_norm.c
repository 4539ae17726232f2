// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    *x = nh_add(b, *x, nh_branch(b, *x));
}

const struct nh_layout nh_layout_no_norm = {
    .name = "no-norm",
    .equation = "x' = x + f(x); no norm",
    .gains = "none",
    .law = "a branch of degree 1: q_k = (1 + v) q_(k-1); SwiGLU faster than exponential",
    .source = "control; law derived from independent weights",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_bare,
};
