// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos, (void)knob;
    *x = nh_shrink(b, nh_add(b, *x, nh_branch(b, nh_norm(b, NH_N1, *x, 1))), 0);
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos, (void)knob;
    return (struct nh_law_term){.skip = 1, .branch = 1, .in_scale = 1, .pre_norm = true};
}

const struct nh_layout nh_layout_gpas = {
    .name = "gpas",
    .equation = "pre, and behind every add x <- x - silu(a) stopgrad(x), a trained; final norm",
    .gains = "a = 0",
    .law = "as pre",
    .source = "arXiv:2506.22049 [secondary]; dandingsky/GPAS modeling_llama.py [read]; there one a per layer, here one behind each add",
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
