// SPDX-License-Identifier: GPL-3.0-or-later
#include "layouts/layout.h"

enum { GAIN, COSINE };

static const char *const switch_words[] = {"off", "on", NULL};

static const struct nh_knob knobs[] = {
    [GAIN] = {.name = "gain", .start = 0, .min = 0, .max = 1e6, .help = "start gain of the norm"},
    [COSINE] = {.name = "cosine", .start = 1, .max = 1, .help = "cosine attention", .words = switch_words},
    {0},
};

static void sublayer(struct nh_builder *b, const struct nh_pos *pos, const double *knob, nh_val *x)
{
    (void)pos;
    const struct nh_inner inner = {.cosine = knob[COSINE] > 0 ? 10 : 0};
    *x = nh_add(b, *x, nh_norm(b, NH_N2, nh_branch_with(b, *x, &inner), knob[GAIN]));
}

static struct nh_law_term law_term(const struct nh_pos *pos, const double *knob)
{
    (void)pos;
    return (struct nh_law_term){.skip = 1, .in_scale = 1, .post_norm = true, .post_gain = knob[GAIN]};
}

const struct nh_layout nh_layout_respost = {
    .name = "respost",
    .aliases = (const char *const[]){"swin-v2", NULL},
    .equation = "x' = x + N(f(x)); final norm",
    .gains = "N 0 at the start: the identity",
    .law = "q_k = r0^2 at gain 0",
    .source = "Swin v2, arXiv:2111.09883 [secondary]; microsoft/Swin-Transformer models/swin_transformer_v2.py [read]: "
              "LayerNorm (--norm layer), cosine attention with factor 10; its clamp at 100 is left out",
    .knobs = knobs,
    .n_streams = 1,
    .sublayer = sublayer,
    .exit = nh_exit_norm,
    .law_term = law_term,
};
