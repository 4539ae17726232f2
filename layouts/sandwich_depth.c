// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knobs, nh_val *x)
{
    (void)knobs;
    nh_val f = nh_branch(b, nh_norm(b, NH_N1, *x, 1));
    *x = nh_add(b, *x, nh_norm(b, NH_N2, f, 1 / sqrt(pos->depth)));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knobs)
{
    (void)knobs;
    return (struct nh_law_term){
        .skip = 1, .branch = 1, .in_scale = 1, .post_norm = true, .post_gain = 1 / sqrt(pos->depth), .pre_norm = true};
}

const struct nh_layout nh_layout_sandwich_depth = {
    .name = "sandwich-depth",
    .aliases = (const char *const[]){"depth-scaled-sandwich", "dssn", "trinity", NULL},
    .equation = "x' = x + N2(f(N1(x))); final norm",
    .gains = "N1 1, N2 1/sqrt(L), L = number of layers; final 1",
    .law = "q_k = r0^2 + k/L; at the end r0^2 + 2",
    .source = "Arcee Trinity Large report, arXiv:2602.17004 section 2.3 eq. 33-36, section 2.4 eq. 37-39 [read]",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
