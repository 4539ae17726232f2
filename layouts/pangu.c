// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

#include <math.h>

static const struct nh_knob knobs[] = {
    [NH_ATTN] = {.name = "c-attn", .start = 0.283, .max = 1e3, .help = "factor on the gain behind attention"},
    [NH_FFN] = {.name = "c-mlp", .start = 0.432, .max = 1e3, .help = "factor on the gain behind the FFN"},
    {0},
};

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    nh_val f = nh_branch(b, nh_norm(b, NH_N1, *x, 1));
    *x = nh_add(b, *x, nh_norm(b, NH_N2, f, knob[pos->kind] / sqrt(pos->depth)));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    return (struct nh_law_term){.skip = 1, .in_scale = 1, .pre_norm = true, .post_norm = true,
                                .post_gain = knob[pos->kind] / sqrt(pos->depth)};
}

const struct nh_layout nh_layout_pangu = {
    .name = "pangu",
    .aliases = (const char *const[]){"pangu-ultra", NULL},
    .equation = "x' = x + N2(f(N1(x))); final norm",
    .gains = "N1 1, N2 c_attn/sqrt(L) and c_mlp/sqrt(L); final 1",
    .law = "q after layer l = r0^2 + (c_attn^2 + c_mlp^2) l/L",
    .source = "Pangu Ultra, arXiv:2504.07866 sections 2.2-2.3, constants [secondary]; its init is --init pangu",
    .knobs = knobs,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
