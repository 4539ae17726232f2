// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static double skip_start(double variances)
{
    return sqrt(1 + variances);
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    *x = nh_norm(b, NH_OUTER, nh_add(b, nh_skip_gain(b, *x), nh_branch(b, *x)), 1);
}

/** The skip at 1: behind the outer norm its factor does not show. */
static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos, (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .outer_norm = true};
}

const struct nh_layout nh_layout_admin = {
    .name = "admin",
    .equation = "x' = N(w_k x + f_k(x)), w_k a trained vector; no final norm",
    .gains = "N 1; w_k^2 = 1 + the sum over j < k of Var f_j, measured on the first batch with all w at 1",
    .law = "q_k = 1",
    .source = "Admin, Liu et al. 2020, arXiv:2004.08249 [memory]; LiyuanLucasLiu/Transformer-Clinic "
              "fairseq/fairseq/modules/transformer_layer.py [read], where each w is set before the next Var is "
              "measured; its init is --init xavier",
    .skip_start = skip_start,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_bare,
    .law_term = law_term,
};
