// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x)
{
    (void)knobs;
    nh_val f = nh_branch(b, nh_norm(b, NH_N1, *x, 1));
    *x = nh_add(b, *x, nh_norm(b, NH_N2, f, 1 / sqrt(pos->layer)));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knobs)
{
    (void)knobs;
    return (struct nh_law_term){
        .skip = 1, .branch = 1, .in_scale = 1, .post_norm = true, .post_gain = 1 / sqrt(pos->layer), .pre_norm = true};
}

const struct nh_layout nh_layout_sandwich_l = {
    .name = "sandwich-l",
    .aliases = (const char *const[]){"sandwich-layer", NULL},
    .equation = "x' = x + N2(f(N1(x))); final norm",
    .gains = "N1 1, N2 1/sqrt(l) in layer l, both sublayers; final 1",
    .law = "q after layer l = r0^2 + 2 H_l, H_l = 1 + 1/2 + ... + 1/l",
    .source = "no published recipe found; a schedule of its own, not an alias of sandwich-depth",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
