// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static double weight_gain(enum nh_weight weight, const struct nh_pos *pos, const double *knob)
{
    (void)knob;
    return weight == NH_W_Q || weight == NH_W_K ? 1 : sqrt(log(2.0 * pos->depth));
}

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    *x = nh_add(b, *x, nh_branch_with(b, nh_norm(b, NH_N1, *x, 1), &(struct nh_inner){.norm_out = true}));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos, (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = true, .norm_out = true};
}

const struct nh_layout nh_layout_subln = {
    .name = "subln",
    .aliases = (const char *const[]){"magneto", NULL},
    .equation = "x' = x + f(N1(x)) with a norm before W_O and before W2; final norm",
    .gains = "all 1; V, O and FFN weights times sqrt(ln 2L)",
    .law = "unit base: r0^2 + 2l ln(2L)",
    .source = "Magneto, arXiv:2210.06423 [secondary]; microsoft/torchscale architecture/decoder.py [read]; its base is --init xavier",
    .weight_gain = weight_gain,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
